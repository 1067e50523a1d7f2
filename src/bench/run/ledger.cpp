// Serialises the devices' access to the results file, the progress and the counts.
#include "bench/run/ledger.h"

#include <utility>

#include "bench/measure/cpu_testbed.h"
#include "record/record_json.h"

namespace longspan::bench {

Ledger::Ledger(const RunOptions& options, record::ResultsFile& file, SignalGuard& guard,
               const std::vector<Case>& cases, Earlier earlier, size_t devices)
    : options_(options),
      file_(file),
      guard_(guard),
      begin_s_(steady_clock().now_s()),
      progress_(options.progress, options.terminal, steady_clock(), cases,
                options.cases.size() - cases.size(), devices),
      failed_before_(std::move(earlier.failed)) {
  summary_.path = file.path();
  summary_.earlier = static_cast<int64_t>(options.cases.size() - cases.size());
  summary_.earlier_ok = earlier.ok;
  summary_.left = static_cast<int64_t>(cases.size());
}

bool Ledger::may_begin() {
  const std::lock_guard lock(mutex_);
  if (guard_.interrupted()) summary_.interrupted = true;
  const double limit_s = options_.stop_after_s;
  if (limit_s > 0 && steady_clock().now_s() - begin_s_ >= limit_s) summary_.stopped = true;
  return !given_up_ && !summary_.interrupted && !summary_.stopped;
}

void Ledger::interrupt() {
  const std::lock_guard lock(mutex_);
  summary_.interrupted = true;
}

void Ledger::break_up() {
  give_up();
  const std::lock_guard lock(mutex_);
  summary_.broken = true;
}

void Ledger::note(const std::string& text) {
  const std::lock_guard lock(mutex_);
  progress_.note(text);
}

void Ledger::write(const record::RunRecord& run) {
  const std::lock_guard lock(mutex_);
  file_.append(to_json(run));
}

void Ledger::write(const record::WorkloadRecord& workload) {
  const std::lock_guard lock(mutex_);
  file_.append(to_json(workload));
}

void Ledger::begin(const Case& c) {
  const std::lock_guard lock(mutex_);
  file_.check_in_place();
  progress_.begin(c);
}

void Ledger::end(const Case& c, const record::CaseRecord& result) {
  const std::lock_guard lock(mutex_);
  file_.append(to_json(result));
  --summary_.left;
  failed_before_.erase(result.id);
  ++(result.status == record::Status::kOk        ? summary_.ok
     : result.status == record::Status::kSkipped ? summary_.skipped
                                                 : summary_.failed);
  if (result.share_of_ceiling.value_or(0) > 1) ++summary_.above_ceiling;
  progress_.end(c, result, result.elapsed_s.value_or(0));
}

void Ledger::always_skip(const std::string& kernel, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  always_skipped_[kernel] = reason;
}

std::string Ledger::always_skipped(const std::string& kernel) {
  const std::lock_guard lock(mutex_);
  const auto found = always_skipped_.find(kernel);
  return found == always_skipped_.end() ? "" : found->second;
}

RunSummary Ledger::finish() {
  const std::lock_guard lock(mutex_);
  progress_.clear();
  summary_.earlier_failed = static_cast<int64_t>(failed_before_.size());
  return summary_;
}

}  // namespace longspan::bench
