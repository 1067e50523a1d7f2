// The fields of each record, listed once: key, member, meaning, and how it is written and checked. A visitor
// writes JSON (json_writer.h), reads it (json_reader.h) or describes it (schema.cpp). To add a field: a
// member in record.h and a line here.
#pragma once

#include <concepts>
#include <type_traits>

#include "record/record.h"

namespace longspan::record {

// How a field is written where there is none of it, and what a reader asks of it. Without a flag a field is
// always written, an optional one left out where there is none, and a reader takes an absent key or null for
// none.
enum Flag : unsigned {
  kRequired = 1,   // a reader refuses a line without it
  kNull = 2,       // none is written as null
  kOmitted = 4,    // none, empty, 0 or false is left out
  kPositive = 8,   // numbers are above 0; all others are not below 0
  kAnySign = 16,   // numbers may be below 0
  kByRank = 32,    // one number for each rank
  kUnlimited = 64  // whole numbers may be above 2^53, which other languages read inexactly
};

// visit(v, s) takes S const or not.
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
  v.field("settings", s.settings, "`NCCL_*`, `CUDA_*` and thread counts of the environment, as `NAME=value`",
          kNull);
}

template <class V, Is<DeviceInfo> S>
void visit(V& v, S& s) {
  v.field("kind", s.kind, "`cpu` or `cuda`");
  v.field("name", s.name, "model");
  v.field("uuid", s.uuid, "identifier of a GPU", kNull);
  v.field("units", s.units, "multiprocessors of a GPU, threads of a CPU", kNull);
  v.field("capability", s.capability, "compute capability of a GPU: 90 for 9.0", kNull);
  v.field("memory_bytes", s.memory_bytes, "its memory", kNull);
  v.field("cache_bytes", s.cache_bytes, "its last-level cache", kNull);
  v.field("driver", s.driver, "version of a GPU's driver", kNull);
}

template <class V, Is<Software> S>
void visit(V& v, S& s) {
  v.field("longspan", s.longspan, "version");
  v.field("commit", s.commit, "commit of the sources; null if they were in no git checkout", kNull);
  v.field("dirty", s.dirty, "the sources differed from that commit", kNull);
  v.field("compiler", s.compiler, "name and version");
  v.field("build_type", s.build_type, "`Release` for what is published");
  v.field("libraries", s.libraries, "version of each library");
}

template <class V, Is<TimingRule> S>
void visit(V& v, S& s) {
  v.field("warmup_s", s.warmup_s, "runs before the first sample");
  v.field("min_samples", s.min_samples, "samples before the interval is believed");
  v.field("max_samples", s.max_samples, "the most samples of a mask");
  v.field("budget_s", s.budget_s, "time for the samples of a mask");
  v.field("half_width", s.half_width, "enough: half the interval of the median over the median");
  v.field("confidence", s.confidence, "of that interval");
  v.field("cold_cache", s.cold_cache, "each sample began with cold caches");
  v.field("timeout_s", s.timeout_s, "time limit of a whole case");
}

template <class V, Is<Ceiling> S>
void visit(V& v, S& s) {
  v.field("flops_per_s", s.flops_per_s, "rate of the fastest product", kPositive);
  v.field("what", s.what, "which product, in words");
  v.field("samples_s", s.samples_s, "its times", kPositive);
  v.field("tried", s.tried, "on a GPU, the rate of each layout", kOmitted);
  v.field("sm_clock_mhz", s.sm_clock_mhz, "on a GPU, the median clock meanwhile", kOmitted);
}

template <class V, Is<RunRecord> S>
void visit(V& v, S& s) {
  v.field("run", s.run, "random identifier of this run, 16 hexadecimal digits", kRequired);
  v.field("started", s.started, "UTC, ISO 8601");
  v.field("command", s.command, "the exact command line, with paths relative to the working folder");
  v.field("suite", s.suite, "name of the suite, or `command line`");
  v.field("machine", s.machine, "the computer, without its host name");
  v.field("device", s.device, "what the cases ran on");
  v.field("software", s.software, "the build that measured");
  v.field("rule", s.rule, "timing rule");
  v.field("ceilings", s.ceilings, "by dtype: a large matrix product, measured first");
}

template <class V, Is<Workload> S>
void visit(V& v, S& s) {
  v.field("kernel", s.kernel, "name of the kernel", kRequired);
  v.field("mask", s.mask, "a pattern, or the path of a mask file (`*.json`)", kRequired);
  v.field("options", s.options,
          "options of the pattern that are not its defaults, and `file_hash` of a file read");
  v.field("seqlen", s.seqlen, "tokens");
  v.field("heads_q", s.heads_q, "query heads");
  v.field("heads_kv", s.heads_kv, "key and value heads");
  v.field("head_dim", s.head_dim, "elements of a head");
  v.field("dtype", s.dtype, "`f32`, `f16` or `bf16`");
  v.field("direction", s.direction, "`forward` or `backward`");
  v.field("masks", s.masks, "masks that were drawn and averaged");
  v.field("lengths", s.lengths, "source of document lengths; null where the mask has no documents", kNull);
  v.field("seed", s.seed, "seed of masks and inputs", kUnlimited);
  v.field("deterministic", s.deterministic, "the same bits on every run were demanded", kOmitted);
}

