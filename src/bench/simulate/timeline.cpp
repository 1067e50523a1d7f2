// The format: "Trace Event Format" of Chromium.
#include "bench/simulate/timeline.h"

#include <cmath>
#include <cstdint>

#include <fmt/format.h>

namespace longspan::bench {
namespace {

// Perfetto takes process and thread 0 for the idle task of a processor, so numbers begin with 1.
constexpr int kRanks = 1, kTransfers = 2, kMemory = 3;
size_t thread_of(size_t rank) {
  return rank + 1;
}

// Both ends of an event are rounded, never its length: Perfetto drops an event that begins within the one
// before.
int64_t nanoseconds(double seconds) {
  return std::llround(seconds * 1e9);
}
std::string microseconds(int64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}
std::string process(int number, std::string_view name) {
  return fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":"{}"}}}})", number, name);
}

std::string wait_name(const simulate::Program& program, const simulate::Segment& segment, size_t rank) {
  const int32_t peer = peer_of(program, segment, rank);
  return peer < 0 ? std::string(name_of(segment.kind)) : fmt::format("wait for rank {}", peer);
}

}  // namespace

std::string timeline_json(const SimulatedPass& pass) {
  std::string text(kTimelineBegin);
  text += process(kRanks, "ranks") + "," + process(kTransfers, "transfers") + "," +
          process(kMemory, "memory in use");
  const auto& segments = pass.timeline.segments;
  for (size_t rank = 0; rank < segments.size(); ++rank) {
    text += fmt::format(R"(,{{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":"rank {}"}}}})",
                        kRanks, thread_of(rank), rank);
    for (const simulate::Segment& segment : segments[rank]) {
      const int64_t begin = nanoseconds(segment.begin_s), end = nanoseconds(segment.end_s);
      text += fmt::format(
          ","
          "\n"
          R"({{"ph":"X","pid":{},"tid":{},"name":"{}","ts":{},"dur":{}}})",
          kRanks, thread_of(rank), wait_name(pass.program, segment, rank), microseconds(begin),
          microseconds(end - begin));
    }
  }
  for (size_t rank = 0; rank < pass.memory.size(); ++rank) {
    const auto count = [&](double time_s, double bytes) {
      text += fmt::format(
          ",\n"
          R"({{"ph":"C","pid":{},"name":"rank {}","ts":{},"args":{{"bytes":{:.0f}}}}})",
          kMemory, rank, microseconds(nanoseconds(time_s)), bytes);
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
          R"({{"ph":"{}","cat":"transfer","id2":{{"local":"{}"}},"pid":{},"tid":{},"name":"{} to {}","ts":{},"args":{{"bytes":{}}}}})",
          phase, i, kTransfers, thread_of(flow.dst), flow.src, flow.dst, microseconds(nanoseconds(time_s)),
          flow.bytes);
    };
    event('b', times.begin_s);
    event('e', times.end_s);
  }
  return text + "]}\n";
}

}  // namespace longspan::bench
