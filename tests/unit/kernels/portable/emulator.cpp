#include "emulator.h"

#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <fmt/format.h>

// The address sanitizer must be told of a change of stacks.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace longspan::portable {
namespace {

constexpr uint32_t kBase = 1024;  // address of the first byte of shared memory
constexpr uint32_t kWord = 4;
constexpr size_t kStackBytes = 128 << 10;

// Who touched a word of shared memory, and when: numbers of barriers passed.
struct Touch {
  int32_t thread = -1;  // -1: nobody
  uint32_t block_time = 0, warp_time = 0;
};
struct Word {
  bool written = false, pending = false;  // pending: a cp.async that its thread has not waited for
  Touch writer, reader;
  bool many_warps_read = false;  // since reader.block_time
};

struct AsyncCopy {
  uint32_t to = 0;
  uint8_t data[16] = {};
};

struct Thread {
  int index = 0;
  bool done = false;
  std::vector<AsyncCopy> open;                // copies of the group that is not committed yet
  std::deque<std::vector<AsyncCopy>> groups;  // committed ones, the oldest first
};

struct Warp {
  uint32_t time = 0;     // barriers of the warp or the block passed
  uint64_t meeting = 0;  // instructions executed together
  int arrived = 0;
  const char* instruction = nullptr;
  void* arguments[32] = {};
};

class Block {
 public:
  Block(int index, int threads, uint32_t shared_bytes, const std::function<void()>& kernel)
      : index_(index), kernel_(kernel), threads_(threads), warps_((threads + 31) / 32) {
    memory_ = std::make_unique<uint8_t[]>(shared_bytes);
    std::memset(memory_.get(), 0xff, shared_bytes);
    bytes_ = shared_bytes;
    words_.resize((shared_bytes + kWord - 1) / kWord);
    for (int t = 0; t < threads; ++t) threads_[static_cast<size_t>(t)].index = t;
  }

  void run();
  void yield();

  Thread& now() { return *now_; }
  Warp& warp() { return warps_[static_cast<size_t>(now_->index / 32)]; }
  int index() const { return index_; }
  int threads() const { return static_cast<int>(threads_.size()); }

  void sync();
  void meet(const char* instruction, void* arguments, emulator::Together together);
  void read(uint32_t from, void* to, uint32_t bytes, bool by_warp);
  void write(uint32_t to, const void* from, uint32_t bytes);
  void copy(uint32_t to, const void* from, uint32_t bytes);
  void wait(int left);

 private:
  // Offset of the first byte, after checks.
  uint32_t check(const char* what, uint32_t at, uint32_t bytes) const {
    if (at < kBase || at - kBase > bytes_ || bytes > bytes_ - (at - kBase))
      emulator::fail(fmt::format("{} of {} bytes at {}: shared memory has {}", what, bytes,
                                 int64_t{at} - kBase, bytes_));
    if (at % bytes != 0) emulator::fail(fmt::format("{} of {} bytes at {}: misaligned", what, bytes, at));
    return at - kBase;
  }
  Touch touch() { return {now_->index, block_time_, warp().time}; }
  // Whether the touch is ordered before what thread `now` does, or what its whole warp does.
  bool ordered(const Touch& before, bool by_warp) {
    if (before.thread < 0 || before.block_time < block_time_) return true;
    if (before.thread == now_->index && !by_warp) return true;
    return before.thread / 32 == now_->index / 32 && before.warp_time < warp().time;
  }
  void check_overwrite(const Word& word, uint32_t offset) {
    if (word.pending) emulator::fail(fmt::format("write to {}, to which a cp.async is on its way", offset));
    if (!ordered(word.writer, false))
      emulator::fail(fmt::format("write to {}, which thread {} wrote: no barrier in between", offset,
                                 word.writer.thread));
    const bool read = word.reader.thread >= 0 && word.reader.block_time == block_time_;
    if ((read && word.many_warps_read) || !ordered(word.reader, false))
      emulator::fail(fmt::format("write to {}, which thread {} read: no barrier in between", offset,
                                 word.reader.thread));
  }

