// A probe for work on context parallelism over GPUs. It prints the rates of strategies on this machine, all
// in one process, next to the rate of one device, with a breakdown of the slowest rank's time. It verifies
// nothing; use `longspan run` for results.
//   cp_probe [strategy=a,b] [mask=full,causal] [tokens=8K,32K: a rank] [ranks=2,4] [dir=fwd,bwd] [masks=N]
//            [transport=threads,nccl] [lengths=long-mix] [heads=64:8] [seconds=0.3: a row] [kernel=sm90]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "attention/problem.h"
#include "base/backend.h"
#include "base/buffer.h"
#include "base/cuda/cuda.h"
#include "base/error.h"
#include "base/rng.h"
#include "comm/nccl.h"
#include "comm/threads.h"
#include "cp/execute/parallel_kernel.h"
#include "cp/schedule/account.h"
#include "kernels/registry.h"
#include "mask/patterns/patterns.h"

namespace longspan {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

int64_t tokens_from(const std::string& text) {
  return int64_t{std::stol(text)} * (text.back() == 'K' ? 1024 : 1);
}

struct Options {
  std::map<std::string, std::string> values = {
      {"strategy", "ulysses,ring-p2p,ring-allgather,usp,loongtrain,balanced"},
      {"mask", "full,causal,causal_document"},
      {"tokens", "32K"},
      {"ranks", "4"},
      {"dir", "fwd,bwd"},
      {"masks", "1"},
      {"transport", "threads"},
      {"lengths", "long-mix"},
      {"heads", "64:8"},
      {"seconds", "0.3"},
      {"kernel", "sm90"}};

  Options(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      const size_t at = std::min(argument.find('='), argument.size());
      const auto value = values.find(argument.substr(0, at));
      LONGSPAN_CHECK_INPUT(value != values.end(), "{} is unknown", argument);
      value->second = at == argument.size() ? "yes" : argument.substr(at + 1);
    }
  }
  const std::string& operator[](const std::string& name) const { return values.at(name); }
  std::vector<std::string> list(const std::string& name) const { return split(values.at(name)); }
};

std::vector<Device> gpus() {
  std::vector<Device> found;
  for (const Device& device : devices())
    if (device.kind == DeviceKind::kCuda) found.push_back(device);
  return found;
}

// Whole tensors on the first GPU, made once for the longest sequence.
class Whole {
 public:
  Whole(const Device& device, int64_t tokens, int64_t heads_q, int64_t heads_kv, int64_t head_dim)
      : device_(device) {
    for (const int64_t heads : {heads_q, heads_kv, heads_kv, heads_q, heads_q, heads_q, heads_kv, heads_kv}) {
      views_.push_back(TensorView::contiguous(nullptr, DType::kBF16, tokens, heads, head_dim));
      memory_.emplace_back(views_.back().bytes(), device);
      views_.back().data = memory_.back().data();
    }
    lse_ = Buffer(static_cast<size_t>(tokens * heads_q) * 4, device);
    for (int i = 0; i < 4; ++i)
      fill_normal(views_[static_cast<size_t>(i)], 42, static_cast<uint64_t>(i), device);
  }

  ForwardArgs forward(int64_t tokens, void* workspace) const {
    return {view(0, tokens), view(1, tokens), view(2, tokens), view(4, tokens), lse_.as<float>(), workspace};
  }
  BackwardArgs backward(int64_t tokens, void* workspace) const {
    return {view(0, tokens),  view(1, tokens), view(2, tokens), view(4, tokens), view(3, tokens),
            lse_.as<float>(), view(5, tokens), view(6, tokens), view(7, tokens), workspace};
  }

 private:
  // q, k, v, dout; o, dq, dk, dv
  TensorView view(size_t i, int64_t tokens) const {
    TensorView view = views_[i];
    view.tokens = tokens;
    return view;
  }

  const Device device_;
  std::vector<Buffer> memory_;
  std::vector<TensorView> views_;
  Buffer lse_;
};

Problem problem_of(const Options& options, const std::string& mask, int64_t tokens, int64_t index) {
  Problem problem;
  const std::string& heads = options["heads"];
  problem.heads_q = std::stoll(heads);
  problem.heads_kv = std::stoll(heads.substr(heads.find(':') + 1));
  problem.head_dim = 128;
  problem.dtype = DType::kBF16;
  problem.tokens_q = problem.tokens_kv = tokens;
  PatternOptions pattern;
  pattern.seqlen = tokens;
  pattern.index = index;
  if (pattern_from_name(mask).documents) pattern.lengths = options["lengths"];
  problem.masks = std::make_shared<HeadMasks>(draw_mask(mask, pattern).masks);
  return problem;
}

