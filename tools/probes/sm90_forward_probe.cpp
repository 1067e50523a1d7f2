// A probe for work on the Hopper forward kernel. Its figures are no results: those are the runner's.
//   sm90_forward_probe check|time|plan|wait|compare [regular expression]
//   [columns,piece,streams,pack,warpgroups,][even|blocks][s=KV_HEADS] [seconds]
// The shape is the chosen one unless it is given; 0 stands for the chosen number. KV_HEADS are worked on
// together. Half a second of work and more brings the chip to its power limit, where most rates are lower.
// `check` runs small problems against the oracle. `time` prints for each large case the median time with a
// cold L2, its rate, and the share of the tensor cores' cycles that the visible work needs ("util"), which
// does not depend on the clock rate. `plan` times planning. `wait` prints the time until planning returns,
// until the device has the plan, and by which it delays the first run. `compare` is below.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "attention/oracle/verify.h"
#include "base/cuda/cuda.h"
#include "kernels/sm90/forward/plan.h"
#include "kernels/sm90/forward/planner/map.h"
#include "mask/patterns/patterns.h"
#include "probe_case.h"

namespace longspan {

void start_reading_clocks(long long* of_unit, int units, cudaStream_t stream);

namespace {

using sm90::ForwardPlan;
using sm90::ForwardShape;

Device first_gpu() {
  for (const Device& device : devices())
    if (device.kind == DeviceKind::kCuda) return device;
  return {};
}

class ProbePlan final : public Plan {
 public:
  ProbePlan(const Problem& problem, const ForwardShape& shape, const Device& gpu)
      : problem_(problem), gpu_(gpu), forward_(problem, shape, gpu) {}
  size_t workspace_bytes(Direction) const override { return forward_.workspace_bytes(); }
  size_t plan_bytes() const override { return forward_.bytes(); }
  void forward(const ForwardArgs& args, Stream stream) override {
    forward_.run(problem_, args, gpu_, stream);
  }
  void backward(const BackwardArgs&, Stream) override {}