template <class V, Is<Accuracy> S>
void visit(V& v, S& s) {
  v.field("checked", s.checked, "tensors that were compared with the fp64 oracle");
  v.field("masks", s.masks, "masks compared with the fp64 oracle: the first ones");
  v.field("max_error", s.max_error, "error of each tensor; null where it is not a number");
  v.field("tolerance", s.tolerance, "the most that is allowed");
  v.field("counting", s.counting, "`pass` or `fail` by the counting oracle; null where it did not run",
          kNull);
  v.field("rows", s.rows, "query rows compared");
  v.field("columns", s.columns, "keys compared, for the gradients of k and v");
  v.field("same_bits", s.same_bits, "whether two runs gave the same bits, where that was demanded");
}

template <class V, Is<Picture> S>
void visit(V& v, S& s) {
  v.field("size", s.size, "cells along a side", kRequired);
  v.field("data", s.cells,
          "one byte a cell, by rows from the top: 0 for nothing visible, 255 for everything");
}

template <class V, Is<PlanMove> S>
void visit(V& v, S& s) {
  v.field("operand", s.what, "`q`, `kv`, `o`, `do`, `dq` or `dkv`");
  v.field("from", s.from, "rank that sends");
  v.field("to", s.to, "rank that receives");
  v.field("bytes", s.bytes, "size");
}

template <class V, Is<PlanRound> S>
void visit(V& v, S& s) {
  v.field("sent_bytes", s.sent_bytes, "bytes sent", kByRank);
  v.field("between_nodes_bytes", s.between_nodes_bytes, "of these, across a node's border", kByRank);
  v.field("area", s.area, "visible pairs", kByRank | kUnlimited);
  v.field("moves", s.moves, "each as `[operand, from, to, bytes]`; left out above 64 ranks");
}

template <class V, Is<PassPlan> S>
void visit(V& v, S& s) {
  v.field("rounds", s.rounds, "number of rounds");
  v.field("imbalance", s.imbalance, "the largest rank's visible pairs over their mean");
  v.field("sent_bytes", s.sent_bytes, "bytes sent", kByRank);
  v.field("between_nodes_bytes", s.between_nodes_bytes, "of these, across a node's border", kByRank);
  v.field("area", s.area, "visible pairs", kByRank | kUnlimited);
  v.field("peak_copy_bytes", s.peak_copy_bytes, "the most held at once of other ranks' data", kByRank);
  v.field("by_round", s.by_round, "the rounds, in order");
  v.field("owned", s.owned, "tokens of each rank as `[begin, end]` pairs", kOmitted);
}

template <class V, Is<ParallelRecord> S>
void visit(V& v, S& s) {
  v.field("ranks", s.ranks, "number of ranks", kRequired);
  v.field("nodes", s.nodes, "nodes that they are on");
  v.field("transport", s.transport, "what carried the data: `threads`, `nccl` or `mpi`");
  v.field("rounds", s.rounds, "rounds of the pass");
  v.field("imbalance", s.imbalance, "the largest rank's visible pairs over their mean");
  v.field("spread", s.spread, "median over the samples of (slowest - fastest) / slowest");
  v.field("area", s.area, "visible pairs, summed over query heads", kByRank);
  v.field("sent_bytes", s.sent_bytes, "bytes counted as they were sent", kByRank);
  v.field("predicted_bytes", s.predicted_bytes, "the same by the schedule alone", kByRank);
  v.field("between_nodes_bytes", s.between_nodes_bytes, "predicted bytes across a node's border", kByRank);
  v.field("peak_copy_bytes", s.peak_copy_bytes, "the most held at once of other ranks' data", kByRank);
  v.field("held_bytes", s.held_bytes, "buffers beside its own tensors, without the kernel's plans", kByRank);
  v.field("planned_held_bytes", s.planned_held_bytes, "the most of these by the schedule alone", kByRank);
  v.field("rank_time_s", s.rank_time_s, "median time", kByRank);
  v.field("compute_s", s.compute_s, "time in attention", kByRank);
  v.field("exposed_s", s.exposed_s, "time waiting for data", kByRank);
  v.field("reorder_s", s.reorder_s, "time packing rows", kByRank);
  v.field("merge_s", s.merge_s, "time merging and converting results", kByRank);
  v.field("difference", s.difference,
          "norm of the difference from one device's result, over the norm of that");
  v.field("single_error", s.single_error,
          "error of one device's result against fp64, as `accuracy.max_error`");
  v.field("plan", s.plan, "schedule of this pass, for mask 0");
}

