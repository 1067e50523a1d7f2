// The CPU backend: host memory, and machine properties from /proc and /sys.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/backend.h"
#include "base/parallel.h"
#include "base/rng.h"

namespace longspan {
namespace {

constexpr size_t kAlignment = 256;

// The number at the start of the file; `otherwise` if there is none (cgroup files may hold "max" or be
// absent).
size_t number_in(const std::string& path, size_t otherwise) {
  size_t value = 0;
  std::ifstream file(path);
  return file >> value ? value : otherwise;
}

// "MemAvailable:   123456 kB" of /proc/meminfo, in bytes; 0 if the key is absent.
size_t meminfo(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    size_t kib = 0;
    if (name == key + ":" && file >> kib) return kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

// A container's limit may be below the machine's memory.
size_t container_limit() {
  return std::min(number_in("/sys/fs/cgroup/memory.max", kNoLimit),
                  number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", kNoLimit));
}

// What the limit of address space (ulimit -v) leaves; at least 1, since 0 bytes mean that nothing is known.
size_t address_space_left() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  const size_t used = number_in("/proc/self/statm", 0) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return std::max<size_t>(1, limit.rlim_cur - std::min<size_t>(used, limit.rlim_cur));
}

size_t free_bytes(int) {
  const size_t machine = std::min(meminfo("MemAvailable"), address_space_left());
  const size_t limit = container_limit();
  if (limit == kNoLimit) return machine;
  const size_t used =
      number_in("/sys/fs/cgroup/memory.current", number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes", 0));
  return std::min(machine, limit - std::min(used, limit));
}

void* allocate(size_t bytes, int index) {
  // Linux overcommits and later kills the process that touches the memory, so check first.
  constexpr size_t kLarge = size_t{256} << 20;
  if (bytes >= kLarge) {
    const size_t available = free_bytes(index);
    if (available != 0 && bytes > available) return nullptr;
  }
  if (bytes > std::numeric_limits<size_t>::max() - kAlignment) return nullptr;
  return std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

std::string model_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string implementer, part;
  for (std::string line; std::getline(file, line);) {
    const auto value = [&]() -> std::string {
      const size_t colon = line.find(':');
      return colon == std::string::npos || colon + 2 > line.size() ? "" : line.substr(colon + 2);
    };
    if (line.starts_with("model name") && !value().empty()) return value();
    if (line.starts_with("CPU implementer") && implementer.empty()) implementer = value();
    if (line.starts_with("CPU part") && part.empty()) part = value();
  }
  utsname names{};
  std::string name = uname(&names) == 0 ? names.machine : "unknown";
  name += " CPU";
  if (!implementer.empty()) name += " (implementer " + implementer + ", part " + part + ")";
  return name;
}

// The total size of the last-level caches of all sockets: a flush must cover them all.
size_t last_level_cache_bytes() {
  namespace fs = std::filesystem;
  std::set<std::string> counted;  // "level:CPUs that share it"
  size_t bytes = 0;
  int level_of_bytes = 0;
  std::error_code none;
  for (const auto& cpu : fs::directory_iterator("/sys/devices/system/cpu", none)) {
    for (const auto& cache : fs::directory_iterator(cpu.path() / "cache", none)) {
      const auto read = [&](const char* field) {
        std::string text;
        std::ifstream(cache.path() / field) >> text;
        return text;
      };
      const std::string size = read("size"), level = read("level");
      if (size.empty() || level.empty() || read("type") == "Instruction") continue;
      if (!counted.insert(level + ":" + read("shared_cpu_list")).second) continue;
      size_t unit = 1;
      if (size.back() == 'K') unit = size_t{1} << 10;
      if (size.back() == 'M') unit = size_t{1} << 20;
      const int this_level = std::atoi(level.c_str());
      if (this_level < level_of_bytes) continue;
      if (this_level > level_of_bytes) bytes = 0;
      level_of_bytes = this_level;
      bytes += std::strtoull(size.c_str(), nullptr, 10) * unit;
    }
  }
  if (bytes != 0) return bytes;
  const long level3 = sysconf(_SC_LEVEL3_CACHE_SIZE), level2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return static_cast<size_t>(std::max({level3, level2, 0L}));
}

std::vector<Device> list() {
  Device device;
  device.kind = DeviceKind::kCpu;
  device.name = model_name();
  device.units = available_cpus();
  device.memory_bytes = std::min(meminfo("MemTotal"), container_limit());
  device.cache_bytes = last_level_cache_bytes();
  return {device};
}

}  // namespace

const Backend& cpu_backend() {
  static constexpr Backend backend = {
      .allocate = allocate,
      .release = [](void* data, int) noexcept { std::free(data); },
      .free_bytes = free_bytes,
      .copy = [](void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); },
      .copy_rows =
          [](void* to, size_t to_stride, const void* from, size_t from_stride, size_t row_bytes,
             size_t rows) {
            for (size_t row = 0; row < rows; ++row) {
              std::memcpy(static_cast<char*>(to) + row * to_stride,
                          static_cast<const char*>(from) + row * from_stride, row_bytes);
            }
          },
      .fill = [](void* to, unsigned char value, size_t bytes) { std::memset(to, value, bytes); },
      .fill_normal = [](const TensorView& tensor, uint64_t seed, uint64_t stream,
                        int) { fill_normal(tensor, seed, stream); },
      .use = [](int) {},
      .misplaced = [](const void*, int) { return std::string(); },
      .devices = list,
  };
  return backend;
}

}  // namespace longspan
