// Checks that throw an Error. They stay on in release builds.
#pragma once

#include <fmt/format.h>

#include "longspan/base.h"

// LONGSPAN_CHECK(i < n, "row {} is outside the {} rows of the mask", i, n) checks an invariant of the
// program.
#define LONGSPAN_CHECK(condition, ...)                                                              \
  do {                                                                                              \
    if (!(condition)) [[unlikely]]                                                                  \
      throw ::longspan::Error(::longspan::ErrorKind::kInternal, fmt::format(__VA_ARGS__), __FILE__, \
                              __LINE__, #condition);                                                \
  } while (false)

// LONGSPAN_CHECK_INPUT(b > 0, "--block {}: must be at least 1", b) checks user input. The message names the
// value, what is allowed, and what to do.
#define LONGSPAN_CHECK_INPUT(condition, ...)                                                               \
  do {                                                                                                     \
    if (!(condition)) [[unlikely]]                                                                         \
      throw ::longspan::Error(::longspan::ErrorKind::kInput, fmt::format(__VA_ARGS__), __FILE__, __LINE__, \
                              #condition);                                                                 \
  } while (false)
