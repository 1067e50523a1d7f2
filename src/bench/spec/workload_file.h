// Workloads: what a training run attends to, step by step, as a file of JSON lines
// (docs/reference/workload.md).
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/options.h"

namespace longspan::bench {

using MicroBatch = std::vector<int64_t>;  // the lengths of its documents
int64_t tokens_of(const MicroBatch& micro_batch);

struct WorkloadStep {
  std::string mask;      // a pattern of documents
  OptionValues options;  // of the pattern
  std::vector<MicroBatch> micro_batches;
};

struct Workload {
  std::string source;  // how it was made, in words
  int64_t heads_q = 0, heads_kv = 0, head_dim = 0, layers = 1;
  DType dtype = DType::kBF16;
  double outside_s_per_token = 0;  // of one GPU, both passes, outside attention
  double memory_bytes = 0;         // of a GPU, for what attention holds; 0: not limited
  int64_t dp = 1, cp = 1, pp = 1, tp = 1;
  std::string machine;                   // in words; may be empty
  int64_t nodes = 0, gpus_per_node = 0;  // 0: not said
  std::vector<WorkloadStep> steps;

  int64_t layers_of_stage() const { return layers / pp; }
  // Tensor parallelism divides the heads; KV heads are repeated once each GPU has one.
  int64_t heads_q_per_gpu() const { return heads_q / tp; }
  int64_t heads_kv_per_gpu() const { return heads_kv > tp ? heads_kv / tp : 1; }
};

// Throws an input error of one line that names the file (`name`), the line, the key and what is allowed.
Workload parse_workload(std::string_view text, const std::string& name);
Workload read_workload(const std::string& path);

// Throws such an error, with neither file nor line, for values that contradict one another.
void check_header(const Workload& workload);

void write_workload(const Workload& workload, std::ostream& out);

}  // namespace longspan::bench
