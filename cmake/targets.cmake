# How the two libraries are put together.

# longspan_library(TARGET FOLDER...): a static or shared library of folders of src/, each of which adds its own
# sources with target_sources(TARGET PRIVATE ...).
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
endfunction()

# longspan_internal(TARGET SCOPE): sees the headers of src/, which are not installed, and what they include.
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
