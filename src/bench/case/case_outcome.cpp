// Averages the results of a case's masks and takes the worst of their errors.
#include "bench/case/case_outcome.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/ranges.h>

#include "bench/measure/mask_source.h"
#include "bench/measure/parallel_measure.h"
#include "bench/spec/option_json.h"
#include "record/record_json.h"

namespace longspan::bench {
namespace {

using Masks = std::vector<MaskResult>;

// Rounds to a tenth of a nanosecond: further digits are noise.
double rounded(double time_s) {
  return std::round(time_s * 1e10) / 1e10;
}

std::vector<double> rounded(std::vector<double> times_s) {
  for (double& time_s : times_s) time_s = rounded(time_s);
  return times_s;
}

double mean(const Masks& masks, const std::function<double(const MaskResult&)>& value) {
  double sum = 0;
  for (const MaskResult& mask : masks) sum += value(mask);
  return sum / static_cast<double>(masks.size());
}

int64_t most(const Masks& masks, size_t MaskResult::*member) {
  size_t bytes = 0;
  for (const MaskResult& mask : masks) bytes = std::max(bytes, mask.*member);
  return static_cast<int64_t>(bytes);
}

record::Accuracy worst_accuracy(const Masks& masks) {
  record::Accuracy worst = masks.front().accuracy;
  for (const MaskResult& mask : masks) {
    const Accuracy& one = mask.accuracy;
    for (const auto& [tensor, error] : one.max_error) {
      double& most = worst.max_error[tensor];
      if (!std::isnan(most) && !(error <= most)) most = error;  // NaN is worse than any number
    }
    if (one.counting == "fail") worst.counting = "fail";
    if (one.counting.empty() && worst.counting == "pass") worst.counting.clear();
    if (worst.same_bits && one.same_bits) worst.same_bits = *worst.same_bits && *one.same_bits;
    worst.rows = std::max(worst.rows, one.rows);
    worst.columns = std::max(worst.columns, one.columns);
  }
  worst.masks =
      std::count_if(masks.begin(), masks.end(), [](const MaskResult& m) { return m.accuracy.rows > 0; });
  return worst;
}

record::Measurement measurement_of(const MaskResult& mask, int64_t index) {
  const Measurement& m = mask.measurement;
  record::Measurement entry;
  entry.index = index;
  entry.area = mask.area;
  entry.flops = mask.flops;
  entry.params.json = record::Json::object();
  for (const auto& [name, value] : mask.mask.params) entry.params.json[name] = to_json(value);
  entry.documents = static_cast<int64_t>(mask.mask.document_lengths.size());
  entry.plan_s = rounded(mask.plan_s);
  entry.median_s = rounded(m.median_s);
  entry.interval_s = m.interval_s;
  entry.converged = m.converged;
  entry.samples_s = rounded(m.samples_s);
  entry.throttled_samples_s = rounded(m.throttled_samples_s);
  return entry;
}

// The distinct settings of all masks, the versions, and the compilation time if there is any.
void add_notes(record::Outcome& outcome, const Masks& masks) {
  std::vector<std::string> settings;
  double compile_s = 0;
  for (const MaskResult& mask : masks) {
    const std::string& one = mask.notes.settings;
    if (!one.empty() && std::find(settings.begin(), settings.end(), one) == settings.end())
      settings.push_back(one);
    compile_s += mask.notes.compile_s;
  }
  outcome.settings = fmt::format("{}", fmt::join(settings, "; "));
  outcome.versions = masks.front().notes.versions;
  if (compile_s > 0) outcome.compile_s = rounded(compile_s);
}

void add_time(record::Outcome& outcome, const Masks& masks) {
  std::vector<Estimate> medians;
  for (const MaskResult& mask : masks)
    medians.push_back({mask.measurement.median_s, mask.measurement.interval_s});
  const Estimate time = mean_of(medians);
  outcome.time_s = rounded(time.value);
  outcome.interval_s = time.interval;
  outcome.flops_per_s = *outcome.flops / time.value;  // a ratio of means over the same masks
}

}  // namespace

record::Outcome outcome_of(const std::vector<MaskResult>& masks, const Case& c, Testbed& testbed) {
  const std::string& failure = masks.back().accuracy.failure;
  const Mask& first = masks.front().mask.masks.front();
  record::Outcome outcome =
      failure.empty() ? record::Outcome{} : record::Outcome::failed("wrong result: " + failure);
  const double pairs = static_cast<double>(c.heads_q) * static_cast<double>(first.rows()) *
                       static_cast<double>(first.columns());
  outcome.area = mean(masks, [](const MaskResult& m) { return static_cast<double>(m.area); });
  outcome.density = *outcome.area / pairs;
  outcome.flops = mean(masks, [](const MaskResult& m) { return m.flops; });
  outcome.plan_s = rounded(mean(masks, [](const MaskResult& m) { return m.plan_s; }));
  outcome.plan_bytes = most(masks, &MaskResult::plan_bytes);
  outcome.workspace_bytes = most(masks, &MaskResult::workspace_bytes);
  outcome.peak_bytes = most(masks, &MaskResult::peak_bytes);
  // Ranks hold shares of the tensors, and which share depends on the strategy.
  if (!c.parallelism) outcome.total_bytes = most(masks, &MaskResult::total_bytes);
  add_notes(outcome, masks);
  outcome.accuracy = worst_accuracy(masks);
  outcome.picture = picture_of(first);
  if (!failure.empty()) return outcome;

  outcome.status = record::Status::kOk;
  add_time(outcome, masks);
  if (c.parallelism) {
    std::vector<record::ParallelRecord> parallel;
    parallel.reserve(masks.size());
    for (const MaskResult& mask : masks) parallel.push_back(mask.parallel);
    outcome.parallel = mean_of(parallel);
    outcome.flops_per_s_per_rank = *outcome.flops_per_s / c.parallelism.ranks;
  }
  outcome.throttled = 0;
  for (size_t i = 0; i < masks.size(); ++i) {
    *outcome.throttled += static_cast<int64_t>(masks[i].measurement.throttled_samples_s.size());
    outcome.measurements.push_back(measurement_of(masks[i], static_cast<int64_t>(i)));
  }
  if (const auto state = testbed.take_device_state()) outcome.device_state = record::open_object(*state);
  return outcome;
}

}  // namespace longspan::bench
