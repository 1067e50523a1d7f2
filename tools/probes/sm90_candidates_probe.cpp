// Times every plan that sm90 could make of a suite's cases, in one process: how far is the planner's choice
// from the best one, and what does each special mechanism gain?
//   sm90_candidates_probe SUITE.toml OUT.jsonl SECONDS [regular expression of cases|@LIST] [deterministic]
// All candidates of a case run a few times; the best of them and the chosen one, each also with one mechanism
// changed, then run in turns, each round in another order. Each run begins with a cold L2. The results of all
// must agree with those of the chosen plan. Prints the regret of each case: the time of the choice over that
// of the best candidate, less 1. OUT.jsonl has a line for each candidate. The time limit is shared among the
// cases. LIST has lines of a case, a tab and a candidate: then these run in turns with the chosen plan, and
// no others. With ABLATIONS set, these are the chosen plan without each mechanism that it uses; a table says
// what each gains by kind of mask. TURN_S sets the seconds of a turn: in short ones all plans run at the same
// clock, in long ones (0.25) each has the clock that the power limit leaves it.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "attention/tensors.h"
#include "base/cuda/cuda.h"
#include "base/error.h"
#include "bench/spec/suite.h"
#include "kernels/sm90/backward/plan.h"
#include "kernels/sm90/forward/plan.h"
#include "kernels/sm90/sm90.h"
#include "sm90_candidates.h"
#include "sm90_differences.h"
#include "suite_problem.h"

