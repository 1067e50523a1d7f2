// A kernel that lives in another framework: a worker process with that framework's own Python runs it.
#pragma once

#include <memory>
#include <string_view>

#include "attention/kernel.h"
#include "peers/peer_file.h"

namespace longspan {

std::unique_ptr<Kernel> make_peer_kernel(peers::PeerFile file);

// Before a case: the peer of that name speaks to this worker, which the runner keeps from case to case,
// instead of starting one. Takes the descriptors.
void adopt_peer_worker(std::string_view kernel, int requests, int answers);

// Before a case: the peer of that name is to start a worker of its own, whatever it had.
void forget_peer_worker(std::string_view kernel);

}  // namespace longspan
