// Flows that share links: at any time each flow has its max-min fair rate.
#pragma once

#include <cstdint>
#include <vector>

namespace longspan::simulate {

inline constexpr double kNever = 1e300;

// Rates are computed anew only for flows that share a link, directly or through others, with a flow that
// begins or ends.
class Network {
 public:
  // `grain_s`: changes so close together count as one for the rates, which makes thousands of flows
  // affordable; 0: each counts.
  explicit Network(double grain_s = 0) : grain_s_(grain_s) {}

  int32_t add_link(double bytes_per_s);
  int32_t add_flow(double bytes, const std::vector<int32_t>& links);  // not yet begun
  void begin(int32_t flow, double now_s);

  double next_end_s();              // of any flow; kNever if none is under way
  int32_t end_next(double& now_s);  // ends that flow, and says when

 private:
  struct Link {
    double capacity = 0, left = 0;
    std::vector<int32_t> flows;  // under way
    int32_t open = 0;            // of them, without a rate yet
    bool seen = false, changed = false;
  };
  struct Flow {
    double left = 0, rate = 0, since_s = 0;  // bytes left at since_s
    uint32_t first_link = 0, links = 0;
    uint32_t version = 0;
    bool under_way = false, seen = false;
  };
  struct End {
    double time_s;
    int32_t flow;
    uint32_t version;
    bool operator>(const End& other) const { return time_s > other.time_s; }
  };

  void remove(int32_t link, uint32_t place);
  void touch(int32_t flow, double now_s);
  void update(double now_s);
  void collect_component();
  void share_out();
  void set_rate(int32_t flow, double rate, double now_s);
  void drop_stale();
  double first_end_s();

  const double grain_s_;
  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<int32_t> flow_links_;
  std::vector<uint32_t> flow_places_;         // by entry of flow_links_: the place in that link's flows
  std::vector<End> ends_;                     // a heap, the next one first
  std::vector<int32_t> changed_;              // links
  double changed_s_ = kNever;                 // when the first of them changed
  std::vector<int32_t> links_of_, flows_of_;  // the component at hand
};

}  // namespace longspan::simulate
