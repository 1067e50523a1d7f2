// Ranks as threads of one process: the default communicator, which needs no setup.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace longspan {

// Makes the endpoints of a group of `ranks` ranks. A wait longer than `limit` fails the group.
std::vector<std::unique_ptr<Communicator>> thread_communicators(int ranks, std::chrono::milliseconds limit);

// Runs body once per endpoint, each on its own thread. If a body throws, its group fails with that reason.
// Returns when all have ended and then rethrows the first failure.
void run_on_threads(std::span<Communicator* const> ends, const std::function<void(Communicator&)>& body);

// The same with a new group of `ranks` ranks.
void run_thread_ranks(int ranks, std::chrono::milliseconds limit,
                      const std::function<void(Communicator&)>& body);

}  // namespace longspan
