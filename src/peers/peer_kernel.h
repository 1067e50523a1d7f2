// A kernel of another framework. A worker process with that framework's own Python runs it.
#pragma once

#include <memory>
#include <string_view>

#include "attention/kernel.h"
#include "peers/peer_file.h"

namespace longspan {

std::unique_ptr<Kernel> make_peer_kernel(peers::PeerFile file);

// Call before a case. The peer of that name uses this worker, which the runner keeps from case to case,
// instead of starting one. Takes ownership of the descriptors.
void adopt_peer_worker(std::string_view kernel, int requests, int answers);

// Call before a case. The peer of that name starts its own worker, whatever it used before.
void forget_peer_worker(std::string_view kernel);

}  // namespace longspan
