// What the program does before any command.
#pragma once

namespace longspan::cli {

// Opens descriptors 0 to 2 if they are closed, so that no file gets their numbers, turns signals of failed
// writes into errors, and takes back the CPUs that OpenBLAS was not shown (start.cpp).
void prepare_process();

}  // namespace longspan::cli
