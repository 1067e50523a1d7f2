// How the ranks of a job find one another: rank 0 listens, the others connect, and both sides prove that they
// know the job's token. Connections of strangers end here, and hold up no rank.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/launch.h"
#include "comm/sealed_channel.h"
#include "comm/socket.h"

namespace longspan {

// A connection to another rank.
struct Link {
  Socket socket;
  SealedChannel channel;
};

// The first message of a rank: who it is, and the size of its job.
struct Hello {
  int rank = 0, ranks = 0;
};
std::string to_text(const Hello& hello);
Hello hello_from_text(std::string_view text);  // throws an Error of kind kPeer

constexpr std::chrono::seconds kHandshakeLimit{10};  // for one connection
// Connections whose other side has not yet proved anything; the oldest gives way to a new one. Ranks that
// arrive together are not among those that give way.
constexpr size_t most_strangers(int ranks) {
  return 128 + static_cast<size_t>(ranks);
}

// On rank 0: the links to all other ranks, by rank; that of rank 0 is null. Throws an input error with the
// missing ranks after `limit`.
std::vector<std::unique_ptr<Link>> welcome_ranks(const Launch& launch, std::chrono::milliseconds limit);

// On another rank: the link to rank 0. Strangers at its address are passed over. Throws an input error with
// the reason after `limit`, or at once if rank 0 does not take this rank.
std::unique_ptr<Link> join_rank_0(const Launch& launch, std::chrono::milliseconds limit);

// The part of it that is spoken over one connection. Throws an Error of kind kPeer if the other side does not
// prove in time that it is rank 0 of this job.
std::unique_ptr<Link> greet_rank_0(Socket socket, const Launch& launch,
                                   std::chrono::steady_clock::time_point until);

}  // namespace longspan
