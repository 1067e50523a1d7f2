#include "comm/nccl.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include <dlfcn.h>
#include <nccl.h>

#include "base/cuda/cuda.h"
#include "base/cuda/graph_calls.h"
#include "base/error.h"
#include "comm/delay.h"
#include "comm/rendezvous.h"

namespace longspan {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The delay of a compute stream after NCCL's stream reaches an exchange. An attention kernel occupies all SMs
// until it ends, so NCCL's kernel must start first or no data moves until then. On H200, 3 us were enough
// over NVLink and 6 us (the smallest value tried) through host memory. Without a delay NCCL's kernel always
// started second, whatever the stream priorities.
constexpr double kHeadStart_s = 8e-6;

struct Library {
  std::string reason;  // empty if it was found
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
};

Library open_library() {
  Library library;
  void* handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = dlerror();
    library.reason = fmt::format("libnccl.so.2 was not found; add its folder to LD_LIBRARY_PATH ({})",
                                 error == nullptr ? "no further reason" : error);
    return library;
  }
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && library.reason.empty())
      library.reason = fmt::format("libnccl.so.2 has no {}", name);
  };
  load(library.get_version, "ncclGetVersion");
  load(library.get_unique_id, "ncclGetUniqueId");
  load(library.init, "ncclCommInitRankConfig");
  load(library.async_error, "ncclCommGetAsyncError");
  load(library.abort, "ncclCommAbort");
  load(library.group_start, "ncclGroupStart");
  load(library.group_end, "ncclGroupEnd");
  load(library.send, "ncclSend");
  load(library.receive, "ncclRecv");
  load(library.error_string, "ncclGetErrorString");
  load(library.last_error, "ncclGetLastError");
  return library;
}

const Library& library() {
  static const Library library = open_library();
  return library;
}

// Communicators are nonblocking: a call may return ncclInProgress and complete later.
void check_nccl(ncclResult_t result, const char* call) {
  LONGSPAN_CHECK(result == ncclSuccess || result == ncclInProgress, "NCCL: {} ({}): {}",
                 library().error_string(result), call, library().last_error(nullptr));
}
#define LONGSPAN_NCCL(call) check_nccl(call, #call)

// The state of a group whose ranks are threads.
class ThreadAlarm : public Alarm {
 public:
  ThreadAlarm(int ranks, milliseconds limit) : ranks_(ranks), limit_(limit) {}

  void fail(const std::string& reason) override {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = reason;
    changed_.notify_all();
  }

  std::string failure() override {
    std::lock_guard lock(mutex_);
    return failure_;
  }

  void barrier() override {
    std::unique_lock lock(mutex_);
    const uint64_t mine = passed_ + 1;
    if (++arrived_ == ranks_) {
      arrived_ = 0;
      ++passed_;
      changed_.notify_all();
    }
    if (!changed_.wait_for(lock, limit_, [&] { return passed_ >= mine || !failure_.empty(); }))
      failure_ = fmt::format("not all ranks came to a barrier within {} ms", limit_.count());
    if (failure_.empty()) return;
    changed_.notify_all();
    throw Error(ErrorKind::kPeer, failure_, __FILE__, __LINE__, "failure.empty()");
  }

 private:
  const int ranks_;
  const milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;
  int arrived_ = 0;
  uint64_t passed_ = 0;
};

// The state of one rank whose group meets elsewhere.
class OwnAlarm : public Alarm {
 public:
  void fail(const std::string& reason) override {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = reason;
  }

  std::string failure() override {
    std::lock_guard lock(mutex_);
    return failure_;
  }

  void barrier() override { LONGSPAN_CHECK(false, "this group has no barrier of its own"); }

 private:
  std::mutex mutex_;
  std::string failure_;
};

ncclConfig_t configuration() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

