// Context parallelism: one attention over several ranks, each of which holds a part of the sequence. Every
// strategy runs any mask with any kernel. docs/guide/parallel.md says which strategy to choose.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "longspan/attention.h"

namespace longspan {

class Communicator;
struct Scratch;

inline constexpr std::chrono::milliseconds kWaitLimit{60000};

// One rank's end of a group of ranks that exchange data. A wait longer than `limit` fails the group: the
// calls of all ranks then throw kPeer with the reason, so no rank waits forever. Copies refer to the same
// end, and so does an end that was moved from. `limit` is from 1 ms to 30 days; any other throws kInput.
class Group {
 public:
  // Ranks that are threads of this process, with tensors on the CPU or on GPUs. Returns one end per rank.
  // Throws kInput unless there are 1 to 4096 ranks.
  static std::vector<Group> threads(int ranks, std::chrono::milliseconds limit = kWaitLimit);

  // The same through NCCL. The tensors of rank r are on devices[r], a different GPU for each rank. Throws
  // kInput without NCCL.
  static std::vector<Group> gpus(std::span<const Device> devices,
                                 std::chrono::milliseconds limit = kWaitLimit);

  // This process as one of those started by torchrun, srun or mpirun, through NCCL. Its tensors are on the
  // GPU `device`. Throws kInput without NCCL, or if no launcher's variables are set, or if the job has no
  // token (LONGSPAN_JOB_TOKEN; SECURITY.md).
  static Group processes(const Device& device, std::chrono::milliseconds limit = kWaitLimit);

  explicit Group(std::shared_ptr<Communicator> communicator);  // throws kInput for null
  Group(const Group&) = default;
  Group& operator=(const Group&) = default;
  int rank() const;
  int size() const;
  void fail(const std::string& reason);  // ends the group on all ranks
  Communicator& communicator() const { return *communicator_; }

 private:
  std::shared_ptr<Communicator> communicator_;
};

// This process as one of those started by mpirun or srun, with its tensors on the CPU. Part of the target
// longspan::mpi.
Group mpi_processes(std::chrono::milliseconds limit = kWaitLimit);

// Calls body once for each end, each in its own thread. If a body throws, its group fails with that reason.
// The first failure is rethrown after all bodies have ended. Throws kInput if there is no end, if one is
// given twice, or if body is empty; kOutOfMemory if a thread cannot start.
void run_ranks(std::span<const Group> ends, const std::function<void(const Group&)>& body);

// `nodes` nodes of `devices` devices each; rank r is device r % devices of node r / devices.
struct Topology {
  int nodes = 1;
  int devices = 1;
  int ranks() const { return nodes * devices; }
  int node_of(int rank) const;  // throws kInput for a rank outside 0 to ranks() - 1
  friend bool operator==(const Topology&, const Topology&) = default;
};

// The tokens of each rank, in the order of its rows. Each token of the sequence belongs to one rank. Ranks
// may have different numbers of tokens, or none.
using RankTokens = std::vector<std::vector<Range>>;

struct ParallelConfig {
  std::string strategy = "balanced";             // one of strategy_names()
  std::map<std::string, std::string> options{};  // of the strategy, as on the command line
  int nodes = 1;                                 // number of nodes, with the same number of ranks each
  std::string kernel = "auto";                   // as for make_plan()

  // Empty: the strategy places the tokens by the mask. Layers with different masks share tensors if they
  // share a placement: give the rank_tokens() of one attention to the others.
  RankTokens tokens{};
};
std::vector<std::string> strategy_names();  // "ulysses", "ring-p2p", ...

// The placement that a ParallelAttention on `ranks` ranks would choose or check; it depends on nothing else,
// so all ranks find the same. Throws as its constructor does.
RankTokens place_tokens(const Problem& problem, const ParallelConfig& config, int ranks);

// Device memory that attentions use in their passes, one after another: as if their calls were those of one
// object. Constructing an attention counts as a call, since it may replace the memory by more. Give it to
// those of several masks, rather than let each have its own. Copies refer to the same.
class SharedBuffers {
 public:
  explicit SharedBuffers(const Device& device);

 private:
  friend class ParallelAttention;
  std::shared_ptr<Scratch> scratch_;
};

// One rank's part of an attention over all tokens of `problem`. All ranks of the group must construct it and
// make the same calls.
//
// The tensors of a call hold the rank's own tokens with all heads, packed in the order of tokens(): q, dq
// [own tokens, heads_q, head_dim], o, dout [.., head_dim_v]; k, dk [own tokens, heads_kv, head_dim], v, dv
// [.., head_dim_v]; lse [heads_q, own tokens]. There is no ALiBi over ranks. The object has its own
// workspace, so its calls use it one after another: queue them in one stream, or in streams that wait for one
// another.
//
// Of a forward pass, backward() needs q, k, v, o, lse, and what forward() wrote to `kept`: data of other
// ranks. All of it belongs to the caller, so layers can share one object, with any number of forward passes
// before their backward passes, in any order that is the same on all ranks.
//
// Calls throw kInput for arguments that do not fit, as those of a Plan do, and for an object that was moved
// from; kPeer once the group has failed. Only kInput leaves the object usable. A rank that throws is missed
// by the others: end the group with fail(), as run_ranks() does.
class ParallelAttention {
 public:
  // Plans everything: the schedule, the masks of each rank's shards, the kernel's plans. Throws kInput or
  // kUnsupported with the strategy's or the kernel's reason. Results have the dtype of the problem:
  // fp32_output throws kInput.
  ParallelAttention(const Problem& problem, const ParallelConfig& config, const Group& group,
                    const Device& device, Direction until = Direction::kBackward);
  ParallelAttention(const Problem& problem, const ParallelConfig& config, const Group& group,
                    const Device& device, Direction until, const SharedBuffers& buffers);
  ~ParallelAttention();
  ParallelAttention(ParallelAttention&&) noexcept;
  ParallelAttention& operator=(ParallelAttention&&) noexcept;

  const std::vector<Range>& tokens() const;  // tokens of the sequence that this rank holds, in row order
  int64_t token_count() const;
  const RankTokens& rank_tokens() const;  // of all ranks

  // The bytes of `kept` on this rank; 0 for some strategies, and if no backward pass is planned. `kept` is on
  // the device, aligned to 256 (on the CPU to 64), with any contents before forward(). It may be empty if no
  // backward() follows.
  size_t kept_bytes() const;
  void forward(const ForwardArgs& args, Stream stream, std::span<std::byte> kept = {});
  void backward(const BackwardArgs& args, Stream stream, std::span<const std::byte> kept);
  void finish(Stream stream);  // waits for the last pass, which a GPU may still be running

 private:
  class Impl;
  Impl& impl() const;  // throws if it was moved from
  std::unique_ptr<Impl> impl_;
};

}  // namespace longspan
