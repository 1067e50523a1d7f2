#include "comm/threads.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/parallel.h"
#include "base/thread.h"
#include "comm/device_copies.h"

namespace longspan {
namespace {

// A message on offer: the receiver copies directly from the sender's buffer and then marks it as taken. On
// GPUs the host threads only agree on the copies; the streams wait for each other.
struct Offer {
  enum class State { kOpen, kCopying, kTaken, kWithdrawn };
  Message message;
  DeviceCopies::Mark ready;  // the point in the sender's stream when it made the offer
  DeviceCopies::Mark taken;  // the point after the receiver's copies
  State state = State::kOpen;
};

struct World {
  explicit World(int ranks, std::chrono::milliseconds limit) : ranks(ranks), limit(limit) {}

  const int ranks;
  const std::chrono::milliseconds limit;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Offer>>>
      offers;           // by (sender, receiver), in order
  std::string failure;  // set once the group has ended

  // The caller must hold the mutex.
  void check() const {
    if (!failure.empty()) throw Error(ErrorKind::kPeer, failure, __FILE__, __LINE__, "failure.empty()");
  }

  void fail(const std::string& reason) {
    std::lock_guard lock(mutex);
    if (failure.empty()) failure = reason;
    changed.notify_all();
  }
};

// Describes the copy from one end of a message to the other.
RowCopy copy_of(const Message& to, const Message& from) {
  const Message& rows = to.row_bytes > 0 ? to : from;
  RowCopy copy{to.data, from.data, 1, to.bytes, 0, 0};
  if (rows.row_bytes == 0 || rows.bytes == 0) return copy;
  LONGSPAN_CHECK((to.row_bytes == 0 || from.row_bytes == 0 || to.row_bytes == from.row_bytes) &&
                     rows.bytes % rows.row_bytes == 0,
                 "rows of {} and of {} bytes in a message of {}", to.row_bytes, from.row_bytes, rows.bytes);
  copy.row_bytes = rows.row_bytes;
  copy.rows = rows.bytes / rows.row_bytes;
  copy.to_stride = to.row_bytes > 0 ? to.stride : rows.row_bytes;
  copy.from_stride = from.row_bytes > 0 ? from.stride : rows.row_bytes;
  return copy;
}

void copy_on_host(const RowCopy& copy) {
  for (size_t row = 0; row < copy.rows && copy.row_bytes > 0; ++row) {
    std::memcpy(static_cast<char*>(copy.to) + row * copy.to_stride,
                static_cast<const char*>(copy.from) + row * copy.from_stride, copy.row_bytes);
  }
}

class ThreadTransfer : public Transfer {
 public:
  // copies: this rank's, for messages in GPU memory; posted: the point in its stream now.
  ThreadTransfer(std::shared_ptr<World> world, int rank, std::vector<std::shared_ptr<Offer>> sends,
                 std::vector<Message> receives, DeviceCopies* copies, DeviceCopies::Mark posted,
                 Meanwhile meanwhile, Channel channel)
      : world_(std::move(world)),
        rank_(rank),
        sends_(std::move(sends)),
        receives_(std::move(receives)),
        copies_(copies),
        posted_(std::move(posted)),
        meanwhile_(meanwhile),
        channel_(channel) {}

  // The sender may free its buffers once this returns, even if the group has failed.
  ~ThreadTransfer() override {
    std::unique_lock lock(world_->mutex);
    for (const auto& send : sends_) {
      world_->changed.wait(lock, [&] { return send->state != Offer::State::kCopying; });
      if (send->state == Offer::State::kOpen) send->state = Offer::State::kWithdrawn;
    }
  }

  void arrive(Stream stream) override {
    const auto deadline = std::chrono::steady_clock::now() + world_->limit;
    if (!receives_.empty()) {
      if (copies_ == nullptr) {
        for (const Message& receive : receives_) {
          const Accepted accepted{*this, {accept(receive, deadline)}};
          copy_on_host(copy_of(receive, accepted.offers.front()->message));
        }
      } else if (meanwhile_ == Meanwhile::kWaits && copies_->can_pull()) {
        pull(stream, deadline);
      } else {
        copy(stream, deadline);
      }
    }
    receives_.clear();
  }

  void wait(Stream stream) override {
    arrive(stream);
    const auto deadline = std::chrono::steady_clock::now() + world_->limit;
    for (const auto& send : sends_) {
      std::unique_lock lock(world_->mutex);
      await(lock, deadline, send->message.peer, "take a message",
            [&] { return send->state == Offer::State::kTaken; });
    }
    std::set<DeviceCopies::Mark> taken;
    for (const auto& send : sends_) {
      if (copies_ != nullptr && taken.insert(send->taken).second) copies_->wait(stream, send->taken);
    }
    sends_.clear();
  }