// One rank's endpoint: an NCCL communicator and its stream for each channel. NCCL serializes the exchanges of
// one communicator: with a single one, a round's gradients would delay the next round's keys until the kernel
// has ended.
struct End {
  End(int rank, int size, int index, std::shared_ptr<Alarm> alarm, milliseconds limit)
      : rank(rank), size(size), index(index), alarm(std::move(alarm)), limit(limit) {
    const cuda::DeviceGuard guard(index);
    // NCCL's kernels take priority when SMs become free.
    int least = 0, greatest = 0;
    LONGSPAN_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    for (Stream& stream : streams) {
      cudaStream_t raw = nullptr;
      LONGSPAN_CUDA(cudaStreamCreateWithPriority(&raw, cudaStreamNonBlocking, greatest));
      stream.handle = raw;
    }
  }

  ~End() {
    abort();
    for (const Stream stream : streams) cudaStreamDestroy(cuda::raw(stream));
  }

  // Starts connecting the ranks. All ranks pass the same identifiers, one per channel.
  void connect(std::span<ncclUniqueId, kChannels> ids) {
    const cuda::DeviceGuard guard(index);
    for (size_t channel = 0; channel < kChannels; ++channel) {
      ncclConfig_t config = configuration();
      LONGSPAN_NCCL(library().init(&communicators[channel], size, ids[channel], rank, &config));
    }
  }

  // Stops kernels that wait for another rank, since device memory cannot be freed while they run. Unlike
  // ncclCommDestroy it does not block; callers have already waited for all needed results.
  void abort() {
    const cuda::DeviceGuard guard(index);
    const std::scoped_lock lock(mutex);
    for (ncclComm_t& communicator : communicators) {
      if (communicator != nullptr) library().abort(communicator);
      communicator = nullptr;
    }
  }

  void check() {
    const std::string failure = alarm->failure();
    if (failure.empty()) return;
    abort();
    throw Error(ErrorKind::kPeer, failure, __FILE__, __LINE__, "failure.empty()");
  }

  // Polls done() until it is true; fails the group on a timeout or an NCCL error.
  template <class Done>
  void poll(const char* what, Done done) {
    const auto deadline = Clock::now() + limit;
    while (!done()) {
      check();
      check_nccl_state();
      if (Clock::now() > deadline)
        alarm->fail(fmt::format("rank {} timed out after {} ms waiting for {}", rank, limit.count(), what));
      std::this_thread::yield();
    }
  }

  void settle(const char* what) {
    poll(what, [&] {
      const std::scoped_lock lock(mutex);
      return std::all_of(communicators.begin(), communicators.end(), [](ncclComm_t communicator) {
        if (communicator == nullptr) return false;
        ncclResult_t state = ncclSuccess;
        LONGSPAN_NCCL(library().async_error(communicator, &state));
        return state == ncclSuccess;
      });
    });
  }

  // Fails the group if NCCL reports an error.
  void check_nccl_state() {
    const std::scoped_lock lock(mutex);
    for (const ncclComm_t communicator : communicators) {
      if (communicator == nullptr) continue;
      ncclResult_t state = ncclSuccess;
      LONGSPAN_NCCL(library().async_error(communicator, &state));
      if (state == ncclSuccess || state == ncclInProgress) continue;
      alarm->fail(fmt::format("rank {}: NCCL: {}: {}", rank, library().error_string(state),
                              library().last_error(communicator)));
    }
  }

  // An exchange in a channel's stream, while it may not have ended.
  struct Pending {
    std::shared_ptr<cuda::Event> begun, done;
    std::optional<Clock::time_point> seen_begun{};
  };

  std::shared_ptr<cuda::Event> event_in(Stream stream) const {
    auto event = std::make_shared<cuda::Event>(index, cuda::Event::Timing::kOff);
    event->record(stream);
    return event;
  }

  // Notes an exchange for watch().
  void note(size_t channel, Pending exchange) {
    const std::scoped_lock lock(pending_mutex);
    std::deque<Pending>& waiting = pending[channel];
    for (int i = 0; i < 2 && !waiting.empty() && waiting.front().done->reached(); ++i) waiting.pop_front();
    waiting.push_back(std::move(exchange));
  }

