// Buffers that executors of several schedules share.
#include "cp/execute/buffer_pool.h"

#include <gtest/gtest.h>

namespace longspan {
namespace {

TEST(BufferPool, SharedOneGivesSizesThatDifferALittleTheSameBuffers) {
  const auto pool = std::make_shared<BufferPool>(cpu_device(), BufferPool::Use::kShared);
  for (size_t kind = 0; kind < 3; ++kind) {
    for (const size_t bytes : {100000u, 104000u, 99000u, 97000u}) {
      pool->begin_pass(kind);
      const auto first = pool->take(bytes), second = pool->take(bytes / 10);
      EXPECT_NE(first.data(), second.data());
    }
  }
  const size_t held = pool->held_bytes();
  EXPECT_GE(held, 114400u);
  EXPECT_LE(held, 128000u);  // two buffers, an eighth larger at most
  pool->begin_pass(0);
  const auto larger = pool->take(300000);
  EXPECT_GE(pool->held_bytes(), held + 300000);
}

TEST(BufferPool, SharedOneHasRoomForLaterUses) {
  const auto pool = std::make_shared<BufferPool>(cpu_device(), BufferPool::Use::kShared);
  pool->begin_pass(0);
  { const auto lease = pool->take(1000, 50000); }
  const size_t held = pool->held_bytes();
  EXPECT_GE(held, 50000u);
  { const auto lease = pool->take(50000); }
  EXPECT_EQ(pool->held_bytes(), held);
}

}  // namespace
}  // namespace longspan
