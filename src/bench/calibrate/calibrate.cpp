// All ranks measure at once, as they work at once: what they share, such as a memory or a core's two hardware
// threads, is in the figures. On the CPU each rank has one thread, as in the executor, and the least time
// counts: perhaps of a moment at which the other ranks had been taken off their cores.
#include "bench/calibrate/calibrate.h"

#include <algorithm>
#include <ctime>
#include <numeric>
#include <span>

#include "attention/tensors.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/parse.h"
#include "bench/calibrate/fit.h"
#include "bench/measure/parallel_measure.h"
#include "bench/measure/statistics.h"
#include "bench/spec/values.h"
#include "comm/mpi.h"
#include "comm/nccl.h"
#include "comm/threads.h"
#include "cp/execute/rows.h"
#include "mask/patterns/patterns.h"

namespace longspan::bench {
namespace {

using record::Json;

constexpr std::chrono::milliseconds kWaitLimit{120000};
constexpr size_t kSmallest = 64 << 10, kLargest = 256 << 20;  // messages
constexpr size_t kAligned = 256;                              // bytes
constexpr double kFewest = 3, kMost = 50;                     // samples

// The tiles that a kernel's planner makes. A kernel that is not named here gets square ones.
struct Tiling {
  std::string_view kernel;
  KernelPassCost forward, backward;
};
constexpr KernelPassCost tiles(int64_t rows, int64_t keys, int64_t pack) {
  KernelPassCost pass;
  pass.tile_rows = rows, pass.tile_keys = keys, pass.most_pack = pack;
  return pass;
}
constexpr Tiling kTilings[] = {
    {"cpu-flash", tiles(256, 16, 256), tiles(256, 16, 256)},  // kRows and kKeyStep of kernels/cpu/flash_plan
    {"sm90", tiles(128, 16, 8), tiles(64, 128, 1)},
    {"", tiles(128, 128, 1), tiles(128, 128, 1)},
};
const Tiling& tiling_of(std::string_view kernel) {
  return *std::find_if(std::begin(kTilings), std::end(kTilings),
                       [&](const Tiling& t) { return t.kernel == kernel || t.kernel.empty(); });
}

// One rank: its device, and its end of the group.
class Rank {
 public:
  Rank(const Workbench& workbench, const Calibration& calibration, Communicator& group, const Device& device)
      : workbench_(workbench),
        c_(calibration),
        group_(group),
        device_(device),
        testbed_(workbench.testbed(device)) {}

  Json run() {
    Json machine = c_.start;
    if (machine.is_null()) {
      machine = {{"name", c_.machine}, {"gpus_per_node", c_.topology.devices}};
      machine["kernels"][std::string(c_.kernel->name())] = kernel();
      machine["clock"] = {{"burst", figure(1, "default", "not measured: no change")},
                          {"sustained", figure(1, "default", "not measured: no change")},
                          {"settle_s", figure(1, "default", "not measured: no change")}};
      machine["memory"] = memory();
    }
    machine["links"][std::string(name_of(c_.transport))] = links();
    return machine;
  }

 private:
  bool on_cpu() const { return device_.kind == DeviceKind::kCpu; }
  std::string measured_on() const {
    return fmt::format("calibrate on {} ranks of {}", group_.size(), device_.name);
  }
  void say(const std::string& text) const {
    if (group_.rank() == 0 && c_.progress) c_.progress(text);
  }

  // Every rank's values, on every rank: rank 0's, then rank 1's, and so on.
  std::vector<double> of_all(const std::vector<double>& mine) {
    const auto ranks = static_cast<size_t>(group_.size());
    const size_t bytes = mine.size() * sizeof(double);
    const Buffer send(bytes, device_), receive(bytes * ranks, device_);
    copy_bytes(send.data(), device_.kind, mine.data(), DeviceKind::kCpu, bytes);
    group_.all_gather(send.data(), receive.data(), bytes, testbed_->stream());
    group_.synchronize(testbed_->stream());
    std::vector<double> all(mine.size() * ranks);
    copy_bytes(all.data(), DeviceKind::kCpu, receive.data(), device_.kind, bytes * ranks);
    return all;
  }

  // What a rank does by itself, of which the mean over the ranks counts, or with others: then each sample is
  // the slowest rank's.
  enum class Kind { kAlone, kTogether };

