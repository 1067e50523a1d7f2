// The parent's and the child's side of cases in separate processes.
#include "bench/run/isolation.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <new>
#include <utility>
#include <vector>

#include <unistd.h>

#include "base/error.h"
#include "bench/case/case_runner.h"
#include "bench/case/phase_times.h"
#include "bench/measure/cpu_testbed.h"
#include "bench/measure/parallel_measure.h"
#include "bench/run/machine.h"
#include "bench/spec/values.h"
#include "record/json_reader.h"

namespace longspan::bench {
namespace {

DeviceName name_of(const Device& device) {
  return {std::string(kind_name(device.kind)), device.index};
}

Device find_device(const Workbench& workbench, const DeviceName& wanted) {
  for (const Device& device : workbench.devices()) {
    if (name_of(device) == wanted) return device;
  }
  LONGSPAN_CHECK_INPUT(false, "device {} {} is no longer available", wanted.kind, wanted.index);
  return {};
}

void send_message(const Message& message) {
  const std::string text = record::text_of(record::encode(message)) + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = write(kResultDescriptor, text.data() + sent, text.size() - sent);
    if (n <= 0) std::_Exit(1);  // the parent is gone
    sent += static_cast<size_t>(n);
  }
}

ProbeAnswer probe_here(Testbed& testbed, const std::string& dtype) {
  ProbeAnswer answer;
  answer.driver = testbed.driver();
  try {
    answer.ceiling = testbed.measure_ceiling(dtype_from_name(dtype));
  } catch (const std::exception& error) {
    answer.reason = error.what();
  }
  return answer;
}

CaseAnswer run_requested_case(const Workbench& workbench, Testbed& testbed, const Request& request,
                              const std::vector<int>& descriptors) {
  const Case c = case_of(*request.workload);
  const Kernel* kernel = workbench.find(c.kernel);
  LONGSPAN_CHECK_INPUT(kernel != nullptr, "kernel '{}' is unknown", c.kernel);
  if (workbench.helpers.adopt) workbench.helpers.adopt(*kernel, descriptors);
  return run_case_here(workbench, testbed, c, request.rule,
                       [](const std::string& text) { send_message({.phase = text}); });
}

// The last line that the child printed, usually the error that ended it.
std::string last_output_line(const std::string& output) {
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
    return fmt::format(
        "hung: not finished within the time limit of {}{}; raise it with --timeout-s or timeout_s",
        format_duration(limit_s), where);
  }
  if (end.how == ChildEnd::How::kSignalled && end.status == SIGKILL) {
    return fmt::format("killed (SIGKILL){}, probably out of memory", where);
  }
  if (end.how == ChildEnd::How::kSignalled) {
    return fmt::format("crashed ({}){}{}", signal_name(end.status), where,
                       last_output_line(end.error_output));
  }
  return fmt::format("ended with exit code {}{}{}", end.status, where, last_output_line(end.error_output));
}

}  // namespace

CaseAnswer run_case_here(const Workbench& workbench, Testbed& testbed, const Case& c, const TimingRule& rule,
                         const Phase& phase, Alarm* alarm) {
  const Kernel& kernel = *workbench.find(c.kernel);
  if (!c.parallelism) return run_case(c, rule, kernel, testbed, workbench.verify, phase);
  Spread over;
  try {
    over = spread(kernel, c.parallelism, workbench.devices(), testbed.device(), alarm);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    return CaseAnswer::skipped(error.what());
  }
  CaseAnswer answer = run_case(c, rule, *over.kernel, testbed, workbench.verify, phase, &kernel);
  if (over.process != nullptr) agree(*over.process, answer);
  return answer;
}

