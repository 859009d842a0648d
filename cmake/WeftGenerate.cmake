# weft_generate(TARGET greet_proto PROTOS greet/v1/greet.proto
#               [IMPORT_DIRS dir...] [LIBRARIES target...] [OUTPUT_DIR dir])
#
# Creates the static library TARGET with protoc's C++ messages and weft's handlers and clients of the
# given files, to be included as <greet/v1/greet.weft.h>. PROTOS are relative to one of IMPORT_DIRS
# (default: the current source directory). LIBRARIES are other weft_generate targets whose messages
# these files import; their import directories are known.

function(weft_generate)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "TARGET;OUTPUT_DIR" "PROTOS;IMPORT_DIRS;LIBRARIES")
  if(NOT arg_TARGET OR NOT arg_PROTOS OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "weft_generate: wants TARGET name PROTOS file...; got ${ARGV}")
  endif()
  if(NOT arg_IMPORT_DIRS)
    set(arg_IMPORT_DIRS ${CMAKE_CURRENT_SOURCE_DIR})
  endif()
  if(NOT arg_OUTPUT_DIR)
    set(arg_OUTPUT_DIR ${CMAKE_CURRENT_BINARY_DIR}/${arg_TARGET}.generated)
  endif()

  set(import_dirs)
  foreach(dir IN LISTS arg_IMPORT_DIRS)
    get_filename_component(dir ${dir} ABSOLUTE)
    list(APPEND import_dirs ${dir})
  endforeach()
  set(own_dirs ${import_dirs})
  foreach(library IN LISTS arg_LIBRARIES)
    get_target_property(inherited ${library} WEFT_IMPORT_DIRS)
    if(inherited)
      list(APPEND import_dirs ${inherited})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES import_dirs)
  list(TRANSFORM import_dirs PREPEND "--proto_path=" OUTPUT_VARIABLE proto_paths)

  set(sources)
  foreach(proto IN LISTS arg_PROTOS)
    set(path)
    foreach(dir IN LISTS own_dirs)
      if(EXISTS ${dir}/${proto})
        set(path ${dir}/${proto})
        break()
      endif()
    endforeach()
    if(NOT path)
      message(FATAL_ERROR "weft_generate: ${proto} is in none of ${own_dirs}")
    endif()
    string(REGEX REPLACE "\\.proto$" "" base ${arg_OUTPUT_DIR}/${proto})
    set(outputs ${base}.pb.h ${base}.pb.cc ${base}.weft.h ${base}.weft.cc)
    get_filename_component(folder ${base} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(
      OUTPUT ${outputs}
      COMMAND protobuf::protoc ${proto_paths} --plugin=protoc-gen-weft=$<TARGET_FILE:weft::protoc-gen-weft>
              --cpp_out=${arg_OUTPUT_DIR} --weft_out=${arg_OUTPUT_DIR} --dependency_out=${base}.d ${proto}
      DEPENDS ${path} weft::protoc-gen-weft
      DEPFILE ${base}.d
      COMMENT "Generating ${proto}"
      VERBATIM)
    set_source_files_properties(${base}.pb.cc PROPERTIES COMPILE_OPTIONS "-w" SKIP_PRECOMPILE_HEADERS ON)
    list(APPEND sources ${outputs})
  endforeach()

  add_library(${arg_TARGET} STATIC ${sources})
  set_target_properties(${arg_TARGET} PROPERTIES WEFT_IMPORT_DIRS "${import_dirs}")
  target_include_directories(${arg_TARGET} SYSTEM PUBLIC $<BUILD_INTERFACE:${arg_OUTPUT_DIR}>)
  target_link_libraries(${arg_TARGET} PUBLIC weft::rpc ${arg_LIBRARIES})
  if(COMMAND weft_use_precompiled_asio)
    weft_use_precompiled_asio(${arg_TARGET})
  endif()
endfunction()
