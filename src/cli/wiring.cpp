// Connects the benchmark with the kernels, peers, testbeds and oracles of this build.
#include "cli/wiring.h"

#include "base/error.h"
#include "base/parallel.h"
#include "bench/measure/cpu_testbed.h"
#ifdef LONGSPAN_WITH_CUDA
#include "bench/measure/cuda_testbed.h"
#endif
#include "bench/case/verify_case.h"
#include "cli/peer_helpers.h"
#include "kernels/cpu/ceiling.h"
#include "kernels/registry.h"
#include "peers/peers.h"
#include "peers/peers_folder.h"

namespace longspan::cli {
namespace {

bench::Ceiling cpu_ceiling(DType dtype) {
  // The CPU kernels convert bf16 inputs to f32 and multiply in f32, so sgemm is the ceiling of both dtypes.
  LONGSPAN_CHECK_INPUT(dtype == DType::kF32 || dtype == DType::kBF16, "the CPU has no matrix product of {}",
                       name_of(dtype));
  constexpr int64_t kSize = 2048;
  constexpr double kBudgetS = 2;
  const SgemmCeiling ceiling = measure_sgemm_ceiling(kSize, kBudgetS);
  bench::Ceiling result;
  result.flops_per_s = ceiling.flops_per_s;
  result.what = fmt::format("OpenBLAS sgemm for {0}, {1} x {1} x {1}, {2} threads, best of {3}", ceiling.core,
                            kSize, thread_count(), ceiling.repeats);
  result.samples_s = ceiling.samples_s;
  return result;
}

std::unique_ptr<bench::Testbed> make_testbed(const Device& device) {
#ifdef LONGSPAN_WITH_CUDA
  if (device.kind == DeviceKind::kCuda) return bench::make_cuda_testbed(device);
#endif
  LONGSPAN_CHECK(device.kind == DeviceKind::kCpu, "no testbed for {}", device.name);
  return bench::make_cpu_testbed(device, cpu_ceiling);
}

// Longspan's own kernels, then the peers of the folder, then those that the user names.
std::vector<KernelRow> all_rows() {
  std::vector<KernelRow> rows(kernel_rows().begin(), kernel_rows().end());
  const peers::PeersFolder folder = peers::peers_folder();
  std::vector<KernelRow> peers = peers_in(folder.path, folder.refusal);
  for (const auto& file : peers::peer_files()) peers.push_back(peer_of(file, folder.refusal));
  for (KernelRow& peer : peers) {
    for (const KernelRow& other : rows) {
      LONGSPAN_CHECK_INPUT(other.name != peer.name,
                           "a peer has the name of another kernel, '{}'; rename its file", other.name);
    }
    rows.push_back(std::move(peer));
  }
  return rows;
}

}  // namespace

const bench::Workbench& workbench() {
  static const bench::Workbench bench = [] {
    bench::Workbench made;
    made.rows = all_rows();
    std::vector<const Kernel*> peers;
    for (size_t i = 0; i < made.rows.size(); ++i) {
      const Kernel* kernel = made.rows[i].kernel;
      if (kernel == nullptr) continue;
      made.kernels.push_back(kernel);
      if (i >= kernel_rows().size()) peers.push_back(kernel);
    }
    made.devices = devices;
    made.testbed = make_testbed;
    made.verify = bench::verify_case;
    made.helpers = peer_helpers(std::move(peers));
    return made;
  }();
  return bench;
}

}  // namespace longspan::cli
