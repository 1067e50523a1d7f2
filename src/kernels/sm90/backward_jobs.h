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
  // Sections that are prepared before one's gradients are finished, not counting that one. Blocks may have an
  // item of any of those that are prepared, and an item is complete once its block can go on with the next
  // one: with less than all of them, one long item lets all blocks wait for ever.
  int32_t ahead = 1;

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
};

// The jobs in their order: whoever waits for a section's items has prepared, or left to others at work, all
// that they need, and the sections that blocks may have begun meanwhile.
class BackwardJobOrder {
 public:
  constexpr explicit BackwardJobOrder(const BackwardJobs& jobs) : jobs_(jobs) {}

  // Job number `index`, below jobs(); not before one that has been asked for.
  constexpr BackwardJob at(int32_t index) {
    for (;; first_ += count_of_stage(), ++stage_)
      if (index - first_ < count_of_stage()) return {prepares(), section(), index - first_};
  }

 private:
  // Stage 2 t prepares section t, 2 t + 1 is the pass after section t - ahead.
  constexpr bool prepares() const { return stage_ % 2 == 0; }
  constexpr int32_t section() const { return stage_ / 2 - (prepares() ? 0 : jobs_.ahead); }
  constexpr int32_t count_of_stage() const {
    const bool there = section() >= 0 && section() < jobs_.last_section + (prepares() ? 1 : 0);
    return there ? jobs_.jobs_of(section()) : 0;
  }

  BackwardJobs jobs_;
  int32_t stage_ = 2;  // section 1 comes first
  int32_t first_ = 0;  // the stage's first job
};

// Counters of a launch, zero before it; those of sections follow.
enum BackwardCounter : int32_t { kNextItem, kWorkersDone, kBlocksBegun, kBackwardCounters };

}  // namespace longspan::sm90
