// Starts an instance of a backward kernel.
#pragma once

#include <algorithm>

#include <cuda_runtime_api.h>

#include "base/cuda/cuda_check.h"
#include "base/error.h"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/isa/dependent_launch.cuh"
#include "kernels/sm90/isa/pair.cuh"
#include "longspan/base.h"

namespace longspan::sm90 {

// `kernel` has the configuration C, and may use `shared_bytes` of shared memory.
template <class C>
void start_backward(void (*kernel)(BackwardParams), int shared_bytes, const BackwardParams& params,
                    const Device& device, cudaStream_t stream) {
  const int pass_ctas = C::kPasses ? params.pass_ctas : 0;
  LONGSPAN_CHECK(pass_ctas == params.pass_ctas && pass_ctas < device.units,
                 "{} CTAs are to do passes: this instance takes none, or there are only {} SMs",
                 params.pass_ctas, device.units);
  const bool scheduled = params.next_item != nullptr;
  const int streams = scheduled ? params.streams : params.items;
  const int workers = (streams + C::kStreams - 1) / C::kStreams;
  LONGSPAN_CHECK(!scheduled || (C::kScheduled && workers + pass_ctas <= device.units),
                 "a schedule for {1} CTAs beside {2} pass CTAs: this instance {0} follow a schedule, and "
                 "there are {3} SMs",
                 C::kScheduled ? "can" : "cannot", workers, pass_ctas, device.units);
  // CTAs that follow a schedule or wait for turns wait for others that may begin later, so all must be
  // resident. CTAs also wait for passes, but only for those of the first CTAs to begin; and these wait for
  // items, for which one more resident CTA suffices.
  const bool all_resident = scheduled || C::kOrdered;
  cudaLaunchAttribute attributes[2] = {dependent_launch(), launch_in_pairs()};
  if (all_resident) {
    attributes[0].id = cudaLaunchAttributeCooperative;
    attributes[0].val.cooperative = 1;
  }
  cudaLaunchConfig_t config{};
  config.blockDim = C::kThreads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = C::kPaired ? 2 : 1;
  if constexpr (C::kPaired) {
    const int most = std::max(device.units / 2, 1);
    config.gridDim = static_cast<unsigned>(2 * most);
    static const int first_resident = resident_pairs(kernel, config);  // on this process' first GPU
    // Pairs that wait for turns must all be resident, whatever GPU or context it is.
    const int resident = C::kOrdered ? resident_pairs(kernel, config) : first_resident;
    config.gridDim = static_cast<unsigned>(2 * std::min({workers, resident, most}));
  } else {
    config.gridDim = static_cast<unsigned>(std::min(device.units, workers + pass_ctas));
  }
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, params);
  if (status == cudaErrorCooperativeLaunchTooLarge) {
    cudaGetLastError();
    throw Error(
        ErrorKind::kUnsupported,
        fmt::format(
            "the backward pass was planned for {} SMs at once, and this process may use fewer (MPS, a green "
            "context): plan for as many SMs as it may use",
            config.gridDim.x),
        __FILE__, __LINE__, "cudaLaunchKernelEx");
  }
  LONGSPAN_CUDA(status);
}

}  // namespace longspan::sm90
