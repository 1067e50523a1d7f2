// Closed forms of flows that share links.
#include "cp/simulate/network.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace longspan::simulate {
namespace {

// The times at which the flows end.
std::vector<double> ends_of(Network& network, size_t flows) {
  std::vector<double> ends(flows);
  while (network.next_end_s() < kNever) {
    double now_s = 0;
    const int32_t flow = network.end_next(now_s);
    ends[static_cast<size_t>(flow)] = now_s;
  }
  return ends;
}

TEST(Network, OneFlowHasTheSlowestOfItsLinks) {
  Network network;
  const int32_t fast = network.add_link(10), slow = network.add_link(4);
  network.begin(network.add_flow(20, {fast, slow}), 1);
  EXPECT_DOUBLE_EQ(ends_of(network, 1)[0], 1 + 20.0 / 4);
}

TEST(Network, TwoFlowsShareALink) {
  Network network;
  const int32_t link = network.add_link(10);
  const int32_t a = network.add_flow(10, {link}), b = network.add_flow(30, {link});
  network.begin(a, 0);
  network.begin(b, 0);
  const std::vector<double> ends = ends_of(network, 2);
  EXPECT_DOUBLE_EQ(ends[0], 2);  // at 5 each
  EXPECT_DOUBLE_EQ(ends[1], 4);  // then 20 are left at 10
}

TEST(Network, AFlowThatBeginsLaterTakesItsShareFromThenOn) {
  Network network;
  const int32_t link = network.add_link(10);
  const int32_t a = network.add_flow(40, {link}), b = network.add_flow(10, {link});
  network.begin(a, 0);
  EXPECT_DOUBLE_EQ(network.next_end_s(), 4);
  network.begin(b, 2);
  const std::vector<double> ends = ends_of(network, 2);
  EXPECT_DOUBLE_EQ(ends[1], 4);  // 10 at 5
  EXPECT_DOUBLE_EQ(ends[0], 5);  // 20 until 2, 10 until 4, 10 at 10
}

TEST(Network, WhatABottleneckLeavesGoesToOthers) {
  // a and b share the slow link, b and c the fast one: b has 1, c the other 9.
  Network network;
  const int32_t slow = network.add_link(2), fast = network.add_link(10);
  const int32_t a = network.add_flow(1, {slow}), b = network.add_flow(1, {slow, fast}),
                c = network.add_flow(9, {fast});
  for (const int32_t flow : {a, b, c}) network.begin(flow, 0);
  for (const double end : ends_of(network, 3)) EXPECT_DOUBLE_EQ(end, 1);
}

TEST(Network, AnAllToAllTakesTheBytesOfAPortOverItsRate) {
  constexpr int kRanks = 6;
  Network network;
  std::vector<int32_t> out, in;
  for (int rank = 0; rank < kRanks; ++rank) {
    out.push_back(network.add_link(5));
    in.push_back(network.add_link(5));
  }
  std::vector<int32_t> flows;
  for (int src = 0; src < kRanks; ++src) {
    for (int dst = 0; dst < kRanks; ++dst) {
      if (src != dst) flows.push_back(network.add_flow(3, {out[src], in[dst]}));
    }
  }
  for (const int32_t flow : flows) network.begin(flow, 0);
  for (const double end : ends_of(network, flows.size())) EXPECT_NEAR(end, (kRanks - 1) * 3.0 / 5, 1e-9);
}

TEST(Network, AGrainMovesEndsByNoMoreThanItself) {
  std::vector<double> exact, coarse;
  for (const double grain_s : {0.0, 0.05}) {
    Network network(grain_s);
    const int32_t link = network.add_link(10);
    for (int i = 0; i < 8; ++i) network.begin(network.add_flow(10 + i, {link}), 0);
    (grain_s > 0 ? coarse : exact) = ends_of(network, 8);
  }
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(coarse[i], exact[i], 8 * 0.05);
  EXPECT_GE(*std::max_element(coarse.begin(), coarse.end()),
            *std::max_element(exact.begin(), exact.end()) - 1e-9);
}

}  // namespace
}  // namespace longspan::simulate
