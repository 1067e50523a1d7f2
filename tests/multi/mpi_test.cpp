// Run by mpirun with one process per rank: the conformance of the MPI communicator, and every strategy
// against a single device. A failure on any rank ends the job with its reason and a non-zero exit code.
#include "comm/mpi.h"

#include <csignal>
#include <cstdio>

#include "cp/strategies/strategy.h"
#include "kernels/registry.h"
#include "unit/comm/conformance.h"
#include "unit/cp/spread.h"
#include "whole.h"

namespace longspan {
namespace {

void run(Communicator& communicator) {
  for (const auto& check : conformance::kChecks) check.run(communicator, {cpu_device(), {}});
  const Kernel& kernel = kernel_from_name("cpu-flash");
  int cases = 0;
  for (const Pattern& pattern : patterns()) {
    const std::string name(pattern.name);
    Problem problem = cp_problem(name, cp_length(name), 8, 4);
    problem.lse_gradient = name.starts_with("causal");
    Tensors single = draw(problem);
    run_single(kernel, problem, single);
    for (const Strategy& strategy : strategies()) {
      const Topology topology{1, communicator.size()};
      if (!strategy.supports(problem, topology, {})) continue;
      const Schedule schedule = strategy.schedule(problem, topology, {});
      try {
        check_rank(kernel, problem, schedule, single, communicator, 1e-5);
      } catch (const Error& error) {
        throw Error(error.kind(), fmt::format("{} {}: {}", strategy.name, name, error.what()), __FILE__,
                    __LINE__, "");
      }
      ++cases;
    }
  }
  cases += verify_whole(communicator, kernel, cpu_device(), DType::kF32, 300, 8, 4, 16);
  communicator.barrier();
  if (communicator.rank() == 0) std::printf("%d cases passed on %d ranks\n", cases, communicator.size());
}

}  // namespace
}  // namespace longspan

// With the argument `fail`, rank 1 fails deliberately, and every other rank must throw with its reason. With
// `die` it is killed and with `hang` it stops, in the middle of a strategy's passes: the job must end.
int main(int argc, char** argv) {
  using namespace longspan;
  const std::string_view what = argc > 1 ? argv[1] : "";
  auto communicator = mpi_communicator(std::chrono::milliseconds(what == "hang" ? 2000 : 60000));
  const bool fail = what == "fail";
  try {
    if (what == "die" || what == "hang") {
      const Problem problem = cp_problem("causal", 512, 8, 4);
      const Schedule schedule =
          strategy_from_name("ring-p2p").schedule(problem, {1, communicator->size()}, {});
      Tensors local(problem, count(schedule.owned[static_cast<size_t>(communicator->rank())]));
      Executor executor(schedule, problem, kernel_from_name("cpu-flash"), cpu_device(), *communicator);
      for (int pass = 0;; ++pass) {
        executor.forward(local.forward(), nullptr, {});
        if (pass == 3 && communicator->rank() == 1) raise(what == "die" ? SIGKILL : SIGSTOP);
      }
    }
    if (fail) {
      LONGSPAN_CHECK_INPUT(communicator->rank() != 1, "power failure");
      communicator->barrier();
      std::printf("rank %d was not told of the failure\n", communicator->rank());
      return 1;
    }
    run(*communicator);
  } catch (const std::exception& error) {
    std::printf("rank %d: %s\n", communicator->rank(), error.what());
    if (!fail) {
      communicator->fail(fmt::format("rank {} failed: {}", communicator->rank(), error.what()));
      return 1;
    }
    if (communicator->rank() == 1) communicator->fail(fmt::format("rank 1 failed: {}", error.what()));
    return std::string_view(error.what()).find("power failure") != std::string_view::npos ? 0 : 1;
  }
  return 0;
}
