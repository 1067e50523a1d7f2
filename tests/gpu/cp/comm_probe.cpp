// A tool for whoever works on communication between GPUs: what an exchange of each rank with all others
// reaches, by copy engines, by multiprocessors and by NCCL, and what the host spends on it.
//   comm_probe [megabytes for each peer ...]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/backend.h"
#include "base/buffer.h"
#include "base/cuda.h"
#include "base/error.h"
#include "comm/nccl.h"
#include "comm/threads.h"

namespace longspan {
namespace {

using Clock = std::chrono::steady_clock;

enum class Pattern { kAll, kNext };

struct Time {
  double device_s = 0, host_s = 0;
};

// One rank's median time of an exchange, its rows `row_bytes` long and twice as far apart at the sender's end
// (0: in one piece).
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

int run(const std::vector<size_t>& megabytes) {
  std::vector<Device> gpus;
  for (const Device& device : devices())
    if (device.kind == DeviceKind::kCuda) gpus.push_back(device);
  LONGSPAN_CHECK_INPUT(gpus.size() > 1, "needs several GPUs, not {}", gpus.size());
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
    auto ends = way.nccl
                    ? nccl_communicators(gpus, std::chrono::milliseconds(10000))
                    : thread_communicators(static_cast<int>(gpus.size()), std::chrono::milliseconds(10000));
    for (const Pattern pattern : {Pattern::kAll, Pattern::kNext}) {
      for (const size_t size : megabytes) {
        const size_t bytes = size << 20;
        std::vector<Time> times(gpus.size());
        std::vector<std::thread> threads;
        for (size_t rank = 0; rank < gpus.size(); ++rank) {
          threads.emplace_back([&, rank] {
            backend_of(DeviceKind::kCuda).use(gpus[rank].index);
            times[rank] =
                exchange_time(*ends[rank], gpus[rank], pattern, bytes, way.row_bytes, way.meanwhile);
          });
        }
        for (std::thread& thread : threads) thread.join();
        Time most;
        for (const Time& time : times) {
          most.device_s = std::max(most.device_s, time.device_s);
          most.host_s = std::max(most.host_s, time.host_s);
        }
        const double sent =
            static_cast<double>(bytes) * static_cast<double>(pattern == Pattern::kAll ? gpus.size() - 1 : 1);
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
  for (int i = 1; i < argc; ++i) megabytes.push_back(static_cast<size_t>(std::atoi(argv[i])));
  if (megabytes.empty()) megabytes = {1, 16, 64, 256};
  try {
    return longspan::run(megabytes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
