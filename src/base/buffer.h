// Copies between the memories of devices.
#pragma once

#include <cstddef>

#include "longspan/base.h"

namespace longspan {

// Copies between the memories of any two devices. Returns when the copy is done.
void copy_bytes(void* to, DeviceKind to_kind, const void* from, DeviceKind from_kind, size_t bytes);

// Copies rows of `row_bytes` bytes; the strides are the bytes between the starts of rows.
void copy_rows(void* to, DeviceKind to_kind, size_t to_stride, const void* from, DeviceKind from_kind,
               size_t from_stride, size_t row_bytes, size_t rows);

// Sets each byte to `value`. Returns when it is done. 0xff makes every element NaN in every dtype.
void fill_bytes(void* to, DeviceKind kind, unsigned char value, size_t bytes);

}  // namespace longspan
