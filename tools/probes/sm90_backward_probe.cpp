// A probe for work on the Hopper backward kernel. `check` runs a list of small problems against the oracle
// and shows which heads and tiles are wrong. `time` times large problems, each after a pause; `hot` times
// them by the runner's rule: an empty L2 and no pause. Its figures are no results: those are the runner's.
//   sm90_backward_probe check|time|hot <how>[/<how>...] [regular expression]
// <how> is `chosen` or `ordered` (deterministic), then what is to differ from the planner's choice:
//   claimed, added, streams            dQ accumulation
//   narrow, wide                       ordered tiles of 64 or 128 keys
//   rows, held                         sums in token rows, or as threads hold them
//   tall, low                          tiles of 80 rows as held, or of 64
//   square, three                      head_dim 64: tiles of 128 by 128, of 64 by 192; with in-rows or held
//   unaligned, cut                     tiles on an even grid, or at edges of bands
//   s=SECTION_UNITS N=PASS_CTAS t=BY_TIME
//   P=PARTS T=MOST_TILES o=KEY_ORDER (its number) g=GROUP_ITEMS r=LAST_ROUNDS h=KV_HEADS
//   k=WALK (1: descending, 2: by rows)
//   p=PARTS                            with any number of tiles and no groups of items
// for example chosen,N=0,T=160. With n=REPEATS, `check` compares the bits of that many ordered runs (default
// 4) with those of the first.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "attention/element.h"
#include "attention/oracle/oracle_cuda.h"
#include "attention/oracle/verify.h"
#include "base/cuda/cuda.h"
#include "bench/measure/cuda_testbed.h"
#include "bench/measure/measure.h"
#include "bench/measure/nvml.h"
#include "gpu/kernels/backward_in_shape.h"
#include "kernels/sm90/backward/plan.h"
#include "kernels/sm90/backward/planner/arrangement.h"
#include "kernels/sm90/sm90.h"
#include "sm90_backward_cases.h"
#include "sm90_differences.h"

