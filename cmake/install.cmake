# `cmake --install`: the library with its public headers and package config; the program, its completion and manual page.
include(CMakePackageConfigHelpers)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/longspan)
install(TARGETS longspan EXPORT longspan-targets FILE_SET HEADERS)
install(EXPORT longspan-targets NAMESPACE longspan:: DESTINATION ${package})
if(MPI_CXX_FOUND)
  set_target_properties(longspan_mpi PROPERTIES EXPORT_NAME mpi)
  install(TARGETS longspan_mpi EXPORT longspan-mpi-targets)
  install(EXPORT longspan-mpi-targets NAMESPACE longspan:: DESTINATION ${package})
endif()
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/longspan-config.cmake.in
                              ${CMAKE_BINARY_DIR}/longspan-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/longspan-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/longspan-config.cmake ${CMAKE_BINARY_DIR}/longspan-config-version.cmake
              ${CMAKE_SOURCE_DIR}/cmake/dependencies.cmake DESTINATION ${package})
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(NOT LONGSPAN_BENCH)
  return()
endif()
install(TARGETS longspan_cli)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/suites ${CMAKE_SOURCE_DIR}/data DESTINATION ${CMAKE_INSTALL_DATADIR}/longspan)

# Made by the program itself, from the tree of commands that also prints --help.
set(generated ${CMAKE_BINARY_DIR}/generated)
add_custom_command(
  OUTPUT ${generated}/longspan.1 ${generated}/longspan.bash ${generated}/_longspan ${generated}/longspan.fish
  COMMAND longspan_cli manual > ${generated}/longspan.1
  COMMAND longspan_cli completion bash > ${generated}/longspan.bash
  COMMAND longspan_cli completion zsh > ${generated}/_longspan
  COMMAND longspan_cli completion fish > ${generated}/longspan.fish
  DEPENDS longspan_cli VERBATIM)
add_custom_target(longspan_manual ALL DEPENDS ${generated}/longspan.1)
install(FILES ${generated}/longspan.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${generated}/longspan.bash RENAME longspan
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${generated}/_longspan DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${generated}/longspan.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
