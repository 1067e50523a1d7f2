#include "kernels/sm90/forward/planner/split.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>

#include "kernels/sm90/forward/planner/lower.h"
#include "kernels/sm90/tuning/h200.h"
#include "mask/patterns/patterns.h"

namespace longspan::sm90 {
namespace {

constexpr int32_t kWorkers = 66;
constexpr int32_t kTokens = 32;

ForwardMap map_of(const char* pattern, int64_t seqlen, int32_t rows, int32_t columns) {
  PatternOptions options;
  options.seqlen = seqlen;
  return lower_forward(draw_mask(pattern, options).masks, {rows, columns});
}

WorkOrder order_of(const ForwardMap& map, int32_t units) {
  WorkOrder order;
  order.row_tiles = map.row_tiles, order.units = order.section_units = units;
  return order;
}

// Columns of the tiles, and the layers of cut ones.
std::vector<std::pair<int32_t, int32_t>> tiles_of(const std::vector<MapEntry>& entries, const MapRow& row,
                                                  int32_t columns) {
  std::vector<std::pair<int32_t, int32_t>> tiles;
  for (int32_t i = 0; i < row.entries; ++i) {
    const MapEntry& entry = entries[row.first_entry + static_cast<uint32_t>(i)];
    if (entry.code < 0) {
      EXPECT_LT(i % kEntryBatch, kEntryBatch - 1);
      tiles.push_back({entry.column, entries[row.first_entry + static_cast<uint32_t>(++i)].column});
    }
    for (int32_t t = 0; t < entry.code; ++t) tiles.push_back({entry.column + t * columns, 0});
  }
  return tiles;
}

// When the last worker is done, in tiles.
int64_t end_of(int32_t whole, int64_t tiles, const std::vector<int64_t>& parts) {
  std::vector<int64_t> busy(kWorkers);
  for (int32_t i = 0; i < whole; ++i) busy[static_cast<size_t>(i % kWorkers)] += tiles;
  for (size_t i = 0; i < parts.size(); ++i) busy[(static_cast<size_t>(whole) + i) % kWorkers] += parts[i];
  return *std::max_element(busy.begin(), busy.end());
}

class LastWave : public testing::TestWithParam<std::tuple<int64_t, int32_t>> {};

TEST_P(LastWave, PartsAreTheLastItemsAndEvenOut) {
  const auto [seqlen, columns] = GetParam();
  const ForwardMap map = map_of("full", seqlen, kTokens, columns);
  const WorkOrder order = order_of(map, 8);
  const ForwardSplit split = split_last_wave(map, order, columns, kWorkers);
  ASSERT_TRUE(split.has_parts());
  EXPECT_EQ(split.whole_items % kWorkers, 0);
  EXPECT_LT(order.items() - split.whole_items, kWorkers);

  std::map<std::pair<int32_t, int32_t>, std::vector<ItemPart>> items;  // by unit and first row
  for (const ItemPart& part : split.parts) items[{part.unit, part.row.first_row}].push_back(part);
  EXPECT_EQ(items.size(), static_cast<size_t>(order.items() - split.whole_items));
  std::set<int32_t> slots;
  size_t in_scratch = 0;
  const auto whole = tiles_of(map.entries, map.work.front(), columns);
  for (auto& [key, parts] : items) {
    std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.part < b.part; });
    std::vector<std::pair<int32_t, int32_t>> tiles;
    for (size_t p = 0; p < parts.size(); ++p) {
      EXPECT_EQ(parts[p].part, static_cast<int32_t>(p));
      EXPECT_EQ(parts[p].parts, static_cast<int32_t>(parts.size()));
      EXPECT_LE(parts[p].parts, 15);
      EXPECT_EQ(parts[p].slot, parts[0].slot);
      EXPECT_EQ(parts[p].row.rows, static_cast<uint32_t>(kTokens));
      if (parts.size() > 1) EXPECT_TRUE(slots.insert(parts[p].slot + static_cast<int32_t>(p)).second);
      const auto of_part = tiles_of(split.entries, parts[p].row, columns);
      EXPECT_GE(of_part.size(), 2u);
      tiles.insert(tiles.end(), of_part.begin(), of_part.end());
    }
    if (parts.size() > 1) in_scratch += parts.size();
    EXPECT_EQ(tiles, whole);
  }
  EXPECT_EQ(split.slots, static_cast<int32_t>(in_scratch));
  if (!slots.empty()) EXPECT_EQ(*slots.rbegin(), split.slots - 1);

  std::vector<int64_t> parts;
  for (const ItemPart& part : split.parts)
    parts.push_back(static_cast<int64_t>(tiles_of(split.entries, part.row, columns).size()));
  const auto tiles = static_cast<int64_t>(whole.size());
  EXPECT_GT(time_saved_by_split(order.items(), tiles, kWorkers), 0);
  const int64_t end = end_of(split.whole_items, tiles, parts);
  const double ideal = static_cast<double>(order.items()) * static_cast<double>(tiles) / kWorkers;
  EXPECT_LT(static_cast<double>(end), ideal + std::max(3.0, 0.14 * static_cast<double>(tiles)));
}

INSTANTIATE_TEST_SUITE_P(Full, LastWave,
                         testing::Combine(testing::Values(4096, 6144, 8192, 16384),
                                          testing::Values(128, 160)));

TEST(ForwardSplit, SavesPartOfWhatAPerfectBalanceOfTheLastWaveWould) {
  for (const auto& [items, tiles] : {std::pair{1024, 32}, {2048, 64}}) {  // full 4K and 8K
    const int64_t waves = items / kWorkers + 1;
    const double last = static_cast<double>(items % kWorkers) / kWorkers;
    const double perfect = (1 - last) / static_cast<double>(waves);
    const double saved = time_saved_by_split(items, tiles, kWorkers);
    EXPECT_GT(saved, h200::forward::kSplitMinSaving) << items;
    EXPECT_LT(saved, perfect) << items;
  }
}

TEST(ForwardSplit, SavesNothingWhereThereIsNothingToSave) {
  EXPECT_EQ(time_saved_by_split(512, 16, kWorkers), 0);  // full 2K: parts cost more than they save
  EXPECT_EQ(time_saved_by_split(66, 32, kWorkers), 0);
  EXPECT_EQ(time_saved_by_split(65, 32, kWorkers), 0);
  EXPECT_EQ(time_saved_by_split(66 * 300 + 1, 64, kWorkers), 0);  // one wave of 301
  EXPECT_EQ(time_saved_by_split(100, 4, kWorkers), 0);            // items are too short
  EXPECT_EQ(time_saved_by_split(10, 32, 0), 0);
}

TEST(ForwardSplit, LeavesUnequalAndFewItemsAlone) {
  const ForwardMap causal = map_of("causal", 4096, kTokens, 128);
  EXPECT_FALSE(split_last_wave(causal, order_of(causal, 8), 128, kWorkers).has_parts());
  const ForwardMap brief = map_of("full", 1024, kTokens, 128);
  EXPECT_FALSE(split_last_wave(brief, order_of(brief, 8), 128, kWorkers).has_parts());
  const ForwardMap even = map_of("full", 4096, kTokens, 128);  // 1024 items
  EXPECT_FALSE(split_last_wave(even, order_of(even, 8), 128, 64).has_parts());
  EXPECT_EQ(split_last_wave(even, order_of(even, 8), 128, 64).whole_items, 1024);
}

}  // namespace
}  // namespace longspan::sm90
