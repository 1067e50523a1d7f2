// Sections of heads, by which CTAs take work, and pass CTAs: CTAs of the backward kernel that do most of the
// passes before and after it, and their jobs. A job is one row tile of a head in one pass. Pass CTAs go
// through all jobs, section by section, before they take items. Plain arithmetic for host and device.
#pragma once

#include <cstdint>

namespace longspan::sm90 {

struct BackwardJob {
  bool prepares = false;  // true: the pass before; false: the pass after
  int32_t section = 0;
  int32_t number = 0;  // among the jobs of this pass and section
  friend bool operator==(const BackwardJob&, const BackwardJob&) = default;
};

// Heads that are worked on together, so that their rows stay in L2. The last section is long enough for all
// CTAs to end together.
struct BackwardSections {
  int32_t section_heads = 1;  // KV heads of a section; the last section takes the rest
  int32_t last_section = 0;
  int32_t heads_kv = 1, group = 1;  // KV heads, and query heads of each

  constexpr int32_t section_of(int32_t kv_head) const {
    const int32_t section = kv_head / section_heads;
    return section < last_section ? section : last_section;
  }
  constexpr int32_t first_head(int32_t section) const { return section * section_heads; }  // a KV head
  constexpr int32_t heads_of(int32_t section) const {
    return section == last_section ? heads_kv - first_head(section) : section_heads;
  }
};

struct BackwardJobs : BackwardSections {
  int32_t row_tiles = 1;

  constexpr int32_t jobs_of(int32_t section) const { return heads_of(section) * group * row_tiles; }
  // Without the first section's preparation, which precedes all items, and the last section's finish, which
  // follows them: none if there is one section.
  constexpr int32_t jobs_before() const { return (last_section - 1) * jobs_of(0) + jobs_of(last_section); }
  constexpr int32_t jobs_after() const { return last_section * jobs_of(0); }
  constexpr int32_t jobs() const { return jobs_before() + jobs_after(); }

  // Job `index`, below jobs(). All preparing jobs come first, so no job waits for items that wait for a later
  // job.
  constexpr BackwardJob job(int32_t index) const {
    const int32_t of_section = jobs_of(0), after = index - jobs_before();
    if (after >= 0) return {false, after / of_section, after % of_section};
    const int32_t full = index / of_section, before_last = full < last_section - 1 ? full : last_section - 1;
    return {true, 1 + before_last, index - before_last * of_section};
  }
};

// Counters of a launch, zero before it. Those of sections follow.
enum BackwardCounter : int32_t { kNextItem, kCtasBegun, kBackwardCounters };

// The work of one launch.
struct BackwardPassWork {
  int64_t units = 0;  // SMs
  BackwardJobs jobs{};
  int64_t section_items = 0;                  // of the first section
  int64_t bytes_before = 0, bytes_after = 0;  // read and written by one job
  int64_t tiles = 0;                          // visits to tiles, of all query heads
};

// How many CTAs do the passes; 0: there are too few items or sections for that, and separate kernels do them.
int choose_pass_ctas(const BackwardPassWork& work);

// The time of the passes that kernels of their own do, in tiles: all, or with pass CTAs those that come first
// and last.
double tiles_of_passes_alone(const BackwardPassWork& work, bool with_pass_ctas);

}  // namespace longspan::sm90
