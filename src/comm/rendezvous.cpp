#include "comm/rendezvous.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"

namespace longspan {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A message is a kind, a length, and that many bytes.
enum class Kind : char {
  kHello = 'H',      // the sender's rank
  kBroadcast = 'B',  // broadcast from rank 0
  kArrived = 'A',    // the sender is at a barrier
  kGo = 'G',         // all ranks have arrived
  kFailure = 'F',    // body: the reason
  kGoodbye = 'X',    // the connection closes normally
};
constexpr size_t kHeader = 5, kLongest = 1 << 20;

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_;
};

bool send_all(int fd, Kind kind, const std::string& body) {
  std::string text(kHeader, static_cast<char>(kind));
  const auto length = static_cast<uint32_t>(body.size());
  std::memcpy(text.data() + 1, &length, sizeof(length));
  text += body;
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

bool receive_exactly(int fd, char* data, size_t bytes) {
  for (size_t got = 0; got < bytes;) {
    const ssize_t n = recv(fd, data + got, bytes - got, 0);
    if (n <= 0) return false;
    got += static_cast<size_t>(n);
  }
  return true;
}

struct Received {
  Kind kind;
  std::string body;
};

// Returns nothing if the connection has closed or the data is not a message.
std::optional<Received> receive(int fd) {
  char header[kHeader];
  if (!receive_exactly(fd, header, kHeader)) return std::nullopt;
  uint32_t length = 0;
  std::memcpy(&length, header + 1, sizeof(length));
  if (length > kLongest) return std::nullopt;
  Received message{static_cast<Kind>(header[0]), std::string(length, ' ')};
  if (!receive_exactly(fd, message.body.data(), length)) return std::nullopt;
  return message;
}

struct Addresses {
  addrinfo* list = nullptr;
  ~Addresses() {
    if (list != nullptr) freeaddrinfo(list);
  }
};

Socket listen_at(int port) {
  Socket socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool v6 = socket.open();
  if (!v6) socket = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1, no = 0;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  int status = -1;
  if (v6) {
    setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(static_cast<uint16_t>(port));
    status = bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    status = bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  }
  LONGSPAN_CHECK_INPUT(
      status == 0 && listen(socket.fd(), 1024) == 0,
      "rank 0 cannot listen at port {}: {}; choose another with LONGSPAN_RENDEZVOUS=HOST:PORT", port,
      std::strerror(errno));
  return socket;
}

void prepare(const Socket& socket) {
  const int yes = 1, idle_s = 60, interval_s = 10, probes = 6;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  setsockopt(socket.fd(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

Socket connect_to(const std::string& host, int port, Clock::time_point deadline) {
  std::string problem = "no answer";
  do {
    Addresses found;
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    const int status = getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &found.list);
    if (status != 0) problem = gai_strerror(status);
    for (addrinfo* a = found.list; a != nullptr; a = a->ai_next) {
      Socket socket(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
      if (!socket.open()) continue;
      if (connect(socket.fd(), a->ai_addr, a->ai_addrlen) == 0) {
        prepare(socket);
        return socket;
      }
      problem = std::strerror(errno);
    }
    std::this_thread::sleep_for(milliseconds(20));  // rank 0 may not have started yet
  } while (Clock::now() < deadline);
  LONGSPAN_CHECK_INPUT(false, "rank 0 was not found at {}:{}: {}", host, port, problem);
  return Socket();
}

class TcpRendezvous : public Rendezvous {
 public:
  TcpRendezvous(const Launch& launch, milliseconds limit, milliseconds waits)
      : launch_(launch), limit_(limit) {
    const auto deadline = Clock::now() + limit;
    if (launch.rank == 0) {
      peers_.resize(static_cast<size_t>(launch.ranks));
      if (launch.ranks > 1) welcome_all(deadline);
    } else {
      server_ = connect_to(launch.host, launch.port, deadline);
      LONGSPAN_CHECK_INPUT(send_all(server_.fd(), Kind::kHello, fmt::format("{}", launch.rank)),
                           "rank 0 at {}:{} closed the connection", launch.host, launch.port);
    }
    if (launch.ranks == 1) return;
    LONGSPAN_CHECK(pipe2(wake_, O_CLOEXEC) == 0, "cannot make a pipe: {}", std::strerror(errno));
    listener_ = std::thread([this] { launch_.rank == 0 ? serve() : attend(); });
    try {
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
    for (int fd : ears()) send_all(fd, Kind::kFailure, reason.substr(0, kLongest / 2));
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
    if (!listener_.joinable()) return;
    tell_all(Kind::kGoodbye, "");
    leaving_ = true;
    [[maybe_unused]] const ssize_t n = write(wake_[1], "x", 1);
    listener_.join();
    close(wake_[0]);
    close(wake_[1]);
  }

  void welcome_all(Clock::time_point deadline) {
    const Socket door = listen_at(launch_.port);
    size_t missing = peers_.size() - 1;
    while (missing > 0) {
      const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
      pollfd waiting{door.fd(), POLLIN, 0};
      if (left <= 0 || poll(&waiting, 1, static_cast<int>(left)) <= 0) {
        std::string names;
        for (size_t rank = 1; rank < peers_.size(); ++rank) {
          if (!peers_[rank].open()) names += fmt::format("{}{}", names.empty() ? "" : ", ", rank);
        }
        LONGSPAN_CHECK_INPUT(false, "of {} ranks, these did not come to port {} within {} ms: {}",
                             peers_.size(), launch_.port, limit_.count(), names);
      }
      Socket guest(accept4(door.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!guest.open()) continue;
      // A foreign connection must not block the ranks.
      const timeval second{1, 0}, forever{0, 0};
      setsockopt(guest.fd(), SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second));
      const auto hello = receive(guest.fd());
      if (!hello || hello->kind != Kind::kHello) continue;
      setsockopt(guest.fd(), SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof(forever));
      prepare(guest);
      const auto rank = static_cast<size_t>(std::atoi(hello->body.c_str()));
      LONGSPAN_CHECK_INPUT(
          0 < rank && rank < peers_.size() && !peers_[rank].open(),
          "a rank {} came to port {}, where ranks 1 to {} meet, each once: two jobs at one port?",
          hello->body, launch_.port, peers_.size() - 1);
      peers_[rank] = std::move(guest);
      --missing;
    }
  }

  // On rank 0: listens to all other ranks.
  void serve() {
    std::vector<bool> gone(peers_.size());
    while (!leaving_) {
      std::vector<pollfd> waiting{{wake_[0], POLLIN, 0}};
      std::vector<size_t> who{0};
      for (size_t rank = 1; rank < peers_.size(); ++rank) {
        if (gone[rank]) continue;
        waiting.push_back({peers_[rank].fd(), POLLIN, 0});
        who.push_back(rank);
      }
      if (poll(waiting.data(), waiting.size(), -1) < 0 || leaving_) continue;
      for (size_t i = 1; i < waiting.size(); ++i) {
        if (waiting[i].revents == 0) continue;
        const auto message = receive(peers_[who[i]].fd());
        if (!message || message->kind == Kind::kGoodbye) {
          gone[who[i]] = true;
          if (!message) fail(fmt::format("rank {} has died", who[i]));
        } else if (message->kind == Kind::kArrived) {
          arrive();
        } else if (message->kind == Kind::kFailure) {
          fail(message->body);
        }
      }
    }
  }

  // On the other ranks: listens to rank 0.
  void attend() {
    while (!leaving_) {
      pollfd waiting[2] = {{wake_[0], POLLIN, 0}, {server_.fd(), POLLIN, 0}};
      if (poll(waiting, 2, -1) < 0 || waiting[1].revents == 0) continue;
      const auto message = receive(server_.fd());
      if (!message) {
        note_failure("rank 0 has died");
        std::lock_guard lock(mutex_);
        left_ = true;
        return;
      }
      std::lock_guard lock(mutex_);
      if (message->kind == Kind::kGoodbye) {
        left_ = true;
        changed_.notify_all();
        return;
      }
      if (message->kind == Kind::kFailure && failure_.empty()) failure_ = message->body;
      if (message->kind == Kind::kBroadcast) broadcasts_.push_back(message->body);
      if (message->kind == Kind::kGo) ++passed_;
      changed_.notify_all();
    }
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

  // The sockets that this rank sends to.
  std::vector<int> ears() const {
    if (launch_.rank != 0) return {server_.fd()};
    std::vector<int> all;
    for (const Socket& peer : peers_) {
      if (peer.open()) all.push_back(peer.fd());
    }
    return all;
  }

  // Ignores send errors: the listener detects dead peers.
  void tell_all(Kind kind, const std::string& body) {
    if (launch_.ranks == 1) return;
    std::lock_guard lock(sending_);
    for (int fd : ears()) send_all(fd, kind, body);
  }

  const Launch launch_;
  milliseconds limit_;
  std::vector<Socket> peers_;  // on rank 0, by rank
  Socket server_;              // on the other ranks
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
  std::thread listener_;
};

}  // namespace

std::unique_ptr<Rendezvous> Rendezvous::meet(const Launch& launch, milliseconds limit) {
  return meet(launch, limit, limit);
}

std::unique_ptr<Rendezvous> Rendezvous::meet(const Launch& launch, milliseconds limit, milliseconds waits) {
  return std::make_unique<TcpRendezvous>(launch, limit, waits);
}

}  // namespace longspan
