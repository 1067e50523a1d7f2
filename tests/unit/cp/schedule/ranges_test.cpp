// Sets and lists of ranges compared with sets of single tokens.
#include "cp/schedule/ranges.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "cp/schedule/token_list.h"

namespace longspan {
namespace {

using Tokens = std::set<int64_t>;

Tokens tokens_of(const Ranges& ranges) {
  Tokens tokens;
  for (Range range : ranges) {
    for (int64_t token = range.begin; token < range.end; ++token) tokens.insert(token);
  }
  return tokens;
}

// A disjoint list in random order, with some empty ranges.
Ranges draw_list() {
  const auto cuts = *rc::gen::container<std::set<int64_t>>(rc::gen::inRange<int64_t>(0, 40));
  std::vector<int64_t> sorted(cuts.begin(), cuts.end());
  std::vector<Range> list;
  for (size_t i = 0; i + 1 < sorted.size(); ++i) {
    if (*rc::gen::arbitrary<bool>()) list.push_back({sorted[i], sorted[i + 1]});
  }
  if (*rc::gen::arbitrary<bool>()) list.push_back({50, 50});
  for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[*rc::gen::inRange<size_t>(0, i)]);
  return list;
}

bool looks_like_a_set(const Ranges& ranges) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].empty() || (i > 0 && ranges[i].begin <= ranges[i - 1].end)) return false;
  }
  return true;
}

RC_GTEST_PROP(Ranges, AreSetsOfTokens, ()) {
  const Ranges a = draw_list(), b = draw_list();
  const Ranges set_a = set_of(a), set_b = set_of(b);
  const Tokens tokens_a = tokens_of(a), tokens_b = tokens_of(b);
  RC_ASSERT(looks_like_a_set(set_a));
  RC_ASSERT(is_set(a) == looks_like_a_set(a));
  RC_ASSERT(tokens_of(set_a) == tokens_a);
  RC_ASSERT(count(a) == static_cast<int64_t>(tokens_a.size()));

  Tokens both = tokens_a, common, rest;
  both.insert(tokens_b.begin(), tokens_b.end());
  for (int64_t token : tokens_a) (tokens_b.contains(token) ? common : rest).insert(token);
  for (const auto& [got, wanted] :
       {std::pair{united(a, b), both}, std::pair{intersection(set_a, set_b), common},
        std::pair{difference(set_a, set_b), rest}}) {
    RC_ASSERT(looks_like_a_set(got));
    RC_ASSERT(tokens_of(got) == wanted);
  }
  RC_ASSERT(tokens_of(select(a, set_b)) == common);
  RC_ASSERT(overlap(set_a, set_b) == !common.empty());
  RC_ASSERT(includes(set_a, set_b) == (common == tokens_b));
  for (const Range& one : set_b) {
    const Tokens tokens = tokens_of({one});
    const bool inside = std::includes(tokens_a.begin(), tokens_a.end(), tokens.begin(), tokens.end());
    RC_ASSERT(includes(set_a, {&one, 1}) == inside);
    RC_ASSERT(includes(set_a, one) == inside);
  }
}

RC_GTEST_PROP(Ranges, KeepTheirOrderWhenSlicedAndSelected, ()) {
  const Ranges list = draw_list();
  std::vector<int64_t> packed;
  for (Range range : list) {
    for (int64_t token = range.begin; token < range.end; ++token) packed.push_back(token);
  }
  const auto end = *rc::gen::inRange<int64_t>(0, count(list) + 1);
  const auto begin = *rc::gen::inRange<int64_t>(0, end + 1);
  std::vector<int64_t> sliced;
  for (Range range : slice(list, begin, end)) {
    for (int64_t token = range.begin; token < range.end; ++token) sliced.push_back(token);
  }
  RC_ASSERT(sliced == std::vector<int64_t>(packed.begin() + begin, packed.begin() + end));

  const Ranges stretch = slice(list, begin, end);
  const int64_t position = position_of(stretch, list);
  RC_ASSERT(position == (begin < end ? begin : -1));
  if (end - begin > 1) {
    const Ranges turned{slice(list, begin + 1, end).front(), slice(list, begin, begin + 1).front()};
    RC_ASSERT(position_of(turned, list) == -1);
  }

  const Ranges other = draw_list();
  Tokens copied;
  for_each_common(list, other, [&](int64_t from, int64_t to, int64_t length) {
    const Ranges source = slice(list, from, from + length), target = slice(other, to, to + length);
    RC_ASSERT(source == target);
    RC_ASSERT(count(source) == length);
    for (int64_t token : tokens_of(source)) RC_ASSERT(copied.insert(token).second);
  });
  RC_ASSERT(copied == tokens_of(intersection(set_of(list), set_of(other))));
}

RC_GTEST_PROP(TokenList, KnowsItsTokens, ()) {
  const Ranges list = draw_list(), outer = set_of(draw_list());
  const TokenList tokens(list);
  const Tokens all = tokens_of(list), others = tokens_of(outer);
  RC_ASSERT(tokens.set() == set_of(list));
  RC_ASSERT(tokens.tokens() == static_cast<int64_t>(all.size()));
  RC_ASSERT(tokens.hull() == (all.empty() ? Range{0, 0} : Range{*all.begin(), *all.rbegin() + 1}));
  RC_ASSERT(tokens.inside(outer) == std::includes(others.begin(), others.end(), all.begin(), all.end()));
  RC_ASSERT(!tokens.repeats());
}

TEST(TokenList, RepeatsATokenThatTwoRangesName) {
  EXPECT_TRUE(
      TokenList({{0, 1}, {0, 1}, {2, 3}}).repeats());  // as many as lie between the first and the last
  EXPECT_TRUE(TokenList({{4, 8}, {2, 5}}).repeats());
  EXPECT_FALSE(TokenList({{4, 8}, {2, 4}}).repeats());
}

TEST(Ranges, PartsCoverARangeAndDifferByOneAtMost) {
  for (int64_t size : {0, 1, 7, 64, 1000}) {
    for (int64_t parts : {1, 2, 3, 7, 96}) {
      int64_t at = 5;
      for (int64_t part = 0; part < parts; ++part) {
        const Range range = part_of({5, 5 + size}, part, parts);
        EXPECT_EQ(range.begin, at);
        EXPECT_GE(range.size(), size / parts);
        EXPECT_LE(range.size(), size / parts + 1);
        at = range.end;
      }
      EXPECT_EQ(at, 5 + size);
    }
  }
}

}  // namespace
}  // namespace longspan
