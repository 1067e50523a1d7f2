// The default collectives, implemented with exchange.
#include "comm/communicator.h"

#include <vector>

namespace longspan {

namespace {

std::byte* block(const void* base, int number, size_t bytes) {
  return static_cast<std::byte*>(const_cast<void*>(base)) + static_cast<size_t>(number) * bytes;
}

}  // namespace

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
