// What a GPU says of itself while it works: clock, power, temperature, and why it is slower than it could be.
// Through NVML, which comes with the driver and is opened when it is first needed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace longspan::bench {

// One reading; a value that the device does not tell is negative.
struct GpuReading {
  double sm_clock_mhz = -1, power_w = -1, temperature_c = -1;
  uint64_t reasons = 0;  // NVML's bits: why the clock is what it is
};

class Nvml {
 public:
  // The device with this PCI bus number ("0000:0a:00.0"), or null where NVML or the device is not to be had.
  static std::unique_ptr<Nvml> open(const std::string& pci_bus);
  virtual ~Nvml() = default;
  virtual GpuReading read() = 0;
  // What the device has used since its driver was loaded; negative if it does not tell.
  virtual double energy_j() = 0;
  virtual std::string driver() const = 0;  // "580.159.04"
};

// In words: {"power cap"}. Idleness and clocks that somebody set are not reasons of the work's.
std::vector<std::string> throttle_reasons(uint64_t reasons);

// Whether a sample taken so is to be set aside: the hardware slowed down, for heat or for its power supply.
// The software power cap does not count: it is how a GPU runs long heavy work at all, the same for every
// kernel; it is recorded.
bool disturbs(uint64_t reasons);

}  // namespace longspan::bench