// TFLOP/s of one device under continuous load.
double single_rate(const Kernel& kernel, const Problem& problem, Direction direction, const Whole& whole,
                   const Device& gpu, double budget_s) {
  const cuda::OwnedStream stream(gpu.index);
  const auto plan = kernel.plan(problem, gpu);
  Buffer workspace(std::max<size_t>(256, std::max(plan->workspace_bytes(Direction::kForward),
                                                  plan->workspace_bytes(Direction::kBackward))),
                   gpu);
  const auto run = [&](Direction which) {
    which == Direction::kForward ? plan->forward(whole.forward(problem.tokens_q, workspace.data()), stream)
                                 : plan->backward(whole.backward(problem.tokens_q, workspace.data()), stream);
  };
  run(Direction::kForward);
  run(direction);
  cuda::synchronize(stream);
  std::vector<double> times;
  const auto begin = Clock::now();
  while (times.size() < 3 || (seconds_since(begin) < budget_s && times.size() < 50)) {
    std::deque<cuda::Event> marks;
    for (int i = 0; i < 6; ++i) marks.emplace_back(gpu.index);
    for (int i = 0; i < 6; ++i) {
      marks[static_cast<size_t>(i)].record(stream);
      if (i < 5) run(direction);
    }
    marks.back().synchronize();
    for (size_t i = 0; i < 5; ++i) times.push_back(marks[i + 1].seconds_since(marks[i]));
  }
  return flops(problem, direction) / median(times) * 1e-12;
}

struct Measured {
  double flops = 0, time_s = 0;
  PassTimes slowest;  // by part, the largest over ranks
  double spread = 0, imbalance = 0, host_s = 0, peak_gib = 0;
  int samples = 0;
  std::string compute;  // ms by rank, of the last sample
};

void measure(ParallelPlan& plan, const Problem& problem, Direction direction, double budget_s,
             Measured& sum) {
  plan.run(direction, true);
  std::vector<double> times, spreads, parts[4];
  const auto begin = Clock::now();
  while (times.size() < 3 || (seconds_since(begin) < budget_s && times.size() < 15)) {
    double most = 0, least = 1e9;
    PassTimes worst;
    sum.compute.clear();
    for (const RankPass& pass : plan.run(direction, true)) {
      most = std::max(most, pass.time_s);
      least = std::min(least, pass.time_s);
      sum.compute += fmt::format("{}{:.2f}", sum.compute.empty() ? "" : " ", pass.times.compute_s * 1e3);
      worst.compute_s = std::max(worst.compute_s, pass.times.compute_s);
      worst.exposed_s = std::max(worst.exposed_s, pass.times.exposed_s);
      worst.reorder_s = std::max(worst.reorder_s, pass.times.reorder_s);
      worst.merge_s = std::max(worst.merge_s, pass.times.merge_s);
      sum.slowest.sent_bytes = std::max(sum.slowest.sent_bytes, pass.times.sent_bytes);
    }
    times.push_back(most);
    spreads.push_back(1 - least / most);
    parts[0].push_back(worst.compute_s);
    parts[1].push_back(worst.exposed_s);
    parts[2].push_back(worst.reorder_s);
    parts[3].push_back(worst.merge_s);
  }
  sum.flops += flops(problem, direction);
  sum.time_s += median(times);
  sum.spread = std::max(sum.spread, median(spreads));
  sum.slowest.compute_s += median(parts[0]);
  sum.slowest.exposed_s += median(parts[1]);
  sum.slowest.reorder_s += median(parts[2]);
  sum.slowest.merge_s += median(parts[3]);
  sum.samples += static_cast<int>(times.size());
}

