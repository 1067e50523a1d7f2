// The JSON type of results. It keeps keys in the order written, for people who read the raw file.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace longspan::record {

using Json = nlohmann::ordered_json;

// Throws an input error if the text is not valid JSON or fails check_json(), and nothing else.
Json parse_json(std::string_view text);

// One line of text. Bytes that are not UTF-8 are replaced.
std::string text_of(const Json& json);

}  // namespace longspan::record
