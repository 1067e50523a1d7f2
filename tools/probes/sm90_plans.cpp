// Prints a hash of every plan of sm90 for a suite: tile shape, tile map, work items and their order. It needs
// no GPU. Compare the output of two builds to show that a change leaves the plans as they were.
//   sm90_plans [SUITE|FILE.toml|all] [regular expression of cases]
// Each case takes its first mask. A backward case has two plans: default and deterministic.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/spec/suite.h"
#include "plan_hash.h"
#include "sm90_candidates.h"
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
      print(hash_of(problem, choose_forward_shape(problem), an_h200()), c, name);
      ++plans;
      continue;
    }
    for (const bool deterministic : {false, true}) {
      problem.deterministic = deterministic;
      const BackwardShape shape = choose_backward_shape(problem);
      print(hash_of(shape, arrange_backward(problem, shape, an_h200().units)), c,
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
    const Problem problem = problem_of(c);
    const auto begin = std::chrono::steady_clock::now();
    const size_t count = c.direction == Direction::kForward ? forward_candidates(problem, an_h200()).size()
                                                            : backward_candidates(problem, an_h200()).size();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    std::printf("%4zu %8.1f ms %s\n", count, time.count(), name.c_str());
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
    if (std::getenv("CANDIDATES"))
      print_candidates(what, filter);
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
