// The default collectives, implemented with exchange.
#include "comm/communicator.h"

#include <vector>

#include "base/error.h"
#include "base/thread.h"

namespace longspan {

namespace {

std::byte* block(const void* base, int number, size_t bytes) {
  return static_cast<std::byte*>(const_cast<void*>(base)) + static_cast<size_t>(number) * bytes;
}

}  // namespace

void check_wait_limit(std::chrono::milliseconds limit) {
  constexpr std::chrono::hours kLongest{24 * 30};
  LONGSPAN_CHECK_INPUT(limit.count() >= 1 && limit <= kLongest,
                       "a time limit of {} ms: must be from 1 to {}, which is 30 days", limit.count(),
                       std::chrono::milliseconds(kLongest).count());
}

void fail_group(Communicator& end) noexcept {
  try {
    end.fail(fmt::format("rank {} failed: {}", end.rank(), reason_of_current_exception()));
  } catch (...) {  // the group cannot be told; its waits end at their time limit
  }
}

void Communicator::barrier() {
  std::vector<std::byte> sent(static_cast<size_t>(size())), received(static_cast<size_t>(size()));
  all_to_all(sent.data(), received.data(), 1, {});
}

void Communicator::all_gather(const void* send, void* receive, size_t bytes, Stream stream) {
  std::vector<Message> sends, receives;
  for (int peer = 0; peer < size(); ++peer) {
    sends.push_back({peer, const_cast<void*>(send), bytes});
    receives.push_back({peer, block(receive, peer, bytes), bytes});
  }
  exchange(sends, receives, stream)->wait(stream);
}

void Communicator::all_to_all(const void* send, void* receive, size_t bytes, Stream stream) {
  std::vector<Message> sends, receives;
  for (int peer = 0; peer < size(); ++peer) {
    sends.push_back({peer, block(send, peer, bytes), bytes});
    receives.push_back({peer, block(receive, peer, bytes), bytes});
  }
  exchange(sends, receives, stream)->wait(stream);
}

}  // namespace longspan