 private:
  Problem problem_;
  Device gpu_;
  ForwardPlan forward_;
};

Case blocks(int64_t block, int64_t seqlen, int64_t heads_q, int64_t heads_kv, double density) {
  return {fmt::format("blocks{}-{}-{}:{}-{}", block, seqlen, heads_q, heads_kv, density),
          [=] { return pattern("uniform_block_sparse", seqlen, heads_kv, block, density); }, heads_q,
          heads_kv};
}

Case variable(int64_t mean, int64_t seqlen, int64_t heads_q, int64_t heads_kv, double density) {
  return {fmt::format("variable{}-{}-{}:{}-{}", mean, seqlen, heads_q, heads_kv, density),
          [=] { return pattern("variable_block_sparse", seqlen, heads_kv, mean, density); }, heads_q,
          heads_kv};
}

std::vector<Case> small_cases() {
  std::vector<Case> cases;
  for (const Pattern& p : patterns()) {
    if (p.block_sparse) continue;
    cases.push_back({fmt::format("{}-2048-16:2", p.name),
                     [&p] { return pattern(std::string(p.name), 2048, 1, 0, 0, "uniform:50:500"); }, 16, 2});
  }
  for (const auto& [q, kv] : {std::pair<int64_t, int64_t>{8, 2}, {8, 1}, {4, 4}, {6, 3}}) {
    for (const Pattern& p : patterns())
      if (!p.block_sparse)
        cases.push_back(
            {.name = fmt::format("d64-{}-2048-{}:{}", p.name, q, kv),
             .masks = [&p] { return pattern(std::string(p.name), 2048, 1, 0, 0, "uniform:50:500"); },
             .heads_q = q,
             .heads_kv = kv,
             .head_dim = 64});
    for (const int64_t s : {1, 65, 191, 193, 777, 3000})
      for (const char* name : {"full", "causal"})
        cases.push_back({.name = fmt::format("d64-{}-{}-{}:{}", name, s, q, kv),
                         .masks = [s, name] { return pattern(name, s); },
                         .heads_q = q,
                         .heads_kv = kv,
                         .head_dim = 64});
    for (const char* name : {"full", "causal"})
      cases.push_back({.name = fmt::format("d64-scale1-{}-1500-{}:{}", name, q, kv),
                       .masks = [name] { return pattern(name, 1500); },
                       .heads_q = q,
                       .heads_kv = kv,
                       .head_dim = 64,
                       .scale = 1});
  }
  for (const int64_t s : {1, 65, 777})
    cases.push_back({fmt::format("causal-{}-8:2", s), [s] { return pattern("causal", s); }, 8, 2});
  for (const char* name : {"full", "causal"})
    cases.push_back({.name = fmt::format("scale1-{}-1500-8:2", name),
                     .masks = [name] { return pattern(name, 1500); },
                     .heads_q = 8,
                     .heads_kv = 2,
                     .scale = 1});
  for (const int64_t block : {64, 128})
    for (const auto& [q, kv] : {std::pair<int64_t, int64_t>{4, 4}, {8, 2}, {4, 2}, {6, 2}}) {
      for (const double density : {0.1, 0.3, 1.0}) {
        Case c = blocks(block, 2000, q, kv, density);
        cases.push_back(c);
        c.head_dim = 64;
        c.name += "-d64";
        cases.push_back(c);
        c.head_dim = 128;
        c.dtype = DType::kF16;
        c.name += "-f16-d128";
        cases.push_back(c);
      }
      cases.push_back(blocks(block, 8192, q, kv, 0.3));
    }
  cases.push_back(variable(256, 4096, 4, 4, 0.4));
  cases.push_back(variable(256, 4096, 8, 2, 0.4));
  cases.push_back({"causal_document-8192-64:8", [] { return pattern("causal_document", 8192); }});
  // Full masks whose items leave a part of the last wave idle.
  struct Divided {
    int64_t rows, columns, heads_q, heads_kv;
  };
  for (const Divided& d : {Divided{300, 1100, 8, 1},
                           {1000, 2500, 16, 2},
                           {2500, 2500, 8, 1},
                           {3999, 9001, 16, 1},
                           {5001, 5001, 12, 2},
                           {4096, 4096, 64, 8}})
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const Band all{{0, d.rows}, {0, d.columns}};
      const HeadMasks masks = {Mask(d.rows, d.columns, std::vector<Band>{all})};
      cases.push_back(
          {fmt::format("divided-{}x{}-{}:{}-{}", d.rows, d.columns, d.heads_q, d.heads_kv, name_of(dtype)),
           [masks] { return masks; }, d.heads_q, d.heads_kv, 128, dtype});
    }
  return cases;
}

std::vector<Case> large_cases() {
  std::vector<Case> cases;
  for (const int64_t s : {4096, 16384})
    for (const int64_t heads : {32, 64})
      for (const char* name : {"full", "causal", "causal_document", "sliding_window_causal"})
        cases.push_back({.name = fmt::format("d64-{}-{}-{}:8", name, s, heads),
                         .masks = [name, s] { return pattern(name, s); },
                         .heads_q = heads,
                         .head_dim = 64});
  // Heads whose group no row tile packs, beside one that fills a row tile; short documents and narrow
  // windows.
  for (const auto& [q, kv] :
       {std::pair<int64_t, int64_t>{16, 16}, {28, 4}, {32, 32}, {40, 8}, {64, 64}, {64, 8}})
    for (const int64_t s : {1024, 2048, 3072, 4096, 8192, 12000, 16384, 32768, 65536})
      for (const char* name :
           {"full", "causal", "causal_document", "full_document", "sliding_window", "sliding_window_causal",
            "share_question", "prefix_lm_document", "causal_blockwise"})
        cases.push_back({.name = fmt::format("single-{}-{}-{}:{}", name, s, q, kv),
                         .masks = [name, s] { return pattern(name, s); },
                         .heads_q = q,
                         .heads_kv = kv});
  for (const auto& [q, kv] : {std::pair<int64_t, int64_t>{32, 8}, {40, 8}, {16, 16}, {64, 8}}) {
    for (const char* name : {"causal_document", "full_document"})
      cases.push_back({.name = fmt::format("short-{}-20000-{}:{}", name, q, kv),
                       .masks = [name] { return pattern(name, 20000, 1, 0, 0, "uniform:100:400"); },
                       .heads_q = q,
                       .heads_kv = kv});
    const Band window{{0, 20000}, {0, 20000}, -128, 0};
    cases.push_back({.name = fmt::format("short-window-20000-{}:{}", q, kv),
                     .masks = [window] { return HeadMasks{Mask(20000, 20000, std::vector<Band>{window})}; },
                     .heads_q = q,
                     .heads_kv = kv});
  }
  for (const int64_t s : {1024, 2048, 4096, 8192, 32768, 49152})
    for (const Pattern& p : patterns())
      if (!p.block_sparse)
        cases.push_back(
            {fmt::format("{}-{}", p.name, s), [&p, s] { return pattern(std::string(p.name), s); }});
  for (const int64_t s : {3072, 6144, 12288, 16384, 24576})
    cases.push_back({fmt::format("full-{}", s), [s] { return pattern("full", s); }});
  for (const int64_t block : {64, 128})
    for (const auto& [q, kv] : {std::pair<int64_t, int64_t>{4, 4}, {32, 32}, {32, 4}})
      for (const double density : {0.1, 0.2, 0.5, 0.8, 1.0})
        cases.push_back(blocks(block, 49152, q, kv, density));
  for (const int64_t mean : {128, 256, 512, 1024})
    for (const auto& [q, kv] : {std::pair<int64_t, int64_t>{4, 4}, {32, 4}})
      for (const double density : {0.1, 0.2, 0.5, 0.8, 1.0})
        cases.push_back(variable(mean, 49152, q, kv, density));
  return cases;
}

ForwardShape shape_for(const Problem& problem, const std::string& text) {
  const auto says = [&](const char* word) { return text.find(word) != std::string::npos; };
  ForwardShape shape = sm90::choose_forward_shape(problem, first_gpu());
  int numbers[5] = {};  // 0: the chosen one
  std::sscanf(text.c_str(), "%d,%d,%d,%d,%d", &numbers[0], &numbers[1], &numbers[2], &numbers[3],
              &numbers[4]);
  int* const parts[] = {&shape.columns, &shape.piece, &shape.streams, &shape.pack, &shape.warpgroups};
  for (int i = 0; i < 5; ++i)
    if (numbers[i] > 0) *parts[i] = numbers[i];
  if (const size_t at = text.find("s="); at != std::string::npos)
    shape.section_heads = std::atoi(text.c_str() + at + 2);
  if (says("even")) shape.row_tiles = RowTiles::kEven;
  if (says("blocks")) shape.row_tiles = RowTiles::kOfBlocks;
  return shape;
}

bool check(const Case& c, const std::string& text, const Device& gpu) {
  const Problem problem = problem_of(c);
  ProbePlan plan(problem, shape_for(problem, text), gpu);
  const VerifyReport report = verify(plan, problem, Direction::kForward, gpu, {});
  std::printf("%-40s %s o %.1e lse %.1e %s\n", c.name.c_str(), report.passed() ? "ok  " : "FAIL",
              report.tensors[0].error, report.tensors[1].error, report.failure.c_str());
  return report.passed();
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == at)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void time(const Case& c, const std::string& text, double seconds, const Device& gpu) {
  const Problem problem = problem_of(c);
  const ForwardShape shape = shape_for(problem, text);
  ProbePlan plan(problem, shape, gpu);
  ProblemTensors tensors(problem, Direction::kForward, gpu, plan);
  tensors.fill_inputs(7);
  const DeviceTensors& v = tensors.views();
  const Buffer workspace(plan.workspace_bytes(Direction::kForward), gpu);
  const ForwardArgs args{v.q, v.k, v.v, v.o, v.lse, workspace.data()};
  const double work = flops(problem, Direction::kForward);
  const double expected = work / 600e12 + 50e-6;
  const int repeats = std::clamp(static_cast<int>(seconds / expected), 2, 500);
  const auto units = static_cast<size_t>(gpu.units);
  Buffer flush(size_t{192} << 20, gpu);
  Buffer clocks(static_cast<size_t>(repeats) * 2 * units * 8, gpu);
  fill_bytes(clocks.data(), clocks.kind(), 0, clocks.bytes());
  std::vector<std::unique_ptr<cuda::Event>> events;
  for (int i = 0; i < 2 * repeats; ++i) events.push_back(std::make_unique<cuda::Event>(0));
  for (int i = 0; i < std::max(1, repeats / 2); ++i) plan.forward(args, Stream{});
  for (int i = 0; i < repeats; ++i) {
    const auto at = static_cast<size_t>(2 * i);
    cuda::fill_async(flush.data(), static_cast<unsigned char>(i), flush.bytes(), Stream{});
    start_reading_clocks(clocks.as<long long>() + at * units, gpu.units, nullptr);
    events[at]->record(Stream{});
    plan.forward(args, Stream{});
    events[at + 1]->record(Stream{});
    start_reading_clocks(clocks.as<long long>() + (at + 1) * units, gpu.units, nullptr);
  }
  cuda::synchronize(Stream{});
  std::vector<long long> ticks(static_cast<size_t>(repeats) * 2 * units);
  copy_bytes(ticks.data(), DeviceKind::kCpu, clocks.data(), clocks.kind(), ticks.size() * 8);
  std::vector<double> times, cycles;
  for (size_t i = 0; i < static_cast<size_t>(repeats); ++i) {
    times.push_back(events[2 * i + 1]->seconds_since(*events[2 * i]));
    for (size_t u = 0; u < units; ++u) {
      const long long a = ticks[2 * i * units + u], b = ticks[(2 * i + 1) * units + u];
      if (a != 0 && b != 0) cycles.push_back(static_cast<double>(b - a));
    }
  }
  const double t = median(times), n = median(cycles);
  std::printf("%-30s %d,%d,%d,%d,%s %9.4f ms %6.1f TFLOP/s  util %5.3f  %.2f GHz\n", c.name.c_str(),
              shape.columns, shape.piece, shape.streams, shape.pack,
              shape.row_tiles == RowTiles::kEven ? "even" : "blocks", t * 1e3, work / t * 1e-12,
              work / (4096.0 * gpu.units * n), n / t * 1e-9);
}

float of_bf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// o and lse of a run of `plan` on poisoned outputs; of a large o, equal pieces spread over it.
struct Output {
  std::vector<uint16_t> o;
  std::vector<float> lse;
  friend bool operator==(const Output& a, const Output& b) {
    return a.o == b.o && std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * sizeof(float)) == 0;
  }
};

