// One block per sampled row or key. Its warps divide the partners (the keys that the row sees, or the rows
// that see the key). Each warp processes one partner at a time with head_dim spread over its lanes. The
// warps' sums are added in a fixed order, so the result is the same on every run.
#include <algorithm>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/oracle/oracle_cuda.h"
#include "base/buffer.h"
#include "base/cuda/cuda.h"
#include "base/error.h"

namespace longspan {
namespace {

constexpr int kWarps = 16, kThreads = 32 * kWarps;
constexpr int kPerLane = kOracleCudaMaxHeadDim / 32;

// A sampled row or key and its partners: ranges [first_range, last_range) of one array.
struct Item {
  int64_t head = 0, token = 0;
  int64_t first_range = 0, last_range = 0;
};

// [items, head_dim] and [items]; the fields of ReferenceRows before the square roots.
struct Sums {
  double* values = nullptr;
  double* spread = nullptr;
  double* cancelled = nullptr;
  double* operands = nullptr;
};

struct Inputs {
  TensorView q, k, v, o, dout;
  const float *lse = nullptr, *dlse = nullptr;
  int64_t group = 1;
  double scale = 1;
};

// Lane l holds elements l, l + 32, ... of a row of head_dim.
struct Row {
  double x[kPerLane];
};

__device__ double load(const TensorView& t, int64_t index) {
  switch (t.dtype) {
    case DType::kF32:
      return static_cast<const float*>(t.data)[index];
    case DType::kBF16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(t.data)[index]);
    case DType::kF16:
      return __half2float(static_cast<const __half*>(t.data)[index]);
    case DType::kF64:
      break;
  }
  return static_cast<const double*>(t.data)[index];
}

__device__ Row load_row(const TensorView& t, int64_t token, int64_t head) {
  Row row;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int d = 32 * i + static_cast<int>(threadIdx.x) % 32;
    row.x[i] = d < t.head_dim ? load(t, token * t.token_stride + head * t.head_stride + d) : 0;
  }
  return row;
}

__device__ double dot(const Row& a, const Row& b) {
  double sum = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) sum += a.x[i] * b.x[i];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  return sum;
}

__device__ void add(Row& into, double weight, const Row& row) {
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) into.x[i] += weight * row.x[i];
}

__device__ double square(double x) {
  return x * x;
}

// The partial sums of one warp.
struct WarpSum {
  Row values{};
  double spread = 0, cancelled = 0, operands = 0;
};

// Calls body(partner) for this warp's partners.
template <class Body>
__device__ void for_partners(const Item& item, const Range* ranges, const Body& body) {
  for (int64_t r = item.first_range; r < item.last_range; ++r) {
    for (int64_t j = ranges[r].begin + threadIdx.x / 32; j < ranges[r].end; j += kWarps) body(j);
  }
}

