#include "bench/run/isolation.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <new>
#include <utility>
#include <vector>

#include <unistd.h>

#include "base/error.h"
#include "bench/measure/cpu_testbed.h"
#include "bench/measure/parallel_measure.h"
#include "bench/run/case_runner.h"
#include "bench/run/machine.h"
#include "bench/run/phase_times.h"
#include "bench/spec/values.h"

namespace longspan::bench {
namespace {

Json device_json(const Device& device) {
  return {{"kind", kind_name(device.kind)}, {"index", device.index}};
}

Device find_device(const Workbench& workbench, const Json& wanted) {
  const DeviceKind kind = device_kind_from_name(wanted.at("kind").get<std::string>());
  for (const Device& device : workbench.devices()) {
    if (device.kind == kind && device.index == wanted.at("index").get<int>()) return device;
  }
  LONGSPAN_CHECK_INPUT(false, "device {} {} is gone", kind_name(kind), wanted.at("index").get<int>());
  return {};
}

Json rule_of_child(const TimingRule& rule) {
  return {{"warmup_s", rule.warmup_s},       {"min_samples", rule.min_samples},
          {"max_samples", rule.max_samples}, {"budget_s", rule.budget_s},
          {"half_width", rule.half_width},   {"confidence", rule.confidence},
          {"cold_cache", rule.cold_cache}};
}

TimingRule rule_from(const Json& json) {
  TimingRule rule;
  json.at("warmup_s").get_to(rule.warmup_s);
  json.at("min_samples").get_to(rule.min_samples);
  json.at("max_samples").get_to(rule.max_samples);
  json.at("budget_s").get_to(rule.budget_s);
  json.at("half_width").get_to(rule.half_width);
  json.at("confidence").get_to(rule.confidence);
  json.at("cold_cache").get_to(rule.cold_cache);
  return rule;
}

void say(const Json& line) {
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = write(kResultDescriptor, text.data() + sent, text.size() - sent);
    if (n <= 0) std::_Exit(1);  // nobody listens any more
    sent += static_cast<size_t>(n);
  }
}

Json probe_here(Testbed& testbed, const Json& request) {
  Json answer = {{"driver", testbed.driver()}};
  try {
    const Ceiling ceiling =
        testbed.measure_ceiling(dtype_from_name(request.at("ceiling").get<std::string>()));
    answer["ceiling"] = {
        {"flops_per_s", ceiling.flops_per_s}, {"what", ceiling.what}, {"samples_s", ceiling.samples_s}};
    if (!ceiling.tried.empty()) answer["ceiling"]["tried"] = ceiling.tried;
    if (ceiling.sm_clock_mhz > 0) answer["ceiling"]["sm_clock_mhz"] = ceiling.sm_clock_mhz;
  } catch (const std::exception& error) {
    answer["reason"] = error.what();
  }
  return answer;
}

Json run_requested_case(const Workbench& workbench, Testbed& testbed, const Json& request,
                        const std::vector<int>& descriptors) {
  const Case c = case_from_json(nlohmann::json::parse(request.at("case").dump()));
  const Kernel* kernel = workbench.find(c.kernel);
  LONGSPAN_CHECK_INPUT(kernel != nullptr, "kernel '{}' is unknown", c.kernel);
  if (workbench.helpers.adopt) workbench.helpers.adopt(*kernel, descriptors);
  return run_case_here(workbench, testbed, c, rule_from(request.at("rule")), [](const std::string& text) {
    say({{"phase", text}});
  });
}

// The last line of what the child printed: most often the message of what ended it.
std::string last_words(const std::string& output) {
  const std::string_view text = trimmed(output);
  const size_t newline = text.rfind('\n');
  std::string words(newline == std::string_view::npos ? text : text.substr(newline + 1));
  constexpr size_t kLongest = 300;
  if (words.size() > kLongest) words = words.substr(0, kLongest) + "...";
  return words.empty() ? "" : ": " + words;
}

std::string reason_of(const ChildEnd& end, const std::string& phase, double limit_s) {
  const std::string where = phase.empty() ? "" : " in " + phase;
  if (end.how == ChildEnd::How::kTimedOut) {
    return fmt::format("hung: not done after the time limit of {}{}; give more with --timeout-s or timeout_s",
                       format_duration(limit_s), where);
  }
  if (end.how == ChildEnd::How::kSignalled && end.status == SIGKILL) {
    return fmt::format("killed (SIGKILL){}, probably out of memory", where);
  }
  if (end.how == ChildEnd::How::kSignalled) {
    return fmt::format("crashed ({}){}{}", signal_name(end.status), where, last_words(end.error_output));
  }
  return fmt::format("ended with exit code {}{}{}", end.status, where, last_words(end.error_output));
}

}  // namespace

