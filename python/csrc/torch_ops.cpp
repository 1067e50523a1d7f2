// The operators of PyTorch: longspan::forward, longspan::backward and longspan::backward_with_sinks, and the
// passes under context parallelism. A plan enters as an int64 tensor [1] on the CPU that holds its number, so
// that a compiled graph can be given another plan without being compiled again.
#include <cstdio>

#include <dlfcn.h>

#include "core.h"
#include "torch_abi.h"

namespace {

using longspan::torch_abi::check;
using longspan::torch_abi::kVersion;
using longspan::torch_abi::take_optional_tensor;
using longspan::torch_abi::take_tensor;
using longspan::torch_abi::Tensor;

[[noreturn]] void refuse(const std::string& message) {
  throw std::runtime_error("longspan: " + message);
}

void check_core(int status) {
  if (status != 0) throw std::runtime_error(longspan_error());
}

int32_t torch_dtype(int32_t dtype) {  // in the order of longspan::DType
  switch (dtype) {
    case 0:
      return aoti_torch_dtype_float32();
    case 1:
      return aoti_torch_dtype_bfloat16();
    case 2:
      return aoti_torch_dtype_float16();
    default:
      refuse("dtype " + std::to_string(dtype) + " has no operator");
  }
}

// The stream that PyTorch works in. Found at run time, since PyTorch without CUDA lacks the function.
void* current_stream(int32_t device) {
  using Get = int32_t (*)(int32_t, void**);
  static const Get get = [] {
    void* library = dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
    return library == nullptr ? nullptr
                              : reinterpret_cast<Get>(dlsym(library, "aoti_torch_get_current_cuda_stream"));
  }();
  if (get == nullptr) refuse("this PyTorch has no CUDA");
  void* stream = nullptr;
  check(get(device, &stream), "give its current stream");
  return stream;
}

// The plan of a call, and where its tensors are.
struct Call {
  int64_t plan = 0;
  longspan_plan_info info{};
  int32_t device_type = 0, device_index = -1;

  explicit Call(const Tensor& number) : Call(number_in(number)) {
    check_core(longspan_plan_get_info(plan, &info));
    find_device();
  }

 protected:
  explicit Call(int64_t number) : plan(number) {}

  static int64_t number_in(const Tensor& number) {
    if (number.device_type() != aoti_torch_device_type_cpu() || number.dtype() != aoti_torch_dtype_int64() ||
        number.dim() != 1 || number.sizes()[0] != 1)
      refuse("plan must be the tensor of a longspan.Plan: int64[1] on the CPU");
    return *static_cast<const int64_t*>(number.data());
  }

  void find_device() {
    const bool cuda = info.problem.cuda_device >= 0;
    device_type = cuda ? aoti_torch_device_type_cuda() : aoti_torch_device_type_cpu();
    device_index = cuda ? info.problem.cuda_device : -1;
  }

 public:
  void check_place(const char* name, const Tensor& t, int32_t dtype) const {
    if (t.device_type() != device_type || (device_index >= 0 && t.device_index() != device_index))
      refuse(std::string(name) + " is on another device than the plan was made for");
    if (t.dtype() != dtype) refuse(std::string(name) + " has another dtype than the plan was made for");
  }
  // [tokens, heads, dim], contiguous in its last dimension.
  longspan_tensor view(const char* name, const Tensor& t, int64_t tokens, int64_t heads, int64_t dim) const {
    check_place(name, t, torch_dtype(info.problem.dtype));
    const int64_t* const sizes = t.sizes();
    if (t.dim() != 3 || sizes[0] != tokens || sizes[1] != heads || sizes[2] != dim) {
      std::string shape;
      for (int64_t i = 0; i < t.dim(); ++i) shape += (i > 0 ? ", " : "") + std::to_string(sizes[i]);
      refuse(std::string(name) + " has shape [" + shape + "], the plan needs [" + std::to_string(tokens) +
             ", " + std::to_string(heads) + ", " + std::to_string(dim) + "]");
    }
    const int64_t* const strides = t.strides();
    if (strides[2] != 1) refuse(std::string(name) + " is not contiguous in head_dim");
    return {t.data(), strides[0], strides[1]};
  }
  // Of q and dq; of o and dout; of k and dk; of v and dv.
  longspan_tensor rows(const char* name, const Tensor& t) const {
    return view(name, t, info.tokens_q, info.problem.heads_q, info.problem.head_dim);
  }
  longspan_tensor results(const char* name, const Tensor& t) const {
    return view(name, t, info.tokens_q, info.problem.heads_q, info.problem.head_dim_v);
  }
  longspan_tensor keys(const char* name, const Tensor& t) const {
    return view(name, t, info.tokens_kv, info.problem.heads_kv, info.problem.head_dim);
  }
  longspan_tensor values(const char* name, const Tensor& t) const {
    return view(name, t, info.tokens_kv, info.problem.heads_kv, info.problem.head_dim_v);
  }
  float* per_row(const char* name, const Tensor& t) const {  // [heads_q, tokens_q]
    check_place(name, t, aoti_torch_dtype_float32());
    const int64_t* const sizes = t.sizes();
    const int64_t* const strides = t.strides();
    // PyTorch leaves the stride of a dimension of one element to chance.
    if (t.dim() != 2 || sizes[0] != info.problem.heads_q || sizes[1] != info.tokens_q ||
        (sizes[1] > 1 && strides[1] != 1) || (sizes[0] > 1 && sizes[1] > 0 && strides[0] != sizes[1]))
      refuse(std::string(name) + " must be dense and have shape [" + std::to_string(info.problem.heads_q) +
             ", " + std::to_string(info.tokens_q) + "]");
    return static_cast<float*>(t.data());
  }

