// JSON as results are written in: keys in the order written, for readers of the raw file.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace longspan::record {

using Json = nlohmann::ordered_json;

// Throws only an input error, whatever the text.
Json parse_json(std::string_view text);

// One line of text. Bytes that are not UTF-8 are replaced.
std::string text_of(const Json& json);

}  // namespace longspan::record
