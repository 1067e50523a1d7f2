// The names of tests that run with every strategy.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "cp/strategies/strategy.h"

namespace longspan {

// For INSTANTIATE_TEST_SUITE_P: letters and digits are allowed there, hyphens are not.
inline std::string strategy_name(const testing::TestParamInfo<Strategy>& info) {
  std::string name(info.param.name);
  std::erase(name, '-');
  return name;
}

}  // namespace longspan
