// Strangers at the ranks' meeting point: none of them joins, reads, ends or delays a job.
#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "base/error.h"
#include "comm/meeting.h"
#include "comm/rendezvous.h"
#include "meeting_place.h"

namespace longspan {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Side = SealedChannel::Side;

constexpr milliseconds kWatchdog = std::chrono::minutes(2);
Socket connected(int port) {
  std::string problem;
  const auto deadline = std::chrono::steady_clock::now() + kWatchdog;
  for (;;) {
    Socket socket = connect_to("127.0.0.1", port, deadline, problem);
    if (socket.open() || std::chrono::steady_clock::now() > deadline) return socket;
    std::this_thread::sleep_for(milliseconds(2));
  }
}

// All that the other side sends before it closes the connection, or before `enough` bytes have come.
std::string heard(const Socket& socket, size_t enough = SIZE_MAX) {
  std::string all, bytes;
  while (all.size() < enough) {
    pollfd waiting{socket.fd(), POLLIN, 0};
    if (poll(&waiting, 1, static_cast<int>(kWatchdog.count())) != 1) return all + " (and did not close)";
    if (socket.receive_some(bytes) == Socket::Got::kEnd) return all;
    all += bytes;
  }
  return all;
}

// A connection that got as far as the greetings, of one who may know the token.
struct Stranger {
  Socket socket;
  SealedChannel channel;
  explicit Stranger(int port, const char* token = kTestToken)
      : socket(connected(port)), channel(Side::kOtherRank, token) {
    socket.send_all(channel.greeting());
    channel.take(heard(socket, SealedChannel::kGreeting));
    EXPECT_FALSE(channel.next());
  }
  void say(char kind, const std::string& body) { socket.send_all(channel.seal(kind, body)); }
  std::string answer() {  // the kind and body of the next message; "" if the connection closes instead
    for (;;) {
      if (const auto frame = channel.next()) return frame->kind + frame->body;
      std::string bytes = heard(socket, 1);
      if (bytes.empty()) return "";
      channel.take(bytes);
    }
  }
};

// A job of two ranks that meets while `strangers` do what they do, then broadcasts and passes a barrier. The
// strangers come before rank 1 does: rank 0 cannot have met all ranks yet. Returns the first error, or "".
std::string job_beside(const std::function<void(int port)>& strangers) {
  const int port = free_port();
  const auto take_part = [&](int rank) -> std::string {
    try {
      const auto rendezvous = Rendezvous::meet(place(rank, 2, port), kWatchdog);
      LONGSPAN_CHECK(rendezvous->broadcast(rank == 0 ? "word" : "") == "word", "another word");
      rendezvous->barrier();
      return rendezvous->failure();
    } catch (const std::exception& error) {
      return error.what();
    }
  };
  auto rank_0 = std::async(std::launch::async, take_part, 0);
  strangers(port);
  const std::string of_rank_1 = take_part(1);
  const std::string of_rank_0 = rank_0.get();
  return of_rank_0.empty() ? of_rank_1 : of_rank_0;
}

TEST(HostileMeeting, SilentStrangersDelayNobody) {
  std::vector<Socket> silent;
  EXPECT_EQ(job_beside([&](int port) {
              for (int i = 0; i < 200; ++i) silent.push_back(connected(port));
            }),
            "");
}

TEST(HostileMeeting, TheOldestSilentStrangerGivesWay) {
  std::vector<Socket> silent;
  std::string oldest;
  EXPECT_EQ(job_beside([&](int port) {
              for (size_t i = 0; i <= most_strangers(2); ++i) silent.push_back(connected(port));
              oldest = heard(silent.front());  // until it is closed
            }),
            "");
  EXPECT_EQ(oldest.size(), SealedChannel::kGreeting);
}

TEST(HostileMeeting, GarbageIsTurnedAway) {
  for (const std::string& words :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(100000, '\xff'), std::string(500, '\0'),
        std::string("longspan but not really, only at the beginning of it")}) {
    std::string answer;
    EXPECT_EQ(job_beside([&](int port) {
                const Socket socket = connected(port);
                socket.send_all(words);
                answer = heard(socket);
              }),
              "");
    EXPECT_LE(answer.size(), SealedChannel::kGreeting);
  }
}

