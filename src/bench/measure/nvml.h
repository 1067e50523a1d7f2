// Readings of a running GPU: clock, power, temperature and throttle reasons. They come from NVML, which is
// part of the driver and is loaded on first use.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace longspan::bench {

// One reading. A value that the device does not report is negative.
struct GpuReading {
  double sm_clock_mhz = -1, power_w = -1, temperature_c = -1;
  uint64_t reasons = 0;  // NVML's bits for what limits the clock
};

class Nvml {
 public:
  // The device with this PCI bus number ("0000:0a:00.0"), or null if NVML or the device is not available.
  static std::unique_ptr<Nvml> open(const std::string& pci_bus);
  virtual ~Nvml() = default;
  virtual GpuReading read() = 0;
  // Energy used since the driver was loaded; negative if the device does not report it.
  virtual double energy_j() = 0;
  virtual std::string driver() const = 0;  // "580.159.04"
};

// In words: {"software power cap"}. Idle states and clocks set by a user are left out: the work does not
// cause them.
std::vector<std::string> throttle_reasons(uint64_t reasons);

// Whether a sample with these reasons is excluded: the hardware slowed down because of heat or its power
// supply. The software power cap is recorded but does not count, since every long heavy kernel reaches it.
bool disturbs(uint64_t reasons);

}  // namespace longspan::bench
