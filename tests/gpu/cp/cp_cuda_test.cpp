// Context parallelism on GPUs: row operations, the communicator of threads with messages in GPU memory, and
// every strategy with all ranks on one GPU, against the oracles.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include <gmock/gmock.h>

#include "attention/oracle/verify.h"
#include "base/backend.h"
#include "base/cuda/cuda.h"
#include "base/cuda/cuda_gate.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/rng.h"
#include "comm/nccl.h"
#include "comm/threads.h"
#include "cp/execute/parallel_kernel.h"
#include "cp/execute/rows.h"
#include "gpu/gpu.h"
#include "kernels/registry.h"
#include "tools/probes/occupation.h"
#include "unit/comm/conformance.h"
#include "unit/cp/problems.h"
#include "unit/cp/strategy_name.h"

namespace longspan {
namespace {

using std::chrono::milliseconds;

// NCCL takes more than 20 s to connect ranks while other programs keep all CPUs busy.
constexpr milliseconds kLimit = std::chrono::minutes(2);

std::vector<Device> all_gpus() {
  std::vector<Device> gpus;
  for (const Device& device : devices()) {
    if (device.kind == DeviceKind::kCuda) gpus.push_back(device);
  }
  return gpus;
}

TEST(ThreadRanksOnAGpu, Conform) {
  LONGSPAN_NEEDS_GPU();
  for (const auto& check : conformance::kChecks) {
    for (int ranks : {1, 2, 4}) {
      SCOPED_TRACE(fmt::format("{} on {} ranks", check.name, ranks));
      EXPECT_NO_THROW(run_thread_ranks(ranks, kLimit, [&](Communicator& communicator) {
        const Device gpu = first_gpu();
        backend_of(gpu.kind).use(gpu.index);
        const cuda::OwnedStream stream(gpu.index);
        check.run(communicator, {gpu, stream});
      }));
    }
  }
}

TEST(ThreadRanksOnSeveralGpus, Conform) {
  LONGSPAN_NEEDS_GPU();
  const std::vector<Device> gpus = all_gpus();
  if (gpus.size() < 2) GTEST_SKIP() << "one GPU";
  for (const auto& check : conformance::kChecks) {
    SCOPED_TRACE(check.name);
    EXPECT_NO_THROW(run_thread_ranks(static_cast<int>(gpus.size()), kLimit, [&](Communicator& communicator) {
      const Device& gpu = gpus[static_cast<size_t>(communicator.rank())];
      backend_of(gpu.kind).use(gpu.index);
      const cuda::OwnedStream stream(gpu.index);
      check.run(communicator, {gpu, stream});
    }));
  }
}

// The failure of each rank, if any. NCCL's ranks are threads, one per GPU.
std::vector<std::string> run_nccl_ranks(const std::vector<Device>& gpus,
                                        const std::function<void(Communicator&, const Device&)>& run) {
  auto ends = nccl_communicators(gpus, kLimit);
  std::vector<std::string> errors(gpus.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < gpus.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        backend_of(DeviceKind::kCuda).use(gpus[rank].index);
        run(*ends[rank], gpus[rank]);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
        ends[rank]->fail(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// On all GPUs. With one GPU, the rank communicates with itself.
TEST(NcclRanks, Conform) {
  LONGSPAN_NEEDS_GPU();
  if (const std::string reason = nccl_unavailable_reason(); !reason.empty()) GTEST_SKIP() << reason;
  const std::vector<Device> gpus = all_gpus();
  const auto conform = [](Communicator& communicator, const Device& gpu) {
    const cuda::OwnedStream stream(gpu.index);
    for (const auto& check : conformance::kChecks) check.run(communicator, {gpu, stream});
  };
  EXPECT_THAT(run_nccl_ranks(gpus, conform), testing::Each(""));
  std::printf("NCCL %s on %zu GPUs\n", nccl_version().c_str(), gpus.size());
}

// Whether an exchange ends while the kernel that follows it in the same stream occupies all multiprocessors.
// Both are queued before the stream starts, so that host time between them gives neither a head start.
bool travels_beside_a_kernel(Communicator& communicator, const Device& gpu, Channel channel) {
  const int ranks = communicator.size(), to = (communicator.rank() + 1) % ranks,
            from = (communicator.rank() + ranks - 1) % ranks;
  constexpr size_t kBytes = 32 << 20;
  const Buffer sent(kBytes, gpu), received(kBytes, gpu);
  const Message send{to, sent.data(), kBytes}, receive{from, received.data(), kBytes};
  const cuda::OwnedStream stream(gpu.index), other(gpu.index);
  bool arrived = false;
  CudaGate gate(gpu.index);
  for (const bool warm : {false, true}) {
    Occupation occupation;
    communicator.barrier();
    gate.shut(stream, 1);
    const auto transfer =
        communicator.exchange({&send, 1}, {&receive, 1}, stream, Meanwhile::kComputes, channel);
    if (warm) occupation.begin(stream);
    transfer->wait(other);
    communicator.barrier();
    gate.open();
    const auto deadline = std::chrono::steady_clock::now() + milliseconds(2000);
    do {
      arrived = cudaStreamQuery(cuda::raw(other)) == cudaSuccess;
    } while (!arrived && std::chrono::steady_clock::now() < deadline);
    occupation.end();
    communicator.synchronize(stream);
    communicator.synchronize(other);
  }
  return arrived;
}

TEST(NcclRanks, ExchangeWhileAKernelHasAllMultiprocessors) {
  LONGSPAN_NEEDS_GPU();
  if (const std::string reason = nccl_unavailable_reason(); !reason.empty()) GTEST_SKIP() << reason;
  const std::vector<Device> gpus = all_gpus();
  if (gpus.size() < 2) GTEST_SKIP() << "one GPU";
  for (const Channel channel : {Channel::kInputs, Channel::kResults}) {
    SCOPED_TRACE(static_cast<int>(channel));
    const auto errors = run_nccl_ranks(gpus, [&](Communicator& communicator, const Device& gpu) {
      LONGSPAN_CHECK(travels_beside_a_kernel(communicator, gpu, channel), "it waited for the kernel");
    });
    EXPECT_THAT(errors, testing::Each(""));
  }
}

TEST(NcclRanks, RefuseToShareAGpu) {
  LONGSPAN_NEEDS_GPU();
  if (const std::string reason = nccl_unavailable_reason(); !reason.empty()) GTEST_SKIP() << reason;
  const std::vector<Device> same{first_gpu(), first_gpu()};
  EXPECT_THROW(nccl_communicators(same, milliseconds(1000)), Error);
}

// A single process that is its only rank.
TEST(NcclRanks, MeetAsProcesses) {
  LONGSPAN_NEEDS_GPU();
  if (const std::string reason = nccl_unavailable_reason(); !reason.empty()) GTEST_SKIP() << reason;
  const auto communicator = nccl_communicator({"test", 0, 1, 0, "127.0.0.1", 29999}, first_gpu(), kLimit);
  const cuda::OwnedStream stream(first_gpu().index);
  for (const auto& check : conformance::kChecks)
    EXPECT_NO_THROW(check.run(*communicator, {first_gpu(), stream}));
}

// A tensor in both memories with equal contents, and its lse.
struct Twin {
  Twin(DType dtype, int64_t tokens, int64_t heads, int64_t head_dim, uint64_t stream)
      : bytes(static_cast<size_t>(tokens * heads * head_dim) * size_of(dtype)),
        lse_bytes(static_cast<size_t>(tokens * heads) * 4),
        host(bytes, cpu_device()),
        device(bytes, first_gpu()),
        host_lse(lse_bytes, cpu_device()),
        device_lse(lse_bytes, first_gpu()) {
    rows[0] = {DeviceKind::kCpu, TensorView::contiguous(host.data(), dtype, tokens, heads, head_dim),
               host_lse.as<float>(), tokens};
    rows[1] = {DeviceKind::kCuda, TensorView::contiguous(device.data(), dtype, tokens, heads, head_dim),
               device_lse.as<float>(), tokens};
    fill_normal(rows[0].tensor, 5, stream);
    fill_normal(TensorView::contiguous(host_lse.data(), DType::kF32, tokens, heads, 1), 5, stream + 100);
    for (int64_t i = 0; i < tokens * heads; i += 7) host_lse.as<float>()[i] = -INFINITY;
    copy_bytes(device.data(), DeviceKind::kCuda, host.data(), DeviceKind::kCpu, bytes);
    copy_bytes(device_lse.data(), DeviceKind::kCuda, host_lse.data(), DeviceKind::kCpu, lse_bytes);
  }

  // The largest difference between GPU and CPU; infinite if only one of the two values is finite.
  double difference() const {
    Buffer copy(bytes, cpu_device()), copy_lse(lse_bytes, cpu_device());
    copy_bytes(copy.data(), DeviceKind::kCpu, device.data(), DeviceKind::kCuda, bytes);
    copy_bytes(copy_lse.data(), DeviceKind::kCpu, device_lse.data(), DeviceKind::kCuda, lse_bytes);
    TensorView view = rows[0].tensor;
    double most = 0;
    const auto note = [&](double a, double b) {
      if (a == b) return;
      const double gap = std::abs(a - b);
      most = std::max(most, std::isfinite(gap) ? gap : INFINITY);
    };
    for (int64_t i = 0; i < view.elements(); ++i) {
      switch (view.dtype) {
        case DType::kF32:
          note(host.as<float>()[i], copy.as<float>()[i]);
          break;
        case DType::kBF16:
          note(to_float(host.as<bf16>()[i]), to_float(copy.as<bf16>()[i]));
          break;
        default:
          note(to_float(host.as<f16>()[i]), to_float(copy.as<f16>()[i]));
      }
    }
    for (int64_t i = 0; i < view.tokens * view.heads; ++i)
      note(host_lse.as<float>()[i], copy_lse.as<float>()[i]);
    return most;
  }

  size_t bytes, lse_bytes;
  Buffer host, device, host_lse, device_lse;
  Rows rows[2];
};

TEST(RowsOnAGpu, EqualThoseOfTheCpu) {
  LONGSPAN_NEEDS_GPU();
  constexpr int64_t kTokens = 2000, kHeads = 3;
  std::mt19937 random(1);
  // More spans than one launch takes; rows of `to` are each written once.
  std::vector<RowSpan> spans;
  for (int64_t at = 0; at + 12 < kTokens;) {
    const auto rows = static_cast<int64_t>(random() % 12);
    spans.push_back({at, kTokens - at - rows, rows});
    at += rows + static_cast<int64_t>(random() % 3);
  }
  ASSERT_GT(spans.size(), 256u);
  const DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  for (RowOperation operation :
       {RowOperation::kCopy, RowOperation::kAdd, RowOperation::kMerge, RowOperation::kClear}) {
    const bool sums = operation == RowOperation::kAdd || operation == RowOperation::kMerge;
    for (DType out : kTypes) {
      if (sums && out != DType::kF32) continue;
      for (DType in : kTypes) {
        for (int64_t head_dim : {64, 30}) {  // with vectors and without
          SCOPED_TRACE(fmt::format("operation {} {} from {}, head_dim {}", static_cast<int>(operation),
                                   name_of(out), name_of(in), head_dim));
          Twin to(out, kTokens, kHeads, head_dim, 1), from(in, kTokens, kHeads, head_dim, 2);
          for (int side : {0, 1}) apply(operation, to.rows[side], from.rows[side], spans, {});
          EXPECT_LT(to.difference(), 2e-6);
        }
      }
    }
  }
}

// Where ranks run, and how they communicate.
struct Way {
  const char* name;
  std::vector<Device> gpus;
  MakeCommunicators communicators;
};

Way one_gpu() {
  return {"one GPU", {first_gpu()}, [](std::span<const Device> devices, milliseconds limit) {
            return thread_communicators(static_cast<int>(devices.size()), limit);
          }};
}

// All ranks on one GPU. With several GPUs, also one rank per GPU, by copies and by NCCL, whose setup is slow.
std::vector<Way> ways(int ranks, bool with_nccl) {
  std::vector<Way> ways{one_gpu()};
  std::vector<Device> gpus = all_gpus();
  if (gpus.size() < 2) return ways;
  if (gpus.size() > static_cast<size_t>(ranks)) gpus.resize(static_cast<size_t>(ranks));
  ways.push_back({"several GPUs", gpus, ways.front().communicators});
  if (with_nccl && gpus.size() == static_cast<size_t>(ranks) && nccl_unavailable_reason().empty())
    ways.push_back({"several GPUs by NCCL", gpus, nccl_communicators});
  return ways;
}

std::unique_ptr<Kernel> over(const Way& way, const Kernel& kernel, const Strategy& strategy, int ranks) {
  ParallelOptions options;
  options.strategy = &strategy;
  options.topology = {1, ranks};
  options.devices = way.gpus;
  options.limit = kLimit;
  options.communicators = way.communicators;
  return parallel_kernel(kernel, std::move(options));
}

std::unique_ptr<Kernel> over_one_gpu(const Kernel& kernel, const Strategy& strategy, int ranks) {
  return over(one_gpu(), kernel, strategy, ranks);
}

class StrategiesOnAGpu : public testing::TestWithParam<Strategy> {};

// The plain kernel and those that merge with a partial result, of those that this build has.
std::vector<const Kernel*> plain_and_merging() {
  std::vector<const Kernel*> found;
  for (const Kernel* kernel : kernels()) {
    if (kernel->name() == "gpu-naive" || kernel->name() == "portable" || kernel->name() == "sm90")
      found.push_back(kernel);
  }
  return found;
}

TEST_P(StrategiesOnAGpu, GiveTheOraclesResult) {
  LONGSPAN_NEEDS_GPU();
  const Device gpu = first_gpu();
  int cases = 0;
  for (const Kernel* found : plain_and_merging()) {
    const Kernel& kernel = *found;
    const std::string_view name = kernel.name();
    for (const char* mask : {"causal", "causal_document", "share_question", "uniform_block_sparse"}) {
      for (int ranks : {2, 4}) {
        Problem problem = cp_problem(mask, 1024, 8, 4, 64);
        problem.dtype = DType::kBF16;
        problem.lse_gradient = mask == std::string_view("share_question");
        for (const Way& way : ways(ranks, name == "sm90" && mask == std::string("causal_document"))) {
          const auto spread_kernel = over(way, kernel, GetParam(), ranks);
          Direction direction = Direction::kBackward;
          if (!spread_kernel->supports(problem, direction, gpu)) direction = Direction::kForward;
          if (!spread_kernel->supports(problem, direction, gpu)) continue;
          SCOPED_TRACE(fmt::format("{} {} {} on {} ranks, {}, {}", name, GetParam().name, mask, ranks,
                                   way.name, name_of(direction)));
          try {
            const std::unique_ptr<Plan> plan = spread_kernel->plan(problem, gpu);
            VerifyOptions options;
            const VerifyReport report = verify(*plan, problem, direction, gpu, options);
            EXPECT_EQ(report.failure, "");
            // Run again as the runner does, and check the time breakdown.
            auto& spread = dynamic_cast<ParallelPlan&>(*plan);
            for (int repeat = 0; repeat < 2; ++repeat) {
              for (const RankPass& pass : spread.run(direction, true)) {
                const PassTimes& t = pass.times;
                EXPECT_GT(t.compute_s, 0);
                EXPECT_LE(t.compute_s + t.exposed_s + t.reorder_s + t.merge_s, 1.05 * pass.time_s + 1e-5);
              }
            }
          } catch (const std::exception& error) {
            ADD_FAILURE() << error.what();
          }
          ++cases;
        }
      }
    }
  }
  EXPECT_GT(cases, 0);
}

INSTANTIATE_TEST_SUITE_P(All, StrategiesOnAGpu, testing::ValuesIn(strategies().begin(), strategies().end()),
                         strategy_name);

// Ranks that attend at once must find all of their tokens, in repeated runs after other tensors.
TEST(RanksOnAGpu, ReadNoDataBeforeItArrives) {
  LONGSPAN_NEEDS_GPU();
  const Device gpu = first_gpu();
  Problem problem = cp_problem("full", 8192, 4, 4, 128);
  problem.dtype = DType::kBF16;
  for (const Kernel* found : plain_and_merging()) {
    const Kernel& kernel = *found;
    const std::string_view name = kernel.name();
    for (const char* strategy : {"balanced", "ring-p2p"}) {
      for (const Way& way : ways(4, false)) {
        const auto spread_kernel = over(way, kernel, strategy_from_name(strategy), 4);
        if (!spread_kernel->supports(problem, Direction::kForward, gpu)) continue;
        const auto plan = spread_kernel->plan(problem, gpu);
        ProblemTensors random(problem, Direction::kForward, gpu, *plan),
            counted(problem, Direction::kForward, gpu, *plan);
        random.fill_inputs(3);
        for (int repeat = 0; repeat < 8; ++repeat) {
          random.forward(*plan);
          ASSERT_EQ(counting_forward(*plan, problem, counted), "")
              << name << " " << strategy << ", " << way.name << ", repeat " << repeat;
        }
      }
    }
  }
}

TEST(RanksOnAGpu, EndTogetherWhenOneFails) {
  LONGSPAN_NEEDS_GPU();
  const Problem problem = cp_problem("causal", 512, 8, 4, 64);
  const auto spread_kernel = over_one_gpu(kernel_from_name("gpu-naive"), strategy_from_name("ring-p2p"), 3);
  const auto plan = spread_kernel->plan(problem, first_gpu());
  Buffer memory(size_t{1} << 22, first_gpu());
  const auto view = [&](int64_t heads) {
    return TensorView::contiguous(memory.data(), DType::kF32, 512, heads, 64);
  };
  ForwardArgs args{view(8), view(4), view(4), view(8), nullptr, nullptr};
  args.q.dtype = DType::kF64;  // refused on every rank, so that none blocks
  EXPECT_THROW(plan->forward(args, {}), Error);
}

}  // namespace
}  // namespace longspan
