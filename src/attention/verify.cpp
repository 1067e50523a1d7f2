#include "attention/verify.h"

#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"

namespace longspan {
namespace {

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

// Runs a pass twice: "" or which of its outputs differ in their bits.
std::string check_repeatable(Plan& plan, Direction direction, ProblemTensors& tensors) {
  const DeviceTensors& views = tensors.views();
  struct Output {
    const char* name;
    const TensorView& view;
  };
  const std::vector<Output> outputs =
      direction == Direction::kForward
          ? std::vector<Output>{{"o", views.o}}
          : std::vector<Output>{{"dq", views.dq}, {"dk", views.dk}, {"dv", views.dv}};
  std::vector<std::vector<char>> first;
  for (const Output& output : outputs) {
    auto& bytes = first.emplace_back(output.view.bytes());
    copy_bytes(bytes.data(), DeviceKind::kCpu, output.view.data, views.kind, bytes.size());
  }
  tensors.poison(direction);
  direction == Direction::kForward ? tensors.forward(plan) : tensors.backward(plan);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const HostCopy again(outputs[i].view, views.kind);
    if (std::memcmp(again.view().data, first[i].data(), first[i].size()) != 0) {
      return fmt::format("{}: two runs differ, though a deterministic kernel was asked for", outputs[i].name);
    }
  }
  return "";
}

}  // namespace

VerifyReport verify_outputs(const Problem& problem, Direction direction, const DeviceTensors& tensors,
                            const SampleOptions& options) {
  VerifyReport report;
  const auto fail = [&](const std::string& failure) {
    if (report.failure.empty()) report.failure = failure;
  };
  const bool backward = direction == Direction::kBackward;
  const Samples samples = choose_samples(problem, direction, options);
  report.rows = samples.row_count();
  report.keys = samples.key_count();

  const HostCopy o(tensors.o, tensors.kind);
  const HostCopy lse(TensorView::contiguous(tensors.lse, DType::kF32, problem.heads_q, 1, problem.tokens_q),
                     tensors.kind);
  const auto* host_lse = static_cast<const float*>(lse.view().data);

  // The oracle works where the tensors are if it can; what is compared element by element is copied in any
  // case.
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
  const ForwardReference forward = reference_forward(problem, inputs, samples);
  report.tensors.push_back(compare_rows(problem, "o", o.view(), forward.o, samples.rows));
  report.tensors.push_back(compare_lse(problem, host_lse, forward, samples.rows));
  fail(check_elements("o", o.view(), rows));
  fail(check_lse_elements(host_lse, problem.heads_q, problem.tokens_q, rows));

  if (backward) {
    const HostCopy dq(tensors.dq, tensors.kind), dk(tensors.dk, tensors.kind), dv(tensors.dv, tensors.kind);
    inputs.dout = readable(tensors.dout);
    const BackwardReference reference = reference_backward(problem, inputs, samples);
    report.tensors.push_back(compare_rows(problem, "dq", dq.view(), reference.dq, samples.rows));
    report.tensors.push_back(compare_rows(problem, "dk", dk.view(), reference.dk, samples.keys));
    report.tensors.push_back(compare_rows(problem, "dv", dv.view(), reference.dv, samples.keys));
    const HeadCounts keys = key_counts(problem);
    fail(check_elements("dq", dq.view(), rows));
    fail(check_elements("dk", dk.view(), keys));
    fail(check_elements("dv", dv.view(), keys));
  }
  for (const TensorAccuracy& tensor : report.tensors) fail(tensor.failure);
  return report;
}

VerifyReport verify(Plan& plan, const Problem& problem, Direction direction, const Device& device,
                    const VerifyOptions& options) {
  problem.check();
  ProblemTensors tensors(problem, direction, device, plan);
  tensors.fill_inputs(options.input_seed);
  const bool backward = direction == Direction::kBackward;
  std::string repeated;
  tensors.poison(Direction::kForward);
  tensors.forward(plan);
  if (problem.deterministic) repeated = check_repeatable(plan, Direction::kForward, tensors);
  if (backward) {
    tensors.poison(Direction::kBackward);
    tensors.backward(plan);
    if (problem.deterministic && repeated.empty()) {
      repeated = check_repeatable(plan, Direction::kBackward, tensors);
    }
  }
  VerifyReport report = verify_outputs(problem, direction, tensors.views(), options.samples);
  if (report.failure.empty()) report.failure = repeated;
  if (options.counting) {
    std::string failure = counting_forward(plan, problem, tensors);
    if (failure.empty() && backward && problem.head_dim >= 2)
      failure = counting_backward(plan, problem, tensors);
    report.counting = failure.empty() ? "pass" : "fail";
    if (report.failure.empty()) report.failure = failure;
  }
  return report;
}

}  // namespace longspan
