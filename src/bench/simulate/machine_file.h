// A machine as a file (data/machines/*.json) describes it: the figures of the simulation, each with its
// origin.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/spec/case.h"
#include "cp/simulate/cluster.h"
#include "record/json.h"

namespace longspan::bench {

// Where a figure comes from.
struct Figure {
  std::string name;    // "links.threads.port_bytes_per_s"
  std::string origin;  // "measured", "typed in" or "default"
  std::string source;  // a results file, a data sheet
  double value = 0;
  std::optional<double> residual;  // mean relative error of what was fitted with it
};

// A kernel of the machine, and the tensors that it takes.
struct MachineKernel {
  KernelCost cost;  // of head_dim 128
  std::vector<DType> dtypes;
  std::vector<int64_t> head_dims;  // of q, k, v and o alike
  // By head_dim: what its tiles take over their share of the cost by dimension. 1 where none is given.
  std::map<int64_t, double> forward_factors, backward_factors;

  Support takes(const Case& c) const;
  KernelCost cost_of(int64_t head_dim) const;
};

struct Machine {
  std::string name;
  int gpus_per_node = 1;
  std::map<std::string, MachineKernel> kernels;
  std::map<std::string, simulate::LinkCost> links;  // by transport: "threads", "nccl"
  simulate::Clock clock;
  simulate::MemoryCost memory;
  std::vector<Figure> figures;

  bool measured(const std::string& transport) const;  // whether every figure but other transports' is
  // Throws an input error that lists the names if the kernel or the transport is not described, or says what
  // the kernel takes if not the case's tensors.
  simulate::Cluster cluster(const Case& c, const std::string& transport) const;
};

// Throws an input error that names the key and what is allowed.
Machine machine_from_json(const record::Json& json);
Machine read_machine(const std::string& path);  // the same, with the path

}  // namespace longspan::bench
