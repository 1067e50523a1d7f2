// A list of tokens that regions share. Groups of heads attend to the same tokens, on a thousand ranks to
// thousands of ranges each, so they are kept and sorted once. What is asked of a million regions, their
// number of tokens and the first and last one, lies beside the pointer.
#pragma once

#include <initializer_list>
#include <memory>
#include <utility>

#include "cp/schedule/ranges.h"

namespace longspan {

class TokenList {
 public:
  TokenList() = default;
  TokenList(Ranges list)  // NOLINT: as the list
      : tokens_(count(list)), lists_(std::make_shared<const Lists>(std::move(list))) {
    if (!set().empty()) hull_ = {set().front().begin, set().back().end};
    is_range_ = set().size() == 1;
    repeats_ = count(set()) != tokens_;
  }
  TokenList(std::initializer_list<Range> list) : TokenList(Ranges(list)) {}

  const Ranges& list() const { return lists_ ? lists_->list : none(); }
  const Ranges& set() const { return lists_ && !lists_->is_set ? lists_->set : list(); }  // sorted and merged
  operator const Ranges&() const { return list(); }                                       // NOLINT

  int64_t tokens() const { return tokens_; }  // their number
  Range hull() const { return hull_; }        // from the first token to the last
  bool repeats() const { return repeats_; }   // whether the list names a token twice

  // Whether `outer`, a set, contains all of these tokens.
  bool inside(std::span<const Range> outer) const {
    return is_range_ ? includes(outer, hull_) : includes(outer, set());
  }

  auto begin() const { return list().begin(); }
  auto end() const { return list().end(); }
  size_t size() const { return list().size(); }
  bool empty() const { return list().empty(); }
  const Range& front() const { return list().front(); }
  const Range& back() const { return list().back(); }
  const Range& operator[](size_t i) const { return list()[i]; }

  // The same for lists that are shared, and only for these: a quick answer before they are compared.
  const void* identity() const { return lists_.get(); }

  friend bool operator==(const TokenList& a, const TokenList& b) {
    return a.lists_ == b.lists_ || a.list() == b.list();
  }
  friend bool operator==(const TokenList& a, const Ranges& b) { return a.list() == b; }

 private:
  struct Lists {
    explicit Lists(Ranges given)
        : list(std::move(given)), is_set(longspan::is_set(list)), set(is_set ? Ranges() : set_of(list)) {}
    Ranges list;
    bool is_set;
    Ranges set;  // empty if the list is one
  };
  static const Ranges& none() {
    static const Ranges empty;
    return empty;
  }
  int64_t tokens_ = 0;
  Range hull_{0, 0};
  bool is_range_ = false, repeats_ = false;
  std::shared_ptr<const Lists> lists_;
};

}  // namespace longspan