namespace longspan {
namespace {

using Seconds = std::chrono::duration<double>;
double now_s() {
  return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Device first_gpu() {
  for (const Device& device : devices())
    if (device.kind == DeviceKind::kCuda) return device;
  return {};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The tensors of a problem, and a plan of one of its candidates at a time.
template <class Shape>
struct Pass;

template <>
struct Pass<sm90::BackwardShape> {
  using Plan = sm90::BackwardPlan;
  static constexpr Direction kDirection = Direction::kBackward;
  static size_t workspace_of(const Plan& plan) { return plan.workspace_bytes(); }
  static void run(Plan& plan, const Problem&, const DeviceTensors& v, void* workspace, const Device&) {
    plan.run({v.q, v.k, v.v, v.o, v.dout, v.lse, v.dq, v.dk, v.dv, workspace}, nullptr);
  }
  static std::vector<TensorView> outputs(const DeviceTensors& v) { return {v.dq, v.dk, v.dv}; }
  static auto candidates(const Problem& p, const Device& d) { return backward_candidates(p, d); }
  static auto named(const Problem& p, const Device& d, const std::string& n) {
    return backward_candidate(p, d, n);
  }
  static auto changes(const Problem& p, const Device& d, const BackwardCandidate& of) {
    return backward_changes(p, d, of);
  }
  static auto ablations(const Problem& p, const Device& d) { return backward_ablations(p, d); }
};

template <>
struct Pass<sm90::ForwardShape> {
  using Plan = sm90::ForwardPlan;
  static constexpr Direction kDirection = Direction::kForward;
  static size_t workspace_of(const Plan& plan) { return plan.workspace_bytes(); }
  static void run(Plan& plan, const Problem& problem, const DeviceTensors& v, void* workspace,
                  const Device& gpu) {
    ForwardArgs args{};
    args.q = v.q, args.k = v.k, args.v = v.v, args.o = v.o, args.lse = v.lse, args.workspace = workspace;
    plan.run(problem, args, gpu, Stream{});
  }
  static std::vector<TensorView> outputs(const DeviceTensors& v) { return {v.o}; }
  static auto candidates(const Problem& p, const Device& d) { return forward_candidates(p, d); }
  static auto named(const Problem& p, const Device& d, const std::string& n) {
    return forward_candidate(p, d, n);
  }
  static auto changes(const Problem& p, const Device& d, const ForwardCandidate& of) {
    return forward_changes(p, d, of);
  }
  static auto ablations(const Problem& p, const Device& d) { return forward_ablations(p, d); }
};

struct Totals {
  int cases = 0, wrong = 0;
  double regret = 0, worst = 0;
  // By the name of what a plan lacks and the kind of mask: its time over the chosen plan's, less 1.
  std::map<std::pair<std::string, std::string>, std::vector<double>> gains;
};

std::string kind_of_mask(const bench::Case& c) {
  if (c.mask.find("sparse") != std::string::npos) return "blocks";
  if (c.mask.find("window") != std::string::npos) return "windows";
  if (c.mask == "full" || c.mask == "causal" || c.mask == "prefix_lm_causal") return "full, causal";
  return "documents";
}

template <class Shape>
class Trials {
 public:
  using P = Pass<Shape>;
  Trials(const bench::Case& c, Problem problem, const Device& gpu, double budget_s)
      : name_(name_of(c)),
        kind_(kind_of_mask(c)),
        problem_(std::move(problem)),
        gpu_(gpu),
        deadline_(now_s() + budget_s),
        begin_(now_s()) {}

  // The chosen plan and the named ones in turns.
  void compare(const std::vector<std::string>& names, Totals& totals, std::FILE* out) {
    std::vector<Candidate<Shape>> plans{P::candidates(problem_, gpu_).front()};
    for (const std::string& name : names) {
      plans.push_back(P::named(problem_, gpu_, name));
      plans.back().name = name;
      if (plans.back().hash == plans.front().hash) plans.back().by = "chosen too";
    }
    compare(plans, totals, out);
  }

  // The chosen plan and those that lack a mechanism of it in turns.
  void ablate(Totals& totals, std::FILE* out) {
    compare(P::ablations(problem_, gpu_), totals, out);
    for (size_t i = 1; i < trials_.size(); ++i)
      totals.gains[{trials_[i].candidate.by, kind_}].push_back(time_of(i) / time_of(0) - 1);
  }

  // These plans in turns; the first is the chosen one.
  void compare(const std::vector<Candidate<Shape>>& plans, Totals& totals, std::FILE* out) {
    prepare();
    add(plans, out);
    time(trials_[0], 3);
    const char* const turn_s = std::getenv("TURN_S");
    const double runs = (turn_s == nullptr ? 8e-3 : std::atof(turn_s)) / median(trials_[0].times);
    const int few = static_cast<int>(std::clamp(runs, 1.0, turn_s == nullptr ? 40.0 : 4000.0));
    for (Trial& trial : trials_) trial.times.clear();
    for (int round = 0; round < 4 || (round < 40 && now_s() < deadline_); ++round)
      for (const size_t i : in_some_order(trials_.size())) time(trials_[i], few);
    report(totals, out);
  }

  void run(Totals& totals, std::FILE* out) {
    prepare();
    add(P::candidates(problem_, gpu_), out);
    if (trials_.empty()) return;
    const double first_stage = begin_ + (deadline_ - begin_) * 0.5;
    // The chosen plan decides how often the others run.
    time(trials_[0], 3);
    const double each_s = median(trials_[0].times);
    const int few = static_cast<int>(std::clamp(6e-3 / each_s, 2.0, 20.0));
    size_t tried = 1;
    for (; tried < trials_.size() && now_s() < first_stage; ++tried) time(trials_[tried], few);
    const size_t candidates = trials_.size();
    trials_.resize(tried);
    std::vector<size_t> order(tried);
    for (size_t i = 0; i < tried; ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return time_of(a) < time_of(b); });
    order.resize(std::min<size_t>(order.size(), 5));
    std::vector<Candidate<Shape>> more = P::changes(problem_, gpu_, trials_[order[0]].candidate);
    if (order[0] != 0)
      for (auto& change : P::changes(problem_, gpu_, trials_[0].candidate))
        more.push_back(change), more.back().by += " of chosen";
    for (size_t i = 0; i < trials_.size(); ++i) print(i, 1, out);
    for (Trial& trial : trials_) trial.times.clear();
    if (std::ranges::find(order, size_t{0}) == order.end()) order.push_back(0);
    for (const auto& change : more) {
      const auto same =
          std::ranges::find_if(trials_, [&](const Trial& t) { return t.candidate.hash == change.hash; });
      if (same != trials_.end() &&
          std::ranges::find(order, static_cast<size_t>(same - trials_.begin())) != order.end())
        continue;
      order.push_back(trials_.size());
      add({change}, out);
    }
    const int some = static_cast<int>(std::clamp(5e-3 / each_s, 1.0, 20.0));
    // The choice and the best of the first stage are in each round; others as the time allows.
    for (int round = 0; round < 3 && (round < 1 || now_s() < deadline_); ++round)
      for (const size_t j : in_some_order(order.size())) {
        if (j % 6 == 5) time(trials_[0], some);
        if (order[j] < trials_.size()) time(trials_[order[j]], some);
      }
    size_t best = 0;
    for (const size_t i : order)
      if (i < trials_.size() && !trials_[i].times.empty() && time_of(i) < time_of(best)) best = i;
    for (const size_t i : order)
      if (i < trials_.size() && !trials_[i].times.empty()) print(i, 2, out);
    std::fflush(out);
    const double regret = time_of(0) / time_of(best) - 1;
    std::printf("%5.1f %%  %8.3f ms %3zu/%3zu  %s\n         chosen %s\n", 100 * regret, 1e3 * time_of(0),
                tried, candidates, name_.c_str(), trials_[0].candidate.name.c_str());
    if (best != 0) std::printf("         best   %s\n", trials_[best].candidate.name.c_str());
    ++totals.cases, totals.wrong += wrong_, totals.regret += regret,
        totals.worst = std::max(totals.worst, regret);
  }

 private:
  struct Trial {
    Candidate<Shape> candidate;
    std::unique_ptr<typename P::Plan> plan;
    std::vector<double> times;
  };

  void prepare() {
    const std::unique_ptr<Plan> forward = sm90_kernel().plan(problem_, gpu_);
    tensors_ = std::make_unique<ProblemTensors>(problem_, P::kDirection, gpu_, *forward);
    tensors_->fill_inputs(7);
    tensors_->forward(*forward);
    views_ = tensors_->views();
    workspace_ = Buffer(size_t{64} << 20, gpu_);
    flush_ = Buffer(size_t{128} << 20, gpu_);
    sums_ = Buffer(32, gpu_);
  }

  void report(Totals& totals, std::FILE* out) const {
    size_t best = 0;
    for (size_t i = 0; i < trials_.size(); ++i) {
      print(i, 2, out);
      if (time_of(i) < time_of(best)) best = i;
    }
    std::fflush(out);
    const double regret = time_of(0) / time_of(best) - 1;
    std::printf("%8.3f ms %3zu runs  %s\n", 1e3 * time_of(0), trials_[0].times.size(), name_.c_str());
    for (size_t i = 0; i < trials_.size(); ++i)
      std::printf("   %+6.2f %% %s %s\n", 100 * (time_of(i) / time_of(0) - 1),
                  trials_[i].candidate.name.c_str(), trials_[i].candidate.by.c_str());
    ++totals.cases, totals.wrong += wrong_, totals.regret += regret,
        totals.worst = std::max(totals.worst, regret);
  }

  double time_of(size_t i) const { return median(trials_[i].times); }

  // Another one each time: what runs before a plan heats the chip for it.
  std::vector<size_t> in_some_order(size_t count) {
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random_);
    return order;
  }

  // Makes the plans of the candidates, and drops those whose results differ from the chosen one's.
  void add(const std::vector<Candidate<Shape>>& candidates, std::FILE* out) {
    for (const Candidate<Shape>& candidate : candidates) {
      Trial trial{candidate, nullptr, {}};
      std::string problem;
      try {
        trial.plan = std::make_unique<typename P::Plan>(problem_, candidate.shape, gpu_);
        if (P::workspace_of(*trial.plan) > workspace_.bytes())
          workspace_ = Buffer(P::workspace_of(*trial.plan), gpu_);
        problem = difference(*trial.plan);
      } catch (const Error& error) {
        problem = error.what();
      }
      if (problem.empty()) {
        trials_.push_back(std::move(trial));
        continue;
      }
      ++wrong_;
      std::printf("WRONG %s: %s: %s\n", name_.c_str(), candidate.name.c_str(), problem.c_str());
      std::fprintf(out, "{\"case\":\"%s\",\"candidate\":\"%s\",\"wrong\":true}\n", name_.c_str(),
                   candidate.name.c_str());
    }
  }

  std::string difference(typename P::Plan& plan) {
    const std::vector<TensorView> outputs = P::outputs(views_);
    for (const TensorView& view : outputs) cudaMemset(view.data, 0xff, view.bytes());
    P::run(plan, problem_, views_, workspace_.data(), gpu_);
    cuda::synchronize(Stream{});
    const bool first = truth_.empty();
    std::string found;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (first) {
        truth_.push_back(std::make_unique<Buffer>(outputs[i].bytes(), gpu_));
        cudaMemcpy(truth_.back()->data(), outputs[i].data, outputs[i].bytes(), cudaMemcpyDeviceToDevice);
      }
      double result[3];
      auto* sums = static_cast<double*>(sums_.data());
      cudaMemset(sums, 0, sizeof(result));
      add_differences(outputs[i].data, truth_[i]->data(), static_cast<int64_t>(outputs[i].bytes() / 2), sums);
      cudaMemcpy(result, sums, sizeof(result), cudaMemcpyDeviceToHost);
      if (const double e = std::sqrt(result[0] / result[1]); !(e < 0.006))
        found += fmt::format(" output {}: {:.1e}", i, e);
    }
    return found;
  }

