# Generates a C++ source that defines each file as a string_view.
#   cmake -DOUTPUT=x.cpp -DHEADER=x.h -DNAMESPACE=n "-DFILES=a.js|b.css" -P embed.cmake
# A file page/style.css becomes `style_css`; NAME=path gives another name.
string(REPLACE "|" ";" FILES "${FILES}")
set(source "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n")
foreach(entry IN LISTS FILES)
  if(entry MATCHES "^([a-z_]+)=(.+)$")
    set(name ${CMAKE_MATCH_1})
    set(path ${CMAKE_MATCH_2})
  else()
    set(path ${entry})
    get_filename_component(name ${path} NAME)
    string(MAKE_C_IDENTIFIER ${name} name)
  endif()
  file(READ ${path} bytes HEX)
  string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${bytes}")
  # Split into short adjacent literals, since compilers limit the length of one.
  string(REGEX REPLACE "(................................................................)" "\\1\"\n\"" bytes "${bytes}")
  string(APPEND source
         "static const char ${name}_bytes[] =\n\"${bytes}\";\n"
         "const std::string_view ${name}{${name}_bytes, sizeof ${name}_bytes - 1};\n")
endforeach()
string(APPEND source "}  // namespace ${NAMESPACE}\n")
file(WRITE ${OUTPUT} "${source}")
