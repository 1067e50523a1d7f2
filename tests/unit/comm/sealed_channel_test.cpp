// The bytes between two ranks: what opens, and everything hostile that does not.
#include "comm/sealed_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "meeting_place.h"

namespace longspan {
namespace {

using ::testing::HasSubstr;
using Side = SealedChannel::Side;

// Two ends that have exchanged their greetings.
struct Ends {
  SealedChannel rank_0, other;
  explicit Ends(std::string_view token_of_other = kTestToken)
      : rank_0(Side::kRank0, kTestToken), other(Side::kOtherRank, token_of_other) {
    rank_0.take(other.greeting());
    other.take(rank_0.greeting());
    EXPECT_FALSE(rank_0.next() || other.next());
  }
};

// The reason for which the channel refuses these bytes; "" if it does not.
std::string refusal(SealedChannel& channel, std::string_view bytes) {
  channel.take(bytes);
  try {
    while (channel.next()) {
    }
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kPeer);
    return error.what();
  }
}

std::string length_of(uint32_t length) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xFF);
  return bytes;
}

TEST(SealedChannel, CarriesMessagesBothWaysInPiecesOfAnySize) {
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{1} << 21}) {
    SealedChannel rank_0(Side::kRank0, kTestToken), other(Side::kOtherRank, kTestToken);
    rank_0.take(other.greeting());
    EXPECT_FALSE(rank_0.next());
    const auto cross = [&](SealedChannel& to, const std::string& bytes) {
      std::vector<Frame> frames;
      for (size_t at = 0; at < bytes.size(); at += piece) {
        to.take(std::string_view(bytes).substr(at, piece));
        while (auto frame = to.next()) frames.push_back(*frame);
      }
      return frames;
    };
    EXPECT_TRUE(cross(other, rank_0.greeting()).empty());
    std::string two = rank_0.seal('a', std::string(1000, '\0'));
    two += rank_0.seal('b', "");
    const std::vector<Frame> frames = cross(other, two);
    ASSERT_EQ(frames.size(), 2u);
    EXPECT_EQ(frames[0].body, std::string(1000, '\0'));
    EXPECT_EQ(frames[1].kind, 'b');
    ASSERT_EQ(cross(rank_0, other.seal('c', "back")).size(), 1u);
    EXPECT_TRUE(rank_0.proven() && other.proven());
  }
}

TEST(SealedChannel, HidesWhatItCarries) {
  Ends ends;
  const std::string secret(64, 's');
  const std::string first = ends.rank_0.seal('x', secret), second = ends.rank_0.seal('x', secret);
  EXPECT_EQ(first.find("ssss"), std::string::npos);
  EXPECT_NE(first, second);
  EXPECT_EQ(first.size(), secret.size() + SealedChannel::kOverhead);
}

TEST(SealedChannel, RefusesAnotherToken) {
  Ends ends("a token of another job");
  EXPECT_THAT(refusal(ends.rank_0, ends.other.seal('H', "1 2")), HasSubstr("does not know this job's token"));
  EXPECT_THAT(refusal(ends.other, ends.rank_0.seal('W', "")), HasSubstr("does not know this job's token"));
}

TEST(SealedChannel, RefusesOtherProtocolsAtTheirFirstBytes) {
  for (const char* words : {"GET / HTTP/1.0\r\n", "G", "longspaN", "SSH-2.0"}) {
    SealedChannel channel(Side::kRank0, kTestToken);
    EXPECT_THAT(refusal(channel, words), HasSubstr("does not speak the protocol")) << words;
  }
}

TEST(SealedChannel, NamesAnotherVersion) {
  SealedChannel channel(Side::kRank0, kTestToken);
  std::string greeting = SealedChannel(Side::kOtherRank, kTestToken).greeting();
  greeting[8] = 77;
  EXPECT_THAT(refusal(channel, greeting), HasSubstr("version 77 of the ranks' protocol, not 2"));
}

TEST(SealedChannel, RefusesLengthsThatNoMessageHas) {
  for (const uint32_t length : {0u, 1u, 16u, 1u << 12, 1u << 21, 0x7fffffffu, 0xffffffffu}) {
    Ends ends;
    EXPECT_THAT(refusal(ends.rank_0, length_of(length)), HasSubstr(fmt::format("of {} bytes", length)));
  }
}

TEST(SealedChannel, AllowsLongMessagesOnlyAfterAProof) {
  Ends ends;
  const std::string longest(SealedChannel::kLongest, 'x');
  EXPECT_THROW(ends.other.seal('B', longest), Error);
  EXPECT_EQ(refusal(ends.rank_0, ends.other.seal('H', "1 2")), "");
  EXPECT_EQ(refusal(ends.rank_0, ends.other.seal('B', longest)), "");
  EXPECT_THROW(ends.other.seal('B', longest + "x"), Error);
  EXPECT_THAT(refusal(ends.rank_0, length_of((1u << 20) + 100)), HasSubstr("allowed are 17 to 1048593"));
}

TEST(SealedChannel, RefusesEveryFlippedBit) {
  const std::string message = [] {
    Ends ends;
    return ends.other.seal('H', "1 2");
  }();
  for (size_t bit = 0; bit < message.size() * 8; ++bit) {
    Ends ends;
    std::string changed = ends.other.seal('H', "1 2");
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << (bit % 8));
    // A length that grew to an allowed one waits for the rest, which cannot open either.
    EXPECT_NE(refusal(ends.rank_0, changed + std::string(2000, 'x')), "") << bit;
    EXPECT_FALSE(ends.rank_0.proven());
  }
}

TEST(SealedChannel, RefusesRepeatedLostAndReorderedMessages) {
  for (int which = 0; which < 3; ++which) {
    Ends ends;
    const std::string first = ends.other.seal('H', "1 2"), second = ends.other.seal('A', ""),
                      third = ends.other.seal('A', "");
    EXPECT_EQ(refusal(ends.rank_0, first), "");
    const std::string next = which == 0 ? first : which == 1 ? third : second + second;
    EXPECT_THAT(refusal(ends.rank_0, next), HasSubstr("changed, repeated or lost"));
  }
}

TEST(SealedChannel, RefusesItsOwnMessagesSentBack) {
  Ends ends;
  EXPECT_THAT(refusal(ends.rank_0, ends.rank_0.seal('G', "")), HasSubstr("does not know"));
  EXPECT_THAT(refusal(ends.other, ends.other.seal('A', "")), HasSubstr("does not know"));
  // Also if its greeting comes back.
  SealedChannel alone(Side::kOtherRank, kTestToken);
  EXPECT_EQ(refusal(alone, alone.greeting()), "");
  EXPECT_THAT(refusal(alone, alone.seal('H', "1 2")), HasSubstr("does not know"));
}

TEST(SealedChannel, RefusesAReplayedConnection) {
  Ends first;
  const std::string recorded = first.other.greeting() + first.other.seal('H', "1 2");
  SealedChannel rank_0(Side::kRank0, kTestToken);
  EXPECT_THAT(refusal(rank_0, recorded), HasSubstr("does not know"));
  const std::string recorded_0 = first.rank_0.greeting() + first.rank_0.seal('W', "");
  SealedChannel other(Side::kOtherRank, kTestToken);
  EXPECT_THAT(refusal(other, recorded_0), HasSubstr("does not know"));
}

TEST(SealedChannel, SealsNothingBeforeTheGreeting) {
  SealedChannel channel(Side::kRank0, kTestToken);
  EXPECT_THROW(channel.seal('H', ""), Error);
  EXPECT_THROW(SealedChannel(Side::kRank0, ""), Error);
}

}  // namespace
}  // namespace longspan
