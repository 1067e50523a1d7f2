// Draws workloads: documents from a source of lengths, packed into micro-batches.
#pragma once

#include "bench/spec/workload_file.h"
#include "mask/patterns/document_lengths.h"

namespace longspan::bench {

enum class Packing : uint8_t {
  kCut,    // documents follow one another, and the last one of a micro-batch is cut to fit
  kWhole,  // documents stay whole, the longest first into the first micro-batch that has room
};
std::string_view name_of(Packing packing);
Packing packing_from_name(std::string_view name);  // throws an input error that lists the names

struct Drawing {
  int64_t steps = 0, micro_batches = 0;  // of all data-parallel replicas together
  int64_t tokens = 0;                    // the most of a micro-batch
  Packing packing = Packing::kCut;
  uint64_t seed = 42;
};

// The micro-batches of each step: a pure function of its arguments, equal on every machine.
std::vector<std::vector<MicroBatch>> draw_micro_batches(const LengthSource& source, const Drawing& drawing);

}  // namespace longspan::bench
