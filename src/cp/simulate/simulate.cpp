#include "cp/simulate/simulate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <tuple>

#include "base/error.h"
#include "cp/simulate/links.h"
#include "cp/simulate/network.h"

namespace longspan::simulate {
namespace {

// The kernel seconds that a GPU gets through in its first busy_s seconds of computing.
double work_until(const Clock& clock, double busy_s) {
  const double burst_s = clock.settle_s * -std::expm1(-busy_s / clock.settle_s);
  return clock.burst * burst_s + clock.sustained * (busy_s - burst_s);
}

// The time that `work` more takes, at `share` of the speed.
double time_of(const Clock& clock, double busy_s, double work, double share) {
  const double target = work_until(clock, busy_s) + work / share;
  double at = busy_s;
  for (int i = 0; i < 64; ++i) {
    const double burst = std::exp(-at / clock.settle_s);
    const double speed = clock.burst * burst + clock.sustained * (1 - burst);
    const double more_s = (target - work_until(clock, at)) / speed;
    at += more_s;
    if (std::abs(more_s) <= 1e-15 * at) break;
  }
  return at - busy_s;
}

class Simulator {
 public:
  Simulator(const Program& program, const Cluster& cluster, const Topology& topology)
      : program_(program),
        cluster_(cluster),
        ranks_(program.steps.size()),
        states_(ranks_),
        network_(grain_of(program, cluster)),
        links_(network_, cluster.links, topology),
        posts_(program.flows.size()),
        index_(program) {
    timeline_.ranks.resize(ranks_);
    timeline_.segments.resize(ranks_);
    timeline_.rounds_s.resize(ranks_);
    timeline_.flows.resize(program.flows.size());
    waits_.resize(ranks_);
  }

  Timeline run() {
    for (const Flow& flow : program_.flows)
      network_.add_flow(flow.bytes, links_.of(flow.src, flow.dst, program_.beside[flow.exchange]));
    for (size_t rank = 0; rank < ranks_; ++rank) schedule(0, Event::kRank, static_cast<int32_t>(rank));
    while (true) {
      const double event_s = events_.empty() ? kNever : events_.top().time_s;
      const double flow_s = network_.next_end_s();
      if (event_s == kNever && flow_s == kNever) break;
      if (flow_s <= event_s) {
        end_flow();
        continue;
      }
      while (!events_.empty() && events_.top().time_s <= event_s) {
        const Event event = events_.top();
        events_.pop();
        if (event.kind == Event::kFlow) {
          begin_flow(event.number, event.time_s);
        } else if (states_[static_cast<size_t>(event.number)].version == event.version) {
          step(static_cast<size_t>(event.number), event.time_s);
        }
      }
    }
    finish();
    return std::move(timeline_);
  }

 private:
  struct Event {
    enum Kind : uint8_t { kRank, kFlow } kind;
    double time_s;
    int32_t number;
    uint32_t version;
    // Events of the same time have an order too, so that every machine simulates the same.
    bool operator>(const Event& other) const {
      return std::tie(time_s, kind, number) > std::tie(other.time_s, other.kind, other.number);
    }
  };

  struct RankState {
    size_t next = 0;       // step
    uint32_t version = 0;  // of its event
    double begun_s = 0;    // the step at hand
    bool in_step = false;
    // The attend at hand.
    bool computes = false;
    double work_left = 0, memory_left_s = 0, since_s = 0, busy_s = 0;
    int32_t flows = 0;  // under way from or to the rank
  };

  // For each rank and exchange: its flows, and how many of them have not ended.
  struct FlowIndex {
    explicit FlowIndex(const Program& program) : exchanges(static_cast<size_t>(program.exchanges)) {
      const size_t cells = program.steps.size() * exchanges;
      first_out.resize(cells + 1);
      first_in.resize(cells + 1);
      for (const Flow& flow : program.flows) {
        ++first_out[cell(flow.src, flow.exchange) + 1];
        ++first_in[cell(flow.dst, flow.exchange) + 1];
      }
      pending_out.assign(first_out.begin() + 1, first_out.end());
      pending_in.assign(first_in.begin() + 1, first_in.end());
      for (size_t i = 0; i < cells; ++i) {
        first_out[i + 1] += first_out[i];
        first_in[i + 1] += first_in[i];
      }
      out.resize(program.flows.size());
      in.resize(program.flows.size());
      std::vector<int32_t> next_out = first_out, next_in = first_in;
      for (size_t i = 0; i < program.flows.size(); ++i) {
        const Flow& flow = program.flows[i];
        out[static_cast<size_t>(next_out[cell(flow.src, flow.exchange)]++)] = static_cast<int32_t>(i);
        in[static_cast<size_t>(next_in[cell(flow.dst, flow.exchange)]++)] = static_cast<int32_t>(i);
      }
    }
    size_t cell(int32_t rank, int32_t exchange) const {
      return static_cast<size_t>(rank) * exchanges + static_cast<size_t>(exchange);
    }
    size_t exchanges;
    std::vector<int32_t> first_out, first_in, out, in, pending_out, pending_in;
  };

