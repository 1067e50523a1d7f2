// Runs the fp64 oracle and the counting oracle on a case, as far as memory allows.
#include "bench/case/verify_case.h"

#include <algorithm>

#include "attention/oracle/verify.h"
#include "bench/case/case_runner.h"

namespace longspan::bench {
namespace {

// The counting oracle uses separate tensors, so that those of the case stay unchanged. It is skipped if
// memory does not suffice for a second set, or if the head dimension is too small to count in. The record is
// then null.
std::string count(const Subject& subject, std::string& failure) {
  Problem problem = subject.problem;
  if (!subject.kernel.takes_sinks()) problem.sinks.clear();  // nor do these calls get any
  if (!countable(problem)) return "";
  const size_t workspace =
      std::max(subject.plan.workspace_bytes(Direction::kForward),
               subject.direction == Direction::kBackward ? subject.plan.workspace_bytes(Direction::kBackward)
                                                         : size_t{0});
  if (tensor_bytes(problem, subject.direction) + workspace > subject.testbed.available_bytes() / 10 * 9)
    return "";
  if (subject.phase) subject.phase("counting keys");
  ProblemTensors tensors(problem, subject.direction, subject.testbed.device(), subject.plan);
  std::string wrong = counting_forward(subject.plan, problem, tensors);
  if (wrong.empty() && subject.direction == Direction::kBackward) {
    wrong = counting_backward(subject.plan, problem, tensors);
  }
  if (failure.empty()) failure = wrong;
  return wrong.empty() ? "pass" : "fail";
}

}  // namespace

Accuracy verify_case(const Subject& subject) {
  Accuracy accuracy;
  if (subject.count_alone) {
    accuracy.counting = count(subject, accuracy.failure);
    if (!accuracy.counting.empty()) return accuracy;
  }
  SampleOptions samples;
  samples.seed = subject.seed;
  const VerifyReport report = verify_outputs(subject.problem, subject.direction, subject.tensors, samples,
                                             subject.plan.notes().drift_keys);
  accuracy.failure = report.failure;
  accuracy.rows = report.rows;
  accuracy.columns = report.keys;
  for (const TensorAccuracy& tensor : report.tensors) {
    accuracy.checked.push_back(tensor.tensor);
    accuracy.max_error[tensor.tensor] = tensor.error;
    accuracy.tolerance[tensor.tensor] = tensor.tolerance;
  }
  if (!subject.count_alone) accuracy.counting = count(subject, accuracy.failure);
  return accuracy;
}

}  // namespace longspan::bench
