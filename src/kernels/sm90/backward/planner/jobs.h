// The passes before and after the backward kernel, where its own blocks do most of them: a job is a row tile
// of a head, and those of a section of heads come together. Some blocks go through the jobs, before they take
// items, in an order in which none waits for items that wait for a later one. Plain arithmetic for host and
// device.
#pragma once

#include <cstdint>

namespace longspan::sm90 {

struct BackwardJob {
  bool prepares = false;  // the pass before; else the one after
  int32_t section = 0;
  int32_t number = 0;  // of the jobs of this pass and section
  friend bool operator==(const BackwardJob&, const BackwardJob&) = default;
};

struct BackwardJobs {
  int32_t section_heads = 1;  // KV heads of a section; the last one takes what is left
  int32_t last_section = 0;
  int32_t heads_kv = 1, group = 1;
  int32_t row_tiles = 1;

  constexpr int32_t section_of(int32_t kv_head) const {
    const int32_t section = kv_head / section_heads;
    return section < last_section ? section : last_section;
  }
  constexpr int32_t first_head(int32_t section) const { return section * section_heads; }  // of KV heads
  constexpr int32_t heads_of(int32_t section) const {
    return section == last_section ? heads_kv - first_head(section) : section_heads;
  }
  constexpr int32_t jobs_of(int32_t section) const { return heads_of(section) * group * row_tiles; }
  // All but what comes before all items, preparing the first section, and after them, finishing the last one:
  // none where there is but one.
  constexpr int32_t jobs_before() const { return (last_section - 1) * jobs_of(0) + jobs_of(last_section); }
  constexpr int32_t jobs_after() const { return last_section * jobs_of(0); }
  constexpr int32_t jobs() const { return jobs_before() + jobs_after(); }

  // Number `index`, below jobs(), in their order: all that prepare come first. Whoever then waits for a
  // section's items waits for none that waits for a job: an item is complete once its block has the first
  // tile of the next one, which the others may have left in any section.
  constexpr BackwardJob job(int32_t index) const {
    const int32_t of_section = jobs_of(0), after = index - jobs_before();
    if (after >= 0) return {false, after / of_section, after % of_section};
    const int32_t full = index / of_section, before_last = full < last_section - 1 ? full : last_section - 1;
    return {true, 1 + before_last, index - before_last * of_section};
  }
};

// Counters of a launch, zero before it; those of sections follow.
enum BackwardCounter : int32_t { kNextItem, kWorkersDone, kCtasBegun, kBackwardCounters };

}  // namespace longspan::sm90
