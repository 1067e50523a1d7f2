// One case: draw a mask, plan, run, verify, time; then the next mask.
#include "bench/case/case_runner.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "attention/oracle/verify.h"
#include "attention/problem.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/rng.h"
#include "bench/case/case_outcome.h"
#include "bench/measure/mask_source.h"
#include "bench/measure/measure.h"
#include "bench/measure/parallel_measure.h"
#include "bench/measure/self_timed_stopwatch.h"
#include "bench/spec/values.h"

namespace longspan::bench {
namespace {

constexpr size_t kWorkspaceAlignment = 256;

// In a case with many masks, only the first are compared with the fp64 oracle and, if the case is spread over
// ranks, with a single device. The counting oracle checks every row of every mask.
constexpr int64_t kMasksCompared = 3;

// Thrown when a case cannot run for a reason that is not a defect. The case is skipped.
struct Skip {
  std::string reason;
  bool always = false;  // applies to every case of this kernel
};

void check_memory(size_t needed, size_t available, const std::string& what) {
  if (needed <= available) return;
  throw Error(
      ErrorKind::kOutOfMemory,
      fmt::format("out of memory ({}: needs {}, {} free)", what, format_bytes(static_cast<double>(needed)),
                  format_bytes(static_cast<double>(available))),
      __FILE__, __LINE__, "needed <= available");
}

// The tensors of a problem in one device's memory, with random inputs.
class Tensors {
 public:
  // `sinks`: those that a call gets.
  Tensors(const Problem& problem, const std::vector<float>& sinks, Direction direction, Testbed& testbed)
      : testbed_(testbed) {
    const Problem& p = problem;
    const DType out = p.output_dtype();
    check_memory(tensor_bytes(p, direction), testbed.available_bytes(), "inputs and outputs");
    views_.kind = testbed.device().kind;
    views_.q = make(p.dtype, p.tokens_q, p.heads_q, p.head_dim);
    views_.k = make(p.dtype, p.tokens_kv, p.heads_kv, p.head_dim);
    views_.v = make(p.dtype, p.tokens_kv, p.heads_kv, p.dim_v());
    views_.o = make(out, p.tokens_q, p.heads_q, p.dim_v());
    views_.lse = static_cast<float*>(make(DType::kF32, p.tokens_q, p.heads_q, 1).data);
    if (!sinks.empty()) {
      sinks_ = static_cast<float*>(make(DType::kF32, p.heads_q, 1, 1).data);
      copy_bytes(sinks_, views_.kind, sinks.data(), DeviceKind::kCpu, sinks.size() * sizeof(float));
    }
    if (direction == Direction::kForward) return;
    views_.dout = make(out, p.tokens_q, p.heads_q, p.dim_v());
    views_.dq = make(out, p.tokens_q, p.heads_q, p.head_dim);
    views_.dk = make(out, p.tokens_kv, p.heads_kv, p.head_dim);
    views_.dv = make(out, p.tokens_kv, p.heads_kv, p.dim_v());
    if (sinks_ != nullptr) views_.dsinks = static_cast<float*>(make(DType::kF32, p.heads_q, 1, 1).data);
  }

  void draw_inputs(uint64_t seed) {
    fill_normal(views_.q, seed, 0, testbed_.device());
    fill_normal(views_.k, seed, 1, testbed_.device());
    fill_normal(views_.v, seed, 2, testbed_.device());
    if (views_.dout.data != nullptr) fill_normal(views_.dout, seed, 3, testbed_.device());
  }

  // Fills every output with NaN, so that elements left unwritten are detected. This also touches each page.
  void poison_outputs() {
    poison_outputs(Direction::kForward);
    poison_outputs(Direction::kBackward);
  }
  void poison_outputs(Direction direction) {
    const auto fill = [&](void* data, size_t bytes) {
      if (data != nullptr) fill_bytes(data, testbed_.device().kind, 0xff, bytes);
    };
    if (direction == Direction::kForward) {
      fill(views_.o.data, views_.o.bytes());
      fill(views_.lse, static_cast<size_t>(views_.o.tokens * views_.o.heads) * sizeof(float));
      return;
    }
    for (const TensorView* view : {&views_.dq, &views_.dk, &views_.dv}) fill(view->data, view->bytes());
    if (views_.dsinks != nullptr) fill(views_.dsinks, static_cast<size_t>(views_.o.heads) * sizeof(float));
  }

