#include "attention/oracle/verify.h"

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "attention/oracle/sink_reference.h"
#include "base/error.h"
#include "base/parallel.h"

namespace longspan {
namespace {

// Keeps the first failure noted.
void note(std::string& failure, const std::string& found) {
  if (failure.empty()) failure = found;
}

HeadCounts row_counts(const Problem& problem) {
  HeadCounts counts(problem.masks->size());
  for (size_t m = 0; m < counts.size(); ++m) counts[m] = (*problem.masks)[m].visible_counts();
  return counts;
}

HeadCounts key_counts(const Problem& problem) {
  HeadCounts counts(problem.masks->size());
  for (size_t m = 0; m < counts.size(); ++m) counts[m] = (*problem.masks)[m].transposed().visible_counts();
  return counts;
}

std::string check_repeatable(Plan& plan, Direction direction, ProblemTensors& tensors) {
  return difference_of_runs(direction, tensors.views(), [&] {
    tensors.poison(direction);
    direction == Direction::kForward ? tensors.forward(plan) : tensors.backward(plan);
  });
}

}  // namespace

std::string difference_of_runs(Direction direction, const DeviceTensors& tensors,
                               const std::function<void()>& again) {
  struct Output {
    const char* name;
    TensorView view;
  };
  const TensorView lse =
      TensorView::contiguous(tensors.lse, DType::kF32, tensors.o.heads, 1, tensors.o.tokens);
  std::vector<Output> outputs =
      direction == Direction::kForward
          ? std::vector<Output>{{"o", tensors.o}, {"lse", lse}}
          : std::vector<Output>{{"dq", tensors.dq}, {"dk", tensors.dk}, {"dv", tensors.dv}};
  if (direction == Direction::kBackward && tensors.dsinks != nullptr)
    outputs.push_back({"dsinks", TensorView::contiguous(tensors.dsinks, DType::kF32, tensors.o.heads, 1, 1)});
  std::vector<HostScratch> first;
  for (const Output& output : outputs) {
    first.emplace_back(output.view.bytes());
    copy_bytes(first.back().data(), DeviceKind::kCpu, output.view.data, tensors.kind, output.view.bytes());
  }
  again();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const HostCopy second(outputs[i].view, tensors.kind);
    if (std::memcmp(second.view().data, first[i].data(), outputs[i].view.bytes()) != 0) {
      return fmt::format("{}: two runs differ, though a deterministic kernel was asked for", outputs[i].name);
    }
  }
  return "";
}

