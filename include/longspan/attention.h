// Exact attention over any mask: describe a problem, plan it once, run it on your own pointers and stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "longspan/base.h"
#include "longspan/mask.h"

namespace longspan {

class SelfTimed;
struct PlanNotes;

enum class Direction : uint8_t { kForward, kBackward };
std::string_view name_of(Direction direction);    // "forward", "backward"
Direction direction_from_name(std::string_view);  // also "fwd", "bwd"; throws kInput, with the names

// One attention: o = softmax(score | mask) v for each query head h, with the keys and values of KV head
// h / (heads_q / heads_kv). Batch is 1: a batch of sequences is a document mask.
//
// The score of row i and key j is scale * q_i k_j. With softcap it is softcap * tanh(scale * q_i k_j /
// softcap), as in Gemma 2. With ALiBi, slope * |i + tokens_kv - tokens_q - j| is then subtracted, as in
// flash-attention's alibi_slopes. Rows and keys of packed documents count from the first token of all: within
// a document the difference is the same.
struct Problem {
  int64_t tokens_q = 0, tokens_kv = 0;
  int64_t heads_q = 0, heads_kv = 0;  // heads_q is a multiple of heads_kv
  int64_t head_dim = 0;               // of q and k
  int64_t head_dim_v = 0;             // of v and o; 0 means head_dim
  DType dtype = DType::kF32;          // of q, k, v, o and of their gradients
  bool fp32_output = false;    // o (forward), dq, dk, dv (backward) may be f32: partial results to be merged
  bool own_rows = false;       // with fp32_output: only dk and dv may be f32; o and dq still have dtype
  bool lse_gradient = false;   // the loss depends on lse, too: BackwardArgs::dlse is given
  float scale = 0;             // of q k; 0 means 1 / sqrt(head_dim)
  float softcap = 0;           // bound of the scores; 0: none
  bool deterministic = false;  // the same bits on every run are required, not just preferred
  // All masks of this size get the same kernel launches and workspace, so that a captured CUDA graph can be
  // given the plan of another mask. Costs speed.
  bool same_launches = false;
  std::vector<float> alibi_slopes;         // [heads_q], or empty: no ALiBi
  std::vector<float> sinks;                // [heads_q], or empty. For peers: others get ForwardArgs::sinks
  std::shared_ptr<const HeadMasks> masks;  // one for all heads, or one per KV head; [tokens_q, tokens_kv]

  void set_mask(Mask mask) { masks = std::make_shared<const HeadMasks>(HeadMasks{std::move(mask)}); }
  float softmax_scale() const;
  int64_t dim_v() const { return head_dim_v != 0 ? head_dim_v : head_dim; }
  DType output_dtype() const { return fp32_output ? DType::kF32 : dtype; }
  void check() const;  // throws kInput that names the field, its value and the allowed values

  // Throw kInput if the heads or masks that they need are wrong.
  int64_t group_size() const;  // query heads per KV head
  int64_t kv_head_of(int64_t head_q) const { return head_q / group_size(); }
  const Mask& mask_of_kv_head(int64_t h) const;
  const Mask& mask_of_query_head(int64_t h) const { return mask_of_kv_head(kv_head_of(h)); }
  int64_t area() const;  // visible pairs, summed over query heads
};

// Credited floating-point operations: 2 * area for each element of a product's depth or width. Forward has q
// k and p v, so head_dim + head_dim_v elements; backward has q k, dq and dk, dv and do v, so 3 * head_dim + 2
// * head_dim_v. Only visible pairs count, never wasted work of a kernel. Throws as Problem::area() does.
double flops(const Problem& problem, Direction direction);

// Tensors of one forward pass. A row that sees no key gives o = 0 and lse = -inf. Outputs and the workspace
// share no memory with other arguments, but may interleave with them as parts of a packed tensor.
struct ForwardArgs {
  TensorView q;          // [tokens_q, heads_q, head_dim]
  TensorView k;          // [tokens_kv, heads_kv, head_dim]
  TensorView v;          // [tokens_kv, heads_kv, head_dim_v]
  TensorView o;          // out: [tokens_q, heads_q, head_dim_v], Problem::dtype; with fp32_output also f32
  float* lse = nullptr;  // out: [heads_q, tokens_q], natural log of the sum of exp(score)
  void* workspace = nullptr;  // Plan::workspace_bytes(kForward) bytes, aligned to 256; any contents
  size_t workspace_size = 0;  // its bytes, to be checked; 0: unknown

  // For kernels with merge_parts(): a partial result of the same rows over other keys. The kernel merges it
  // into its output. It may be o and lse themselves. Unused if part_lse is null.
  TensorView part_o{};              // [tokens_q, heads_q, head_dim_v], f32
  const float* part_lse = nullptr;  // [heads_q, tokens_q]

