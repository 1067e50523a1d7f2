#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "kernels/sm90/backward/planner/pass_ctas.h"

namespace longspan::sm90 {
namespace {

std::vector<BackwardJobs> examples() {
  return {
      {{.section_heads = 1, .last_section = 0, .heads_kv = 1, .group = 1}, 1},
      {{.section_heads = 1, .last_section = 0, .heads_kv = 8, .group = 8}, 33},
      {{.section_heads = 1, .last_section = 1, .heads_kv = 2, .group = 2}, 5},
      {{.section_heads = 1, .last_section = 2, .heads_kv = 8, .group = 8}, 150},
      {{.section_heads = 2, .last_section = 3, .heads_kv = 7, .group = 1}, 13},
      {{.section_heads = 1, .last_section = 7, .heads_kv = 8, .group = 8}, 600},
  };
}

std::vector<BackwardJob> in_order(const BackwardJobs& jobs) {
  std::vector<BackwardJob> result;
  for (int32_t i = 0; i < jobs.jobs(); ++i) result.push_back(jobs.job(i));
  return result;
}

TEST(BackwardJobs, CoverAllHeadsOnce) {
  for (const BackwardJobs& jobs : examples()) {
    int32_t heads = 0;
    for (int32_t s = 0; s <= jobs.last_section; ++s) {
      EXPECT_EQ(jobs.first_head(s), heads);
      for (int32_t h = 0; h < jobs.heads_of(s); ++h) EXPECT_EQ(jobs.section_of(heads + h), s);
      EXPECT_EQ(jobs.jobs_of(s), jobs.heads_of(s) * jobs.group * jobs.row_tiles);
      heads += jobs.heads_of(s);
    }
    EXPECT_EQ(heads, jobs.heads_kv);
  }
}

TEST(BackwardJobs, ComeOnceEachButForWhatIsBeforeAndAfterAllItems) {
  for (const BackwardJobs& jobs : examples()) {
    std::map<std::pair<bool, int32_t>, int32_t> next;
    for (const BackwardJob& job : in_order(jobs))
      EXPECT_EQ(job.number, (next[{job.prepares, job.section}]++)) << job.prepares << job.section;
    for (int32_t s = 0; s <= jobs.last_section; ++s) {
      EXPECT_EQ((next[{true, s}]), s == 0 ? 0 : jobs.jobs_of(s));
      EXPECT_EQ((next[{false, s}]), s < jobs.last_section ? jobs.jobs_of(s) : 0);
    }
  }
}

TEST(BackwardJobs, PrepareAllSectionsInTurnAndThenFinishThemInTurn) {
  for (const BackwardJobs& jobs : examples()) {
    const std::vector<BackwardJob> all = in_order(jobs);
    EXPECT_TRUE(std::ranges::is_sorted(all, {}, [](const BackwardJob& job) {
      return std::pair{!job.prepares, job.section};
    }));
  }
}

// An earlier order of the kernel: each section is prepared a fixed number of sections ahead of the one that
// is finished.
std::vector<BackwardJob> sections_ahead(const BackwardJobs& jobs, int32_t ahead) {
  std::vector<BackwardJob> all = in_order(jobs);
  std::ranges::stable_sort(all, {}, [&](const BackwardJob& job) {
    return std::pair{job.prepares ? job.section : job.section + ahead, !job.prepares};
  });
  return all;
}

// CTAs that hold items, in the order in which these are handed out, and groups of pass CTAs, in any order of
// their steps: some step can always be done. An item waits until its section is prepared. It is complete when
// the section of the CTA's next item is prepared, too, since the CTA loads that item's first tile before it
// adds its last dq. A pass after waits for all items of its section. Each CTA's first item is its own from
// the launch on, even if only `resident` CTAs fit; another one begins when one of them ends.
class Launch {
 public:
  Launch(const BackwardJobs& jobs, std::vector<BackwardJob> order, int32_t items_per_head, int32_t ctas,
         int32_t groups, int32_t resident)
      : jobs_(jobs),
        order_(std::move(order)),
        items_per_head_(items_per_head),
        groups_(static_cast<size_t>(groups)),
        begun_(static_cast<size_t>(resident)) {
    const auto sections = static_cast<size_t>(jobs.last_section) + 1;
    prepared_.resize(sections), added_.resize(sections);
    for (int32_t b = 0; b < ctas; ++b) at_.push_back({next_++});
    for (size_t g = 0; g < groups_; ++g) of_group_.push_back(g);
  }

