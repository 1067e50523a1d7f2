// Ranks on GPUs through NCCL: one rank a thread on one host, or one rank a process across hosts. The library
// is looked for when it is first needed: the program starts without it.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/device.h"
#include "comm/communicator.h"
#include "comm/launch.h"

namespace longspan {

// Why NCCL cannot be used ("libnccl.so.2 was not found: ..."); empty if it can.
std::string nccl_unavailable_reason();
std::string nccl_version();  // "2.28.9"; empty without it

// The ends of a group of ranks that are threads of this process; rank r's GPU is devices[r], each another
// one. Throws an input error with nccl_unavailable_reason(), or where two ranks would share a GPU, which NCCL
// refuses.
std::vector<std::unique_ptr<Communicator>> nccl_communicators(std::span<const Device> devices,
                                                              std::chrono::milliseconds limit);

// This process's end of a group of processes (launch_from_environment); its GPU is `device`. The ranks meet
// at the launch's host and port, where they also hear of each other's failures.
std::unique_ptr<Communicator> nccl_communicator(const Launch& launch, const Device& device,
                                                std::chrono::milliseconds limit);

}  // namespace longspan
