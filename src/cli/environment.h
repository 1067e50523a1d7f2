// The environment variables that a command depends on.
#pragma once

namespace longspan::cli {

// Throws an input error for a variable of Longspan's with a wrong value, before the command has begun.
// Variables of launchers are checked where they are used (comm/launch.h).
void check_environment();

}  // namespace longspan::cli
