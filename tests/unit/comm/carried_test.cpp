// Ranks whose messages something else carries: conformance, and what its failures become.
#include "comm/carried.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/threads.h"
#include "conformance.h"

namespace longspan {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Carries messages over a group of threads.
class OverThreads : public Carrier {
 public:
  explicit OverThreads(Communicator& below) : below_(below) {}
  int64_t start(std::span<const Message> sends, std::span<const Message> receives) override {
    for (auto messages : {sends, receives}) {
      for (const Message& message : messages)
        LONGSPAN_CHECK(message.peer != below_.rank() && message.bytes > 0, "not for a carrier");
    }
    transfers_[++last_] = below_.exchange(sends, receives, {});
    return last_;
  }
  void wait(int64_t transfer) override {
    const auto it = transfers_.find(transfer);
    LONGSPAN_CHECK(it != transfers_.end(), "transfer {} has ended", transfer);
    it->second->wait({});
    transfers_.erase(it);
  }
  void fail(const std::string& reason) override { below_.fail(reason); }

 private:
  Communicator& below_;
  std::map<int64_t, std::unique_ptr<Transfer>> transfers_;
  int64_t last_ = 0;
};

void run_carried(int ranks, const std::function<void(Communicator&)>& body) {
  run_thread_ranks(ranks, milliseconds(30000), [&](Communicator& below) {
    const auto end = carried_communicator(below.rank(), below.size(), std::make_unique<OverThreads>(below));
    body(*end);
  });
}

class CarriedConformance : public ::testing::TestWithParam<conformance::Check> {};

TEST_P(CarriedConformance, HoldsForAnyNumberOfRanks) {
  for (int ranks : {1, 2, 3, 8}) {
    SCOPED_TRACE(ranks);
    EXPECT_NO_THROW(run_carried(ranks, [](Communicator& end) { GetParam().run(end, {cpu_device(), {}}); }));
  }
}

INSTANTIATE_TEST_SUITE_P(Carried, CarriedConformance, ::testing::ValuesIn(conformance::kChecks),
                         [](const auto& info) { return info.param.name; });

TEST(Carried, WaitsForATransferOnce) {
  run_carried(2, [](Communicator& end) {
    int sent = end.rank(), received = -1;
    const Message out{1 - end.rank(), &sent, sizeof(sent)}, in{1 - end.rank(), &received, sizeof(received)};
    const auto transfer = end.exchange({&out, 1}, {&in, 1}, {});
    transfer->arrive({});
    LONGSPAN_CHECK(received == 1 - end.rank(), "received {}", received);
    transfer->wait({});
  });
}

class Broken : public Carrier {
 public:
  explicit Broken(std::string& told) : told_(told) {}
  int64_t start(std::span<const Message>, std::span<const Message>) override {
    LONGSPAN_CHECK_INPUT(false, "the cable is cut");
    return 0;
  }
  void wait(int64_t) override {}
  void fail(const std::string& reason) override { told_ += reason; }

 private:
  std::string& told_;
};

TEST(Carried, FailureIsKeptAndToldOnce) {
  std::string told;
  const auto end = carried_communicator(0, 2, std::make_unique<Broken>(told));
  for (int i = 0; i < 2; ++i) {
    try {
      end->barrier();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kPeer);
      EXPECT_THAT(error.what(), HasSubstr("the cable is cut"));
    }
  }
  EXPECT_THAT(told, HasSubstr("the cable is cut"));
  EXPECT_EQ(told.find("cable"), told.rfind("cable"));
  EXPECT_THROW(carried_communicator(2, 2, std::make_unique<Broken>(told)), Error);
}

}  // namespace
}  // namespace longspan