// Adds the warps' sums, each scaled by its warp's factor, and writes them times `factor`.
__device__ void write_sum(const WarpSum& mine, double warp_factor, double factor, int64_t head_dim,
                          const Sums& out) {
  __shared__ double sums[kWarps][kOracleCudaMaxHeadDim + 3];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  __syncthreads();  // separates this call from an earlier one
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) sums[warp][32 * i + lane] = warp_factor * mine.values.x[i];
  if (lane == 0) {
    sums[warp][kOracleCudaMaxHeadDim] = square(warp_factor) * mine.spread;
    sums[warp][kOracleCudaMaxHeadDim + 1] = square(warp_factor) * mine.cancelled;
    sums[warp][kOracleCudaMaxHeadDim + 2] = mine.operands;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kOracleCudaMaxHeadDim + 3; i += kThreads) {
    double sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += sums[w][i];
    if (i < head_dim) out.values[blockIdx.x * head_dim + i] = factor * sum;
    if (i == kOracleCudaMaxHeadDim) out.spread[blockIdx.x] = fabs(factor) * sqrt(sum);
    if (i == kOracleCudaMaxHeadDim + 1) out.cancelled[blockIdx.x] = fabs(factor) * sqrt(sum);
    if (i == kOracleCudaMaxHeadDim + 2) out.operands[blockIdx.x] = fabs(factor) * sqrt(sum);
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    forward_kernel(Inputs in, const Item* items, const Range* ranges, Sums o, double* lse, double* largest) {
  const Item item = items[blockIdx.x];
  const int64_t kv_head = item.head / in.group;
  const Row q = load_row(in.q, item.token, item.head);
  WarpSum mine;
  double maximum = -INFINITY, sum = 0;
  for_partners(item, ranges, [&](int64_t j) {
    const Row v = load_row(in.v, j, kv_head);
    const double score = in.scale * dot(q, load_row(in.k, j, kv_head)), norm = dot(v, v);
    if (score > maximum) {
      const double keep = exp(maximum - score);  // 0 for the first key
      maximum = score;
      sum *= keep;
      mine.spread *= square(keep);
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) mine.values.x[i] *= keep;
    }
    const double weight = exp(score - maximum);
    sum += weight;
    add(mine.values, weight, v);
    mine.spread += square(weight) * norm;
    mine.operands += norm;
  });

  __shared__ double maxima[kWarps], warp_sums[kWarps];
  if (threadIdx.x % 32 == 0) {
    maxima[threadIdx.x / 32] = maximum;
    warp_sums[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  double top = -INFINITY, total = 0;
  for (int w = 0; w < kWarps; ++w) top = fmax(top, maxima[w]);
  for (int w = 0; w < kWarps; ++w) total += maxima[w] == -INFINITY ? 0 : warp_sums[w] * exp(maxima[w] - top);
  if (threadIdx.x == 0) {
    lse[blockIdx.x] = top == -INFINITY ? -INFINITY : top + log(total);
    largest[blockIdx.x] = top;
  }
  write_sum(mine, maximum == -INFINITY ? 0 : exp(maximum - top), top == -INFINITY ? 0 : 1 / total,
            in.v.head_dim, o);
}

__device__ double dlse_of(const Inputs& in, int64_t head, int64_t token) {
  return in.dlse == nullptr ? 0 : in.dlse[head * in.q.tokens + token];
}

__global__ void __launch_bounds__(kThreads, 1)
    dq_kernel(Inputs in, const Item* items, const Range* ranges, Sums dq) {
  const Item item = items[blockIdx.x];
  const int64_t kv_head = item.head / in.group;
  const Row q = load_row(in.q, item.token, item.head), dout = load_row(in.dout, item.token, item.head);
  const double lse = in.lse[item.head * in.q.tokens + item.token], dlse = dlse_of(in, item.head, item.token);
  const double delta = dot(load_row(in.o, item.token, item.head), dout) - dlse, dout_norm = dot(dout, dout);
  WarpSum mine;
  for_partners(item, ranges, [&](int64_t j) {
    const Row k = load_row(in.k, j, kv_head), v = load_row(in.v, j, kv_head);
    const double p = exp(in.scale * dot(q, k) - lse), difference = dot(dout, v) - delta, ds = p * difference;
    const double k_norm = dot(k, k);
    add(mine.values, ds, k);
    mine.spread += square(ds) * k_norm;
    mine.cancelled += square(p) * (dot(v, v) * dout_norm + square(dlse)) * k_norm;
    mine.operands += (1 + square(difference)) * k_norm;
  });
  write_sum(mine, 1, in.scale, in.q.head_dim, dq);
}

__global__ void __launch_bounds__(kThreads, 1)
    dkv_kernel(Inputs in, const Item* items, const Range* ranges, Sums dk, Sums dv) {
  const Item item = items[blockIdx.x];
  const Row k = load_row(in.k, item.token, item.head), v = load_row(in.v, item.token, item.head);
  const double v_norm = dot(v, v);
  WarpSum my_dk, my_dv;
  for (int64_t head = item.head * in.group; head < (item.head + 1) * in.group; ++head) {
    for_partners(item, ranges, [&](int64_t i) {
      const Row q = load_row(in.q, i, head), dout = load_row(in.dout, i, head);
      const double dlse = dlse_of(in, head, i), delta = dot(load_row(in.o, i, head), dout) - dlse;
      const double p = exp(in.scale * dot(q, k) - double{in.lse[head * in.q.tokens + i]});
      const double difference = dot(dout, v) - delta, ds = p * difference;
      const double q_norm = dot(q, q), dout_norm = dot(dout, dout);
      add(my_dv.values, p, dout);
      my_dv.spread += square(p) * dout_norm;
      my_dv.operands += dout_norm;
      add(my_dk.values, ds, q);
      my_dk.spread += square(ds) * q_norm;
      my_dk.cancelled += square(p) * (v_norm * dout_norm + square(dlse)) * q_norm;
      my_dk.operands += (1 + square(difference)) * q_norm;
    });
  }
  write_sum(my_dk, 1, in.scale, in.q.head_dim, dk);
  write_sum(my_dv, 1, 1, in.v.head_dim, dv);
}

// The samples in the layout that the kernels read, with each sample's number of partners.
struct Work {
  std::vector<Item> items;
  std::vector<Range> ranges;
  std::vector<double> terms;

  void add(int64_t head, int64_t token, const std::vector<Range>& partners, int64_t times) {
    const auto first = static_cast<int64_t>(ranges.size());
    int64_t count = 0;
    for (const Range& range : partners) count += range.size();
    ranges.insert(ranges.end(), partners.begin(), partners.end());
    items.push_back({head, token, first, static_cast<int64_t>(ranges.size())});
    terms.push_back(static_cast<double>(times * count));
  }
};

Work rows_of(const Problem& problem, const Samples& samples) {
  Work work;
  for (int64_t h = 0; h < problem.heads_q; ++h) {
    for (int64_t row : samples.rows[static_cast<size_t>(h)]) {
      work.add(h, row, problem.mask_of_query_head(h).visible_keys(row), 1);
    }
  }
  return work;
}

Work keys_of(const Problem& problem, const Samples& samples) {
  Work work;
  Mask transposed;
  for (int64_t h = 0; h < problem.heads_kv; ++h) {
    if (h == 0 || problem.masks->size() > 1) transposed = problem.mask_of_kv_head(h).transposed();
    for (int64_t key : samples.keys[static_cast<size_t>(h)]) {
      work.add(h, key, transposed.visible_keys(key), problem.group_size());
    }
  }
  return work;
}

Device device_of(const void* pointer) {
  cudaPointerAttributes attributes{};
  LONGSPAN_CUDA(cudaPointerGetAttributes(&attributes, pointer));
  LONGSPAN_CHECK(attributes.type == cudaMemoryTypeDevice, "the oracle's inputs are not in a GPU's memory");
  Device device;
  device.kind = DeviceKind::kCuda;
  device.index = attributes.device;
  return device;
}

template <class T>
Buffer upload(const std::vector<T>& values, const Device& device) {
  Buffer buffer(values.size() * sizeof(T), device);
  copy_bytes(buffer.data(), DeviceKind::kCuda, values.data(), DeviceKind::kCpu, values.size() * sizeof(T));
  return buffer;
}

std::vector<double> download(const double* values, size_t count) {
  std::vector<double> host(count);
  copy_bytes(host.data(), DeviceKind::kCpu, values, DeviceKind::kCuda, count * sizeof(double));
  return host;
}

// Device memory for the Sums of several items.
class DeviceSums {
 public:
  DeviceSums(size_t items, int64_t head_dim, const Device& device)
      : items_(items),
        values_(items * static_cast<size_t>(head_dim)),
        memory_((values_ + 3 * items) * sizeof(double), device) {}

  Sums view() const {
    double* at = memory_.as<double>();
    return {at, at + values_, at + values_ + items_, at + values_ + 2 * items_};
  }

  ReferenceRows rows(const std::vector<double>& terms) const {
    const Sums sums = view();
    return {.values = download(sums.values, values_),
            .spread = download(sums.spread, items_),
            .cancelled = download(sums.cancelled, items_),
            .operands = download(sums.operands, items_),
            .terms = terms};
  }

 private:
  size_t items_, values_;
  Buffer memory_;
};

Inputs inputs_of(const Problem& problem, const OracleInputs& inputs) {
  const int64_t widest = std::max(problem.head_dim, problem.dim_v());
  LONGSPAN_CHECK(widest <= kOracleCudaMaxHeadDim, "head_dim {}: the oracle on a GPU has {} at most", widest,
                 kOracleCudaMaxHeadDim);
  LONGSPAN_CHECK(problem.softcap == 0 && problem.alibi_slopes.empty(),
                 "the oracle on a GPU has neither softcap nor ALiBi");
  return {.q = inputs.q,
          .k = inputs.k,
          .v = inputs.v,
          .o = inputs.o,
          .dout = inputs.dout,
          .lse = inputs.lse,
          .dlse = inputs.dlse,
          .group = problem.group_size(),
          .scale = problem.softmax_scale()};
}

}  // namespace

ForwardReference reference_forward_cuda(const Problem& problem, const OracleInputs& inputs,
                                        const Samples& samples) {
  const Device device = device_of(inputs.q.data);
  const cuda::DeviceGuard guard(device.index);
  const Work work = rows_of(problem, samples);
  if (work.items.empty()) return {};
  const Buffer items = upload(work.items, device), ranges = upload(work.ranges, device);
  const DeviceSums o(work.items.size(), problem.dim_v(), device);
  const Buffer scalars(2 * work.items.size() * sizeof(double), device);
  double *lse = scalars.as<double>(), *largest = lse + work.items.size();
  LONGSPAN_CUDA(cudaDeviceSynchronize());
  forward_kernel<<<static_cast<unsigned>(work.items.size()), kThreads>>>(
      inputs_of(problem, inputs), items.as<Item>(), ranges.as<Range>(), o.view(), lse, largest);
  LONGSPAN_CUDA_LAUNCHED();
  return {.o = o.rows(work.terms),
          .lse = download(lse, work.items.size()),
          .largest = download(largest, work.items.size()),
          .lse_scores = {}};
}

BackwardReference reference_backward_cuda(const Problem& problem, const OracleInputs& inputs,
                                          const Samples& samples) {
  const Device device = device_of(inputs.q.data);
  const cuda::DeviceGuard guard(device.index);
  BackwardReference reference;
  LONGSPAN_CUDA(cudaDeviceSynchronize());
  if (const Work work = rows_of(problem, samples); !work.items.empty()) {
    const Buffer items = upload(work.items, device), ranges = upload(work.ranges, device);
    const DeviceSums dq(work.items.size(), problem.head_dim, device);
    dq_kernel<<<static_cast<unsigned>(work.items.size()), kThreads>>>(
        inputs_of(problem, inputs), items.as<Item>(), ranges.as<Range>(), dq.view());
    LONGSPAN_CUDA_LAUNCHED();
    reference.dq = dq.rows(work.terms);
  }
  if (const Work work = keys_of(problem, samples); !work.items.empty()) {
    const Buffer items = upload(work.items, device), ranges = upload(work.ranges, device);
    const DeviceSums dk(work.items.size(), problem.head_dim, device),
        dv(work.items.size(), problem.dim_v(), device);
    dkv_kernel<<<static_cast<unsigned>(work.items.size()), kThreads>>>(
        inputs_of(problem, inputs), items.as<Item>(), ranges.as<Range>(), dk.view(), dv.view());
    LONGSPAN_CUDA_LAUNCHED();
    reference.dk = dk.rows(work.terms);
    reference.dv = dv.rows(work.terms);
  }
  return reference;
}

}  // namespace longspan
