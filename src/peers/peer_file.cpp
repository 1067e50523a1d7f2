#include "peers/peer_file.h"

#include <algorithm>
#include <span>
#include <vector>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/input_file.h"

namespace longspan::peers {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kRequired[] = {"description", "framework", "device", "passes"};
constexpr std::string_view kOptional[] = {"package", "masks", "colour"};

// The text from an opening brace to its closing one, without what Python allows and JSON does not: comments,
// and commas before a closing bracket. Empty if there is no closing brace, or if brackets nest too deep.
std::string braces(std::string_view text) {
  constexpr int kDeepest = 8;
  std::string out;
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      out += c;
      if (c == '\\' && i + 1 < text.size()) out += text[++i];
      quoted = c != '"';
      continue;
    }
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    if (c == '}' || c == ']') {
      const size_t last = out.find_last_not_of(" \t\r\n");
      if (last != std::string::npos && out[last] == ',') out.erase(last, 1);
    }
    out += c;
    quoted = c == '"';
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth == 0) return out;
    if (depth > kDeepest) return "";
  }
  return "";
}

bool is_colour(std::string_view text) {
  return text.size() == 7 && text[0] == '#' &&
         text.find_first_not_of("0123456789abcdefABCDEF", 1) == std::string_view::npos;
}

class Reader {
 public:
  Reader(std::string_view text, std::string file) : file_(std::move(file)) {
    constexpr std::string_view kOpening = "PEER = {";
    size_t at = text.starts_with(kOpening) ? 0 : text.find("\n" + std::string(kOpening));
    check(at != std::string_view::npos, "has no line that begins with PEER = {{");
    at = text.find('{', at);
    const std::string block = braces(text.substr(at));
    check(!block.empty(), "PEER has no closing brace, or nests lists too deep");
    json_ = Json::parse(block, nullptr, false);
    check(json_.is_object(), "PEER is not JSON: strings need double quotes, entries need commas");
    for (const auto& [key, value] : json_.items()) {
      check(contains(kRequired, key) || contains(kOptional, key),
            "PEER has the unknown key '{}'; the keys are {}, {}", key, fmt::join(kRequired, ", "),
            fmt::join(kOptional, ", "));
    }
    for (const std::string_view key : kRequired) check(json_.contains(key), "PEER lacks '{}'", key);
  }

  std::string word(const char* key) const {
    if (!json_.contains(key)) return "";
    const Json& value = json_.at(key);
    check(value.is_string() && !value.get_ref<const std::string&>().empty(), "'{}' must be a text, not {}",
          key, value.dump());
    return value.get<std::string>();
  }

  std::vector<std::string> words(const char* key) const {
    const Json& value = json_.at(key);
    const bool good = value.is_array() && std::all_of(value.begin(), value.end(),
                                                      [](const Json& entry) { return entry.is_string(); });
    check(good, "'{}' must be a list of strings, not {}", key, value.dump());
    return value.get<std::vector<std::string>>();
  }

  template <class... Arguments>
  void check(bool good, fmt::format_string<Arguments...> message, Arguments&&... arguments) const {
    LONGSPAN_CHECK_INPUT(good, "{}: {}", file_, fmt::format(message, std::forward<Arguments>(arguments)...));
  }

 private:
  static bool contains(std::span<const std::string_view> keys, std::string_view key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  }

  std::string file_;
  Json json_;
};

}  // namespace

PeerFile parse_peer_file(std::string_view text, const std::filesystem::path& path) {
  const Reader reader(text, path.string());
  PeerFile file;
  file.name = path.stem().string();
  reader.check(path.extension() == ".py", "the file's name must end in .py");
  const bool importable =
      file.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
  reader.check(importable, "the file's name must consist of lower-case letters, digits and underscores");
  std::replace(file.name.begin(), file.name.end(), '_', '-');
  file.description = reader.word("description");
  file.framework = reader.word("framework");
  file.package = reader.word("package");
  file.masks = reader.word("masks");
  file.colour = reader.word("colour");
  reader.check(file.colour.empty() || is_colour(file.colour), "'colour' must be like \"#0b62a8\", not \"{}\"",
               file.colour);
  const std::string device = reader.word("device");
  reader.check(device == "cuda" || device == "cpu", "'device' must be \"cuda\" or \"cpu\", not \"{}\"",
               device);
  file.device = device == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu;
  const std::vector<std::string> passes = reader.words("passes");
  file.backward = passes.size() == 2 && passes[1] == "backward";
  reader.check((passes.size() == 1 || file.backward) && passes[0] == "forward",
               "'passes' must be [\"forward\"] or [\"forward\", \"backward\"]");
  return file;
}

PeerFile read_peer_file(const std::filesystem::path& path) {
  return parse_peer_file(read_input_file(path.string(), kPeerFile), path);
}

}  // namespace longspan::peers
