# The third-party libraries of the library longspan; the installed package config reads this file, too.
# docs/reference/dependencies.md says why each was chosen. Those of the benchmark are in bench_dependencies.cmake.
#
# LONGSPAN_STATIC_DEPS builds a program that needs only libc on other machines: fmt as headers, static libraries if
# the system has them, and the shared libraries of Highway and libsodium next to the program: Debian has no static
# one of the former, and none of the latter that a shared library may contain.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(sodium REQUIRED IMPORTED_TARGET libsodium)
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
  find_package(fmt REQUIRED)
  find_package(BLAS REQUIRED)
endif()
if(TARGET longspan_xsmm)
  target_link_libraries(longspan_xsmm INTERFACE ${BLAS_LIBRARIES})  # a static library must come after its users
endif()