  // Returns false if no step can be done. `slow`: the first CTA proceeds only if no other can.
  bool step(std::mt19937& random, bool slow = false) {
    const size_t ctas = std::min(begun_, at_.size());
    std::vector<size_t> actors(ctas + of_group_.size());
    std::iota(actors.rbegin(), actors.rend(), size_t{0});
    std::shuffle(actors.begin(), actors.end() - (slow ? 1 : 0), random);
    return std::ranges::any_of(actors,
                               [&](size_t i) { return i < ctas ? work(at_[i]) : pass(of_group_[i - ctas]); });
  }
  bool over() const {
    return std::ranges::all_of(at_, [&](const Cta& cta) { return cta.item >= items(); }) &&
           std::ranges::all_of(of_group_, [&](size_t index) { return index >= order_.size(); });
  }

 private:
  struct Cta {
    int32_t item = 0, next = -1;  // -1: it has not taken one yet
  };

  int32_t items() const { return jobs_.heads_kv * items_per_head_; }
  int32_t section_of(int32_t item) const {
    return std::min(item / (jobs_.section_heads * items_per_head_), jobs_.last_section);
  }
  bool is_prepared(int32_t section) const {
    return section == 0 || prepared_[static_cast<size_t>(section)] >= jobs_.jobs_of(section);
  }

  bool work(Cta& cta) {
    if (cta.item >= items()) return false;
    if (cta.next < 0) {
      if (!is_prepared(section_of(cta.item))) return false;
      cta.next = next_++;
      return true;
    }
    if (cta.next < items() && !is_prepared(section_of(cta.next))) return false;
    ++added_[static_cast<size_t>(section_of(cta.item))];
    cta = {cta.next};
    begun_ += cta.item >= items();
    return true;
  }
  bool pass(size_t& index) {
    if (index >= order_.size()) return false;
    const BackwardJob job = order_[index];
    const auto section = static_cast<size_t>(job.section);
    if (job.prepares)
      ++prepared_[section];
    else if (added_[section] < jobs_.heads_of(job.section) * items_per_head_)
      return false;
    index += groups_;
    return true;
  }

  BackwardJobs jobs_;
  std::vector<BackwardJob> order_;
  int32_t items_per_head_, next_ = 0;
  size_t groups_, begun_;  // of pass CTAs; CTAs that have begun
  std::vector<int32_t> prepared_, added_;
  std::vector<Cta> at_;
  std::vector<size_t> of_group_;  // its next job
};

TEST(BackwardJobs, NeverWaitForEachOther) {
  std::mt19937 random(7);
  for (BackwardJobs jobs : examples()) {
    jobs.row_tiles = std::min(jobs.row_tiles, 7);
    for (const int32_t items_per_head : {1, 3, 40})
      for (const int32_t ctas : {1, 5, 30})
        for (const int32_t groups : {1, 2, 12})
          for (const bool slow : {false, true}) {
            Launch launch(jobs, in_order(jobs), items_per_head, ctas, groups, ctas);
            while (launch.step(random, slow)) {
            }
            ASSERT_TRUE(launch.over())
                << jobs.last_section << " " << items_per_head << " " << ctas << " " << groups << " " << slow;
          }
  }
}

// While one CTA is busy with an item of the first section, the others may take all items of prepared
// sections. Its next item is then of a section that is prepared only after the first section's items.
TEST(BackwardJobs, WouldWaitForItemsThatWaitForLaterSections) {
  std::mt19937 random(7);
  const BackwardJobs jobs{{.section_heads = 1, .last_section = 7, .heads_kv = 8, .group = 8}, 7};
  for (const auto& [order, ends] : {std::pair{sections_ahead(jobs, 3), false},
                                    {sections_ahead(jobs, 6), false},
                                    {in_order(jobs), true}}) {
    Launch launch(jobs, order, 40, 30, 12, 30);
    while (launch.step(random, true)) {
    }
    EXPECT_EQ(launch.over(), ends);
  }
}

// A CTA that begins when another ends finishes its first item late, and only a pass waits for that.
TEST(BackwardJobs, NeedNotAllBeResident) {
  std::mt19937 random(7);
  const BackwardJobs jobs{{.section_heads = 1, .last_section = 7, .heads_kv = 8, .group = 8}, 7};
  for (const auto& [order, resident, ends] : {std::tuple{sections_ahead(jobs, 3), 30, true},
                                              {sections_ahead(jobs, 3), 29, false},
                                              {in_order(jobs), 29, true},
                                              {in_order(jobs), 1, true}}) {
    Launch launch(jobs, order, 40, 30, 12, resident);
    while (launch.step(random)) {
    }
    EXPECT_EQ(launch.over(), ends) << resident;
  }
}

}  // namespace
}  // namespace longspan::sm90
