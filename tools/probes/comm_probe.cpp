// A probe for work on communication between GPUs. It measures the rate and host time of an all-to-all by copy
// engines, by multiprocessors and by NCCL, and how long an exchange takes next to an attention kernel that
// follows it in the same stream.
//   comm_probe [megabytes for each peer ...]
//   comm_probe beside [megabytes for each peer ...]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "attention/problem.h"
#include "base/backend.h"
#include "base/buffer.h"
#include "base/cuda/cuda.h"
#include "base/cuda/cuda_gate.h"
#include "base/error.h"
#include "base/rng.h"
#include "comm/nccl.h"
#include "comm/threads.h"
#include "kernels/registry.h"

namespace longspan {
namespace {

using Clock = std::chrono::steady_clock;

enum class Pattern { kAll, kNext };

struct Time {
  double device_s = 0, host_s = 0;
};

// One rank's median time of an exchange. Rows are `row_bytes` long, with twice that stride at the sender
// (0: contiguous).
Time exchange_time(Communicator& communicator, const Device& gpu, Pattern pattern, size_t bytes,
                   size_t row_bytes, Meanwhile meanwhile) {
  const cuda::OwnedStream stream(gpu.index);
  const int me = communicator.rank(), ranks = communicator.size();
  const auto peers = static_cast<size_t>(ranks);
  const Buffer from(2 * bytes * peers, gpu), to(bytes * peers, gpu);
  std::vector<Message> sends, receives;
  for (int step = 1; step < (pattern == Pattern::kAll ? ranks : 2); ++step) {
    const int dst = (me + step) % ranks, src = (me - step + ranks) % ranks;
    Message send{dst, from.as<char>() + 2 * bytes * static_cast<size_t>(dst), bytes, 0, 0};
    if (row_bytes > 0) send.row_bytes = row_bytes, send.stride = 2 * row_bytes;
    sends.push_back(send);
    receives.push_back({src, to.as<char>() + bytes * static_cast<size_t>(src), bytes, 0, 0});
  }
  std::vector<double> device, host;
  for (int repeat = 0; repeat < 12; ++repeat) {
    cuda::Event begin(gpu.index), end(gpu.index);
    communicator.barrier();
    begin.record(stream);
    const auto started = Clock::now();
    communicator.exchange(sends, receives, stream, meanwhile)->wait(stream);
    host.push_back(std::chrono::duration<double>(Clock::now() - started).count());
    end.record(stream);
    communicator.synchronize(stream);
    device.push_back(end.seconds_since(begin));
  }
  std::sort(device.begin(), device.end());
  std::sort(host.begin(), host.end());
  return {device[device.size() / 2], host[host.size() / 2]};
}

std::vector<Device> gpus() {
  std::vector<Device> found;
  for (const Device& device : devices())
    if (device.kind == DeviceKind::kCuda) found.push_back(device);
  LONGSPAN_CHECK_INPUT(found.size() > 1, "needs several GPUs, not {}", found.size());
  return found;
}

// Full attention of 64:8 heads with 128 dimensions.
class Attention {
 public:
  Attention(int64_t tokens, const Device& gpu) {
    problem_.tokens_q = problem_.tokens_kv = tokens;
    problem_.heads_q = 64, problem_.heads_kv = 8, problem_.head_dim = 128;
    problem_.dtype = DType::kBF16;
    problem_.masks = std::make_shared<HeadMasks>(1, Mask(tokens, tokens, {Band{{0, tokens}, {0, tokens}}}));
    plan_ = kernel_from_name("sm90").plan(problem_, gpu);
    for (const int64_t heads : {64, 8, 8, 64, 64, 64, 8, 8}) {
      views_.push_back(TensorView::contiguous(nullptr, DType::kBF16, tokens, heads, 128));
      memory_.emplace_back(views_.back().bytes(), gpu);
      views_.back().data = memory_.back().data();
      fill_normal(views_.back(), 42, memory_.size(), gpu);
    }
    lse_ = Buffer(static_cast<size_t>(tokens) * 64 * 4, gpu);
    workspace_ = Buffer(std::max({plan_->workspace_bytes(Direction::kForward),
                                  plan_->workspace_bytes(Direction::kBackward), size_t{256}}),
                        gpu);
  }

