#include "comm/rendezvous.h"

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/error.h"
#include "base/printable.h"
#include "base/thread.h"
#include "comm/meeting.h"

namespace longspan {
namespace {

using std::chrono::milliseconds;

enum class Kind : char {
  kBroadcast = 'B',  // broadcast from rank 0
  kArrived = 'A',    // the sender is at a barrier
  kGo = 'G',         // all ranks have arrived
  kFailure = 'F',    // body: the reason
  kGoodbye = 'X',    // the connection closes normally
};

constexpr size_t kLongestReason = 4096;

void check_token(const Launch& launch) {
  LONGSPAN_CHECK_INPUT(
      !launch.token.empty(),
      "the ranks have no token by which they know one another: set LONGSPAN_JOB_TOKEN on every rank to one "
      "secret of {} or more characters, such as that of `openssl rand -hex 16`{}",
      kShortestToken,
      launch.launcher == "torchrun" ? "; or start torchrun with --standalone or --rdzv-id" : "");
}

class TcpRendezvous final : public Rendezvous {
 public:
  TcpRendezvous(const Launch& launch, milliseconds limit, milliseconds waits)
      : launch_(launch), limit_(limit) {
    if (launch.ranks == 1) return;
    check_token(launch);
    if (launch.rank == 0) {
      links_ = welcome_ranks(launch, limit);
    } else {
      links_.push_back(join_rank_0(launch, limit));
    }
    LONGSPAN_CHECK(pipe2(wake_, O_CLOEXEC) == 0, "cannot make a pipe: {}", std::strerror(errno));
    try {
      listener_ = start_thread([this] { listen(); });
      barrier();  // wait for all ranks
    } catch (...) {
      leave();
      throw;
    }
    limit_ = waits;
  }

  ~TcpRendezvous() override { leave(); }

  void fail(const std::string& reason) override {
    // Hold the lock so that peers receive the reason before this rank's goodbye.
    std::unique_lock lock(sending_);
    if (!note_failure(reason) || launch_.ranks == 1) return;
    send_to_all(Kind::kFailure, reason.substr(0, kLongestReason));
  }

  std::string failure() override {
    std::lock_guard lock(mutex_);
    return failure_;
  }

  std::string broadcast(const std::string& of_rank_0) override {
    if (launch_.rank == 0) {
      tell_all(Kind::kBroadcast, of_rank_0);
      return of_rank_0;
    }
    std::unique_lock lock(mutex_);
    await(lock, "rank 0 said nothing", [&] { return !broadcasts_.empty(); });
    std::string message = std::move(broadcasts_.front());
    broadcasts_.pop_front();
    return message;
  }

  bool left() override {
    std::lock_guard lock(mutex_);
    return left_;
  }

  void barrier() override {
    if (launch_.ranks == 1) return;
    const uint64_t mine = ++barriers_;
    if (launch_.rank == 0) {
      arrive();
    } else {
      tell_all(Kind::kArrived, "");
    }
    std::unique_lock lock(mutex_);
    await(lock, "not all ranks came to a barrier", [&] { return passed_ >= mine; });
  }

 private:
  void leave() {
    if (wake_[0] < 0) return;
    if (listener_.joinable()) {
      tell_all(Kind::kGoodbye, "");
      leaving_ = true;
      [[maybe_unused]] const ssize_t n = write(wake_[1], "x", 1);
      listener_.join();
    }
    close(std::exchange(wake_[0], -1));
    close(wake_[1]);
  }

  // Hears the other ranks (on rank 0) or rank 0 (on the others), until this rank leaves.
  void listen() {
    std::vector<size_t> talking;  // indices into links_
    for (size_t i = 0; i < links_.size(); ++i) {
      if (links_[i] != nullptr && hear(i, "")) talking.push_back(i);
    }
    while (!leaving_) {
      std::vector<pollfd> waiting{{wake_[0], POLLIN, 0}};
      for (size_t i : talking) waiting.push_back({links_[i]->socket.fd(), POLLIN, 0});
      if (poll(waiting.data(), waiting.size(), -1) < 0 || leaving_) continue;
      for (size_t place = talking.size(); place > 0; --place) {
        if (waiting[place].revents == 0) continue;
        std::string bytes;
        const Socket::Got got = links_[talking[place - 1]]->socket.receive_some(bytes);
        const bool more =
            got == Socket::Got::kEnd ? lost(talking[place - 1], "has died") : hear(talking[place - 1], bytes);
        if (!more) talking.erase(talking.begin() + static_cast<ptrdiff_t>(place) - 1);
      }
    }
  }

