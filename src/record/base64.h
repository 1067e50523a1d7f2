// Base64 as RFC 4648 has it, padding included: for the pictures in a results file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longspan::record {

std::string base64(const std::vector<uint8_t>& bytes);
std::optional<std::vector<uint8_t>> decode_base64(std::string_view text);  // nothing for anything else

}  // namespace longspan::record
