// Suggestions for mistyped names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longspan {

// The candidate nearest to the typed word, or "" if none is near enough.
std::string nearest(std::string_view typed, const std::vector<std::string>& candidates);

// " (did you mean 'causal'?)", or "" if no candidate is near enough.
std::string did_you_mean(std::string_view typed, const std::vector<std::string>& candidates);

}  // namespace longspan
