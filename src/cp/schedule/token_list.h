// A list of tokens that regions share. Groups of heads attend to the same tokens, on a thousand ranks to
// thousands of ranges each, so they are kept and sorted once.
#pragma once

#include <initializer_list>
#include <memory>
#include <utility>

#include "cp/schedule/ranges.h"

namespace longspan {

class TokenList {
 public:
  TokenList() = default;
  TokenList(Ranges list) : lists_(std::make_shared<const Lists>(std::move(list))) {}  // NOLINT: as the list
  TokenList(std::initializer_list<Range> list) : TokenList(Ranges(list)) {}

  const Ranges& list() const { return lists_ ? lists_->list : none(); }
  const Ranges& set() const { return lists_ && !lists_->is_set ? lists_->set : list(); }  // sorted and merged
  operator const Ranges&() const { return list(); }                                       // NOLINT

  int64_t tokens() const { return lists_ ? lists_->tokens : 0; }  // their number

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
        : list(std::move(given)), set(set_of(list)), tokens(count(list)), is_set(set == list) {
      if (is_set) set = {};
    }
    Ranges list, set;  // `set` is empty if the list is one
    int64_t tokens;
    bool is_set;
  };
  static const Ranges& none() {
    static const Ranges empty;
    return empty;
  }
  std::shared_ptr<const Lists> lists_;
};

}  // namespace longspan
