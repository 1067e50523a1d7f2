// A compact list of bands: 8 bytes per rectangular band, 16 bytes per band with a diagonal bound, and 16 more
// for each change of rows. A block-sparse mask of a million tokens has millions of bands with few distinct
// row ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include "mask/band.h"

namespace longspan {

// Coordinates and bounds fit in 32 bits: masks have fewer than 2^31 rows and columns.
class BandList {
 public:
  // Consecutive bands with the same rows; `first` is the index of the first one.
  struct Group {
    int32_t q_begin = 0, q_end = 0;
    int64_t first = 0;
    friend bool operator==(const Group&, const Group&) = default;
  };

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Band;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = Band;

    Iterator() = default;
    Iterator(const BandList* list, size_t index, size_t group) : list_(list), index_(index), group_(group) {}
    Band operator*() const { return list_->band(group_, index_); }
    Iterator& operator++() {
      ++index_;
      if (index_ == list_->group_end(group_)) ++group_;
      return *this;
    }
    Iterator operator++(int) {
      Iterator old = *this;
      ++*this;
      return old;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.index_ == b.index_; }

   private:
    const BandList* list_ = nullptr;
    size_t index_ = 0, group_ = 0;
  };

  // Reserves address space for a list of known size, without touching it.
  void reserve(size_t bands) { keys_.reserve(bands); }

  // Rows, columns and bounds of a normalised band of a mask of this size.
  void append(const Band& band);

  size_t size() const { return keys_.size(); }
  bool empty() const { return keys_.empty(); }
  Band operator[](size_t index) const;  // O(log groups); iterate to visit all
  Iterator begin() const { return {this, 0, 0}; }
  Iterator end() const { return {this, size(), groups_.size()}; }

  // Groups of consecutive bands with the same rows.
  const std::vector<Group>& groups() const { return groups_; }
  size_t group_begin(size_t group) const { return static_cast<size_t>(groups_[group].first); }
  size_t group_end(size_t group) const {
    return group + 1 < groups_.size() ? static_cast<size_t>(groups_[group + 1].first) : keys_.size();
  }
  bool rectangular() const { return diagonals_.empty(); }  // no band has a diagonal bound
  bool rows_are_alike(int64_t rows) const;  // the first `rows` rows see the same columns, one at least
  bool later_rows_see_more() const;         // a band ends at a diagonal, and does not begin at one

  Band band(size_t group, size_t index) const {
    Band band{{groups_[group].q_begin, groups_[group].q_end}, {keys_[index].begin, keys_[index].end}};
    if (!diagonals_.empty()) {
      const Diagonals& d = diagonals_[index];
      if (d.lo != kNoLo) band.lo = d.lo;
      if (d.hi != kNoHi) band.hi = d.hi;
    }
    return band;
  }

  Range columns(size_t index) const { return {keys_[index].begin, keys_[index].end}; }  // of a band

  size_t bytes() const;
  friend bool operator==(const BandList&, const BandList&) = default;

 private:
  static constexpr int32_t kNoLo = std::numeric_limits<int32_t>::min();
  static constexpr int32_t kNoHi = std::numeric_limits<int32_t>::max();
  struct Keys {
    int32_t begin = 0, end = 0;
    friend bool operator==(const Keys&, const Keys&) = default;
  };
  struct Diagonals {
    int32_t lo = kNoLo, hi = kNoHi;
    friend bool operator==(const Diagonals&, const Diagonals&) = default;
  };

  std::vector<Group> groups_;
  std::vector<Keys> keys_;            // [bands]
  std::vector<Diagonals> diagonals_;  // [bands], or empty while no band has a bound
};

}  // namespace longspan
