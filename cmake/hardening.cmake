# Compiling and linking against memory errors, and without the paths of this machine in what is built. On a kernel's
# benchmark it costs nothing that can be measured.
include(CheckPIESupported)
check_pie_supported()  # or CMAKE_POSITION_INDEPENDENT_CODE says nothing about linking

# -fstack-protector-strong: a stack overflow ends the program. _FORTIFY_SOURCE: so does one of a buffer whose size is known to the
# compiler; it needs optimisation, and sanitizers check more themselves.
set(hardening -fstack-protector-strong)
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug" AND NOT LONGSPAN_SANITIZE)
  list(APPEND hardening -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
endif()
# The last option that fits counts: files become relative, and a folder by itself, in debug information, ".". ccache leaves these
# options out of its keys, so worktrees share results. Not so in device code, where -lineinfo names the kernels' files for profilers.
foreach(folder ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  list(APPEND hardening -ffile-prefix-map=${folder}=. -ffile-prefix-map=${folder}/=)
endforeach()
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${hardening}>")
if(LONGSPAN_CUDA)
  list(TRANSFORM hardening PREPEND -Xcompiler= OUTPUT_VARIABLE of_nvcc)
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:${of_nvcc}>")
endif()
# The tables of the dynamic linker become read-only at the start, and the stack holds no code.
add_link_options(-Wl,-z,relro,-z,now -Wl,-z,noexecstack)
