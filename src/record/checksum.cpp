#include "record/checksum.h"

#include <algorithm>

#include <zlib.h>

#include "base/error.h"

namespace longspan::record {
namespace {

constexpr const char* kKey = "crc32";

// The last member of an object that begins with `before`, and the object's end.
std::string member_after(std::string_view before) {
  const uLong sum = crc32_z(0, reinterpret_cast<const Bytef*>(before.data()), before.size());
  return fmt::format(",\"{}\":\"{:08x}\"}}", kKey, sum);
}

}  // namespace

std::string text_with_checksum(const Json& line) {
  std::string text = text_of(line);
  text.pop_back();  // the closing brace
  return text + member_after(text);
}

void check_checksum(std::string_view text, const Json& line) {
  if (!line.contains(kKey)) return;
  const size_t end = text.find_last_not_of(" \t\r\n");
  text = text.substr(0, end == std::string_view::npos ? 0 : end + 1);
  const size_t length = member_after("").size();
  const std::string_view before = text.substr(0, text.size() - std::min(length, text.size()));
  LONGSPAN_CHECK_INPUT(
      text.substr(before.size()) == member_after(before),
      "the line was changed after it was written: its checksum does not match; restore the line, "
      "or remove its '{}' to use it as it is",
      kKey);
}

}  // namespace longspan::record
