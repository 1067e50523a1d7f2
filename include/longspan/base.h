// Tensors, devices, streams and errors: the types that the other headers of Longspan share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace longspan {

// The kind of failure that an Error reports: a caller's mistake (kInput), a defect of Longspan or of the
// system (kInternal), an allocation or a thread that the system refused (kOutOfMemory), another rank or
// process that failed (kPeer), or a problem that a kernel does not support (kUnsupported).
enum class ErrorKind { kInput, kInternal, kOutOfMemory, kPeer, kUnsupported };

// The only exception type. what() names the wrong value, the allowed values, and what to do. Every function
// of these headers checks what it is given, except the accessors of TensorView and Band; none aborts.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, const char* file, int line, const char* expression);
  ErrorKind kind() const { return kind_; }
  const char* file() const { return file_; }  // where it was thrown
  int line() const { return line_; }
  const char* expression() const { return expression_; }  // the condition that did not hold

 private:
  ErrorKind kind_;
  const char* file_;
  int line_;
  const char* expression_;
};

enum class DType : uint8_t { kF32, kBF16, kF16, kF64 };
size_t size_of(DType dtype);              // bytes per element
std::string_view name_of(DType dtype);    // "f32", "bf16", "f16", "f64"
DType dtype_from_name(std::string_view);  // throws kInput that lists the names

enum class DeviceKind : uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;            // the CUDA ordinal; 0 for the CPU
  std::string name;         // "Intel(R) Xeon(R) ...", "NVIDIA H200"
  int units = 0;            // hardware threads this process may use, or multiprocessors
  int capability = 0;       // CUDA: 10 * major + minor, e.g. 90; 0 for the CPU
  size_t memory_bytes = 0;  // total
  size_t cache_bytes = 0;   // last-level cache (L3, or the GPU's L2)
  std::string uuid;         // CUDA: "GPU-..." as nvidia-smi shows it; empty for the CPU
};
Device cpu_device();
std::vector<Device> devices();  // the CPU first, then each usable CUDA device
std::string no_cuda_reason();   // why devices() has no CUDA device; empty if it has one

// A cudaStream_t. Unused on the CPU, where every call is synchronous.
struct Stream {
  void* handle = nullptr;
};

// A view of [tokens, heads, head_dim], contiguous in head_dim; strides in elements. Does not own its memory.
// Its members do not check their arguments; the calls that take a view do.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t tokens = 0, heads = 0, head_dim = 0;
  int64_t token_stride = 0, head_stride = 0;

  // A dense tensor: token-major, then head, then head_dim.
  static TensorView contiguous(void* data, DType dtype, int64_t tokens, int64_t heads, int64_t head_dim) {
    return {data, dtype, tokens, heads, head_dim, heads * head_dim, head_dim};
  }
  int64_t elements() const { return tokens * heads * head_dim; }
  size_t bytes() const { return static_cast<size_t>(elements()) * size_of(dtype); }

  // The first element of a row of head_dim elements. constexpr, so that device code may call it.
  template <class T>
  constexpr T* row(int64_t token, int64_t head) const {
    return static_cast<T*>(data) + token * token_stride + head * head_stride;
  }
  void* row_address(int64_t token, int64_t head) const {  // the same, untyped
    return static_cast<char*>(data) +
           (token * token_stride + head * head_stride) * static_cast<int64_t>(size_of(dtype));
  }
  TensorView head(int64_t h) const {  // [tokens, 1, head_dim]
    TensorView view = *this;
    view.data = row_address(0, h);
    view.heads = 1;
    return view;
  }
};

// Uninitialised memory of one device, aligned to 256 bytes. Move only. Throws kOutOfMemory that says how much
// was requested and how much is free.
class Buffer {
 public:
  Buffer() = default;
  Buffer(size_t bytes, const Device& device);
  ~Buffer() { reset(); }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }
  DeviceKind kind() const { return kind_; }
  void reset();

 private:
  void swap(Buffer& other) noexcept;

  void* data_ = nullptr;
  size_t bytes_ = 0;
  DeviceKind kind_ = DeviceKind::kCpu;
  int index_ = 0;
};

}  // namespace longspan
