#!/usr/bin/env bash
# Runs the conformance suite: run.sh PROGRAMS-DIR RUNNER MODE [runner arguments...]
# MODE: server, client, or both (weft against itself, gRPC over HTTP/3 included).
set -euo pipefail

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
programs=$1 runner=$2 mode=$3
shift 3
client=$programs/conformance_client
server=$programs/conformance_server
result=0

log=$(mktemp)
trap 'rm -f "$log"' EXIT
matched=0

# The runner waits for ever where a peer of its own hangs, and takes a pattern of --run that means
# nothing in one of its configurations for a mistake.
run() { # run NAME CONF MODE ARGUMENTS... -- COMMAND...
  local name=$1 conf=$2 how=$3
  shift 3
  echo "$name"
  if timeout "${WEFT_CONFORMANCE_LIMIT:-600}" "$runner" --mode "$how" --conf "$here/$conf" \
    --known-failing "@$here/known-failing.txt" "$@" 2>&1 | tee "$log"; then
    matched=1
  elif ! grep -q '^run patterns: unmatched' "$log"; then
    matched=1
    result=1
    echo "$name: FAILED" >&2
  fi
}

if [ "$mode" = server ] || [ "$mode" = both ]; then
  run 'weft as server, HTTP/2' http2.yaml server "$@" -- "$server"
  run 'weft as server, HTTP/3' http3.yaml server "$@" -- "$server"
fi
if [ "$mode" = client ] || [ "$mode" = both ]; then
  run 'weft as client, HTTP/2' http2.yaml client "$@" -- "$client"
  run 'weft as client, HTTP/3' http3.yaml client "$@" -- "$client"
fi
if [ "$mode" = both ]; then
  run 'weft with itself, gRPC over HTTP/3' http3-grpc.yaml both "$@" -- \
    "$client" --http3 ---- "$server" --http3
fi
[ $matched = 1 ] || { echo "no case has such a name" >&2; result=1; }
exit $result
