// The machine, device and software of a run, for its record, without host names or paths.
#pragma once

#include <string>
#include <string_view>

#include "longspan/base.h"
#include "record/record.h"

namespace longspan::bench {

record::Machine machine_record();
// The environment variables (`NAME=value`) that affect the speed of GPUs, their links and the CPU: those of
// NCCL and CUDA, and thread counts. Sorted by name and separated by spaces. A path is replaced by a note.
std::string settings_in(const char* const* environment);
record::DeviceInfo device_record(const Device& device, const std::string& driver);
record::Software software_record();
std::string_view kind_name(DeviceKind kind);  // "cpu", "cuda"
DeviceKind device_kind_from_name(std::string_view name);

// The current time in UTC, in ISO 8601: "2026-11-21T02:38:16Z".
std::string utc_now();

}  // namespace longspan::bench
