# Functions that define the two libraries.

# longspan_library(TARGET FOLDER...): a static or shared library of folders of src/. Each folder adds its sources with
# target_sources(TARGET PRIVATE ...).
function(longspan_library target)
  add_library(${target})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  longspan_internal(${target} PRIVATE)
  if(LONGSPAN_CUDA)
    longspan_enable_cuda(${target})
  endif()
  foreach(folder ${ARGN})
    add_subdirectory(src/${folder})
  endforeach()
  longspan_compile_by_folder(${target})
endfunction()

# Compiles the C++ sources of each folder as one, which halves the time of a build from nothing: most of that time
# goes into headers and templates that the sources share. It takes effect with CMAKE_UNITY_BUILD (the preset cpu);
# the preset dev compiles each source alone, for short rebuilds. Names without linkage must differ within a folder.
function(longspan_compile_by_folder target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  get_target_property(source_folder ${target} SOURCE_DIR)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${source_folder})
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_SOURCE_DIR}/src OUTPUT_VARIABLE name)
    # Left out: strategies and planners say supports(), schedule() or tuned:: in each file; Highway includes its
    # file once for each instruction set; and generated sources.
    if(name MATCHES "^[a-z].*\\.cpp$" AND NOT name MATCHES "^cp/strategies/|^kernels/sm90/|^kernels/cpu/panel")
      cmake_path(GET name PARENT_PATH folder)
      string(REPLACE "/" "_" group ${folder})
      set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${group})
    endif()
  endforeach()
endfunction()

# longspan_internal(TARGET SCOPE): gives a target the internal headers of src/ and the headers that they include.
function(longspan_internal target scope)
  target_include_directories(${target} ${scope} ${CMAKE_SOURCE_DIR}/src)
  # -Wrestrict is wrong about std::string in GCC 12 (its bug 105651).
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict> $<$<COMPILE_LANGUAGE:CXX>:-Werror=return-type>)
  target_link_libraries(${target} ${scope} fmt::fmt)
  if(LONGSPAN_CUDA)
    target_compile_definitions(${target} ${scope} LONGSPAN_WITH_CUDA=1)
    target_include_directories(${target} SYSTEM ${scope} ${CUDAToolkit_INCLUDE_DIRS})
  endif()
endfunction()
