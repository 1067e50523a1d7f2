/* The C interface of the shared library longspan_core. Python calls it through ctypes, and the operators of
 * longspan_torch through the linker. Every function that returns int returns 0, or 1 + the number of a
 * longspan::ErrorKind; the message of the calling thread's last failure is then in longspan_error(). Tensors
 * are described in longspan/attention.h. */
#ifndef LONGSPAN_CORE_H
#define LONGSPAN_CORE_H

#include <stddef.h>
#include <stdint.h>

#define LONGSPAN_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

LONGSPAN_API const char* longspan_error(void);
LONGSPAN_API const char* longspan_version(void);
LONGSPAN_API int longspan_has_cuda(void); /* whether this build has CUDA kernels */

/* ---- masks: one for all heads, or one per KV head ---- */

typedef struct longspan_masks longspan_masks;

typedef struct {
  int64_t heads;         /* number of masks */
  int64_t rows, columns; /* of each */
  int64_t area;          /* visible pairs of all masks together */
} longspan_masks_info;

/* bands: [count, 6] of q_begin, q_end, k_begin, k_end, lo, hi; INT64_MIN and INT64_MAX are unbounded. */
LONGSPAN_API int longspan_masks_from_bands(int64_t rows, int64_t columns, const int64_t* bands, int64_t count,
                                           longspan_masks** out);
LONGSPAN_API int longspan_masks_from_dense(const uint8_t* visible, int64_t rows, int64_t columns,
                                           longspan_masks** out);
LONGSPAN_API int longspan_masks_of_pattern(const char* pattern, int64_t seqlen, const char* const* names,
                                           const char* const* values, int64_t options, longspan_masks** out);
/* One mask per head, from masks that have one each. */
LONGSPAN_API int longspan_masks_per_head(const longspan_masks* const* masks, int64_t count,
                                         longspan_masks** out);
LONGSPAN_API int longspan_masks_intersected(const longspan_masks* a, const longspan_masks* b,
                                            longspan_masks** out);
LONGSPAN_API void longspan_masks_delete(longspan_masks* masks);

LONGSPAN_API int longspan_masks_get_info(const longspan_masks* masks, longspan_masks_info* out);
LONGSPAN_API int longspan_masks_band_count(const longspan_masks* masks, int64_t head, int64_t* out);
LONGSPAN_API int longspan_masks_bands(const longspan_masks* masks, int64_t head,
                                      int64_t* out /* [bands, 6] */);
LONGSPAN_API int longspan_masks_dense(const longspan_masks* masks, int64_t head,
                                      uint8_t* out /* [rows, columns] */);
LONGSPAN_API int longspan_masks_visible_counts(const longspan_masks* masks, int64_t head,
                                               int64_t* out /* [rows] */);
LONGSPAN_API int longspan_masks_density(const longspan_masks* masks, int64_t head, int32_t size,
                                        uint8_t* out /* [size, size] */);
LONGSPAN_API int longspan_patterns(const char** out); /* the names, separated by spaces */

/* ---- plans ---- */

typedef struct {
  int64_t heads_q, heads_kv, head_dim;
  int64_t head_dim_v;        /* of v and o; 0: head_dim */
  int32_t dtype;             /* a longspan::DType */
  int32_t cuda_device;       /* -1: the CPU */
  float scale;               /* 0: 1 / sqrt(head_dim) */
  int32_t deterministic;     /* the same bits on every run are required */
  int32_t backward;          /* whether a backward pass is planned */
  int32_t same_launches;     /* captured graphs can be given another plan: longspan_plan_follow */
  float softcap;             /* 0: none */
  const float* alibi_slopes; /* [heads_q], read while a plan is made; null: no ALiBi */
} longspan_problem;

typedef struct {
  int64_t tokens_q, tokens_kv;
  longspan_problem problem;
  int64_t forward_bytes, backward_bytes; /* of workspace */
  int64_t plan_bytes;                    /* that the plan holds */
} longspan_plan_info;

/* Plans are known by numbers that are never used twice, so a call with the number of a plan that is gone is
 * an error. */
LONGSPAN_API int longspan_plan_make(const longspan_masks* masks, const longspan_problem* problem,
                                    const char* kernel, int64_t* plan);
LONGSPAN_API int longspan_plan_get_info(int64_t plan, longspan_plan_info* out);
LONGSPAN_API int longspan_plan_kernel(int64_t plan, const char** out);
LONGSPAN_API void longspan_plan_delete(int64_t plan); /* calls in flight keep what they need */

/* [tokens, heads, head_dim], or head_dim_v; contiguous in it; strides in elements. */
typedef struct {
  void* data;
  int64_t token_stride, head_stride;
} longspan_tensor;

typedef struct {
  longspan_tensor q, k, v, o;
  float* lse;
  void* workspace;
  const float* sinks; /* [heads_q]; null: none, as under context parallelism */
} longspan_forward_args;

typedef struct {
  longspan_tensor q, k, v, o, dout, dq, dk, dv;
  const float* lse;
  const float* dlse; /* may be null */
  void* workspace;
  const float* sinks; /* as in the forward pass; null: none */
  float* dsinks;      /* with sinks: their gradients */
} longspan_backward_args;