  void time(Trial& trial, int repeats) {
    std::deque<cuda::Event> events;
    for (int i = 0; i < 2 * repeats; ++i) events.emplace_back(0);
    for (int i = 0; i < repeats; ++i) {
      cudaMemsetAsync(flush_.data(), i, flush_.bytes(), nullptr);
      events[static_cast<size_t>(2 * i)].record(Stream{});
      P::run(*trial.plan, problem_, views_, workspace_.data(), gpu_);
      events[static_cast<size_t>(2 * i + 1)].record(Stream{});
    }
    cuda::synchronize(Stream{});
    for (int i = 0; i < repeats; ++i)
      trial.times.push_back(
          events[static_cast<size_t>(2 * i + 1)].seconds_since(events[static_cast<size_t>(2 * i)]));
  }

  void print(size_t i, int stage, std::FILE* out) const {
    if (trials_[i].times.empty()) return;
    std::fprintf(
        out, "{\"case\":\"%s\",\"stage\":%d,\"candidate\":\"%s\",\"by\":\"%s\",\"us\":%.2f,\"runs\":%zu}\n",
        name_.c_str(), stage, trials_[i].candidate.name.c_str(), trials_[i].candidate.by.c_str(),
        1e6 * time_of(i), trials_[i].times.size());
  }

