#include "comm/sealed_channel.h"

#include <algorithm>

#include <sodium.h>

#include "base/error.h"

namespace longspan {
namespace {

constexpr std::string_view kMagic = "longspan";
constexpr size_t kLength = 4;
static_assert(SealedChannel::kOverhead == kLength + crypto_secretbox_MACBYTES + 1);
static_assert(SealedChannel::kKey == crypto_secretbox_KEYBYTES);

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(ErrorKind::kPeer, reason, __FILE__, __LINE__, "a message of this job");
}

const unsigned char* octets(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* octets(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}

std::string little_endian(uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

uint32_t from_little_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{octets(bytes)[i]} << (8 * i);
  return value;
}

std::array<unsigned char, crypto_secretbox_NONCEBYTES> number(uint64_t count) {
  std::array<unsigned char, crypto_secretbox_NONCEBYTES> nonce{};
  for (size_t i = 0; i < sizeof(count); ++i) nonce[i] = static_cast<unsigned char>(count >> (8 * i));
  return nonce;
}

}  // namespace

SealedChannel::SealedChannel(Side side, std::string_view token) : side_(side) {
  LONGSPAN_CHECK(sodium_init() >= 0, "libsodium cannot be initialised");
  LONGSPAN_CHECK(!token.empty(), "a channel without a token");
  const std::string text = "longspan meeting" + std::string(token);
  crypto_generichash(root_.data(), root_.size(), octets(std::string_view(text)), text.size(), nullptr, 0);
  randombytes_buf(nonce_.data(), nonce_.size());
}

std::string SealedChannel::greeting() const {
  return std::string(kMagic) + little_endian(kVersion) + std::string(nonce_.data(), nonce_.size());
}

SealedChannel::Key SealedChannel::key_of(Side sender, std::string_view nonce_of_other_side) const {
  const std::string_view mine(nonce_.data(), nonce_.size());
  std::string text(1, static_cast<char>(sender));
  text += side_ == Side::kRank0 ? mine : nonce_of_other_side;
  text += side_ == Side::kRank0 ? nonce_of_other_side : mine;
  Key key;
  crypto_generichash(key.data(), key.size(), octets(std::string_view(text)), text.size(), root_.data(),
                     root_.size());
  return key;
}

// Returns at once while the greeting is incomplete, but refuses another program's first bytes.
void SealedChannel::read_greeting() {
  const size_t magic = std::min(kMagic.size(), received_.size());
  if (std::string_view(received_).substr(0, magic) != kMagic.substr(0, magic))
    refuse("it does not speak the protocol of longspan's ranks");
  if (received_.size() < kMagic.size() + 4) return;
  const uint32_t version = from_little_endian(std::string_view(received_).substr(kMagic.size()));
  if (version != kVersion)
    refuse(fmt::format("it speaks version {} of the ranks' protocol, not {}: use one longspan on all hosts",
                       version, kVersion));
  if (received_.size() < kGreeting) return;
  const std::string theirs = received_.substr(kGreeting - kNonce, kNonce);
  const Side other = side_ == Side::kRank0 ? Side::kOtherRank : Side::kRank0;
  sealing_ = key_of(side_, theirs);
  opening_ = key_of(other, theirs);
  greeted_ = true;
  received_.erase(0, kGreeting);
}

std::optional<Frame> SealedChannel::next() {
  if (!greeted_) read_greeting();
  if (!greeted_ || received_.size() < kLength) return std::nullopt;
  const size_t length = from_little_endian(received_);
  const size_t longest = crypto_secretbox_MACBYTES + 1 + (proven() ? kLongest : kLongestFirst);
  if (length <= crypto_secretbox_MACBYTES || length > longest)
    refuse(fmt::format("it announced a message of {} bytes; allowed are {} to {}", length,
                       crypto_secretbox_MACBYTES + 1, longest));
  if (received_.size() < kLength + length) return std::nullopt;
  std::string text(length - crypto_secretbox_MACBYTES, '\0');
  if (crypto_secretbox_open_easy(octets(text), octets(std::string_view(received_)) + kLength, length,
                                 number(opened_).data(), opening_.data()) != 0) {
    refuse(proven() ? "one of its messages was changed, repeated or lost on the way"
                    : "it does not know this job's token");
  }
  ++opened_;
  received_.erase(0, kLength + length);
  return Frame{text[0], text.substr(1)};
}

std::string SealedChannel::seal(char kind, std::string_view body) {
  LONGSPAN_CHECK(greeted_, "a message before the other side's greeting");
  const size_t longest = sealed_ == 0 ? kLongestFirst : kLongest;
  LONGSPAN_CHECK(body.size() <= longest, "a message of {} bytes to another rank: at most {}", body.size(),
                 longest);
  const std::string text = kind + std::string(body);
  std::string message = little_endian(static_cast<uint32_t>(text.size() + crypto_secretbox_MACBYTES));
  message.resize(kLength + text.size() + crypto_secretbox_MACBYTES);
  crypto_secretbox_easy(octets(message) + kLength, octets(std::string_view(text)), text.size(),
                        number(sealed_).data(), sealing_.data());
  ++sealed_;
  return message;
}

}  // namespace longspan
