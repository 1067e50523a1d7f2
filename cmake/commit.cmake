# Run at build time: writes OUTPUT, a header with the commit of SOURCE_DIR, only if it changed. An archive made by git has the
# commit in cmake/archive_commit.txt.
cmake_minimum_required(VERSION 3.25)
set(commit "")
set(dirty false)
find_program(GIT git)
if(GIT AND EXISTS ${SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT} rev-parse HEAD WORKING_DIRECTORY ${SOURCE_DIR}
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND ${GIT} status --porcelain --untracked-files=no WORKING_DIRECTORY ${SOURCE_DIR}
                  OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    set(dirty true)
  endif()
endif()
if(NOT commit)
  file(STRINGS ${SOURCE_DIR}/cmake/archive_commit.txt archived REGEX "^[0-9a-f]+$")
  set(commit "${archived}")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
"#define LONGSPAN_COMMIT \"@commit@\"
#define LONGSPAN_DIRTY @dirty@
")
