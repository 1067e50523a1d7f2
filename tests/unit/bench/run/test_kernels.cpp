// A correct kernel by the definition of attention, and its variants that fail.
#include "test_kernels.h"

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>

#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"

namespace longspan::bench {
namespace {

using Fault = void (*)();

// Attention by its definition in f32, slow and correct.
class DirectPlan : public Plan {
 public:
  DirectPlan(const Problem& problem, Fault fault, float offset, size_t workspace, bool flaky, bool tires)
      : problem_(problem),
        fault_(fault),
        offset_(offset),
        workspace_(workspace),
        flaky_(flaky),
        tires_(tires) {}

  size_t workspace_bytes(Direction) const override { return workspace_; }
  size_t plan_bytes() const override { return sizeof *this; }
  PlanNotes notes() const override { return {fmt::format("process {}", getpid()), {}, 0, 0}; }

  void forward(const ForwardArgs& args, Stream) override {
    if (fault_ != nullptr) fault_();
    if (tired()) return;
    for_each_row([&](int64_t h, int64_t i, const std::vector<int64_t>& keys) {
      const std::vector<double> p = probabilities(args.q, args.k, h, i, keys, args.lse);
      float* o = args.o.row<float>(i, h);
      for (int64_t d = 0; d < problem_.head_dim; ++d) {
        double sum = 0;
        for (size_t j = 0; j < keys.size(); ++j)
          sum += p[j] * args.v.row<float>(keys[j], problem_.kv_head_of(h))[d];
        o[d] = static_cast<float>(sum) + offset_;
      }
    });
  }

  void backward(const BackwardArgs& args, Stream) override {
    if (fault_ != nullptr) fault_();
    if (tired()) return;
    for (const TensorView* t : {&args.dq, &args.dk, &args.dv})
      fill_bytes(t->data, DeviceKind::kCpu, 0, t->bytes());
    const double scale = problem_.softmax_scale();
    for_each_row([&](int64_t h, int64_t i, const std::vector<int64_t>& keys) {
      const int64_t kv = problem_.kv_head_of(h);
      const std::vector<double> p = probabilities(args.q, args.k, h, i, keys, nullptr);
      const float *q = args.q.row<float>(i, h), *o = args.o.row<float>(i, h),
                  *dout = args.dout.row<float>(i, h);
      float* dq = args.dq.row<float>(i, h);
      double delta = 0;
      for (int64_t d = 0; d < problem_.head_dim; ++d) delta += double{o[d]} * dout[d];
      for (size_t j = 0; j < keys.size(); ++j) {
        const float *k = args.k.row<float>(keys[j], kv), *v = args.v.row<float>(keys[j], kv);
        float *dk = args.dk.row<float>(keys[j], kv), *dv = args.dv.row<float>(keys[j], kv);
        double dp = 0;
        for (int64_t d = 0; d < problem_.head_dim; ++d) dp += double{dout[d]} * v[d];
        const double ds = p[j] * (dp - delta) * scale;
        for (int64_t d = 0; d < problem_.head_dim; ++d) {
          dq[d] += static_cast<float>(ds * k[d]);
          dk[d] += static_cast<float>(ds * q[d]);
          dv[d] += static_cast<float>(p[j] * dout[d]);
        }
      }
      for (int64_t d = 0; d < problem_.head_dim; ++d) dq[d] += offset_;
    });
    if (flaky_ && runs_++ % 2 == 0) *args.dq.row<float>(problem_.tokens_q - 1, 0) *= 1 + 0x1p-23f;
  }

 private:
  // The verification makes four runs at most.
  bool tired() { return tires_ && ++turns_ > 5; }

  template <class Body>
  void for_each_row(Body body) const {
    for (int64_t h = 0; h < problem_.heads_q; ++h) {
      const Mask& mask = problem_.mask_of_query_head(h);
      for (int64_t i = 0; i < problem_.tokens_q; ++i) {
        std::vector<int64_t> keys;
        for (const Range& range : mask.visible_keys(i)) {
          for (int64_t j = range.begin; j < range.end; ++j) keys.push_back(j);
        }
        body(h, i, keys);
      }
    }
  }

  std::vector<double> probabilities(const TensorView& q, const TensorView& k, int64_t h, int64_t i,
                                    const std::vector<int64_t>& keys, float* lse) const {
    std::vector<double> scores;
    double most = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t key : keys) {
      double score = 0;
      for (int64_t d = 0; d < problem_.head_dim; ++d) {
        score += double{q.row<float>(i, h)[d]} * k.row<float>(key, problem_.kv_head_of(h))[d];
      }
      scores.push_back(score * problem_.softmax_scale());
      most = std::max(most, scores.back());
    }
    for (double& score : scores) sum += score = std::exp(score - most);
    for (double& score : scores) score /= sum;
    if (lse != nullptr)
      lse[h * problem_.tokens_q + i] = static_cast<float>(keys.empty() ? most : most + std::log(sum));
    return scores;
  }