Json run_case_here(const Workbench& workbench, Testbed& testbed, const Case& c, const TimingRule& rule,
                   const Phase& phase, Alarm* alarm) {
  const Kernel& kernel = *workbench.find(c.kernel);
  if (!c.parallelism) return run_case(c, rule, kernel, testbed, workbench.verify, phase);
  Spread over;
  try {
    over = spread(kernel, c.parallelism, workbench.devices(), testbed.device(), alarm);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    return {{"status", "skipped"}, {"reason", error.what()}};
  }
  Json outcome = run_case(c, rule, *over.kernel, testbed, workbench.verify, phase, &kernel);
  if (over.process != nullptr) agree(*over.process, outcome);
  return outcome;
}

int answer_requests(const Workbench& workbench) {
  become_child();
  Requests requests(STDIN_FILENO);
  std::unique_ptr<Testbed> testbed;
  Json testbeds_device;
  try {
    while (const auto received = requests.next()) {
      const Json request = parse_json(received->line);
      if (const Json& device = request.at("device"); testbed == nullptr || device != testbeds_device) {
        testbed = workbench.testbed(find_device(workbench, device));
        testbeds_device = device;
      }
      testbed->take_device_state();  // of a case that ended before its own was asked for
      say({{"answer", request.contains("case")
                          ? run_requested_case(workbench, *testbed, request, received->descriptors)
                          : probe_here(*testbed, request)}});
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

// What a child had to say.
struct Isolation::Told {
  ChildEnd end;
  std::string phase, nonsense;
  std::optional<Json> answer;
  PhaseTimes times;

  // The answer, if it is to be believed; otherwise a failure.
  Json outcome(bool believed, double limit_s) {
    if (believed && answer && nonsense.empty()) return *answer;
    if (!nonsense.empty()) {
      return {{"status", "failed"},
              {"reason", fmt::format("wrote into the runner's pipe: '{}', in {}", nonsense, phase)}};
    }
    return {{"status", "failed"}, {"reason", reason_of(end, answer ? "tidying up" : phase, limit_s)}};
  }
};

Isolation::Isolation(SignalGuard& guard, Variables variables)
    : guard_(guard), variables_(std::move(variables)) {}

Isolation::~Isolation() = default;

std::unique_ptr<ChildProcess> Isolation::start() const {
  return std::make_unique<ChildProcess>("/proc/self/exe", std::vector<std::string>{kChildCommand},
                                        variables_);
}

Isolation::Told Isolation::ask(ChildProcess& child, const Json& request, double limit_s,
                               const std::vector<int>& descriptors) {
  Told told;
  child.send(request.dump(), descriptors);
  told.end = child.listen(limit_s, guard_, [&](const std::string& text) {
    try {
      const Json line = parse_json(text);
      if (line.contains("phase")) {
        told.phase = line["phase"].get<std::string>();
        told.times.enter(told.phase);
      }
      if (line.contains("answer")) told.answer = line["answer"];
    } catch (const std::exception&) {
      told.nonsense = text.substr(0, 80);
    }
    return told.answer || !told.nonsense.empty();
  });
  return told;
}

// An answer from a child that crashed afterwards is not believed: its memory was in no good state.
std::optional<Json> Isolation::ask_alone(const Json& request, double limit_s,
                                         const std::vector<int>& descriptors) {
  const auto child = start();
  Told told = ask(*child, request, limit_s, descriptors);
  if (told.end.how == ChildEnd::How::kAnswered) {
    child->close_input();
    told.end = child->listen(limit_s, guard_, [](const std::string&) { return false; });
  }
  if (told.end.how == ChildEnd::How::kInterrupted) return std::nullopt;
  Json outcome = told.outcome(told.end.how == ChildEnd::How::kExited && told.end.status == 0, limit_s);
  if (request.contains("case")) outcome["phases_s"] = told.times.json();
  return outcome;
}

std::optional<Json> Isolation::run_case(const Case& c, const Device& device, const TimingRule& rule,
                                        const Helper* helper) {
  const std::vector<int> descriptors = helper == nullptr ? std::vector<int>{} : helper->descriptors();
  const Json request = {{"case", Json::parse(to_json(c).dump())},
                        {"device", device_json(device)},
                        {"rule", rule_of_child(rule)}};
  in_doubt_ = false;
  if (c.parallelism) {
    kept_.reset();  // the ranks need its memory
    return ask_alone(request, rule.timeout_s, descriptors);
  }
  const bool fresh = kept_ == nullptr || kept_->ended();
  if (fresh) kept_ = start();
  Told told = ask(*kept_, request, rule.timeout_s, descriptors);
  if (told.end.how == ChildEnd::How::kInterrupted) return std::nullopt;
  Json outcome = told.outcome(told.end.how == ChildEnd::How::kAnswered, rule.timeout_s);
  if (outcome.value("status", "failed") == "failed") {
    kept_.reset();
    in_doubt_ = !fresh && told.end.how != ChildEnd::How::kTimedOut;
  }
  outcome["phases_s"] = told.times.json();
  return outcome;
}

std::optional<Json> Isolation::probe(const Device& device, DType dtype, double limit_s) {
  return ask_alone({{"ceiling", name_of(dtype)}, {"device", device_json(device)}}, limit_s);
}

}  // namespace longspan::bench
