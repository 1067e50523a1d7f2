// Ranks on GPUs through NCCL: one thread per rank on one host, or one process per rank across hosts. The
// library is opened on first use, so the program starts without it.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/launch.h"
#include "longspan/base.h"

namespace longspan {

// Why NCCL cannot be used ("libnccl.so.2 was not found: ..."); empty if it can.
std::string nccl_unavailable_reason();
std::string nccl_version();  // "2.28.9"; empty if NCCL was not found

// Makes the endpoints of a group of ranks that are threads of this process. devices[r] is the GPU of rank r;
// all must differ, as NCCL requires. Throws an input error with nccl_unavailable_reason(), or if two ranks
// share a GPU.
std::vector<std::unique_ptr<Communicator>> nccl_communicators(std::span<const Device> devices,
                                                              std::chrono::milliseconds limit);

// This process's endpoint in a group of processes (launch_from_environment), on GPU `device`. The ranks meet
// at the launch's host and port, and report failures to each other there.
std::unique_ptr<Communicator> nccl_communicator(const Launch& launch, const Device& device,
                                                std::chrono::milliseconds limit);

// The same for processes that have their own way to tell one another `identifiers`, which one of them makes.
// It calls watch() from time to time. fail() does not reach other processes, and there is no barrier().
std::string nccl_identifiers();
std::unique_ptr<Communicator> nccl_communicator(int rank, int size, const std::string& identifiers,
                                                const Device& device, std::chrono::milliseconds limit);

}  // namespace longspan