  float* per_head(const char* name, const Tensor& t) const {  // [heads_q]
    check_place(name, t, aoti_torch_dtype_float32());
    const int64_t heads = info.problem.heads_q;
    if (t.dim() != 1 || t.sizes()[0] != heads || (heads > 1 && t.strides()[0] != 1))
      refuse(std::string(name) + " must be dense and have shape [" + std::to_string(heads) + "]");
    return static_cast<float*>(t.data());
  }

  Tensor empty(int64_t tokens, int64_t heads, int64_t dim) const {
    return Tensor::empty({tokens, heads, dim}, torch_dtype(info.problem.dtype), device_type, device_index);
  }
  Tensor empty_rows() const { return empty(info.tokens_q, info.problem.heads_q, info.problem.head_dim); }
  Tensor empty_results() const { return empty(info.tokens_q, info.problem.heads_q, info.problem.head_dim_v); }
  Tensor empty_keys() const { return empty(info.tokens_kv, info.problem.heads_kv, info.problem.head_dim); }
  Tensor empty_values() const {
    return empty(info.tokens_kv, info.problem.heads_kv, info.problem.head_dim_v);
  }
  Tensor empty_lse() const {
    return Tensor::empty({info.problem.heads_q, info.tokens_q}, aoti_torch_dtype_float32(), device_type,
                         device_index);
  }
  Tensor empty_sinks() const {
    return Tensor::empty({info.problem.heads_q}, aoti_torch_dtype_float32(), device_type, device_index);
  }
  void* stream() const { return device_index < 0 ? nullptr : current_stream(device_index); }
};

// The memory of a call, at the alignment that plans want. PyTorch aligns memory of the CPU to 64 bytes.
class Workspace {
 public:
  Workspace(const Call& call, int64_t bytes) {
    if (bytes > 0)
      memory_ =
          Tensor::empty({bytes + kAlignment}, aoti_torch_dtype_uint8(), call.device_type, call.device_index);
  }
  void* data() const {
    if (!memory_.defined()) return nullptr;
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    return reinterpret_cast<void*>((address + kAlignment - 1) / kAlignment * kAlignment);
  }

 private:
  static constexpr int64_t kAlignment = 256;
  Tensor memory_;
};

// forward(Tensor q, Tensor k, Tensor v, Tensor plan, Tensor? sinks=None) -> (Tensor o, Tensor lse)
void forward(uint64_t* stack, uint64_t, uint64_t) {
  const Tensor q = take_tensor(stack[0]), k = take_tensor(stack[1]), v = take_tensor(stack[2]),
               number = take_tensor(stack[3]), sinks = take_optional_tensor(stack[4]);
  const Call call(number);
  Tensor o = call.empty_results();
  Tensor lse = call.empty_lse();
  const Workspace workspace(call, call.info.forward_bytes);
  const longspan_forward_args args{.q = call.rows("q", q),
                                   .k = call.keys("k", k),
                                   .v = call.values("v", v),
                                   .o = call.results("o", o),
                                   .lse = call.per_row("lse", lse),
                                   .workspace = workspace.data(),
                                   .sinks = sinks.defined() ? call.per_head("sinks", sinks) : nullptr};
  check_core(longspan_forward(call.plan, &args, call.stream()));
  stack[0] = o.release();
  stack[1] = lse.release();
}

// What both backward operators take first, dout, dlse, q, k, v, o and lse, and what they give: dq, dk and dv.
class Gradients {
 public:
  explicit Gradients(const uint64_t* stack)
      : dout_(take_tensor(stack[0])),
        dlse_(take_optional_tensor(stack[1])),
        q_(take_tensor(stack[2])),
        k_(take_tensor(stack[3])),
        v_(take_tensor(stack[4])),
        o_(take_tensor(stack[5])),
        lse_(take_tensor(stack[6])) {}

