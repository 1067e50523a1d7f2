# The CUDA part of the build, read only when LONGSPAN_CUDA is on. A folder adds its .cu files to the library
# with target_sources() like any other source, inside if(LONGSPAN_CUDA).
#
# 90a is Hopper with its own instructions (wgmma, setmaxnreg). Code for it runs on no other architecture, so for
# other GPUs list their architectures: -DCMAKE_CUDA_ARCHITECTURES="80;90a".
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a CACHE STRING "GPU architectures to compile for")
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know that nvcc supports C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit REQUIRED)

# Call after creating the library target.
function(longspan_enable_cuda target)
  target_compile_options(${target} PRIVATE
    # -DFMT_USE_CONSTEXPR=1: fmt 9 assumes that nvcc has no constexpr, and then does not compile.
    # --expt-relaxed-constexpr: constexpr host functions (std::min, our own) work in device code.
    # -lineinfo: profilers show source lines; it costs nothing at run time.
    $<$<COMPILE_LANGUAGE:CUDA>:-DFMT_USE_CONSTEXPR=1 --expt-relaxed-constexpr -lineinfo -Xcompiler=-Wall,-Wextra>)
  target_link_libraries(${target} PRIVATE CUDA::cudart_static ${CMAKE_DL_LIBS})
endfunction()

# longspan_builds_for(RESULT ARCHITECTURE): whether CMAKE_CUDA_ARCHITECTURES includes that architecture, with or
# without its feature suffix: 90 or 90a for 90a.
function(longspan_builds_for result architecture)
  string(REGEX MATCH "^[0-9]+" number ${architecture})
  set(asked ${CMAKE_CUDA_ARCHITECTURES})
  if(asked STREQUAL "native")
    set(asked ${CMAKE_CUDA_ARCHITECTURES_NATIVE})
  endif()
  set(found OFF)
  foreach(one IN LISTS asked)
    if(one MATCHES "^(${number}[a-z]?(-real|-virtual)?|all|all-major)$")
      set(found ON)
    endif()
  endforeach()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

# longspan_mma_architectures(RESULT): those of CMAKE_CUDA_ARCHITECTURES from 80 on, without feature suffixes (90 for 90a), so
# that the machine code runs on all GPUs of the generation and the PTX on all later ones.
function(longspan_mma_architectures result)
  set(asked ${CMAKE_CUDA_ARCHITECTURES})
  if(asked STREQUAL "native")
    set(asked ${CMAKE_CUDA_ARCHITECTURES_NATIVE})
  elseif(asked MATCHES "^all")
    set(asked 80 90 120)
  endif()
  set(found "")
  foreach(one IN LISTS asked)
    if(one MATCHES "^([0-9]+)[a-z]?(-real|-virtual)?$" AND CMAKE_MATCH_1 GREATER_EQUAL 80)
      list(APPEND found "${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# longspan_has_kernel(DEFINITION): adds a kernel to the registry of this build by defining DEFINITION for registry.cpp.
function(longspan_has_kernel definition)
  set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/kernels/registry.cpp TARGET_DIRECTORY longspan
               APPEND PROPERTY COMPILE_DEFINITIONS ${definition}=1)
endfunction()

# longspan_cuda_sources(TARGET ARCHITECTURES SOURCE...): CUDA sources for these architectures only. Sources added with
# target_sources() are compiled for all architectures of the build.
function(longspan_cuda_sources target architectures)
  string(REPLACE ";" "_" name "${target}_sm${architectures}")
  if(TARGET ${name})
    target_sources(${name} PRIVATE ${ARGN})
    return()
  endif()
  add_library(${name} OBJECT ${ARGN})
  set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES "${architectures}")
  longspan_internal(${name} PRIVATE)
  longspan_enable_cuda(${name})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/include)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${name}>)
endfunction()
