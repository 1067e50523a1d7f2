// Ranks as processes on GPUs: conformance of the NCCL communicator, and the end of all where one fails.
// Launched by torchrun --no-python, srun or mpirun with as many processes as there are GPUs; alone, it talks
// to itself.
//   torchrun --no-python --nproc-per-node 4 build-cuda/tests/nccl_test [fail]
#include "comm/nccl.h"

#include <cstdio>
#include <string_view>

#include "../unit/comm/conformance.h"
#include "base/backend.h"
#include "base/cuda.h"
#include "base/error.h"

namespace longspan {
namespace {

constexpr int kSkipped = 77;

int run(bool fail) {
  std::string reason = no_cuda_reason();
  if (reason.empty()) reason = nccl_unavailable_reason();
  const Launch launch = launch_from_environment().value_or(Launch{"nobody", 0, 1, 0, "127.0.0.1", 29998});
  std::vector<Device> gpus;
  for (const Device& device : devices()) {
    if (device.kind == DeviceKind::kCuda) gpus.push_back(device);
  }
  if (reason.empty() && launch.local_rank >= static_cast<int>(gpus.size()))
    reason = fmt::format("local rank {}, but {} GPUs", launch.local_rank, gpus.size());
  if (!reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return kSkipped;
  }
  const Device& gpu = gpus[static_cast<size_t>(launch.local_rank)];
  backend_of(gpu.kind).use(gpu.index);
  const auto communicator = nccl_communicator(launch, gpu, std::chrono::milliseconds(30000));
  const bool failing = fail && launch.rank == launch.ranks - 1;
  try {
    LONGSPAN_CHECK_INPUT(!failing, "power failure");
    const cuda::OwnedStream stream(gpu.index);
    for (const auto& check : conformance::kChecks) check.run(*communicator, {gpu, stream});
    if (fail) communicator->barrier();
  } catch (const std::exception& error) {
    communicator->fail(fmt::format("rank {} failed: {}", launch.rank, error.what()));
    std::printf("rank %d: %s\n", launch.rank, error.what());
    return fail && std::string_view(error.what()).find("power failure") != std::string_view::npos ? 0 : 1;
  }
  if (launch.rank == 0)
    std::printf("%zu checks passed on %d ranks (%s, NCCL %s)\n", std::size(conformance::kChecks),
                launch.ranks, launch.launcher.c_str(), nccl_version().c_str());
  return fail ? 1 : 0;
}

}  // namespace
}  // namespace longspan

int main(int argc, char** argv) {
  try {
    return longspan::run(argc > 1 && std::string_view(argv[1]) == "fail");
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
