// Drawing block-sparse masks.
#include "mask/patterns/block_sparse.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/host_memory.h"

namespace longspan {
namespace {

constexpr int64_t kShort = 512;  // tokens: below this, the default block sizes are too large

// A set of numbers below n, as a bitmap.
class Selection {
 public:
  explicit Selection(int64_t n) : n_(n), words_(static_cast<size_t>((n + 63) / 64)) {}

  // Draws k of the n numbers, uniformly without replacement, by Floyd's method (Bentley and Floyd, 1987). It
  // draws the kept numbers or the dropped ones, whichever are fewer.
  void draw(int64_t k, Mt19937& generator) {
    const bool inverted = k > n_ / 2;
    const int64_t drawn = inverted ? n_ - k : k;
    std::fill(words_.begin(), words_.end(), 0);
    for (int64_t j = n_ - drawn; j < n_; ++j) {
      const int64_t t = generator.randbelow(j + 1);
      add(contains(t) ? j : t);
    }
    if (!inverted) return;
    for (uint64_t& word : words_) word = ~word;
    if (n_ % 64 != 0) words_.back() &= (uint64_t{1} << (n_ % 64)) - 1;
  }

  // Calls visit(begin, end) for each run of consecutive numbers.
  template <class Visit>
  void for_each_run(Visit visit) const {
    int64_t begin = -1;  // start of a run that continues from the previous word
    for (size_t w = 0; w < words_.size(); ++w) {
      uint64_t word = words_[w];
      const int64_t base = static_cast<int64_t>(w) * 64;
      int position = 0;
      while (position < 64) {
        if (begin < 0) {
          if (word == 0) break;
          const int skip = std::countr_zero(word);
          begin = base + position + skip;
          position += skip;
          word >>= skip;
        }
        const int ones = std::countr_one(word);
        position += ones;
        if (position >= 64) break;
        visit(begin, base + position);
        begin = -1;
        word >>= ones;
      }
    }
    if (begin >= 0) visit(begin, n_);
  }

 private:
  bool contains(int64_t i) const { return words_[i >> 6] >> (i & 63) & 1; }
  void add(int64_t i) { words_[i >> 6] |= uint64_t{1} << (i & 63); }

  int64_t n_;
  std::vector<uint64_t> words_;
};

int64_t kept_blocks(double density, int64_t blocks) {
  return std::clamp<int64_t>(static_cast<int64_t>(std::floor(density * static_cast<double>(blocks))), 1,
                             blocks);
}

// The bands of a mask of `rows` rows of `n` blocks, on average: a row has k (n - k + 1) / n runs.
double expected_bands(int64_t rows, int64_t n, double density) {
  const auto k = static_cast<double>(kept_blocks(density, n));
  return static_cast<double>(rows) * k * (static_cast<double>(n) - k + 1) / static_cast<double>(n);
}

// `n` blocks on each side.
void check_size(const PatternOptions& options, int64_t n, double density) {
  LONGSPAN_CHECK_INPUT(options.kv_heads >= 1, "--kv-heads {}: must be at least 1", options.kv_heads);
  constexpr double kBytesPerMask = 1024, kBytesPerBlock = 32, kBytesPerBand = 16;
  check_host_memory(
      static_cast<double>(options.kv_heads) * (kBytesPerMask + kBytesPerBlock * static_cast<double>(n) +
                                               kBytesPerBand * expected_bands(n, n, density)),
      fmt::format("{} masks of {} x {} blocks", options.kv_heads, n, n));
}

// Selects k blocks in each row of blocks. Block (r, c) has rows [row_starts[r], row_starts[r + 1]); columns
// likewise.
Mask select_blocks(const std::vector<int64_t>& row_starts, const std::vector<int64_t>& column_starts,
                   double density, Mt19937& generator) {
  const auto rows = static_cast<int64_t>(row_starts.size()) - 1,
             n = static_cast<int64_t>(column_starts.size()) - 1;
  const int64_t k = kept_blocks(density, n);
  Selection selection(n);
  BandList bands;
  bands.reserve(static_cast<size_t>(expected_bands(rows, n, density) * 1.02) + 1024);
  for (int64_t row = 0; row < rows; ++row) {
    selection.draw(k, generator);
    selection.for_each_run([&](int64_t begin, int64_t end) {
      bands.append({{row_starts[row], row_starts[row + 1]}, {column_starts[begin], column_starts[end]}});
    });
  }
  return Mask(row_starts.back(), column_starts.back(), std::move(bands));
}

std::vector<int64_t> uniform_starts(int64_t seqlen, int64_t block) {
  std::vector<int64_t> starts;
  for (int64_t start = 0; start < seqlen; start += block) starts.push_back(start);
  starts.push_back(seqlen);
  return starts;
}

// n blocks of at least `least` tokens. The remaining tokens are split at n - 1 random places.
std::vector<int64_t> variable_starts(int64_t seqlen, int64_t n, int64_t least, Mt19937& generator) {
  std::vector<int64_t> starts(static_cast<size_t>(n) + 1);
  for (int64_t i = 1; i < n; ++i) starts[i] = generator.randint(0, seqlen - n * least);
  std::sort(starts.begin() + 1, starts.end() - 1);
  for (int64_t i = 1; i < n; ++i) starts[i] += i * least;
  starts[n] = seqlen;
  return starts;
}

}  // namespace

DrawnMask draw_uniform_block_sparse(const PatternOptions& options, Mt19937& generator) {
  const int64_t block = options.values.count(kBlock);
  const double density = options.values.ratio(kDensity);
  check_size(options, (options.seqlen + block - 1) / block, density);
  DrawnMask drawn;
  drawn.params = {{"block", block}, {"density", density}};
  const std::vector<int64_t> starts = uniform_starts(options.seqlen, block);
  for (int64_t head = 0; head < options.kv_heads; ++head)
    drawn.masks.push_back(select_blocks(starts, starts, density, generator));
  return drawn;
}

DrawnMask draw_variable_block_sparse(const PatternOptions& options, Mt19937& generator) {
  const int64_t mean = options.values.count(kBlock), least = options.values.count(kBlockMin);
  const double density = options.values.ratio(kDensity);
  LONGSPAN_CHECK_INPUT(least <= mean,
                       "--block-min {}: must be at least 1 and at most the mean block size (--block) {}",
                       least, mean);
  DrawnMask drawn;
  drawn.params = {{"block", mean}, {"block_min", least}, {"density", density}};
  const int64_t n = std::max<int64_t>(options.seqlen / mean, 1);  // one block if shorter than the mean
  check_size(options, n, density);
  for (int64_t head = 0; head < options.kv_heads; ++head) {
    const auto row_starts = variable_starts(options.seqlen, n, least, generator);
    const auto column_starts = variable_starts(options.seqlen, n, least, generator);
    drawn.masks.push_back(select_blocks(row_starts, column_starts, density, generator));
  }
  return drawn;
}

void suit_uniform_block_sparse(PatternOptions& options) {
  if (options.seqlen < kShort && !options.values.has(kBlock)) options.values.set("block", 16);
}

void suit_variable_block_sparse(PatternOptions& options) {
  if (options.seqlen >= kShort || options.values.has(kBlock) || options.values.has(kBlockMin)) return;
  options.values.set("block", 16).set("block_min", 4);
}

}  // namespace longspan
