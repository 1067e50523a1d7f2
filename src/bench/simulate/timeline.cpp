// The format: "Trace Event Format" of Chromium. Times are in microseconds.
#include "bench/simulate/timeline.h"

#include <fmt/format.h>

namespace longspan::bench {
namespace {

constexpr double kMicroseconds = 1e6;

std::string wait_name(const simulate::Program& program, const simulate::Segment& segment, size_t rank) {
  if (segment.flow < 0) return std::string(name_of(segment.kind));
  const simulate::Flow& flow = program.flows[static_cast<size_t>(segment.flow)];
  return fmt::format("wait for rank {}", flow.src == static_cast<int32_t>(rank) ? flow.dst : flow.src);
}

}  // namespace

std::string_view name_of(simulate::StepKind kind) {
  switch (kind) {
    case simulate::StepKind::kAttend:
      return "compute";
    case simulate::StepKind::kReorder:
    case simulate::StepKind::kPost:
      return "reorder";
    case simulate::StepKind::kMerge:
      return "merge";
    case simulate::StepKind::kArrive:
    case simulate::StepKind::kFinish:
      return "wait";
  }
  return "";
}

std::string timeline_json(const SimulatedPass& pass) {
  std::string text(kTimelineBegin);
  text += R"({"ph":"M","pid":0,"name":"process_name","args":{"name":"ranks"}},)";
  text += R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"transfers"}})";
  const auto& segments = pass.timeline.segments;
  for (size_t rank = 0; rank < segments.size(); ++rank) {
    text += fmt::format(R"(,{{"ph":"M","pid":0,"tid":{},"name":"thread_name","args":{{"name":"rank {}"}}}})",
                        rank, rank);
    for (const simulate::Segment& segment : segments[rank]) {
      text += fmt::format(
          ","
          "\n"
          R"({{"ph":"X","pid":0,"tid":{},"name":"{}","ts":{:.3f},"dur":{:.3f}}})",
          rank, wait_name(pass.program, segment, rank), segment.begin_s * kMicroseconds,
          (segment.end_s - segment.begin_s) * kMicroseconds);
    }
  }
  for (size_t i = 0; i < pass.program.flows.size(); ++i) {
    const simulate::Flow& flow = pass.program.flows[i];
    const simulate::FlowTimes& times = pass.timeline.flows[i];
    const auto event = [&](char phase, double time_s) {
      text += fmt::format(
          ",\n"
          R"({{"ph":"{}","cat":"transfer","id":{},"pid":1,"tid":{},"name":"{} to {}","ts":{:.3f},"args":{{"bytes":{}}}}})",
          phase, i, flow.dst, flow.src, flow.dst, time_s * kMicroseconds, flow.bytes);
    };
    event('b', times.begin_s);
    event('e', times.end_s);
  }
  return text + "]}\n";
}

}  // namespace longspan::bench
