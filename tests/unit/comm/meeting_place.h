// Where the ranks of a test meet.
#pragma once

#include <atomic>

#include <unistd.h>

#include "comm/launch.h"

namespace longspan {

// Ports below those that the system assigns to clients. Concurrent tests have neighbouring process ids and
// use 16 ports each.
inline int free_port() {
  static std::atomic<int> next{20000 + static_cast<int>(getpid() % 750) * 16};
  return next++;
}

constexpr const char* kTestToken = "the token of these tests";

inline Launch place(int rank, int ranks, int port, const char* token = kTestToken) {
  return {"test", rank, ranks, rank, "127.0.0.1", port, token};
}

}  // namespace longspan
