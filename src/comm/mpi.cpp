#include "comm/mpi.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <mpi.h>
#include <unistd.h>

#include "base/error.h"
#include "longspan/parallel.h"

// Throws an Error with MPI's message if a call fails.
#define LONGSPAN_MPI(call)                                               \
  do {                                                                   \
    const int code_ = (call);                                            \
    LONGSPAN_CHECK(code_ == MPI_SUCCESS, "MPI: {}", mpi_message(code_)); \
  } while (false)

namespace longspan {
namespace {

constexpr int kDataTag = 1, kFailureTag = 2;
constexpr size_t kLargest = size_t{1} << 30;  // bytes per MPI message: MPI counts are ints

std::string mpi_message(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, static_cast<size_t>(length)};
}

// g_unreachable: a rank is gone or hangs, so MPI_Finalize would block for ever. g_failed: a rank has failed,
// and pending messages may block MPI_Finalize.
bool g_unreachable = false, g_failed = false;
constexpr unsigned kFinalizeLimit_s = 20;

void initialise() {
  int initialised = 0;
  LONGSPAN_MPI(MPI_Initialized(&initialised));
  if (initialised) return;
  int provided = 0;
  LONGSPAN_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided));
  LONGSPAN_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  std::atexit([] {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (finalised) return;
    if (g_unreachable) {
      // The launcher kills all ranks at once, and may lose what they have just written: the reason.
      std::this_thread::sleep_for(std::chrono::seconds(1));
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (g_failed) alarm(kFinalizeLimit_s);  // SIGALRM ends the process
    MPI_Finalize();
  });
}

// State shared by all transfers of this rank.
struct Job {
  int rank = 0, size = 1;
  std::chrono::milliseconds limit{};
  std::string failure;  // set once the group has ended
  Alarm* alarm = nullptr;
  std::chrono::steady_clock::time_point next_look{};

  void check() const {
    if (failure.empty()) return;
    g_failed = true;
    throw Error(ErrorKind::kPeer, failure, __FILE__, __LINE__, "failure.empty()");
  }

  // Records a failure that another rank has announced, or the death of a rank.
  void listen() {
    if (const auto now = std::chrono::steady_clock::now(); alarm != nullptr && now >= next_look) {
      next_look = now + std::chrono::milliseconds(20);
      if (failure.empty()) failure = alarm->failure();
      g_unreachable = g_unreachable || !failure.empty();
    }
    int there = 0;
    MPI_Status status;
    LONGSPAN_MPI(MPI_Iprobe(MPI_ANY_SOURCE, kFailureTag, MPI_COMM_WORLD, &there, &status));
    if (!there) return;
    int length = 0;
    LONGSPAN_MPI(MPI_Get_count(&status, MPI_CHAR, &length));
    std::string reason(static_cast<size_t>(length), ' ');
    LONGSPAN_MPI(MPI_Recv(reason.data(), length, MPI_CHAR, status.MPI_SOURCE, kFailureTag, MPI_COMM_WORLD,
                          MPI_STATUS_IGNORE));
    if (failure.empty()) failure = reason;
  }
};

class MpiTransfer : public Transfer {
 public:
  explicit MpiTransfer(std::shared_ptr<Job> group) : group_(std::move(group)) {}

  // Incomplete requests remain only after a failure. Cancel them so that the buffers can be freed.
  ~MpiTransfer() override {
    for (MPI_Request& request : requests_) {
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  }

  void add_send(const Message& message) {
    for_each_part(message, [&](void* data, int bytes) {
      MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
      LONGSPAN_MPI(MPI_Isend(data, bytes, MPI_BYTE, message.peer, kDataTag, MPI_COMM_WORLD, &request));
    });
  }

  void add_receive(const Message& message) {
    for_each_part(message, [&](void* data, int bytes) {
      MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
      LONGSPAN_MPI(MPI_Irecv(data, bytes, MPI_BYTE, message.peer, kDataTag, MPI_COMM_WORLD, &request));
    });
  }

  void wait(Stream) override {
    const auto deadline = std::chrono::steady_clock::now() + group_->limit;
    for (int done = 0; !done;) {
      group_->check();
      LONGSPAN_MPI(
          MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE));
      if (done) break;
      group_->listen();
      if (std::chrono::steady_clock::now() > deadline) {
        g_unreachable = true;
        group_->failure = fmt::format("rank {} timed out after {} ms waiting for its peers", group_->rank,
                                      group_->limit.count());
      }
      std::this_thread::yield();
    }
    requests_.clear();
  }

 private:
  template <class Visit>
  static void for_each_part(const Message& message, const Visit& visit) {
    for (size_t at = 0; at < message.bytes; at += kLargest) {
      visit(static_cast<char*>(message.data) + at, static_cast<int>(std::min(kLargest, message.bytes - at)));
    }
  }

  std::shared_ptr<Job> group_;
  std::vector<MPI_Request> requests_;
};

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(std::chrono::milliseconds limit, Alarm* alarm) : group_(std::make_shared<Job>()) {
    LONGSPAN_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &group_->rank));
    LONGSPAN_MPI(MPI_Comm_size(MPI_COMM_WORLD, &group_->size));
    group_->limit = limit;
    group_->alarm = alarm;
  }

  int rank() const override { return group_->rank; }
  int size() const override { return group_->size; }
  std::string_view name() const override { return "mpi"; }

  std::unique_ptr<Transfer> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                     Stream, Meanwhile, Channel) override {
    group_->check();
    auto transfer = std::make_unique<MpiTransfer>(group_);
    for (auto messages : {sends, receives}) {
      for (const Message& message : messages) {
        LONGSPAN_CHECK(0 <= message.peer && message.peer < size(), "peer {} is not one of the {} ranks",
                       message.peer, size());
      }
    }
    for (const Message& receive : receives) transfer->add_receive(receive);
    for (const Message& send : sends) transfer->add_send(send);
    return transfer;
  }

  void fail(const std::string& reason) override {
    if (!group_->failure.empty()) return;
    group_->failure = reason;
    g_failed = true;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      // an eager message: nothing waits for it
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(group_->failure.data(), static_cast<int>(reason.size()), MPI_CHAR, peer, kFailureTag,
                MPI_COMM_WORLD, &request);
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
  }

 private:
  std::shared_ptr<Job> group_;
};

}  // namespace

bool launched_by_mpi() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

std::unique_ptr<Communicator> mpi_communicator(std::chrono::milliseconds limit, Alarm* alarm) {
  initialise();
  return std::make_unique<MpiCommunicator>(limit, alarm);
}

Group mpi_processes(std::chrono::milliseconds limit) {
  check_wait_limit(limit);
  return Group(mpi_communicator(limit));
}

}  // namespace longspan