  // Fails the group if an exchange has begun and has not ended within the limit, or if NCCL reports an error.
  void watch() {
    const cuda::DeviceGuard guard(index);
    const cuda::OutsideCapture outside;  // another thread may be capturing
    {
      const std::scoped_lock lock(pending_mutex);
      for (std::deque<Pending>& waiting : pending) {
        while (!waiting.empty() && waiting.front().done->reached()) waiting.pop_front();
        if (waiting.empty() || !waiting.front().begun->reached()) continue;
        std::optional<Clock::time_point>& since = waiting.front().seen_begun;
        if (!since) since = Clock::now();
        if (Clock::now() - *since > limit)
          alarm->fail(fmt::format("rank {} timed out after {} ms waiting for data of its peers", rank,
                                  limit.count()));
      }
    }
    check_nccl_state();
    check();
  }

  const int rank, size, index;
  const std::shared_ptr<Alarm> alarm;
  const milliseconds limit;
  bool watched = false;                               // watch() is called
  std::mutex mutex;                                   // of the communicators: watch() may abort them
  std::array<ncclComm_t, kChannels> communicators{};  // null once they were aborted
  std::array<Stream, kChannels> streams{};
  std::mutex pending_mutex;
  std::array<std::deque<Pending>, kChannels> pending;  // if watched
};

class NcclTransfer : public Transfer {
 public:
  NcclTransfer(std::shared_ptr<End> end, std::shared_ptr<cuda::Event> done)
      : end_(std::move(end)), done_(std::move(done)) {}

  void wait(Stream stream) override {
    end_->check();
    done_->wait_in(stream);
  }

 private:
  const std::shared_ptr<End> end_;
  const std::shared_ptr<cuda::Event> done_;
};

class NcclCommunicator : public Communicator {
 public:
  explicit NcclCommunicator(std::shared_ptr<End> end) : end_(std::move(end)) {}

  int rank() const override { return end_->rank; }
  int size() const override { return end_->size; }
  std::string_view name() const override { return "nccl"; }
  bool takes_multiprocessors() const override { return true; }
  void fail(const std::string& reason) override {
    end_->alarm->fail(reason);
    end_->abort();
  }
  void barrier() override { end_->alarm->barrier(); }

  std::unique_ptr<Transfer> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                     Stream stream, Meanwhile meanwhile, Channel channel) override {
    end_->check();
    for (auto messages : {sends, receives}) {
      for (const Message& message : messages) {
        LONGSPAN_CHECK(0 <= message.peer && message.peer < size(), "peer {} is not one of the {} ranks",
                       message.peer, size());
      }
    }
    const cuda::DeviceGuard guard(end_->index);
    const auto number = static_cast<size_t>(channel);
    const Stream own = end_->streams[number];
    cuda::Event posted(end_->index, cuda::Event::Timing::kOff);
    posted.record(stream);
    posted.wait_in(own);
    std::shared_ptr<cuda::Event> begun;
    if (meanwhile == Meanwhile::kComputes || end_->watched) begun = end_->event_in(own);
    if (meanwhile == Meanwhile::kComputes) {
      begun->wait_in(stream);
      delay(stream, kHeadStart_s);
    }
    send_and_receive(sends, receives, number, own);
    end_->settle("its peers to take part in an exchange");
    const std::shared_ptr<cuda::Event> done = end_->event_in(own);
    if (end_->watched) end_->note(number, {begun, done});
    return std::make_unique<NcclTransfer>(end_, done);
  }

  void watch() override { end_->watch(); }

  void synchronize(Stream stream) override {
    const auto passed = [](Stream s) {
      const cudaError_t status = cudaStreamQuery(cuda::raw(s));
      if (status == cudaErrorNotReady) return false;
      LONGSPAN_CUDA(status);
      return true;
    };
    end_->poll("its device", [&] {
      return passed(stream) && std::all_of(end_->streams.begin(), end_->streams.end(), passed);
    });
  }

 private:
  void send_and_receive(std::span<const Message> sends, std::span<const Message> receives, size_t channel,
                        Stream stream) {
    const std::scoped_lock lock(end_->mutex);
    const ncclComm_t communicator = end_->communicators[channel];
    LONGSPAN_CHECK(communicator != nullptr, "NCCL was stopped: {}", end_->alarm->failure());
    LONGSPAN_NCCL(library().group_start());
    for (const Message& message : receives) {
      if (message.bytes > 0)
        LONGSPAN_NCCL(library().receive(message.data, message.bytes, ncclChar, message.peer, communicator,
                                        cuda::raw(stream)));
    }
    for (const Message& message : sends) {
      if (message.bytes > 0)
        LONGSPAN_NCCL(library().send(message.data, message.bytes, ncclChar, message.peer, communicator,
                                     cuda::raw(stream)));
    }
    LONGSPAN_NCCL(library().group_end());
  }

  const std::shared_ptr<End> end_;
};

