#include "cp/execute/crew.h"

#include "base/backend.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/thread.h"

namespace longspan {

Crew::Crew(std::vector<std::unique_ptr<Communicator>> ends, std::vector<Device> devices)
    : ends_(std::move(ends)), devices_(std::move(devices)) {
  LONGSPAN_CHECK(ends_.size() == devices_.size(), "{} ranks on {} devices", ends_.size(), devices_.size());
  try {
    for (size_t rank = 0; rank < ends_.size(); ++rank)
      threads_.push_back(start_thread([this, rank] { work(rank); }));
  } catch (...) {
    stop();
    throw;
  }
}

Crew::~Crew() {
  stop();
}

void Crew::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  told_.notify_all();
  threads_.clear();  // joins them
}

void Crew::run(const std::function<void(Communicator&)>& body) {
  std::unique_lock lock(mutex_);
  first_ = nullptr;
  body_ = &body;
  running_ = ends_.size();
  ++generation_;
  told_.notify_all();
  ended_.wait(lock, [&] { return running_ == 0; });
  if (first_) std::rethrow_exception(first_);
}

void Crew::work(size_t rank) {
  const AloneScope alone;  // ranks do not share a thread pool
  Communicator& communicator = *ends_[rank];
  uint64_t seen = 0;
  bool device_chosen = false;
  for (;;) {
    const std::function<void(Communicator&)>* body = nullptr;
    {
      std::unique_lock lock(mutex_);
      told_.wait(lock, [&] { return stopping_ || generation_ != seen; });
      if (stopping_) return;
      seen = generation_;
      body = body_;
    }
    try {
      if (!device_chosen) backend_of(devices_[rank].kind).use(devices_[rank].index);
      device_chosen = true;
      (*body)(communicator);
    } catch (...) {
      {
        std::lock_guard lock(mutex_);
        if (!first_) first_ = std::current_exception();
      }
      fail_group(communicator);
    }
    std::lock_guard lock(mutex_);
    if (--running_ == 0) ended_.notify_all();
  }
}

}  // namespace longspan
