// The fields of each record, listed once: key, member, meaning, and how it is written and checked. A visitor
// writes JSON (json_writer.h), reads it (json_reader.h) or describes it (schema.cpp). To add a field, add a
// member in record.h and a line here.
#pragma once

#include <concepts>
#include <type_traits>

#include "record/record.h"

namespace longspan::record {

// How a field without a value is written, and what a reader checks. Without flags, a field is always written,
// but an optional one is left out if it has no value. A reader treats an absent key like null.
enum Flag : unsigned {
  kRequired = 1,   // a reader refuses a line without it
  kNull = 2,       // no value is written as null
  kOmitted = 4,    // no value, empty, 0 or false is left out
  kPositive = 8,   // numbers must be above 0; without this flag, at least 0
  kAnySign = 16,   // numbers may be negative
  kByRank = 32,    // one number per rank
  kUnlimited = 64  // integers may exceed 2^53, which other languages read inexactly
};

// Lets visit(v, s) take a const or non-const S.
template <class S, class T>
concept Is = std::same_as<std::remove_const_t<S>, T>;

template <class V, Is<Machine> S>
void visit(V& v, S& s) {
  v.field("kind", s.kind, "machine or virtual machine, and what the firmware calls it");
  v.field("cpu_model", s.cpu_model, "the CPU's name");
  v.field("cpus", s.cpus, "logical CPUs that the process may use");
  v.field("memory_bytes", s.memory_bytes, "main memory", kNull);
  v.field("llc_bytes", s.llc_bytes, "last-level cache", kNull);
  v.field("governor", s.governor, "frequency governor", kNull);
  v.field("load_1min", s.load_1min, "load average when the run began", kNull);
  v.field("os", s.os, "operating system", kNull);
  v.field("kernel", s.kernel, "name and release of the operating system's kernel");
  v.field("settings", s.settings,
          "environment variables `NCCL_*`, `CUDA_*` and thread counts, as `NAME=value`", kNull);
}

template <class V, Is<DeviceInfo> S>
void visit(V& v, S& s) {
  v.field("kind", s.kind, "`cpu` or `cuda`");
  v.field("name", s.name, "model");
  v.field("uuid", s.uuid, "identifier of a GPU", kNull);
  v.field("units", s.units, "multiprocessors of a GPU, threads of a CPU", kNull);
  v.field("capability", s.capability, "compute capability of a GPU: 90 for 9.0", kNull);
  v.field("memory_bytes", s.memory_bytes, "memory", kNull);
  v.field("cache_bytes", s.cache_bytes, "last-level cache", kNull);
  v.field("driver", s.driver, "version of a GPU's driver", kNull);
}

template <class V, Is<Software> S>
void visit(V& v, S& s) {
  v.field("longspan", s.longspan, "version");
  v.field("commit", s.commit, "commit of the sources; null outside a git checkout", kNull);
  v.field("dirty", s.dirty, "the sources differed from that commit", kNull);
  v.field("compiler", s.compiler, "name and version");
  v.field("build_type", s.build_type, "`Release` for published results");
  v.field("build_id", s.build_id, "the linker's hash of the program's contents", kOmitted);
  v.field("libraries", s.libraries, "version of each library");
}

template <class V, Is<TimingRule> S>
void visit(V& v, S& s) {
  v.field("warmup_s", s.warmup_s, "duration of the runs before the first sample");
  v.field("min_samples", s.min_samples, "fewest samples of a mask before the interval counts");
  v.field("max_samples", s.max_samples, "most samples of a mask");
  v.field("min_time_s", s.min_time_s, "shortest time of sampling a mask, if the budget is longer");
  v.field("budget_s", s.budget_s, "time budget for the samples of a mask");
  v.field("half_width", s.half_width, "target: half the width of the median's interval, over the median");
  v.field("confidence", s.confidence, "confidence level of that interval");
  v.field("cold_cache", s.cold_cache, "each sample began with cold caches");
  v.field("timeout_s", s.timeout_s, "time limit of a whole case");
}

template <class V, Is<Ceiling> S>
void visit(V& v, S& s) {
  v.field("flops_per_s", s.flops_per_s, "rate of the fastest product", kPositive);
  v.field("what", s.what, "the product, in words");
  v.field("samples_s", s.samples_s, "its measured times", kPositive);
  v.field("tried", s.tried, "on a GPU, the rate of each layout tried", kOmitted);
  v.field("sm_clock_mhz", s.sm_clock_mhz, "on a GPU, the median clock during the measurement", kOmitted);
}

template <class V, Is<RunRecord> S>
void visit(V& v, S& s) {
  v.field("run", s.run, "random identifier of this run, 16 hexadecimal digits", kRequired);
  v.field("started", s.started, "UTC, ISO 8601");
  v.field("command", s.command, "the exact command line, with paths relative to the working folder");
  v.field("suite", s.suite, "name of the suite, or `command line`");
  v.field("machine", s.machine, "the computer, without its host name");
  v.field("device", s.device, "the device that ran the cases");
  v.field("software", s.software, "the build that ran them");
  v.field("rule", s.rule, "timing rule");
  v.field("ceilings", s.ceilings, "by dtype: a large matrix product, measured first");
}

template <class V, Is<WorkloadRecord> S>
void visit(V& v, S& s) {
  v.field("run", s.run, "the run that wrote the line", kRequired);
  v.field("workload", s.workload, "path of the workload file, relative to the working folder", kRequired);
  v.field("hash", s.hash, "of the file's contents, 16 hexadecimal digits");
  v.field("layers", s.layers, "layers that use one plan", kPositive);
  v.field("steps", s.steps,
          "for each step, for each data-parallel replica, the `id` of each case; a micro-batch that occurs "
          "again is named again");
}

template <class V, Is<Workload> S>
void visit(V& v, S& s) {
  v.field("kernel", s.kernel, "name of the kernel", kRequired);
  v.field("mask", s.mask, "a pattern, or the path of a mask file (`*.json`)", kRequired);
  v.field("options", s.options,
          "options of the pattern that differ from its defaults, and the `file_hash` of a file it reads");
  v.field("seqlen", s.seqlen, "tokens");
  v.field("heads_q", s.heads_q, "query heads");
  v.field("heads_kv", s.heads_kv, "key and value heads");
  v.field("head_dim", s.head_dim, "elements per head");
  v.field("dtype", s.dtype, "`f32`, `f16` or `bf16`");
  v.field("direction", s.direction, "`forward` or `backward`");
  v.field("masks", s.masks, "masks that were drawn and averaged");
  v.field("lengths", s.lengths, "source of document lengths; null if the mask has no documents", kNull);
  v.field("seed", s.seed, "seed of masks and inputs", kUnlimited);
  v.field("deterministic", s.deterministic, "bitwise reproducible results were required", kOmitted);
}

template <class V, Is<Accuracy> S>
void visit(V& v, S& s) {
  v.field("checked", s.checked, "tensors compared with the fp64 oracle");
  v.field("masks", s.masks, "number of masks compared with the fp64 oracle, starting at mask 0");
  v.field("max_error", s.max_error, "largest error of each tensor; null if it is not a number");
  v.field("tolerance", s.tolerance, "largest error allowed for each tensor");
  v.field("counting", s.counting, "`pass` or `fail`, by the counting oracle; null if it did not run", kNull);
  v.field("rows", s.rows, "query rows compared");
  v.field("columns", s.columns, "keys compared, for the gradients of k and v");
  v.field("same_bits", s.same_bits, "whether two runs gave the same bits, if that was required");
}

template <class V, Is<Picture> S>
void visit(V& v, S& s) {
  v.field("size", s.size, "cells along a side", kRequired);
  v.field("data", s.cells,
          "one byte per cell, row by row from the top: 0 if no pair is visible, 255 if all are");
}

template <class V, Is<PlanMove> S>
void visit(V& v, S& s) {
  v.field("operand", s.what, "`q`, `kv`, `o`, `do`, `dq` or `dkv`");
  v.field("from", s.from, "sending rank");
  v.field("to", s.to, "receiving rank");
  v.field("bytes", s.bytes, "size");
}

template <class V, Is<PlanRound> S>
void visit(V& v, S& s) {
  v.field("sent_bytes", s.sent_bytes, "bytes sent", kByRank);
  v.field("between_nodes_bytes", s.between_nodes_bytes, "of these, bytes sent to other nodes", kByRank);
  v.field("area", s.area, "visible pairs", kByRank | kUnlimited);
  v.field("moves", s.moves, "moves, each as `[operand, from, to, bytes]`; left out above 64 ranks");
}

template <class V, Is<PassPlan> S>
void visit(V& v, S& s) {
  v.field("rounds", s.rounds, "number of rounds");
  v.field("imbalance", s.imbalance, "the largest rank's visible pairs over their mean");
  v.field("sent_bytes", s.sent_bytes, "bytes sent", kByRank);
  v.field("between_nodes_bytes", s.between_nodes_bytes, "of these, bytes sent to other nodes", kByRank);
  v.field("area", s.area, "visible pairs", kByRank | kUnlimited);
  v.field("peak_copy_bytes", s.peak_copy_bytes, "most bytes of other ranks' data held at once", kByRank);
  v.field("by_round", s.by_round, "the rounds, in order");
  v.field("owned", s.owned, "tokens of each rank as `[begin, end]` pairs", kOmitted);
}

template <class V, Is<ParallelRecord> S>
void visit(V& v, S& s) {
  v.field("ranks", s.ranks, "number of ranks", kRequired);
  v.field("nodes", s.nodes, "number of nodes");
  v.field("transport", s.transport, "communication library: `threads`, `nccl` or `mpi`");
  v.field("rounds", s.rounds, "rounds of the pass");
  v.field("imbalance", s.imbalance, "the largest rank's visible pairs over their mean");
  v.field("spread", s.spread, "median over the samples of (slowest - fastest) / slowest");
  v.field("area", s.area, "visible pairs, summed over query heads", kByRank);
  v.field("sent_bytes", s.sent_bytes, "bytes sent, as counted during the run", kByRank);
  v.field("predicted_bytes", s.predicted_bytes, "bytes sent, as predicted by the schedule", kByRank);
  v.field("between_nodes_bytes", s.between_nodes_bytes, "predicted bytes sent to other nodes", kByRank);
  v.field("peak_copy_bytes", s.peak_copy_bytes, "most bytes of other ranks' data held at once", kByRank);
  v.field("held_bytes", s.held_bytes, "buffers besides the rank's own tensors and the kernel's plans",
          kByRank);
  v.field("planned_held_bytes", s.planned_held_bytes, "peak of `held_bytes`, as predicted by the schedule",
          kByRank);
  v.field("rank_time_s", s.rank_time_s, "median time", kByRank);
  v.field("compute_s", s.compute_s, "time in attention", kByRank);
  v.field("exposed_s", s.exposed_s, "exposed communication: time waiting for data", kByRank);
  v.field("reorder_s", s.reorder_s, "time packing rows", kByRank);
  v.field("merge_s", s.merge_s, "time merging and converting results", kByRank);
  v.field("difference", s.difference,
          "norm of the difference from the single-device result, over the norm of that result");
  v.field("single_error", s.single_error,
          "error of the single-device result against fp64, defined as `accuracy.max_error`");
  v.field("plan", s.plan, "schedule of this pass, for mask 0");
}

template <class V, Is<DeviceState> S>
void visit(V& v, S& s) {
  v.field("sm_clock_mhz", s.sm_clock_mhz, "`[lowest, median, highest]`");
  v.field("power_w", s.power_w, "highest power");
  v.field("temperature_c", s.temperature_c, "highest temperature", kAnySign);
  v.field("throttle_reasons", s.throttle_reasons, "why the clock was lowered, in words");
}

template <class V, Is<Measurement> S>
void visit(V& v, S& s) {
  v.field("index", s.index, "index of the mask");
  v.field("area", s.area, "visible pairs, summed over query heads", kUnlimited);
  v.field("flops", s.flops, "credited work");
  v.field("params", s.params, "parameters of the mask, as drawn");
  v.field("documents", s.documents, "number of documents");
  v.field("plan_s", s.plan_s, "median planning time");
  v.field("median_s", s.median_s, "median of the samples", kPositive);
  v.field("interval_s", s.interval_s, "`[lo, hi]`, 95 % interval of the median; null below 6 samples", kNull);
  v.field("converged", s.converged, "the interval is as narrow as the rule requires");
  v.field("samples_s", s.samples_s, "every sample, in the order taken", kPositive);
  v.field("throttled_samples_s", s.throttled_samples_s, "samples discarded because of throttling",
          kPositive | kOmitted);
}

template <class V, Is<Outcome> S>
void visit(V& v, S& s) {
  v.field("status", s.status, "`ok`, `skipped` or `failed`", kRequired);
  v.field("reason", s.reason, "why the status is not `ok`", kOmitted);
  v.field("area", s.area, "visible pairs summed over query heads, mean over the masks");
  v.field("density", s.density, "area over `heads_q * seqlen^2`, mean over the masks");
  v.field("flops", s.flops, "credited work, mean over the masks");
  v.field("time_s", s.time_s, "median time, mean over the masks", kPositive);
  v.field("interval_s", s.interval_s, "`[lo, hi]`, 95 % interval of `time_s`; null if a mask has none",
          s.time_s ? kNull : kOmitted);
  v.field("flops_per_s", s.flops_per_s, "sum of the masks' flops over the sum of their medians");
  v.field("plan_s", s.plan_s, "once-per-mask work, mean over the masks");
  v.field("plan_bytes", s.plan_bytes, "memory held by the plan");
  v.field("workspace_bytes", s.workspace_bytes, "workspace that the caller provides");
  v.field("peak_bytes", s.peak_bytes, "peak memory beyond inputs and outputs, including plan and workspace");
  v.field("total_bytes", s.total_bytes, "`peak_bytes` and the inputs and outputs; absent on several ranks");
  v.field("settings", s.settings, "the options that the kernel chose, in words", kOmitted);
  v.field("versions", s.versions, "packages of a peer's framework", kOmitted);
  v.field("compile_s", s.compile_s, "a peer's compilation, tuning and loading, over all masks");
  v.field("accuracy", s.accuracy, "accuracy, the worst over the masks");
  v.field("parallel", s.parallel, "figures by rank, if the case is spread over ranks");
  v.field("flops_per_s_per_rank", s.flops_per_s_per_rank, "`flops_per_s` over the number of ranks");
  v.field("picture", s.picture, "picture of mask 0 of KV head 0");
  v.field("throttled", s.throttled, "number of samples retaken because of throttling");
  v.field("device_state", s.device_state, "GPU only: its state during the samples", kOmitted);
  v.field("measurements", s.measurements, "one entry per mask", kOmitted);
  v.field("phases_s", s.phases_s, "time spent in each phase: `starting`, `drawing`, ..., `timing`", kOmitted);
  v.field("share_of_ceiling", s.share_of_ceiling,
          "`flops_per_s` over the run's ceiling times the number of GPUs (1 on a CPU)");
}

template <class V, Is<CaseRecord> S>
void visit(V& v, S& s) {
  v.field("run", s.run, "the run it belongs to", kRequired);
  v.field("id", s.id, "16 hexadecimal digits, a hash of `case`: equal for equal cases of any run", kRequired);
  v.field("case", s.workload, "what was measured", kRequired);
  v.field("command", s.command, "the command that repeats this case alone");
  v.field("started", s.started, "UTC, ISO 8601");
  v.field("elapsed_s", s.elapsed_s, "time of the whole case, including verification");
  using Part = std::conditional_t<std::is_const_v<S>, const Outcome, Outcome>;
  visit(v, static_cast<Part&>(s));
}

template <class V, Is<SimulatedMachine> S>
void visit(V& v, S& s) {
  v.field("name", s.name, "of the machine file", kRequired);
  v.field("measured", s.measured, "whether every figure of the machine is");
}

template <class V, Is<SimulatedTimeline> S>
void visit(V& v, S& s) {
  v.field("rank", s.rank, "whose stretch of time it is");
  v.field("what", s.what, "`compute`, `wait`, `reorder` or `merge`");
  v.field("begin_s", s.begin_s, "when it begins");
  v.field("end_s", s.end_s, "when it ends");
  v.field("peer", s.peer, "the rank whose data a wait is for; -1: none", kAnySign);
}

template <class V, Is<SimulatedMemory> S>
void visit(V& v, S& s) {
  v.field("rank", s.rank, "whose buffers");
  v.field("begin_s", s.begin_s, "when a round begins");
  v.field("bytes", s.bytes, "the most that is in use until the next round");
}

template <class V, Is<SimulatedRecord> S>
void visit(V& v, S& s) {
  v.field("case", s.workload, "what was simulated", kRequired);
  v.field("machine", s.machine, "where", kRequired);
  v.field("timeline", s.timeline, "what each rank does when, of mask 0");
  v.field("memory", s.memory, "what its buffers use, of mask 0");
  using Part = std::conditional_t<std::is_const_v<S>, const Outcome, Outcome>;
  visit(v, static_cast<Part&>(s));
}

// Checks that involve several fields of a record. Returns "" or what is wrong.
std::string check(const Picture& picture);
std::string check(const ParallelRecord& parallel);
std::string check(const CaseRecord& c);
std::string check(const SimulatedTimeline& timeline);
std::string check(const SimulatedMemory& memory);

}  // namespace longspan::record
