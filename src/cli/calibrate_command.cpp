// `longspan calibrate`: measures this machine for `simulate` and `advise`, and writes a machine file.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "bench/calibrate/calibrate.h"
#include "bench/simulate/machine_file.h"
#include "bench/spec/case.h"
#include "bench/spec/values.h"
#include "cli/command.h"
#include "cli/machine_option.h"
#include "cli/progress_line.h"
#include "cli/wiring.h"
#include "comm/launch.h"
#include "report/output_file.h"

namespace longspan::cli {
namespace {

using record::Json;

struct CalibrateArguments {
  std::string out, name, kernel = "auto", dtype, heads = "8:2", head_dim = "128", topology,
                         transport = "threads", from;
  std::string nccl_tests, nccl_tests_nodes;
  double budget_s = 1;
};

const Kernel* kernel_to_measure(const CalibrateArguments& options) {
  const bench::Workbench& bench = workbench();
  if (options.kernel != "auto") {
    const Kernel* kernel = bench.find(options.kernel);
    LONGSPAN_CHECK_INPUT(kernel != nullptr, "--kernel '{}' is unknown; longspan list kernels shows all",
                         options.kernel);
    return kernel;
  }
  const std::vector<Device> devices = bench.devices();
  const char* const name = devices.back().kind == DeviceKind::kCuda ? "sm90" : "cpu-flash";
  const Kernel* kernel = bench.find(name);
  LONGSPAN_CHECK_INPUT(kernel != nullptr, "this build has no kernel {}; give --kernel", name);
  return kernel;
}

bench::Calibration calibration_of(const CalibrateArguments& options) {
  bench::Calibration c;
  c.kernel = kernel_to_measure(options);
  const bool gpus = c.kernel->device_kind() == DeviceKind::kCuda;
  // The axes of a run read and check the values.
  bench::Case problem;
  const auto set = [&](const char* axis, const std::string& option, const std::string& value) {
    try {
      bench::find_axis(axis)->set(problem, value);
    } catch (const Error& error) {
      LONGSPAN_CHECK_INPUT(false, "{} {}", option, error.what());
    }
  };
  set("dtype", "--dtype", options.dtype.empty() ? (gpus ? "bf16" : "f32") : options.dtype);
  set("heads", "--heads", options.heads);
  set("head_dim", "--head-dim", options.head_dim);
  set("transport", "--transport", options.transport);
  if (options.topology.empty()) {
    int ranks = 0;
    for (const Device& device : workbench().devices()) {
      if (device.kind == c.kernel->device_kind()) ranks += gpus ? 1 : device.units;
    }
    const std::optional<Launch> launch = launch_from_environment();
    set("ranks", "--topology", std::to_string(launch ? launch->ranks : ranks));
  } else {
    set("topology", "--topology", options.topology);
  }
  c.dtype = problem.dtype;
  c.heads_q = problem.heads_q, c.heads_kv = problem.heads_kv, c.head_dim = problem.head_dim;
  c.topology = problem.parallelism.topology();
  c.transport = problem.parallelism.transport;
  c.budget_s = options.budget_s;
  const std::vector<Device> devices = workbench().devices();
  c.machine = options.name;
  if (c.machine.empty())
    c.machine = gpus ? devices.back().name
                     : fmt::format("{} hardware threads of {}", c.topology.devices, devices.front().name);
  return c;
}

void write_machine(const report::OutputFile& file, const Json& machine) {
  const std::string text = machine.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  const bench::Machine described = bench::machine_from_json(record::parse_json(text));
  file.write(text);
  fmt::print("{}", machine_line(described));
  for (const bench::Figure& figure : described.figures) {
    const std::string residual =
        figure.residual ? fmt::format("  residual {:.1f}%", 100 * *figure.residual) : "";
    fmt::print("  {:<44}  {:>11.4g}  {}{}\n", figure.name, figure.value, figure.origin, residual);
  }
}

void calibrate_machine(const CalibrateArguments& options) {
  LONGSPAN_CHECK_INPUT(printable(options.name) == options.name,
                       "--name '{}' must be UTF-8 without control characters", printable(options.name));
  std::optional<report::OutputFile> file;  // only rank 0 writes it
  if (const std::optional<Launch> launch = launch_from_environment(); !launch || launch->rank == 0)
    file.emplace("--out", options.out, report::OutputFile::Kind{"a machine file", "{"},
                 std::vector<std::filesystem::path>{});
  Json start;
  if (!options.from.empty()) {
    bench::read_machine(options.from);  // checks it
    start = record::parse_json(read_input_file(options.from, kMachineFile));
  }
  const bool given = !options.nccl_tests.empty() || !options.nccl_tests_nodes.empty();
  LONGSPAN_CHECK_INPUT(!given || !start.is_null(),
                       "--nccl-tests needs --from, a machine file to which the links are added");
  if (given) {
    const auto take = [&](const std::string& path, const char* option, bool between) {
      if (path.empty()) return;
      const std::string table = read_input_file(path, kNcclTestsFile);
      try {
        bench::take_nccl_tests(start, table, fmt::format("nccl-tests, {}", path), between);
      } catch (const Error& error) {
        LONGSPAN_CHECK_INPUT(error.kind() != ErrorKind::kInput, "{} {}: {}", option, path, error.what());
        throw;
      }
    };
    take(options.nccl_tests, "--nccl-tests", false);
    take(options.nccl_tests_nodes, "--nccl-tests-nodes", true);
    if (file) write_machine(*file, start);
    return;
  }
  bench::Calibration c = calibration_of(options);
  c.start = std::move(start);
  Json machine;
  {
    const ProgressLine progress;
    c.progress = [&](const std::string& text) { progress.show(text); };
    machine = bench::calibrate(workbench(), c);
  }
  if (file && !machine.is_null()) write_machine(*file, machine);
}

}  // namespace

void add_calibrate_command(CLI::App& program) {
  auto options = std::make_shared<CalibrateArguments>();
  CLI::App* command = program.add_subcommand("calibrate", "Measure this machine for simulate and advise");
  command->add_option("--out", options->out, "the machine file to write")->type_name("FILE")->required();
  command->add_option("--name", options->name, "the machine's name; by default its device's")
      ->type_name("TEXT");
  command
      ->add_option("--kernel", options->kernel,
                   "the kernel to measure; by default the fastest for the device")
      ->type_name("VALUE");
  command->add_option("--dtype", options->dtype, "element type; by default bf16 on GPUs and f32 on the CPU")
      ->type_name("VALUE");
  command->add_option("--heads", options->heads, "query heads : KV heads of the measured problems [8:2]")
      ->type_name("VALUE");
  command->add_option("--head-dim", options->head_dim, "head dimension [128]")->type_name("VALUE");
  command
      ->add_option("--topology", options->topology,
                   "NODESxDEVICES; by default one node of all devices, or of all processes")
      ->type_name("VALUE");
  command->add_option("--transport", options->transport, "threads, nccl or mpi [threads]")
      ->type_name("VALUE");
  command->add_option("--budget", options->budget_s, "seconds for the samples of each measurement [1]")
      ->check(CLI::Range(0.001, 600.0))
      ->type_name("VALUE");
  command
      ->add_option("--from", options->from,
                   "keep this machine file's kernel and memory, and add or replace the links")
      ->type_name("FILE");
  command
      ->add_option("--nccl-tests", options->nccl_tests,
                   "output of nccl-tests within a node, instead of measuring; needs --from")
      ->type_name("FILE");
  command
      ->add_option("--nccl-tests-nodes", options->nccl_tests_nodes, "the same between nodes, one rank each")
      ->type_name("FILE");
  command->footer(
      "All ranks measure at once. Takes a few minutes; nothing else should run.\n"
      "Examples:\n"
      "  longspan calibrate --out machine.json\n"
      "  mpirun -n 2 longspan calibrate --transport mpi --from machine.json --out machine.json\n"
      "  torchrun --nnodes 2 --nproc-per-node 8 --no-python longspan calibrate --transport nccl --topology "
      "2x8 --out machine.json\n"
      "  longspan calibrate --from machine.json --nccl-tests sendrecv.txt --out machine.json");
  command->callback([options] { calibrate_machine(*options); });
}

}  // namespace longspan::cli
