// Reads the facts of the machine from /proc, /sys and the environment.
#include "bench/run/machine.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <vector>

#include <elf.h>
#include <fmt/ranges.h>
#include <link.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/error.h"
#include "base/printable.h"
#include "record/build_info.h"

namespace longspan::bench {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// 0 means that the system does not report the value.
std::optional<int64_t> known(auto count) {
  return count == 0 ? std::nullopt : std::optional(static_cast<int64_t>(count));
}

// The value in "key : value" or KEY="value", from the first line that begins with the key.
std::string value_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t begin = line.find_first_not_of(" \t:=\"", key.size());
    if (begin == std::string::npos) return "";
    return line.substr(begin, line.find_last_not_of(" \t\"") - begin + 1);
  }
  return "";
}

// "virtual machine (Google Compute Engine)": from the CPU's hypervisor flag and the firmware's product name.
std::string machine_kind() {
  const std::string product = first_line("/sys/class/dmi/id/product_name");
  const std::string flags = " " + value_in("/proc/cpuinfo", "flags") + " ";
  const bool is_virtual = flags.find(" hypervisor ") != std::string::npos;
  const std::string kind = is_virtual ? "virtual machine" : "machine";
  return product.empty() ? kind : fmt::format("{} ({})", kind, product);
}

// The linker's hash of a program's contents (NT_GNU_BUILD_ID), in hexadecimal digits: it differs where
// sources were changed without a commit. Empty if the program was linked without one.
std::string build_id_of(const dl_phdr_info& program) {
  using std::literals::operator""sv;
  constexpr auto padded = [](size_t size) { return (size + 3) / 4 * 4; };
  for (int i = 0; i < program.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = program.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    // The loader gives addresses as numbers. NOLINTNEXTLINE(performance-no-int-to-ptr)
    const auto* at = reinterpret_cast<const char*>(program.dlpi_addr + segment.p_vaddr);
    for (const char* end = at + segment.p_memsz; at + sizeof(ElfW(Nhdr)) <= end;) {
      const auto& note = *reinterpret_cast<const ElfW(Nhdr)*>(at);
      const char* name = at + sizeof note;
      const char* content = name + padded(note.n_namesz);
      at = content + padded(note.n_descsz);
      if (note.n_type != NT_GNU_BUILD_ID || std::string_view(name, note.n_namesz) != "GNU\0"sv) continue;
      std::string digits;
      for (const char* byte = content; byte < content + note.n_descsz; ++byte)
        digits += fmt::format("{:02x}", static_cast<unsigned char>(*byte));
      return digits;
    }
  }
  return "";
}

// Of this program, which is the first of the objects that were loaded.
std::string build_id() {
  std::string id;
  const auto take = [](dl_phdr_info* program, size_t, void* out) {
    *static_cast<std::string*>(out) = build_id_of(*program);
    return 1;
  };
  dl_iterate_phdr(take, &id);
  return id;
}

// Whether a variable's name says that its value is for nobody to see.
bool names_secret(std::string_view name) {
  constexpr std::string_view kWords[] = {"TOKEN", "KEY", "SECRET", "PASSW", "CREDENTIAL", "AUTH"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [&](std::string_view word) { return name.find(word) != std::string_view::npos; });
}

}  // namespace

std::string settings_in(const char* const* environment) {
  std::vector<std::string> found;
  for (; *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    const bool matters = variable.starts_with("NCCL_") || variable.starts_with("CUDA_") ||
                         variable.starts_with("LONGSPAN_THREADS=") ||
                         variable.starts_with("OMP_NUM_THREADS=");
    if (!matters) continue;
    const size_t end = variable.find('=');
    const std::string_view name = variable.substr(0, end);
    if (names_secret(name)) continue;
    const bool is_path = variable.find('/', end) != std::string_view::npos;
    found.emplace_back(is_path ? fmt::format("{}=(a path)", name) : printable(variable));
  }
  std::sort(found.begin(), found.end());
  return fmt::format("{}", fmt::join(found, " "));
}

record::Machine machine_record() {
  const Device cpu = cpu_device();
  utsname system{};
  uname(&system);
  double load = 0;
  record::Machine machine;
  machine.kind = machine_kind();
  machine.cpu_model = cpu.name;
  machine.cpus = cpu.units;
  machine.memory_bytes = known(cpu.memory_bytes);
  machine.llc_bytes = known(cpu.cache_bytes);
  machine.governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (getloadavg(&load, 1) == 1) machine.load_1min = load;
  machine.os = value_in("/etc/os-release", "PRETTY_NAME");
  machine.kernel = std::string(system.sysname) + " " + system.release;
  machine.settings = settings_in(environ);
  return machine;
}

record::DeviceInfo device_record(const Device& device, const std::string& driver) {
  return {std::string(kind_name(device.kind)),
          device.name,
          device.uuid,
          known(device.units),
          known(device.capability),
          known(device.memory_bytes),
          known(device.cache_bytes),
          driver};
}

record::Software software_record() {
  const BuildInfo& build = build_info();
  record::Software software;
  software.longspan = build.version;
  software.commit = build.commit;
  if (!build.commit.empty()) software.dirty = build.dirty;
  software.compiler = build.compiler;
  software.build_type = build.build_type;
  software.build_id = build_id();
  for (const LibraryVersion& library : build.libraries)
    software.libraries.emplace_back(library.name, library.version);
  return software;
}

std::string_view kind_name(DeviceKind kind) {
  return kind == DeviceKind::kCpu ? "cpu" : "cuda";
}

DeviceKind device_kind_from_name(std::string_view name) {
  LONGSPAN_CHECK_INPUT(name == "cpu" || name == "cuda",
                       "device kind '{}' is unknown; the kinds are cpu and cuda", name);
  return name == "cpu" ? DeviceKind::kCpu : DeviceKind::kCuda;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace longspan::bench
