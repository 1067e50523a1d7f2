// Connections between ranks that start at different times.
#include "comm/socket.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace longspan {
namespace {

// A port that the system gives to outgoing connections, at which nobody listens: Linux prefers even ones for
// those, and odd ones where a listener leaves the choice to it.
int port_of_outgoing_connections() {
  const std::vector<Socket> doors = listen_at("127.0.0.1", 0);
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  EXPECT_EQ(getsockname(doors[0].fd(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int port = ntohs(address.sin_port) & ~1;
  if (port != ntohs(address.sin_port)) listen_at("127.0.0.1", port);  // throws if another program has it
  return port;
}

TEST(Socket, NeverConnectsToItself) {
  const int port = port_of_outgoing_connections();
  // The system chooses a connection's own port at random, so it takes up to some 200,000 attempts.
  constexpr int kAttempts = 1000000;
  std::string problem;
  int attempts = 0;
  while (problem != "no answer" && ++attempts <= kAttempts) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    ASSERT_FALSE(connect_to("127.0.0.1", port, deadline, problem).open()) << "after " << attempts;
  }
  if (attempts > kAttempts) GTEST_SKIP() << "this system did not connect a socket to itself";
  EXPECT_FALSE(listen_at("127.0.0.1", port).empty());
}

}  // namespace
}  // namespace longspan
