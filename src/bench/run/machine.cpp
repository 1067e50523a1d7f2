#include "bench/run/machine.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <vector>

#include <fmt/ranges.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/error.h"
#include "record/build_info.h"

namespace longspan::bench {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

// The value of "key : value" or KEY="value" of the first line that begins with the key.
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

// "Google Compute Engine" where the firmware says so, and whether there is a hypervisor beneath.
std::string machine_kind() {
  const std::string product = first_line("/sys/class/dmi/id/product_name");
  const std::string flags = " " + value_in("/proc/cpuinfo", "flags") + " ";
  const bool is_virtual = flags.find(" hypervisor ") != std::string::npos;
  const std::string kind = is_virtual ? "virtual machine" : "machine";
  return product.empty() ? kind : fmt::format("{} ({})", kind, product);
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
    const bool is_path = variable.find('/', end) != std::string_view::npos;
    found.emplace_back(is_path ? fmt::format("{}=(a path)", variable.substr(0, end)) : variable);
  }
  std::sort(found.begin(), found.end());
  return fmt::format("{}", fmt::join(found, " "));
}

Json machine_record() {
  const Device cpu = cpu_device();
  utsname system{};
  uname(&system);
  double load[1] = {0};
  const bool has_load = getloadavg(load, 1) == 1;
  const auto bytes = [](size_t count) { return count == 0 ? Json() : Json(count); };
  return {{"kind", machine_kind()},
          {"cpu_model", cpu.name},
          {"cpus", cpu.units},
          {"memory_bytes", bytes(cpu.memory_bytes)},
          {"llc_bytes", bytes(cpu.cache_bytes)},
          {"governor", text_or_null(first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))},
          {"load_1min", has_load ? Json(load[0]) : Json()},
          {"os", text_or_null(value_in("/etc/os-release", "PRETTY_NAME"))},
          {"kernel", std::string(system.sysname) + " " + system.release},
          {"settings", text_or_null(settings_in(environ))}};
}

Json device_record(const Device& device, const std::string& driver) {
  const auto number = [](auto count) { return count == 0 ? Json() : Json(count); };
  return {{"kind", kind_name(device.kind)},
          {"name", device.name},
          {"uuid", text_or_null(device.uuid)},
          {"units", number(device.units)},
          {"capability", number(device.capability)},
          {"memory_bytes", number(device.memory_bytes)},
          {"cache_bytes", number(device.cache_bytes)},
          {"driver", text_or_null(driver)}};
}

Json software_record() {
  const BuildInfo& build = build_info();
  Json versions = Json::object();
  for (const LibraryVersion& library : build.libraries) versions[std::string(library.name)] = library.version;
  const bool known = !build.commit.empty();
  return {{"longspan", build.version},
          {"commit", known ? Json(build.commit) : Json()},
          {"dirty", known ? Json(build.dirty) : Json()},
          {"compiler", build.compiler},
          {"build_type", build.build_type},
          {"libraries", std::move(versions)}};
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
