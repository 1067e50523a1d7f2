// Problems of suites, and the GPU that plans are made for where there is none.
#pragma once

#include <memory>
#include <string>

#include "attention/problem.h"
#include "bench/measure/mask_source.h"
#include "bench/spec/case.h"
#include "longspan/base.h"

namespace longspan {

// With the first mask of the case.
inline Problem problem_of(const bench::Case& c) {
  const DrawnMask mask = bench::MaskSource(c).next();
  Problem problem;
  problem.masks = std::make_shared<const HeadMasks>(mask.masks);
  problem.tokens_q = problem.masks->front().rows();
  problem.tokens_kv = problem.masks->front().columns();
  problem.heads_q = c.heads_q;
  problem.heads_kv = c.heads_kv;
  problem.head_dim = c.head_dim;
  problem.dtype = c.dtype;
  return problem;
}

// With its document lengths, which describe() leaves out.
inline std::string name_of(const bench::Case& c) {
  return bench::describe(c) + (c.lengths.empty() || c.lengths == "auto" ? "" : ", lengths " + c.lengths);
}

// The properties of an H200 that planners use, from the run line of
// results/nvidia-h200/2026-11-21-dense.jsonl.
inline Device an_h200() {
  Device device;
  device.kind = DeviceKind::kCuda;
  device.units = 132;
  device.capability = 90;
  device.cache_bytes = 62914560;
  return device;
}

}  // namespace longspan
