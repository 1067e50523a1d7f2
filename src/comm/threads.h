// Ranks as threads of one process: the default communicator, with nothing to set up.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace longspan {

// Makes the ends of a group of `ranks` ranks. A wait that takes longer than `limit` fails the group.
std::vector<std::unique_ptr<Communicator>> thread_communicators(int ranks, std::chrono::milliseconds limit);

// Runs body once for each end, each on a thread of its own. If a body throws, its group is failed with that
// reason; when all have ended, the first failure is rethrown.
void run_on_threads(std::span<Communicator* const> ends, const std::function<void(Communicator&)>& body);

// The same with a new group of `ranks` ranks.
void run_thread_ranks(int ranks, std::chrono::milliseconds limit,
                      const std::function<void(Communicator&)>& body);

}  // namespace longspan