  std::string name_, kind_;
  Problem problem_;
  Device gpu_;
  double deadline_, begin_;
  std::unique_ptr<ProblemTensors> tensors_;
  DeviceTensors views_;
  Buffer workspace_, flush_, sums_;
  std::vector<std::unique_ptr<Buffer>> truth_;
  std::vector<Trial> trials_;
  std::minstd_rand random_;
  int wrong_ = 0;
};

}  // namespace
}  // namespace longspan

int main(int argc, char** argv) {
  using namespace longspan;
  if (argc < 4) {
    std::printf(
        "sm90_candidates_probe SUITE.toml OUT.jsonl SECONDS [regular expression of cases] [deterministic]\n");
    return 2;
  }
  if (!no_cuda_reason().empty() || first_gpu().capability != 90) {
    std::printf("needs a GPU of compute capability 9.0\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Device gpu = first_gpu();
  const bool listed = argc > 4 && argv[4][0] == '@';
  const std::regex filter(argc > 4 && !listed ? argv[4] : "");
  std::map<std::string, std::vector<std::string>> names;
  if (listed) {
    std::ifstream list(argv[4] + 1);
    for (std::string line; std::getline(list, line);)
      if (const size_t tab = line.find('\t'); tab != std::string::npos)
        names[line.substr(0, tab)].push_back(line.substr(tab + 1));
  }
  const bool deterministic = argc > 5, ablations = std::getenv("ABLATIONS") != nullptr;
  std::FILE* const out = std::fopen(argv[2], "w");
  if (out == nullptr) return std::printf("%s cannot be written\n", argv[2]), 2;
  Totals forward, backward;
  try {
    std::vector<bench::Case> cases;
    for (const bench::Case& c : bench::expand(bench::find_suite(argv[1]), {"sm90"}, {"sm90"}))
      if (listed ? names.contains(name_of(c)) : std::regex_search(name_of(c), filter)) cases.push_back(c);
    const double end = now_s() + std::atof(argv[3]);
    double weight = 0;
    const auto weight_of = [&](const bench::Case& c) {
      if (listed) return 1.0 + static_cast<double>(names[name_of(c)].size());
      return c.direction == Direction::kForward ? 0.3 : 1;
    };
    for (const bench::Case& c : cases) weight += weight_of(c);
    for (const bench::Case& c : cases) {
      const double share = (end - now_s()) * weight_of(c) / weight;
      weight -= weight_of(c);
      Problem problem = problem_of(c);
      const auto run = [&](auto trials, Totals& totals) {
        if (ablations)
          trials.ablate(totals, out);
        else if (listed)
          trials.compare(names[name_of(c)], totals, out);
        else
          trials.run(totals, out);
      };
      if (c.direction == Direction::kForward) {
        run(Trials<sm90::ForwardShape>(c, problem, gpu, share), forward);
      } else {
        problem.deterministic = deterministic;
        run(Trials<sm90::BackwardShape>(c, problem, gpu, share), backward);
      }
    }
  } catch (const std::exception& error) {
    std::printf("stopped: %s\n", error.what());
    return 1;
  }
  std::fclose(out);
  for (const Totals* t : {&forward, &backward})
    std::printf("%s: %d cases, mean regret %.2f %%, worst %.2f %%, %d wrong\n",
                t == &forward ? "forward" : "backward", t->cases, 100 * t->regret / std::max(t->cases, 1),
                100 * t->worst, t->wrong);
  for (const Totals* t : {&forward, &backward})
    for (const auto& [what, gains] : t->gains) {
      const auto [least, most] = std::ranges::minmax(gains);
      std::printf("%s without %-28s %-12s %2zu cases, %+5.1f %% in the mean, %+5.1f to %+5.1f %%\n",
                  t == &forward ? "forward " : "backward", what.first.c_str(), what.second.c_str(),
                  gains.size(),
                  100 * std::accumulate(gains.begin(), gains.end(), 0.0) / static_cast<double>(gains.size()),
                  100 * least, 100 * most);
    }
  return forward.wrong + backward.wrong > 0;
}
