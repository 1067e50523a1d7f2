// A kernel that lives in another framework: a worker process with that framework's own Python runs it.
#pragma once

#include <memory>
#include <string_view>

#include "attention/kernel.h"

namespace longspan {

// The peer whose adapter is the file of that name in peers/. The strings are kept by reference.
std::unique_ptr<Kernel> make_peer_kernel(std::string_view name, std::string_view description,
                                         DeviceKind kind);

// Before a case: the peer of that name speaks to this worker, which the runner keeps from case to case,
// instead of starting one. Takes the descriptors.
void adopt_peer_worker(std::string_view kernel, int requests, int answers);

// Before a case: the peer of that name is to start a worker of its own, whatever it had.
void forget_peer_worker(std::string_view kernel);

}  // namespace longspan
