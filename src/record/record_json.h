// Records as JSON. All lines of results files are written here.
#pragma once

#include "record/record.h"

namespace longspan::record {

// One line of a results file.
Json to_json(const RunRecord& run);
Json to_json(const WorkloadRecord& workload);
Json to_json(const CaseRecord& c);
Json to_json(const PassPlan& plan);
Open<Machine> open_object(const Machine& machine);
Open<DeviceInfo> open_object(const DeviceInfo& device);
Open<Software> open_object(const Software& software);
Open<TimingRule> open_object(const TimingRule& rule);
Open<DeviceState> open_object(const DeviceState& state);

// Reads a workload from a case's JSON. Throws an input error that names the wrong key.
Workload workload_from(const Json& json);

}  // namespace longspan::record
