// One device's part of a run: the ceiling, then the cases one after another in a separate process. Several
// devices run at the same time, each on a thread, and share the ledger.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/run/isolation.h"
#include "bench/run/ledger.h"

namespace longspan::bench {

class DeviceRun {
 public:
  // `variables`: set in the environment of its processes. `device` has the number that these processes give
  // it.
  DeviceRun(const RunOptions& options, const Workbench& workbench, Ledger& ledger, SignalGuard& guard,
            const Device& device, const Variables& variables, std::vector<Device> devices);

  // Measures the ceilings, writes the run's record and starts what `cases` need. False if interrupted.
  bool begin(const std::vector<Case>& cases);

  // Runs a case and writes its line. False if interrupted: nothing is then written for the case.
  bool run_one(const Case& c);

 private:
  // A kernel's helper, and how many earlier helpers ended without a failed case.
  struct HelperSlot {
    std::unique_ptr<Helper> helper;
    bool used = false;
    size_t early_ends = 0;
  };

  std::optional<CaseAnswer> skip_at_once(const Case& c);
  std::optional<CaseAnswer> measure(const Case& c);
  std::optional<CaseAnswer> attempt(const Case& c);
  std::optional<CaseAnswer> measure_with_team(const Case& c);
  void record(const Case& c, record::Outcome outcome);
  Helper* helper_for(const Case& c);
  void start_helper(const std::string& kernel);
  bool end_other_helpers(const Case& c);
  void end_failed_helper(const Case& c, record::Outcome& outcome);
  double devices_of(const Case& c) const;

  const RunOptions& options_;
  const Workbench& workbench_;
  Ledger& ledger_;
  Isolation isolation_;
  const Device device_;
  const Variables variables_;
  const std::vector<Device> devices_;  // of the machine
  std::string run_id_;
  std::string started_;  // when the current case started
  double begin_s_ = 0;
  std::map<DType, double> ceilings_;
  std::map<std::string, HelperSlot> helpers_;  // by kernel
};

}  // namespace longspan::bench
