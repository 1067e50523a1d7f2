// `longspan run`: measures the cases of a suite, or of lists on the command line. Also the hidden command
// that runs cases in a child process.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <unistd.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "bench/run/isolation.h"
#include "bench/run/machine.h"
#include "bench/run/runner.h"
#include "bench/spec/filter.h"
#include "bench/spec/suite.h"
#include "bench/spec/values.h"
#include "bench/spec/workload_cases.h"
#include "cli/command.h"
#include "cli/environment.h"
#include "cli/peer_options.h"
#include "cli/wiring.h"
#include "comm/launch.h"
#include "report/results.h"
#include "report/table.h"

namespace longspan::cli {
namespace {

struct RunArguments {
  std::string suite, workload;
  std::map<std::string, std::vector<std::string>> axes;  // by name, each word as given
  std::map<std::string, std::string> rule;               // by key
  std::string filter;
  std::string out;
  PeerOptions peers;
  std::string stop_after, devices;
  bool resume = false, keep_failed = false, mix_builds = false;
  bool allow_skipped = false;
  bool dry_run = false;
};

bench::Group group_of_lists(const RunArguments& options) {
  bench::Group group;
  for (const bench::Axis& axis : bench::axes()) {
    const auto given = options.axes.find(std::string(axis.name));
    const std::string where = option_name(axis.name);
    if (given == options.axes.end()) continue;
    for (const std::string& word : given->second) {
      const auto values = axis.comma_in_value ? std::vector<std::string>{word} : bench::split(word, ',');
      for (const std::string& value : values) {
        LONGSPAN_CHECK_INPUT(!value.empty(), "{} '{}': a value of the list is empty", where, word);
        bench::add_value(group, axis, {value, where});
      }
    }
  }
  return group;
}

// The suite that the axes on the command line define.
bench::Suite suite_of_lists(const RunArguments& options) {
  bench::Suite suite;
  suite.name = "command line";
  bench::Group group = group_of_lists(options);
  const bench::Axis* missing = bench::missing_axis(group);
  LONGSPAN_CHECK_INPUT(missing == nullptr, "{} is missing ({}); or give a suite, as in: longspan run quick",
                       option_name(missing->name), missing->help);
  bench::check_options_read(group);
  suite.groups.push_back(std::move(group));
  return suite;
}

// What is measured, and with which rule.
struct Request {
  std::string name;  // of the suite
  bench::TimingRule rule;
  std::vector<bench::Case> cases;
  std::vector<record::WorkloadRecord> workload;
};

std::string relative_path(const std::string& path) {
  return std::filesystem::path(path).is_absolute() ? std::filesystem::proximate(path).string() : path;
}

// The cases of a workload, and which of them are its steps. A step whose cases the filter drops has no
// result.
Request request_of_workload(const RunArguments& options, const bench::Filter& filter) {
  LONGSPAN_CHECK_INPUT(options.suite.empty(), "--workload cannot be combined with a suite");
  const std::string text = read_input_file(options.workload, kWorkloadFile);
  const bench::Workload workload = bench::parse_workload(text, options.workload);
  const bench::Workbench& bench = workbench();
  bench::WorkloadCases made = bench::cases_of(workload, group_of_lists(options), bench.kernel_names(),
                                              bench::offered_kernels(bench), bench.rows);
  Request request{"workload", {}, std::move(made.cases), {}};
  std::set<std::string> kept;
  for (const bench::Case& c : request.cases) {
    if (filter.matches(c)) kept.insert(bench::id_of(c));
  }
  for (bench::WorkloadSeries& series : made.series) {
    const auto is_kept = [&](const std::string& id) { return kept.contains(id); };
    const bool any_kept = std::ranges::any_of(series.steps, [&](const auto& step) {
      return std::ranges::any_of(step, [&](const auto& ids) { return std::ranges::any_of(ids, is_kept); });
    });
    if (!any_kept) continue;
    record::WorkloadRecord& line = request.workload.emplace_back();
    line.workload = relative_path(options.workload);
    line.hash = bench::hex16(bench::hash64(text));
    line.layers = workload.layers_of_stage();
    line.steps = std::move(series.steps);
  }
  return request;
}

bench::Suite suite_of(const RunArguments& options) {
  std::string given_axis;
  for (const auto& [axis, words] : options.axes) {
    if (!words.empty()) given_axis = axis;
  }
  LONGSPAN_CHECK_INPUT(options.suite.empty() || given_axis.empty(),
                       "{} cannot be combined with a suite; select from the suite with --filter '{}=...'",
                       option_name(given_axis), given_axis);
  bench::Suite suite = options.suite.empty() ? suite_of_lists(options) : bench::find_suite(options.suite);
  return suite;
}

void set_rule(const RunArguments& options, bench::TimingRule& rule) {
  for (const bench::RuleKey& key : bench::rule_keys()) {
    const auto given = options.rule.find(std::string(key.name));
    if (given == options.rule.end() || given->second.empty()) continue;
    try {
      key.set(rule, given->second);
    } catch (const Error& error) {
      LONGSPAN_CHECK_INPUT(false, "{} {}", option_name(key.name), error.what());
    }
  }
  bench::check(rule);
}

Request request_of_suite(const RunArguments& options) {
  const bench::Suite suite = suite_of(options);
  const bench::Workbench& bench = workbench();
  return {suite.name,
          suite.rule,
          bench::expand(suite, bench.kernel_names(), bench::offered_kernels(bench), bench.rows),
          {}};
}

// The command as typed, with absolute paths made relative to the working folder.
std::string command_line(const std::vector<std::string>& words) {
  std::string command = "longspan";
  for (const std::string& word : words) {
    // also handles --out=/path
    const size_t value = word.starts_with("--") ? word.find('=') + 1 : 0;
    const std::filesystem::path path(word.substr(value));
    command += " " + bench::shell_quoted(path.is_absolute() ? word.substr(0, value) +
                                                                  std::filesystem::proximate(path).string()
                                                            : word);
  }
  return command;
}

std::string default_folder(const std::string& name) {
  std::string stamp = bench::utc_now();
  std::erase_if(stamp, [](char c) { return c == ':' || c == '-'; });
  return fmt::format("out/{}-{}", name, stamp);
}

void print_cases(const std::vector<bench::Case>& cases, const bench::TimingRule& rule) {
  for (const bench::Case& c : cases)
    fmt::print("{}  {}\n", bench::id_of(c), printable(bench::command_of(c, rule)));
  fmt::print("{} cases\n", cases.size());
}

void print_results(const bench::RunSummary& summary) {
  const report::Results results = report::read_results({summary.path});
  report::print_table(stdout, results, report::table_options_for(stdout));
  std::fflush(stdout);
}

void choose_devices(const std::string& text, bench::RunOptions& run) {
  run.all_devices = text == "all";
  if (text.empty() || run.all_devices) return;
  for (const std::string& word : bench::split(text, ',')) {
    try {
      run.devices.push_back(static_cast<int>(bench::parse_count(word, 0, 1 << 16)));
    } catch (const Error&) {
      LONGSPAN_CHECK_INPUT(false, "--devices '{}': must be all, or GPU numbers such as 0,1,2", text);
    }
  }
}

// The launch of this process, if a launcher started several and each is one rank of some of these cases.
std::optional<Launch> launch_of(const std::vector<bench::Case>& cases) {
  for (const bench::Case& c : cases) {
    if (auto launch = bench::launch_of_processes(c.parallelism)) return launch;
  }
  bench::expect_one_process("no case has ranks that are processes");
  return std::nullopt;
}

// Each process of a host uses one of its GPUs.
int gpu_of(const Launch& launch, const std::vector<Device>& devices) {
  const auto gpus = std::count_if(devices.begin(), devices.end(),
                                  [](const Device& d) { return d.kind == DeviceKind::kCuda; });
  return gpus == 0 ? 0 : static_cast<int>(launch.local_rank % gpus);
}

void run(const RunArguments& options, const std::vector<std::string>& words) {
  set_peer_options(options.peers);
  const bench::Workbench& bench = workbench();
  const bench::Filter filter(options.filter);
  Request request =
      options.workload.empty() ? request_of_suite(options) : request_of_workload(options, filter);
  set_rule(options, request.rule);
  std::vector<bench::Case>& cases = request.cases;
  const size_t all = cases.size();
  std::erase_if(cases, [&](const bench::Case& c) { return !filter.matches(c); });
  LONGSPAN_CHECK_INPUT(!cases.empty(), "--filter '{}' selects none of the {} cases; --dry-run lists them",
                       options.filter, all);
  if (options.dry_run) {
    const std::optional<Launch> launch = launch_from_environment();
    if (!launch || launch->rank == 0) print_cases(cases, request.rule);
    return;
  }
  check_environment();
  const std::optional<Launch> launch = launch_of(cases);
  LONGSPAN_CHECK_INPUT(
      !launch || options.devices.empty(),
      "--devices cannot be combined with ranks that are processes: each uses one GPU of its host");
  LONGSPAN_CHECK_INPUT(!options.resume || !options.out.empty(),
                       "--resume needs --out with the folder of the run");

  bench::RunOptions run;
  run.suite = request.name;
  run.command = command_line(words);
  run.kernel_words = peer_words(options.peers);
  run.rule = request.rule;
  run.cases = std::move(cases);
  run.workload = std::move(request.workload);
  const bool from_lists = options.suite.empty() && options.workload.empty();
  run.folder = options.out.empty() ? default_folder(from_lists ? "run" : request.name) : options.out;
  run.resume = options.resume;
  run.keep_failed = options.keep_failed;
  run.mix_builds = options.mix_builds;
  try {
    if (!options.stop_after.empty()) run.stop_after_s = bench::parse_duration(options.stop_after);
  } catch (const Error& error) {
    LONGSPAN_CHECK_INPUT(false, "--stop-after {}", error.what());
  }
  choose_devices(options.devices, run);
  std::optional<bench::Team> team;
  if (launch) {
    const std::vector<Device> devices = bench.devices();
    const int gpu = gpu_of(*launch, devices);
    team.emplace(*launch);
    if (launch->rank > 0) {
      if (!team->follow(gpu, run.rule, run.cases, bench)) throw CLI::RuntimeError(1);
      return;
    }
    run.team = &*team;
    if (std::any_of(devices.begin(), devices.end(),
                    [](const Device& d) { return d.kind == DeviceKind::kCuda; }))
      run.devices = {gpu};
  }
  run.progress = stderr;
  run.terminal = isatty(STDERR_FILENO) != 0;
  const bench::RunSummary summary = bench::run(run, bench);

  if (summary.ok + summary.skipped + summary.failed + summary.earlier > 0) print_results(summary);
  const std::string counts =
      fmt::format("{} measured, {} skipped, {} failed", summary.ok, summary.skipped, summary.failed);
  std::string earlier;
  const int64_t kept_failed = options.keep_failed ? summary.earlier_failed : 0;
  if (summary.earlier > kept_failed)
    earlier += fmt::format(", {} measured before", summary.earlier - kept_failed);
  if (summary.earlier_failed > 0) earlier += fmt::format(", {} failed before", summary.earlier_failed);
  fmt::print(stderr, "{}{}: {}\n", counts, earlier, printable(summary.path));
  if (summary.above_ceiling > 0) {
    fmt::print(stderr,
               "{} rates are above the ceiling: other work slowed the machine while the ceiling was "
               "measured, or its matrix product is not the fastest possible\n",
               summary.above_ceiling);
  }
  if (summary.interrupted) {
    fmt::print(stderr,
               "interrupted with {} cases left; continue with the same command and --out {} --resume\n",
               summary.left, printable(run.folder));
    throw CLI::RuntimeError(130);
  }
  if (summary.stopped) {
    fmt::print(stderr,
               "stopped after {} with {} cases left; continue with the same command and --out {} --resume\n",
               options.stop_after, summary.left, printable(run.folder));
  }
  if (summary.broken && summary.left > 0) {
    fmt::print(stderr,
               "{} cases left: the processes cannot continue after this failure; restart them with the same "
               "command and --out {} --resume\n",
               summary.left, printable(run.folder));
  }
  if (summary.failed + summary.earlier_failed > 0) throw CLI::RuntimeError(1);
  if (summary.ok + summary.earlier_ok + summary.left == 0) {
    fmt::print(stderr, "nothing was measured: every case was skipped\n");
    if (!options.allow_skipped) throw CLI::RuntimeError(1);
  }
}

// The words of this process's command line after the program's name.
std::vector<std::string> words_after_program() {
  std::vector<std::string> words;
  std::ifstream file("/proc/self/cmdline");
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (!words.empty()) words.erase(words.begin());
  return words;
}

}  // namespace

void add_run_command(CLI::App& program) {
  auto options = std::make_shared<RunArguments>();
  CLI::App* command =
      program.add_subcommand("run", "Measure kernels on masks, from a suite or from lists of values");
  command->add_option("suite", options->suite,
                      "A suite: its name (see `longspan list suites`) or a TOML file");
  command
      ->add_option("--workload", options->workload,
                   "Measure both passes of each micro-batch of this workload (see `longspan workload`)")
      ->type_name("FILE");
  for (const bench::Axis& axis : bench::axes()) {
    const std::string preset = axis.preset.empty() ? "" : fmt::format(" [{}]", axis.preset);
    command->add_option(option_name(axis.name), options->axes[std::string(axis.name)], axis.help + preset)
        ->type_name("LIST")
        ->expected(1)
        ->take_all()
        ->group("Cases (comma-separated lists; every combination is a case)");
  }
  command
      ->add_option(
          "--filter", options->filter,
          "Run only the cases that EXPR selects, such as 'mask=causal,full seqlen>=8K kernel!=cpu-naive'")
      ->type_name("EXPR");
  command->add_option("--out", options->out, "Folder for results.jsonl [out/NAME-TIME]")->type_name("DIR");
  add_peer_options(*command, options->peers);
  command
      ->add_option("--stop-after", options->stop_after,
                   "Start no case after this time (90s, 30m, 2h); --resume continues later")
      ->type_name("TIME");
  command
      ->add_option(
          "--devices", options->devices,
          "GPUs to divide the cases over, such as 0,1,2, or all [0]; all kernels of a problem run on "
          "the same GPU")
      ->type_name("LIST");
  CLI::Option* resume = command->add_flag(
      "--resume", options->resume, "Continue the run in --out with the cases that it lacks or that failed");
  command->add_flag("--keep-failed", options->keep_failed, "With --resume: do not try failed cases again")
      ->needs(resume);
  command
      ->add_flag("--mix-builds", options->mix_builds,
                 "With --resume: accept that the last run was of another build of longspan")
      ->needs(resume);
  command->add_flag("--allow-skipped", options->allow_skipped, "Exit with 0 even if every case was skipped");
  command->add_flag("--dry-run", options->dry_run, "List the cases without running them");
  for (const bench::RuleKey& key : bench::rule_keys()) {
    command
        ->add_option(option_name(key.name), options->rule[std::string(key.name)],
                     fmt::format("{} ({})", key.help, key.values))
        ->type_name("VALUE")
        ->group("Timing rule (overrides the suite's)");
  }
  command->footer(
      "EXPR of --filter:\n" + std::string(bench::Filter::help()) +
      "\n\n"
      "Cases run in child processes. A crash, a hang or a lack of memory is recorded as a `failed` line\n"
      "with its reason, and the run continues. Exit code: 0, 1 if a case failed (also before --resume) or "
      "every\n"
      "case was skipped, 2 for a wrong option, variable or suite, 130 if interrupted.\n"
      "Examples:\n"
      "  longspan run quick\n"
      "  longspan run --kernel cpu-flash --mask causal,full --seqlen 1K,4K --direction fwd,bwd --out "
      "out/mine\n"
      "  longspan run --strategy all --ranks 4 --kernel cpu-flash --mask causal --seqlen 8K\n"
      "  longspan run dense --filter 'mask=causal* seqlen<=8K' --out out/dense\n"
      "  longspan run dense --filter 'mask=causal* seqlen<=8K' --out out/dense --resume\n"
      "  longspan run --workload workload.jsonl --kernel cpu-flash --strategy all --ranks 4 --dtype f32\n"
      "  mpirun -n 4 longspan run --strategy all --ranks 4 --transport mpi --kernel cpu-flash --mask causal "
      "--seqlen 8K\n"
      "  longspan run dense --devices all --stop-after 30m --out out/dense");
  command->callback([options] { run(*options, words_after_program()); });
}

void add_run_case_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand(bench::kChildCommand, "Answer requests of `longspan run`");
  command->group("");  // hidden
  command->callback([] {
    if (const int status = bench::answer_requests(workbench()); status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace longspan::cli
