// The machine, the device and the software of a run, for its record. No host name, no path.
#pragma once

#include <string>
#include <string_view>

#include "base/device.h"
#include "record/record.h"

namespace longspan::bench {

record::Machine machine_record();
// The variables of an environment, `NAME=value` each, that change how fast GPUs, their links and the CPU are:
// those of NCCL and CUDA, and numbers of threads. Sorted by name, with spaces between. A path is replaced by
// a note.
std::string settings_in(const char* const* environment);
record::DeviceInfo device_record(const Device& device, const std::string& driver);
record::Software software_record();
std::string_view kind_name(DeviceKind kind);  // "cpu", "cuda"
DeviceKind device_kind_from_name(std::string_view name);

// Now, in UTC, ISO 8601: "2026-11-21T02:38:16Z".
std::string utc_now();

}  // namespace longspan::bench