  const DeviceTensors& views() const { return views_; }
  const float* sinks() const { return sinks_; }  // of a call

  std::vector<MemorySpan> spans() const {
    std::vector<MemorySpan> spans;
    for (const Buffer& buffer : buffers_) spans.push_back({buffer.data(), buffer.bytes()});
    return spans;
  }

 private:
  TensorView make(DType dtype, int64_t tokens, int64_t heads, int64_t head_dim) {
    TensorView view = TensorView::contiguous(nullptr, dtype, tokens, heads, head_dim);
    buffers_.emplace_back(view.bytes(), testbed_.device());
    view.data = buffers_.back().data();
    return view;
  }

  Testbed& testbed_;
  std::vector<Buffer> buffers_;
  DeviceTensors views_;
  float* sinks_ = nullptr;
};

class CaseRunner {
 public:
  CaseRunner(const Case& c, const TimingRule& rule, const Kernel& kernel, Testbed& testbed,
             const Verify& verify, const Phase& phase, const Kernel* single)
      : case_(c),
        rule_(rule),
        kernel_(kernel),
        testbed_(testbed),
        verify_(verify),
        phase_(phase),
        single_(single) {}

  std::vector<MaskResult> run() {
    MaskSource source(case_);
    std::vector<MaskResult> results;
    for (int64_t i = 0; i < case_.masks; ++i) {
      mask_number_ = i;
      enter("drawing");
      results.push_back(run_mask(draw(source)));
      // A wrong result is not timed.
      if (!results.back().accuracy.failure.empty()) break;
    }
    return results;
  }

 private:
  void enter(const std::string& what) const {
    phase_(case_.masks == 1 ? what : fmt::format("{}, mask {} of {}", what, mask_number_ + 1, case_.masks));
  }

  // A mask that does not exist for this length or these options skips the case.
  static DrawnMask draw(MaskSource& source) {
    try {
      return source.next();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kInput) throw Skip{error.what()};
      throw;
    }
  }

  Problem problem_of(const DrawnMask& mask) const {
    Problem problem;
    problem.masks = std::make_shared<const HeadMasks>(mask.masks);
    problem.tokens_q = problem.masks->front().rows();
    problem.tokens_kv = problem.masks->front().columns();
    problem.heads_q = case_.heads_q;
    problem.heads_kv = case_.heads_kv;
    problem.head_dim = case_.head_dim;
    problem.head_dim_v = case_.head_dim_v;
    problem.dtype = case_.dtype;
    problem.deterministic = case_.deterministic;
    problem.softcap = static_cast<float>(case_.softcap);
    if (case_.alibi) problem.alibi_slopes = alibi_slopes(case_.heads_q);
    if (case_.sinks) problem.sinks = drawn_sinks(case_.heads_q, case_.seed);
    return problem;
  }

  // The case's problem as the kernel gets it. Sinks are of a call, except where a peer takes them.
  Problem problem_of_kernel(Problem problem) const {
    if (!kernel_.takes_sinks()) problem.sinks.clear();
    return problem;
  }

  void check_support(const Problem& problem) const {
    const Device& device = testbed_.device();
    // The backward pass reads what the forward pass wrote, so it needs both.
    if (Support support = kernel_.supports(problem, Direction::kForward, device); !support)
      throw Skip{support.reason, support.always};
    if (case_.direction == Direction::kForward) return;
    if (Support support = kernel_.supports(problem, Direction::kBackward, device); !support)
      throw Skip{support.reason, support.always};
  }

