#include "kernels/gpu/staging_ring.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include <gmock/gmock.h>

namespace longspan::gpu {
namespace {

// A device that copies slots in the order in which they were filled, when told to.
struct FakeDevice {
  std::vector<int> filled;  // slots, oldest first
  std::vector<int> waited_for;
  int slots = 0;

  void bring_away(size_t count) { filled.erase(filled.begin(), filled.begin() + static_cast<long>(count)); }
};

struct FakeSlot {
  FakeDevice* device;
  int number;

  bool done() const { return std::count(device->filled.begin(), device->filled.end(), number) == 0; }
  void wait() {
    device->waited_for.push_back(number);
    while (!done()) device->bring_away(1);
  }
};

class StagingRingTest : public testing::Test {
 protected:
  int take() {
    FakeSlot& slot = ring_.take();
    EXPECT_TRUE(slot.done()) << "slot " << slot.number << " is written over";
    device_.filled.push_back(slot.number);
    return slot.number;
  }

  FakeDevice device_;
  StagingRing<FakeSlot> ring_{3, [this] {
                                return std::make_unique<FakeSlot>(FakeSlot{&device_, device_.slots++});
                              }};
};

TEST_F(StagingRingTest, UsesOneSlotWhileEachIsDoneBeforeTheNext) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(take(), 0);
    device_.bring_away(1);
  }
  EXPECT_EQ(ring_.size(), 1u);
  EXPECT_THAT(device_.waited_for, testing::IsEmpty());
}

TEST_F(StagingRingTest, MakesSlotsWhileTheyAreBusyAndThenWaitsForTheOldest) {
  EXPECT_EQ(take(), 0);
  EXPECT_EQ(take(), 1);
  EXPECT_EQ(take(), 2);
  EXPECT_THAT(device_.waited_for, testing::IsEmpty());
  EXPECT_EQ(take(), 0);
  EXPECT_EQ(take(), 1);
  EXPECT_THAT(device_.waited_for, testing::ElementsAre(0, 1));
  EXPECT_EQ(ring_.size(), 3u);
}

TEST_F(StagingRingTest, TakesSlotsByAgeAlsoWhereOneWasMadeInBetween) {
  EXPECT_EQ(take(), 0);
  EXPECT_EQ(take(), 1);
  device_.bring_away(1);
  EXPECT_EQ(take(), 0);  // busy: 1, 0
  EXPECT_EQ(take(), 2);  // the oldest, 1, is still busy
  device_.bring_away(1);
  EXPECT_EQ(take(), 1);
  EXPECT_EQ(take(), 0);
  EXPECT_EQ(take(), 2);
  EXPECT_THAT(device_.waited_for, testing::ElementsAre(0, 2));
}

TEST_F(StagingRingTest, NeverHandsOutABusySlot) {
  uint32_t random = 1;
  for (int i = 0; i < 10000; ++i) {
    take();  // checks it
    random = random * 1664525 + 1013904223;
    device_.bring_away(std::min<size_t>(random >> 30, device_.filled.size()));
  }
  EXPECT_EQ(ring_.size(), 3u);
}

}  // namespace
}  // namespace longspan::gpu