  bool has_dlse() const { return dlse_.defined(); }
  void allocate(const Call& call) {
    dq_ = call.empty_rows();
    dk_ = call.empty_keys();
    dv_ = call.empty_values();
  }
  longspan_backward_args args(const Call& call, void* workspace) const {
    return {.q = call.rows("q", q_),
            .k = call.keys("k", k_),
            .v = call.values("v", v_),
            .o = call.results("o", o_),
            .dout = call.results("dout", dout_),
            .dq = call.rows("dq", dq_),
            .dk = call.keys("dk", dk_),
            .dv = call.values("dv", dv_),
            .lse = call.per_row("lse", lse_),
            .dlse = has_dlse() ? call.per_row("dlse", dlse_) : nullptr,
            .workspace = workspace,
            .sinks = nullptr,
            .dsinks = nullptr};
  }
  void give(uint64_t* stack) {
    stack[0] = dq_.release();
    stack[1] = dk_.release();
    stack[2] = dv_.release();
  }

 private:
  Tensor dout_, dlse_, q_, k_, v_, o_, lse_, dq_, dk_, dv_;
};

// backward(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor plan)
//   -> (Tensor dq, Tensor dk, Tensor dv)
// backward_with_sinks: the same and Tensor sinks -> dsinks, too
template <bool kSinks>
void backward(uint64_t* stack, uint64_t, uint64_t) {
  Gradients gradients(stack);
  const Tensor number = take_tensor(stack[7]), sinks = kSinks ? take_tensor(stack[8]) : Tensor();
  const Call call(number);
  gradients.allocate(call);
  const Workspace workspace(call, call.info.backward_bytes);
  longspan_backward_args args = gradients.args(call, workspace.data());
  Tensor dsinks;
  if (kSinks) {
    dsinks = call.empty_sinks();
    args.sinks = call.per_head("sinks", sinks);
    args.dsinks = call.per_head("dsinks", dsinks);
  }
  check_core(longspan_backward(call.plan, &args, call.stream()));
  gradients.give(stack);
  if (kSinks) stack[3] = dsinks.release();
}

// The plan of a call under context parallelism. Its tensors hold the tokens of this rank.
struct ParallelCall : Call {
  int64_t kept_bytes = 0;
  bool lse_gradient = false;

  explicit ParallelCall(const Tensor& number) : Call(number_in(number)) {
    longspan_parallel_info found;
    check_core(longspan_parallel_get_info(plan, &found));
    info = {.tokens_q = found.tokens, .tokens_kv = found.tokens, .problem = found.problem};
    kept_bytes = found.kept_bytes;
    lse_gradient = found.lse_gradient != 0;
    find_device();
  }

