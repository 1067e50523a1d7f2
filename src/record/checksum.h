// The checksum of a line of results: its last key, the CRC-32 of the bytes before it.
#pragma once

#include <string>
#include <string_view>

#include "record/json.h"

namespace longspan::record {

// A line's text with its checksum added. The line must be an object with at least one key, and without a
// checksum.
std::string text_with_checksum(const Json& line);

// Throws an input error if the object read from `text` has a checksum that does not match it. Lines of older
// versions have none.
void check_checksum(std::string_view text, const Json& line);

}  // namespace longspan::record
