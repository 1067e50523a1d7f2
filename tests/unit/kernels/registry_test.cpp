#include "kernels/registry.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longspan {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string message_for(std::string_view name) {
  try {
    kernel_from_name(name);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "";
}

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

TEST(Registry, EveryBuildKnowsEveryName) {
  std::set<std::string> names;
  for (const KernelRow& row : kernel_rows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(row.kernel == nullptr, !row.reason.empty()) << row.name;
    if (row.kernel != nullptr) {
      EXPECT_EQ(row.kernel->name(), row.name);
      continue;
    }
    EXPECT_THAT(row.reason, HasSubstr("not in this build (no ")) << row.name;
    EXPECT_THAT(message_for(row.name), AllOf(HasSubstr("'" + row.name + "'"), HasSubstr(row.reason),
                                             HasSubstr(row.remedy), Not(HasSubstr("unknown"))));
  }
  EXPECT_TRUE(names.contains("gpu-naive"));
  EXPECT_TRUE(names.contains("portable"));
  EXPECT_TRUE(names.contains("sm90"));
}

TEST(Registry, UnknownNameIsAnInputErrorThatListsTheNames) {
  EXPECT_THAT(message_for("cpu-flsh"),
              AllOf(HasSubstr("'cpu-flsh' is unknown"), HasSubstr("cpu-naive"), HasSubstr("cpu-flash")));
}

}  // namespace
}  // namespace longspan