/* Makes `count` CUDA graphs that have captured calls of `old` run `plan` instead, which must be of the same
 * problem with another mask, both with same_launches. graphs: the captured cudaGraph_t; ready: the
 * cudaGraphExec_t of each; stream: the one that they are launched in. Other graphs go on with `old`. After a
 * failure, all do. */
LONGSPAN_API int longspan_plan_follow(int64_t plan, int64_t old, void* const* graphs, void* const* ready,
                                      int64_t count, void* stream);

LONGSPAN_API int longspan_forward(int64_t plan, const longspan_forward_args* args, void* stream);
LONGSPAN_API int longspan_backward(int64_t plan, const longspan_backward_args* args, void* stream);

/* ---- context parallelism: longspan/parallel.h ---- */

typedef struct {
  int32_t ranks, nodes;
  const char* strategy;
  const char* const* names; /* of the strategy's options, as on the command line */
  const char* const* values;
  int64_t options;
  const char* kernel;
  int32_t lse_gradient; /* the loss depends on lse */
} longspan_parallel_config;

/* Which tokens each rank holds. It depends on its arguments alone, so all ranks find the same. */
typedef struct longspan_placement longspan_placement;
LONGSPAN_API int longspan_placement_make(const longspan_masks* masks, const longspan_problem* problem,
                                         const longspan_parallel_config* config, longspan_placement** out);
LONGSPAN_API void longspan_placement_delete(longspan_placement* placement);
LONGSPAN_API int longspan_placement_ranges(const longspan_placement* placement, int32_t rank, int64_t* count,
                                           const int64_t** ranges /* [count, 2], borrowed */);

/* The ends of the blocks of the masks' diagonal, between which nothing is visible: of documents. `ends` has
 * room for as many as there are tokens. */
LONGSPAN_API int longspan_documents(const longspan_masks* masks, int64_t* ends, int64_t* count);

/* A number that differs, but for chance, if anything that ranks must agree on does. */
LONGSPAN_API int longspan_digest(const longspan_masks* masks, const longspan_problem* problem,
                                 const longspan_parallel_config* config, const longspan_placement* placement,
                                 int64_t* out);

typedef struct {
  void* data;
  int64_t bytes;
  int32_t peer;
} longspan_message;

/* Functions that carry messages of the CPU's memory between processes: comm/carried.h. start returns the
 * number of a transfer. After a failure, start returns -1 and wait another number than 0; they have then
 * called longspan_set_error. */
typedef struct {
  int64_t context;
  int64_t (*start)(int64_t context, const longspan_message* sends, int64_t send_count,
                   const longspan_message* receives, int64_t receive_count);
  int32_t (*wait)(int64_t context, int64_t transfer);
  void (*fail)(int64_t context, const char* reason);
} longspan_carrier;
LONGSPAN_API void longspan_set_error(const char* reason); /* of the calling thread */

typedef struct longspan_group longspan_group;
LONGSPAN_API int longspan_group_carried(int32_t rank, int32_t size, const longspan_carrier* carrier,
                                        longspan_group** out);
enum {
  LONGSPAN_NCCL_IDENTIFIERS = 256
}; /* bytes, which one rank makes and all give to longspan_group_nccl */
LONGSPAN_API int longspan_nccl_identifiers(char* out);
LONGSPAN_API int longspan_group_nccl(int32_t rank, int32_t size, const char* identifiers, int32_t cuda_device,
                                     int64_t limit_ms, longspan_group** out);
LONGSPAN_API int longspan_group_fail(longspan_group* group, const char* reason);
LONGSPAN_API int longspan_group_watch(longspan_group* group); /* Communicator::watch() */
LONGSPAN_API void longspan_group_delete(longspan_group* group);

/* Plans of context parallelism have numbers of their own, as plans do. */
typedef struct {
  int64_t tokens; /* of this rank */
  longspan_problem problem;
  int64_t kept_bytes;
  int32_t lse_gradient; /* whether a backward pass takes dlse */
} longspan_parallel_info;
LONGSPAN_API int longspan_parallel_make(const longspan_masks* masks, const longspan_problem* problem,
                                        const longspan_parallel_config* config,
                                        const longspan_placement* placement, longspan_group* group,
                                        int64_t* plan);
LONGSPAN_API int longspan_parallel_get_info(int64_t plan, longspan_parallel_info* out);
LONGSPAN_API void longspan_parallel_delete(int64_t plan);
/* Ends the group: for a rank that fails before the pass, which the others would wait for. */
LONGSPAN_API void longspan_parallel_fail(int64_t plan, const char* reason);
/* kept: kept_bytes; forward, null if no backward pass follows. */
LONGSPAN_API int longspan_parallel_forward(int64_t plan, const longspan_forward_args* args, void* kept,
                                           void* stream);
LONGSPAN_API int longspan_parallel_backward(int64_t plan, const longspan_backward_args* args,
                                            const void* kept, void* stream);

#ifdef __cplusplus
}
#endif

#endif
