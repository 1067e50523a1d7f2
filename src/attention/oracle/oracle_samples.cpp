#include "attention/oracle/oracle_samples.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/parallel.h"
#include "base/rng.h"

namespace longspan {
namespace {

// Uniform integers from a stream of the counter-based generator.
class Draw {
 public:
  Draw(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}
  int64_t below(int64_t n) {
    const auto words = philox4x32({static_cast<uint32_t>(count_), static_cast<uint32_t>(count_ >> 32),
                                   static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                                  {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
    ++count_;
    return static_cast<int64_t>((uint64_t{words[0]} << 32 | words[1]) % static_cast<uint64_t>(n));
  }

 private:
  uint64_t seed_, stream_, count_ = 0;
};

// The sample places of one mask that do not depend on the head.
struct HardPlaces {
  std::vector<int64_t> extremes;  // both ends, most and fewest keys, no keys, the cut last tile
  std::vector<int64_t> borders;   // where bands begin and end
};

// Draws equally many borders of each kind, however many bands there are.
std::vector<int64_t> thinned(std::vector<int64_t> places) {
  constexpr size_t kMost = 4096;
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  if (places.size() <= kMost) return places;
  std::vector<int64_t> kept(kMost);
  for (size_t i = 0; i < kMost; ++i) kept[i] = places[i * places.size() / kMost];
  return kept;
}

// `counts`: visible pairs of each row (of the mask, or of its transpose for keys).
HardPlaces hard_places(const std::vector<int64_t>& counts, std::vector<int64_t> borders) {
  const auto n = static_cast<int64_t>(counts.size());
  HardPlaces places;
  places.extremes = {0, n - 1};
  const auto most = std::max_element(counts.begin(), counts.end());
  places.extremes.push_back(most - counts.begin());
  const auto none = std::find(counts.begin(), counts.end(), 0);
  if (none != counts.end()) places.extremes.push_back(none - counts.begin());
  int64_t fewest = most - counts.begin();
  for (int64_t i = 0; i < n; ++i) {
    if (counts[i] > 0 && counts[i] < counts[fewest]) fewest = i;
  }
  places.extremes.push_back(fewest);
  for (int64_t tile : {64, 128}) {  // borders of the last tile, which the mask may cut
    const int64_t last = (n - 1) / tile * tile;
    if (last > 0) places.extremes.insert(places.extremes.end(), {last - 1, last});
  }
  places.borders = thinned(std::move(borders));
  return places;
}

std::vector<int64_t> choose(int64_t n, const HardPlaces& places, Draw draw, const SampleOptions& options) {
  if (options.all || options.per_head >= n) {
    std::vector<int64_t> every(n);
    std::iota(every.begin(), every.end(), 0);
    return every;
  }
  std::set<int64_t> chosen;
  const auto full = [&] { return static_cast<int64_t>(chosen.size()) >= options.per_head; };
  const auto add = [&](int64_t i) {
    if (!full() && i >= 0 && i < n) chosen.insert(i);
  };
  for (int64_t i : places.extremes) add(i);
  for (int64_t tile : {64, 128}) {
    const int64_t border = tile * (1 + draw.below(std::max<int64_t>(1, (n - 1) / tile)));
    add(border - 1);
    add(border);
  }
  for (int i = 0; i < 4 && !places.borders.empty(); ++i) {
    add(places.borders[draw.below(static_cast<int64_t>(places.borders.size()))]);
  }
  while (!full()) add(draw.below(n));
  return {chosen.begin(), chosen.end()};
}

}  // namespace

int64_t Samples::row_count() const {
  int64_t count = 0;
  for (const auto& list : rows) count += static_cast<int64_t>(list.size());
  return count;
}

int64_t Samples::key_count() const {
  int64_t count = 0;
  for (const auto& list : keys) count += static_cast<int64_t>(list.size());
  return count;
}

Samples choose_samples(const Problem& problem, Direction direction, const SampleOptions& options) {
  const bool backward = direction == Direction::kBackward;
  const HeadMasks& masks = *problem.masks;
  std::vector<HardPlaces> row_places(masks.size()), key_places(masks.size());
  parallel_for(static_cast<int64_t>(masks.size()), [&](int64_t m, int) {
    if (options.all) return;
    std::vector<int64_t> row_borders, key_borders;
    for (const Band& band : masks[m].bands()) {
      row_borders.insert(row_borders.end(), {band.q.begin, band.q.end - 1});
      key_borders.insert(key_borders.end(), {band.k.begin, band.k.end - 1});
    }
    row_places[m] = hard_places(masks[m].visible_counts(), std::move(row_borders));
    if (backward) {
      key_places[m] = hard_places(masks[m].transposed().visible_counts(), std::move(key_borders));
    }
  });
  const auto mask_of = [&](int64_t kv_head) { return masks.size() == 1 ? 0 : kv_head; };
  Samples samples;
  for (int64_t h = 0; h < problem.heads_q; ++h) {
    const Draw draw(options.seed, static_cast<uint64_t>(h));
    samples.rows.push_back(
        choose(problem.tokens_q, row_places[mask_of(problem.kv_head_of(h))], draw, options));
  }
  for (int64_t h = 0; h < problem.heads_kv; ++h) {
    const Draw draw(options.seed, static_cast<uint64_t>(problem.heads_q + h));
    samples.keys.push_back(backward ? choose(problem.tokens_kv, key_places[mask_of(h)], draw, options)
                                    : std::vector<int64_t>());
  }
  return samples;
}

}  // namespace longspan
