#include "conformance.h"

#include <vector>

#include "base/error.h"

namespace longspan::conformance {
namespace {

// Checks throw, so that a failing rank ends its whole group.
int value(int from, int to, int number) {
  return from * 10000 + to * 100 + number;
}

void expect(int got, int wanted, const char* what) {
  LONGSPAN_CHECK(got == wanted, "{}: {} is not {}", what, got, wanted);
}

}  // namespace

void exchanges_with_every_rank(Communicator& communicator) {
  const int me = communicator.rank(), ranks = communicator.size();
  std::vector<int> sent(static_cast<size_t>(ranks)), received(static_cast<size_t>(ranks), -1);
  std::vector<Message> sends, receives;
  for (int peer = 0; peer < ranks; ++peer) {
    const auto i = static_cast<size_t>(peer);
    sent[i] = value(me, peer, 7);
    sends.push_back({peer, &sent[i], sizeof(int)});
    receives.push_back({peer, &received[i], sizeof(int)});
  }
  communicator.exchange(sends, receives, {})->wait({});
  for (int peer = 0; peer < ranks; ++peer)
    expect(received[static_cast<size_t>(peer)], value(peer, me, 7), "exchange");
}

void keeps_the_order_of_messages(Communicator& communicator) {
  const int me = communicator.rank(), ranks = communicator.size();
  const int to = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
  std::vector<int> sent(5), received(5, -1);
  std::vector<Message> sends, receives;
  for (size_t i = 0; i < sent.size(); ++i) {
    sent[i] = value(me, to, static_cast<int>(i));
    sends.push_back({to, &sent[i], sizeof(int)});
    receives.push_back({from, &received[i], sizeof(int)});
  }
  communicator.exchange(sends, receives, {})->wait({});
  for (size_t i = 0; i < sent.size(); ++i) expect(received[i], value(from, me, static_cast<int>(i)), "order");
}

void carries_empty_and_large_messages(Communicator& communicator) {
  const int me = communicator.rank(), ranks = communicator.size();
  const int to = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
  std::vector<int> sent(3 << 20, value(me, to, 1)), received(sent.size(), -1);
  const std::vector<Message> sends{{to, nullptr, 0}, {to, sent.data(), sent.size() * sizeof(int)}};
  const std::vector<Message> receives{{from, nullptr, 0},
                                      {from, received.data(), received.size() * sizeof(int)}};
  communicator.exchange(sends, receives, {})->wait({});
  for (int got : received) expect(got, value(from, me, 1), "large message");
}

void runs_several_transfers_at_once(Communicator& communicator) {
  const int me = communicator.rank(), ranks = communicator.size();
  const int to = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
  std::vector<int> sent(4), received(4, -1);
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (size_t i = 0; i < sent.size(); ++i) {
    sent[i] = value(me, to, static_cast<int>(i));
    const Message send{to, &sent[i], sizeof(int)}, receive{from, &received[i], sizeof(int)};
    transfers.push_back(communicator.exchange({&send, 1}, {&receive, 1}, {}));
  }
  for (auto& transfer : transfers) transfer->wait({});
  for (size_t i = 0; i < sent.size(); ++i)
    expect(received[i], value(from, me, static_cast<int>(i)), "transfer");
}

void gathers_and_transposes(Communicator& communicator) {
  const int me = communicator.rank(), ranks = communicator.size();
  std::vector<int> gathered(static_cast<size_t>(ranks), -1), sent(gathered), transposed(gathered);
  const int own = value(me, 0, 3);
  communicator.all_gather(&own, gathered.data(), sizeof(int), {});
  for (int peer = 0; peer < ranks; ++peer) sent[static_cast<size_t>(peer)] = value(me, peer, 4);
  communicator.all_to_all(sent.data(), transposed.data(), sizeof(int), {});
  communicator.barrier();
  for (int peer = 0; peer < ranks; ++peer) {
    expect(gathered[static_cast<size_t>(peer)], value(peer, 0, 3), "all_gather");
    expect(transposed[static_cast<size_t>(peer)], value(peer, me, 4), "all_to_all");
  }
}

}  // namespace longspan::conformance
