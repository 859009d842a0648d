# Shared with the installed package: WeftConfig finds the same libraries the same way.

find_package(Threads REQUIRED)
find_package(OpenSSL 3.5 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Protobuf 3.21 REQUIRED)
find_package(PkgConfig REQUIRED)

pkg_check_modules(ngtcp2 REQUIRED QUIET IMPORTED_TARGET libngtcp2>=1.24 libngtcp2_crypto_ossl>=1.24)
pkg_check_modules(zstd REQUIRED QUIET IMPORTED_TARGET libzstd)
if(NOT TARGET weft::ngtcp2)
  add_library(weft::ngtcp2 ALIAS PkgConfig::ngtcp2)
  add_library(weft::zstd ALIAS PkgConfig::zstd)
endif()
