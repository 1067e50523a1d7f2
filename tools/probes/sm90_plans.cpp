// Prints a hash of every plan of sm90 for a suite: tile shape, tile map, work items and their order. It needs
// no GPU. Compare the output of two builds to show that a change leaves the plans as they were.
//   sm90_plans [SUITE|FILE.toml|all] [regular expression of cases]
// Each case takes its first mask. A backward case has two plans: default and deterministic.
// With CANDIDATES set it prints how many plans could be made instead, and the chosen one; with ABLATIONS, the
// chosen plan without each mechanism that it uses; with WORK, what a plan makes the GPU do: items, tiles, and
// how many of the pairs that are multiplied are visible. With L2=MB it prints what a cache of so many MB
// misses of a backward plan, and of plans with other walks or items.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/spec/suite.h"
#include "plan_hash.h"
#include "sm90_candidates.h"
#include "sm90_l2.h"
#include "suite_problem.h"

namespace longspan {
namespace {

using namespace sm90;

void print(uint64_t hash, const bench::Case& c, const std::string& name) {
  std::printf("%016lx %s %s\n", static_cast<unsigned long>(hash), bench::id_of(c).c_str(), name.c_str());
}

void print_plans(const std::string& suite, const std::regex& filter) {
  int plans = 0;
  for (const bench::Case& c : bench::expand(bench::find_suite(suite), {"sm90"}, {"sm90"})) {
    const std::string name = name_of(c);
    if (!std::regex_search(name, filter)) continue;
    Problem problem = problem_of(c);
    if (c.direction == Direction::kForward) {
      print(hash_of(problem, choose_forward_shape(problem, an_h200()), an_h200()), c, name);
      ++plans;
      continue;
    }
    for (const bool deterministic : {false, true}) {
      problem.deterministic = deterministic;
      print(hash_of(arrange_backward(problem, choose_backward_shape(problem), an_h200().units)), c,
            name + (deterministic ? ", deterministic" : ""));
      ++plans;
    }
  }
  std::printf("%s: %d plans\n", suite.c_str(), plans);
}

// How many candidates each case has, and the time to make them.
void print_candidates(const std::string& suite, const std::regex& filter) {
  for (const bench::Case& c : bench::expand(bench::find_suite(suite), {"sm90"}, {"sm90"})) {
    const std::string name = name_of(c);
    if (!std::regex_search(name, filter)) continue;
    Problem problem = problem_of(c);
    const auto print_all = [&](const auto& candidates_of) {
      const auto begin = std::chrono::steady_clock::now();
      const auto candidates = candidates_of(problem, an_h200());
      const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
      std::printf("%4zu %8.1f ms %s%s\t%s\n", candidates.size(), time.count(), name.c_str(),
                  problem.deterministic ? ", deterministic" : "", candidates.front().name.c_str());
    };
    if (c.direction == Direction::kForward) {
      print_all(forward_candidates);
      continue;
    }
    for (const bool deterministic : {false, true}) {
      problem.deterministic = deterministic;
      print_all(backward_candidates);
    }
  }
}

void print_ablations(const std::string& suite, const std::regex& filter) {
  for (const bench::Case& c : bench::expand(bench::find_suite(suite), {"sm90"}, {"sm90"})) {
    const std::string name = name_of(c);
    if (!std::regex_search(name, filter)) continue;
    std::printf("%s\n", name.c_str());
    const auto print_all = [](const auto& plans) {
      for (const auto& plan : plans) std::printf("  %-28s %s\n", plan.by.c_str(), plan.name.c_str());
    };
    if (c.direction == Direction::kForward)
      print_all(forward_ablations(problem_of(c), an_h200()));
    else
      print_all(backward_ablations(problem_of(c), an_h200()));
  }
}

double share_visible(const Problem& problem, double pairs) {
  return static_cast<double>(problem.area()) / pairs;
}

void print_forward_work(const Problem& problem, const std::string& name) {
  const ForwardShape shape = choose_forward_shape(problem, an_h200());
  const ForwardMap map = lower_forward(*problem.masks, shape.tile_shape(), shape.row_tiles);
  const auto units = static_cast<double>(problem.heads_q / shape.pack);
  const double items = static_cast<double>(map.row_tiles) * units,
               tiles = static_cast<double>(map.tiles) * units;
  const double steps = static_cast<double>(map.steps) * units;
  std::printf("%dx%d pack %d %s: %.0f items, %.2f tiles and %.1f steps an item, %.3f visible  %s\n",
              shape.tile_rows(), shape.columns, shape.pack,
              shape.row_tiles == RowTiles::kEven ? "even" : "of blocks", items, tiles / items, steps / items,
              share_visible(problem, steps * kStepKeys * shape.tile_rows()), name.c_str());
}

void print_backward_work(const Problem& problem, const std::string& name) {
  const BackwardArrangement all = arrange_backward(problem, choose_backward_shape(problem), an_h200().units);
  const BackwardShape& shape = all.shape;
  const CompiledMap& map = all.grid.map;
  const auto heads = static_cast<double>(problem.heads_q);
  const int64_t last_heads = problem.heads_kv - int64_t{all.last_section} * all.section_heads;
  const auto items = static_cast<double>(all.items.per_list * (problem.heads_kv - last_heads) +
                                         all.items.per_last * last_heads);
  const WorkRow& last = *std::ranges::max_element(map.work, {}, &WorkRow::first_run);
  const auto runs = std::span(map.runs).first(last.first_run + static_cast<size_t>(last.runs));
  const auto tiles = static_cast<double>(map.tiles(0, runs.size()));
  const auto partial = std::ranges::count_if(runs, [](const DeviceRun& run) { return run.code < 0; });
  std::printf(
      "%dx%d %s %s, %d pass CTAs, %d parts, %d pieces, %ld of %ld KV heads last: "
      "%.0f items, %.2f tiles an item, %.2f partial, %.3f visible  %s\n",
      shape.rows, shape.keys, shape.in_rows ? "in rows" : "held",
      shape.store == BackwardStore::kClaimed ? "claimed" : "added or in registers", all.pass_ctas,
      all.split.parts, all.split.last_pieces, static_cast<long>(last_heads),
      static_cast<long>(problem.heads_kv), items, tiles * heads / items, static_cast<double>(partial) / tiles,
      share_visible(problem, tiles * heads * shape.rows * shape.keys), name.c_str());
}

// Of masks that all heads share.
void print_work(const std::string& suite, const std::regex& filter) {
  for (const bench::Case& c : bench::expand(bench::find_suite(suite), {"sm90"}, {"sm90"})) {
    const std::string name = name_of(c);
    if (!std::regex_search(name, filter)) continue;
    const Problem problem = problem_of(c);
    if (problem.masks->size() > 1) continue;
    (c.direction == Direction::kForward ? print_forward_work : print_backward_work)(problem, name);
  }
}

// The chosen split, then its walks, then each divisor of the group with up to two rounds of last heads.
void print_l2(const std::string& suite, const std::regex& filter, double megabytes) {
  for (const bench::Case& c : bench::expand(bench::find_suite(suite), {"sm90"}, {"sm90"})) {
    const std::string name = name_of(c);
    if (!std::regex_search(name, filter) || c.direction == Direction::kForward) continue;
    const Problem problem = problem_of(c);
    const BackwardArrangement chosen =
        arrange_backward(problem, choose_backward_shape(problem), an_h200().units);
    BackwardShape shape = chosen.shape;
    shape.pass_ctas = chosen.pass_ctas;
    std::printf("%s\n", name.c_str());
    const auto print = [&](const BackwardArrangement& plan, const char* note) {
      const int64_t workers = an_h200().units - plan.pass_ctas;
      const L2Run run = run_on_l2(problem, shape, plan, workers, static_cast<int64_t>(megabytes * 1e6));
      std::printf(
          "  %d parts, last rounds %d, %2d of %2d KV heads last: time %.3f, missed %5.1f of %.0f KiB a "
          "tile%s\n",
          plan.split.parts, plan.split.last_rounds,
          static_cast<int>(problem.heads_kv) - plan.last_section * plan.section_heads,
          static_cast<int>(problem.heads_kv), run.time, run.missed / 1024, run.moved / 1024, note);
    };
    print(chosen, " (chosen)");
    for (const bool by_rows : {false, true})
      for (const bool descending : {false, true}) {
        shape.split = chosen.split;
        shape.split->walk = {.descending = descending, .by_rows = by_rows};
        const std::string note = fmt::format(", {}, {}", by_rows ? "by rows" : "head after head",
                                             descending ? "from the last row up" : "from the first row down");
        print(arrange_backward(problem, shape, an_h200().units), note.c_str());
      }
    for (int32_t parts = 1; parts <= problem.group_size(); ++parts)
      for (int rounds = 0; rounds <= 2 && problem.group_size() % parts == 0; ++rounds) {
        shape.split = chosen.split;
        shape.split->parts = parts, shape.split->last_rounds = rounds;
        print(arrange_backward(problem, shape, an_h200().units), "");
      }
    shape.split.reset();
  }
}

}  // namespace
}  // namespace longspan

int main(int argc, char** argv) {
  using namespace longspan;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string what = argc > 1 ? argv[1] : "all";
  if (argc > 3) {
    std::fprintf(stderr, "usage: sm90_plans [SUITE|FILE.toml|all] [regular expression of cases]\n");
    return 2;
  }
  try {
    const std::regex filter(argc > 2 ? argv[2] : "");
    if (const char* megabytes = std::getenv("L2"))
      print_l2(what, filter, std::atof(megabytes));
    else if (std::getenv("CANDIDATES"))
      print_candidates(what, filter);
    else if (std::getenv("ABLATIONS"))
      print_ablations(what, filter);
    else if (std::getenv("WORK"))
      print_work(what, filter);
    else if (what != "all")
      print_plans(what, filter);
    else
      for (const char* suite : {"dense", "sparse"}) print_plans(suite, filter);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