  void* kept(const Tensor& t) const {
    check_place("kept", t, aoti_torch_dtype_uint8());
    if (t.dim() != 1 || t.sizes()[0] != kept_bytes)
      refuse("kept must be what the forward pass of this plan gave, " + std::to_string(kept_bytes) +
             " bytes");
    return kept_bytes == 0 ? nullptr : t.data();
  }
};

// Runs the body of a call. If PyTorch fails in it, as where memory is short, this rank is missed by the
// others.
template <class Body>
void take_part(const ParallelCall& call, const Body& body) {
  try {
    body();
  } catch (const longspan::torch_abi::Failure& failure) {
    longspan_parallel_fail(call.plan, failure.what());
    throw;
  }
}

// parallel_forward(Tensor q, Tensor k, Tensor v, Tensor plan, SymInt kept_bytes)
//   -> (Tensor o, Tensor lse, Tensor kept)
void parallel_forward(uint64_t* stack, uint64_t, uint64_t) {
  const Tensor q = take_tensor(stack[0]), k = take_tensor(stack[1]), v = take_tensor(stack[2]),
               number = take_tensor(stack[3]);
  const auto kept_bytes = static_cast<int64_t>(stack[4]);
  const ParallelCall call(number);
  if (kept_bytes != 0 && kept_bytes != call.kept_bytes)
    refuse("kept_bytes is " + std::to_string(kept_bytes) + ": must be 0, or " +
           std::to_string(call.kept_bytes) + " as the plan says");
  take_part(call, [&] {
    Tensor o = call.empty_results(), lse = call.empty_lse();
    Tensor kept = Tensor::empty({kept_bytes}, aoti_torch_dtype_uint8(), call.device_type, call.device_index);
    const longspan_forward_args args{.q = call.rows("q", q),
                                     .k = call.keys("k", k),
                                     .v = call.values("v", v),
                                     .o = call.results("o", o),
                                     .lse = call.per_row("lse", lse),
                                     .workspace = nullptr,
                                     .sinks = nullptr};
    check_core(longspan_parallel_forward(call.plan, &args, kept_bytes == 0 ? nullptr : call.kept(kept),
                                         call.stream()));
    stack[0] = o.release();
    stack[1] = lse.release();
    stack[2] = kept.release();
  });
}

// parallel_backward(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor
// kept,
//   Tensor plan) -> (Tensor dq, Tensor dk, Tensor dv)
void parallel_backward(uint64_t* stack, uint64_t, uint64_t) {
  Gradients gradients(stack);
  const Tensor kept = take_tensor(stack[7]), number = take_tensor(stack[8]);
  const ParallelCall call(number);
  if (gradients.has_dlse() && !call.lse_gradient)
    refuse("dlse is given, and the plan was made without: make it with lse_gradient=True");
  take_part(call, [&] {
    gradients.allocate(call);
    const longspan_backward_args args = gradients.args(call, nullptr);
    check_core(longspan_parallel_backward(call.plan, &args, call.kept(kept), call.stream()));
    gradients.give(stack);
  });
}

struct Operator {
  const char* name;
  const char* schema;
  void (*function)(uint64_t*, uint64_t, uint64_t);
};
// attention and parallel_attention are the forward passes that Python gives gradients. PyTorch calls such an
// operator through Python, so eager mode, with a gradient of its own, calls forward and parallel_forward.
constexpr Operator kOperators[] = {
    {"attention",
     "attention(Tensor q, Tensor k, Tensor v, Tensor plan, Tensor? sinks=None) -> (Tensor, Tensor)", forward},
    {"forward", "forward(Tensor q, Tensor k, Tensor v, Tensor plan, Tensor? sinks=None) -> (Tensor, Tensor)",
     forward},
    {"backward",
     "backward(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor plan) "
     "-> (Tensor, Tensor, Tensor)",
     backward<false>},
    {"backward_with_sinks",
     "backward_with_sinks(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, "
     "Tensor plan, Tensor sinks) -> (Tensor, Tensor, Tensor, Tensor)",
     backward<true>},
    {"parallel_attention",
     "parallel_attention(Tensor q, Tensor k, Tensor v, Tensor plan, SymInt kept_bytes) "
     "-> (Tensor, Tensor, Tensor)",
     parallel_forward},
    {"parallel_forward",
     "parallel_forward(Tensor q, Tensor k, Tensor v, Tensor plan, SymInt kept_bytes) "
     "-> (Tensor, Tensor, Tensor)",
     parallel_forward},
    {"parallel_backward",
     "parallel_backward(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, "
     "Tensor kept, Tensor plan) -> (Tensor, Tensor, Tensor)",
     parallel_backward},
};

// Registered when Python loads this library, for as long as the process lives.
struct Registration {
  Registration() {
    TorchLibraryOpaque *definitions = nullptr, *implementations = nullptr;
    check(aoti_torch_library_init_def("longspan", __FILE__, __LINE__, &definitions), "add a library");
    check(aoti_torch_library_init_impl("longspan", "CompositeExplicitAutograd", __FILE__, __LINE__,
                                       &implementations),
          "add implementations");
    for (const Operator& each : kOperators) {
      check(aoti_torch_library_def(definitions, each.schema), each.name);
      check(torch_library_impl(implementations, each.name, each.function, kVersion), each.name);
    }
  }
};
const Registration registration;

}  // namespace
