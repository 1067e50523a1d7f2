// Threads whose failure to start is an Error.
#pragma once

#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace longspan {

// A running thread. Throws kOutOfMemory if the system cannot start one.
template <class Body>
std::jthread start_thread(Body body) {
  try {
    return std::jthread(std::move(body));
  } catch (const std::system_error& error) {
    throw Error(
        ErrorKind::kOutOfMemory,
        fmt::format("cannot start a thread ({}); use fewer threads (LONGSPAN_THREADS) or ranks, or raise "
                    "the limits on processes and memory (ulimit -u, ulimit -v)",
                    error.code().message()),
        __FILE__, __LINE__, "std::jthread");
  }
}

// What the exception being handled says. For a `catch (...)`.
inline std::string reason_of_current_exception() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace longspan
