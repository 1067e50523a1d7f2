#include "base/dtype.h"

#include "base/error.h"
#include "base/nearest.h"

namespace longspan {

size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kF64:
      return 8;
  }
  LONGSPAN_CHECK(false, "dtype {} has no size", static_cast<int>(dtype));
  return 0;
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kF64:
      return "f64";
  }
  LONGSPAN_CHECK(false, "dtype {} has no name", static_cast<int>(dtype));
  return "";
}

DType dtype_from_name(std::string_view name) {
  std::vector<std::string> names;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    if (name == name_of(dtype)) return dtype;
    names.emplace_back(name_of(dtype));
  }
  LONGSPAN_CHECK_INPUT(false, "dtype '{}' is unknown{}; the dtypes are f32, bf16, f16, f64", name,
                       did_you_mean(name, names));
  return DType::kF32;
}

// The compiler's half type handles subnormals, infinities and NaN, and compiles to one instruction where the
// machine has it. Clang has _Float16 on x86 from version 15; earlier versions have a type that can be stored
// but not returned.
#if defined(__clang__) && __clang_major__ < 15
using Half = __fp16;
#else
using Half = _Float16;
#endif

float to_float(f16 x) {
  Half half;
  std::memcpy(&half, &x.bits, sizeof half);
  return static_cast<float>(half);
}

f16 to_f16(float x) {
  const Half half = static_cast<Half>(x);
  f16 out;
  std::memcpy(&out.bits, &half, sizeof half);
  return out;
}

}  // namespace longspan
