// Plans of sm90 that are run, destroyed or captured while their upload or other calls are in flight.
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "attention/tensors.h"
#include "base/cuda/cuda.h"
#include "base/cuda/cuda_gate.h"
#include "base/rng.h"
#include "hopper.h"
#include "kernels/sm90/forward/plan.h"
#include "mask/patterns/patterns.h"

namespace longspan {
namespace {

using sm90::ForwardPlan;

// Problems whose plans are equal in size and differ in content.
Problem problem_of(int index) {
  constexpr int64_t kTokens = 4096;
  PatternOptions options;
  options.seqlen = kTokens;
  options.lengths = "uniform:50:500";
  options.index = index / 3;
  constexpr const char* kPatterns[] = {"causal_document", "share_question", "sliding_window_causal"};
  options.values.set("window", TokenPair{100 + 37 * index, {}});
  Problem p;
  p.masks = std::make_shared<const HeadMasks>(draw_mask(kPatterns[index % 3], options).masks);
  p.tokens_q = p.tokens_kv = kTokens;
  p.heads_q = 8;
  p.heads_kv = 1;
  p.head_dim = 128;
  p.dtype = DType::kBF16;
  return p;
}

// The tensors of one problem, and its stream.
class Bench {
 public:
  explicit Bench(const Device& gpu) : gpu_(gpu), stream_(gpu.index) {
    const Problem p = problem_of(0);
    const auto tensor = [&](int64_t heads) {
      TensorView view = TensorView::contiguous(nullptr, p.dtype, p.tokens_q, heads, p.head_dim);
      buffers_.emplace_back(view.bytes(), gpu);
      view.data = buffers_.back().data();
      return view;
    };
    args_.q = tensor(p.heads_q), args_.k = tensor(p.heads_kv), args_.v = tensor(p.heads_kv);
    args_.o = tensor(p.heads_q);
    buffers_.emplace_back(static_cast<size_t>(p.heads_q * p.tokens_q) * sizeof(float), gpu);
    args_.lse = buffers_.back().as<float>();
    const TensorView inputs[] = {args_.q, args_.k, args_.v};
    for (uint64_t i = 0; i < 3; ++i) fill_normal(inputs[i], 5, i, gpu);
  }

  cudaStream_t stream() const { return cuda::raw(stream_); }
  void poison() {
    cuda::fill_async(args_.o.data, 0xff, args_.o.bytes(), stream_);
    cuda::fill_async(args_.lse, 0xff, lse_bytes(), stream_);
    cuda::synchronize(stream_);
  }
  // To be called before run(), which must not allocate.
  void provide_workspace(const ForwardPlan& plan) {
    if (workspace_.bytes() < plan.workspace_bytes()) workspace_ = Buffer(plan.workspace_bytes(), gpu_);
    args_.workspace = workspace_.data();
  }
  void run(ForwardPlan& plan, const Problem& problem) { plan.run(problem, args_, gpu_, stream_); }
  std::vector<char> bytes() {
    std::vector<char> all(lse_bytes() + args_.o.bytes());
    cuda::copy_async(all.data(), args_.lse, lse_bytes(), stream_);
    cuda::copy_async(all.data() + lse_bytes(), args_.o.data, args_.o.bytes(), stream_);
    cuda::synchronize(stream_);
    return all;
  }

 private:
  size_t lse_bytes() const { return buffers_.back().bytes(); }

