#include "comm/carried.h"

#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread.h"

namespace longspan {
namespace {

// The carrier, until it fails.
class Carried {
 public:
  explicit Carried(std::unique_ptr<Carrier> carrier) : carrier_(std::move(carrier)) {}

  template <class Act>
  auto act(const Act& act) {
    check();
    try {
      return act(*carrier_);
    } catch (...) {
      fail(reason_of_current_exception());
      check();
      throw;
    }
  }

  void fail(const std::string& reason) {
    {
      const std::scoped_lock lock(mutex_);
      if (!failure_.empty()) return;
      failure_ = reason;
    }
    carrier_->fail(reason);
  }

 private:
  void check() const {
    const std::scoped_lock lock(mutex_);
    if (!failure_.empty()) throw Error(ErrorKind::kPeer, failure_, __FILE__, __LINE__, "failure.empty()");
  }

  const std::unique_ptr<Carrier> carrier_;
  mutable std::mutex mutex_;
  std::string failure_;
};

class CarriedTransfer : public Transfer {
 public:
  CarriedTransfer(std::shared_ptr<Carried> carried, int64_t number)
      : carried_(std::move(carried)), number_(number) {}

  void wait(Stream) override {  // also after arrive()
    if (ended_) return;
    carried_->act([&](Carrier& carrier) {
      carrier.wait(number_);
      return true;
    });
    ended_ = true;
  }

 private:
  const std::shared_ptr<Carried> carried_;
  const int64_t number_;
  bool ended_ = false;
};

class NothingToWaitFor : public Transfer {
 public:
  void wait(Stream) override {}
};

class CarriedCommunicator : public Communicator {
 public:
  CarriedCommunicator(int rank, int size, std::unique_ptr<Carrier> carrier)
      : rank_(rank), size_(size), carried_(std::make_shared<Carried>(std::move(carrier))) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view name() const override { return "carried"; }
  void fail(const std::string& reason) override { carried_->fail(reason); }

  std::unique_ptr<Transfer> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                     Stream, Meanwhile, Channel) override {
    std::vector<Message> mine_out, mine_in;
    const std::vector<Message> out = to_others(sends, mine_out), in = to_others(receives, mine_in);
    LONGSPAN_CHECK(mine_out.size() == mine_in.size(), "rank {} sends itself {} messages and receives {}",
                   rank_, mine_out.size(), mine_in.size());
    for (size_t i = 0; i < mine_out.size(); ++i) {
      LONGSPAN_CHECK(mine_out[i].bytes == mine_in[i].bytes, "rank {} sends itself {} bytes and receives {}",
                     rank_, mine_out[i].bytes, mine_in[i].bytes);
      std::memcpy(mine_in[i].data, mine_out[i].data, mine_out[i].bytes);
    }
    if (out.empty() && in.empty()) return std::make_unique<NothingToWaitFor>();
    const int64_t number = carried_->act([&](Carrier& carrier) { return carrier.start(out, in); });
    return std::make_unique<CarriedTransfer>(carried_, number);
  }

 private:
  // The messages that have bytes; those with this rank itself go to `mine`.
  std::vector<Message> to_others(std::span<const Message> messages, std::vector<Message>& mine) const {
    std::vector<Message> others;
    for (const Message& message : messages) {
      LONGSPAN_CHECK(0 <= message.peer && message.peer < size_, "peer {} is not one of the {} ranks",
                     message.peer, size_);
      if (message.bytes > 0) (message.peer == rank_ ? mine : others).push_back(message);
    }
    return others;
  }

  const int rank_, size_;
  const std::shared_ptr<Carried> carried_;
};

}  // namespace

std::unique_ptr<Communicator> carried_communicator(int rank, int size, std::unique_ptr<Carrier> carrier) {
  LONGSPAN_CHECK_INPUT(0 <= rank && rank < size, "rank {} of {}: must be from 0 to {}", rank, size, size - 1);
  LONGSPAN_CHECK_INPUT(carrier != nullptr, "a group without something that carries its messages");
  return std::make_unique<CarriedCommunicator>(rank, size, std::move(carrier));
}

}  // namespace longspan