VerifyReport verify_outputs(const Problem& problem, Direction direction, const DeviceTensors& tensors,
                            const SampleOptions& options, int64_t drift_keys) {
  VerifyReport report;
  const Samples samples = choose_samples(problem, direction, options);
  report.rows = samples.row_count();
  report.keys = samples.key_count();

  const HostCopy o(tensors.o, tensors.kind);
  const HostCopy lse(TensorView::contiguous(tensors.lse, DType::kF32, problem.heads_q, 1, problem.tokens_q),
                     tensors.kind);
  const auto* host_lse = static_cast<const float*>(lse.view().data);

  // The oracle runs where the tensors are, if it can. The element-wise checks always use host copies.
  const bool in_place = oracle_reads(tensors.kind, problem);
  std::vector<std::unique_ptr<HostCopy>> copies;
  const auto readable = [&](const TensorView& tensor) {
    if (in_place) return tensor;
    return copies.emplace_back(std::make_unique<HostCopy>(tensor, tensors.kind))->view();
  };
  OracleInputs inputs;
  inputs.kind = in_place ? tensors.kind : DeviceKind::kCpu;
  inputs.q = readable(tensors.q);
  inputs.k = readable(tensors.k);
  inputs.v = readable(tensors.v);
  inputs.o = in_place ? tensors.o : o.view();
  inputs.lse = in_place ? tensors.lse : host_lse;

  const HeadCounts rows = row_counts(problem);
  ForwardReference forward = reference_forward(problem, inputs, samples);
  if (!problem.sinks.empty()) add_sinks(problem, samples, forward);
  if (forward.score_error > kMostScoreError) {
    throw Error(
        ErrorKind::kUnsupported,
        fmt::format(
            "no result can be verified at a scale of {:g}: in f32 the scores err by up to {:.2g}, and "
            "above {} their exponentials have no digit left; choose a smaller scale",
            problem.softmax_scale(), forward.score_error, kMostScoreError),
        __FILE__, __LINE__, "forward.score_error <= kMostScoreError");
  }
  std::string& wrong = report.forward_failure;
  note(wrong, check_elements("o", o.view(), rows));
  note(wrong, check_lse_elements(host_lse, problem.heads_q, problem.tokens_q, rows, !problem.sinks.empty()));
  report.tensors.push_back(compare_rows(problem, "o", o.view(), forward.o, samples.rows));
  report.tensors.push_back(compare_lse(problem, host_lse, forward, samples.rows, drift_keys));
  for (const TensorAccuracy& tensor : report.tensors) note(wrong, tensor.failure);

  if (direction == Direction::kBackward) {
    const HostCopy dq(tensors.dq, tensors.kind), dk(tensors.dk, tensors.kind), dv(tensors.dv, tensors.kind);
    inputs.dout = readable(tensors.dout);
    if (tensors.dlse != nullptr)
      inputs.dlse = static_cast<const float*>(
          readable(TensorView::contiguous(tensors.dlse, DType::kF32, problem.heads_q, 1, problem.tokens_q))
              .data);
    const BackwardReference reference = reference_backward(problem, inputs, samples);
    const HeadCounts keys = key_counts(problem);
    std::string& wrong_gradient = report.backward_failure;
    note(wrong_gradient, check_elements("dq", dq.view(), rows));
    note(wrong_gradient, check_elements("dk", dk.view(), keys));
    note(wrong_gradient, check_elements("dv", dv.view(), keys));
    report.tensors.push_back(compare_rows(problem, "dq", dq.view(), reference.dq, samples.rows));
    report.tensors.push_back(compare_rows(problem, "dk", dk.view(), reference.dk, samples.keys));
    report.tensors.push_back(compare_rows(problem, "dv", dv.view(), reference.dv, samples.keys));
    if (tensors.dsinks != nullptr) {
      const HostCopy dsinks(TensorView::contiguous(tensors.dsinks, DType::kF32, problem.heads_q, 1, 1),
                            tensors.kind);
      const HostCopy dout(tensors.dout, tensors.kind);
      DeviceTensors host;
      host.o = o.view();
      host.dout = dout.view();
      host.lse = static_cast<float*>(lse.view().data);
      std::optional<HostCopy> dlse;
      if (tensors.dlse != nullptr) {
        dlse.emplace(TensorView::contiguous(tensors.dlse, DType::kF32, problem.heads_q, 1, problem.tokens_q),
                     tensors.kind);
        host.dlse = static_cast<float*>(dlse->view().data);
      }
      host.dsinks = static_cast<float*>(dsinks.view().data);
      report.tensors.push_back(compare_dsinks(problem, host));
    }
    for (size_t i = 2; i < report.tensors.size(); ++i) note(wrong_gradient, report.tensors[i].failure);
  }
  note(report.failure, report.forward_failure);
  note(report.failure, report.backward_failure);
  return report;
}

VerifyReport verify(Plan& plan, const Problem& problem, Direction direction, const Device& device,
                    const VerifyOptions& options) {
  problem.check();
  ProblemTensors tensors(problem, direction, device, plan);
  tensors.fill_inputs(options.input_seed);
  const bool backward = direction == Direction::kBackward;
  std::string forward_failure, backward_failure;
  tensors.poison(Direction::kForward);
  tensors.forward(plan);
  if (problem.deterministic) forward_failure = check_repeatable(plan, Direction::kForward, tensors);
  if (backward) {
    tensors.poison(Direction::kBackward);
    tensors.backward(plan);
    if (problem.deterministic) backward_failure = check_repeatable(plan, Direction::kBackward, tensors);
  }
  VerifyReport report =
      verify_outputs(problem, direction, tensors.views(), options.samples, plan.notes().drift_keys);
  if (options.counting && countable(problem)) {
    const std::string forward = counting_forward(plan, problem, tensors);
    const std::string gradients = backward ? counting_backward(plan, problem, tensors) : "";
    report.counting = forward.empty() && gradients.empty() ? "pass" : "fail";
    note(forward_failure, forward);
    note(backward_failure, gradients);
  }
  note(report.forward_failure, forward_failure);
  note(report.backward_failure, backward_failure);
  note(report.failure, report.forward_failure);
  note(report.failure, report.backward_failure);
  return report;
}

}  // namespace longspan