  int index_ = 0;
  const std::function<void()>& kernel_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::unique_ptr<uint8_t[]> memory_;
  uint32_t bytes_ = 0;
  std::vector<Word> words_;
  uint32_t block_time_ = 0;
  int at_barrier_ = 0;
  uint64_t progress_ = 0;  // grows whenever anybody may continue
  Thread* now_ = nullptr;
  std::exception_ptr failure_;
  boost::context::fiber scheduler_;  // while a thread runs: where yield() goes
#if defined(__SANITIZE_ADDRESS__)
  void* scheduler_stack_ = nullptr;  // "fake stack" of the sanitizer
  const void* scheduler_bottom_ = nullptr;
  size_t scheduler_bytes_ = 0;
#endif
};

thread_local Block* running = nullptr;

using Stack = std::unique_ptr<char[]>;

void Block::yield() {
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, scheduler_bottom_, scheduler_bytes_);
#endif
  scheduler_ = std::move(scheduler_).resume();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, &scheduler_bottom_, &scheduler_bytes_);
#endif
}

void Block::run() {
  using boost::context::fiber;
  thread_local std::vector<Stack> stacks;
  while (stacks.size() < threads_.size()) stacks.push_back(std::make_unique<char[]>(kStackBytes));
  running = this;
#if defined(__SANITIZE_ADDRESS__)  // a block that failed leaves the marks of its frames
  for (const Stack& stack : stacks) ASAN_UNPOISON_MEMORY_REGION(stack.get(), kStackBytes);
#endif

  // A fixed allocator that neither allocates nor frees: the stacks are used again by the next block.
  struct Lent {
    char* memory;
    boost::context::stack_context allocate() {
      boost::context::stack_context stack;
      stack.size = kStackBytes;
      stack.sp = memory + kStackBytes;
      return stack;
    }
    void deallocate(boost::context::stack_context&) {}
  };
  std::vector<fiber> fibers;
  for (size_t t = 0; t < threads_.size(); ++t) {
    fibers.emplace_back(std::allocator_arg, Lent{stacks[t].get()}, [this](fiber&& from) {
#if defined(__SANITIZE_ADDRESS__)
      __sanitizer_finish_switch_fiber(nullptr, &scheduler_bottom_, &scheduler_bytes_);
#endif
      scheduler_ = std::move(from);
      try {
        kernel_();
      } catch (const boost::context::detail::forced_unwind&) {
        throw;
      } catch (...) {
        if (failure_ == nullptr) failure_ = std::current_exception();
      }
      now_->done = true;
      ++progress_;
#if defined(__SANITIZE_ADDRESS__)
      __sanitizer_start_switch_fiber(nullptr, scheduler_bottom_, scheduler_bytes_);
#endif
      return std::move(scheduler_);
    });
  }
  size_t left = threads_.size();
  while (left > 0 && failure_ == nullptr) {
    const uint64_t before = progress_;
    for (size_t t = 0; t < threads_.size() && failure_ == nullptr; ++t) {
      if (threads_[t].done) continue;
      now_ = &threads_[t];
#if defined(__SANITIZE_ADDRESS__)
      __sanitizer_start_switch_fiber(&scheduler_stack_, stacks[t].get(), kStackBytes);
#endif
      fibers[t] = std::move(fibers[t]).resume();
#if defined(__SANITIZE_ADDRESS__)
      __sanitizer_finish_switch_fiber(scheduler_stack_, nullptr, nullptr);
#endif
      if (threads_[t].done) --left;
    }
    if (progress_ == before && failure_ == nullptr) {
      failure_ = std::make_exception_ptr(
          EmulationError("no thread of the block can continue: a barrier that not all of them come to"));
    }
  }
  running = nullptr;
  // What is left of a failed block is abandoned, not unwound: threads hold nothing of their own.
  static auto* const abandoned = new std::vector<fiber>;
  for (fiber& one : fibers)
    if (one) abandoned->push_back(std::move(one));
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

void Block::sync() {
  const uint32_t before = block_time_;
  if (++at_barrier_ == threads()) {
    at_barrier_ = 0;
    ++block_time_;
    for (Warp& warp : warps_) ++warp.time;
    ++progress_;
    return;
  }
  while (block_time_ == before) yield();
}

void Block::meet(const char* instruction, void* arguments, emulator::Together together) {
  Warp& warp = this->warp();
  if (warp.arrived == 0) warp.instruction = instruction;
  if (std::strcmp(warp.instruction, instruction) != 0)
    emulator::fail(fmt::format("lanes of a warp are at {} and at {}", warp.instruction, instruction));
  warp.arguments[now_->index % 32] = arguments;
  const uint64_t before = warp.meeting;
  if (++warp.arrived == 32) {
    warp.arrived = 0;
    together(warp.arguments);
    ++warp.meeting;
    ++progress_;
    return;
  }
  while (warp.meeting == before) yield();
}

void Block::read(uint32_t from, void* to, uint32_t bytes, bool by_warp) {
  const uint32_t offset = check("read", from, bytes);
  for (uint32_t w = offset / kWord; w < (offset + bytes + kWord - 1) / kWord; ++w) {
    Word& word = words_[w];
    if (word.pending) emulator::fail(fmt::format("read of {} before the wait for its cp.async", w * kWord));
    if (!word.written) emulator::fail(fmt::format("read of {}, which nobody wrote", w * kWord));
    if (!ordered(word.writer, by_warp))
      emulator::fail(fmt::format("read of {}, which thread {} wrote: no barrier in between", w * kWord,
                                 word.writer.thread));
    const bool again = word.reader.thread >= 0 && word.reader.block_time == block_time_;
    word.many_warps_read = again && (word.many_warps_read || word.reader.thread / 32 != now_->index / 32);
    word.reader = touch();
  }
  std::memcpy(to, memory_.get() + offset, bytes);
}

void Block::write(uint32_t to, const void* from, uint32_t bytes) {
  const uint32_t offset = check("write", to, bytes);
  for (uint32_t w = offset / kWord; w < (offset + bytes + kWord - 1) / kWord; ++w) {
    check_overwrite(words_[w], w * kWord);
    words_[w].written = true;
    words_[w].writer = touch();
  }
  std::memcpy(memory_.get() + offset, from, bytes);
}

void Block::copy(uint32_t to, const void* from, uint32_t bytes) {
  const uint32_t offset = check("cp.async", to, bytes);
  AsyncCopy copy{.to = offset};
  if (from != nullptr) {
    if (reinterpret_cast<uintptr_t>(from) % bytes != 0)
      emulator::fail(fmt::format("cp.async of {} bytes from {}: misaligned", bytes, from));
    std::memcpy(copy.data, from, bytes);
  }
  for (uint32_t w = offset / kWord; w < (offset + bytes) / kWord; ++w) {
    check_overwrite(words_[w], w * kWord);
    words_[w].pending = true;
    words_[w].writer = touch();
  }
  now_->open.push_back(copy);
}

void Block::wait(int left) {
  auto& groups = now_->groups;
  for (; static_cast<int>(groups.size()) > left; groups.pop_front()) {
    for (const AsyncCopy& copy : groups.front()) {
      std::memcpy(memory_.get() + copy.to, copy.data, sizeof(copy.data));
      for (uint32_t w = copy.to / kWord; w < (copy.to + sizeof(copy.data)) / kWord; ++w) {
        words_[w].pending = false;
        words_[w].written = true;
        words_[w].writer = touch();
      }
    }
  }
}

}  // namespace