  // On the CPU a rank alone is timed by its thread's processor time, so that other programs do not count.
  double now_s(Kind kind) {
    if (!on_cpu() || kind == Kind::kTogether) return testbed_->clock().now_s();
    timespec time{};
    LONGSPAN_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0, "no clock of the thread");
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  // The time of work that all ranks begin together. On a GPU the median of the samples; on the CPU the least,
  // because other programs take turns with the ranks.
  double time_of(const Work& work, Kind kind, const Work& before = {}) {
    const auto sample = [&] {
      if (before) before();
      group_.barrier();
      const double begin_s = now_s(kind);
      work();
      testbed_->synchronize();
      return now_s(kind) - begin_s;
    };
    sample();  // the first run has other costs
    const std::vector<double> first = of_all({sample()});
    const double first_s = *std::max_element(first.begin(), first.end());
    LONGSPAN_CHECK_INPUT(first_s > 0, "a measurement took {} s by the clock: it must be more than 0",
                         first_s);
    const double count = std::clamp(c_.budget_s / first_s, kFewest, kMost);
    std::vector<double> mine;
    while (static_cast<double>(mine.size()) < count) mine.push_back(sample());
    const auto typical = [&](const std::vector<double>& times) {
      return on_cpu() ? *std::min_element(times.begin(), times.end()) : median(times);
    };
    if (kind == Kind::kAlone) {
      const std::vector<double> times = of_all({typical(mine)});
      return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
    }
    const std::vector<double> all = of_all(mine);
    for (size_t i = 0; i < all.size(); ++i) {
      double& slowest = mine[i % mine.size()];
      slowest = std::max(slowest, all[i]);
    }
    return typical(mine);
  }

  Problem problem_of(std::string_view mask, int64_t tokens) const {
    PatternOptions options;
    options.seqlen = tokens;
    Problem problem;
    problem.tokens_q = problem.tokens_kv = tokens;
    problem.heads_q = c_.heads_q, problem.heads_kv = c_.heads_kv, problem.head_dim = c_.head_dim;
    problem.dtype = c_.dtype;
    problem.masks = std::make_shared<const HeadMasks>(draw_mask(mask, options).masks);
    problem.check();
    return problem;
  }

  // A pass of the kernel that can be run again and again.
  class Pass {
   public:
    Pass(const Kernel& kernel, const Problem& problem, Direction direction, const Device& device)
        : plan_(kernel.plan(problem, device)),
          tensors_(problem, Direction::kBackward, device, *plan_),
          workspace_(std::max<size_t>(256, plan_->workspace_bytes(direction)), device),
          forward_(direction == Direction::kForward) {
      tensors_.fill_inputs(1);
      tensors_.forward(*plan_);
    }
    void run(Stream stream) {
      const DeviceTensors& t = tensors_.views();
      void* const memory = workspace_.data();
      if (forward_) {
        plan_->forward({t.q, t.k, t.v, t.o, t.lse, memory}, stream);
      } else {
        plan_->backward({t.q, t.k, t.v, t.o, t.dout, t.lse, t.dq, t.dk, t.dv, memory}, stream);
      }
    }

   private:
    std::unique_ptr<Plan> plan_;
    ProblemTensors tensors_;
    Buffer workspace_;
    bool forward_;
  };

  double time_of_pass(const Problem& problem, Direction direction) {
    Pass pass(*c_.kernel, problem, direction, device_);
    return time_of([&] { pass.run(testbed_->stream()); }, Kind::kAlone);
  }

  Json kernel() {
    const Problem smallest = problem_of("full", 128);
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      const Support support = c_.kernel->supports(smallest, direction, device_);
      LONGSPAN_CHECK_INPUT(support, "{} {}", c_.kernel->name(), support.reason);
    }
    int64_t most = 512;
    while (4 * time_of_pass(problem_of("full", most), Direction::kForward) < c_.budget_s / 4 &&
           most < 1 << 17)
      most *= 2;
    const int64_t units = on_cpu() ? 1 : device_.units;
    Json json = {{"units", units}, {"dtypes", {name_of(c_.dtype)}}, {"head_dims", {c_.head_dim}}};
    const Tiling& tiling = tiling_of(c_.kernel->name());
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      KernelPassCost pass = direction == Direction::kForward ? tiling.forward : tiling.backward;
      std::vector<KernelSample> samples;
      for (const std::string_view mask : {"full", "causal", "sliding_window_causal", "causal_document"}) {
        for (int64_t tokens = most; tokens >= most / 8; tokens /= 2) {
          say(fmt::format("{} {}, {} {}", c_.kernel->name(), name_of(direction), mask,
                          format_length(tokens)));
          const Problem problem = problem_of(mask, tokens);
          samples.push_back({tile_work(*problem.masks, problem.heads_q, problem.heads_kv, pass), c_.head_dim,
                             time_of_pass(problem, direction)});
        }
      }
      const Residual residual = fit_kernel(samples, units, pass);
      const auto fitted = [&](double value) {
        return figure(value, "measured",
                      fmt::format("fitted to {} problems of {} to {}, {}; the largest error is {:.1f} %",
                                  samples.size(), format_length(most / 8), format_length(most), measured_on(),
                                  100 * residual.largest),
                      residual.mean);
      };
      json[std::string(name_of(direction))] = {
          {"tile_rows", pass.tile_rows},
          {"tile_keys", pass.tile_keys},
          {"most_pack", pass.most_pack},
          {"tile_s", fitted(pass.tile_s)},
          {"row_tile_s", fitted(pass.row_tile_s)},
          {"key_tile_s", fitted(pass.key_tile_s)},
          {"launch_s", fitted(pass.launch_s)},
          {"tail", units == 1 ? figure(0, "default", "nothing to wait for: one unit") : fitted(pass.tail)}};
    }
    return json;
  }