Output output_of(ProbePlan& plan, const ForwardArgs& args, const Problem& problem) {
  Output out;
  const auto elements = static_cast<size_t>(problem.tokens_q * problem.heads_q * problem.head_dim);
  constexpr size_t kMost = size_t{1} << 25, kPieces = 64;
  const size_t pieces = elements > kMost ? kPieces : 1, piece = std::min(elements, kMost) / pieces;
  out.o.resize(pieces * piece);
  out.lse.resize(static_cast<size_t>(problem.tokens_q * problem.heads_q));
  fill_bytes(args.o.data, DeviceKind::kCuda, 0x7f, elements * 2);
  fill_bytes(args.lse, DeviceKind::kCuda, 0x7f, out.lse.size() * 4);
  plan.forward(args, Stream{});
  cuda::synchronize(Stream{});
  for (size_t i = 0; i < pieces; ++i)  // the last piece at the end
    copy_bytes(out.o.data() + i * piece, DeviceKind::kCpu,
               static_cast<uint16_t*>(args.o.data) + i * (elements - piece) / std::max<size_t>(pieces - 1, 1),
               DeviceKind::kCuda, piece * 2);
  copy_bytes(out.lse.data(), DeviceKind::kCpu, args.lse, DeviceKind::kCuda, out.lse.size() * 4);
  return out;
}

