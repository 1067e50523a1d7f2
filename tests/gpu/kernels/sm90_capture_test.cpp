// sm90's backward pass as a CUDA graph: captured right after planning, before the plan's upload has been
// synchronised with, and launched more than once. With turns or schedules the captured launch is cooperative.
#include <memory>
#include <utility>

#include <gmock/gmock.h>

#include "attention/oracle/verify.h"
#include "base/cuda/cuda.h"
#include "base/cuda/cuda_check.h"
#include "hopper.h"
#include "kernels/sm90/backward/planner/arrangement.h"
#include "kernels/sm90/sm90.h"
#include "mask/patterns/patterns.h"

namespace longspan {
namespace {

// A plan that captures each backward pass and launches it twice.
class CapturedPlan final : public Plan {
 public:
  CapturedPlan(std::unique_ptr<Plan> plan, const Device& gpu)
      : plan_(std::move(plan)), capturing_(gpu.index) {}
  ~CapturedPlan() override {
    if (ready_ != nullptr) EXPECT_EQ(cudaGraphExecDestroy(ready_), cudaSuccess);
  }

  size_t workspace_bytes(Direction direction) const override { return plan_->workspace_bytes(direction); }
  size_t plan_bytes() const override { return plan_->plan_bytes(); }
  void forward(const ForwardArgs& args, Stream stream) override { plan_->forward(args, stream); }
  void backward(const BackwardArgs& args, Stream stream) override {
    capture(args);
    for (int launch = 0; launch < 2; ++launch) LONGSPAN_CUDA(cudaGraphLaunch(ready_, cuda::raw(stream)));
    ++captures_;
  }
  int captures() const { return captures_; }

 private:
  void capture(const BackwardArgs& args) {
    const cudaStream_t stream = cuda::raw(capturing_);
    LONGSPAN_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    plan_->backward(args, capturing_);
    cudaGraph_t graph = nullptr;
    LONGSPAN_CUDA(cudaStreamEndCapture(stream, &graph));
    if (ready_ != nullptr) LONGSPAN_CUDA(cudaGraphExecDestroy(std::exchange(ready_, nullptr)));
    LONGSPAN_CUDA(cudaGraphInstantiate(&ready_, graph, 0));
    LONGSPAN_CUDA(cudaGraphDestroy(graph));
  }

  std::unique_ptr<Plan> plan_;
  cuda::OwnedStream capturing_;
  cudaGraphExec_t ready_ = nullptr;
  int captures_ = 0;
};

HeadMasks drawn(const char* pattern, int64_t seqlen, int64_t block = 0) {
  PatternOptions options;
  options.seqlen = seqlen;
  if (block > 0) options.values.set("block", block).set("density", 0.3);
  return draw_mask(pattern, options).masks;
}

void expect_right_as_a_graph(const Problem& problem) {
  CapturedPlan plan(sm90_kernel().plan(problem, first_gpu()), first_gpu());
  for (int run = 0; run < 3; ++run)
    EXPECT_EQ(verify(plan, problem, Direction::kBackward, first_gpu(), {}).failure, "") << "run " << run;
  EXPECT_GE(plan.captures(), 3);
}

TEST(Sm90Capture, TakesABackwardPass) {
  LONGSPAN_NEEDS_HOPPER();
  expect_right_as_a_graph(problem_of(drawn("full", 1000), 4, 2));
  expect_right_as_a_graph(problem_of(drawn("sliding_window_causal", 2048), 8, 1));
}

TEST(Sm90Capture, TakesPassesInsideTheKernel) {
  LONGSPAN_NEEDS_HOPPER();
  const Problem problem = problem_of(drawn("causal_document", 8191), 64, 8);
  ASSERT_GT(
      sm90::arrange_backward(problem, sm90::choose_backward_shape(problem), first_gpu().units).pass_ctas, 0);
  expect_right_as_a_graph(problem);
}

TEST(Sm90Capture, TakesAdditionsInTheOrderOfASchedule) {
  LONGSPAN_NEEDS_HOPPER();
  Problem problem = problem_of(drawn("uniform_block_sparse", 6000, 64), 8, 4);
  problem.deterministic = true;
  ASSERT_GT(sm90::arrange_backward(problem, sm90::choose_backward_shape(problem), first_gpu().units)
                .schedule.streams,
            0);
  expect_right_as_a_graph(problem);
}

}  // namespace
}  // namespace longspan