  // Takes bytes of a link and acts on its messages. False if it says no more.
  bool hear(size_t index, const std::string& bytes) {
    SealedChannel& channel = links_[index]->channel;
    channel.take(bytes);
    try {
      while (const std::optional<Frame> frame = channel.next()) {
        if (static_cast<Kind>(frame->kind) == Kind::kGoodbye) {
          note_left();
          return false;
        }
        launch_.rank == 0 ? hear_rank(*frame) : hear_rank_0(*frame);
      }
      return true;
    } catch (const Error& error) {
      return lost(index, fmt::format("cannot be heard any more: {}", error.what()));
    }
  }

  // Fails the group, since a rank is lost. False: it says no more.
  bool lost(size_t index, const std::string& how) {
    const std::string reason = fmt::format("rank {} {}", index, how);
    if (launch_.rank == 0) {
      fail(reason);
    } else {
      note_failure(reason);
    }
    note_left();
    return false;
  }

  void hear_rank(const Frame& frame) {
    if (static_cast<Kind>(frame.kind) == Kind::kArrived) arrive();
    if (static_cast<Kind>(frame.kind) == Kind::kFailure) fail(printable(frame.body));
  }

  void hear_rank_0(const Frame& frame) {
    if (static_cast<Kind>(frame.kind) == Kind::kFailure) note_failure(printable(frame.body));
    const std::lock_guard lock(mutex_);
    if (static_cast<Kind>(frame.kind) == Kind::kBroadcast) broadcasts_.push_back(frame.body);
    if (static_cast<Kind>(frame.kind) == Kind::kGo) ++passed_;
    changed_.notify_all();
  }

  void note_left() {
    if (launch_.rank == 0) return;
    const std::lock_guard lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }

  // On rank 0: counts one more rank at the barrier.
  void arrive() {
    {
      std::lock_guard lock(mutex_);
      if (++arrived_ < launch_.ranks) return;
      arrived_ = 0;
    }
    tell_all(Kind::kGo, "");
    std::lock_guard lock(mutex_);
    ++passed_;
    changed_.notify_all();
  }

  template <class Condition>
  void await(std::unique_lock<std::mutex>& lock, const char* what, Condition condition) {
    const bool in_time =
        changed_.wait_for(lock, limit_, [&] { return condition() || !failure_.empty() || left_; });
    if (in_time && failure_.empty() && condition()) return;
    if (failure_.empty()) {
      lock.unlock();
      fail(fmt::format("rank {}: {} {}", launch_.rank, what,
                       in_time ? "before rank 0 left" : fmt::format("within {} ms", limit_.count())));
      lock.lock();
    }
    throw Error(ErrorKind::kPeer, failure_, __FILE__, __LINE__, "failure.empty()");
  }

  bool note_failure(const std::string& reason) {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) return false;
    failure_ = reason.empty() ? "a rank failed" : reason;
    changed_.notify_all();
    return true;
  }

  // Ignores send errors: the listener detects dead ranks.
  void tell_all(Kind kind, const std::string& body) {
    if (launch_.ranks == 1) return;
    const std::lock_guard lock(sending_);
    send_to_all(kind, body);
  }

  void send_to_all(Kind kind, const std::string& body) {  // with `sending_` locked
    for (const auto& link : links_) {
      if (link != nullptr) link->socket.send_all(link->channel.seal(static_cast<char>(kind), body));
    }
  }

  const Launch launch_;
  milliseconds limit_;
  std::vector<std::unique_ptr<Link>> links_;  // by rank; on ranks other than 0 only that to rank 0
  int wake_[2] = {-1, -1};
  std::atomic<bool> leaving_{false};
  std::mutex sending_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::string failure_;
  std::deque<std::string> broadcasts_;
  uint64_t barriers_ = 0, passed_ = 0;  // barriers entered by this rank; barriers passed by all
  bool left_ = false;                   // rank 0 has left
  int arrived_ = 0;                     // ranks at the current barrier; rank 0 only
  std::jthread listener_;
};

}  // namespace

std::unique_ptr<Rendezvous> Rendezvous::meet(const Launch& launch, milliseconds limit) {
  return meet(launch, limit, limit);
}

std::unique_ptr<Rendezvous> Rendezvous::meet(const Launch& launch, milliseconds limit, milliseconds waits) {
  return std::make_unique<TcpRendezvous>(launch, limit, waits);
}

}  // namespace longspan