template <class V, Is<DeviceState> S>
void visit(V& v, S& s) {
  v.field("sm_clock_mhz", s.sm_clock_mhz, "`[lowest, median, highest]`");
  v.field("power_w", s.power_w, "the highest");
  v.field("temperature_c", s.temperature_c, "the highest", kAnySign);
  v.field("throttle_reasons", s.throttle_reasons, "why the clock was lowered, in words");
}

template <class V, Is<Measurement> S>
void visit(V& v, S& s) {
  v.field("index", s.index, "number of the mask");
  v.field("area", s.area, "visible pairs, summed over query heads", kUnlimited);
  v.field("flops", s.flops, "credited work");
  v.field("params", s.params, "parameters of the mask, as drawn");
  v.field("documents", s.documents, "number of documents");
  v.field("plan_s", s.plan_s, "median time to plan");
  v.field("median_s", s.median_s, "median of the samples", kPositive);
  v.field("interval_s", s.interval_s, "`[lo, hi]`, 95 % interval of the median; null below 6 samples", kNull);
  v.field("converged", s.converged, "the interval is as narrow as the rule asks");
  v.field("samples_s", s.samples_s, "every sample, in the order taken", kPositive);
  v.field("throttled_samples_s", s.throttled_samples_s, "samples set aside since they were throttled",
          kPositive | kOmitted);
}

template <class V, Is<Outcome> S>
void visit(V& v, S& s) {
  v.field("status", s.status, "`ok`, `skipped` or `failed`", kRequired);
  v.field("reason", s.reason, "why, where the status is not `ok`", kOmitted);
  v.field("area", s.area, "visible pairs summed over query heads, mean over the masks");
  v.field("density", s.density, "area over `heads_q * seqlen^2`, mean over the masks");
  v.field("flops", s.flops, "credited work, mean over the masks");
  v.field("time_s", s.time_s, "mean over the masks of the medians", kPositive);
  v.field("interval_s", s.interval_s, "`[lo, hi]`, 95 % interval of `time_s`; null where a mask has none",
          s.time_s ? kNull : kOmitted);
  v.field("flops_per_s", s.flops_per_s, "sum of the masks' flops over the sum of their medians");
  v.field("plan_s", s.plan_s, "once-per-mask work, mean over the masks");
  v.field("plan_bytes", s.plan_bytes, "held by the plan");
  v.field("workspace_bytes", s.workspace_bytes, "asked of the caller");
  v.field("peak_bytes", s.peak_bytes, "peak memory beyond inputs and outputs, plan and workspace included");
  v.field("settings", s.settings, "which of its options the kernel chose, in words", kOmitted);
  v.field("versions", s.versions, "packages of a peer's framework", kOmitted);
  v.field("compile_s", s.compile_s, "a peer's compilation, tuning and loading, over all masks");
  v.field("accuracy", s.accuracy, "the worst over the masks");
  v.field("parallel", s.parallel, "where the case is spread over ranks");
  v.field("flops_per_s_per_rank", s.flops_per_s_per_rank, "`flops_per_s` over the number of ranks");
  v.field("picture", s.picture, "mask 0 of KV head 0");
  v.field("throttled", s.throttled, "samples taken under throttling and retaken");
  v.field("device_state", s.device_state, "GPU only: its state over the samples", kOmitted);
  v.field("measurements", s.measurements, "one entry a mask", kOmitted);
  v.field("phases_s", s.phases_s, "where the time went: `starting`, `drawing`, ..., `timing`", kOmitted);
  v.field("share_of_ceiling", s.share_of_ceiling,
          "`flops_per_s` over the run's ceiling; over one for each GPU");
}

template <class V, Is<CaseRecord> S>
void visit(V& v, S& s) {
  v.field("run", s.run, "the run it belongs to", kRequired);
  v.field("id", s.id, "16 hexadecimal digits, a hash of `case`: equal for equal cases of any run", kRequired);
  v.field("case", s.workload, "what was measured", kRequired);
  v.field("command", s.command, "the command that repeats this case alone");
  v.field("started", s.started, "UTC, ISO 8601");
  v.field("elapsed_s", s.elapsed_s, "how long the whole case took, verification and all");
  using Part = std::conditional_t<std::is_const_v<S>, const Outcome, Outcome>;
  visit(v, static_cast<Part&>(s));
}

// What a field cannot say alone: "", or what is wrong with a record that was read.
std::string check(const Picture& picture);
std::string check(const ParallelRecord& parallel);
std::string check(const CaseRecord& c);

}  // namespace longspan::record