 private:
  using Deadline = std::chrono::steady_clock::time_point;
  using Offers = std::vector<std::shared_ptr<Offer>>;

  template <class Condition>
  void await(std::unique_lock<std::mutex>& lock, Deadline deadline, int peer, const char* what,
             Condition condition) {
    const bool in_time =
        world_->changed.wait_until(lock, deadline, [&] { return condition() || !world_->failure.empty(); });
    if (in_time && world_->failure.empty()) return;
    if (!in_time) {
      world_->failure =
          fmt::format("rank {} did not {} of rank {} within {} ms", peer, what, rank_, world_->limit.count());
      world_->changed.notify_all();
    }
    world_->check();
  }

  // The next offer from the message's peer; its sender waits until it has been taken.
  std::shared_ptr<Offer> accept(const Message& receive, Deadline deadline) {
    std::unique_lock lock(world_->mutex);
    auto& queue = world_->offers[{receive.peer, rank_}];
    await(lock, deadline, receive.peer, "answer a receive", [&] { return !queue.empty(); });
    std::shared_ptr<Offer> offer = queue.front();
    queue.pop_front();
    if (offer->state == Offer::State::kWithdrawn) {
      world_->failure = fmt::format("rank {} withdrew a message to rank {}", receive.peer, rank_);
    } else if (offer->message.bytes != receive.bytes) {
      world_->failure = fmt::format("rank {} sent {} bytes where rank {} expects {}", receive.peer,
                                    offer->message.bytes, rank_, receive.bytes);
    }
    if (!world_->failure.empty()) {
      world_->changed.notify_all();
      world_->check();
    }
    offer->state = Offer::State::kCopying;
    return offer;
  }

  void set_taken(std::span<const std::shared_ptr<Offer>> offers) {
    std::lock_guard lock(world_->mutex);
    for (const auto& offer : offers) offer->state = Offer::State::kTaken;
    world_->changed.notify_all();
  }

  // Releases the senders, also if an exception ends the transfer.
  struct Accepted {
    ThreadTransfer& transfer;
    Offers offers;
    ~Accepted() { transfer.set_taken(offers); }
  };

  // The copies of these messages, which the stream may make once it has waited for their senders.
  std::vector<RowCopy> accept_in(Stream stream, std::span<const Message> receives, Deadline deadline,
                                 Accepted& accepted) {
    std::vector<RowCopy> rows;
    std::set<DeviceCopies::Mark> ready;
    for (const Message& receive : receives) {
      accepted.offers.push_back(accept(receive, deadline));
      const Offer& offer = *accepted.offers.back();
      if (ready.insert(offer.ready).second) copies_->wait(stream, offer.ready);
      rows.push_back(copy_of(receive, offer.message));
    }
    return rows;
  }

  // The messages that are copied with one wait and one mark. Operands: all of a peer, since `balanced` sends
  // dozens, and a copy with its own wait and mark costs the host up to 28 us, else 12. Results: each alone,
  // since backward kernels beside grouped copies were slower (docs/lab/2026-11-context-parallel.md).
  std::vector<std::vector<Message>> groups() const {
    std::vector<std::vector<Message>> groups;
    for (const Message& receive : receives_) {
      const auto known = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
        return channel_ == Channel::kInputs && group.front().peer == receive.peer;
      });
      (known == groups.end() ? groups.emplace_back() : *known).push_back(receive);
    }
    return groups;
  }

  // Copies concurrently with the stream's other work.
  void copy(Stream stream, Deadline deadline) {
    std::map<void*, DeviceCopies::Mark> last;  // by stream
    for (const std::vector<Message>& group : groups()) {
      const int peer = group.front().peer;
      const Stream copying = copies_->stream_for(peer);
      if (!last.contains(copying.handle)) copies_->wait(copying, posted_);
      Accepted accepted{*this, {}};
      for (const RowCopy& rows : accept_in(copying, group, deadline, accepted)) copies_->copy(rows, peer);
      const DeviceCopies::Mark taken = last[copying.handle] = copies_->mark(copying);
      for (const auto& offer : accepted.offers) offer->taken = taken;
    }
    for (const auto& [handle, mark] : last) copies_->wait(stream, mark);
  }