// Makes the end of a rank that is a process. All pass the same identifiers.
std::unique_ptr<Communicator> connected(std::shared_ptr<End> end, const std::string& identifiers) {
  std::array<ncclUniqueId, kChannels> ids{};
  LONGSPAN_CHECK_INPUT(identifiers.size() == sizeof(ids),
                       "identifiers of {} bytes: must be the {} of nccl_identifiers()", identifiers.size(),
                       sizeof(ids));
  std::memcpy(ids.data(), identifiers.data(), sizeof(ids));
  LONGSPAN_NCCL(library().group_start());
  end->connect(ids);
  LONGSPAN_NCCL(library().group_end());
  end->settle("NCCL to connect the ranks");
  return std::make_unique<NcclCommunicator>(std::move(end));
}

}  // namespace

std::string nccl_unavailable_reason() {
  return library().reason;
}

std::string nccl_version() {
  int version = 0;
  if (!library().reason.empty() || library().get_version(&version) != ncclSuccess) return "";
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::vector<std::unique_ptr<Communicator>> nccl_communicators(std::span<const Device> devices,
                                                              milliseconds limit) {
  LONGSPAN_CHECK_INPUT(library().reason.empty(), "{}", library().reason);
  std::set<int> different;
  for (const Device& device : devices) different.insert(device.index);
  LONGSPAN_CHECK_INPUT(
      different.size() == devices.size(),
      "NCCL needs a GPU for each rank: {} ranks, {} GPUs; with fewer use the transport threads",
      devices.size(), different.size());
  const int size = static_cast<int>(devices.size());
  const auto alarm = std::make_shared<ThreadAlarm>(size, limit);
  std::array<ncclUniqueId, kChannels> ids;
  for (ncclUniqueId& id : ids) LONGSPAN_NCCL(library().get_unique_id(&id));
  std::vector<std::shared_ptr<End>> ends;
  LONGSPAN_NCCL(library().group_start());
  for (int rank = 0; rank < size; ++rank) {
    const int index = devices[static_cast<size_t>(rank)].index;
    ends.push_back(std::make_shared<End>(rank, size, index, alarm, limit));
    ends.back()->connect(ids);
  }
  LONGSPAN_NCCL(library().group_end());
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (const auto& end : ends) {
    end->settle("NCCL to connect the ranks");
    communicators.push_back(std::make_unique<NcclCommunicator>(end));
  }
  return communicators;
}

std::unique_ptr<Communicator> nccl_communicator(const Launch& launch, const Device& device,
                                                milliseconds limit) {
  LONGSPAN_CHECK_INPUT(library().reason.empty(), "{}", library().reason);
  const std::shared_ptr<Rendezvous> rendezvous = Rendezvous::meet(launch, limit);
  const std::string identifiers = rendezvous->broadcast(launch.rank == 0 ? nccl_identifiers() : "");
  return connected(std::make_shared<End>(launch.rank, launch.ranks, device.index, rendezvous, limit),
                   identifiers);
}

std::string nccl_identifiers() {
  LONGSPAN_CHECK_INPUT(library().reason.empty(), "{}", library().reason);
  std::array<ncclUniqueId, kChannels> ids;
  for (ncclUniqueId& id : ids) LONGSPAN_NCCL(library().get_unique_id(&id));
  return {reinterpret_cast<const char*>(ids.data()), sizeof(ids)};
}

std::unique_ptr<Communicator> nccl_communicator(int rank, int size, const std::string& identifiers,
                                                const Device& device, milliseconds limit) {
  LONGSPAN_CHECK_INPUT(library().reason.empty(), "{}", library().reason);
  const auto end = std::make_shared<End>(rank, size, device.index, std::make_shared<OwnAlarm>(), limit);
  end->watched = true;
  return connected(end, identifiers);
}

}  // namespace longspan
