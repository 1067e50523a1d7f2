# The public headers: all but those of the program, and those of CUDA where the build is without it. As a
# header set they are installed, and a test compiles each one alone.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*.h)
foreach(header ${headers})
  file(STRINGS ${header} cuda REGEX "^#include <cu")
  # Highway's -inl headers are read several times, once for each instruction set, and never alone.
  if(header MATCHES "/src/cli/|-inl\\.h$" OR (cuda AND NOT LONGSPAN_CUDA))
    list(REMOVE_ITEM headers ${header})
  endif()
endforeach()
target_sources(longspan PUBLIC FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR}/src FILES ${headers})
set_target_properties(longspan PROPERTIES VERIFY_INTERFACE_HEADER_SETS ${LONGSPAN_TESTS})
