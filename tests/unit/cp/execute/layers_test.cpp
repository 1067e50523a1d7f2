// Many forward passes on one executor before their backward passes, as the layers of a model make them.
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/threads.h"
#include "cp/execute/executor.h"
#include "cp/strategies/strategy.h"
#include "kernels/registry.h"
#include "unit/cp/spread.h"
#include "unit/cp/strategy_name.h"

namespace longspan {
namespace {

using std::chrono::milliseconds;

// One rank's tensors of a layer, with what its forward pass kept. Bytes that no pass has written are NaN.
struct Layer {
  Layer(const Executor& executor, const Problem& problem, const Tensors& whole, const Ranges& owned)
      : tensors(part_of(problem, whole, owned)), kept(executor.kept_bytes(), cpu_device()) {
    forget();
  }
  void forget() { fill_bytes(kept.data(), DeviceKind::kCpu, 0xff, kept.bytes()); }
  void forward(Executor& executor) { executor.forward(tensors.forward(), kept.data(), {}); }
  void backward(Executor& executor) { executor.backward(tensors.backward(), kept.data(), {}); }

  Tensors tensors;
  Buffer kept;
};

class Layers : public ::testing::TestWithParam<Strategy> {
 protected:
  // Calls body with an executor and three layers on every rank of several groups; the results of `finished`
  // layers are then compared with a single device's.
  void run(int finished, const std::function<void(Executor&, std::vector<Layer>&)>& body) {
    const Kernel& kernel = kernel_from_name("cpu-flash");
    for (const char* mask : {"causal", "causal_document", "share_question"}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        Problem problem = cp_problem(mask, 509, 8, 4);
        problem.dtype = dtype;
        std::vector<Tensors> singles;
        for (uint64_t seed : {1, 2, 3}) {
          singles.push_back(draw(problem, seed));
          run_single(kernel, problem, singles.back());
        }
        for (int ranks : {1, 3, 4}) {
          SCOPED_TRACE(fmt::format("{} {} on {} ranks", mask, name_of(dtype), ranks));
          const Schedule schedule = GetParam().schedule(problem, {1, ranks}, {});
          EXPECT_NO_THROW(run_thread_ranks(ranks, milliseconds(60000), [&](Communicator& communicator) {
            const Ranges& owned = schedule.owned[static_cast<size_t>(communicator.rank())];
            Executor executor(schedule, problem, kernel, cpu_device(), communicator);
            std::vector<Layer> layers;
            for (const Tensors& single : singles) layers.emplace_back(executor, problem, single, owned);
            body(executor, layers);
            for (size_t i = 0; i < static_cast<size_t>(finished); ++i) {
              check_results(problem, layers[i].tensors, singles[i], owned,
                            dtype == DType::kF32 ? 1e-5 : 4e-3);
            }
          }));
        }
      }
    }
  }
};

TEST_P(Layers, ShareAnExecutor) {
  run(3, [](Executor& executor, std::vector<Layer>& layers) {
    for (Layer& layer : layers) layer.forward(executor);
    for (const size_t i : {2, 0, 1}) {
      layers[i].backward(executor);
      layers[i].forget();  // no other layer reads it
    }
  });
}

// Activation checkpointing: the first forward pass keeps nothing, a second one precedes the backward pass.
TEST_P(Layers, RunForwardAgain) {
  run(2, [](Executor& executor, std::vector<Layer>& layers) {
    for (Layer& layer : layers) executor.forward(layer.tensors.forward(), nullptr, {});
    layers[1].forward(executor);
    layers[1].forget();
    layers[0].forward(executor);
    layers[1].forward(executor);
    layers[0].backward(executor);
    layers[1].backward(executor);
  });
}

// A backward pass reads what was kept without changing it, and what one layer drops harms no other.
TEST_P(Layers, MayBeDroppedOrRepeated) {
  run(1, [](Executor& executor, std::vector<Layer>& layers) {
    layers[1].forward(executor);
    layers[0].forward(executor);
    layers[1].kept.reset();
    layers[2].forward(executor);
    layers[2].kept.reset();
    layers[0].backward(executor);
    for (Tensor* result : {&layers[0].tensors.dq, &layers[0].tensors.dk, &layers[0].tensors.dv})
      fill_bytes(result->memory.data(), DeviceKind::kCpu, 0xff, result->memory.size());
    layers[0].backward(executor);
  });
}

INSTANTIATE_TEST_SUITE_P(All, Layers, ::testing::ValuesIn(strategies().begin(), strategies().end()),
                         strategy_name);

}  // namespace
}  // namespace longspan
