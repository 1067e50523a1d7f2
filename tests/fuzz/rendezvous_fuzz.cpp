// What the ranks of a job read from a connection: greetings, lengths, sealed messages, the first message of a
// rank. The first byte chooses between a stranger, a member whose bytes are changed on the way, and a member
// who says anything.
#include <algorithm>

#include "comm/meeting.h"
#include "reads_cleanly.h"

namespace longspan {
namespace {

using Side = SealedChannel::Side;

// Every refusal is of kind kPeer, and its text is ours: one line.
template <class Read>
bool refuses(Read&& read) {
  try {
    read();
    return false;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kPeer && std::strchr(error.what(), '\n') == nullptr) return true;
    std::fprintf(stderr, "not a refusal of one line: %s\n", error.what());
    std::abort();
  }
}

void stranger(std::string_view bytes) {
  SealedChannel rank_0(Side::kRank0, "token");
  const std::string greeting = SealedChannel(Side::kOtherRank, "token").greeting();
  const bool greets = !bytes.empty() && bytes.front() % 2 == 0;
  refuses([&] {
    if (greets) rank_0.take(greeting);
    while (!bytes.empty()) {
      const size_t piece = 1 + static_cast<unsigned char>(bytes.front()) % 64;
      rank_0.take(bytes.substr(0, piece));
      bytes.remove_prefix(std::min(piece, bytes.size()));
      while (rank_0.next()) {
      }
    }
  });
  LONGSPAN_CHECK(!rank_0.proven(), "a stranger was taken for a rank");
}

void member(std::string_view bytes, bool changed) {
  SealedChannel rank_0(Side::kRank0, "token"), other(Side::kOtherRank, "token");
  other.take(rank_0.greeting());
  LONGSPAN_CHECK(!other.next(), "a greeting is no message");
  const std::string body(bytes.substr(0, SealedChannel::kLongestFirst));
  std::string message = other.greeting();
  message += other.seal('H', body);
  if (changed && bytes.size() >= 3) {
    const auto octet = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
    const size_t place = (octet(0) + 256u * octet(1)) % message.size();
    const char mask = static_cast<char>(octet(2) == 0 ? 1 : octet(2));
    message[place] = static_cast<char>(message[place] ^ mask);
  } else {
    changed = false;
  }
  std::optional<Frame> frame;
  const bool refused = refuses([&] {
    rank_0.take(message);
    frame = rank_0.next();
  });
  LONGSPAN_CHECK(!changed || !frame, "a changed message opened");
  LONGSPAN_CHECK(changed || (!refused && frame && frame->body == body), "a message did not arrive");
  if (frame)
    refuses([&] {
      const Hello hello = hello_from_text(frame->body);
      const Hello again = hello_from_text(to_text(hello));
      LONGSPAN_CHECK(hello.rank == again.rank && hello.ranks == again.ranks, "another hello");
    });
}

}  // namespace
}  // namespace longspan

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return longspan::reads_cleanly(data, size, [](std::string_view text) {
    const int what = text.empty() ? 0 : static_cast<unsigned char>(text.front()) % 3;
    text.remove_prefix(text.empty() ? 0 : 1);
    if (what == 0) return longspan::stranger(text);
    longspan::member(text, what == 1);
  });
}
