# The third-party libraries of the library longspan; the installed package config reads this file, too.
# docs/reference/dependencies.md says why each was chosen. Those of the benchmark are in bench_dependencies.cmake.
#
# LONGSPAN_STATIC_DEPS builds a program that needs only libc on other machines: fmt as headers, static libraries if
# the system has them, and Highway's shared library (Debian has no static one) next to the program.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
# LIBXSMM, a static library for x86 only. Without it OpenBLAS computes small products, more slowly. It is not found by
# pkg-config, whose target would link static libraries of libc.
if(NOT DEFINED LONGSPAN_XSMM OR LONGSPAN_XSMM)
  pkg_check_modules(xsmm QUIET libxsmm)
  if(xsmm_FOUND)
    add_library(longspan_xsmm INTERFACE IMPORTED)
    target_include_directories(longspan_xsmm INTERFACE ${xsmm_INCLUDEDIR})
    target_link_directories(longspan_xsmm INTERFACE ${xsmm_LIBDIR})
    target_link_libraries(longspan_xsmm INTERFACE xsmm Threads::Threads ${CMAKE_DL_LIBS})
  endif()
endif()

set(BLA_VENDOR OpenBLAS)
if(LONGSPAN_STATIC_DEPS)
  find_library(LONGSPAN_SODIUM NAMES libsodium.a REQUIRED)
  find_path(LONGSPAN_SODIUM_INCLUDE sodium.h REQUIRED)
  add_library(PkgConfig::sodium INTERFACE IMPORTED)
  set_target_properties(PkgConfig::sodium PROPERTIES INTERFACE_LINK_LIBRARIES "${LONGSPAN_SODIUM};Threads::Threads"
                        INTERFACE_INCLUDE_DIRECTORIES ${LONGSPAN_SODIUM_INCLUDE})
  find_path(LONGSPAN_FMT_INCLUDE fmt/format.h REQUIRED)
  add_library(fmt::fmt INTERFACE IMPORTED)
  set_target_properties(fmt::fmt PROPERTIES INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1
                        INTERFACE_INCLUDE_DIRECTORIES ${LONGSPAN_FMT_INCLUDE})
  set(BLA_STATIC ON)
  set(longspan_suffixes ${CMAKE_FIND_LIBRARY_SUFFIXES})
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
  find_package(BLAS REQUIRED)
  set(CMAKE_FIND_LIBRARY_SUFFIXES ${longspan_suffixes})
else()
  pkg_check_modules(sodium REQUIRED IMPORTED_TARGET libsodium)
  find_package(fmt REQUIRED)
  find_package(BLAS REQUIRED)
endif()
if(TARGET longspan_xsmm)
  target_link_libraries(longspan_xsmm INTERFACE ${BLAS_LIBRARIES})  # a static library must come after its users
endif()
