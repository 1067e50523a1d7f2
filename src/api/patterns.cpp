// Masks of named patterns, with options as text.
#include "mask/patterns/patterns.h"

#include "api/option_text.h"
#include "base/parse.h"
#include "base/standard_errors.h"

namespace longspan {

HeadMasks pattern_masks(std::string_view pattern_name, int64_t seqlen,
                        const std::map<std::string, std::string>& given) {
  const Pattern& pattern = pattern_from_name(pattern_name);
  std::string others = "seed, index";
  if (pattern.documents) others += ", lengths";
  if (pattern.block_sparse) others += ", kv_heads";
  PatternOptions options;
  options.seqlen = seqlen;
  for (const auto& [name, text] : given) {
    if (name == "seed") {
      options.seed = static_cast<uint64_t>(parse_length(text, name));
    } else if (name == "index") {
      options.index = parse_length(text, name);
    } else if (name == "lengths" && pattern.documents) {
      options.lengths = text;
    } else if (name == "kv_heads" && pattern.block_sparse) {
      options.kv_heads = parse_length(text, name);
    } else {
      set_from_text(options.values, pattern.options, pattern_name, others, name, text);
    }
  }
  return standard_errors([&] { return draw_mask(pattern_name, options).masks; });
}

std::vector<std::string> pattern_names() {
  std::vector<std::string> names;
  for (const Pattern& pattern : patterns()) names.emplace_back(pattern.name);
  return names;
}

}  // namespace longspan