  // Many flows: their rates follow changes only so often, the more of them there are.
  static double grain_of(const Program& program, const Cluster& cluster) {
    constexpr size_t kExact = 20000;
    constexpr double kRates = 5e7;  // computed in the pass's least time
    if (program.flows.size() <= kExact) return 0;
    const double changes = kRates / static_cast<double>(program.flows.size());
    std::vector<double> sent(program.steps.size());
    double most_s = 0;
    for (const Flow& flow : program.flows) sent[static_cast<size_t>(flow.src)] += flow.bytes;
    for (size_t rank = 0; rank < sent.size(); ++rank) {
      double compute_s = 0;
      for (const Step& each : program.steps[rank]) compute_s += each.seconds;
      most_s = std::max({most_s, compute_s, sent[rank] / cluster.links.port_bytes_per_s});
    }
    return most_s / changes;
  }

  void schedule(double time_s, Event::Kind kind, int32_t number, uint32_t version = 0) {
    LONGSPAN_CHECK(std::isfinite(time_s), "event at {} s", time_s);  // NaN would never come to its turn
    events_.push({kind, time_s, number, version});
  }

  void record(size_t rank, StepKind kind, double begin_s, double end_s, int32_t flow = -1) {
    if (end_s > begin_s) timeline_.segments[rank].push_back({kind, begin_s, end_s, flow});
  }

  // Ends the step at hand and goes on until a step takes time or waits.
  void step(size_t rank, double now_s) {
    RankState& state = states_[rank];
    const std::vector<Step>& steps = program_.steps[rank];
    if (state.in_step) {
      const StepKind kind = steps[state.next].kind;
      if (kind == StepKind::kAttend) {
        state.busy_s += now_s - state.since_s;
        state.computes = false;
      }
      record(rank, kind == StepKind::kPost ? StepKind::kReorder : kind, state.begun_s, now_s);
      if (kind == StepKind::kPost) post(rank, steps[state.next].exchange, now_s);
      state.in_step = false;
      ++state.next;
    }
    for (; state.next < steps.size(); ++state.next) {
      begin_rounds(rank, now_s);
      const Step& next = steps[state.next];
      state.begun_s = now_s;
      if (next.kind == StepKind::kArrive || next.kind == StepKind::kFinish) {
        if (cluster_.links.receiver_copies) make_ready(rank, next.exchange, now_s, false);
        if (waits(rank, next)) return;  // end_flow goes on
        continue;
      }
      state.in_step = true;
      if (next.kind == StepKind::kAttend) {
        state.computes = true;
        state.work_left = next.seconds;
        state.memory_left_s = next.memory_s;
        state.since_s = now_s;
        plan_end_of_attend(rank, now_s);
      } else {
        const double time_s = next.kind == StepKind::kPost ? cluster_.memory.operation_s : next.seconds;
        schedule(now_s + time_s, Event::kRank, static_cast<int32_t>(rank), ++state.version);
      }
      return;
    }
    begin_rounds(rank, now_s);
    timeline_.ranks[rank].end_s = now_s;
  }

  // Notes the rounds that begin at or before the step at hand.
  void begin_rounds(size_t rank, double now_s) {
    if (program_.round_steps.empty()) return;
    const std::vector<size_t>& firsts = program_.round_steps[rank];
    std::vector<double>& begun_s = timeline_.rounds_s[rank];
    while (begun_s.size() < firsts.size() && firsts[begun_s.size()] <= states_[rank].next)
      begun_s.push_back(now_s);
  }

  double speed_share(const RankState& state) const {
    return state.flows > 0 ? 1 - cluster_.links.kernel_slowdown : 1;
  }

  // The time that the work of the attend at hand still takes, before what it reads and writes of memory.
  double work_left_s(const RankState& state) const {
    return time_of(cluster_.clock, state.busy_s, std::max(0.0, state.work_left), speed_share(state));
  }

  void plan_end_of_attend(size_t rank, double now_s) {
    RankState& state = states_[rank];
    schedule(now_s + work_left_s(state) + state.memory_left_s, Event::kRank, static_cast<int32_t>(rank),
             ++state.version);
  }

  // The number of a rank's flows changes, and with it the speed of its kernel.
  void change_flows(size_t rank, int32_t by, double now_s) {
    RankState& state = states_[rank];
    const bool changes = (state.flows == 0) != (state.flows + by == 0);
    if (!state.computes || !changes || cluster_.links.kernel_slowdown == 0) {
      state.flows += by;
      return;
    }
    const double passed_s = now_s - state.since_s, left_s = work_left_s(state);
    if (passed_s < left_s) {
      const double done =
          work_until(cluster_.clock, state.busy_s + passed_s) - work_until(cluster_.clock, state.busy_s);
      state.work_left -= done * speed_share(state);
    } else {
      state.work_left = 0;
      state.memory_left_s = std::max(0.0, state.memory_left_s - (passed_s - left_s));
    }
    state.busy_s += passed_s;
    state.since_s = now_s;
    state.flows += by;
    plan_end_of_attend(rank, now_s);
  }

