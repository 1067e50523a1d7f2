# Adds record/build_info.cpp to a target: versions from configure time, the commit from each build.
function(longspan_add_build_info target)
  pkg_get_variable(openblas_version openblas version)
  pkg_check_modules(fmt_package QUIET fmt)
  pkg_check_modules(toml_package QUIET tomlplusplus)
  pkg_check_modules(sodium_package QUIET libsodium)
  set(LONGSPAN_LIBRARY_ROWS "")
  foreach(row "fmt=${fmt_package_VERSION}" "nlohmann_json=${nlohmann_json_VERSION}"
              "tomlplusplus=${toml_package_VERSION}" "highway=${hwy_VERSION}" "openblas=${openblas_version}"
              "libxsmm=${xsmm_VERSION}" "libsodium=${sodium_package_VERSION}"
              "libpng=${PNG_VERSION_STRING}" "zlib=${ZLIB_VERSION_STRING}" "cuda=${CUDAToolkit_VERSION}")
    if(row MATCHES "^(.+)=(.+)$")
      string(APPEND LONGSPAN_LIBRARY_ROWS "      {\"${CMAKE_MATCH_1}\", \"${CMAKE_MATCH_2}\"},\n")
    endif()
  endforeach()
  set(folder ${CMAKE_BINARY_DIR}/generated)
  configure_file(${CMAKE_SOURCE_DIR}/src/record/build_info.cpp.in ${folder}/build_info.cpp @ONLY)
  add_custom_target(longspan_commit
    COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${CMAKE_SOURCE_DIR} -DOUTPUT=${folder}/commit.h
            -P ${CMAKE_SOURCE_DIR}/cmake/commit.cmake
    BYPRODUCTS ${folder}/commit.h
    COMMENT "" VERBATIM)
  target_sources(${target} PRIVATE ${folder}/build_info.cpp)
  set_source_files_properties(${folder}/build_info.cpp PROPERTIES INCLUDE_DIRECTORIES ${folder}
                              OBJECT_DEPENDS ${folder}/commit.h)
  add_dependencies(${target} longspan_commit)
endfunction()
