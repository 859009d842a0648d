#!/usr/bin/env bash
# check.sh [--update] PROTOC PLUGIN: the generator's output for *.proto here against expected/.
# With --update, replaces expected/ by it.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
update=''
if [ "${1:-}" = --update ]; then
  update=1
  shift
fi
protoc=${1:-protoc}
plugin=${2:-$(cd "$here/../../.." && pwd)/build/dev/tools/protoc-gen-weft/protoc-gen-weft}
[ -x "$plugin" ] || { echo "check.sh: $plugin is not there: ./dev build dev protoc-gen-weft" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/out"

generate() { "$protoc" --plugin=protoc-gen-weft="$plugin" "$@"; }

expect_refusal() { # expect_refusal TEXT protoc-argument...
  local text=$1 said
  shift
  if said=$(generate "$@" 2>&1); then
    echo "check.sh: protoc accepted $*" >&2
    exit 1
  fi
  grep -qF "$text" <<<"$said" || { echo "check.sh: expected '$text', protoc said: $said" >&2; exit 1; }
}

generate --proto_path="$here" --weft_out="$work/out" "$here"/*.proto
if [ -n "$update" ]; then
  rm -rf "$here/expected"
  cp -r "$work/out" "$here/expected"
fi
diff -ru "$here/expected" "$work/out"

cat >"$work/collision.proto" <<'PROTO'
syntax = "proto3";
message Nothing {}
service Collision {
  rpc class(Nothing) returns (Nothing);
  rpc class_(Nothing) returns (Nothing);
}
PROTO
cat >"$work/package.proto" <<'PROTO'
syntax = "proto3";
package a.namespace.b;
service Nothing {}
PROTO
refusal=(--proto_path="$work" --weft_out="$work/out")
expect_refusal 'would both be called class_ in C++' "${refusal[@]}" collision.proto
expect_refusal 'contains the C++ keyword namespace' "${refusal[@]}" package.proto
expect_refusal 'takes no options' --proto_path="$here" --weft_out="fast:$work/out" everything.proto
echo "1 passed, 0 failed"
