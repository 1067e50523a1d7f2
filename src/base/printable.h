// Text of a user or a file, made safe to show.
#pragma once

#include <string>
#include <string_view>

namespace longspan {

// The text on one line, without characters that act on a terminal or hide other text: line breaks and tabs
// become spaces; other control characters, marks that change the direction of text, and bytes that are not
// UTF-8 become escapes such as \x1b and \u202e.
std::string printable(std::string_view text);

}  // namespace longspan
