#include "comm/meeting.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <deque>
#include <optional>
#include <thread>

#include <poll.h>

#include "base/error.h"
#include "base/printable.h"

namespace longspan {
namespace {

using std::chrono::milliseconds;
using MeetingClock = std::chrono::steady_clock;

constexpr char kHello = 'H', kWelcome = 'W', kRefusal = 'R';

[[noreturn]] void give_up(const std::string& reason) {
  throw Error(ErrorKind::kPeer, reason, __FILE__, __LINE__, "handshake");
}

int milliseconds_until(MeetingClock::time_point time) {
  const auto left = std::chrono::ceil<milliseconds>(time - MeetingClock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

// Rank 0's door: takes in the ranks of the job, several connections at a time.
class Door {
 public:
  Door(const Launch& launch, milliseconds limit)
      : launch_(launch),
        limit_(limit),
        deadline_(MeetingClock::now() + limit),
        doors_(listen_at(launch.host, launch.port)),
        links_(static_cast<size_t>(launch.ranks)) {}

  std::vector<std::unique_ptr<Link>> welcome_all() {
    for (int missing = launch_.ranks - 1; missing > 0;) {
      if (milliseconds_until(deadline_) == 0) fail_with_missing_ranks();
      const std::vector<pollfd> waiting = wait();
      size_t place = doors_.size();
      for (auto guest = guests_.begin(); guest != guests_.end(); ++place) {
        if (waiting[place].revents != 0) {
          missing -= hear(*guest) ? 1 : 0;
        } else if (milliseconds_until(guest->until) == 0) {
          turn_away(*guest, "it said nothing");
        }
        guest = guest->link == nullptr ? guests_.erase(guest) : guest + 1;
      }
      for (size_t i = 0; i < doors_.size(); ++i) {
        if (waiting[i].revents != 0) admit(doors_[i]);
      }
    }
    return std::move(links_);
  }

 private:
  struct Guest {
    std::unique_ptr<Link> link;
    MeetingClock::time_point until;
  };

  std::vector<pollfd> wait() const {
    std::vector<pollfd> waiting;
    for (const Socket& door : doors_) waiting.push_back({door.fd(), POLLIN, 0});
    for (const Guest& guest : guests_) waiting.push_back({guest.link->socket.fd(), POLLIN, 0});
    const auto next = guests_.empty() ? deadline_ : std::min(deadline_, guests_.front().until);
    if (poll(waiting.data(), waiting.size(), milliseconds_until(next)) < 0) {
      for (pollfd& one : waiting) one.revents = 0;  // a signal
    }
    return waiting;
  }

  void admit(const Socket& door) {
    Socket socket = accept_from(door);
    if (!socket.open()) {
      if (errno == EMFILE || errno == ENFILE) turn_away_oldest();
      return;
    }
    if (guests_.size() == most_strangers(launch_.ranks)) turn_away_oldest();
    auto link = std::make_unique<Link>(
        Link{std::move(socket), SealedChannel(SealedChannel::Side::kRank0, launch_.token)});
    // This short text fits into the buffer of a new connection: it does not wait.
    if (link->socket.send_all(link->channel.greeting()))
      guests_.push_back({std::move(link), MeetingClock::now() + kHandshakeLimit});
  }

  void turn_away(Guest& guest, const std::string& reason) {
    guest.link.reset();
    ++turned_away_;
    last_reason_ = reason;
  }

  void turn_away_oldest() {
    if (guests_.empty()) return;
    turn_away(guests_.front(), "it said nothing");
    guests_.pop_front();
  }

  // Hears what a guest says, and turns it away if that is wrong. True if it is a rank, which is now here.
  bool hear(Guest& guest) {
    try {
      std::string bytes;
      const Socket::Got got = guest.link->socket.receive_some(bytes);
      if (got == Socket::Got::kEnd) give_up("it closed the connection before it said its rank");
      guest.link->channel.take(bytes);
      const std::optional<Frame> frame = guest.link->channel.next();
      if (!frame) return false;
      if (frame->kind != kHello) give_up("its first message does not say its rank");
      const Hello hello = hello_from_text(frame->body);
      if (const std::string reason = why_not(hello); !reason.empty()) {
        guest.link->socket.send_all(guest.link->channel.seal(kRefusal, reason));
        give_up(reason);
      }
      guest.link->socket.send_all(guest.link->channel.seal(kWelcome, ""));
      links_[static_cast<size_t>(hello.rank)] = std::move(guest.link);
      return true;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kPeer) throw;
      turn_away(guest, error.what());
      return false;
    }
  }

  std::string why_not(const Hello& hello) const {
    if (hello.ranks != launch_.ranks)
      return fmt::format("a rank of {} came to a job of {}: two jobs at one port?", hello.ranks,
                         launch_.ranks);
    if (hello.rank < 1 || hello.rank >= launch_.ranks)
      return fmt::format("a rank {} came, where ranks 1 to {} meet", hello.rank, launch_.ranks - 1);
    if (links_[static_cast<size_t>(hello.rank)] != nullptr)
      return fmt::format("a second rank {} came: two jobs at one port?", hello.rank);
    return "";
  }

  [[noreturn]] void fail_with_missing_ranks() const {
    std::string names, addresses, others;
    for (size_t rank = 1; rank < links_.size(); ++rank) {
      if (links_[rank] == nullptr) names += fmt::format("{}{}", names.empty() ? "" : ", ", rank);
    }
    for (const Socket& door : doors_) addresses += (addresses.empty() ? "" : ", ") + address_of(door);
    if (turned_away_ > 0)
      others = fmt::format("; {} other connections were turned away, the last because {}", turned_away_,
                           last_reason_);
    throw Error(ErrorKind::kInput,
                fmt::format("of {} ranks, these did not come to {}:{} ({}) within {} ms: {}{}", launch_.ranks,
                            launch_.host, launch_.port, addresses, limit_.count(), names, others),
                __FILE__, __LINE__, "all ranks came");
  }

  const Launch& launch_;
  const milliseconds limit_;
  const MeetingClock::time_point deadline_;
  const std::vector<Socket> doors_;
  std::vector<std::unique_ptr<Link>> links_;  // by rank
  std::deque<Guest> guests_;                  // the oldest first
  int64_t turned_away_ = 0;
  std::string last_reason_;
};

}  // namespace

std::string to_text(const Hello& hello) {
  return fmt::format("{} {}", hello.rank, hello.ranks);
}

Hello hello_from_text(std::string_view text) {
  Hello hello;
  const char* const end = text.data() + text.size();
  const auto rank = std::from_chars(text.data(), end, hello.rank);
  const bool more = rank.ec == std::errc() && rank.ptr != end && *rank.ptr == ' ';
  const auto ranks = more ? std::from_chars(rank.ptr + 1, end, hello.ranks) : rank;
  if (!more || ranks.ec != std::errc() || ranks.ptr != end)
    give_up("its first message does not say its rank");
  return hello;
}

std::vector<std::unique_ptr<Link>> welcome_ranks(const Launch& launch, milliseconds limit) {
  return Door(launch, limit).welcome_all();
}

std::unique_ptr<Link> greet_rank_0(Socket socket, const Launch& launch, MeetingClock::time_point until) {
  auto link = std::make_unique<Link>(
      Link{std::move(socket), SealedChannel(SealedChannel::Side::kOtherRank, launch.token)});
  link->socket.send_all(link->channel.greeting());
  for (bool introduced = false;;) {
    if (const std::optional<Frame> answer = link->channel.next()) {
      if (answer->kind == kWelcome) return link;
      LONGSPAN_CHECK_INPUT(answer->kind != kRefusal, "rank 0 at {}:{} refused rank {}: {}", launch.host,
                           launch.port, launch.rank, printable(answer->body));
      give_up("its first message is no answer");
    }
    if (link->channel.greeted() && !introduced) {
      link->socket.send_all(link->channel.seal(kHello, to_text({launch.rank, launch.ranks})));
      introduced = true;
    }
    pollfd waiting{link->socket.fd(), POLLIN, 0};
    if (poll(&waiting, 1, milliseconds_until(until)) == 0) give_up("it did not answer");
    std::string bytes;
    if (link->socket.receive_some(bytes) == Socket::Got::kEnd)
      give_up(
          "it closed the connection: another job at this port, or another LONGSPAN_JOB_TOKEN on its host?");
    link->channel.take(bytes);
  }
}

std::unique_ptr<Link> join_rank_0(const Launch& launch, milliseconds limit) {
  const auto deadline = MeetingClock::now() + limit;
  std::string problem = "no answer";
  for (;;) {
    const auto until = std::min(deadline, MeetingClock::now() + kHandshakeLimit);
    milliseconds pause(20);  // rank 0 may not have started yet
    if (Socket socket = connect_to(launch.host, launch.port, until, problem); socket.open()) {
      try {
        return greet_rank_0(std::move(socket), launch, until);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kPeer) throw;
        // A stranger, which rank 0 may follow. An attempt that the limit cut short says less than the last.
        if (milliseconds_until(deadline) > 0) problem = error.what();
        pause = milliseconds(200);
      }
    }
    LONGSPAN_CHECK_INPUT(milliseconds_until(deadline) > 0, "rank 0 was not found at {}:{} within {} ms: {}",
                         launch.host, launch.port, limit.count(), problem);
    std::this_thread::sleep_for(std::min(pause, milliseconds(milliseconds_until(deadline))));
  }
}

}  // namespace longspan
