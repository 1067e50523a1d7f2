#include "kernels/registry.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longspan {
namespace {

TEST(Registry, NamesAreUniqueAndFindTheirKernels) {
  std::set<std::string_view> names;
  for (const Kernel* kernel : kernels()) {
    EXPECT_TRUE(names.insert(kernel->name()).second) << kernel->name();
    EXPECT_EQ(&kernel_from_name(kernel->name()), kernel);
    EXPECT_FALSE(kernel->description().empty()) << kernel->name();
  }
  EXPECT_TRUE(names.contains("cpu-naive"));
  EXPECT_TRUE(names.contains("cpu-flash"));
}

TEST(Registry, UnknownNameIsAnInputErrorThatListsTheNames) {
  try {
    kernel_from_name("cpu-flsh");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("'cpu-flsh'"), testing::HasSubstr("cpu-naive"),
                               testing::HasSubstr("cpu-flash")));
  }
}

}  // namespace
}  // namespace longspan