  // Packing, converting, adding, and merging with lse.
  Json memory() {
    std::vector<LineSample> samples;
    for (const int64_t tokens : {2048, 4096, 8192, 16384}) {  // more than caches hold
      say(fmt::format("packing and merging, {}", format_length(tokens)));
      const int64_t heads = c_.heads_q, dim = c_.head_dim;
      const auto rows_of = [&](DType dtype, std::vector<Buffer>& buffers, bool with_lse) {
        Rows rows{device_.kind, TensorView::contiguous(nullptr, dtype, tokens, heads, dim)};
        for (const size_t bytes :
             {rows.tensor.bytes(), static_cast<size_t>(tokens * heads) * sizeof(float)}) {
          buffers.emplace_back(bytes, device_);
          fill_bytes(buffers.back().data(), device_.kind, 0, bytes);
        }
        rows.tensor.data = buffers[buffers.size() - 2].data();
        if (with_lse) rows.lse = buffers.back().as<float>(), rows.lse_stride = tokens;
        return rows;
      };
      std::vector<Buffer> buffers;
      const RowSpan all{0, 0, tokens};
      const auto elements = static_cast<double>(tokens * heads * dim), f32 = 4.0;
      const auto element = static_cast<double>(size_of(c_.dtype));
      const auto add = [&](RowOperation operation, DType to, DType from, bool lse, double bytes) {
        const Rows target = rows_of(to, buffers, lse), source = rows_of(from, buffers, lse);
        const double time_s = time_of(
            [&] {
              apply(operation, target, source, {&all, 1}, testbed_->stream());
            },
            Kind::kAlone);
        samples.push_back({bytes * elements, time_s});
      };
      add(RowOperation::kCopy, c_.dtype, c_.dtype, false, 2 * element);
      add(RowOperation::kCopy, c_.dtype, DType::kF32, false, element + f32);
      add(RowOperation::kAdd, DType::kF32, DType::kF32, false, 3 * f32);
      add(RowOperation::kMerge, DType::kF32, DType::kF32, true, 3 * f32);
    }
    const Line line = fit_line(samples);
    const std::string source =
        fmt::format("fitted to {} copies, conversions, sums and merges, {}", samples.size(), measured_on());
    return {{"bytes_per_s", figure(line.bytes_per_s, "measured", source, line.residual.mean)},
            {"operation_s", figure(line.latency_s, "measured", source, line.residual.mean)}};
  }

