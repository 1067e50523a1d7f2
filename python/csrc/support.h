// What the sources of the C interface share: errors as numbers, and its structs as those of the library.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <string>

#include "core.h"
#include "longspan/attention.h"

struct longspan_masks {
  std::shared_ptr<const longspan::HeadMasks> heads;
};

namespace longspan::python {

// Notes the message for longspan_error(), and returns the number of the error.
int failed(ErrorKind kind, std::string message);
[[noreturn]] void refuse(const std::string& message, int line);  // throws kInput

// Runs body; turns an exception into a number.
template <class Body>
int guarded(const Body& body) noexcept {
  try {
    body();
    return 0;
  } catch (const Error& error) {
    return failed(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return failed(ErrorKind::kOutOfMemory, "out of memory");
  } catch (const std::exception& error) {
    return failed(ErrorKind::kInternal, error.what());
  }
}

Device device_of(int32_t cuda_device);  // -1: the CPU
Problem problem_of(const longspan_masks& masks, const longspan_problem& asked);

longspan_problem described(const longspan_problem& asked);  // as a plan's info has it: without pointers

inline TensorView rows(const longspan_tensor& t, const Problem& p, int64_t head_dim) {
  return {t.data, p.dtype, p.tokens_q, p.heads_q, head_dim, t.token_stride, t.head_stride};
}
inline TensorView keys(const longspan_tensor& t, const Problem& p, int64_t head_dim) {
  return {t.data, p.dtype, p.tokens_kv, p.heads_kv, head_dim, t.token_stride, t.head_stride};
}
ForwardArgs forward_of(const longspan_forward_args& args, const Problem& p);
BackwardArgs backward_of(const longspan_backward_args& args, const Problem& p);

}  // namespace longspan::python