// Compares several shapes of one problem, separated by ';': outputs with those of the first shape, and times.
// Each runs for `seconds` in each turn. Turns begin with another shape and alternate in direction, so that no
// shape always has the cooler chip.
// The first runs once more before that, untimed. Times are means of the medians.
void compare(const Case& c, const std::string& texts, double seconds, const Device& gpu) {
  const Problem problem = problem_of(c);
  struct Trial {
    std::string name;
    std::unique_ptr<ProbePlan> plan;
    double time = 0, cycles = 0;
  };
  std::vector<Trial> trials;
  for (const std::string& text : split(texts, ';'))
    trials.push_back({text, std::make_unique<ProbePlan>(problem, shape_for(problem, text), gpu)});
  ProblemTensors tensors(problem, Direction::kForward, gpu, *trials.front().plan);
  tensors.fill_inputs(7);
  const DeviceTensors& v = tensors.views();
  size_t bytes = 0;
  for (const Trial& trial : trials) bytes = std::max(bytes, trial.plan->workspace_bytes(Direction::kForward));
  const Buffer workspace(bytes, gpu);
  const ForwardArgs args{v.q, v.k, v.v, v.o, v.lse, workspace.data()};
  std::vector<std::string> verdicts;
  Output right;
  for (Trial& trial : trials) {
    try {
      const Output out = output_of(*trial.plan, args, problem);
      if (right.o.empty()) right = out;
      double of_o = 0, of_lse = 0;
      size_t bad = 0;
      const bool same = out == right;
      for (size_t i = same ? out.o.size() : 0; i < out.o.size(); ++i) {
        const double a = of_bf16(out.o[i]), b = of_bf16(right.o[i]);
        if (!(std::abs(a) < 1e6)) ++bad;
        of_o = std::max(of_o, std::abs(a - b) / (std::abs(b) + 0.05));
      }
      for (size_t i = 0; i < out.lse.size(); ++i) {
        if (out.lse[i] == right.lse[i]) continue;
        if (!(std::abs(out.lse[i]) < 1e6)) ++bad;
        of_lse = std::max(of_lse, std::abs(static_cast<double>(out.lse[i]) - right.lse[i]));
      }
      int repeats = 0;
      const int most = seconds < 0.1 || problem.tokens_q > 8192 ? 0 : problem.tokens_q > 4096 ? 1 : 3;
      for (int i = 0; i < most; ++i) repeats += output_of(*trial.plan, args, problem) == out;
      verdicts.push_back(fmt::format("{} o {:.0e} lse {:.0e}{}{}",
                                     same                                        ? "same"
                                     : of_o < 0.012 && of_lse < 5e-5 && bad == 0 ? "near"
                                                                                 : "WRONG",
                                     of_o, of_lse, bad > 0 ? fmt::format(" BAD {}", bad) : "",
                                     repeats < most ? " NOT REPEATABLE" : ""));
    } catch (const std::exception& error) {
      std::printf("%s %s: %s\n", c.name.c_str(), trial.name.c_str(), error.what());
      return;
    }
  }
  const double work = flops(problem, Direction::kForward);
  const int repeats = std::clamp(static_cast<int>(seconds / (work / 600e12 + 100e-6)), 3, 2000);
  const auto units = static_cast<size_t>(gpu.units);
  Buffer flush(size_t{192} << 20, gpu);
  Buffer clocks(static_cast<size_t>(repeats) * 2 * units * 8, gpu);
  std::vector<std::unique_ptr<cuda::Event>> events;
  for (int i = 0; i < 2 * repeats; ++i) events.push_back(std::make_unique<cuda::Event>(0));
  std::vector<long long> ticks(static_cast<size_t>(repeats) * 2 * units);
  const size_t count = trials.size();
  const int turns = std::max(4, 2 * static_cast<int>(count));
  for (int turn = -1; turn < turns; ++turn)
    for (size_t t = 0; t < (turn < 0 ? 1 : count); ++t) {
      const size_t first = static_cast<size_t>(std::max(turn, 0)) / 2;
      Trial& trial = trials[(first + (turn % 2 == 1 ? count - 1 - t : t)) % count];
      fill_bytes(clocks.data(), clocks.kind(), 0, clocks.bytes());
      for (int i = 0; i < repeats; ++i) {
        const auto at = static_cast<size_t>(2 * i);
        cuda::fill_async(flush.data(), static_cast<unsigned char>(i), flush.bytes(), Stream{});
        start_reading_clocks(clocks.as<long long>() + at * units, gpu.units, nullptr);
        events[at]->record(Stream{});
        trial.plan->forward(args, Stream{});
        events[at + 1]->record(Stream{});
        start_reading_clocks(clocks.as<long long>() + (at + 1) * units, gpu.units, nullptr);
      }
      cuda::synchronize(Stream{});
      copy_bytes(ticks.data(), DeviceKind::kCpu, clocks.data(), clocks.kind(), ticks.size() * 8);
      std::vector<double> times, cycles;
      for (size_t i = static_cast<size_t>(repeats) / 3; i < static_cast<size_t>(repeats); ++i) {
        times.push_back(events[2 * i + 1]->seconds_since(*events[2 * i]));
        for (size_t u = 0; u < units; ++u) {
          const long long a = ticks[2 * i * units + u], b = ticks[(2 * i + 1) * units + u];
          if (a != 0 && b != 0) cycles.push_back(static_cast<double>(b - a));
        }
      }
      if (turn < 0) continue;
      trial.time += median(times) / turns;
      trial.cycles += median(cycles) / turns;
    }
  for (size_t i = 0; i < trials.size(); ++i) {
    const Trial& t = trials[i];
    std::printf("%-26s %-22s %9.1f us %6.1f TFLOP/s %.3f GHz  time %.4f cycles %.4f of the first's  %s\n",
                c.name.c_str(), t.name.empty() ? "chosen" : t.name.c_str(), t.time * 1e6,
                work / t.time * 1e-12, t.cycles / t.time * 1e-9, t.time / trials[0].time,
                t.cycles / trials[0].cycles, verdicts[i].c_str());
  }
}