TEST(HostileMeeting, AnEarlyCloseAtEachStageHarmsNobody) {
  SealedChannel channel(Side::kOtherRank, kTestToken);
  for (const size_t sent : {size_t{0}, size_t{1}, size_t{8}, size_t{20}, SealedChannel::kGreeting}) {
    EXPECT_EQ(job_beside([&](int port) {
                const Socket socket = connected(port);
                socket.send_all(channel.greeting().substr(0, sent));
              }),
              "");
  }
  for (const size_t sent : {size_t{2}, size_t{4}, size_t{10}}) {
    EXPECT_EQ(job_beside([&](int port) {
                Stranger stranger(port);
                stranger.socket.send_all(stranger.channel.seal('H', "1 2").substr(0, sent));
              }),
              "");
  }
}

TEST(HostileMeeting, HalfAHandshakeDelaysNobody) {
  std::vector<Stranger> waiting;
  EXPECT_EQ(job_beside([&](int port) {
              for (int i = 0; i < 20; ++i) {
                waiting.emplace_back(port);
                waiting.back().socket.send_all(waiting.back().channel.seal('H', "1 2").substr(0, 7));
              }
            }),
            "");
}

TEST(HostileMeeting, AWrongTokenIsTurnedAway) {
  std::string answer = "not asked";
  EXPECT_EQ(job_beside([&](int port) {
              Stranger stranger(port, "another token, of a stranger");
              stranger.say('H', "1 2");
              answer = stranger.answer();
            }),
            "");
  EXPECT_EQ(answer, "");
}

TEST(HostileMeeting, ImpossibleLengthsAreTurnedAway) {
  for (const std::string& length : {std::string(4, '\0'), std::string(4, '\x7f'), std::string(4, '\xff')}) {
    std::string answer = "not asked";
    EXPECT_EQ(job_beside([&](int port) {
                Stranger stranger(port);
                stranger.socket.send_all(length);
                answer = heard(stranger.socket);
              }),
              "");
    EXPECT_EQ(answer, "");
  }
}

TEST(HostileMeeting, AReplayedHandshakeIsTurnedAway) {
  std::string answer = "not asked";
  EXPECT_EQ(job_beside([&](int port) {
              // What a rank of this job said on another connection, which broke before rank 0 heard all of
              // it.
              Stranger recorded(port);
              const std::string hello = recorded.channel.seal('H', "1 2");
              const Socket replay = connected(port);
              heard(replay, SealedChannel::kGreeting);
              replay.send_all(recorded.channel.greeting() + hello);
              answer = heard(replay);
            }),
            "");
  EXPECT_EQ(answer, "");
}

TEST(HostileMeeting, OneWhoSendsEverythingBackIsTurnedAway) {
  std::string answer = "not asked";
  EXPECT_EQ(job_beside([&](int port) {
              const Socket socket = connected(port);
              socket.send_all(heard(socket, SealedChannel::kGreeting));
              socket.send_all(std::string("\x20\0\0\0", 4) + std::string(32, 'x'));
              answer = heard(socket);
            }),
            "");
  EXPECT_EQ(answer, "");
}

TEST(HostileMeeting, RanksThatDoNotFitAreToldSo) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"0 2", "a rank 0 came, where ranks 1 to 1 meet"},
      {"2 2", "a rank 2 came"},
      {"-1 2", "a rank -1 came"},
      {"2147483647 2", "a rank 2147483647 came"},
      {"1 3", "a rank of 3 came to a job of 2: two jobs"},
      {"1 -2", "a rank of -2 came to a job of 2"}};
  for (const auto& [hello, reason] : cases) {
    std::string answer;
    EXPECT_EQ(job_beside([&, hello = hello](int port) {
                Stranger stranger(port);
                stranger.say('H', hello);
                answer = stranger.answer();
              }),
              "");
    EXPECT_THAT(answer, HasSubstr("R" + reason));
  }
}

