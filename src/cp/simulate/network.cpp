#include "cp/simulate/network.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "base/error.h"

namespace longspan::simulate {

int32_t Network::add_link(double bytes_per_s) {
  LONGSPAN_CHECK(bytes_per_s > 0, "a link of {} bytes/s", bytes_per_s);
  links_.push_back({bytes_per_s, 0, {}, 0, false, false});
  return static_cast<int32_t>(links_.size()) - 1;
}

int32_t Network::add_flow(double bytes, const std::vector<int32_t>& links) {
  Flow flow;
  flow.left = bytes;
  flow.first_link = static_cast<uint32_t>(flow_links_.size());
  flow.links = static_cast<uint32_t>(links.size());
  flow_links_.insert(flow_links_.end(), links.begin(), links.end());
  flow_places_.resize(flow_links_.size());
  flows_.push_back(flow);
  return static_cast<int32_t>(flows_.size()) - 1;
}

void Network::begin(int32_t number, double now_s) {
  Flow& flow = flows_[static_cast<size_t>(number)];
  flow.under_way = true;
  flow.since_s = now_s;
  // Until rates are shared out anew, it gets what an equal share of each link would give it.
  double rate = kNever;
  for (uint32_t i = 0; i < flow.links; ++i) {
    Link& link = links_[static_cast<size_t>(flow_links_[flow.first_link + i])];
    flow_places_[flow.first_link + i] = static_cast<uint32_t>(link.flows.size());
    link.flows.push_back(number);
    rate = std::min(rate, link.capacity / static_cast<double>(link.flows.size()));
  }
  touch(number, now_s);
  set_rate(number, rate, now_s);
}

double Network::next_end_s() {
  while (!changed_.empty() && changed_s_ + grain_s_ <= first_end_s()) update(changed_s_ + grain_s_);
  return first_end_s();
}

double Network::first_end_s() {
  drop_stale();
  return ends_.empty() ? kNever : ends_.front().time_s;
}

int32_t Network::end_next(double& now_s) {
  now_s = next_end_s();
  const int32_t number = ends_.front().flow;
  std::pop_heap(ends_.begin(), ends_.end(), std::greater<>());
  ends_.pop_back();
  Flow& flow = flows_[static_cast<size_t>(number)];
  flow.under_way = false;
  ++flow.version;
  for (uint32_t i = flow.first_link; i < flow.first_link + flow.links; ++i)
    remove(flow_links_[i], flow_places_[i]);
  touch(number, now_s);
  return number;
}

// The last flow of the link takes the place of the removed one.
void Network::remove(int32_t link, uint32_t place) {
  std::vector<int32_t>& flows = links_[static_cast<size_t>(link)].flows;
  const auto last = static_cast<uint32_t>(flows.size()) - 1;
  const Flow& moved = flows_[static_cast<size_t>(flows.back())];
  for (uint32_t i = moved.first_link; i < moved.first_link + moved.links; ++i) {
    if (flow_links_[i] == link && flow_places_[i] == last) flow_places_[i] = place;
  }
  flows[place] = flows.back();
  flows.pop_back();
}

// Notes that the links of a flow have changed. A link that no other flow uses concerns nobody.
void Network::touch(int32_t number, double now_s) {
  const Flow& flow = flows_[static_cast<size_t>(number)];
  for (uint32_t i = 0; i < flow.links; ++i) {
    const int32_t at = flow_links_[flow.first_link + i];
    Link& link = links_[static_cast<size_t>(at)];
    if (link.changed || link.flows.empty() || (flow.under_way && link.flows.size() == 1)) continue;
    link.changed = true;
    changed_.push_back(at);
    changed_s_ = std::min(changed_s_, now_s);
  }
}

void Network::update(double now_s) {
  collect_component();
  for (const int32_t number : flows_of_) {
    Flow& flow = flows_[static_cast<size_t>(number)];
    flow.left = std::max(0.0, flow.left - flow.rate * (now_s - flow.since_s));
    flow.since_s = now_s;
  }
  share_out();
  // Where most ends change, it is faster to order them all anew than to leave the old ones behind.
  const bool anew = 2 * flows_of_.size() > ends_.size();
  if (anew) {
    std::erase_if(ends_, [&](const End& end) {
      const Flow& flow = flows_[static_cast<size_t>(end.flow)];
      return flow.seen || !flow.under_way || flow.version != end.version;
    });
  }
  for (const int32_t number : flows_of_) {
    Flow& flow = flows_[static_cast<size_t>(number)];
    flow.seen = false;
    if (anew) {
      ends_.push_back({now_s + flow.left / flow.rate, number, ++flow.version});
    } else {
      set_rate(number, flow.rate, now_s);
    }
  }
  if (anew) std::make_heap(ends_.begin(), ends_.end(), std::greater<>());
  for (const int32_t number : links_of_) links_[static_cast<size_t>(number)].seen = false;
  for (const int32_t number : changed_) links_[static_cast<size_t>(number)].changed = false;
  changed_.clear();
  changed_s_ = kNever;
}

// The links and flows that are connected with a changed link.
void Network::collect_component() {
  links_of_.clear();
  flows_of_.clear();
  const auto visit = [&](int32_t number) {
    Link& link = links_[static_cast<size_t>(number)];
    if (link.seen) return;
    link.seen = true;
    links_of_.push_back(number);
  };
  for (const int32_t number : changed_) visit(number);
  for (size_t next = 0; next < links_of_.size(); ++next) {
    for (const int32_t number : links_[static_cast<size_t>(links_of_[next])].flows) {
      Flow& flow = flows_[static_cast<size_t>(number)];
      if (flow.seen) continue;
      flow.seen = true;
      flows_of_.push_back(number);
      for (uint32_t i = 0; i < flow.links; ++i) visit(flow_links_[flow.first_link + i]);
    }
  }
}

// Progressive filling: the link with the smallest equal share is the bottleneck of its flows, which get that
// share; what they use of other links is taken from these.
void Network::share_out() {
  struct Share {
    double rate;
    int32_t link;
    bool operator>(const Share& other) const { return rate > other.rate; }
  };
  std::priority_queue<Share, std::vector<Share>, std::greater<>> shares;
  const auto share_of = [&](const Link& link) { return link.left / link.open; };
  for (const int32_t number : flows_of_) flows_[static_cast<size_t>(number)].rate = -1;
  for (const int32_t number : links_of_) {
    Link& link = links_[static_cast<size_t>(number)];
    link.left = link.capacity;
    link.open = static_cast<int32_t>(link.flows.size());
    if (link.open > 0) shares.push({share_of(link), number});
  }
  while (!shares.empty()) {
    const Share least = shares.top();
    shares.pop();
    Link& bottleneck = links_[static_cast<size_t>(least.link)];
    if (bottleneck.open == 0) continue;
    const double rate = std::max(share_of(bottleneck), 1e-9 * bottleneck.capacity);  // rounding may leave 0
    if (rate > least.rate * (1 + 1e-12)) {  // its share has grown since: others took less
      shares.push({rate, least.link});
      continue;
    }
    for (const int32_t number : bottleneck.flows) {
      Flow& flow = flows_[static_cast<size_t>(number)];
      if (flow.rate >= 0) continue;
      flow.rate = rate;
      for (uint32_t i = 0; i < flow.links; ++i) {
        Link& link = links_[static_cast<size_t>(flow_links_[flow.first_link + i])];
        link.left = std::max(0.0, link.left - rate);
        --link.open;
      }
    }
  }
}

void Network::set_rate(int32_t number, double rate, double now_s) {
  Flow& flow = flows_[static_cast<size_t>(number)];
  flow.rate = rate;
  ++flow.version;
  ends_.push_back({now_s + flow.left / rate, number, flow.version});
  std::push_heap(ends_.begin(), ends_.end(), std::greater<>());
}

void Network::drop_stale() {
  while (!ends_.empty()) {
    const End& end = ends_.front();
    const Flow& flow = flows_[static_cast<size_t>(end.flow)];
    if (flow.under_way && flow.version == end.version) return;
    std::pop_heap(ends_.begin(), ends_.end(), std::greater<>());
    ends_.pop_back();
  }
}

}  // namespace longspan::simulate