  // Plans repeatedly to time it: the median of up to five plans after the first, within a tenth of the
  // budget. A process's first plan may set up memory for all later ones. A peer times itself, and knows that.
  std::unique_ptr<Plan> plan(const Problem& problem, MaskResult& result) {
    enter("planning");
    std::vector<double> times;
    std::unique_ptr<Plan> plan;
    int64_t dropped = 0;
    const double end = testbed_.clock().now_s() + rule_.budget_s / 10;
    testbed_.begin_peak();
    do {
      plan.reset();
      const double begin = testbed_.clock().now_s();
      try {
        plan = case_.direction == Direction::kForward ? kernel_.plan_forward(problem, testbed_.device())
                                                      : kernel_.plan(problem, testbed_.device());
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::kUnsupported) throw Skip{error.what()};
        throw;
      }
      testbed_.synchronize_all();  // the plan's upload may still be running
      const SelfTimed* self_timed = plan->self_timed();
      times.push_back(self_timed != nullptr ? self_timed->plan_s() : testbed_.clock().now_s() - begin);
      if (times.size() == 1) {
        result.peak_bytes = testbed_.end_peak();
        dropped = self_timed == nullptr ? 1 : 0;
      }
    } while (std::ssize(times) <= dropped ||
             (std::ssize(times) < dropped + 5 && testbed_.clock().now_s() < end));
    times.erase(times.begin(), times.begin() + dropped);
    result.plan_s = median(times);
    result.plan_bytes = plan->plan_bytes();
    return plan;
  }

  Buffer workspace(const Plan& plan, Direction direction) const {
    const size_t bytes = plan.workspace_bytes(direction);
    check_memory(bytes, testbed_.available_bytes(), fmt::format("the {} workspace", name_of(direction)));
    return Buffer(std::max(bytes, kWorkspaceAlignment), testbed_.device());
  }

  Work work_of(Plan& plan, Direction direction, const Buffer& workspace) {
    const DeviceTensors& t = tensors_->views();
    const Stream stream = testbed_.stream();
    if (direction == Direction::kForward) {
      ForwardArgs args{t.q, t.k, t.v, t.o, t.lse, workspace.data()};
      args.sinks = tensors_->sinks();
      return [&plan, args, stream] { plan.forward(args, stream); };
    }
    BackwardArgs args{t.q, t.k, t.v, t.o, t.dout, t.lse, t.dq, t.dk, t.dv, workspace.data()};
    args.sinks = tensors_->sinks();
    args.dsinks = t.dsinks;
    return [&plan, args, stream] { plan.backward(args, stream); };
  }

  MaskResult run_mask(DrawnMask mask) {
    MaskResult result;
    const Problem problem = problem_of(mask), of_kernel = problem_of_kernel(problem);
    problem.check();
    check_support(of_kernel);
    result.mask = std::move(mask);
    result.area = problem.area();
    result.flops = flops(problem, case_.direction);

    if (tensors_ == nullptr) {
      enter("making inputs");
      const std::vector<float> of_calls = kernel_.takes_sinks() ? std::vector<float>() : problem.sinks;
      tensors_ = std::make_unique<Tensors>(problem, of_calls, case_.direction, testbed_);
      tensors_->draw_inputs(case_.seed);
    }
    tensors_->poison_outputs();

    const std::unique_ptr<Plan> plan = this->plan(of_kernel, result);
    if (case_.direction == Direction::kBackward) {
      enter("the forward pass before the backward one");
      const Buffer memory = workspace(*plan, Direction::kForward);
      work_of(*plan, Direction::kForward, memory)();
      testbed_.synchronize();
    }

    enter("the first run");
    testbed_.begin_peak();
    const Buffer memory = workspace(*plan, case_.direction);
    const Work work = work_of(*plan, case_.direction, memory);
    work();
    testbed_.synchronize();
    // The plan was allocated before the second measurement of the peak began.
    result.peak_bytes = std::max(result.peak_bytes, result.plan_bytes + testbed_.end_peak());
    SelfTimed* const self_timed = plan->self_timed();
    if (self_timed != nullptr) {
      result.peak_bytes =
          std::max(result.peak_bytes, result.plan_bytes + self_timed->peak_bytes(case_.direction));
    }
    result.total_bytes = result.peak_bytes + tensor_bytes(problem, case_.direction);
    result.workspace_bytes = plan->workspace_bytes(case_.direction);
    result.notes = plan->notes();

    const std::string differs = case_.deterministic ? run_again(*plan, memory) : "";

    enter("verifying");
    const bool compare = mask_number_ < kMasksCompared;
    result.accuracy = verify_({kernel_, *plan, problem, case_.direction, tensors_->views(), testbed_,
                               case_.seed, [this](const std::string& what) { enter(what); }, !compare});
    if (case_.deterministic) result.accuracy.same_bits = differs.empty();
    if (result.accuracy.failure.empty()) result.accuracy.failure = differs;
    auto* const spread = dynamic_cast<ParallelPlan*>(plan.get());
    if (spread != nullptr) share_failures(*spread, result.accuracy);
    if (!result.accuracy.failure.empty()) return result;
    if (spread != nullptr) {
      if (single_ != nullptr && compare) compare_with_single(problem, result);
      add_planned(result.parallel, *spread, problem, case_.direction, case_.parallelism);
    }

    enter("timing");
    if (spread != nullptr) {
      work();  // verification ran it on other tensors
      ParallelStopwatch stopwatch(*spread, case_.direction, rule_.cold_cache, testbed_);
      SharedClock clock(testbed_.clock(), *spread);
      result.measurement = measure(work, stopwatch, clock, rule_);
      add_measured(result.parallel, stopwatch.passes(), result.measurement.samples_s.size());
      return result;
    }
    if (self_timed != nullptr) {
      work();  // verification ran it on other tensors
      SelfTimedStopwatch stopwatch(*self_timed, case_.direction, rule_.cold_cache, testbed_);
      result.measurement = measure(work, stopwatch, testbed_.clock(), rule_);
      run_on_new_inputs(*plan, *self_timed, work);
      verify_timed(problem, result);
      tensors_->draw_inputs(case_.seed);
      return result;
    }
    std::vector<MemorySpan> touched = tensors_->spans();
    touched.push_back({memory.data(), memory.bytes()});
    const auto stopwatch = testbed_.stopwatch(std::move(touched), rule_.cold_cache);
    result.measurement = measure(work, *stopwatch, testbed_.clock(), rule_);
    tensors_->poison_outputs(case_.direction);
    stopwatch->time(work);
    verify_timed(problem, result);
    return result;
  }

