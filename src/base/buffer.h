// Copies between the memories of devices.
#pragma once

#include <cstddef>

#include "longspan/base.h"

namespace longspan {

// Between the memories of any two devices; finished when it returns.
void copy_bytes(void* to, DeviceKind to_kind, const void* from, DeviceKind from_kind, size_t bytes);

// Rows of `row_bytes`, their beginnings so many bytes apart.
void copy_rows(void* to, DeviceKind to_kind, size_t to_stride, const void* from, DeviceKind from_kind,
               size_t from_stride, size_t row_bytes, size_t rows);

// Sets each byte to `value`; finished when it returns. 0xff makes NaN of every dtype.
void fill_bytes(void* to, DeviceKind kind, unsigned char value, size_t bytes);

}  // namespace longspan
