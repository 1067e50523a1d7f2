// Drawing document lengths.
#include "mask/patterns/document_lengths.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include <fmt/ranges.h>

#include "base/error.h"
#include "mask/mask.h"
#include "mask/patterns/histograms.h"
#include "mask/patterns/length_file.h"

namespace longspan {
namespace {

constexpr int64_t kPileUpTo = int64_t{12} << 10, kProlong64kBelow = int64_t{64} << 10,
                  kProlong512kUpTo = int64_t{1} << 20;

// The long documents of long-mix.
const LengthHistogram kLongMixLong{"long-mix", {{8192, 30720, 1.0}}};

const LengthHistogram* find_histogram(std::string_view name) {
  for (const LengthHistogram& histogram : histograms())
    if (histogram.name == name) return &histogram;
  return nullptr;
}

// The histogram for a sequence length. prolong512k has no upper limit here; callers check it.
const LengthHistogram& histogram_for(int64_t seqlen) {
  const char* name = seqlen <= kPileUpTo ? "pile" : seqlen < kProlong64kBelow ? "prolong64k" : "prolong512k";
  return *find_histogram(name);
}

LengthHistogram parse_uniform(const std::string& name) {
  const std::string_view text = std::string_view(name).substr(std::string_view("uniform:").size());
  const size_t colon = text.find(':');
  LengthBin bin{0, 0, 1.0};
  auto parse = [](std::string_view number, int64_t& value) {
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    return error == std::errc() && end == number.data() + number.size();
  };
  LONGSPAN_CHECK_INPUT(colon != std::string_view::npos && parse(text.substr(0, colon), bin.begin) &&
                           parse(text.substr(colon + 1), bin.end) && 1 <= bin.begin && bin.begin <= bin.end &&
                           bin.end <= kMaxTokens,
                       "--lengths {}: must be uniform:A:B, lengths in tokens with 1 <= A <= B, such as "
                       "uniform:512:4096",
                       name);
  return {name, {bin}};
}

constexpr std::string_view kList = "list:";

std::vector<int64_t> parse_list(std::string_view name) {
  std::vector<int64_t> lengths;
  for (std::string_view text = name.substr(kList.size());;) {
    const std::string_view number = text.substr(0, text.find(':'));
    int64_t length = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), length);
    LONGSPAN_CHECK_INPUT(
        error == std::errc() && end == number.data() + number.size() && length >= 1 && length <= kMaxTokens,
        "--lengths list: length {}, '{}', must be a whole number from 1 to {}; lengths are "
        "separated by colons, as in list:8192:1024",
        lengths.size() + 1, number.substr(0, 40), kMaxTokens);
    lengths.push_back(length);
    if (number.size() == text.size()) return lengths;
    text.remove_prefix(number.size() + 1);
  }
}

const LengthBin& draw_bin(const LengthHistogram& histogram, const std::vector<double>& cumulative,
                          Mt19937& generator) {
  // A draw that rounds up to the total falls into the last bin.
  const auto at =
      std::upper_bound(cumulative.begin(), cumulative.end() - 1, generator.random() * cumulative.back());
  return histogram.bins[static_cast<size_t>(at - cumulative.begin())];
}

std::vector<double> cumulative_weights(const LengthHistogram& histogram) {
  std::vector<double> cumulative;
  double total = 0;
  for (const LengthBin& bin : histogram.bins) cumulative.push_back(total += bin.weight);
  return cumulative;
}

}  // namespace

std::string list_of_lengths(std::span<const int64_t> lengths) {
  return fmt::format("{}{}", kList, fmt::join(lengths, ":"));
}

std::span<const LengthHistogram> histograms() {
  static const std::vector<LengthHistogram> all = {
      {"pile", parse_length_file(kPileCsv, "pile.csv").bins},
      {"prolong64k", parse_length_file(kProlong64kCsv, "prolong64k.csv").bins},
      {"prolong512k", parse_length_file(kProlong512kCsv, "prolong512k.csv").bins},
  };
  return all;
}

std::vector<int64_t> sample_lengths(const LengthHistogram& histogram, int64_t tokens, Mt19937& generator) {
  const std::vector<double> cumulative = cumulative_weights(histogram);
  std::vector<int64_t> lengths;
  for (int64_t left = tokens; left > 0; left -= lengths.back()) {
    const LengthBin& bin = draw_bin(histogram, cumulative, generator);
    const int64_t length = generator.randint(bin.begin, bin.end);
    lengths.push_back(std::max<int64_t>(std::min(length, left), 1));
  }
  return lengths;
}

