// `longspan mask`: draws a mask, and describes it, shows it, or writes it to a file.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parse.h"
#include "base/printable.h"
#include "bench/spec/mask_file.h"
#include "cli/command.h"
#include "cli/pattern_options.h"
#include "cli/progress_line.h"
#include "mask/lowering/lower.h"
#include "mask/patterns/patterns.h"
#include "mask/picture.h"
#include "report/output_file.h"
#include "report/png_file.h"

namespace longspan::cli {
namespace {

struct MaskArguments {
  std::string pattern;
  std::string seqlen, lengths, tile = "128x128", png;
  std::map<std::string, std::string> pattern_options;
  std::optional<int64_t> seed, index, kv_heads;
  int pixels = 512;
  bool json = false, text = false;
};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

TileShape parse_tile(const std::string& text) {
  const size_t cross = text.find('x');
  TileShape shape;
  auto side = [&](const std::string& number) {
    const int64_t length = parse_length(number, "--tile");
    LONGSPAN_CHECK_INPUT(1 <= length && length <= 65535, "--tile {}: its sides must be 1 to 65535", text);
    return static_cast<int32_t>(length);
  };
  LONGSPAN_CHECK_INPUT(cross != std::string::npos, "--tile {}: must be ROWSxCOLUMNS, such as 128x128", text);
  shape.rows = side(text.substr(0, cross));
  shape.columns = side(text.substr(cross + 1));
  return shape;
}

bool is_file(const std::string& pattern) {
  return pattern.ends_with(".json") || pattern.find('/') != std::string::npos;
}

// Refuses options that the pattern does not read, so that none is silently ignored.
void check_options_read(const MaskArguments& given, std::string_view pattern,
                        const std::vector<std::string>& reads) {
  auto check = [&](bool is_given, std::string_view option) {
    const bool is_read = std::find(reads.begin(), reads.end(), option) != reads.end();
    LONGSPAN_CHECK_INPUT(!is_given || is_read, "{}: does not apply to {}, which takes {}", option, pattern,
                         reads.empty() ? "no parameters" : fmt::format("{}", fmt::join(reads, ", ")));
  };
  check(!given.lengths.empty(), "--lengths");
  for (const TableOption& option : pattern_options()) {
    const std::string key(option.spec.name);
    check(!given.pattern_options.at(key).empty(), option_name(key));
  }
  check(given.kv_heads.has_value(), "--kv-heads");
}

// The options that the pattern reads, as they are typed.
std::vector<std::string> options_of(const Pattern& pattern) {
  std::vector<std::string> options;
  if (pattern.documents) options.emplace_back("--lengths");
  for (const OptionSpec& option : pattern.options) options.push_back(option_name(option.name));
  if (pattern.block_sparse) options.emplace_back("--kv-heads");
  return options;
}

DrawnMask draw(const MaskArguments& given) {
  const Pattern& pattern = pattern_from_name(given.pattern);
  check_options_read(given, pattern.name, options_of(pattern));
  LONGSPAN_CHECK_INPUT(!given.seqlen.empty(), "--seqlen: is missing; give the sequence length, such as 8K");
  PatternOptions options;
  options.seqlen = parse_length(given.seqlen, "--seqlen");
  LONGSPAN_CHECK_INPUT(given.seed.value_or(0) >= 0, "--seed {}: must be at least 0", *given.seed);
  if (given.seed) options.seed = static_cast<uint64_t>(*given.seed);
  if (given.index) options.index = *given.index;
  if (!given.lengths.empty()) options.lengths = given.lengths;
  if (given.kv_heads) options.kv_heads = *given.kv_heads;
  options.values = parse_options(given.pattern_options);
  return draw_mask(pattern.name, options);
}

DrawnMask read(const MaskArguments& given) {
  check_options_read(given, "a mask from a file", {});
  for (const auto& [is_given, option] : {std::pair{!given.seqlen.empty(), "--seqlen"},
                                         {given.seed.has_value(), "--seed"},
                                         {given.index.has_value(), "--index"}})
    LONGSPAN_CHECK_INPUT(!is_given, "{}: does not apply to a mask from a file", option);
  DrawnMask drawn;
  drawn.pattern = given.pattern;
  drawn.masks = read_masks(given.pattern);
  drawn.options.seqlen = drawn.masks.front().rows();
  return drawn;
}

// The files that the mask may be read from.
std::vector<std::filesystem::path> inputs_of(const MaskArguments& given) {
  return {given.pattern, given.lengths};
}

void describe(std::FILE* out, const DrawnMask& drawn, double draw_s, TileShape shape) {
  const Mask& first = drawn.masks.front();
  fmt::print(out, "{}: {} x {} tokens", printable(drawn.pattern), format_length(first.rows()),
             format_length(first.columns()));
  if (drawn.masks.size() > 1) fmt::print(out, ", {} KV heads", drawn.masks.size());
  fmt::print(out, "\n");
  if (!is_file(drawn.pattern)) {
    fmt::print(out, "  visible iff  {}\n", pattern_from_name(drawn.pattern).condition);
    fmt::print(out, "  drawn with   seed {}, mask {}", drawn.options.seed, drawn.options.index);
    for (const auto& [name, value] : drawn.params) fmt::print(out, ", {} {}", name, to_text(value));
    fmt::print(out, "\n");
  }
  if (!drawn.document_lengths.empty()) {
    const auto [least, most] =
        std::minmax_element(drawn.document_lengths.begin(), drawn.document_lengths.end());
    fmt::print(out, "  documents    {} of {} to {} tokens{}\n", drawn.document_lengths.size(), *least, *most,
               drawn.lengths.empty() ? "" : ", lengths from " + printable(drawn.lengths));
  }
  size_t bands = 0, band_bytes = 0;
  for (const Mask& mask : drawn.masks) {
    bands += mask.bands().size();
    band_bytes += mask.bands().bytes();
  }
  fmt::print(out, "  area         {} visible pairs, density {:.6g}\n", drawn.area(), drawn.density());
  fmt::print(out, "  bands        {}, {:.1f} KiB, {} in {:.1f} ms\n", bands,
             static_cast<double>(band_bytes) / 1024, is_file(drawn.pattern) ? "read" : "drawn", draw_s * 1e3);

  int64_t full = 0, partial = 0, distinct = 0;
  double all = 0, lower_s = 0;
  size_t map_bytes = 0;
  for (const Mask& mask : drawn.masks) {
    const auto start = Clock::now();
    const TileMap map = lower(mask, shape);
    lower_s += seconds_since(start);
    for (const Run& run : map.runs) (run.full() ? full : partial) += run.count();
    distinct += static_cast<int64_t>(map.partials.size());
    all += static_cast<double>(map.row_tiles()) * static_cast<double>(map.column_tiles());
    map_bytes += map.bytes();
  }
  fmt::print(out, "  tiles        {} x {}: {} full, {} partial ({} distinct), of {:.0f}\n", shape.rows,
             shape.columns, full, partial, distinct, all);
  fmt::print(out, "  tile map     {:.1f} KiB, lowered in {:.1f} ms\n", static_cast<double>(map_bytes) / 1024,
             lower_s * 1e3);
}

void run_mask(const MaskArguments& options) {
  LONGSPAN_CHECK_INPUT(!options.json || (!options.text && options.png.empty()),
                       "--json: cannot be combined with --text or --png");
  LONGSPAN_CHECK_INPUT(1 <= options.pixels && options.pixels <= 8192, "--pixels {}: must be 1 to 8192",
                       options.pixels);
  const TileShape shape = parse_tile(options.tile);
  std::optional<report::OutputFile> picture;
  if (!options.png.empty())
    picture.emplace("--png", options.png, report::OutputFile::Kind{"a PNG", kPngBegin}, inputs_of(options));
  const ProgressLine progress;
  progress.show(is_file(options.pattern) ? "reading the mask" : "drawing the mask");
  const auto start = Clock::now();
  const DrawnMask drawn = is_file(options.pattern) ? read(options) : draw(options);
  const double draw_s = seconds_since(start);
  progress.clear();
  if (options.json) {
    if (is_file(options.pattern))
      write_masks(drawn.masks, std::cout);
    else
      write_masks(drawn, std::cout);
    std::cout.flush();
    return;
  }
  // Write the picture before printing: an output file that cannot be written is an input error, which must
  // not leave other output.
  std::FILE* out = stdout;
  if (picture) {
    picture->write(png_of(drawn.masks, {options.pixels, drawn.document_lengths}));
    if (picture->is_stdout()) out = stderr;
  }
  describe(out, drawn, draw_s, shape);
  if (options.text) {
    for (const Mask& mask : drawn.masks) fmt::print(out, "\n{}", text_picture(mask));
  }
  if (picture) fmt::print(out, "  picture      {}\n", printable(options.png));
}

}  // namespace

void add_mask_command(CLI::App& program) {
  auto options = std::make_shared<MaskArguments>();
  CLI::App* command =
      program.add_subcommand("mask", "Draw a mask: describe it, show it, or write it to a file");
  command
      ->add_option("pattern", options->pattern, "a mask pattern (see `longspan list masks`), or a mask file")
      ->required();
  command->add_option("--seqlen", options->seqlen, "sequence length in tokens: 1000, 8K, 1M");
  command->add_option("--seed", options->seed, "seed of the stream of masks [42]");
  command->add_option("--index", options->index, "number of the mask in the stream [0]");
  command->add_option(
      "--lengths", options->lengths,
      "document lengths: auto, pile, prolong64k, prolong512k, long-mix, uniform:A:B, list:A:B:..., or a CSV "
      "file");
  add_pattern_options(*command, options->pattern_options);
  command->add_option("--kv-heads", options->kv_heads,
                      "number of masks to draw for a block-sparse pattern [1]");
  command->add_option("--tile", options->tile, "tile shape for lowering the mask [128x128]");
  command->add_flag("--json", options->json, "print the mask as JSON, which --mask FILE.json reads");
  command->add_option("--png", options->png, "write a picture to this file; replaces only a PNG");
  command->add_option("--pixels", options->pixels, "pixels on the longer side of the picture [512]");
  command->add_flag("--text", options->text, "draw the mask in the terminal");
  command->footer(
      "Examples:\n"
      "  longspan mask causal_document --seqlen 8K --text\n"
      "  longspan mask sliding_window --seqlen 4K --window 512,128 --png window.png\n"
      "  longspan mask uniform_block_sparse --seqlen 1M --block 128 --density 0.05\n"
      "  longspan mask share_question --seqlen 64K --lengths mine.csv --json > mine.json");
  command->callback([options] { run_mask(*options); });
}

}  // namespace longspan::cli
