#include "bench/spec/draw_workload.h"

#include <algorithm>
#include <functional>

#include "base/error.h"

namespace longspan::bench {
namespace {

MicroBatch cut_to_fit(const LengthSource& source, int64_t tokens, Mt19937& generator) {
  MicroBatch batch;
  for (int64_t left = tokens; left > 0; left -= batch.back())
    batch.push_back(std::min(source.draw(generator), left));
  return batch;
}

// Packs the step's documents, the longest first. What finds no room remains in `waiting` for the next step.
// A document longer than a micro-batch is cut to one.
std::vector<MicroBatch> pack_whole(const LengthSource& source, const Drawing& drawing, Mt19937& generator,
                                   std::vector<int64_t>& waiting) {
  // With as many tokens as there is room, no micro-batch stays empty.
  int64_t tokens = tokens_of(waiting);
  while (tokens < drawing.micro_batches * drawing.tokens) {
    waiting.push_back(std::min(source.draw(generator), drawing.tokens));
    tokens += waiting.back();
  }
  std::stable_sort(waiting.begin(), waiting.end(), std::greater<>());
  std::vector<MicroBatch> batches(static_cast<size_t>(drawing.micro_batches));
  std::vector<int64_t> room(batches.size(), drawing.tokens), left;
  for (const int64_t length : waiting) {
    const auto at = std::find_if(room.begin(), room.end(), [&](int64_t free) { return free >= length; });
    if (at == room.end()) {
      left.push_back(length);
      continue;
    }
    *at -= length;
    batches[static_cast<size_t>(at - room.begin())].push_back(length);
  }
  waiting = std::move(left);
  // Training shuffles documents; sorted ones would flatter kernels that like long documents first.
  for (MicroBatch& batch : batches) generator.shuffle(batch);
  return batches;
}

}  // namespace

std::string_view name_of(Packing packing) {
  return packing == Packing::kCut ? "cut" : "whole";
}

Packing packing_from_name(std::string_view name) {
  LONGSPAN_CHECK_INPUT(name == "cut" || name == "whole", "'{}': must be cut or whole", name);
  return name == "cut" ? Packing::kCut : Packing::kWhole;
}

std::vector<std::vector<MicroBatch>> draw_micro_batches(const LengthSource& source, const Drawing& drawing) {
  Mt19937 generator(drawing.seed);
  std::vector<int64_t> waiting;
  std::vector<std::vector<MicroBatch>> steps(static_cast<size_t>(drawing.steps));
  for (std::vector<MicroBatch>& step : steps) {
    if (drawing.packing == Packing::kWhole) {
      step = pack_whole(source, drawing, generator, waiting);
      continue;
    }
    for (int64_t i = 0; i < drawing.micro_batches; ++i)
      step.push_back(cut_to_fit(source, drawing.tokens, generator));
  }
  return steps;
}

}  // namespace longspan::bench
