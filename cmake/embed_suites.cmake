# Run at build time: writes OUTPUT, a C++ file with the TOML files of FOLDER as text.
set(rows "")
file(GLOB paths ${FOLDER}/*.toml)
foreach(path ${paths})
  get_filename_component(name ${path} NAME_WE)
  file(READ ${path} text)
  string(APPEND rows "    {\"${name}\", R\"toml(${text})toml\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Made by cmake/embed_suites.cmake from suites/*.toml.
#include \"bench/spec/suite.h\"

namespace longspan::bench {

std::span<const BuiltinSuite> builtin_suites() {
  static constexpr BuiltinSuite kSuites[] = {
${rows}  };
  return kSuites;
}

}  // namespace longspan::bench
")
