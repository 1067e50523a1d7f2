// What Longspan refuses in JSON, beside what is not JSON.
#pragma once

#include <string_view>

namespace longspan::record {

// Throws an input error if the text has a NUL byte, an object with the same key twice, or more nested lists
// and objects than any of our files needs. The parser would end at the NUL, drop all but one of the keys, and
// overflow the stack. Text that is not JSON is left to the parser, which can then say where it goes wrong.
void check_json(std::string_view text);

}  // namespace longspan::record
