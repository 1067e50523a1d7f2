// A record as JSON: the one place that writes lines of results files.
#pragma once

#include "record/record.h"

namespace longspan::record {

// A line of a results file, as written.
Json to_json(const RunRecord& run);
Json to_json(const CaseRecord& c);
Json to_json(const PassPlan& plan);
Open<Machine> open_object(const Machine& machine);
Open<DeviceInfo> open_object(const DeviceInfo& device);
Open<Software> open_object(const Software& software);
Open<TimingRule> open_object(const TimingRule& rule);
Open<DeviceState> open_object(const DeviceState& state);

// A case as a workload. Throws an input error that names the key that is wrong.
Workload workload_from(Json json);

}  // namespace longspan::record
