# Each header compiles alone; a test builds the target that CMake generates for header sets. The public headers of include/
# belong to the target longspan, those of src/ to a separate target that nothing links.
file(GLOB public CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/include/longspan/*.h)
target_sources(longspan PUBLIC FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR}/include FILES ${public})
set_target_properties(longspan PROPERTIES VERIFY_INTERFACE_HEADER_SETS ${LONGSPAN_TESTS})

if(LONGSPAN_TESTS)
  file(GLOB_RECURSE internal CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*.h)
  foreach(header ${internal})
    file(STRINGS ${header} cuda REGEX "^#include <cu")
    # Highway's -inl headers are included once per instruction set, and never alone.
    if(header MATCHES "-inl\\.h$" OR (cuda AND NOT LONGSPAN_CUDA))
      list(REMOVE_ITEM internal ${header})
    endif()
  endforeach()
  add_library(longspan_sources INTERFACE)
  target_sources(longspan_sources INTERFACE FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR}/src FILES ${internal})
  target_link_libraries(longspan_sources INTERFACE longspan_bench fmt::fmt CLI11::CLI11)
  if(LONGSPAN_CUDA)
    target_compile_definitions(longspan_sources INTERFACE LONGSPAN_WITH_CUDA=1)
    target_include_directories(longspan_sources SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  endif()
  set_target_properties(longspan_sources PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
endif()