  // Another process may have kept its results, or may not compute while it times itself. So a timed run gets
  // inputs that it has not seen.
  void run_on_new_inputs(Plan& plan, SelfTimed& self_timed, const Work& work) {
    tensors_->draw_inputs(case_.seed + 1);
    tensors_->poison_outputs();
    self_timed.time_next_run(rule_.cold_cache);
    work();
    if (case_.direction == Direction::kForward) return;
    // The oracle reads o and lse, which the worker's own forward pass gave to its backward pass.
    const Buffer memory = workspace(plan, Direction::kForward);
    work_of(plan, Direction::kForward, memory)();
  }

  // Verifies the outputs once more, now those of one more timed run.
  void verify_timed(const Problem& problem, MaskResult& result) {
    constexpr int64_t kRowsPerHead = 4;
    enter("verifying what was timed");
    SampleOptions samples;
    samples.per_head = kRowsPerHead;
    samples.seed = case_.seed + 1;
    const std::string failure =
        verify_outputs(problem, case_.direction, tensors_->views(), samples, result.notes.drift_keys).failure;
    if (!failure.empty()) result.accuracy.failure = "while it was timed: " + failure;
  }

  // Repeats the run (a backward pass after its forward pass), starting with outputs and workspace full of
  // NaN. Returns "", or which output then has different bits. `memory` is the workspace of the case's own
  // pass.
  std::string run_again(Plan& plan, const Buffer& memory) {
    enter("running again, for the same bits");
    const DeviceTensors& t = tensors_->views();
    const auto again = [&](Direction direction, const Buffer& workspace) {
      return difference_of_runs(direction, t, [&] {
        tensors_->poison_outputs(direction);
        fill_bytes(workspace.data(), t.kind, 0xff, workspace.bytes());
        work_of(plan, direction, workspace)();
        testbed_.synchronize();
      });
    };
    if (case_.direction == Direction::kForward) return again(Direction::kForward, memory);
    const Buffer forward_memory = workspace(plan, Direction::kForward);
    const std::string differs = again(Direction::kForward, forward_memory);
    return differs.empty() ? again(Direction::kBackward, memory) : differs;
  }

  // If ranks are processes, each verifies its own result. A failure on one is a failure on all.
  static void share_failures(ParallelPlan& spread, Accuracy& accuracy) {
    const std::vector<double> wrong = spread.of_all(accuracy.failure.empty() ? 0 : 1);
    const auto first = std::find(wrong.begin(), wrong.end(), 1);
    if (first != wrong.end() && accuracy.failure.empty())
      accuracy.failure = fmt::format("on rank {}, not on this one", first - wrong.begin());
  }