  void run(Direction direction, Stream stream) {
    const auto& v = views_;
    if (direction == Direction::kForward) {
      plan_->forward({v[0], v[1], v[2], v[4], lse_.as<float>(), workspace_.data()}, stream);
    } else {
      plan_->backward({v[0], v[1], v[2], v[4], v[3], lse_.as<float>(), v[5], v[6], v[7], workspace_.data()},
                      stream);
    }
  }

 private:
  Problem problem_;
  std::unique_ptr<Plan> plan_;
  std::vector<TensorView> views_;
  std::vector<Buffer> memory_;
  Buffer lse_, workspace_;
};

struct BesideTime {
  double alone_s, attention_s, beside_s, both_s;
};

// The times of an exchange with the next rank alone, of the attention alone, of the exchange if the attention
// follows it in the same stream, and until both are done.
BesideTime beside(Communicator& communicator, const Device& gpu, Attention& attention, Direction direction,
                  size_t bytes, Meanwhile meanwhile) {
  const cuda::OwnedStream stream(gpu.index), other(gpu.index);
  const int ranks = communicator.size(), me = communicator.rank();
  const Buffer from(bytes, gpu), to(bytes, gpu);
  const Message send{(me + 1) % ranks, from.data(), bytes, 0, 0},
      receive{(me + ranks - 1) % ranks, to.data(), bytes, 0, 0};
  CudaGate gate(gpu.index);
  const auto time = [&](bool exchanges, bool attends) {
    std::vector<double> exchange_s, all_s;
    for (int repeat = 0; repeat < 7; ++repeat) {
      cuda::Event begin(gpu.index), arrived(gpu.index), end(gpu.index);
      communicator.barrier();
      gate.shut(stream, 0.2);
      begin.record(stream);
      std::unique_ptr<Transfer> transfer;
      if (exchanges) transfer = communicator.exchange({&send, 1}, {&receive, 1}, stream, meanwhile);
      if (attends) attention.run(direction, stream);
      if (exchanges) {
        transfer->wait(other);
        arrived.record(other);
        arrived.wait_in(stream);
      }
      end.record(stream);
      communicator.barrier();
      gate.open();
      communicator.synchronize(stream);
      communicator.synchronize(other);
      if (exchanges) exchange_s.push_back(arrived.seconds_since(begin));
      all_s.push_back(end.seconds_since(begin));
    }
    std::sort(exchange_s.begin(), exchange_s.end());
    std::sort(all_s.begin(), all_s.end());
    return std::pair(exchange_s.empty() ? 0 : exchange_s[3], all_s[3]);
  };
  time(true, true);
  const auto both = time(true, true);
  return {time(true, false).first, time(false, true).second, both.first, both.second};
}

int run_beside(const std::vector<size_t>& megabytes) {
  const std::vector<Device> devices = gpus();
  constexpr std::chrono::milliseconds kLimit(10000);
  for (const bool nccl : {false, true}) {
    auto ends = nccl ? nccl_communicators(devices, kLimit)
                     : thread_communicators(static_cast<int>(devices.size()), kLimit);
    std::vector<std::unique_ptr<Attention>> attention;
    for (const Device& gpu : devices) {
      backend_of(gpu.kind).use(gpu.index);
      attention.push_back(std::make_unique<Attention>(8192, gpu));
    }
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      for (const size_t size : megabytes) {
        for (const Meanwhile meanwhile : {Meanwhile::kComputes, Meanwhile::kWaits}) {
          if (!nccl && meanwhile == Meanwhile::kWaits) continue;
          std::vector<BesideTime> times(devices.size());
          std::vector<std::thread> threads;
          for (size_t rank = 0; rank < devices.size(); ++rank) {
            threads.emplace_back([&, rank] {
              backend_of(DeviceKind::kCuda).use(devices[rank].index);
              times[rank] =
                  beside(*ends[rank], devices[rank], *attention[rank], direction, size << 20, meanwhile);
            });
          }
          for (std::thread& thread : threads) thread.join();
          const BesideTime& t = times.front();
          std::printf(
              "%-7s %-8s %3zu MiB %s: exchange %6.3f ms alone, %6.3f beside; attention %6.3f, both %6.3f\n",
              nccl ? "nccl" : "threads", std::string(name_of(direction)).c_str(), size,
              meanwhile == Meanwhile::kComputes ? "first " : "at once", t.alone_s * 1e3, t.beside_s * 1e3,
              t.attention_s * 1e3, t.both_s * 1e3);
          std::fflush(stdout);
        }
      }
    }
  }
  return 0;
}

int run(const std::vector<size_t>& megabytes) {
  const std::vector<Device> devices = gpus();
  struct Way {
    const char* name;
    bool nccl;
    size_t row_bytes;
    Meanwhile meanwhile;
  };
  const Way ways[] = {{"copy engines", false, 0, Meanwhile::kComputes},
                      {"copy engines, rows of 512 B", false, 512, Meanwhile::kComputes},
                      {"copy engines, rows of 4 KiB", false, 4096, Meanwhile::kComputes},
                      {"multiprocessors", false, 0, Meanwhile::kWaits},
                      {"multiprocessors, rows of 512 B", false, 512, Meanwhile::kWaits},
                      {"multiprocessors, rows of 4 KiB", false, 4096, Meanwhile::kWaits},
                      {"NCCL", true, 0, Meanwhile::kWaits}};
  for (const Way& way : ways) {
    if (way.nccl && !nccl_unavailable_reason().empty()) continue;
    auto ends =
        way.nccl ? nccl_communicators(devices, std::chrono::milliseconds(10000))
                 : thread_communicators(static_cast<int>(devices.size()), std::chrono::milliseconds(10000));
    for (const Pattern pattern : {Pattern::kAll, Pattern::kNext}) {
      for (const size_t size : megabytes) {
        const size_t bytes = size << 20;
        std::vector<Time> times(devices.size());
        std::vector<std::thread> threads;
        for (size_t rank = 0; rank < devices.size(); ++rank) {
          threads.emplace_back([&, rank] {
            backend_of(DeviceKind::kCuda).use(devices[rank].index);
            times[rank] =
                exchange_time(*ends[rank], devices[rank], pattern, bytes, way.row_bytes, way.meanwhile);
          });
        }
        for (std::thread& thread : threads) thread.join();
        Time most;
        for (const Time& time : times) {
          most.device_s = std::max(most.device_s, time.device_s);
          most.host_s = std::max(most.host_s, time.host_s);
        }
        const double sent = static_cast<double>(bytes) *
                            static_cast<double>(pattern == Pattern::kAll ? devices.size() - 1 : 1);
        std::printf("%-32s %-8s %5zu MiB a peer: %7.3f ms, %4.0f GB/s a rank; host %.0f us\n", way.name,
                    pattern == Pattern::kAll ? "to all" : "to next", size, most.device_s * 1e3,
                    sent / most.device_s * 1e-9, most.host_s * 1e6);
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace longspan

int main(int argc, char** argv) {
  std::vector<size_t> megabytes;
  const bool besides = argc > 1 && std::string_view(argv[1]) == "beside";
  for (int i = besides ? 2 : 1; i < argc; ++i) megabytes.push_back(static_cast<size_t>(std::atoi(argv[i])));
  if (megabytes.empty()) megabytes = {1, 16, 64, 256};
  try {
    return besides ? longspan::run_beside(megabytes) : longspan::run(megabytes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
