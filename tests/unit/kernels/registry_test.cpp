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

// Calls get them. A kernel that ignored those of a problem would give a wrong result.
TEST(Registry, EveryKernelRefusesSinks) {
  Problem problem;
  problem.tokens_q = problem.tokens_kv = 64;
  problem.heads_q = problem.heads_kv = 2;
  problem.head_dim = 64;
  problem.set_mask(Mask(64, 64, {Band{{0, 64}, {0, 64}}}));
  for (const Kernel* kernel : kernels()) {
    problem.dtype = kernel->device_kind() == DeviceKind::kCpu ? DType::kF32 : DType::kBF16;
    Device device = cpu_device();
    device.kind = kernel->device_kind();
    device.capability = 90;
    problem.sinks = {0.5f, -1};
    EXPECT_FALSE(kernel->takes_sinks());
    EXPECT_THAT(kernel->supports(problem, Direction::kForward, device).reason,
                HasSubstr("takes no sinks with the problem"))
        << kernel->name();
    problem.sinks.clear();
    EXPECT_THAT(kernel->supports(problem, Direction::kForward, device).reason, Not(HasSubstr("sinks")));
  }
}

TEST(Registry, UnknownNameIsAnInputErrorThatListsTheNames) {
  EXPECT_THAT(message_for("cpu-flsh"),
              AllOf(HasSubstr("'cpu-flsh' is unknown"), HasSubstr("cpu-naive"), HasSubstr("cpu-flash")));
}

}  // namespace
}  // namespace longspan
