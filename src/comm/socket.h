// TCP sockets between the ranks of a job.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longspan {

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

  bool send_all(std::string_view bytes) const;  // false if the connection has closed

  enum class Got : unsigned char { kBytes, kNothingYet, kEnd };
  Got receive_some(std::string& bytes) const;  // never waits; replaces `bytes`

 private:
  int fd_;
};

// Listens at each address of this machine that the host's name stands for, and at no other. Throws an input
// error if there is none, or if another program has the port.
std::vector<Socket> listen_at(const std::string& host, int port);

std::string address_of(const Socket& door);  // "10.0.0.3"

// The next connection to a listening socket, or a closed socket if there is none.
Socket accept_from(const Socket& door);

// Connects to the first address of the host that answers before the deadline. Returns a closed socket, and
// the reason in `problem`, if none does.
Socket connect_to(const std::string& host, int port, std::chrono::steady_clock::time_point deadline,
                  std::string& problem);

}  // namespace longspan
