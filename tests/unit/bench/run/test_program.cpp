// The program that run_test.cpp starts: the run commands, with kernels that fail in every way.
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "bench/case/verify_case.h"
#include "bench/measure/cpu_testbed.h"
#include "cli/command.h"
#include "cli/peer_helpers.h"
#include "cli/wiring.h"
#include "peers/peer_kernel.h"
#include "test_kernels.h"

namespace longspan::cli {

void add_run_command(CLI::App& program);
void add_run_case_command(CLI::App& program);

// TEST_DEVICES devices, each of which is the CPU under another number.
std::vector<Device> several_devices() {
  const char* count = std::getenv("TEST_DEVICES");
  std::vector<Device> devices(count == nullptr ? 1 : std::atoi(count), cpu_device());
  for (size_t i = 0; i < devices.size(); ++i) {
    devices[i].index = static_cast<int>(i);
    if (devices.size() > 1) devices[i].uuid = fmt::format("GPU-{}", i);
  }
  return devices;
}

const bench::Workbench& workbench() {
  static const bench::Workbench bench = [] {
    bench::Workbench made;
    made.kernels = bench::test_kernels();
    static const auto fake = make_peer_kernel({.name = "fake",
                                               .description = "the peer of tests/unit/peers",
                                               .device = DeviceKind::kCpu,
                                               .backward = true});
    made.kernels.push_back(fake.get());
    made.helpers = peer_helpers({fake.get()});
    made.devices = several_devices;
    made.testbed = [](const Device& device) {
      return bench::make_cpu_testbed(device, [](DType dtype) {
        LONGSPAN_CHECK_INPUT(dtype == DType::kF32, "no matrix product of {} here", name_of(dtype));
        return bench::Ceiling{1e9, "a product that the test made up", {1.0, 2.0}};
      });
    };
    made.verify = bench::verify_case;
    return made;
  }();
  return bench;
}

}  // namespace longspan::cli

int main(int argc, char** argv) {
  CLI::App program{"longspan with kernels for tests"};
  longspan::cli::add_run_command(program);
  longspan::cli::add_run_case_command(program);
  try {
    program.parse(argc, argv);
  } catch (const CLI::RuntimeError& ended) {
    return ended.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : 2;
  } catch (const longspan::Error& error) {
    fmt::print(stderr, "longspan: {}\n", error.what());
    return error.kind() == longspan::ErrorKind::kInput ? 2 : 1;
  }
  return 0;
}