  Problem problem_;
  Fault fault_;
  float offset_;
  size_t workspace_;
  bool flaky_;  // every second backward pass changes a bit of dq
  bool tires_;  // computes nothing after the first runs
  int64_t runs_ = 0, turns_ = 0;
};

struct Behaviour {
  std::string_view name;
  Fault in_run = nullptr;
  float offset = 0;
  size_t workspace = 0;
  std::string_view refusal = "";
  DeviceKind kind = DeviceKind::kCpu;
  bool flaky = false;
  bool tires = false;
};

class TestKernel : public Kernel {
 public:
  explicit TestKernel(const Behaviour& behaviour) : behaviour_(behaviour) {}
  std::string_view name() const override { return behaviour_.name; }
  std::string_view description() const override { return "for tests"; }
  DeviceKind device_kind() const override { return behaviour_.kind; }
  Support supports(const Problem& problem, Direction, const Device&) const override {
    if (problem.dtype != DType::kF32) return {"needs f32"};
    return {std::string(behaviour_.refusal)};
  }
  std::unique_ptr<Plan> plan(const Problem& problem, const Device&) const override {
    return std::make_unique<DirectPlan>(problem, behaviour_.in_run, behaviour_.offset, behaviour_.workspace,
                                        behaviour_.flaky, behaviour_.tires);
  }

 private:
  Behaviour behaviour_;
};

void crash() {
  std::signal(SIGSEGV, SIG_DFL);  // bypasses a sanitizer's handler
  raise(SIGSEGV);
}
void abort_with_words() {
  std::signal(SIGABRT, SIG_DFL);
  fmt::print(stderr, "an assertion of the kernel failed\n");
  std::abort();
}
void hang() {
  for (;;) pause();
}
void be_killed() {
  raise(SIGKILL);
}
void run_out_of_memory() {
  Buffer(size_t{1} << 50, cpu_device());
}
void fail_to_allocate() {
  throw std::bad_alloc();
}
void throw_error() {
  LONGSPAN_CHECK(1 + 1 == 3, "the kernel lost count");
}
void throw_if_asked() {
  LONGSPAN_CHECK(std::getenv("TEST_FAULT") == nullptr, "the kernel has its fault");
}
void exit_early() {
  std::_Exit(9);
}
void write_garbage() {
  if (write(3, "no json\n", 8) != 8) std::abort();
}
// Computes a correct result, but leaves a process in which `suspect` crashes.
bool spoiled = false;
void spoil() {
  spoiled = true;
}
void crash_if_spoiled() {
  if (spoiled) crash();
}

const TestKernel kKernels[] = {
    TestKernel({.name = "good"}),
    TestKernel({.name = "wrong", .offset = 0.25}),
    TestKernel({.name = "unsupported", .refusal = "needs a Tuesday"}),
    TestKernel({.name = "throws", .in_run = throw_error}),
    TestKernel({.name = "crash", .in_run = crash}),
    TestKernel({.name = "abort", .in_run = abort_with_words}),
    TestKernel({.name = "hang", .in_run = hang}),
    TestKernel({.name = "killed", .in_run = be_killed}),
    TestKernel({.name = "out-of-memory", .in_run = run_out_of_memory}),
    TestKernel({.name = "bad-alloc", .in_run = fail_to_allocate}),
    TestKernel({.name = "huge-workspace", .workspace = size_t{1} << 50}),
    TestKernel({.name = "exits", .in_run = exit_early}),
    TestKernel({.name = "garbage", .in_run = write_garbage}),
    TestKernel({.name = "spoils", .in_run = spoil}),
    TestKernel({.name = "suspect", .in_run = crash_if_spoiled}),
    TestKernel({.name = "faulty", .in_run = throw_if_asked}),
    TestKernel({.name = "flaky", .flaky = true}),
    TestKernel({.name = "tires", .tires = true}),
    TestKernel({.name = "cuda-only", .kind = DeviceKind::kCuda}),
};

}  // namespace

std::vector<const Kernel*> test_kernels() {
  std::vector<const Kernel*> kernels;
  for (const TestKernel& kernel : kKernels) kernels.push_back(&kernel);
  return kernels;
}

const Kernel& test_kernel(std::string_view name) {
  for (const TestKernel& kernel : kKernels) {
    if (kernel.name() == name) return kernel;
  }
  LONGSPAN_CHECK(false, "no test kernel {}", name);
  return kKernels[0];
}

}  // namespace longspan::bench
