// What a run ran on and with: the machine and the software, for the run's record. No host name, no path.
#pragma once

#include <string>
#include <string_view>

#include "base/device.h"
#include "record/results.h"

namespace longspan::bench {

Json machine_record();
// Of an environment, `NAME=value` each, what changes how fast GPUs, their links and the CPU are: variables of
// NCCL and CUDA, and numbers of threads. By name, spaces between; a path is only said to be one.
std::string settings_in(const char* const* environment);
Json device_record(const Device& device, const std::string& driver);
Json software_record();
std::string_view kind_name(DeviceKind kind);  // "cpu", "cuda"
DeviceKind device_kind_from_name(std::string_view name);

// Now, in UTC, ISO 8601: "2026-11-21T02:38:16Z".
std::string utc_now();

}  // namespace longspan::bench