TEST(HostileMeeting, HellosThatSayNothingAreTurnedAway) {
  for (const char* hello : {"", "1", "1 ", " 1 2", "1 2 ", "one two", "99999999999 2", "1 2\n", "1\0002"}) {
    EXPECT_THROW(hello_from_text(hello), Error) << hello;
    std::string answer = "not asked";
    EXPECT_EQ(job_beside([&](int port) {
                Stranger stranger(port);
                stranger.say('H', hello);
                answer = stranger.answer();
              }),
              "");
    EXPECT_EQ(answer, "") << hello;
  }
  const Hello read = hello_from_text(to_text({3, 8}));
  EXPECT_TRUE(read.rank == 3 && read.ranks == 8);
}

TEST(HostileMeeting, AFirstMessageOfAnotherKindIsTurnedAway) {
  for (const char kind : {'B', 'A', 'G', 'F', 'X', 'W', 'R', '\0'}) {
    std::string answer = "not asked";
    EXPECT_EQ(job_beside([&](int port) {
                Stranger stranger(port);
                stranger.say(kind, "1 2");
                answer = stranger.answer();
              }),
              "");
    EXPECT_EQ(answer, "") << kind;
  }
}

// Three ranks, so that rank 0 still waits when the second rank 1 comes.
TEST(HostileMeeting, ASecondRankOfTheSameNumberIsRefused) {
  const int port = free_port();
  std::vector<std::future<std::string>> ranks;
  const auto take_part = [port](int rank) -> std::string {
    try {
      Rendezvous::meet(place(rank, 3, port), kWatchdog)->barrier();
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  };
  ranks.push_back(std::async(std::launch::async, take_part, 0));
  auto first = join_rank_0(place(1, 3, port), kWatchdog);
  try {
    Rendezvous::meet(place(1, 3, port), kWatchdog);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_THAT(error.what(), HasSubstr("refused rank 1: a second rank 1 came: two jobs at one port?"));
  }
  first.reset();  // rank 1 dies; the job must end with that reason
  ranks.push_back(std::async(std::launch::async, take_part, 2));
  for (auto& rank : ranks) EXPECT_THAT(rank.get(), HasSubstr("rank 1 has died"));
}

TEST(HostileMeeting, NobodyJoinsAfterAllHaveMet) {
  const int port = free_port();
  auto rank_1 =
      std::async(std::launch::async, [&] { return Rendezvous::meet(place(1, 2, port), kWatchdog); });
  const auto rank_0 = Rendezvous::meet(place(0, 2, port), kWatchdog);
  const auto other = rank_1.get();
  std::string problem;
  EXPECT_FALSE(connect_to("127.0.0.1", port, std::chrono::steady_clock::now() + kWatchdog, problem).open());
  rank_0->broadcast("still here");
  EXPECT_EQ(other->broadcast(""), "still here");
}

TEST(HostileMeeting, RefusesToMeetWithoutAToken) {
  for (const int rank : {0, 1}) {
    try {
      Rendezvous::meet(place(rank, 2, free_port(), ""), kWatchdog);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_THAT(error.what(), HasSubstr("set LONGSPAN_JOB_TOKEN on every rank"));
    }
  }
  EXPECT_NO_THROW(Rendezvous::meet(place(0, 1, free_port(), ""), kWatchdog));  // one rank meets nobody
}

TEST(HostileMeeting, ListensAtTheNamedAddressAlone) {
  const int port = free_port();
  auto rank_0 = std::async(std::launch::async, [&] {
    Launch launch = place(0, 2, port);
    launch.host = "127.0.0.2";
    return Rendezvous::meet(launch, kWatchdog);
  });
  Launch launch = place(1, 2, port);
  launch.host = "127.0.0.2";
  std::string problem;
  {
    const auto rank_1 = [&] {
      // The port is open at the named address once a connection succeeds there.
      const auto deadline = std::chrono::steady_clock::now() + kWatchdog;
      while (!connect_to("127.0.0.2", port, deadline, problem).open())
        std::this_thread::sleep_for(milliseconds(2));
      EXPECT_FALSE(connect_to("127.0.0.1", port, deadline, problem).open());
      EXPECT_EQ(problem, "Connection refused");
      return Rendezvous::meet(launch, kWatchdog);
    }();
    rank_0.get();
  }
  launch = place(0, 2, port);
  launch.host = "192.0.2.1";  // for documentation: no machine has it
  try {
    Rendezvous::meet(launch, kWatchdog);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("LONGSPAN_RENDEZVOUS=HOST:PORT"));
  }
}

