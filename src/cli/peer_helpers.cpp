// Starts workers of peers for the runner, trying one interpreter after another.
#include "cli/peer_helpers.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "peers/peer_kernel.h"
#include "peers/peers_folder.h"
#include "peers/worker_process.h"

namespace longspan::cli {
namespace {

class PeerHelper final : public bench::Helper {
 public:
  PeerHelper(const std::string& python, const std::string& folder, const std::string& adapter,
             const Variables& variables)
      : worker_(python, folder, adapter, peers::WorkerProcess::Group::kOwn, variables) {}
  std::vector<int> descriptors() const override { return worker_.descriptors(); }
  std::string how_it_ended() override { return worker_.how_it_ended(); }

 private:
  peers::WorkerProcess worker_;
};

}  // namespace

bench::Helpers peer_helpers(std::vector<const Kernel*> peers) {
  bench::Helpers helpers;
  // A worker whose interpreter lacks the peer's framework reports it and ends, and the next interpreter is
  // tried. If no worker can be started, the process of the case reports the reason.
  helpers.start = [peers = std::move(peers)](const Kernel& kernel, size_t early_ends,
                                             const Variables& variables) -> std::unique_ptr<bench::Helper> {
    if (std::find(peers.begin(), peers.end(), &kernel) == peers.end()) return nullptr;
    const std::vector<std::string> pythons = peers::interpreters();
    const peers::PeersFolder folder = peers::peers_folder();
    if (early_ends >= pythons.size() || !folder.refusal.empty()) return nullptr;
    try {
      return std::make_unique<PeerHelper>(pythons[early_ends], folder.path, std::string(kernel.name()),
                                          variables);
    } catch (const Error&) {
      return nullptr;
    }
  };
  helpers.adopt = [](const Kernel& kernel, const std::vector<int>& descriptors) {
    if (descriptors.empty()) {
      forget_peer_worker(kernel.name());
    } else {
      adopt_peer_worker(kernel.name(), descriptors.at(0), descriptors.at(1));
    }
  };
  return helpers;
}

}  // namespace longspan::cli