namespace longspan {

// sm90_clocks.cu
void start_reading_clocks(long long* of_unit, int units, cudaStream_t stream);

namespace {

Device first_gpu() {
  for (const Device& device : devices())
    if (device.kind == DeviceKind::kCuda) return device;
  return {};
}

using sm90::BackwardShape;
using sm90::BackwardStore;

// The shape chosen for the problem, changed as `how` says.
BackwardShape shape_for(Problem problem, const std::string& how, int64_t units) {
  const std::string text = "," + how + ",";
  const auto has = [&](const std::string& word) { return text.find("," + word + ",") != std::string::npos; };
  const auto set = [&](const char* name, auto& value) {
    const size_t at = text.find(fmt::format(",{}=", name));
    if (at == std::string::npos) return false;
    value = std::atoi(text.c_str() + at + 3);
    return true;
  };
  problem.deterministic = has("ordered");
  BackwardShape shape = sm90::arrange_backward(problem, sm90::choose_backward_shape(problem), units).shape;
  if (has("claimed")) shape.keys = 128, shape.store = BackwardStore::kClaimed;
  if (has("streams")) shape.keys = 64, shape.store = BackwardStore::kRegisters, shape.in_rows = false;
  if (has("narrow")) shape.keys = 64, shape.in_rows = shape.aligned = false, shape.rows = 64;
  if (has("wide")) shape.keys = 128, shape.in_rows = true;
  if (has("rows")) shape.in_rows = true, shape.rows = 64;
  if (has("held")) shape.in_rows = shape.aligned = false;
  if (has("unaligned")) shape.aligned = false;
  if (has("low")) shape.rows = 64;
  if (has("tall")) shape.rows = 80, shape.in_rows = shape.aligned = false;
  if (has("square")) shape.rows = shape.keys = 128, shape.pass_ctas = 0;
  if (has("three")) shape.rows = 64, shape.keys = 192, shape.pass_ctas = 0;
  if (has("in-rows")) shape.in_rows = true;
  if (has("cut")) shape.aligned = true;
  if (has("added")) shape.store = BackwardStore::kAdded;
  set("s", shape.section_units), set("N", shape.pass_ctas), set("t", shape.by_time);
  sm90::BackwardSplit split = sm90::arrange_backward(problem, shape, units).split;
  if (set("p", split.parts))
    split.most_tiles = 0, split.group_items = 0, split.order = sm90::KeyOrder::kOfMap;
  bool other = set("P", split.parts);
  int order = static_cast<int>(split.order), walk = 2 * split.walk.by_rows + split.walk.descending;
  other |= set("T", split.most_tiles) | set("o", order) | set("g", split.group_items) |
           set("r", split.last_rounds) | set("h", split.kv_heads) | set("k", walk);
  if (!other && text.find(",p=") == std::string::npos) return shape;
  split.order = static_cast<sm90::KeyOrder>(order);
  split.walk = {(walk & 1) != 0, (walk & 2) != 0};
  if (problem.group_size() % split.parts != 0) split.parts = 1;
  shape.split = split;
  return shape;
}

// Norm of the error over that of the truth, for rows x columns of a head. NaN counts as infinite.
double relative_error(const TensorView& actual, const ReferenceRows& truth, int64_t head, int64_t t0,
                      int64_t t1, int64_t d0, int64_t d1) {
  double wrong = 0, size = 0;
  for (int64_t t = t0; t < t1; ++t)
    for (int64_t d = d0; d < d1; ++d) {
      const double x = truth.values[static_cast<size_t>((head * actual.tokens + t) * actual.head_dim + d)];
      const double y = get_element(actual, t, head, d);
      wrong += (x - y) * (x - y);
      size += x * x;
    }
  if (!(wrong < INFINITY)) return INFINITY;
  return size > 0 ? std::sqrt(wrong / size) : (wrong > 0 ? 9.99 : 0);
}

// A letter for a tile of 64 tokens: '.' right, a digit: the error in tenths, 'X' more, 'N' not finite.
char letter(double error) {
  if (!(error < INFINITY)) return 'N';
  if (error < 0.02) return '.';
  return error < 1 ? static_cast<char>('0' + static_cast<int>(error * 10)) : 'X';
}

void show_errors(const char* name, const TensorView& actual, const ReferenceRows& truth) {
  std::printf("  %s by head and 64 tokens\n", name);
  int64_t bad_head = -1, bad_token = 0;
  for (int64_t h = 0; h < std::min<int64_t>(actual.heads, 4); ++h) {
    std::string line;
    for (int64_t t = 0; t < std::min<int64_t>(actual.tokens, 2048); t += 64) {
      const double e =
          relative_error(actual, truth, h, t, std::min(t + 64, actual.tokens), 0, actual.head_dim);
      line += letter(e);
      if (bad_head < 0 && letter(e) != '.') bad_head = h, bad_token = t;
    }
    std::printf("    %s\n", line.c_str());
  }
  if (bad_head < 0) return;
  std::printf("  inside head %ld, tokens %ld..: rows of 8 tokens, a letter 8 columns\n", bad_head, bad_token);
  for (int64_t t = bad_token; t < std::min(bad_token + 64, actual.tokens); t += 8) {
    std::string line;
    for (int64_t d = 0; d < actual.head_dim; d += 8)
      line += letter(relative_error(actual, truth, bad_head, t, std::min(t + 8, actual.tokens), d, d + 8));
    std::printf("    %s\n", line.c_str());
  }
  for (const int64_t t : {bad_token, bad_token + 9}) {
    if (t >= actual.tokens) continue;
    std::printf("  token %ld got/true:", t);
    for (const int64_t d : {0, 1, 2, 8, 17, 33, 63, int(actual.head_dim) - 1})
      std::printf(" %.3g/%.3g", get_element(actual, t, bad_head, d),
                  truth.values[static_cast<size_t>((bad_head * actual.tokens + t) * actual.head_dim + d)]);
    std::printf("\n");
  }
}

// The gradients whose bits differ from run to run, or "".
std::string differences(BackwardInShape& plan, ProblemTensors& tensors, int repeats) {
  const DeviceTensors& v = tensors.views();
  std::vector<std::vector<char>> first;
  std::string found;
  for (int repeat = 0; repeat <= repeats; ++repeat) {
    if (repeat > 0) {
      tensors.poison(Direction::kBackward);
      tensors.backward(plan);
    }
    int i = 0;
    for (const TensorView* t : {&v.dq, &v.dk, &v.dv}) {
      std::vector<char> bytes(t->bytes());
      copy_bytes(bytes.data(), DeviceKind::kCpu, t->data, v.kind, bytes.size());
      if (repeat == 0)
        first.push_back(std::move(bytes));
      else if (bytes != first[static_cast<size_t>(i)])
        found += fmt::format(" {} in repeat {}", i == 0 ? "dq" : (i == 1 ? "dk" : "dv"), repeat);
      ++i;
    }
  }
  return found;
}

// Returns whether all gradients are right.
bool check(const Case& c, const std::string& instance, const Device& gpu, bool verbose) {
  const Problem problem = problem_of(c);
  const BackwardShape shape = shape_for(problem, instance, gpu.units);
  BackwardInShape plan(problem, shape, gpu);
  ProblemTensors tensors(problem, Direction::kBackward, gpu, plan);
  tensors.fill_inputs(7);
  tensors.poison(Direction::kForward);
  tensors.forward(plan);
  tensors.poison(Direction::kBackward);
  tensors.backward(plan);
  cuda::synchronize(Stream{});
  const VerifyReport report = verify_outputs(problem, Direction::kBackward, tensors.views(), {});
  std::string line;
  for (size_t i = 2; i < report.tensors.size(); ++i)
    line += fmt::format(" {} {:.1e} (rel {:.1e}, tol {:.1e})", report.tensors[i].tensor,
                        report.tensors[i].error, report.tensors[i].relative, report.tensors[i].tolerance);
  std::printf("%-26s %-16s %s%s\n", c.name.c_str(), instance.c_str(), report.passed() ? "ok  " : "FAIL",
              line.c_str());
  if (shape.store == BackwardStore::kOrdered) {
    const size_t repeats = instance.find(",n=");
    const int count = repeats == std::string::npos ? 4 : std::atoi(instance.c_str() + repeats + 3);
    if (const std::string found = differences(plan, tensors, count); !found.empty()) {
      std::printf("  differs:%s\n", found.c_str());
      return false;
    }
  }
  if (report.passed() || !verbose) return report.passed();
  std::printf("  %s\n", report.failure.c_str());
  if (problem.tokens_q * problem.tokens_kv * problem.heads_q <= 8 * 1024 * 1024) {
    SampleOptions all;
    all.all = true;
    OracleInputs inputs;
    const DeviceTensors& v = tensors.views();
    inputs.kind = v.kind;
    inputs.q = v.q, inputs.k = v.k, inputs.v = v.v, inputs.o = v.o, inputs.dout = v.dout, inputs.lse = v.lse;
    const BackwardReference truth =
        reference_backward(problem, inputs, choose_samples(problem, Direction::kBackward, all));
    show_errors("dq", HostCopy(v.dq, v.kind).view(), truth.dq);
    show_errors("dk", HostCopy(v.dk, v.kind).view(), truth.dk);
    show_errors("dv", HostCopy(v.dv, v.kind).view(), truth.dv);
  }
  return false;
}

double median_s(const std::function<void()>& run, int repeats) {
  std::vector<double> times;
  for (int i = repeats > 0 ? 0 : 1; i < std::max(repeats, 1) + 1; ++i) {
    cuda::Event start(0), end(0);
    start.record(Stream{});
    run();
    end.record(Stream{});
    end.synchronize();
    if (i > 0) times.push_back(end.seconds_since(start));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Compares the gradients of each instance with those of the first, on poisoned outputs, and ordered ones with
// a second run. Returns what differs, or "".
std::string compare(BackwardInShape& plan, bool first, bool ordered, const BackwardArgs& args, double* sums,
                    std::vector<std::unique_ptr<Buffer>>& before, const Device& gpu) {
  const TensorView* views[] = {&args.dq, &args.dk, &args.dv};
  const auto poison = [&] {
    for (const TensorView* view : views) cudaMemset(view->data, 0xff, view->bytes());
  };
  const auto error = [&](int i, const void* other) {
    double result[3];
    cudaMemset(sums, 0, sizeof(result));
    add_differences(views[i]->data, other, static_cast<int64_t>(views[i]->bytes() / 2), sums);
    cudaMemcpy(result, sums, sizeof(result), cudaMemcpyDeviceToHost);
    return std::pair{std::sqrt(result[0] / result[1]), result[2]};
  };
  std::string found;
  poison();
  plan.backward(args, Stream{});
  cuda::synchronize(Stream{});
  for (int i = 0; i < 3; ++i) {
    if (first) {
      before.push_back(std::make_unique<Buffer>(views[i]->bytes(), gpu));
      cudaMemcpy(before.back()->data(), views[i]->data, views[i]->bytes(), cudaMemcpyDeviceToDevice);
    }
    if (const double e = error(i, before[static_cast<size_t>(i)]->data()).first; !(e < 0.006))
      found += fmt::format(" {}:{:.1e}!", i == 0 ? "dq" : (i == 1 ? "dk" : "dv"), e);
  }
  if (!ordered) return found;
  std::vector<std::unique_ptr<Buffer>> own;
  for (int i = 0; i < 3; ++i) {
    own.push_back(std::make_unique<Buffer>(views[i]->bytes(), gpu));
    cudaMemcpy(own.back()->data(), views[i]->data, views[i]->bytes(), cudaMemcpyDeviceToDevice);
  }
  poison();
  plan.backward(args, Stream{});
  for (int i = 0; i < 3; ++i)
    if (const double bits = error(i, own[static_cast<size_t>(i)]->data()).second; bits > 0)
      found += fmt::format(" {} differs in {} elements!", i == 0 ? "dq" : (i == 1 ? "dk" : "dv"), bits);
  return found;
}

// SM cycles for as much visible work as a tile of 64 queries and 128 keys of one head, and the clock rate in
// MHz, over some runs without a pause.
std::pair<double, double> cycles_of(const std::function<void()>& run, int repeats, double tiles,
                                    const Device& gpu, long long* clocks) {
  std::vector<long long> before(static_cast<size_t>(gpu.units)), after(before.size());
  cuda::Event start(0), end(0);
  cudaMemset(clocks, 0, 2 * before.size() * sizeof(long long));
  start_reading_clocks(clocks, gpu.units, nullptr);
  start.record(Stream{});
  for (int i = 0; i < repeats; ++i) run();
  end.record(Stream{});
  start_reading_clocks(clocks + gpu.units, gpu.units, nullptr);
  end.synchronize();
  cuda::synchronize(Stream{});
  cudaMemcpy(before.data(), clocks, before.size() * sizeof(long long), cudaMemcpyDeviceToHost);
  cudaMemcpy(after.data(), clocks + gpu.units, after.size() * sizeof(long long), cudaMemcpyDeviceToHost);
  // An SM that ran two CTAs of a reading, or none, has no valid reading.
  std::vector<double> differences;
  for (size_t i = 0; i < before.size(); ++i)
    if (before[i] != 0 && after[i] > before[i])
      differences.push_back(static_cast<double>(after[i] - before[i]));
  if (differences.empty()) return {0, 0};
  std::sort(differences.begin(), differences.end());
  const double cycles = differences[differences.size() / 2];
  return {cycles / repeats * gpu.units / tiles, cycles / end.seconds_since(start) * 1e-6};
}

// A problem's tensors, and a plan for each instance.
struct Timed {
  Timed(const Case& c, const std::vector<std::string>& instances, const Device& gpu)
      : problem(problem_of(c)) {
    size_t bytes = 0;
    for (const std::string& instance : instances) {
      plans.push_back(
          std::make_unique<BackwardInShape>(problem, shape_for(problem, instance, gpu.units), gpu));
      bytes = std::max(bytes, plans.back()->workspace_bytes(Direction::kBackward));
    }
    tensors = std::make_unique<ProblemTensors>(problem, Direction::kBackward, gpu, *plans[0]);
    tensors->fill_inputs(7);
    tensors->forward(*plans[0]);
    workspace = Buffer(bytes, gpu);
    const DeviceTensors& v = tensors->views();
    args = {v.q, v.k, v.v, v.o, v.dout, v.lse, v.dq, v.dk, v.dv, workspace.data()};
    work = flops(problem, Direction::kBackward);
    cuda::synchronize(Stream{});  // what follows may use another stream
  }

  Problem problem;
  std::vector<std::unique_ptr<BackwardInShape>> plans;
  std::unique_ptr<ProblemTensors> tensors;
  Buffer workspace;
  BackwardArgs args;
  double work = 0;  // flops
};

// Runs each instance in turn, in reverse order every other round.
void in_turns(size_t count, int rounds, const std::function<void(size_t, int)>& run) {
  for (int round = 0; round < rounds; ++round)
    for (size_t j = 0; j < count; ++j) run(round % 2 > 0 ? count - 1 - j : j, round);
}

void print(const Case& c, const std::vector<std::string>& rates, const std::vector<std::string>& instances) {
  std::printf("%s\n", c.name.c_str());
  for (size_t i = 0; i < rates.size(); ++i)
    std::printf("  %-9s %s\n", rates[i].c_str(), instances[i].c_str());
}

// Prints TFLOP/s, cycles a tile and MHz.
void time_rested(const Case& c, const std::vector<std::string>& instances, const Device& gpu) {
  const Timed all(c, instances, gpu);
  const int repeats = all.work > 1e14 ? 0 : (all.work > 5e13 ? 1 : (all.work > 1e13 ? 2 : 4));
  std::vector<std::string> rates(all.plans.size());
  std::vector<std::unique_ptr<Buffer>> before;
  Buffer sums(32, gpu), clocks(2 * static_cast<size_t>(gpu.units) * sizeof(long long), gpu);
  const double tiles = all.work / (10.0 * 64 * 128 * static_cast<double>(all.problem.head_dim));
  for (size_t i = 0; i < rates.size(); ++i)
    rates[i] = compare(*all.plans[i], i == 0, instances[i].find("ordered") != std::string::npos, all.args,
                       static_cast<double*>(sums.data()), before, gpu);
  in_turns(rates.size(), 2, [&](size_t i, int round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(40));  // a hot GPU is slower
    const double time_s = median_s([&] { all.plans[i]->backward(all.args, Stream{}); }, repeats);
    rates[i] += fmt::format("{}{:.0f}", round > 0 ? "," : " ", all.work / time_s * 1e-12);
  });
  // Runs for some 60 ms: a short run ends before the power limit takes effect.
  const int many = static_cast<int>(std::clamp(60e-3 * 500e12 / all.work, 1.0, 40.0));
  for (size_t i = 0; i < rates.size(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    const auto [cycles, rate] = cycles_of([&] { all.plans[i]->backward(all.args, Stream{}); }, many, tiles,
                                          gpu, static_cast<long long*>(clocks.data()));
    rates[i] += fmt::format("  {:5.0f} cycles a tile, {:4.0f} MHz ", cycles, rate);
  }
  print(c, rates, instances);
}

std::unique_ptr<bench::Nvml> nvml_of(const Device& gpu) {
  char pci_bus[32] = {};
  if (cudaDeviceGetPCIBusId(pci_bus, sizeof(pci_bus), gpu.index) != cudaSuccess) return nullptr;
  return bench::Nvml::open(pci_bus);
}

// Prints the mean TFLOP/s with its standard error, the lowest clock that was read, the mean power, and the
// energy of one pass (with emptying L2), as far as the device reports them. Many short turns, since a chip
// that warms up slows down by more than the differences of interest.
void time_hot(const Case& c, const std::vector<std::string>& instances, const Device& gpu) {
  constexpr int kRounds = 8;
  struct Found {
    std::vector<double> rates;  // FLOP/s in each round
    double clock_mhz = INFINITY, energy_j = 0, measured_s = 0;
  };
  const Timed all(c, instances, gpu);
  const std::unique_ptr<bench::Testbed> testbed = bench::make_cuda_testbed(gpu);
  const std::unique_ptr<bench::Stopwatch> stopwatch = testbed->stopwatch({}, true);
  const std::unique_ptr<bench::Nvml> nvml = nvml_of(gpu);
  const auto energy_j = [&] { return nvml ? nvml->energy_j() : -1; };
  const bool tells_energy = energy_j() >= 0;
  const bench::TimingRule rule{.warmup_s = 0.1, .budget_s = 0.2, .half_width = 0.001};
  std::vector<Found> found(all.plans.size());
  in_turns(found.size(), kRounds, [&](size_t i, int) {
    const auto run = [&] { all.plans[i]->backward(all.args, testbed->stream()); };
    const double begin_s = testbed->clock().now_s(), begin_j = energy_j();
    found[i].rates.push_back(all.work / bench::measure(run, *stopwatch, testbed->clock(), rule).median_s);
    found[i].energy_j += energy_j() - begin_j;
    found[i].measured_s += testbed->clock().now_s() - begin_s;
    if (const auto state = testbed->take_device_state())
      found[i].clock_mhz = std::min(found[i].clock_mhz, state->sm_clock_mhz[0]);
  });
  std::vector<std::string> lines;
  for (const Found& f : found) {
    double sum = 0, squares = 0;
    for (const double rate : f.rates) sum += rate, squares += rate * rate;
    const double mean = sum / kRounds, variance = squares / kRounds - mean * mean;
    lines.push_back(fmt::format("{:.1f} +- {:.1f}", mean * 1e-12,
                                std::sqrt(std::max(variance, 0.0) / (kRounds - 1)) * 1e-12));
    if (f.clock_mhz < INFINITY) lines.back() += fmt::format(" {:.0f} MHz", f.clock_mhz);
    if (tells_energy)
      lines.back() += fmt::format(" {:.0f} W {:.3f} J", f.energy_j / f.measured_s,
                                  f.energy_j / f.measured_s * all.work / mean);
  }
  print(c, lines, instances);
}

// For a profiler.
void run_once(const Case& c, const std::string& instance, const Device& gpu) {
  const Problem problem = problem_of(c);
  BackwardInShape plan(problem, shape_for(problem, instance, gpu.units), gpu);
  ProblemTensors tensors(problem, Direction::kBackward, gpu, plan);
  tensors.fill_inputs(7);
  tensors.forward(plan);
  tensors.backward(plan);
  cuda::synchronize(Stream{});
}

}  // namespace
}  // namespace longspan

int main(int argc, char** argv) {
  using namespace longspan;
  if (argc < 3) {
    std::printf("sm90_backward_probe check|time|hot chosen|ordered[,...] [regular expression]\n");
    return 2;
  }
  if (!no_cuda_reason().empty() || first_gpu().capability != 90) {
    std::printf("needs a GPU of compute capability 9.0\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Device gpu = first_gpu();
  const std::string what = argv[1];
  const bool once = what == "once", hot = what == "hot", timing = once || hot || what == "time";
  const std::regex filter(argc > 3 ? argv[3] : "");
  int failed = 0, ran = 0;
  std::vector<std::string> instances{""};
  for (const char* at = argv[2]; *at != 0; ++at)
    if (*at == '/')
      instances.emplace_back();
    else
      instances.back() += *at;
  try {
    for (const Case& c : timing ? large_cases() : small_cases()) {
      if (!std::regex_search(c.name, filter)) continue;
      ++ran;
      if (once)
        run_once(c, argv[2], gpu);
      else if (timing)
        (hot ? time_hot : time_rested)(c, instances, gpu);
      else
        for (const std::string& instance : instances)
          if (!check(c, instance, gpu, failed < 4)) ++failed;
    }
  } catch (const std::exception& error) {
    std::printf("stopped: %s\n", error.what());
    return 1;
  }
  if (!timing) std::printf("%s: %d of %d wrong\n", argv[2], failed, ran * static_cast<int>(instances.size()));
  return failed > 0;
}
