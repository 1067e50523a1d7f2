// PyTorch's C interface for extensions, as far as Longspan uses it, from version 2.10 on. These are
// declarations of our own, so that neither PyTorch nor its headers are needed to build. PyTorch documents the
// interface as "LibTorch stable ABI" and keeps it compatible for at least two years.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

extern "C" {
struct AtenTensorOpaque;
struct TorchLibraryOpaque;
// All of these return 0, or another number after a failure, which PyTorch has then logged.
int32_t aoti_torch_library_init_def(const char* ns, const char* file, uint32_t line,
                                    TorchLibraryOpaque** library);
int32_t aoti_torch_library_init_impl(const char* ns, const char* key, const char* file, uint32_t line,
                                     TorchLibraryOpaque** library);
int32_t aoti_torch_library_def(TorchLibraryOpaque* library, const char* schema);
int32_t torch_library_impl(TorchLibraryOpaque* library, const char* name,
                           void (*function)(uint64_t*, uint64_t, uint64_t), uint64_t built_for_version);
int32_t aoti_torch_delete_tensor_object(AtenTensorOpaque* tensor);
int32_t aoti_torch_get_data_ptr(AtenTensorOpaque* tensor, void** data);  // of the first element
int32_t aoti_torch_get_dim(AtenTensorOpaque* tensor, int64_t* dim);
int32_t aoti_torch_get_sizes(AtenTensorOpaque* tensor, int64_t** sizes);      // borrowed
int32_t aoti_torch_get_strides(AtenTensorOpaque* tensor, int64_t** strides);  // borrowed, in elements
int32_t aoti_torch_get_dtype(AtenTensorOpaque* tensor, int32_t* dtype);
int32_t aoti_torch_get_device_type(AtenTensorOpaque* tensor, int32_t* type);
int32_t aoti_torch_get_device_index(AtenTensorOpaque* tensor, int32_t* index);
int32_t aoti_torch_empty_strided(int64_t dim, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                                 int32_t device_type, int32_t device_index, AtenTensorOpaque** tensor);
int32_t aoti_torch_device_type_cpu();
int32_t aoti_torch_device_type_cuda();
int32_t aoti_torch_dtype_float32();
int32_t aoti_torch_dtype_float16();
int32_t aoti_torch_dtype_bfloat16();
int32_t aoti_torch_dtype_int64();
int32_t aoti_torch_dtype_uint8();
}

namespace longspan::torch_abi {

inline constexpr uint64_t kVersion = uint64_t{2} << 56 | uint64_t{10} << 48;  // 2.10

// Of a function of PyTorch.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void check(int32_t status, const char* what) {
  if (status != 0) throw Failure(std::string("longspan: PyTorch failed to ") + what);
}

// An owned reference to a tensor.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(AtenTensorOpaque* handle) : handle_(handle) {}
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Tensor() {
    if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
  }

  // A dense tensor with uninitialised memory.
  template <int kDim>
  static Tensor empty(const int64_t (&sizes)[kDim], int32_t dtype, int32_t device_type,
                      int32_t device_index) {
    int64_t strides[kDim];
    int64_t stride = 1;
    for (int i = kDim; i-- > 0;) {
      strides[i] = stride;
      stride *= sizes[i];
    }
    AtenTensorOpaque* handle = nullptr;
    check(aoti_torch_empty_strided(kDim, sizes, strides, dtype, device_type, device_index, &handle),
          "allocate a tensor");
    return Tensor(handle);
  }

  bool defined() const { return handle_ != nullptr; }
  void* data() const {
    void* data = nullptr;
    check(aoti_torch_get_data_ptr(handle_, &data), "give a tensor's address");
    return data;
  }
  int64_t dim() const {
    int64_t dim = 0;
    check(aoti_torch_get_dim(handle_, &dim), "give a tensor's rank");
    return dim;
  }
  const int64_t* sizes() const {
    int64_t* sizes = nullptr;
    check(aoti_torch_get_sizes(handle_, &sizes), "give a tensor's shape");
    return sizes;
  }
  const int64_t* strides() const {
    int64_t* strides = nullptr;
    check(aoti_torch_get_strides(handle_, &strides), "give a tensor's strides");
    return strides;
  }
  int32_t dtype() const { return number(aoti_torch_get_dtype); }
  int32_t device_type() const { return number(aoti_torch_get_device_type); }
  int32_t device_index() const { return number(aoti_torch_get_device_index); }

  uint64_t release() {  // as a value on the stack of an operator
    return reinterpret_cast<uint64_t>(std::exchange(handle_, nullptr));
  }

 private:
  int32_t number(int32_t (*get)(AtenTensorOpaque*, int32_t*)) const {
    int32_t value = 0;
    check(get(handle_, &value), "describe a tensor");
    return value;
  }

  AtenTensorOpaque* handle_ = nullptr;
};

// Values of the stack that an operator is called with. Each is taken once.
inline Tensor take_tensor(uint64_t value) {
  return Tensor(reinterpret_cast<AtenTensorOpaque*>(value));
}
inline Tensor take_optional_tensor(uint64_t value) {  // null, or a value on the heap
  if (value == 0) return {};
  const auto* inner = reinterpret_cast<uint64_t*>(value);
  Tensor tensor = take_tensor(*inner);
  delete inner;
  return tensor;
}

}  // namespace longspan::torch_abi