void plan(const Case& c, const std::string& text, const Device& gpu) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point a, Clock::time_point b) {
    return std::chrono::duration<double>(b - a).count();
  };
  const Problem problem = problem_of(c);
  const ForwardShape shape = shape_for(problem, text);
  std::vector<double> choose, lower, all;
  size_t bytes = 0;
  for (int i = 0; i < 15; ++i) {
    const auto a = Clock::now();
    sm90::choose_forward_shape(problem, gpu);
    const auto b = Clock::now();
    sm90::lower_forward(*problem.masks, shape.tile_shape(), shape.row_tiles);
    const auto d = Clock::now();
    const ForwardPlan plan(problem, shape, gpu);
    const auto e = Clock::now();
    bytes = plan.bytes();
    choose.push_back(seconds(a, b)), lower.push_back(seconds(b, d)), all.push_back(seconds(d, e));
  }
  std::printf(
      "%-30s plan %8.1f us first, %8.1f median; lower %8.1f first, %8.1f median; choose %6.1f; %zu bytes\n",
      c.name.c_str(), all[0] * 1e6, median(all) * 1e6, lower[0] * 1e6, median(lower) * 1e6,
      median(choose) * 1e6, bytes);
}

// Planning as a user sees it. "five": the median of the first five plans, each destroyed before the next, as
// the runner counts. The others are measured after a run each: until planning returns; until the device has
// the plan; and planning with a run, less a run alone, which is what the run waits for. Runs have an eighth
// of the heads, with the same row tiles.
void plan_and_run(const Case& c, double seconds, const Device& gpu) {
  using Clock = std::chrono::steady_clock;
  const auto us = [](Clock::time_point a, Clock::time_point b) {
    return std::chrono::duration<double, std::micro>(b - a).count();
  };
  Problem problem = problem_of(c);
  std::vector<double> five;
  for (int i = 0; i < 5; ++i) {
    const auto a = Clock::now();
    const ForwardPlan plan(problem, gpu);
    LONGSPAN_CUDA(cudaDeviceSynchronize());
    five.push_back(us(a, Clock::now()));
  }
  if (problem.heads_q == 64) problem.heads_q = 8, problem.heads_kv = 1;
  auto warm = std::make_unique<ProbePlan>(problem, sm90::choose_forward_shape(problem, gpu), gpu);
  ProblemTensors tensors(problem, Direction::kForward, gpu, *warm);
  tensors.fill_inputs(7);
  const DeviceTensors& v = tensors.views();
  const Buffer workspace(warm->workspace_bytes(Direction::kForward), gpu);
  const ForwardArgs args{v.q, v.k, v.v, v.o, v.lse, workspace.data()};
  const cuda::OwnedStream stream(gpu.index);
  const double run_s = flops(problem, Direction::kForward) / 600e12 + 50e-6;
  const int repeats = std::clamp(static_cast<int>(seconds / (3 * run_s + 400e-6)), 20, 200);
  std::vector<double> returned, there, run, with_run, destroyed;
  for (int i = 0; i < repeats; ++i) {
    const auto a = Clock::now();
    auto first = std::make_unique<ForwardPlan>(problem, gpu);
    const auto b = Clock::now();
    LONGSPAN_CUDA(cudaDeviceSynchronize());
    const auto d = Clock::now();
    first->run(problem, args, gpu, stream);
    cuda::synchronize(stream);
    const auto e = Clock::now();
    first->run(problem, args, gpu, stream);
    cuda::synchronize(stream);
    const auto f = Clock::now();
    first.reset();
    const auto g = Clock::now();
    ForwardPlan second(problem, gpu);
    second.run(problem, args, gpu, stream);
    cuda::synchronize(stream);
    const auto h = Clock::now();
    returned.push_back(us(a, b)), there.push_back(us(a, d)), run.push_back(us(e, f));
    destroyed.push_back(us(f, g)), with_run.push_back(us(g, h));
  }
  const auto least = [](const std::vector<double>& values) {
    return *std::min_element(values.begin(), values.end());
  };
  std::printf(
      "%-28s five %6.1f  returns %6.1f %6.1f  there %6.1f %6.1f  planned and run less run %6.1f %6.1f  "
      "destroyed %5.1f  us (least, median of %d)\n",
      c.name.c_str(), median(five), least(returned), median(returned), least(there), median(there),
      least(with_run) - least(run), median(with_run) - median(run), median(destroyed), repeats);
}

}  // namespace
}  // namespace longspan