TEST(HostileMeeting, ATakenPortIsNamed) {
  const int port = free_port();
  const std::vector<Socket> other_job = listen_at("127.0.0.1", port);
  try {
    Rendezvous::meet(place(0, 2, port), kWatchdog);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("another program has that port (another job?)"));
  }
}

// The missing rank was there, but with the token of another job. A slow machine gets a longer limit.
TEST(HostileMeeting, Rank0SaysWhyARankIsMissing) {
  std::string reason;
  for (milliseconds limit(1000); limit < kWatchdog && reason.find("turned away") == std::string::npos;
       limit *= 4) {
    const int port = free_port();
    auto rank_0 = std::async(std::launch::async, [&]() -> std::string {
      try {
        Rendezvous::meet(place(0, 2, port), limit);
        return "";
      } catch (const Error& error) {
        return error.what();
      }
    });
    Stranger stranger(port, "the token of another job");
    stranger.say('H', "1 2");
    stranger.answer();
    reason = rank_0.get();
  }
  EXPECT_THAT(reason, HasSubstr("within"));
  EXPECT_THAT(reason,
              HasSubstr("1 other connections were turned away, the last because it does not know this "
                        "job's token"));
}

// A server that is not rank 0, at the port where rank 1 looks for it.
class FalseRank0 {
 public:
  // Serves one guest after another.
  FalseRank0(int port, std::function<void(const Socket&, SealedChannel&)> act)
      : doors_(listen_at("127.0.0.1", port)), thread_([this, act = std::move(act)] {
          while (!over_) {
            pollfd waiting{doors_[0].fd(), POLLIN, 0};
            if (poll(&waiting, 1, 10) != 1) continue;
            Socket guest = accept_from(doors_[0]);
            if (!guest.open()) continue;
            SealedChannel channel(Side::kRank0, "the token of a false rank 0");
            act(guest, channel);
            ++guests;
          }
        }) {}
  ~FalseRank0() {
    over_ = true;
    thread_.join();
  }
  std::atomic<int> guests{0};

 private:
  std::vector<Socket> doors_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

std::string refusal_of_rank_1(const std::function<void(const Socket&, SealedChannel&)>& act,
                              milliseconds limit = kWatchdog) {
  const int port = free_port();
  FalseRank0 server(port, act);
  try {
    greet_rank_0(connected(port), place(1, 2, port), std::chrono::steady_clock::now() + limit);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kPeer);
    return error.what();
  }
}

