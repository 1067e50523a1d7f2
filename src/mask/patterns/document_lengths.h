// Document lengths: the random generator, histograms of real corpora, and samplers that pack documents into a
// sequence.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mask/patterns/length_file.h"

namespace longspan {

// MT19937 of Matsumoto and Nishimura (1998), seeded by init_by_array({seed}), with the derived draws of
// CPython's `random`, so that masks match those of the arXiv 2510.17896 tool to the token.
class Mt19937 {
 public:
  explicit Mt19937(uint64_t seed);
  uint32_t next();
  // The number of words that next() has given.
  int64_t drawn() const { return 624 * refills_ + position_ - 624; }
  double random();                        // [0, 1), 53 bits
  int64_t randbelow(int64_t n);           // [0, n)
  int64_t randint(int64_t a, int64_t b);  // [a, b], both included
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i-- > 1;)
      std::swap(items[i], items[static_cast<size_t>(randbelow(static_cast<int64_t>(i) + 1))]);
  }

 private:
  uint32_t state_[624];
  int position_ = 624;
  int64_t refills_ = 0;
};

struct LengthHistogram {
  std::string name;
  std::vector<LengthBin> bins;
};

// Packs documents into exactly `tokens` tokens; the last is cut to fit.
std::vector<int64_t> sample_lengths(const LengthHistogram& histogram, int64_t tokens, Mt19937& generator);

// Where document lengths come from, by name: auto, pile, prolong64k, prolong512k, long-mix, uniform:A:B,
// list:A:B:... (used in order, the last cut to fit), or a CSV file of lengths (one column: as a list) or of
// bins (begin,end,weight).
class LengthSource {
 public:
  // Throws an input error that lists the sources, or names the wrong line of the file.
  static LengthSource from_name(const std::string& name, int64_t seqlen);
  const std::string& name() const { return name_; }  // "auto" resolved
  std::vector<int64_t> sample(int64_t seqlen, Mt19937& generator) const;
  // One document; each length of a list is as likely as any other. Throws an input error for long-mix, which
  // mixes the documents of a whole sequence.
  int64_t draw(Mt19937& generator) const;
  double expected_documents(int64_t seqlen) const;  // in a sample

 private:
  enum class Kind { kHistogram, kLongMix, kList };
  std::string name_;
  Kind kind_ = Kind::kHistogram;
  LengthHistogram histogram_;
  std::vector<int64_t> list_;
};

// "list:8192:1024": the source of just these documents.
std::string list_of_lengths(std::span<const int64_t> lengths);

std::span<const LengthHistogram> histograms();

}  // namespace longspan