int main(int argc, char** argv) {
  using namespace longspan;
  if (argc < 2) {
    std::printf(
        "sm90_forward_probe check|time|plan|wait|compare [regular expression] "
        "[columns,piece,streams,pack,warpgroups,][even|blocks][s=KV_HEADS] [seconds]\n");
    return 2;
  }
  if (!no_cuda_reason().empty() || first_gpu().capability != 90) {
    std::printf("needs a GPU of compute capability 9.0\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Device gpu = first_gpu();
  const std::string what = argv[1], shape = argc > 3 ? argv[3] : "";
  const std::regex filter(argc > 2 ? argv[2] : "");
  int failed = 0, ran = 0;
  try {
    for (const Case& c : what == "check" ? small_cases() : large_cases()) {
      if (!std::regex_search(c.name, filter)) continue;
      ++ran;
      if (what == "compare")
        compare(c, shape, argc > 4 ? std::atof(argv[4]) : 0.05, gpu);
      else if (what == "time")
        time(c, shape, argc > 4 ? std::atof(argv[4]) : 0.05, gpu);
      else if (what == "plan")
        plan(c, shape, gpu);
      else if (what == "wait")
        plan_and_run(c, argc > 4 ? std::atof(argv[4]) : 0.2, gpu);
      else if (!check(c, shape, gpu))
        ++failed;
    }
  } catch (const std::exception& error) {
    std::printf("stopped: %s\n", error.what());
    return 1;
  }
  if (what == "check") std::printf("%d of %d wrong\n", failed, ran);
  return failed > 0;
}
