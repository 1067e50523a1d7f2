#include "peers/shared_masks.h"

#include <cstdint>

namespace longspan::peers {
namespace {

using Json = nlohmann::json;

// The most bands, over all masks, to send as text. A block-sparse mask of a long sequence has millions, which
// would take seconds to write and to read as text.
constexpr size_t kMostInText = 2000;
constexpr size_t kNumbers = 6;  // per band

Json bound(int64_t value, int64_t unbounded) {
  return value == unbounded ? Json() : Json(value);
}

Json text_of(const Mask& mask) {
  Json bands = Json::array();
  for (const Band& b : mask.bands()) {
    bands.push_back(
        {b.q.begin, b.q.end, b.k.begin, b.k.end, bound(b.lo, kUnboundedBelow), bound(b.hi, kUnboundedAbove)});
  }
  return bands;
}

}  // namespace

SharedMasks::SharedMasks(const HeadMasks& masks) {
  size_t all = 0;
  for (const Mask& mask : masks) all += mask.bands().size();
  int64_t* numbers = nullptr;
  if (all > kMostInText) {
    file_.emplace(all * kNumbers * sizeof(int64_t));
    numbers = static_cast<int64_t*>(file_->data());
  }
  size_t offset = 0;
  for (const Mask& mask : masks) {
    Json entry = {{"rows", mask.rows()}, {"columns", mask.columns()}};
    if (!file_) {
      entry["bands"] = text_of(mask);
    } else {
      entry.update(
          {{"file", file_->path()}, {"offset", offset * sizeof(int64_t)}, {"count", mask.bands().size()}});
      for (const Band& b : mask.bands()) {
        for (const int64_t number : {b.q.begin, b.q.end, b.k.begin, b.k.end, b.lo, b.hi}) {
          numbers[offset++] = number;
        }
      }
    }
    json_.push_back(std::move(entry));
  }
}

}  // namespace longspan::peers