int answer_requests(const Workbench& workbench) {
  become_child();
  Requests requests(STDIN_FILENO);
  std::unique_ptr<Testbed> testbed;
  DeviceName testbed_device;
  try {
    while (const auto received = requests.next()) {
      const auto request = record::from_json<Request>(record::parse_json(received->line));
      if (testbed == nullptr || request.device != testbed_device) {
        testbed = workbench.testbed(find_device(workbench, request.device));
        testbed_device = request.device;
      }
      testbed->take_device_state();  // discard the state of a case that ended early
      if (request.workload) {
        send_message({.answer = run_requested_case(workbench, *testbed, request, received->descriptors)});
      } else {
        send_message({.probe = probe_here(*testbed, request.ceiling)});
      }
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

// What a child answered, and how it ended.
struct Isolation::Exchange {
  ChildEnd end;
  std::string phase, malformed;
  Message answer;  // once it is complete
  PhaseTimes times;

  bool ended_well() const { return end.how == ChildEnd::How::kExited && end.status == 0; }
  bool complete() const { return answer.answer || answer.probe; }

  // Why the answer is discarded; "" if it is good.
  std::string failure(bool good_end, double limit_s) const {
    if (!malformed.empty()) return fmt::format("wrote into the runner's pipe: '{}', in {}", malformed, phase);
    if (good_end && complete()) return "";
    return reason_of(end, complete() ? "cleaning up" : phase, limit_s);
  }

  CaseAnswer case_answer(bool good_end, double limit_s) {
    const std::string wrong = failure(good_end, limit_s);
    CaseAnswer result =
        wrong.empty() && answer.answer ? std::move(*answer.answer) : CaseAnswer::failed(wrong);
    result.outcome.phases_s = times.times();
    return result;
  }
};

Isolation::Isolation(SignalGuard& guard, Variables variables)
    : guard_(guard), variables_(std::move(variables)) {}

Isolation::~Isolation() = default;

std::unique_ptr<ChildProcess> Isolation::start() const {
  return std::make_unique<ChildProcess>("/proc/self/exe", std::vector<std::string>{kChildCommand},
                                        variables_);
}

Isolation::Exchange Isolation::ask(ChildProcess& child, const Request& request, double limit_s,
                                   const std::vector<int>& descriptors) {
  Exchange exchange;
  child.send(record::text_of(record::encode(request)), descriptors);
  exchange.end = child.listen(limit_s, guard_, [&](const std::string& text) {
    try {
      auto message = record::from_json<Message>(record::parse_json(text));
      if (!message.phase.empty()) {
        exchange.phase = message.phase;
        exchange.times.enter(exchange.phase);
      }
      exchange.answer = std::move(message);
    } catch (const std::exception&) {
      exchange.malformed = text.substr(0, 80);
    }
    return exchange.complete() || !exchange.malformed.empty();
  });
  return exchange;
}

// If the child crashes after its answer, the answer is discarded: its memory may have been corrupt.
Isolation::Exchange Isolation::ask_alone(const Request& request, double limit_s,
                                         const std::vector<int>& descriptors) {
  const auto child = start();
  Exchange exchange = ask(*child, request, limit_s, descriptors);
  if (exchange.end.how == ChildEnd::How::kAnswered) {
    child->close_input();
    exchange.end = child->listen(limit_s, guard_, [](const std::string&) { return false; });
  }
  return exchange;
}

std::optional<CaseAnswer> Isolation::run_case(const Case& c, const Device& device, const TimingRule& rule,
                                              const Helper* helper) {
  const std::vector<int> descriptors = helper == nullptr ? std::vector<int>{} : helper->descriptors();
  const Request request{name_of(device), workload_of(c), rule, ""};
  in_doubt_ = false;
  if (c.parallelism) {
    kept_.reset();  // the ranks need its memory
    Exchange exchange = ask_alone(request, rule.timeout_s, descriptors);
    if (exchange.end.how == ChildEnd::How::kInterrupted) return std::nullopt;
    return exchange.case_answer(exchange.ended_well(), rule.timeout_s);
  }
  const bool fresh = kept_ == nullptr || kept_->ended();
  if (fresh) kept_ = start();
  Exchange exchange = ask(*kept_, request, rule.timeout_s, descriptors);
  if (exchange.end.how == ChildEnd::How::kInterrupted) return std::nullopt;
  CaseAnswer answer = exchange.case_answer(exchange.end.how == ChildEnd::How::kAnswered, rule.timeout_s);
  if (answer.outcome.status == record::Status::kFailed) {
    kept_.reset();
    in_doubt_ = !fresh && exchange.end.how != ChildEnd::How::kTimedOut;
  }
  return answer;
}

std::optional<ProbeAnswer> Isolation::probe(const Device& device, DType dtype, double limit_s) {
  Exchange exchange =
      ask_alone({name_of(device), std::nullopt, {}, std::string(name_of(dtype))}, limit_s, {});
  if (exchange.end.how == ChildEnd::How::kInterrupted) return std::nullopt;
  const std::string wrong = exchange.failure(exchange.ended_well(), limit_s);
  if (wrong.empty() && exchange.answer.probe) return std::move(*exchange.answer.probe);
  return ProbeAnswer{"", std::nullopt, wrong};
}

}  // namespace longspan::bench
