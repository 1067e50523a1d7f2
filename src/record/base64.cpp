#include "record/base64.h"

#include <array>

namespace longspan::record {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr auto kDigits = [] {
  std::array<int8_t, 256> digits{};
  digits.fill(-1);
  for (size_t i = 0; i < kAlphabet.size(); ++i)
    digits[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int8_t>(i);
  return digits;
}();

}  // namespace

std::string base64(const std::vector<uint8_t>& bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = uint32_t{bytes[i]} << 16;
    if (i + 1 < bytes.size()) group |= uint32_t{bytes[i + 1]} << 8;
    if (i + 2 < bytes.size()) group |= uint32_t{bytes[i + 2]};
    for (size_t j = 0; j < 4; ++j) text += i + j > bytes.size() ? '=' : kAlphabet[group >> (18 - 6 * j) & 63];
  }
  return text;
}

std::optional<std::vector<uint8_t>> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::vector<uint8_t> bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const size_t meant = i + 4 == text.size() ? 4 - padding : 4;
    uint32_t word = 0;
    for (size_t j = 0; j < 4; ++j) {
      const int digit = j < meant ? kDigits[static_cast<unsigned char>(text[i + j])] : 0;
      if (digit < 0) return std::nullopt;
      word = word << 6 | static_cast<uint32_t>(digit);
    }
    for (size_t j = 0; j + 1 < meant; ++j) bytes.push_back(static_cast<uint8_t>(word >> (16 - 8 * j)));
  }
  return bytes;
}

}  // namespace longspan::record
