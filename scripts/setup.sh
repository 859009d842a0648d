#!/usr/bin/env bash
# Installs what weft builds with, from Debian's own archives and nothing else.
#
# Debian 13 has everything but ngtcp2 >= 1.24 and nghttp3 >= 1.17, which come from testing, pinned to those packages
# alone. On Debian 12 the Debian 13 archive is added at a priority below the machine's own, so that only this script's
# transaction uses it and a later `apt upgrade` leaves the machine where it was.
set -euo pipefail

readonly stable=trixie testing=forky
readonly from_testing=(libngtcp2-dev libngtcp2-crypto-ossl-dev libnghttp3-dev libhdr-histogram-dev)
readonly from_stable=(
  g++-14 cmake ninja-build ccache mold pkgconf git ca-certificates python3
  libasio-dev libssl-dev openssl libprotobuf-dev libprotoc-dev protobuf-compiler libzstd-dev zlib1g-dev
  libcli11-dev nlohmann-json3-dev libgtest-dev libgmock-dev libboost-dev
  clang-19 clang-format-19 libclang-rt-19-dev
)

missing() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
  done
}

# The version a package must reach; the ones a Debian 12 machine may have installed already, but too old.
too_old() {
  local package=$1 wanted=$2 have
  have=$(dpkg-query -W -f '${Version}' "$package" 2>/dev/null || echo 0)
  dpkg --compare-versions "$have" lt "$wanted" && echo "$package"
  return 0
}

wanted() {
  missing "${from_stable[@]}" "${from_testing[@]}"
  too_old libssl-dev 3.5
  too_old libprotobuf-dev 3.21.12
  too_old libngtcp2-dev 1.24
  too_old libngtcp2-crypto-ossl-dev 1.24
  too_old libnghttp3-dev 1.17
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# The archive this machine already uses, so that no address is written down here.
archive() {
  apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(CODENAME)' 'Created-By: Packages' |
    awk '$2 == "Debian" && $3 !~ /security|updates|backports/ { print $1; exit }'
}

write_root_file() { as_root tee "$1" >/dev/null; }

add_suite() {
  local suite=$1 uri=$2
  apt-get indextargets --format '$(CODENAME)' 'Created-By: Packages' | grep -qx "$suite" && return 0
  write_root_file "/etc/apt/sources.list.d/weft-$suite.sources" <<SOURCE
Types: deb
URIs: $uri
Suites: $suite
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCE
}

add_pins() {
  write_root_file /etc/apt/preferences.d/weft <<PINS
Package: *
Pin: release n=$testing
Pin-Priority: -10

Package: libngtcp2* libnghttp3* libhdr-histogram*
Pin: release n=$testing
Pin-Priority: 990
PINS
  [ "$(. /etc/os-release && echo "$VERSION_CODENAME")" = "$stable" ] && return 0
  as_root tee -a /etc/apt/preferences.d/weft >/dev/null <<PINS

Package: *
Pin: release n=$stable
Pin-Priority: 100
PINS
}

main() {
  local needed uri
  needed=$(wanted | sort -u)
  [ -z "$needed" ] && return 0
  command -v apt-get >/dev/null || { echo "setup: weft's setup knows Debian 12 and 13; install by hand: $needed" >&2; exit 1; }
  echo "setup: installing" $needed
  export DEBIAN_FRONTEND=noninteractive
  uri=$(archive)
  [ -n "$uri" ] || { as_root apt-get update -q; uri=$(archive); }
  [ -n "$uri" ] || { echo "setup: no Debian archive among this machine's apt sources; add one and try again" >&2; exit 1; }
  add_pins
  add_suite "$stable" "$uri"
  add_suite "$testing" "$uri"
  as_root apt-get update -q
  # One transaction: libc6 and libssl move together with whatever depends on them.
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends -t "$stable" \
    -o Dpkg::Options::=--force-confold $needed
  needed=$(wanted | sort -u)
  [ -z "$needed" ] || { echo "setup: apt finished, but these are still missing or too old:" $needed >&2; exit 1; }
}

main "$@"
