// Masks as a worker reads them: bands in the request itself or, if there are many, in a shared file.
#pragma once

#include <optional>

#include <nlohmann/json.hpp>

#include "attention/problem.h"
#include "peers/shared_file.h"

namespace longspan::peers {

class SharedMasks {
 public:
  explicit SharedMasks(const HeadMasks& masks);

  // [{rows, columns, bands: [[q0, q1, k0, k1, lo, hi], ...]}, ...], or {rows, columns, file, offset, count}:
  // docs/reference/peer-protocol.md.
  const nlohmann::json& json() const { return json_; }

 private:
  std::optional<SharedFile> file_;
  nlohmann::json json_ = nlohmann::json::array();
};

}  // namespace longspan::peers
