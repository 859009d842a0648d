# `cmake --install` with the component weft: libraries, public headers, the code generator, and the
# package that find_package(weft) finds.

include(CMakePackageConfigHelpers)

get_property(modules GLOBAL PROPERTY WEFT_MODULES)
get_property(headers GLOBAL PROPERTY WEFT_PUBLIC_HEADERS)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)

install(TARGETS weft weft_options weft_asio protoc-gen-weft ${modules} EXPORT weft
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT weft
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT weft)
foreach(header IN LISTS headers)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder} COMPONENT weft)
endforeach()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/weftConfig.cmake.in ${PROJECT_BINARY_DIR}/weftConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/weftConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT weft NAMESPACE weft:: FILE weftTargets.cmake DESTINATION ${package_dir} COMPONENT weft)
install(FILES ${PROJECT_BINARY_DIR}/weftConfig.cmake ${PROJECT_BINARY_DIR}/weftConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/WeftDependencies.cmake ${CMAKE_CURRENT_LIST_DIR}/WeftGenerate.cmake
        DESTINATION ${package_dir} COMPONENT weft)
