// A connection between two ranks of a job that nobody else can read, join, change or replay. This class turns
// messages into bytes and back; the sockets are elsewhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace longspan {

struct Frame {
  char kind = 0;
  std::string body;
};

// Both sides know the job's token. Each sends a greeting in the clear, then only sealed messages:
//
//   greeting = "longspan", version (4 bytes), nonce (32 random bytes)
//   root     = BLAKE2b("longspan meeting", token)
//   key      = BLAKE2b(key: root; side of the sender, nonce of rank 0, nonce of the other rank)
//   message  = length (4 bytes), secretbox(key, nonce: number of the message; kind (1 byte), body)
//
// Integers are little endian. secretbox (libsodium: XSalsa20 and Poly1305) encrypts and authenticates. Both
// nonces are in the keys, so a message of another connection does not open. Each side has its own key and its
// messages are numbered, so neither does one that is sent back, repeated, left out or changed. A side has
// proved that it knows the token when its first message opens; until then it may send only a short one.
//
// One thread may seal while another takes and opens.
class SealedChannel {
 public:
  enum class Side : unsigned char { kRank0 = 0, kOtherRank = 1 };

  static constexpr uint32_t kVersion = 2;
  static constexpr size_t kNonce = 32, kKey = 32;
  static constexpr size_t kGreeting = 8 + 4 + kNonce;
  static constexpr size_t kOverhead = 4 + 16 + 1;      // bytes of a message beyond its body
  static constexpr size_t kLongest = size_t{1} << 20;  // of a body
  static constexpr size_t kLongestFirst = 1024;        // the same of a side's first message

  SealedChannel(Side side, std::string_view token);

  std::string greeting() const;  // to send first

  // Adds bytes of the other side. Call next() until it has nothing more before the next bytes are read: it
  // bounds what is held.
  void take(std::string_view bytes) { received_ += bytes; }

  // The next message, if all of it has come. Throws an Error of kind kPeer if the bytes are not those of a
  // rank of this job; the connection is then of no more use.
  std::optional<Frame> next();

  bool greeted() const { return greeted_; }    // the other's greeting has come: messages can be sealed
  bool proven() const { return opened_ > 0; }  // the other side knows the token

  std::string seal(char kind, std::string_view body);

 private:
  using Key = std::array<unsigned char, kKey>;

  void read_greeting();
  Key key_of(Side sender, std::string_view nonce_of_other_side) const;

  Side side_;
  Key root_{}, sealing_{}, opening_{};
  std::array<char, kNonce> nonce_{};
  uint64_t sealed_ = 0, opened_ = 0;  // messages so far
  bool greeted_ = false;
  std::string received_;
};

}  // namespace longspan