  // Each rank sends to the ranks `steps` further within `group` ranks, and receives from those before: equal
  // shares of all bytes. `alone`, if given, is what the same exchanges take while the device has nothing else
  // to do; then a kernel runs beside them, in another stream and for longer.
  Line exchanges(int group, const std::vector<int>& steps, const Line* alone = nullptr) {
    const int rank = group_.rank(), first = rank / group * group, at = rank - first;
    std::unique_ptr<Testbed> beside;
    std::unique_ptr<Pass> pass;
    double pass_s = 0;
    if (alone != nullptr) {
      beside = workbench_.testbed(device_);
      pass = std::make_unique<Pass>(*c_.kernel, problem_of("full", 4096), Direction::kForward, device_);
      pass_s = time_of([&] { pass->run(testbed_->stream()); }, Kind::kTogether);
    }
    std::vector<LineSample> samples;
    for (size_t bytes = kSmallest; bytes <= kLargest; bytes *= 4) {
      const size_t share = bytes / steps.size() / kAligned * kAligned;
      const auto size = static_cast<double>(share * steps.size());
      say(fmt::format("links, {}{}{}", format_bytes(size), steps.size() > 1 ? " to all others" : "",
                      alone != nullptr ? " beside a kernel" : ""));
      const Buffer out(bytes, device_), in(bytes, device_);
      fill_bytes(out.data(), device_.kind, 1, bytes);
      fill_bytes(in.data(), device_.kind, 0, bytes);
      std::vector<Message> sent, received;
      for (size_t i = 0; i < steps.size(); ++i) {
        sent.push_back({first + (at + steps[i]) % group, out.as<char>() + i * share, share});
        received.push_back({first + (at + group - steps[i]) % group, in.as<char>() + i * share, share});
      }
      const auto exchange = [&] {
        group_.exchange(sent, received, testbed_->stream())->wait(testbed_->stream());
        group_.synchronize(testbed_->stream());
      };
      Work load;
      if (alone != nullptr) {
        const double needed_s = 2 * (alone->latency_s + size / alone->bytes_per_s);
        const auto passes = static_cast<int64_t>(needed_s / pass_s) + 1;
        load = [&beside, &pass, passes] {
          beside->synchronize();
          for (int64_t i = 0; i < passes; ++i) pass->run(beside->stream());
        };
      }
      samples.push_back({size, time_of(exchange, Kind::kTogether, load)});
    }
    if (beside) beside->synchronize();
    return fit_line(samples);
  }

  // A port may carry more to several ranks than to one. Then what it carries to one is the limit of a flow.
  void add_all_to_all(Json& json, const std::string& prefix, const Line& one, int group) {
    std::vector<int> steps;
    for (int i = 1; i < group; ++i) steps.push_back(i);
    const Line all = exchanges(group, steps);
    if (all.bytes_per_s <= one.bytes_per_s) return;
    json["flow_bytes_per_s"] = json[prefix + "bytes_per_s"];
    json[prefix + "bytes_per_s"] =
        figure(all.bytes_per_s, "measured",
               fmt::format("{} to {} from each rank to all {} others, {}", format_bytes(double{kSmallest}),
                           format_bytes(double{kLargest}), group - 1, measured_on()),
               all.residual.mean);
  }

  Json links() {
    const Topology& t = c_.topology;
    Json json = {{"takes_rows", group_.takes_rows()}, {"receiver_copies", on_cpu()}};
    const auto add = [&](const std::string& prefix, const Line& line, const std::string& what) {
      const std::string source = fmt::format("{} to {} around {}, {}", format_bytes(double{kSmallest}),
                                             format_bytes(double{kLargest}), what, measured_on());
      json[prefix + "bytes_per_s"] = figure(line.bytes_per_s, "measured", source, line.residual.mean);
      if (prefix != "beside_")
        json[prefix == "port_" ? "latency_s" : prefix + "latency_s"] =
            figure(line.latency_s, "measured", source, line.residual.mean);
    };
    if (t.devices > 1) {
      const Line alone = exchanges(t.devices, {1});
      add("port_", alone, "the ranks of a node");
      if (t.devices > 2) add_all_to_all(json, "port_", alone, t.devices);
      if (on_cpu()) {
        json["beside_bytes_per_s"] =
            figure(alone.bytes_per_s, "default",
                   "as alone: a rank of the CPU copies when it has nothing to compute");
      } else {
        add("beside_", exchanges(t.devices, {1}, &alone), "the ranks of a node, beside a kernel");
      }
    }
    json["kernel_slowdown"] =
        figure(0, "default",
               on_cpu() ? "a rank of the CPU copies when it has nothing to compute" : "not measured: none");
    if (t.nodes > 1) {
      const Line between = exchanges(group_.size(), {t.devices});
      add("interface_", between, "the nodes");
      if (t.devices == 1 && t.nodes > 2) add_all_to_all(json, "interface_", between, t.nodes);
      json["ranks_per_interface"] = 1;
      json["oversubscription"] = figure(1, "default", "not measured: a network without oversubscription");
      if (t.devices == 1) {
        const std::string source = "as between nodes: a node has one rank";
        const double port = json["interface_bytes_per_s"]["value"].get<double>();
        json["port_bytes_per_s"] = figure(port, "default", source);
        json["beside_bytes_per_s"] = figure(port, "default", source);
        json["latency_s"] = figure(between.latency_s, "default", source);
      }
    }
    return json;
  }

  const Workbench& workbench_;
  const Calibration& c_;
  Communicator& group_;
  const Device device_;
  const std::unique_ptr<Testbed> testbed_;
};

