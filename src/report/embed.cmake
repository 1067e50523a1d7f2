# Generates a C++ source that defines each file as a string_view, and its SHA-256 in hexadecimal digits as another.
#   cmake -DOUTPUT=x.cpp -DHEADER=x.h -DNAMESPACE=n "-DFILES=a.js|b.css|script=c.js+d.js" -P embed.cmake
# A file page/style.css becomes `style_css` and `style_css_sha256`. NAME=PATH+PATH joins files under that name.
string(REPLACE "|" ";" FILES "${FILES}")
set(source "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n")
foreach(entry IN LISTS FILES)
  if(entry MATCHES "^([a-z_]+)=(.+)$")
    set(name ${CMAKE_MATCH_1})
    string(REPLACE "+" ";" paths "${CMAKE_MATCH_2}")
  else()
    set(paths ${entry})
    get_filename_component(name ${entry} NAME)
    string(MAKE_C_IDENTIFIER ${name} name)
  endif()
  set(text "")
  set(bytes "")
  foreach(path IN LISTS paths)
    file(READ ${path} part)
    string(APPEND text "${part}")
    file(READ ${path} part HEX)
    string(APPEND bytes "${part}")
  endforeach()
  string(SHA256 hash "${text}")
  string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${bytes}")
  # Split into short adjacent literals, since compilers limit the length of one.
  string(REGEX REPLACE "(................................................................)" "\\1\"\n\"" bytes "${bytes}")
  string(APPEND source
         "static const char ${name}_bytes[] =\n\"${bytes}\";\n"
         "const std::string_view ${name}{${name}_bytes, sizeof ${name}_bytes - 1};\n"
         "const std::string_view ${name}_sha256{\"${hash}\"};\n")
endforeach()
string(APPEND source "}  // namespace ${NAMESPACE}\n")
file(WRITE ${OUTPUT} "${source}")