  // Attention sinks: a score for each query head that joins the softmax of every row without a value, so that
  // o loses its share. A row that sees no key then gives lse = sink. Not together with part_lse, nor over
  // ranks: there, add_sinks() adds them to the result.
  const float* sinks = nullptr;  // [heads_q], or null: none
};

// Tensors of one backward pass. A row that sees no key, and a key that no row sees, get zero gradients. dq,
// dk and dv have Problem::dtype or, with fp32_output, f32; with own_rows, dq is never f32.
struct BackwardArgs {
  TensorView q, k, v, o;       // as in ForwardArgs; o is the output of the forward pass
  TensorView dout;             // [tokens_q, heads_q, head_dim_v]: the gradient of the loss with respect to o
  const float* lse = nullptr;  // [heads_q, tokens_q]
  TensorView dq;               // out: [tokens_q, heads_q, head_dim]
  TensorView dk;               // out: [tokens_kv, heads_kv, head_dim], summed over the query heads of a group
  TensorView dv;               // out: [tokens_kv, heads_kv, head_dim_v], likewise
  void* workspace = nullptr;   // Plan::workspace_bytes(kBackward) bytes, aligned to 256; any contents
  size_t workspace_size = 0;   // its bytes, to be checked; 0: unknown

  // With Problem::lse_gradient: [heads_q, tokens_q], the gradient of the loss with respect to lse; null:
  // zeros. Rows that see no key ignore it. A z-loss and a merge outside of Longspan need it.
  const float* dlse = nullptr;

  // Both or none. The sinks that o and lse have, and their gradients, the sum over the rows of
  // exp(sink - lse) * (dlse - o dout). Without them dq, dk and dv are the same.
  const float* sinks = nullptr;  // [heads_q]
  float* dsinks = nullptr;       // out: [heads_q]
};

// Adds sinks to the results of any forward pass, in place:
//   lse <- log(exp(lse) + exp(sink)),  o <- o * exp(lse before - lse)
// Context parallelism needs it, for a rank's rows. On a GPU both calls run in the stream.
void add_sinks(const TensorView& o,  // [tokens_q, heads_q, head_dim_v], f32, bf16 or f16
               float* lse,           // [heads_q, tokens_q]
               const float* sinks,   // [heads_q]
               const Device& device, Stream stream);

// The gradients of sinks, as BackwardArgs::dsinks.
struct SinkGradientArgs {
  TensorView o, dout;            // [tokens_q, heads_q, head_dim_v]; o with the sinks
  const float* lse = nullptr;    // [heads_q, tokens_q], with the sinks
  const float* dlse = nullptr;   // [heads_q, tokens_q]; null: zeros
  const float* sinks = nullptr;  // [heads_q]
  float* dsinks = nullptr;       // out: [heads_q]
};
void sink_gradients(const SinkGradientArgs& args, const Device& device, Stream stream);

// What a kernel prepares once for a problem: tile maps and schedules. A plan can be used with any tensors of
// the problem and any number of times, so training reuses it across layers and steps. Calls with workspaces
// of their own may overlap, from several threads and on several streams; a plan that is self_timed() takes
// one call at a time, and so does one of gpu-naive. A plan may be destroyed while its calls still run on a
// GPU, and that does not wait for them. A plan that was used in a captured CUDA graph keeps its memory for
// ever.
//
// forward() and backward() throw kInput that names the argument where one does not fit the problem that was
// planned: a null or misaligned pointer, a dtype, shape or stride, memory that is shared or too small.
// Nothing has been written then, and the plan can be used again.
class Plan {
 public:
  virtual ~Plan() = default;
  virtual size_t workspace_bytes(Direction direction) const = 0;  // supplied by the caller
  virtual size_t plan_bytes() const = 0;                          // held by the plan itself
  virtual void forward(const ForwardArgs& args, Stream stream) = 0;
  virtual void backward(const BackwardArgs& args, Stream stream) = 0;

  // For the benchmark. self_timed(): non-null for a plan that runs in another process and times itself.
  // notes(): further facts about the plan for a record.
  virtual SelfTimed* self_timed() { return nullptr; }
  virtual PlanNotes notes() const;
};

// Plans `problem` on `device` with the kernel of that name; "auto" selects the fastest one that supports it.
// If `until` is kForward, no backward pass is planned. Throws kInput for an invalid problem or name, and
// kUnsupported with each kernel's reason if none supports it. There is no silent fallback to another
// algorithm.
// The plan keeps its own copy of the problem. Throws kOutOfMemory if the plan does not fit.
std::unique_ptr<Plan> make_plan(const Problem& problem, const Device& device,
                                Direction until = Direction::kBackward, std::string_view kernel = "auto");

// The kernels of this build that make_plan() accepts, and the reason why one does not support a problem
// (empty if it does). Throws kInput as make_plan() does.
std::vector<std::string> kernel_names();
std::string unsupported_reason(std::string_view kernel, const Problem& problem, Direction direction,
                               const Device& device);

}  // namespace longspan
