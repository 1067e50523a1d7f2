#include "base/dtype.h"

#include "base/error.h"

namespace longspan {

size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kBF16:
      return 2;
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
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    if (name == name_of(dtype)) return dtype;
  }
  LONGSPAN_CHECK_INPUT(false, "dtype '{}' is unknown; the dtypes are f32, bf16, f16, f64", name);
  return DType::kF32;
}

// A compiler's own half type knows every corner (subnormals, infinities, NaN) and compiles to one
// instruction where the machine has it.
float to_float(f16 x) {
  return static_cast<float>(std::bit_cast<_Float16>(x.bits));
}

f16 to_f16(float x) {
  return f16{std::bit_cast<uint16_t>(static_cast<_Float16>(x))};
}

}  // namespace longspan