  Device gpu_;
  cuda::OwnedStream stream_;
  std::vector<Buffer> buffers_;
  Buffer workspace_;
  ForwardArgs args_;
};

// The outputs of the first problems with a synchronisation after every step.
std::vector<std::vector<char>> right_bytes(const Device& gpu, int count) {
  std::vector<std::vector<char>> all;
  Bench bench(gpu);
  for (int i = 0; i < count; ++i) {
    const Problem problem = problem_of(i);
    ForwardPlan plan(problem, gpu);
    bench.provide_workspace(plan);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    bench.poison();
    bench.run(plan, problem);
    all.push_back(bench.bytes());
    if (i > 0) EXPECT_NE(all[static_cast<size_t>(i)], all[0]) << "the problems do not differ";
  }
  return all;
}

TEST(Sm90Upload, RunsAtOnceInAnyStream) {
  LONGSPAN_NEEDS_HOPPER();
  const Device gpu = first_gpu();
  constexpr int kProblems = 6;
  const auto right = right_bytes(gpu, kProblems);
  Bench a(gpu), b(gpu);
  for (int i = 0; i < 20 * kProblems; ++i) {
    const Problem problem = problem_of(i % kProblems);
    a.poison();
    b.poison();
    ForwardPlan plan(problem, gpu);
    a.provide_workspace(plan);
    b.provide_workspace(plan);
    a.run(plan, problem);
    if (a.bytes() != right[static_cast<size_t>(i % kProblems)]) FAIL() << "plan " << i;
    b.run(plan, problem);
    if (b.bytes() != right[static_cast<size_t>(i % kProblems)]) FAIL() << "plan " << i << ", second stream";
  }
}

TEST(Sm90Upload, PlansAreDestroyedBeforeTheyRun) {
  LONGSPAN_NEEDS_HOPPER();
  const Device gpu = first_gpu();
  constexpr int kProblems = 6;
  const auto right = right_bytes(gpu, kProblems);
  Bench bench(gpu);
  for (int i = 0; i < 20 * kProblems; ++i) {
    for (int unused = 1; unused <= 3; ++unused)
      const ForwardPlan never_run(problem_of((i + unused) % kProblems), gpu);
    const Problem problem = problem_of(i % kProblems);
    bench.poison();
    ForwardPlan plan(problem, gpu);
    bench.provide_workspace(plan);
    bench.run(plan, problem);
    if (bench.bytes() != right[static_cast<size_t>(i % kProblems)]) FAIL() << "plan " << i;
  }
}

TEST(Sm90Upload, MorePlansAreInFlightThanTheBufferHolds) {
  LONGSPAN_NEEDS_HOPPER();
  const Device gpu = first_gpu();
  constexpr int kProblems = 24;
  const auto right = right_bytes(gpu, kProblems);
  std::vector<Problem> problems;
  for (int i = 0; i < kProblems; ++i) problems.push_back(problem_of(i));
  Bench bench(gpu);
  std::vector<std::unique_ptr<ForwardPlan>> plans;
  for (const Problem& problem : problems) plans.push_back(std::make_unique<ForwardPlan>(problem, gpu));
  for (size_t i = kProblems; i-- > 0;) {
    bench.poison();
    bench.provide_workspace(*plans[i]);
    bench.run(*plans[i], problems[i]);
    if (bench.bytes() != right[i]) ADD_FAILURE() << "plan " << i;
  }
}

TEST(Sm90Upload, ThreadsPlanAndRunAtTheSameTime) {
  LONGSPAN_NEEDS_HOPPER();
  const Device gpu = first_gpu();
  constexpr int kProblems = 6, kThreads = 6, kRounds = 100;
  const auto right = right_bytes(gpu, kProblems);
  std::vector<int> wrong(kThreads, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      Bench bench(gpu);
      for (int i = 0; i < kRounds; ++i) {
        const int index = (i + t) % kProblems;
        const Problem problem = problem_of(index);
        bench.poison();
        ForwardPlan plan(problem, gpu);
        bench.provide_workspace(plan);
        bench.run(plan, problem);
        wrong[static_cast<size_t>(t)] += bench.bytes() != right[static_cast<size_t>(index)];
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

TEST(Sm90Upload, AnyCaptureTakesARunRightAfterPlanning) {
  LONGSPAN_NEEDS_HOPPER();
  const Device gpu = first_gpu();
  constexpr int kProblems = 3;
  const auto right = right_bytes(gpu, kProblems);
  Bench bench(gpu);
  for (const cudaStreamCaptureMode mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed})
    for (int i = 0; i < kProblems; ++i) {
      const Problem problem = problem_of(i);
      bench.poison();
      ForwardPlan plan(problem, gpu);
      bench.provide_workspace(plan);
      ASSERT_EQ(cudaStreamBeginCapture(bench.stream(), mode), cudaSuccess);
      bench.run(plan, problem);
      cudaGraph_t graph = nullptr;
      ASSERT_EQ(cudaStreamEndCapture(bench.stream(), &graph), cudaSuccess);
      cudaGraphExec_t ready = nullptr;
      ASSERT_EQ(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
      for (int launch = 0; launch < 3; ++launch) {
        bench.poison();
        ASSERT_EQ(cudaGraphLaunch(ready, bench.stream()), cudaSuccess);
        EXPECT_EQ(bench.bytes(), right[static_cast<size_t>(i)]) << "launch " << launch;
      }
      EXPECT_EQ(cudaGraphExecDestroy(ready), cudaSuccess);
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
}

// With a synchronisation anywhere in here, the gate would time out.
TEST(Sm90Upload, PlansAreDestroyedWhileTheirCallsWait) {
  LONGSPAN_NEEDS_HOPPER();
  const Device gpu = first_gpu();
  constexpr int kProblems = 6, kRounds = 10;
  const auto right = right_bytes(gpu, kProblems);
  std::vector<std::unique_ptr<Bench>> benches;
  for (int i = 0; i < kProblems; ++i) benches.push_back(std::make_unique<Bench>(gpu));
  for (int i = 0; i < kProblems; ++i) {
    benches[static_cast<size_t>(i)]->provide_workspace(ForwardPlan(problem_of(i), gpu));
    benches[static_cast<size_t>(i)]->poison();
  }
  const cuda::OwnedStream gated(gpu.index);
  CudaGate gate(gpu.index);
  gate.shut(gated, 20);
  cuda::Event open(gpu.index, cuda::Event::Timing::kOff);
  open.record(gated);
  for (int i = 0; i < kProblems; ++i) open.wait_in(Stream{benches[static_cast<size_t>(i)]->stream()});
  for (int round = 0; round < kRounds; ++round)
    for (int i = 0; i < kProblems; ++i) {
      const Problem problem = problem_of(i);
      ForwardPlan plan(problem, gpu);
      benches[static_cast<size_t>(i)]->run(plan, problem);
    }
  gate.open();
  for (int i = 0; i < kProblems; ++i)
    EXPECT_EQ(benches[static_cast<size_t>(i)]->bytes(), right[static_cast<size_t>(i)]) << "problem " << i;
  EXPECT_FALSE(gate.timed_out());
}

// Both calls start together, so they would disturb each other if they shared any state but the arrays.
TEST(Sm90Upload, OnePlanRunsInTwoStreamsAtATime) {
  LONGSPAN_NEEDS_HOPPER();
  const Device gpu = first_gpu();
  const auto right = right_bytes(gpu, 1);
  const Problem problem = problem_of(0);
  ForwardPlan plan(problem, gpu);
  Bench a(gpu), b(gpu);
  a.provide_workspace(plan);
  b.provide_workspace(plan);
  const cuda::OwnedStream gated(gpu.index);
  CudaGate gate(gpu.index);
  for (int i = 0; i < 100; ++i) {
    a.poison();
    b.poison();
    gate.shut(gated, 20);
    cuda::Event open(gpu.index, cuda::Event::Timing::kOff);
    open.record(gated);
    for (Bench* bench : {&a, &b}) {
      open.wait_in(Stream{bench->stream()});
      bench->run(plan, problem);
    }
    gate.open();
    ASSERT_EQ(a.bytes(), right[0]) << "run " << i;
    ASSERT_EQ(b.bytes(), right[0]) << "run " << i << ", second stream";
  }
}

}  // namespace
}  // namespace longspan