  // Copies within the stream itself. Each rank starts with a different peer, so that each peer is read by one
  // rank at a time, and ends with itself.
  void pull(Stream stream, Deadline deadline) {
    const auto distance = [&](const Message& message) {
      return (message.peer - rank_ + world_->ranks - 1) % world_->ranks;
    };
    std::stable_sort(receives_.begin(), receives_.end(),
                     [&](const Message& a, const Message& b) { return distance(a) < distance(b); });
    Accepted accepted{*this, {}};
    copies_->pull(accept_in(stream, receives_, deadline, accepted), stream);
    const DeviceCopies::Mark taken = copies_->mark(stream);
    for (const auto& offer : accepted.offers) offer->taken = taken;
  }

  std::shared_ptr<World> world_;
  const int rank_;
  Offers sends_;
  std::vector<Message> receives_;
  DeviceCopies* const copies_;
  const DeviceCopies::Mark posted_;
  const Meanwhile meanwhile_;
  const Channel channel_;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return world_->ranks; }
  std::string_view name() const override { return "threads"; }
  void fail(const std::string& reason) override { world_->fail(reason); }

  bool takes_rows() const override { return true; }

  std::unique_ptr<Transfer> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                     Stream stream, Meanwhile meanwhile, Channel channel) override {
    for (auto messages : {sends, receives}) {
      for (const Message& message : messages) {
        LONGSPAN_CHECK(0 <= message.peer && message.peer < size(), "peer {} is not one of the {} ranks",
                       message.peer, size());
      }
    }
    const bool on_device = stream.handle != nullptr;
    if (on_device && copies_ == nullptr) copies_ = DeviceCopies::make(rank_);
    const DeviceCopies::Mark posted = on_device ? copies_->mark(stream) : nullptr;
    std::vector<std::shared_ptr<Offer>> offers;
    std::lock_guard lock(world_->mutex);
    world_->check();
    for (const Message& send : sends) {
      offers.push_back(std::make_shared<Offer>(Offer{send, posted, nullptr}));
      world_->offers[{rank_, send.peer}].push_back(offers.back());
    }
    world_->changed.notify_all();
    return std::make_unique<ThreadTransfer>(world_, rank_, std::move(offers),
                                            std::vector<Message>(receives.begin(), receives.end()),
                                            on_device ? copies_.get() : nullptr, posted, meanwhile, channel);
  }

  // The wait has a time limit because it may depend on the streams of other ranks.
  void synchronize(Stream stream) override {
    if (stream.handle == nullptr) return;
    if (copies_ == nullptr) copies_ = DeviceCopies::make(rank_);
    const auto deadline = std::chrono::steady_clock::now() + world_->limit;
    while (!copies_->done(stream)) {
      {
        std::lock_guard lock(world_->mutex);
        world_->check();
      }
      if (std::chrono::steady_clock::now() > deadline)
        world_->fail(
            fmt::format("the device of rank {} was not done within {} ms", rank_, world_->limit.count()));
      std::this_thread::yield();
    }
  }

 private:
  std::shared_ptr<World> world_;
  const int rank_;
  std::unique_ptr<DeviceCopies> copies_;  // made for the first message in GPU memory
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> thread_communicators(int ranks, std::chrono::milliseconds limit) {
  constexpr int kMost = 4096;  // threads
  LONGSPAN_CHECK_INPUT(ranks >= 1 && ranks <= kMost, "{} ranks: must be from 1 to {}", ranks, kMost);
  auto world = std::make_shared<World>(ranks, limit);
  std::vector<std::unique_ptr<Communicator>> ends;
  ends.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) ends.push_back(std::make_unique<ThreadCommunicator>(world, rank));
  return ends;
}

void run_on_threads(std::span<Communicator* const> ends, const std::function<void(Communicator&)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto keep = [&] {
    std::lock_guard lock(mutex);
    if (!first) first = std::current_exception();
  };
  const auto run = [&](Communicator& end) {
    const AloneScope alone;  // ranks do not share a thread pool
    try {
      body(end);
    } catch (...) {
      keep();
      fail_group(end);
    }
  };
  std::vector<std::jthread> threads;
  threads.reserve(ends.size());
  for (Communicator* const end : ends) {
    try {
      threads.push_back(start_thread([&run, end] { run(*end); }));
    } catch (...) {
      keep();
      fail_group(*end);  // the ranks that run need not wait for it
      break;
    }
  }
  threads.clear();  // joins them
  if (first) std::rethrow_exception(first);
}

void run_thread_ranks(int ranks, std::chrono::milliseconds limit,
                      const std::function<void(Communicator&)>& body) {
  const auto ends = thread_communicators(ranks, limit);
  std::vector<Communicator*> pointers;
  pointers.reserve(ends.size());
  for (const auto& end : ends) pointers.push_back(end.get());
  run_on_threads(pointers, body);
}

}  // namespace longspan
