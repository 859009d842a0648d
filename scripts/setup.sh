#!/usr/bin/env bash
# Installs what weft builds with, from Debian's own archives and nothing else. Does nothing, at once,
# when everything is there. Root, or sudo.
#
# Debian 13 has everything but ngtcp2 >= 1.24 and nghttp3 >= 1.17, which come from testing, pinned to
# those packages alone. On Debian 12 the Debian 13 archive is added at a priority below the machine's
# own, so that only this script's transaction uses it and a later `apt upgrade` leaves the machine
# where it was. The archive's address is the one the machine already uses.
set -euo pipefail

readonly stable=trixie testing=forky
readonly lists=/etc/apt/sources.list.d pins=/etc/apt/preferences.d/weft
readonly from_testing=(libngtcp2-dev libngtcp2-crypto-ossl-dev libnghttp3-dev libhdr-histogram-dev)
from_stable=(
  g++-14 cmake ninja-build ccache mold pkgconf git ca-certificates python3
  libasio-dev libssl-dev openssl libprotobuf-dev libprotoc-dev protobuf-compiler libzstd-dev zlib1g-dev
  libbrotli-dev libnghttp2-dev
  libcli11-dev nlohmann-json3-dev libgtest-dev libgmock-dev libboost-dev libxxhash-dev
  clang-19 clang-format-19 libclang-rt-19-dev
)
if [ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ]; then
  from_stable+=(libipsec-mb-dev)  # optional, and for x86-64 only
fi
readonly from_stable
# What a machine may have installed already, but too old.
readonly at_least=(
  cmake=3.25 libssl-dev=3.5 libprotobuf-dev=3.21.12 libprotoc-dev=3.21.12 libngtcp2-dev=1.24
  libngtcp2-crypto-ossl-dev=1.24 libnghttp3-dev=1.17 libnghttp2-dev=1.60 libasio-dev=1:1.28 libipsec-mb-dev=2.0
)

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# One line each: packages that are missing or too old.
wanted() {
  local -A have=()
  local package state version rule
  while read -r package state version; do
    [ "$state" = installed ] && have[$package]=$version
  done < <(dpkg-query -W -f '${Package} ${db:Status-Status} ${Version}\n' \
             "${from_stable[@]}" "${from_testing[@]}" 2>/dev/null || true)
  for package in "${from_stable[@]}" "${from_testing[@]}"; do
    [ -n "${have[$package]:-}" ] || echo "$package"
  done
  for rule in "${at_least[@]}"; do
    package=${rule%%=*} version=${rule#*=}
    [ -z "${have[$package]:-}" ] || dpkg --compare-versions "${have[$package]}" ge "$version" ||
      echo "$package"
  done
}

# "CODENAME ADDRESS FILE:ENTRY" of every Debian archive among this machine's apt sources.
archives() {
  # shellcheck disable=SC2016  # apt expands these
  apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI) $(SOURCESENTRY)' \
    'Created-By: Packages' | sed -n 's/^Debian //p' | grep -vE '^[a-z]+-' || true
}

# The archive this machine already uses, so that no address is written down here.
own_address() { archives | awk -v mine="$lists/weft-" 'index($3, mine) != 1 && !n++ { print $2 }'; }

write_file() { as_root tee "$1" >/dev/null; }

add_suite() {
  archives | grep "^$1 " >/dev/null && return 0
  say "adding Debian $1 to the apt sources ($lists/weft-$1.sources)"
  write_file "$lists/weft-$1.sources" <<SOURCE
Types: deb
URIs: $2
Suites: $1
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCE
}

pin() { printf 'Package: %s\nPin: release n=%s\nPin-Priority: %s\n\n' "$1" "$2" "$3"; }

# A suite that the machine's owner has chosen keeps its priority; those added here rank below.
add_pins() {
  {
    pin 'libngtcp2* libnghttp3* libhdr-histogram*' "$testing" 990
    [ ! -e "$lists/weft-$testing.sources" ] || pin '*' "$testing" -10
    [ ! -e "$lists/weft-$stable.sources" ] || pin '*' "$stable" 100
  } | write_file "$pins"
}

update() {
  as_root apt-get update -q -o DPkg::Lock::Timeout=300 ||
    say "apt-get update reported a failure above; going on with what it has"
}

install() {
  # One transaction: libc6 and libssl move together with whatever depends on them.
  as_root env DEBIAN_FRONTEND=noninteractive APT_LISTCHANGES_FRONTEND=none NEEDRESTART_MODE=l \
    apt-get install -y -q --no-install-recommends -t "$stable" -o DPkg::Lock::Timeout=300 \
    -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@"
}

main() {
  local needed address
  mapfile -t needed < <(wanted | sort -u)
  [ "${#needed[@]}" != 0 ] || return 0
  { command -v apt-get && command -v dpkg-query; } >/dev/null ||
    die "knows Debian 12 and 13 only; install by hand: ${needed[*]}"
  [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
    die "needs root or sudo to install: ${needed[*]}"

  say "installing ${needed[*]}"
  address=$(own_address)
  if [ -z "$address" ]; then  # package lists were never fetched, as in a fresh container
    update
    address=$(own_address)
  fi
  [ -n "$address" ] || die "no Debian archive among this machine's apt sources; add one, try again"
  add_suite "$stable" "$address"
  add_suite "$testing" "$address"
  add_pins
  update
  install "${needed[@]}"

  mapfile -t needed < <(wanted | sort -u)
  [ "${#needed[@]}" = 0 ] || die "apt finished, but still missing or too old: ${needed[*]}"
  say "done"
}

main "$@"