TEST(HostileMeeting, ARankRefusesAFalseRank0) {
  EXPECT_THAT(refusal_of_rank_1([](const Socket& guest, SealedChannel& channel) {
                channel.take(heard(guest, SealedChannel::kGreeting));
                channel.next();
                guest.send_all(channel.greeting());
                guest.send_all(channel.seal('W', ""));
                heard(guest);
              }),
              HasSubstr("does not know this job's token"));
  EXPECT_THAT(refusal_of_rank_1([](const Socket&, SealedChannel&) {}), HasSubstr("closed the connection"));
  EXPECT_THAT(refusal_of_rank_1([](const Socket& guest, SealedChannel&) {
                guest.send_all("220 \x1b[2J mail at your service\r\n");
                heard(guest);
              }),
              HasSubstr("does not speak the protocol"));
  EXPECT_THAT(refusal_of_rank_1(
                  [](const Socket& guest, SealedChannel&) {
                    guest.send_all("longspan");
                    heard(guest);
                  },
                  milliseconds(100)),
              HasSubstr("did not answer"));
  EXPECT_THAT(refusal_of_rank_1([](const Socket& guest, SealedChannel& channel) {
                std::string greeting = channel.greeting();
                greeting[8] = 1;
                guest.send_all(greeting);
                heard(guest);
              }),
              HasSubstr("version 1 of the ranks' protocol, not 2"));
}

TEST(HostileMeeting, ARankGivesUpAtAStrangersServer) {
  const int port = free_port();
  FalseRank0 server(port, [](const Socket& guest, SealedChannel&) { guest.send_all("550 go away\r\n"); });
  try {
    Rendezvous::meet(place(1, 2, port), milliseconds(300));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_THAT(error.what(),
                HasSubstr(fmt::format("rank 0 was not found at 127.0.0.1:{} within 300 ms", port)));
  }
}

TEST(HostileMeeting, ARankFindsRank0AfterAStranger) {
  const int port = free_port();
  auto stranger = std::make_unique<FalseRank0>(port, [](const Socket&, SealedChannel&) {});
  auto rank_1 =
      std::async(std::launch::async, [&] { return Rendezvous::meet(place(1, 2, port), kWatchdog); });
  while (stranger->guests == 0) std::this_thread::sleep_for(milliseconds(2));
  stranger.reset();
  const auto rank_0 = Rendezvous::meet(place(0, 2, port), kWatchdog);
  EXPECT_NE(rank_1.get(), nullptr);
}

// A member of the job that misbehaves after it has joined.
struct Member {
  explicit Member(int port) : link(join_rank_0(place(1, 2, port), kWatchdog)) { say('A', ""); }
  void say(char kind, const std::string& body) { link->socket.send_all(link->channel.seal(kind, body)); }
  std::unique_ptr<Link> link;
};

std::string failure_beside(const std::function<void(Member&)>& act) {
  const int port = free_port();
  auto rank_0 = std::async(std::launch::async, [&]() -> std::string {
    try {
      const auto rendezvous = Rendezvous::meet(place(0, 2, port), kWatchdog);
      rendezvous->barrier();  // ends with the failure
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  });
  Member member(port);
  act(member);
  return rank_0.get();
}

TEST(HostileMeeting, AReplayedMessageEndsTheJobWithTheReason) {
  EXPECT_THAT(
      failure_beside([](Member& member) {
        const std::string message = member.link->channel.seal('?', "");
        member.link->socket.send_all(message + message);
      }),
      HasSubstr("rank 1 cannot be heard any more: one of its messages was changed, repeated or lost"));
}

TEST(HostileMeeting, AChangedMessageEndsTheJobWithTheReason) {
  EXPECT_THAT(failure_beside([](Member& member) {
                std::string message = member.link->channel.seal('A', "");
                message.back() = static_cast<char>(message.back() ^ 1);
                member.link->socket.send_all(message);
              }),
              HasSubstr("changed, repeated or lost"));
}

TEST(HostileMeeting, ControlCharactersOfAFailureAreEscaped) {
  const std::string failure =
      failure_beside([](Member& member) { member.say('F', "red \x1b[31m ink\nand a line\x07"); });
  EXPECT_EQ(failure, "red \\x1b[31m ink and a line\\x07");
}

TEST(HostileMeeting, NothingIsHeardAfterAGoodbye) {
  EXPECT_EQ(failure_beside([](Member& member) {
              member.say('A', "");  // for rank 0's second barrier
              member.say('X', "");
              member.say('F', "too late");
            }),
            "");
}

}  // namespace
}  // namespace longspan