  bool waits(size_t rank, const Step& step) const {
    const size_t cell = index_.cell(static_cast<int32_t>(rank), step.exchange);
    return index_.pending_in[cell] > 0 || (step.kind == StepKind::kFinish && index_.pending_out[cell] > 0);
  }

  void post(size_t rank, int32_t exchange, double now_s) {
    make_ready(rank, exchange, now_s, true);
    if (!cluster_.links.receiver_copies) make_ready(rank, exchange, now_s, false);
  }

  // One end of the flows from or to the rank is ready.
  void make_ready(size_t rank, int32_t exchange, double now_s, bool source) {
    const size_t cell = index_.cell(static_cast<int32_t>(rank), exchange);
    const auto ready = [&](int32_t number) {
      uint8_t& ends = posts_[static_cast<size_t>(number)];
      const uint8_t before = ends;
      ends |= source ? kSource : kTarget;
      if (ends == before || ends != (kSource | kTarget)) return;
      FlowTimes& times = timeline_.flows[static_cast<size_t>(number)];
      times.source_was_last = source;
      times.ready_s = now_s;
      const Flow& flow = program_.flows[static_cast<size_t>(number)];
      schedule(now_s + links_.latency_s(flow.src, flow.dst), Event::kFlow, number);
    };
    const auto& first = source ? index_.first_out : index_.first_in;
    const auto& flows = source ? index_.out : index_.in;
    for (int32_t i = first[cell]; i < first[cell + 1]; ++i) ready(flows[static_cast<size_t>(i)]);
  }

  void begin_flow(int32_t number, double now_s) {
    const Flow& flow = program_.flows[static_cast<size_t>(number)];
    timeline_.flows[static_cast<size_t>(number)].begin_s = now_s;
    for (const int32_t rank : {flow.src, flow.dst}) change_flows(static_cast<size_t>(rank), 1, now_s);
    network_.begin(number, now_s);
  }

  void end_flow() {
    double now_s = 0;
    const int32_t number = network_.end_next(now_s);
    const Flow& flow = program_.flows[static_cast<size_t>(number)];
    timeline_.flows[static_cast<size_t>(number)].end_s = now_s;
    --index_.pending_out[index_.cell(flow.src, flow.exchange)];
    --index_.pending_in[index_.cell(flow.dst, flow.exchange)];
    for (const int32_t rank : {flow.src, flow.dst}) {
      change_flows(static_cast<size_t>(rank), -1, now_s);
      wake(static_cast<size_t>(rank), number, now_s);
    }
  }

  // Goes on with a rank that waited for this flow, if it was the last one.
  void wake(size_t rank, int32_t number, double now_s) {
    RankState& state = states_[rank];
    if (state.in_step || state.next >= program_.steps[rank].size()) return;
    const Step& step_at_hand = program_.steps[rank][state.next];
    if (step_at_hand.exchange != program_.flows[static_cast<size_t>(number)].exchange) return;
    if (waits(rank, step_at_hand)) return;
    record(rank, StepKind::kArrive, state.begun_s, now_s, number);
    const Flow& flow = program_.flows[static_cast<size_t>(number)];
    waits_[rank][flow.src == static_cast<int32_t>(rank) ? flow.dst : flow.src] += now_s - state.begun_s;
    ++state.next;
    step(rank, now_s);
  }

  void finish() {
    for (size_t rank = 0; rank < ranks_; ++rank) {
      LONGSPAN_CHECK(states_[rank].next == program_.steps[rank].size(), "rank {} waits for ever at step {}",
                     rank, states_[rank].next);
      RankTimes& times = timeline_.ranks[rank];
      timeline_.time_s = std::max(timeline_.time_s, times.end_s);
      for (const Segment& segment : timeline_.segments[rank]) {
        double& sum = segment.kind == StepKind::kAttend    ? times.compute_s
                      : segment.kind == StepKind::kReorder ? times.reorder_s
                      : segment.kind == StepKind::kMerge   ? times.merge_s
                                                           : times.exposed_s;
        sum += segment.end_s - segment.begin_s;
      }
      for (const auto& [peer, wait_s] : waits_[rank]) {
        if (wait_s > times.waits_most_s) times.waits_most_for = peer, times.waits_most_s = wait_s;
      }
    }
  }

  const Program& program_;
  const Cluster& cluster_;
  const size_t ranks_;
  std::vector<RankState> states_;
  Network network_;
  const Links links_;
  static constexpr uint8_t kSource = 1, kTarget = 2;
  std::vector<uint8_t> posts_;  // by flow: which of its ends are ready
  FlowIndex index_;
  std::vector<std::map<int32_t, double>> waits_;  // by rank: seconds by peer
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Timeline timeline_;
};

}  // namespace

Timeline run(const Program& program, const Cluster& cluster, const Topology& topology) {
  return Simulator(program, cluster, topology).run();
}

}  // namespace longspan::simulate
