// The plans of the C interface: by number, with the calls of them that CUDA graphs repeat.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core.h"
#include "longspan/attention.h"
#include "numbered.h"
#ifdef LONGSPAN_WITH_CUDA
#include "base/cuda/graph_calls.h"
#endif

namespace longspan::python {

using Call = std::function<void(Plan&, Stream)>;  // a forward or backward pass with its arguments

// A plan and what it was made for.
struct Planned {
  Problem problem;
  Device device;
  longspan_problem asked;
  std::string kernel;
  std::unique_ptr<Plan> plan;
  int64_t forward_bytes = 0, backward_bytes = 0;

  void run(const Call& call, Stream stream);

#ifdef LONGSPAN_WITH_CUDA
  // Its calls that CUDA graphs repeat, with Problem::same_launches.
  struct Captured {
    Call call;
    cuda::CapturedKernels kernels;
  };
  std::mutex mutex;
  std::vector<Captured> captured;
#endif
};

struct Graph {
  void* captured;  // cudaGraph_t
  void* ready;     // cudaGraphExec_t
};

// Makes the calls of `old` in these graphs calls of `plan`: as longspan_plan_follow.
void follow(const std::shared_ptr<Planned>& plan, const std::shared_ptr<Planned>& old,
            const std::vector<Graph>& graphs, Stream stream);

// The plans by number.
class Plans : public Numbered<Planned> {
 public:
  void remove(int64_t number);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Planned>> in_graphs_;  // that may run at any later time
};

Plans& plans();

}  // namespace longspan::python
