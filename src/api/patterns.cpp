// Masks of named patterns, with options as text.
#include "mask/patterns/patterns.h"

#include "base/error.h"
#include "base/parse.h"

namespace longspan {
namespace {

double parse_share(const std::string& text) {
  size_t end = 0;
  double share = 0;
  try {
    share = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  LONGSPAN_CHECK_INPUT(end == text.size() && end > 0, "density '{}': must be a number above 0, at most 1",
                       text);
  return share;
}

// The table names what a pattern reads as "block, density"; every pattern has a seed and an index.
bool reads(const Pattern& pattern, std::string_view name) {
  return name == "seed" || name == "index" ||
         fmt::format(", {},", pattern.parameters).find(fmt::format(", {},", name)) != std::string::npos;
}

// "1K" or "1K,0": to the left, and to the right.
void set_window(PatternOptions& options, const std::string& text) {
  const size_t comma = text.find(',');
  options.window_left = parse_length(text.substr(0, comma), "window");
  if (comma != std::string::npos) options.window_right = parse_length(text.substr(comma + 1), "window");
}

}  // namespace

HeadMasks pattern_masks(std::string_view pattern_name, int64_t seqlen,
                        const std::map<std::string, std::string>& given) {
  const Pattern& pattern = pattern_from_name(pattern_name);
  PatternOptions options;
  options.seqlen = seqlen;
  for (const auto& [name, text] : given) {
    LONGSPAN_CHECK_INPUT(reads(pattern, name), "{} does not concern {}, which takes seed, index{}{}", name,
                         pattern_name, pattern.parameters.empty() ? "" : ", ", pattern.parameters);
    if (name == "seed") options.seed = static_cast<uint64_t>(parse_length(text, name));
    if (name == "index") options.index = parse_length(text, name);
    if (name == "lengths") options.lengths = text;
    if (name == "window") set_window(options, text);
    if (name == "prefix") options.prefix = parse_length(text, name);
    if (name == "block") options.block = parse_length(text, name);
    if (name == "block_min") options.block_min = parse_length(text, name);
    if (name == "density") options.density = parse_share(text);
    if (name == "kv_heads") options.kv_heads = parse_length(text, name);
  }
  if (pattern.name == "sliding_window" && options.window_left && !options.window_right)
    options.window_right = options.window_left;
  return draw_mask(pattern_name, options).masks;
}

std::vector<std::string> pattern_names() {
  std::vector<std::string> names;
  for (const Pattern& pattern : patterns()) names.emplace_back(pattern.name);
  return names;
}

}  // namespace longspan
