#include "conformance.h"

#include <vector>

#include "base/buffer.h"
#include "base/error.h"

namespace longspan::conformance {
namespace {

// Checks throw, so a failing rank ends its whole group.
int value(int from, int to, int number) {
  return from * 10000 + to * 100 + number;
}

void expect(int got, int wanted, const char* what) {
  LONGSPAN_CHECK(got == wanted, "{}: {} is not {}", what, got, wanted);
}

// Numbers in the memory of the place under test.
class Numbers {
 public:
  Numbers(const Place& place, const std::vector<int>& values)
      : kind_(place.device.kind), count_(values.size()), buffer_(values.size() * sizeof(int), place.device) {
    copy_bytes(buffer_.data(), kind_, values.data(), DeviceKind::kCpu, bytes());
  }

  int* at(size_t i) { return buffer_.as<int>() + i; }
  size_t bytes() const { return count_ * sizeof(int); }
  std::vector<int> read() const {
    std::vector<int> values(count_);
    copy_bytes(values.data(), DeviceKind::kCpu, buffer_.data(), kind_, bytes());
    return values;
  }

 private:
  DeviceKind kind_;
  size_t count_;
  Buffer buffer_;
};

Numbers unwritten(const Place& place, size_t count) {
  return {place, std::vector<int>(count, -1)};
}

}  // namespace

void exchanges_with_every_rank(Communicator& communicator, const Place& place) {
  const int me = communicator.rank(), ranks = communicator.size();
  std::vector<int> values;
  for (int peer = 0; peer < ranks; ++peer) values.push_back(value(me, peer, 7));
  Numbers sent(place, values), received = unwritten(place, values.size());
  std::vector<Message> sends, receives;
  for (int peer = 0; peer < ranks; ++peer) {
    const auto i = static_cast<size_t>(peer);
    sends.push_back({peer, sent.at(i), sizeof(int)});
    receives.push_back({peer, received.at(i), sizeof(int)});
  }
  communicator.exchange(sends, receives, place.stream)->wait(place.stream);
  communicator.synchronize(place.stream);
  const std::vector<int> got = received.read();
  for (int peer = 0; peer < ranks; ++peer)
    expect(got[static_cast<size_t>(peer)], value(peer, me, 7), "exchange");
}

void keeps_the_order_of_messages(Communicator& communicator, const Place& place) {
  const int me = communicator.rank(), ranks = communicator.size();
  const int to = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
  constexpr size_t kCount = 5;
  std::vector<int> values;
  for (size_t i = 0; i < kCount; ++i) values.push_back(value(me, to, static_cast<int>(i)));
  Numbers sent(place, values), received = unwritten(place, kCount);
  std::vector<Message> sends, receives;
  for (size_t i = 0; i < kCount; ++i) {
    sends.push_back({to, sent.at(i), sizeof(int)});
    receives.push_back({from, received.at(i), sizeof(int)});
  }
  communicator.exchange(sends, receives, place.stream)->wait(place.stream);
  communicator.synchronize(place.stream);
  const std::vector<int> got = received.read();
  for (size_t i = 0; i < kCount; ++i) expect(got[i], value(from, me, static_cast<int>(i)), "order");
}

void carries_empty_and_large_messages(Communicator& communicator, const Place& place) {
  const int me = communicator.rank(), ranks = communicator.size();
  const int to = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
  constexpr size_t kCount = 3 << 20;
  Numbers sent(place, std::vector<int>(kCount, value(me, to, 1))), received = unwritten(place, kCount);
  const std::vector<Message> sends{{to, nullptr, 0}, {to, sent.at(0), sent.bytes()}};
  const std::vector<Message> receives{{from, nullptr, 0}, {from, received.at(0), received.bytes()}};
  communicator.exchange(sends, receives, place.stream)->wait(place.stream);
  communicator.synchronize(place.stream);
  for (int got : received.read()) expect(got, value(from, me, 1), "large message");
}

void runs_several_transfers_at_once(Communicator& communicator, const Place& place) {
  const int me = communicator.rank(), ranks = communicator.size();
  const int to = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
  constexpr size_t kCount = 4;
  std::vector<int> values;
  for (size_t i = 0; i < kCount; ++i) values.push_back(value(me, to, static_cast<int>(i)));
  Numbers sent(place, values), received = unwritten(place, kCount);
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (size_t i = 0; i < kCount; ++i) {
    const Message send{to, sent.at(i), sizeof(int)}, receive{from, received.at(i), sizeof(int)};
    transfers.push_back(communicator.exchange({&send, 1}, {&receive, 1}, place.stream, Meanwhile::kComputes,
                                              i % 2 == 0 ? Channel::kResults : Channel::kInputs));
  }
  for (auto& transfer : transfers) transfer->wait(place.stream);
  communicator.synchronize(place.stream);
  const std::vector<int> got = received.read();
  for (size_t i = 0; i < kCount; ++i) expect(got[i], value(from, me, static_cast<int>(i)), "transfer");
}

void gathers_and_transposes(Communicator& communicator, const Place& place) {
  const int me = communicator.rank(), ranks = communicator.size();
  const auto count = static_cast<size_t>(ranks);
  std::vector<int> values;
  for (int peer = 0; peer < ranks; ++peer) values.push_back(value(me, peer, 4));
  Numbers own(place, {value(me, 0, 3)}), gathered = unwritten(place, count), sent(place, values),
                                         transposed = unwritten(place, count);
  communicator.all_gather(own.at(0), gathered.at(0), sizeof(int), place.stream);
  communicator.all_to_all(sent.at(0), transposed.at(0), sizeof(int), place.stream);
  communicator.synchronize(place.stream);
  communicator.barrier();
  const std::vector<int> all = gathered.read(), mine = transposed.read();
  for (int peer = 0; peer < ranks; ++peer) {
    expect(all[static_cast<size_t>(peer)], value(peer, 0, 3), "all_gather");
    expect(mine[static_cast<size_t>(peer)], value(peer, me, 4), "all_to_all");
  }
}

// Rows of several lengths, with and without gaps on either side, whatever the device does meanwhile.
void carries_rows_if_it_takes_them(Communicator& communicator, const Place& place) {
  if (!communicator.takes_rows()) return;
  const int me = communicator.rank(), ranks = communicator.size();
  constexpr size_t kRows = 300, kGap = 3;
  for (const size_t length : {1, 4, 20, 64}) {
    for (const bool gaps_here : {false, true}) {
      for (const bool gaps_there : {false, true}) {
        for (const Meanwhile meanwhile : {Meanwhile::kComputes, Meanwhile::kWaits}) {
          const size_t from_stride = gaps_here ? 4 * length : length,
                       to_stride = gaps_there ? length + kGap : length;
          std::vector<int> values(kRows * from_stride * static_cast<size_t>(ranks), -2);
          std::vector<Message> sends, receives;
          for (int peer = 0; peer < ranks; ++peer) {
            for (size_t row = 0; row < kRows; ++row) {
              const size_t at = (static_cast<size_t>(peer) * kRows + row) * from_stride;
              for (size_t i = 0; i < length; ++i) values[at + i] = value(me, peer, static_cast<int>(row + i));
            }
          }
          Numbers sent(place, values),
              received = unwritten(place, kRows * to_stride * static_cast<size_t>(ranks));
          const size_t bytes = kRows * length * sizeof(int), row_bytes = length * sizeof(int);
          for (int peer = 0; peer < ranks; ++peer) {
            const size_t first = static_cast<size_t>(peer) * kRows;
            Message send{peer, sent.at(first * from_stride), bytes},
                receive{peer, received.at(first * to_stride), bytes};
            if (gaps_here) send.row_bytes = row_bytes, send.stride = from_stride * sizeof(int);
            if (gaps_there) receive.row_bytes = row_bytes, receive.stride = to_stride * sizeof(int);
            sends.push_back(send);
            receives.push_back(receive);
          }
          communicator.exchange(sends, receives, place.stream, meanwhile)->wait(place.stream);
          communicator.synchronize(place.stream);
          const std::vector<int> got = received.read();
          for (size_t at = 0; at < got.size(); ++at) {
            const size_t row = at / to_stride, i = at % to_stride;
            const int peer = static_cast<int>(row / kRows);
            expect(got[at], i < length ? value(peer, me, static_cast<int>(row % kRows + i)) : -1, "rows");
          }
        }
      }
    }
  }
}

}  // namespace longspan::conformance