std::vector<Device> devices_of(const Workbench& workbench, const Kernel& kernel) {
  std::vector<Device> list;
  for (const Device& device : workbench.devices()) {
    if (device.kind == kernel.device_kind()) list.push_back(device);
  }
  LONGSPAN_CHECK_INPUT(!list.empty(), "there is no device for {}", kernel.name());
  return list;
}

}  // namespace

Json figure(double value, std::string_view origin, const std::string& source, double residual) {
  Json json = {{"value", value == 0 ? 0.0 : std::stod(fmt::format("{:.4g}", value))},
               {"origin", origin},
               {"source", source}};
  if (residual >= 0) json["residual"] = std::stod(fmt::format("{:.2g}", residual));
  return json;
}

Json calibrate(const Workbench& workbench, const Calibration& c) {
  const std::vector<Device> devices = devices_of(workbench, *c.kernel);
  const bool gpus = c.kernel->device_kind() == DeviceKind::kCuda;
  check_transport(*c.kernel, c.transport);
  LONGSPAN_CHECK_INPUT(c.topology.ranks() > 1,
                       "1 rank has no links to measure; give --topology with two devices or more, or take "
                       "links from nccl-tests with --from and --nccl-tests");
  const auto run = [&](Communicator& group) {
    const size_t on_node = static_cast<size_t>(group.rank() % c.topology.devices);
    const Device& device = devices[on_node % devices.size()];
    const AloneScope alone;  // ranks do not share a thread pool
    return Rank(workbench, c, group, device).run();
  };
  Parallelism parallelism;
  parallelism.strategy = "ring-p2p";  // any: without one a case has no ranks
  parallelism.ranks = c.topology.ranks();
  parallelism.transport = c.transport;
  if (const std::optional<Launch> launch = launch_of_processes(parallelism)) {
    LONGSPAN_CHECK_INPUT(launch->ranks == c.topology.ranks(), "{} started {} processes; --topology says {}",
                         launch->launcher, launch->ranks, c.topology.ranks());
    const Device& device = devices[static_cast<size_t>(launch->local_rank) % devices.size()];
    const auto group = gpus ? nccl_communicator(*launch, device, kWaitLimit) : mpi_communicator(kWaitLimit);
    Json machine = run(*group);
    return group->rank() == 0 ? machine : Json();
  }
  LONGSPAN_CHECK_INPUT(c.transport != Transport::kMpi,
                       "ranks over MPI are processes; start them with mpirun -n {}", c.topology.ranks());
  expect_one_process("the ranks are threads");
  LONGSPAN_CHECK_INPUT(c.topology.nodes == 1,
                       "ranks on {} nodes are processes; start them with torchrun or mpirun",
                       c.topology.nodes);
  Json machine;
  const auto body = [&](Communicator& group) {
    Json mine = run(group);
    if (group.rank() == 0) machine = std::move(mine);
  };
  if (c.transport == Transport::kNccl) {
    check_gpu_for_each_rank(devices.size(), c.topology.ranks());
    const auto ends =
        nccl_communicators(std::span(devices).first(static_cast<size_t>(c.topology.ranks())), kWaitLimit);
    std::vector<Communicator*> list;
    list.reserve(ends.size());
    for (const auto& end : ends) list.push_back(end.get());
    run_on_threads(list, body);
  } else {
    run_thread_ranks(c.topology.ranks(), kWaitLimit, body);
  }
  return machine;
}

void take_nccl_tests(Json& machine, const std::string& text, const std::string& source, bool between_nodes) {
  const Line line = fit_line(read_nccl_tests(text));
  Json& links = machine["links"]["nccl"];
  if (links.is_null())
    links = {{"takes_rows", false}, {"kernel_slowdown", figure(0, "default", "not measured: none")}};
  const auto measured = [&](double value) { return figure(value, "measured", source, line.residual.mean); };
  if (between_nodes) {
    links["interface_bytes_per_s"] = measured(line.bytes_per_s);
    links["interface_latency_s"] = measured(line.latency_s);
    if (!links.contains("ranks_per_interface")) links["ranks_per_interface"] = 1;
    if (!links.contains("oversubscription"))
      links["oversubscription"] = figure(1, "default", "not measured: a network without oversubscription");
    return;
  }
  links["port_bytes_per_s"] = measured(line.bytes_per_s);
  links["beside_bytes_per_s"] =
      figure(line.bytes_per_s, "default", "as alone: nccl-tests run no kernel beside");
  links["latency_s"] = measured(line.latency_s);
}

}  // namespace longspan::bench
