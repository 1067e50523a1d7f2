// Loads NVML with dlopen and reads a GPU's state through it.
#include "bench/measure/nvml.h"

#include <array>
#include <string_view>

#include <dlfcn.h>

namespace longspan::bench {
namespace {

// The part of NVML's stable, published interface that is used here. Only some CUDA toolkits ship its header.
using NvmlDevice = struct nvmlDevice_st*;
constexpr int kSuccess = 0, kClockSm = 1, kTemperatureGpu = 0;

struct Reason {
  uint64_t bit;
  std::string_view words;
  bool disturbs;
};
constexpr std::array kReasons = {
    Reason{0x04, "software power cap", false},
    Reason{0x08, "hardware slowdown", true},
    Reason{0x10, "sync boost", false},
    Reason{0x20, "software thermal slowdown", true},
    Reason{0x40, "hardware thermal slowdown", true},
    Reason{0x80, "hardware power brake", true},
};

struct Library {
  int (*init)() = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*handle_by_pci)(const char*, NvmlDevice*) = nullptr;
  int (*clock)(NvmlDevice, int, unsigned*) = nullptr;
  int (*power)(NvmlDevice, unsigned*) = nullptr;
  int (*temperature)(NvmlDevice, int, unsigned*) = nullptr;
  int (*reasons)(NvmlDevice, unsigned long long*) = nullptr;
  int (*energy)(NvmlDevice, unsigned long long*) = nullptr;  // not on every device
  bool usable = false;
};

// Loaded and initialised once per process.
const Library& library() {
  static const Library library = [] {
    Library l;
    void* handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return l;
    const auto load = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      return function != nullptr;
    };
    const bool complete =
        load(l.init, "nvmlInit_v2") && load(l.driver_version, "nvmlSystemGetDriverVersion") &&
        load(l.handle_by_pci, "nvmlDeviceGetHandleByPciBusId_v2") &&
        load(l.clock, "nvmlDeviceGetClockInfo") && load(l.power, "nvmlDeviceGetPowerUsage") &&
        load(l.temperature, "nvmlDeviceGetTemperature") &&
        (load(l.reasons, "nvmlDeviceGetCurrentClocksEventReasons") ||
         load(l.reasons, "nvmlDeviceGetCurrentClocksThrottleReasons"));  // its older name
    load(l.energy, "nvmlDeviceGetTotalEnergyConsumption");
    l.usable = complete && l.init() == kSuccess;
    return l;
  }();
  return library;
}

class OpenNvml final : public Nvml {
 public:
  explicit OpenNvml(NvmlDevice device) : device_(device) {}

  GpuReading read() override {
    GpuReading reading;
    unsigned value = 0;
    if (library().clock(device_, kClockSm, &value) == kSuccess) reading.sm_clock_mhz = value;
    if (library().power(device_, &value) == kSuccess) reading.power_w = value * 1e-3;
    if (library().temperature(device_, kTemperatureGpu, &value) == kSuccess) reading.temperature_c = value;
    unsigned long long reasons = 0;
    if (library().reasons(device_, &reasons) == kSuccess) reading.reasons = reasons;
    return reading;
  }

  double energy_j() override {
    unsigned long long millijoules = 0;
    const bool known = library().energy != nullptr && library().energy(device_, &millijoules) == kSuccess;
    return known ? static_cast<double>(millijoules) * 1e-3 : -1;
  }

  std::string driver() const override {
    std::array<char, 96> text{};
    return library().driver_version(text.data(), text.size()) == kSuccess ? text.data() : "";
  }

 private:
  NvmlDevice device_;
};

}  // namespace

std::unique_ptr<Nvml> Nvml::open(const std::string& pci_bus) {
  NvmlDevice device = nullptr;
  if (!library().usable || library().handle_by_pci(pci_bus.c_str(), &device) != kSuccess) return nullptr;
  return std::make_unique<OpenNvml>(device);
}

std::vector<std::string> throttle_reasons(uint64_t reasons) {
  std::vector<std::string> words;
  for (const Reason& reason : kReasons) {
    if (reasons & reason.bit) words.emplace_back(reason.words);
  }
  return words;
}

bool disturbs(uint64_t reasons) {
  for (const Reason& reason : kReasons) {
    if (reason.disturbs && (reasons & reason.bit)) return true;
  }
  return false;
}

}  // namespace longspan::bench
