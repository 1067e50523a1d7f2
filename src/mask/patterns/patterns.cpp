// The patterns. Each is a few bands a document or a block; docs/concepts/masks.md shows them.
#include "mask/patterns/patterns.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/host_memory.h"
#include "base/nearest.h"
#include "mask/patterns/block_sparse.h"

namespace longspan {
namespace {

DrawnMask drawn_from(const PatternOptions& options, const std::vector<Band>& bands) {
  DrawnMask drawn;
  drawn.masks.emplace_back(options.seqlen, options.seqlen, bands);
  return drawn;
}

Band causal(Range q, Range k) {
  return {q, k, kUnboundedBelow, 0};
}

// Documents
// ----------------------------------------------------------------------------------------------------

struct Documents {
  std::string source;
  std::vector<int64_t> lengths;
  std::vector<Range> ranges;
};

Documents draw_documents(const PatternOptions& options, Mt19937& generator) {
  const LengthSource source = LengthSource::from_name(options.lengths, options.seqlen);
  constexpr double kBytesPerDocument = 160;  // its length, range and bands, as vectors grow
  check_host_memory(kBytesPerDocument * source.expected_documents(options.seqlen),
                    fmt::format("{} tokens in documents of {}", options.seqlen, source.name()));
  Documents documents{source.name(), source.sample(options.seqlen, generator), {}};
  int64_t start = 0;
  for (int64_t length : documents.lengths) {
    documents.ranges.push_back({start, start + length});
    start += length;
  }
  return documents;
}

DrawnMask drawn_from(const PatternOptions& options, const std::vector<Band>& bands, Documents documents) {
  DrawnMask drawn = drawn_from(options, bands);
  drawn.lengths = std::move(documents.source);
  drawn.document_lengths = std::move(documents.lengths);
  return drawn;
}

DrawnMask draw_full_document(const PatternOptions& options, Mt19937& generator) {
  Documents documents = draw_documents(options, generator);
  std::vector<Band> bands;
  for (const Range& range : documents.ranges) bands.push_back({range, range});
  return drawn_from(options, bands, std::move(documents));
}

DrawnMask draw_causal_document(const PatternOptions& options, Mt19937& generator) {
  Documents documents = draw_documents(options, generator);
  std::vector<Band> bands;
  for (const Range& range : documents.ranges) bands.push_back(causal(range, range));
  return drawn_from(options, bands, std::move(documents));
}

DrawnMask draw_share_question(const PatternOptions& options, Mt19937& generator) {
  Documents documents = draw_documents(options, generator);
  // j <= i always holds for the question's columns in later rows, so one causal band covers all rows.
  std::vector<Band> bands = {causal({0, options.seqlen}, documents.ranges.front())};
  for (size_t d = 1; d < documents.ranges.size(); ++d)
    bands.push_back(causal(documents.ranges[d], documents.ranges[d]));
  return drawn_from(options, bands, std::move(documents));
}

DrawnMask draw_causal_blockwise(const PatternOptions& options, Mt19937& generator) {
  Documents documents = draw_documents(options, generator);
  std::vector<Band> bands;
  for (const Range& range : documents.ranges) bands.push_back(causal(range, range));
  bands.back().k = {0, options.seqlen};  // the last document sees all earlier tokens
  return drawn_from(options, bands, std::move(documents));
}

DrawnMask draw_block_causal_document(const PatternOptions& options, Mt19937& generator) {
  constexpr int64_t kMaxBlocks = 8;  // per document
  const int64_t block = options.values.count(kBlock);
  LONGSPAN_CHECK_INPUT(
      options.seqlen % block == 0,
      "block_causal_document of {} tokens: the length must be a multiple of the block, {}; choose "
      "another length or --block",
      options.seqlen, block);
  const int64_t blocks = options.seqlen / block;
  check_host_memory(160.0 * static_cast<double>(blocks),
                    fmt::format("{} tokens in blocks of {}", options.seqlen, block));
  std::vector<int64_t> lengths;
  std::vector<Band> bands;
  for (int64_t start = 0; start < options.seqlen; start += lengths.back()) {
    const int64_t blocks_left = (options.seqlen - start) / block;
    lengths.push_back(std::min(generator.randint(1, kMaxBlocks), blocks_left) * block);
    for (int64_t row = start; row < start + lengths.back(); row += block)
      bands.push_back({{row, row + block}, {start, row + block}});
  }
  DrawnMask drawn = drawn_from(options, bands);
  drawn.document_lengths = std::move(lengths);
  drawn.params = {{"block", block}};
  return drawn;
}

void suit_block_causal_document(PatternOptions& options) {
  if (options.values.has(kBlock)) return;
  int64_t block = std::gcd(options.seqlen, int64_t{1024});
  if (block == options.seqlen && block % 4 == 0) block /= 4;  // several blocks
  options.values.set("block", block);
}

// Windows
// ------------------------------------------------------------------------------------------------------

constexpr OptionSpec kWindow{.name = "window",
                             .help = "LEFT,RIGHT in tokens, such as 1024,0; or one number",
                             .kind = OptionKind::kTokenPair};

// A single number applies to both sides.
void complete_both_sides(OptionValues& values) {
  if (!values.has(kWindow)) return;
  const TokenPair window = values.pair(kWindow);
  values.set("window", TokenPair{window.first, window.second.value_or(window.first)});
}

// A single number is the left side of a causal window.
void complete_left_side(OptionValues& values) {
  if (!values.has(kWindow)) return;
  const TokenPair window = values.pair(kWindow);
  values.set("window", TokenPair{window.first, window.second.value_or(0)});
}

DrawnMask draw_full(const PatternOptions& options, Mt19937&) {
  const Range all{0, options.seqlen};
  return drawn_from(options, {{all, all}});
}

DrawnMask draw_causal(const PatternOptions& options, Mt19937&) {
  const Range all{0, options.seqlen};
  return drawn_from(options, {causal(all, all)});
}

DrawnMask draw_sliding_window(const PatternOptions& options, Mt19937&) {
  const Range all{0, options.seqlen};
  const TokenPair window = options.values.pair(kWindow);
  const int64_t left = window.first, right = *window.second;
  DrawnMask drawn = drawn_from(options, {{all, all, -left, right}});
  drawn.params = {{"window_left", left}, {"window_right", right}};
  return drawn;
}

void suit_sliding_window(PatternOptions& options) {
  if (!options.values.has(kWindow))
    options.values.set("window", TokenPair{options.seqlen / 8, options.seqlen / 9});
}

DrawnMask draw_sliding_window_causal(const PatternOptions& options, Mt19937&) {
  const Range all{0, options.seqlen};
  const auto [left, right] = options.values.pair(kWindow);
  LONGSPAN_CHECK_INPUT(*right == 0,
                       "--window {},{}: sliding_window_causal has a left side only; give --window {}", left,
                       *right, left);
  DrawnMask drawn = drawn_from(options, {{all, all, -left, 0}});
  drawn.params = {{"window_left", left}};
  return drawn;
}

void suit_sliding_window_causal(PatternOptions& options) {
  if (!options.values.has(kWindow)) options.values.set("window", TokenPair{options.seqlen / 8, {}});
}

DrawnMask draw_global_sliding_window(const PatternOptions& options, Mt19937& generator) {
  const int64_t n = options.seqlen;
  const int64_t widest = n / 3 - 1;
  TokenPair window{1, 1};
  if (options.values.has(kWindow)) {
    window = options.values.pair(kWindow);
  } else if (widest >= 1) {
    window.first = generator.randint(1, widest);
    window.second = window.first;
  }
  const auto [w, right] = window;
  LONGSPAN_CHECK_INPUT(*right == w, "--window {},{}: global_sliding_window has one width; give --window {}",
                       w, *right, w);
  const int64_t global = std::min(w, n);
  const Range rest{global, n};
  DrawnMask drawn = drawn_from(options, {{{0, global}, {0, n}}, {rest, {0, global}}, {rest, rest, -w, w}});
  drawn.params = {{"window", w}};
  return drawn;
}

// Prefixes
// -----------------------------------------------------------------------------------------------------

constexpr OptionSpec kPrefix{.name = "prefix", .help = "prefix length in tokens; drawn if not given"};

int64_t prefix_or_draw(const PatternOptions& options, int64_t longest, Mt19937& generator) {
  return options.values.has(kPrefix) ? options.values.count(kPrefix) : generator.randint(1, longest);
}

// Rows of the prefix see the whole prefix and nothing else; later rows are causal.
void add_prefix_lm(std::vector<Band>& bands, Range range, int64_t prefix) {
  const Range head{range.begin, std::min(range.begin + prefix, range.end)};
  bands.push_back({head, head});
  bands.push_back(causal({head.end, range.end}, range));
}

DrawnMask draw_prefix_lm_causal(const PatternOptions& options, Mt19937& generator) {
  const int64_t prefix = prefix_or_draw(options, options.seqlen, generator);
  std::vector<Band> bands;
  add_prefix_lm(bands, {0, options.seqlen}, prefix);
  DrawnMask drawn = drawn_from(options, bands);
  drawn.params = {{"prefix", prefix}};
  return drawn;
}

DrawnMask draw_prefix_lm_document(const PatternOptions& options, Mt19937& generator) {
  Documents documents = draw_documents(options, generator);
  const int64_t prefix = prefix_or_draw(options, documents.lengths.front(), generator);
  std::vector<Band> bands;
  for (const Range& range : documents.ranges) add_prefix_lm(bands, range, prefix);
  DrawnMask drawn = drawn_from(options, bands, std::move(documents));
  drawn.params = {{"prefix", prefix}};
  return drawn;
}

// The table
// ----------------------------------------------------------------------------------------------------

// To add a pattern: see CONTRIBUTING.md.
std::vector<Pattern> table() {
  const OptionSpec window = kWindow.with_preset("1024");
  using enum MaskPart;
  return {
      {.name = "full", .condition = "always", .draw = draw_full},
      {.name = kPlainestPattern,
       .condition = "j <= i",
       .draw = draw_causal,
       .parts = {kShuffled, kLateKeys, kEarlyRows}},
      {.name = "full_document",
       .condition = "d(i) = d(j)",
       .documents = true,
       .draw = draw_full_document,
       .parts = {kShuffled}},
      {.name = "causal_document",
       .condition = "d(i) = d(j) and j <= i",
       .documents = true,
       .draw = draw_causal_document,
       .parts = {kLateKeys}},
      {.name = "sliding_window",
       .condition = "-right <= i - j <= left",
       .options = {window},
       .draw = draw_sliding_window,
       .complete = complete_both_sides,
       .suit_length = suit_sliding_window},
      {.name = "sliding_window_causal",
       .condition = "0 <= i - j <= left",
       .options = {window},
       .draw = draw_sliding_window_causal,
       .complete = complete_left_side,
       .suit_length = suit_sliding_window_causal,
       .parts = {kShuffled}},
      {.name = "share_question",
       .condition = "j <= i and (d(i) = d(j) or d(j) = 0)",
       .documents = true,
       .draw = draw_share_question},
      {.name = "causal_blockwise",
       .condition = "j <= i and (d(i) = d(j) or d(i) = last)",
       .documents = true,
       .draw = draw_causal_blockwise},
      {.name = "prefix_lm_causal",
       .condition = "j <= i or (i < P and j < P)",
       .options = {kPrefix},
       .draw = draw_prefix_lm_causal},
      {.name = "prefix_lm_document",
       .condition = "d(i) = d(j) and (j <= i or j - s(j) < P)",
       .options = {kPrefix},
       .documents = true,
       .draw = draw_prefix_lm_document},
      {.name = "global_sliding_window",
       .condition = "j < w or i < w or abs(i - j) <= w",
       .options = {kWindow},
       .draw = draw_global_sliding_window,
       .complete = complete_both_sides},
      {.name = "block_causal_document",
       .condition = "d(i) = d(j) and floor(j / B) <= floor(i / B)",
       .options = {kBlock.with_preset("1024")},
       .draw = draw_block_causal_document,
       .suit_length = suit_block_causal_document},
      {.name = "uniform_block_sparse",
       .condition = "block (i / B, j / B) is selected",
       .options = {kBlock.with_preset("64"), kDensity},
       .block_sparse = true,
       .draw = draw_uniform_block_sparse,
       .suit_length = suit_uniform_block_sparse,
       .block_size = kBlock.name,
       .parts = {kShuffled}},
      {.name = "variable_block_sparse",
       .condition = "block (row block of i, column block of j) is selected",
       .options = {kBlock.with_preset("256"), kBlockMin.with_preset("128"), kDensity},
       .block_sparse = true,
       .draw = draw_variable_block_sparse,
       .suit_length = suit_variable_block_sparse},
  };
}

}  // namespace

int64_t DrawnMask::area() const {
  int64_t area = 0;
  for (const Mask& mask : masks) area += mask.area();
  return area;
}

double DrawnMask::density() const {
  double pairs = 0;
  for (const Mask& mask : masks)
    pairs += static_cast<double>(mask.rows()) * static_cast<double>(mask.columns());
  return pairs > 0 ? static_cast<double>(area()) / pairs : 0;
}

std::string Pattern::parameters() const {
  std::vector<std::string_view> names;
  if (documents) names.emplace_back("lengths");
  for (const OptionSpec& option : options) names.push_back(option.name);
  if (block_sparse) names.emplace_back("kv_heads");
  return fmt::format("{}", fmt::join(names, ", "));
}

std::span<const Pattern> patterns() {
  static const std::vector<Pattern> all = table();
  return all;
}

std::span<const TableOption> pattern_options() {
  static const std::vector<TableOption> all = [] {
    TableOptions options;
    for (const Pattern& pattern : patterns()) options.add_row(pattern.name, pattern.options);
    return options.take();
  }();
  return all;
}

const Pattern& pattern_from_name(std::string_view name) {
  std::vector<std::string> names;
  for (const Pattern& pattern : patterns()) {
    if (pattern.name == name) return pattern;
    names.emplace_back(pattern.name);
  }
  LONGSPAN_CHECK_INPUT(false, "mask pattern '{}' is unknown{}; the patterns are {}", name,
                       did_you_mean(name, names), fmt::join(names, ", "));
  return patterns().front();
}

DrawnMask draw_mask(const Pattern& pattern, const PatternOptions& options, Mt19937& generator) {
  LONGSPAN_CHECK_INPUT(1 <= options.seqlen && options.seqlen <= kMaxTokens, "--seqlen {}: must be 1 to {}",
                       options.seqlen, kMaxTokens);
  PatternOptions complete = options;
  for (const OptionSpec& option : pattern.options) {
    const std::optional<OptionValue> value = options.values.value_of(option);
    if (!value) continue;
    option.check(*value);
    complete.values.set(option.name, *value);
  }
  if (pattern.complete != nullptr) pattern.complete(complete.values);
  DrawnMask drawn = pattern.draw(complete, generator);
  drawn.pattern = pattern.name;
  drawn.options = options;
  return drawn;
}

// Draws the masks before number options.index. The generator cannot jump: how much a mask draws depends on
// what it draws.
static void skip_masks(const Pattern& pattern, const PatternOptions& options, Mt19937& generator) {
  constexpr int64_t kMost = int64_t{1} << 24;     // in words of the generator: less than a second
  constexpr int64_t kPerMask = 64, kPerBand = 8;  // what else costs as much as a word
  constexpr int64_t kAlways = 4;                  // masks, however large
  int64_t work = 0;
  for (int64_t n = 0; n < options.index; ++n) {
    LONGSPAN_CHECK_INPUT(n < kAlways || work < kMost,
                         "--index {}: too many masks to draw before it; the most for {} at this length is {}",
                         options.index, pattern.name, n);
    const int64_t before = generator.drawn();
    const DrawnMask drawn = draw_mask(pattern, options, generator);
    if (generator.drawn() == before) return;  // it draws nothing: all masks are the same
    work += generator.drawn() - before + kPerMask;
    for (const Mask& mask : drawn.masks) work += kPerBand * static_cast<int64_t>(mask.bands().size());
  }
}

DrawnMask draw_mask(std::string_view pattern_name, const PatternOptions& options) {
  const Pattern& pattern = pattern_from_name(pattern_name);
  LONGSPAN_CHECK_INPUT(options.index >= 0, "--index {}: must be at least 0", options.index);
  Mt19937 generator(options.seed);
  skip_masks(pattern, options, generator);
  return draw_mask(pattern, options, generator);
}

}  // namespace longspan
