// Ranks as processes on GPUs: the conformance of the NCCL communicator, every strategy over it, and the end
// of the job if a rank fails or is killed. Launch it with torchrun --no-python, srun or mpirun, one process
// per GPU; a single process communicates with itself.
//   torchrun --standalone --no-python --nproc-per-node 4 build-cuda/tests/nccl_test [fail|die]
#include "comm/nccl.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <string_view>

#include "base/backend.h"
#include "base/buffer.h"
#include "base/cuda/cuda.h"
#include "base/error.h"
#include "kernels/registry.h"
#include "unit/comm/conformance.h"
#include "whole.h"

namespace longspan {
namespace {

constexpr int kSkipped = 77;

bool sm90_runs_on(const Device& gpu) {
  Problem problem = cp_problem("causal", 256, 16, 8, 128);
  problem.dtype = DType::kBF16;
  problem.fp32_output = true;
  for (const Kernel* kernel : kernels()) {
    if (kernel->name() == "sm90")
      return static_cast<bool>(kernel->supports(problem, Direction::kBackward, gpu));
  }
  return false;  // not in this build
}

// The last rank is killed while the others wait for it: they must learn of its death quickly.
int outlive(Communicator& communicator, const Device& gpu, Stream stream) {
  constexpr size_t kBytes = size_t{1} << 20;
  const int last = communicator.size() - 1;
  const Buffer memory(2 * kBytes, gpu);
  communicator.barrier();
  if (communicator.rank() == last) std::raise(SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  try {
    const Message send{last, memory.data(), kBytes}, receive{last, memory.as<char>() + kBytes, kBytes};
    communicator.exchange({&send, 1}, {&receive, 1}, stream)->wait(stream);
    communicator.synchronize(stream);
  } catch (const std::exception& error) {
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    std::printf("rank %d, after %.2f s: %s\n", communicator.rank(), time.count(), error.what());
    return std::string_view(error.what()).find("has died") != std::string_view::npos ? 0 : 1;
  }
  return 1;
}

int run(std::string_view mode) {
  const bool fail = mode == "fail";
  std::string reason = no_cuda_reason();
  if (reason.empty()) reason = nccl_unavailable_reason();
  const Launch launch = launch_from_environment().value_or(Launch{"nobody", 0, 1, 0, "127.0.0.1", 29998, ""});
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
    if (mode == "die") return outlive(*communicator, gpu, stream);
    if (fail) communicator->barrier();
    const Kernel& kernel = kernel_from_name(sm90_runs_on(gpu) ? "sm90" : "gpu-naive");
    const int problems =
        verify_whole(*communicator, kernel, gpu, DType::kBF16, launch.ranks * 1000 + 24, 16, 8, 128);
    if (launch.rank == 0)
      std::printf("%d problems of strategies right with %s\n", problems, std::string(kernel.name()).c_str());
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
    return longspan::run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