void run_grid(int64_t blocks, int threads, uint32_t shared_bytes, const std::function<void()>& kernel) {
  for (int64_t b = 0; b < blocks; ++b) Block(static_cast<int>(b), threads, shared_bytes, kernel).run();
}

namespace emulator {

int thread() {
  return running->now().index;
}
int block() {
  return running->index();
}
uint32_t shared_base() {
  return kBase;
}
void meet(const char* instruction, void* arguments, Together together) {
  running->meet(instruction, arguments, together);
}
void sync_block() {
  running->sync();
}
void sync_warp() {
  running->meet("syncwarp", nullptr, [](void* const(&)[32]) { ++running->warp().time; });
}
void read_shared(uint32_t from, void* to, uint32_t bytes, bool by_warp) {
  running->read(from, to, bytes, by_warp);
}
void write_shared(uint32_t to, const void* from, uint32_t bytes) {
  running->write(to, from, bytes);
}
void copy_async(uint32_t to, const void* from, uint32_t bytes) {
  running->copy(to, from, bytes);
}
void commit_group() {
  Thread& thread = running->now();
  thread.groups.push_back(std::exchange(thread.open, {}));
}
void wait_groups(int left) {
  running->wait(left);
}
void fail(const std::string& what) {
  throw EmulationError(fmt::format("block {}, thread {}: {}", block(), thread(), what));
}

}  // namespace emulator
}  // namespace longspan::portable
