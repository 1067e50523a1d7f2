#include "comm/socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"

namespace longspan {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses addresses_of(const std::string& host, int port, std::string& problem) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int status = getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &list);
  if (status != 0) problem = gai_strerror(status);
  return {status == 0 ? list : nullptr, freeaddrinfo};
}

// A port at which a connection has ended can be listened at without a wait.
Socket new_socket(const addrinfo& address, int flags) {
  Socket socket(::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | flags, address.ai_protocol));
  const int yes = 1;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  return socket;
}

// Small messages leave at once, and the loss of a host is noticed within two minutes.
void prepare(const Socket& socket) {
  const int yes = 1, idle_s = 60, interval_s = 10, probes = 6;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  setsockopt(socket.fd(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

// Where nobody listens at a port yet, TCP may connect a socket to itself: it may choose that same port as the
// socket's own. Rank 0 could then not listen there.
bool connected_to_itself(const Socket& socket) {
  sockaddr_storage own{}, other{};
  socklen_t own_size = sizeof(own), other_size = sizeof(other);
  return getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&other), &other_size) == 0 &&
         own_size == other_size && std::memcmp(&own, &other, own_size) == 0;
}

// For connect(), whose own limit is minutes.
void limit_sending(const Socket& socket, std::chrono::microseconds limit) {
  const timeval time{limit.count() / 1000000, limit.count() % 1000000};
  setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

bool Socket::send_all(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

Socket::Got Socket::receive_some(std::string& bytes) const {
  bytes.resize(size_t{1} << 16);
  ssize_t n = 0;
  do {
    n = recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  const bool nothing_yet = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return n > 0 ? Got::kBytes : nothing_yet ? Got::kNothingYet : Got::kEnd;
}

namespace {

// Whether an address stands before in the list, as where /etc/hosts names a host on two lines.
bool repeats(const addrinfo* first, const addrinfo* a) {
  for (; first != a; first = first->ai_next)
    if (first->ai_addrlen == a->ai_addrlen && std::memcmp(first->ai_addr, a->ai_addr, a->ai_addrlen) == 0)
      return true;
  return false;
}

int64_t count_of(const addrinfo* a) {
  int64_t count = 0;
  for (; a != nullptr; a = a->ai_next) ++count;
  return count;
}

}  // namespace

std::vector<Socket> listen_at(const std::string& host, int port) {
  std::vector<Socket> doors;
  std::string problem = "it is no address of this machine";
  bool taken = false;
  const Addresses found = addresses_of(host, port, problem);
  for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next) {
    if (repeats(found.get(), a)) continue;
    Socket door = new_socket(*a, SOCK_NONBLOCK);
    if (!door.open()) continue;
    const int yes = 1;
    if (a->ai_family == AF_INET6) setsockopt(door.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes));
    if (bind(door.fd(), a->ai_addr, a->ai_addrlen) == 0 && listen(door.fd(), 1024) == 0) {
      doors.push_back(std::move(door));
      continue;
    }
    taken = taken || errno == EADDRINUSE;
    problem = std::strerror(errno);
  }
  LONGSPAN_CHECK_INPUT(
      !taken,
      "rank 0 cannot listen at {}:{}: another program has that port (another job?); choose another "
      "port with LONGSPAN_RENDEZVOUS=HOST:PORT",
      host, port);
  LONGSPAN_CHECK_INPUT(!doors.empty(),
                       "rank 0 cannot listen at {}:{}: {}; name an address of its machine with "
                       "LONGSPAN_RENDEZVOUS=HOST:PORT",
                       host, port, problem);
  return doors;
}

std::string address_of(const Socket& door) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  char text[NI_MAXHOST] = "";
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (getsockname(door.fd(), raw, &size) == 0)
    getnameinfo(raw, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

Socket accept_from(const Socket& door) {
  Socket guest(accept4(door.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (guest.open()) prepare(guest);
  return guest;
}

Socket connect_to(const std::string& host, int port, std::chrono::steady_clock::time_point deadline,
                  std::string& problem) {
  const Addresses found = addresses_of(host, port, problem);
  for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next) {
    Socket socket = new_socket(*a, 0);
    if (!socket.open()) continue;
    const auto left =
        std::chrono::duration_cast<std::chrono::microseconds>(deadline - std::chrono::steady_clock::now());
    // A share of the time, so that an address that does not answer leaves some to those after it.
    limit_sending(socket, std::max(left / count_of(a), std::chrono::microseconds(1000)));
    if (connect(socket.fd(), a->ai_addr, a->ai_addrlen) == 0) {
      if (connected_to_itself(socket)) {
        problem = "no answer";
        continue;
      }
      limit_sending(socket, std::chrono::microseconds(0));  // no limit
      prepare(socket);
      return socket;
    }
    problem = errno == EINPROGRESS ? "no answer" : std::strerror(errno);
  }
  return Socket();
}

}  // namespace longspan
