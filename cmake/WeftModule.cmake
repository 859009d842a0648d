# One folder of weft/ = one static library = one test binary.
#
#   weft_module(quic/core USES base tls LIBRARIES weft::ngtcp2 [ASIO])
#
# Sources and tests are found in the folder: x.hpp, x.cpp, x_test.cpp. `weft_quic_core` is the target,
# `weft_quic_core_test` its tests. A target whose folder has no .cpp yet is header-only.

include(CheckCXXCompilerFlag)

if(WEFT_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
  enable_testing()
endif()

add_library(weft_options INTERFACE)
target_compile_features(weft_options INTERFACE cxx_std_23)
target_compile_options(weft_options INTERFACE -Wall -Wextra -Wpedantic -Wno-missing-field-initializers
                       -fno-omit-frame-pointer $<$<BOOL:${WEFT_WERROR}>:-Werror>)

# Asio costs seconds a file, so it is compiled once a build into a header that all its users share.
add_library(weft_asio INTERFACE)
target_compile_definitions(weft_asio INTERFACE ASIO_STANDALONE ASIO_NO_DEPRECATED
                           ASIO_RECYCLING_ALLOCATOR_CACHE_SIZE=16)

function(weft_use_precompiled_asio target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    if(NOT TARGET weft_precompiled)
      add_library(weft_precompiled STATIC ${PROJECT_SOURCE_DIR}/cmake/precompiled.cpp)
      target_link_libraries(weft_precompiled PUBLIC weft_options weft_asio Threads::Threads)
      target_include_directories(weft_precompiled PUBLIC ${PROJECT_SOURCE_DIR})
      target_precompile_headers(weft_precompiled PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled.hpp)
    endif()
    target_precompile_headers(${target} REUSE_FROM weft_precompiled)
  endif()
endfunction()

function(weft_module path)
  cmake_parse_arguments(arg "ASIO" "" "USES;LIBRARIES" ${ARGN})
  string(REPLACE "/" "_" name ${path})
  set(target weft_${name})
  set(folder ${PROJECT_SOURCE_DIR}/weft/${path})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  file(GLOB tests CONFIGURE_DEPENDS ${folder}/*_test.cpp)
  list(REMOVE_ITEM sources ${tests})
  if(NOT sources)
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/empty)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/empty/${name}.cpp CONTENT "")
    set(sources ${PROJECT_BINARY_DIR}/empty/${name}.cpp)
  endif()

  add_library(${target} STATIC ${sources})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PUBLIC weft_options ${arg_LIBRARIES})
  set(uses_asio ${arg_ASIO})
  foreach(used IN LISTS arg_USES)
    string(REPLACE "/" "_" used ${used})
    target_link_libraries(${target} PUBLIC weft_${used})
    get_target_property(inherited weft_${used} WEFT_USES_ASIO)
    if(inherited)
      set(uses_asio TRUE)
    endif()
  endforeach()
  if(uses_asio)
    set_target_properties(${target} PROPERTIES WEFT_USES_ASIO TRUE)
    target_link_libraries(${target} PUBLIC weft_asio Threads::Threads)
    weft_use_precompiled_asio(${target})
  else()
    set_target_properties(${target} PROPERTIES WEFT_USES_ASIO FALSE)
  endif()

  if(WEFT_TESTS AND tests)
    weft_test(${target}_test ${tests})
    target_link_libraries(${target}_test PRIVATE ${target})
    if(uses_asio)
      weft_use_precompiled_asio(${target}_test)
    endif()
  endif()
endfunction()

# weft_test(name sources...): a GoogleTest binary registered with ctest as one entry.
function(weft_test name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE GTest::gmock GTest::gtest_main weft_options)
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
  set_tests_properties(${name} PROPERTIES TIMEOUT 600)
endfunction()
