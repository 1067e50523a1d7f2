// The next steps of a persistent kernel's CTAs, in a simulation of all of them. Host code without CUDA.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace longspan::plan {

// CTAs by the time of their next step; those of the same time in the order in which they were added. Each is
// in the agenda at most once, and no time is before that of the CTA taken last.
class Agenda {
 public:
  explicit Agenda(int32_t workers) : entries_(static_cast<size_t>(workers)) {}

  void add(int32_t worker, int32_t time) {
    entries_[static_cast<size_t>(worker)].time = time;
    put(worker, time);
  }
  int32_t now() const { return now_; }
  // The agenda must not be empty.
  int32_t take() {
    for (;;) {
      Slot& slot = slots_[now_ % kSlots];
      while (slot.first >= 0) {
        const int32_t worker = slot.first;
        const Entry& entry = entries_[static_cast<size_t>(worker)];
        slot.first = entry.next;
        if (entry.time <= now_) return worker;
        put(worker, entry.time);
      }
      ++now_;
    }
  }

 private:
  static constexpr int32_t kSlots = 512;
  struct Slot {
    int32_t first = -1, last = -1;
  };
  struct Entry {
    int32_t time = 0, next = -1;
  };

  // A time too far ahead for a slot of its own waits in the last slot.
  void put(int32_t worker, int32_t time) {
    Slot& slot = slots_[std::min(time, now_ + kSlots - 1) % kSlots];
    entries_[static_cast<size_t>(worker)].next = -1;
    if (slot.first < 0)
      slot.first = worker;
    else
      entries_[static_cast<size_t>(slot.last)].next = worker;
    slot.last = worker;
  }

  std::array<Slot, kSlots> slots_;
  std::vector<Entry> entries_;
  int32_t now_ = 0;
};

}  // namespace longspan::plan