  // Runs the single-device kernel in the same tensors, after copying the ranks' results.
  void compare_with_single(const Problem& problem, MaskResult& result) {
    enter("comparing with a single device");
    const DeviceTensors& t = tensors_->views();
    const bool backward = case_.direction == Direction::kBackward;
    std::vector<std::pair<std::string, TensorView>> outputs = {{"o", t.o}};
    if (backward) outputs = {{"dq", t.dq}, {"dk", t.dk}, {"dv", t.dv}};
    // Keep the copies on the device if they and the single device's work fit, else on the host.
    size_t bytes = 0;
    for (const auto& [name, view] : outputs) bytes += view.bytes();
    const bool beside = 4 * bytes < testbed_.available_bytes();
    const Device& place = beside ? testbed_.device() : cpu_device();
    std::vector<std::pair<Buffer, TensorView>> copies;
    for (const auto& [name, view] : outputs) {
      Buffer buffer(view.bytes(), place);
      copy_bytes(buffer.data(), place.kind, view.data, t.kind, view.bytes());
      TensorView copy = view;
      copy.data = buffer.data();
      copies.emplace_back(std::move(buffer), copy);
    }
    tensors_->poison_outputs();
    const std::unique_ptr<Plan> plan = single_->plan(problem, testbed_.device());
    for (Direction direction : {Direction::kForward, Direction::kBackward}) {
      if (direction == Direction::kBackward && !backward) continue;
      const Buffer memory = workspace(*plan, direction);
      work_of(*plan, direction, memory)();
      testbed_.synchronize();
    }
    SampleOptions samples;
    samples.seed = case_.seed;
    for (const TensorAccuracy& tensor : verify_outputs(problem, case_.direction, t, samples).tensors)
      result.parallel.single_error[tensor.tensor] = tensor.error;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const TensorView& one = outputs[i].second;
      double& difference = result.parallel.difference[outputs[i].first];
      if (place.kind == t.kind) {
        difference = relative_difference(copies[i].second, one, t.kind);
      } else {
        const HostCopy copy(one, t.kind);
        difference = relative_difference(copies[i].second, copy.view(), DeviceKind::kCpu);
      }
    }
  }

  const Case& case_;
  const TimingRule& rule_;
  const Kernel& kernel_;
  Testbed& testbed_;
  const Verify& verify_;
  const Phase& phase_;
  const Kernel* const single_;
  int64_t mask_number_ = 0;
  std::unique_ptr<Tensors> tensors_;
};

}  // namespace

size_t tensor_bytes(const Problem& p, Direction direction) {
  const auto rows = static_cast<size_t>(p.tokens_q) * static_cast<size_t>(p.heads_q);
  const auto keys = static_cast<size_t>(p.tokens_kv) * static_cast<size_t>(p.heads_kv);
  const auto dim = static_cast<size_t>(p.head_dim), dim_v = static_cast<size_t>(p.dim_v());
  const size_t in = size_of(p.dtype), out = size_of(p.output_dtype());
  const size_t forward = (rows * dim + keys * (dim + dim_v)) * in + rows * dim_v * out + rows * sizeof(float);
  if (direction == Direction::kForward) return forward;
  return forward + (rows + keys) * (dim + dim_v) * out;
}

CaseAnswer run_case(const Case& c, const TimingRule& rule, const Kernel& kernel, Testbed& testbed,
                    const Verify& verify, const Phase& phase, const Kernel* single) {
  std::string reason;
  try {
    CaseRunner runner(c, rule, kernel, testbed, verify, phase, single);
    const std::vector<MaskResult> masks = runner.run();
    return {outcome_of(masks, c, testbed)};
  } catch (const Skip& skip) {
    CaseAnswer answer = CaseAnswer::skipped(skip.reason);
    answer.always = skip.always;
    return answer;
  } catch (const std::bad_alloc&) {
    reason = "out of memory: an allocation failed";
  } catch (const std::exception& error) {
    reason = error.what();
  }
  return CaseAnswer::failed(reason);
}

}  // namespace longspan::bench
