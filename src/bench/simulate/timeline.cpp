// The format: "Trace Event Format" of Chromium. Times are in microseconds.
#include "bench/simulate/timeline.h"

#include <fmt/format.h>

namespace longspan::bench {
namespace {

constexpr double kMicroseconds = 1e6;

std::string wait_name(const simulate::Program& program, const simulate::Segment& segment, size_t rank) {
  const int32_t peer = peer_of(program, segment, rank);
  return peer < 0 ? std::string(name_of(segment.kind)) : fmt::format("wait for rank {}", peer);
}

}  // namespace

std::string timeline_json(const SimulatedPass& pass) {
  std::string text(kTimelineBegin);
  text += R"({"ph":"M","pid":0,"name":"process_name","args":{"name":"ranks"}},)";
  text += R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"transfers"}},)";
  text += R"({"ph":"M","pid":2,"name":"process_name","args":{"name":"memory in use"}})";
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
  for (size_t rank = 0; rank < pass.memory.size(); ++rank) {
    const auto count = [&](double time_s, double bytes) {
      text += fmt::format(
          ",\n"
          R"({{"ph":"C","pid":2,"name":"rank {}","ts":{:.3f},"args":{{"bytes":{:.0f}}}}})",
          rank, time_s * kMicroseconds, bytes);
    };
    for (const MemoryStep& step : memory_over_time(pass, rank)) count(step.begin_s, step.bytes);
    count(pass.timeline.ranks[rank].end_s, 0);
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
