// What the standard library throws, as an Error: for the functions that a user of the library calls.
#pragma once

#include <new>
#include <stdexcept>
#include <system_error>

#include "base/error.h"

namespace longspan {

// Returns body(). A failed allocation becomes kOutOfMemory, and an error of the system kInternal.
template <class Body>
auto standard_errors(Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::kOutOfMemory, "out of memory on the host", __FILE__, __LINE__, "new");
  } catch (const std::length_error& error) {
    throw Error(ErrorKind::kOutOfMemory, fmt::format("out of memory on the host ({})", error.what()),
                __FILE__, __LINE__, "length");
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::kInternal, error.what(), __FILE__, __LINE__, "a system call");
  }
}

}  // namespace longspan
