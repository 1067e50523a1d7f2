#include "kernels/gpu_naive/gpu_naive.h"

#include <algorithm>

#include "attention/sinks.h"
#include "base/cuda/cublas.h"
#include "base/cuda/cuda.h"
#include "base/error.h"
#include "kernels/gpu_naive/softmax.h"
#include "mask/lowering/lower.h"

namespace longspan {
namespace {

using cuda::Matrix;
using cuda::transpose;
using naive_gpu::DeviceTileMap;
using naive_gpu::Square;
using naive_gpu::TileMapView;

constexpr TileShape kTile{128, 128};
constexpr size_t kChunkBytes = size_t{1} << 30;  // bound on the scores of heads processed together
constexpr int64_t kRowAlignment = 8;             // elements: 16-byte rows suit the tensor cores

// Lays out the parts of the caller's workspace one after another.
class Layout {
 public:
  size_t add(size_t bytes) {
    const size_t offset = size_;
    size_ += (bytes + 255) / 256 * 256;
    return offset;
  }
  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

// Heads [first, first + count) of a tensor, as a batch of [tokens, head_dim] matrices.
Matrix heads_of(const TensorView& t, int64_t first) {
  return {.data = t.head(first).data,
          .dtype = t.dtype,
          .rows = t.tokens,
          .columns = t.head_dim,
          .row_stride = t.token_stride,
          .batch_stride = t.head_stride};
}

// One matrix repeated for the batch: a KV head for its group of query heads.
Matrix repeated(Matrix matrix) {
  matrix.batch_stride = 0;
  return matrix;
}

class NaivePlan final : public Plan {
 public:
  NaivePlan(const Problem& problem, const Device& device)
      : problem_(problem), device_(device), blas_(device) {
    for (const Mask& mask : *problem.masks) maps_.emplace_back(lower(mask, kTile), device);
    row_stride_ = (problem.tokens_kv + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
    const size_t head_bytes = square_elements(1) * (sizeof(float) + size_of(problem.dtype));
    chunk_ = std::clamp<int64_t>(static_cast<int64_t>(kChunkBytes / head_bytes), 1, problem.group_size());
    scores_ = layout_.add(square_elements(chunk_) * sizeof(float));
    probabilities_ = layout_.add(square_elements(chunk_) * size_of(problem.dtype));
    forward_bytes_ = layout_.size();
    delta_ = layout_.add(static_cast<size_t>(problem.heads_q * problem.tokens_q) * sizeof(float));
    dk_ = layout_.add(static_cast<size_t>(problem.tokens_kv * problem.head_dim) * sizeof(float));
    dv_ = layout_.add(static_cast<size_t>(problem.tokens_kv * problem.dim_v()) * sizeof(float));
    derivatives_ = problem.softcap == 0 ? scores_ : layout_.add(square_elements(chunk_) * sizeof(float));
    if (problem.alibi_slopes.empty()) return;
    const size_t bytes = problem.alibi_slopes.size() * sizeof(float);
    slopes_ = Buffer(bytes, device);
    copy_bytes(slopes_.data(), DeviceKind::kCuda, problem.alibi_slopes.data(), DeviceKind::kCpu, bytes);
  }

  size_t workspace_bytes(Direction direction) const override {
    return direction == Direction::kForward ? forward_bytes_ : layout_.size();
  }

  size_t plan_bytes() const override {
    size_t bytes = cuda::Blas::kWorkspaceBytes + slopes_.bytes();
    for (const DeviceTileMap& map : maps_) bytes += map.bytes();
    return bytes;
  }

  void forward(const ForwardArgs& args, Stream stream) override {
    const cuda::DeviceGuard guard(device_.index);
    for_chunks([&](int64_t head, int64_t kv_head, int64_t count) {
      const Matrix k = repeated(heads_of(args.k, kv_head)), v = repeated(heads_of(args.v, kv_head));
      const Square score = square(args.workspace, scores_, count);
      const Square probability = square(args.workspace, probabilities_, count);
      blas_.product(matrix(score, DType::kF32), heads_of(args.q, head), transpose(k), 1, 0, count, stream);
      clear(probability, stream);
      naive_gpu::softmax(score, probability, problem_.dtype, args.lse + head * problem_.tokens_q,
                         map_of(kv_head), scoring(head), stream);
      blas_.product(heads_of(args.o, head), matrix(probability, problem_.dtype), v, 1, 0, count, stream);
    });
    finish_sinks(args, device_, stream);
  }

  // With p = softmax(scale * q k'): dv = p' do, dp = do v', ds = scale * p * (dp - delta), dq = ds k, dk =
  // ds' q. With softcap, ds has the score's derivative as a factor, which takes the place of q k'.
  void backward(const BackwardArgs& args, Stream stream) override {
    const cuda::DeviceGuard guard(device_.index);
    float* delta = at<float>(args.workspace, delta_);
    naive_gpu::row_delta(args.o, args.dout, args.dlse, delta, stream);
    for_chunks([&](int64_t head, int64_t kv_head, int64_t count) {
      const Matrix q = heads_of(args.q, head), dout = heads_of(args.dout, head);
      const Matrix k = repeated(heads_of(args.k, kv_head)), v = repeated(heads_of(args.v, kv_head));
      const Square product = square(args.workspace, derivatives_, count);
      const Square dp = square(args.workspace, scores_, count);  // the same memory as the product, if it may
      const Square probability = square(args.workspace, probabilities_, count);
      const Matrix p_or_ds = matrix(probability, problem_.dtype);
      const int64_t first_row = head * problem_.tokens_q;
      const bool first_of_group = head % problem_.group_size() == 0;

      blas_.product(matrix(product, DType::kF32), q, transpose(k), 1, 0, count, stream);
      clear(probability, stream);
      naive_gpu::recompute_probability(product, probability, problem_.dtype, args.lse + first_row,
                                       map_of(kv_head), scoring(head), stream);
      accumulate(args.workspace, dv_, p_or_ds, dout, count, first_of_group, stream);
      blas_.product(matrix(dp, DType::kF32), dout, transpose(v), 1, 0, count, stream);
      naive_gpu::score_gradient(dp, probability, problem_.dtype, delta + first_row,
                                problem_.softcap == 0 ? nullptr : &product, map_of(kv_head),
                                problem_.softmax_scale(), stream);
      blas_.product(heads_of(args.dq, head), p_or_ds, k, 1, 0, count, stream);
      accumulate(args.workspace, dk_, p_or_ds, q, count, first_of_group, stream);

      if ((head + count) % problem_.group_size() == 0) {
        naive_gpu::round_to(args.dk.head(kv_head), at<float>(args.workspace, dk_), stream);
        naive_gpu::round_to(args.dv.head(kv_head), at<float>(args.workspace, dv_), stream);
      }
    });
    finish_sinks(args, device_, stream);
  }

 private:
  // Calls body(first query head, its KV head, number of query heads). A chunk never spans two groups.
  template <class Body>
  void for_chunks(const Body& body) const {
    for (int64_t kv_head = 0; kv_head < problem_.heads_kv; ++kv_head) {
      const int64_t end = (kv_head + 1) * problem_.group_size();
      for (int64_t head = end - problem_.group_size(); head < end; head += chunk_) {
        body(head, kv_head, std::min(chunk_, end - head));
      }
    }
  }

  // Of `head` and those after it.
  naive_gpu::Scoring scoring(int64_t head) const {
    naive_gpu::Scoring scoring;
    scoring.scale = problem_.softmax_scale();
    scoring.rule = ScoreRule<float>::of(problem_, head);
    scoring.slopes = problem_.alibi_slopes.empty() ? nullptr : slopes_.as<const float>() + head;
    return scoring;
  }

  size_t square_elements(int64_t heads) const {
    return static_cast<size_t>(heads) * static_cast<size_t>(problem_.tokens_q) *
           static_cast<size_t>(row_stride_);
  }

  template <class T>
  static T* at(void* workspace, size_t offset) {
    return reinterpret_cast<T*>(static_cast<char*>(workspace) + offset);
  }

  Square square(void* workspace, size_t offset, int64_t heads) const {
    return {.data = at<void*>(workspace, offset),
            .heads = heads,
            .rows = problem_.tokens_q,
            .row_stride = row_stride_};
  }

  Matrix matrix(const Square& square, DType dtype) const {
    return {.data = square.data,
            .dtype = dtype,
            .rows = square.rows,
            .columns = problem_.tokens_kv,
            .row_stride = square.row_stride,
            .batch_stride = square.rows * square.row_stride};
  }

  void clear(const Square& probability, Stream stream) const {
    cuda::fill_async(probability.data, 0, square_elements(probability.heads) * size_of(problem_.dtype),
                     stream);
  }

  // Adds weights' rows of each query head of the group, in f32, to the gradient of its KV head. It runs head
  // by head because the entries of a batch must not write to the same matrix.
  void accumulate(void* workspace, size_t offset, const Matrix& weights, const Matrix& rows, int64_t count,
                  bool first, Stream stream) {
    const Matrix sum{.data = at<float>(workspace, offset),
                     .dtype = DType::kF32,
                     .rows = problem_.tokens_kv,
                     .columns = rows.columns,
                     .row_stride = rows.columns};
    const auto element = [](const Matrix& m, int64_t i) {
      Matrix one = m;
      one.data = static_cast<char*>(m.data) + static_cast<size_t>(i * m.batch_stride) * size_of(m.dtype);
      return one;
    };
    for (int64_t i = 0; i < count; ++i) {
      blas_.product(sum, transpose(element(weights, i)), element(rows, i), 1, first && i == 0 ? 0 : 1, 1,
                    stream);
    }
  }

  const TileMapView& map_of(int64_t kv_head) const {
    return maps_.size() == 1 ? maps_.front().view() : maps_[static_cast<size_t>(kv_head)].view();
  }

  Problem problem_;
  Device device_;
  cuda::Blas blas_;
  std::vector<DeviceTileMap> maps_;
  int64_t row_stride_ = 0;
  int64_t chunk_ = 1;
  Layout layout_;
  Buffer slopes_;  // [heads_q], with ALiBi
  // Offsets into the workspace.
  size_t scores_ = 0, probabilities_ = 0, delta_ = 0, dk_ = 0, dv_ = 0, derivatives_ = 0;
  size_t forward_bytes_ = 0;
};

class NaiveKernel final : public Kernel {
 public:
  std::string_view name() const override { return "gpu-naive"; }
  std::string_view description() const override {
    return "reference on a GPU: cuBLAS products, scores in memory (f32, bf16, f16)";
  }
  DeviceKind device_kind() const override { return DeviceKind::kCuda; }

  Support supports(const Problem& problem, Direction, const Device& device) const override {
    if (device.kind != DeviceKind::kCuda) return {"needs a CUDA device"};
    if (problem.dtype == DType::kF64) return {"has no f64; it has f32, bf16 and f16"};
    if (problem.same_launches) return {"its launches depend on the mask"};
    if (std::string reason = lacking({.head_dim_v = true, .softcap = true, .alibi = true}, problem);
        !reason.empty())
      return {reason};
    if (std::string reason = cuda::Blas::unavailable_reason(); !reason.empty()) return {reason};
    return {naive_gpu::no_code_reason(device)};
  }

  std::unique_ptr<Plan> plan(const Problem& problem, const Device& device) const override {
    problem.check();
    return std::make_unique<NaivePlan>(problem, device);
  }
};

}  // namespace

const Kernel& gpu_naive() {
  static const NaiveKernel kernel;
  return kernel;
}

}  // namespace longspan