LengthSource LengthSource::from_name(const std::string& name, int64_t seqlen) {
  LengthSource source;
  source.name_ = name;
  if (name == "auto") {
    LONGSPAN_CHECK_INPUT(seqlen <= kProlong512kUpTo,
                         "--lengths auto: {} tokens exceed its limit of 1M; name one of pile, "
                         "prolong64k, prolong512k, long-mix, uniform:A:B, list:A:B:..., or a CSV file",
                         seqlen);
    source.histogram_ = histogram_for(seqlen);
    source.name_ = source.histogram_.name;
  } else if (const LengthHistogram* histogram = find_histogram(name)) {
    source.histogram_ = *histogram;
  } else if (name == "long-mix") {
    source.kind_ = Kind::kLongMix;
    source.histogram_ = histogram_for(seqlen);
  } else if (name.starts_with("uniform:")) {
    source.histogram_ = parse_uniform(name);
  } else if (name.starts_with(kList)) {
    source.kind_ = Kind::kList;
    source.list_ = parse_list(name);
  } else {
    const bool looks_like_path = name.find_first_of("./\\") != std::string::npos;
    std::error_code none;
    LONGSPAN_CHECK_INPUT(
        looks_like_path || std::filesystem::exists(name, none),
        "--lengths {}: is unknown; the sources are auto, pile, prolong64k, prolong512k, long-mix, "
        "uniform:A:B, list:A:B:..., or a CSV file of lengths or of begin,end,weight bins; there is no file "
        "'{}'",
        name, name);
    LengthFile file = read_length_file(name);
    if (!file.lengths.empty()) {
      source.kind_ = Kind::kList;
      source.list_ = std::move(file.lengths);
    } else {
      source.histogram_ = {name, std::move(file.bins)};
    }
  }
  return source;
}

int64_t LengthSource::draw(Mt19937& generator) const {
  LONGSPAN_CHECK_INPUT(
      kind_ != Kind::kLongMix,
      "--lengths {} mixes the documents of one sequence; name a histogram, uniform:A:B, or a "
      "file of lengths",
      name_);
  if (kind_ == Kind::kList)
    return list_[static_cast<size_t>(generator.randbelow(static_cast<int64_t>(list_.size())))];
  const LengthBin& bin = draw_bin(histogram_, cumulative_weights(histogram_), generator);
  return std::max<int64_t>(generator.randint(bin.begin, bin.end), 1);
}

double LengthSource::expected_documents(int64_t seqlen) const {
  if (kind_ == Kind::kList) return static_cast<double>(std::min<int64_t>(std::ssize(list_), seqlen));
  double weight = 0, tokens = 0;
  for (const LengthBin& bin : histogram_.bins) {
    weight += bin.weight;
    tokens += bin.weight * std::max(1.0, static_cast<double>(bin.begin + bin.end) / 2);
  }
  return 1 + static_cast<double>(seqlen) * weight / tokens;  // the long documents of long-mix are few
}

std::vector<int64_t> LengthSource::sample(int64_t seqlen, Mt19937& generator) const {
  switch (kind_) {
    case Kind::kHistogram:
      return sample_lengths(histogram_, seqlen, generator);
    case Kind::kLongMix: {
      const auto short_tokens = static_cast<int64_t>(0.4 * static_cast<double>(seqlen));
      std::vector<int64_t> lengths = sample_lengths(histogram_, short_tokens, generator);
      const auto longer = sample_lengths(kLongMixLong, seqlen - short_tokens, generator);
      lengths.insert(lengths.end(), longer.begin(), longer.end());
      generator.shuffle(lengths);
      return lengths;
    }
    case Kind::kList: {
      std::vector<int64_t> lengths;
      int64_t left = seqlen;
      for (size_t i = 0; i < list_.size() && left > 0; ++i) {
        lengths.push_back(std::min(list_[i], left));
        left -= lengths.back();
      }
      LONGSPAN_CHECK_INPUT(left == 0,
                           "--lengths {}: its {} lengths sum to {} tokens, fewer than the sequence's {}",
                           name_.substr(0, 80), list_.size(), seqlen - left, seqlen);
      return lengths;
    }
  }
  return {};
}

}  // namespace longspan
