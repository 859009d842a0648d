# What weft is built on. The installed package (weftConfig.cmake) includes this file too, so that both
# find the same libraries in the same way.

macro(weft_find_package)
  if(CMAKE_FIND_PACKAGE_NAME STREQUAL "weft")
    find_dependency(${ARGN})
  else()
    find_package(${ARGN} REQUIRED)
  endif()
endmacro()

weft_find_package(Threads)
weft_find_package(OpenSSL 3.5)
weft_find_package(ZLIB)
weft_find_package(Protobuf 3.21)
weft_find_package(PkgConfig)

if(NOT TARGET weft::ngtcp2)
  pkg_check_modules(ngtcp2 REQUIRED QUIET IMPORTED_TARGET libngtcp2>=1.24 libngtcp2_crypto_ossl>=1.24)
  pkg_check_modules(zstd REQUIRED QUIET IMPORTED_TARGET libzstd)
  add_library(weft::ngtcp2 ALIAS PkgConfig::ngtcp2)
  add_library(weft::zstd ALIAS PkgConfig::zstd)
endif()
