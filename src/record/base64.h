// Base64 as defined by RFC 4648, with padding, for the pictures in a results file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longspan::record {

std::string base64(const std::vector<uint8_t>& bytes);
std::optional<std::vector<uint8_t>> decode_base64(std::string_view text);  // nothing if text is not base64

}  // namespace longspan::record