int run(const Options& options) {
  const std::vector<Device> all = gpus();
  LONGSPAN_CHECK_INPUT(!all.empty(), "{}", no_cuda_reason());
  const Kernel& kernel = kernel_from_name(options["kernel"]);
  const double budget_s = std::stod(options["seconds"]);
  int64_t longest = 0;
  for (const std::string& tokens : options.list("tokens"))
    for (const std::string& ranks : options.list("ranks"))
      longest = std::max(longest, tokens_from(tokens) * std::stol(ranks));
  const Problem shape = problem_of(options, "full", 1024, 0);
  const Whole whole(all.front(), longest, shape.heads_q, shape.heads_kv, shape.head_dim);
  const auto begin = Clock::now();
  std::printf(
      "strategy       mask    tokens/rank x ranks dir |  TF/s  of 1 | ms: total compute exposed reorder "
      "merge | "
      "spread imbal. GB sent, held | compute by rank | samples, s\n");
  std::map<std::string, double> single;
  for (const std::string& tokens : options.list("tokens"))
    for (const std::string& mask : options.list("mask"))
      for (const std::string& ranks_text : options.list("ranks"))
        for (const std::string& transport : options.list("transport"))
          for (const std::string& name : options.list("strategy")) {
            const int ranks = std::stoi(ranks_text);
            const int64_t each = tokens_from(tokens);
            for (const std::string& dir : options.list("dir")) {
              double& rate = single[mask + tokens + dir];
              if (rate > 0) continue;
              const Direction direction = dir == "fwd" ? Direction::kForward : Direction::kBackward;
              rate = single_rate(kernel, problem_of(options, mask, each, 0), direction, whole, all.front(),
                                 budget_s / 3);
              std::printf("one device     %-15s %4s       %s | %5.0f\n", mask.c_str(), tokens.c_str(),
                          dir.c_str(), rate);
            }
            try {
              std::map<std::string, Measured> sums;
              double plan_s = 0;
              for (int64_t index = 0; index < std::stoll(options["masks"]); ++index) {
                const Problem problem = problem_of(options, mask, each * ranks, index);
                ParallelOptions parallel;
                parallel.strategy = &strategy_from_name(name);
                parallel.topology = {1, ranks};
                parallel.devices = all;
                if (static_cast<int>(parallel.devices.size()) > ranks)
                  parallel.devices.resize(static_cast<size_t>(ranks));
                parallel.limit = std::chrono::milliseconds(10000);
                parallel.communicators = [&](std::span<const Device> devices,
                                             std::chrono::milliseconds limit) {
                  if (transport == "nccl") return nccl_communicators(devices, limit);
                  return thread_communicators(static_cast<int>(devices.size()), limit);
                };
                const auto over = parallel_kernel(kernel, std::move(parallel));
                for (int g = 0; g < static_cast<int>(all.size()); ++g) cuda::reset_peak(g);
                const size_t before = cuda::allocated(all.back().index).now_bytes;
                const auto planned = Clock::now();
                const auto plan = over->plan(problem, all.front());
                plan_s = std::max(plan_s, seconds_since(planned));
                auto& spread = dynamic_cast<ParallelPlan&>(*plan);
                const Cost cost = cost_of(spread.schedule(), problem, {1, ranks});
                const bool backward = options["dir"].find("bwd") != std::string::npos;
                if (backward) {
                  plan->backward(whole.backward(problem.tokens_q, nullptr), {});
                } else {
                  plan->forward(whole.forward(problem.tokens_q, nullptr), {});
                }
                for (const std::string& dir : options.list("dir")) {
                  const Direction direction = dir == "fwd" ? Direction::kForward : Direction::kBackward;
                  measure(spread, problem, direction, budget_s, sums[dir]);
                  sums[dir].imbalance = std::max(sums[dir].imbalance, cost.of(direction).imbalance);
                  sums[dir].peak_gib =
                      static_cast<double>(
                          cuda::allocated(all[static_cast<size_t>(ranks - 1) % all.size()].index).peak_bytes -
                          before) /
                      (1 << 30);
                }
              }
              for (const std::string& dir : options.list("dir")) {
                const Measured& m = sums[dir];
                const double rate = m.flops / m.time_s * 1e-12 / ranks, alone = single[mask + tokens + dir];
                std::printf(
                    "%-14s %-15s %4s x %d %s %s | %5.0f %5.3f | %8.3f %8.3f %7.3f %6.3f %6.3f | %4.1f%% "
                    "%5.3f %5.2f %5.1f | %s | %d, plan %.2f, at %.0f\n",
                    name.c_str(), mask.c_str(), tokens.c_str(), ranks, dir.c_str(),
                    transport == "nccl" ? "nccl" : "", rate, rate / alone, m.time_s * 1e3,
                    m.slowest.compute_s * 1e3, m.slowest.exposed_s * 1e3, m.slowest.reorder_s * 1e3,
                    m.slowest.merge_s * 1e3, m.spread * 100, m.imbalance,
                    static_cast<double>(m.slowest.sent_bytes) * 1e-9, m.peak_gib, m.compute.c_str(),
                    m.samples, plan_s, seconds_since(begin));
              }
            } catch (const std::exception& error) {
              std::printf("%-14s %-15s %4s x %d %s: %s\n", name.c_str(), mask.c_str(), tokens.c_str(), ranks,
                          transport.c_str(), error.what());
            }
            std::fflush(stdout);
          }
  return 0;
}

}  // namespace
}  // namespace longspan

int main(int argc, char** argv) {
  try {
    return longspan::run(longspan::Options(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
