// The launch data read from the variables of torchrun, Slurm and Open MPI.
#include "comm/launch.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longspan {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Lt;

std::optional<Launch> launched(std::map<std::string, std::string> variables) {
  return launch_from_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string error_of(const std::map<std::string, std::string>& variables) {
  try {
    launched(variables);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
}

TEST(Launch, IsNothingWithoutALauncher) {
  EXPECT_FALSE(launched({}));
  EXPECT_FALSE(launched({{"MASTER_ADDR", "node1"}, {"RANK", "3"}}));
}

TEST(Launch, OfTorchrun) {
  const auto launch = launched({{"RANK", "11"},
                                {"WORLD_SIZE", "16"},
                                {"LOCAL_RANK", "3"},
                                {"MASTER_ADDR", "node1"},
                                {"MASTER_PORT", "29400"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->launcher, "torchrun");
  EXPECT_EQ(launch->rank, 11);
  EXPECT_EQ(launch->ranks, 16);
  EXPECT_EQ(launch->local_rank, 3);
  EXPECT_EQ(launch->host, "node1");
  EXPECT_EQ(launch->port, 29401);  // next to the port of torchrun's own store
}

TEST(Launch, OfSlurm) {
  std::map<std::string, std::string> variables{{"SLURM_PROCID", "5"},
                                               {"SLURM_NTASKS", "32"},
                                               {"SLURM_LOCALID", "1"},
                                               {"SLURM_JOB_ID", "4711"},
                                               {"SLURM_STEP_NODELIST", "gpu[003-006,012],fat7"}};
  const auto launch = launched(variables);
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->launcher, "Slurm");
  EXPECT_EQ(launch->rank, 5);
  EXPECT_EQ(launch->ranks, 32);
  EXPECT_EQ(launch->host, "gpu003");
  variables["SLURM_PROCID"] = "6";
  EXPECT_EQ(launched(variables)->port, launch->port);  // all ranks of a job compute the same port
  variables["SLURM_JOB_ID"] = "4712";
  EXPECT_NE(launched(variables)->port, launch->port);
  for (int job = 1; job <= 1000; ++job) {  // 32,768 and up: ports of outgoing connections
    variables["SLURM_JOB_ID"] = std::to_string(job);
    EXPECT_THAT(launched(variables)->port, AllOf(Ge(20000), Lt(32768)));
  }
  for (auto [list, first] : {std::pair{"a1,a2", "a1"}, {"a1", "a1"}, {"n[7]", "n7"}, {"n[1,5-9]", "n1"}}) {
    variables["SLURM_STEP_NODELIST"] = list;
    EXPECT_EQ(launched(variables)->host, first);
  }
}

TEST(Launch, OfOpenMpi) {
  std::map<std::string, std::string> variables{{"OMPI_COMM_WORLD_RANK", "2"},
                                               {"OMPI_COMM_WORLD_SIZE", "8"},
                                               {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "8"}};
  ASSERT_TRUE(launched(variables));
  EXPECT_EQ(launched(variables)->host, "127.0.0.1");
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "4";
  EXPECT_THAT(error_of(variables), HasSubstr("LONGSPAN_RENDEZVOUS=HOST:PORT"));
  variables["LONGSPAN_RENDEZVOUS"] = "head:12345";
  EXPECT_EQ(launched(variables)->host, "head");
  EXPECT_EQ(launched(variables)->port, 12345);
}

TEST(Launch, NamesTheVariableThatIsWrong) {
  EXPECT_THAT(error_of({{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "x"}}),
              HasSubstr("RANK='4': must be a whole number from 0 to 3"));
  EXPECT_THAT(error_of({{"RANK", "0"}, {"WORLD_SIZE", "four"}, {"MASTER_ADDR", "x"}}),
              HasSubstr("WORLD_SIZE='four'"));
  EXPECT_THAT(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("MASTER_ADDR"));
  for (const char* place : {"head", "head:", ":5", "head:0", "head:70000", "head:1x"})
    EXPECT_THAT(error_of({{"LONGSPAN_RENDEZVOUS", place}}), HasSubstr("must be HOST:PORT")) << place;
}

TEST(Launch, MeetsAtTheLoopbackAddressIfAllRanksAreOnOneHost) {
  std::map<std::string, std::string> torchrun{
      {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "node1"}};
  EXPECT_EQ(launched(torchrun)->host, "127.0.0.1");
  torchrun["LOCAL_WORLD_SIZE"] = "2";
  EXPECT_EQ(launched(torchrun)->host, "node1");
  std::map<std::string, std::string> slurm{{"SLURM_PROCID", "1"},
                                           {"SLURM_NTASKS", "4"},
                                           {"SLURM_STEP_NUM_NODES", "1"},
                                           {"SLURM_STEP_NODELIST", "gpu003"}};
  EXPECT_EQ(launched(slurm)->host, "127.0.0.1");
  slurm["SLURM_STEP_NUM_NODES"] = "2";
  EXPECT_EQ(launched(slurm)->host, "gpu003");
  std::map<std::string, std::string> open_mpi{{"OMPI_COMM_WORLD_RANK", "1"},
                                              {"OMPI_COMM_WORLD_SIZE", "4"},
                                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                              {"MASTER_ADDR", "node1"}};
  EXPECT_EQ(launched(open_mpi)->host, "127.0.0.1");
  open_mpi["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_EQ(launched(open_mpi)->host, "node1");
  for (auto* variables : {&torchrun, &slurm, &open_mpi}) {
    (*variables)["LONGSPAN_RENDEZVOUS"] = "head:12345";
    EXPECT_EQ(launched(*variables)->host, "head");
  }
}

TEST(Launch, TakesTheTokenFromTheLauncherOrTheUser) {
  std::map<std::string, std::string> torchrun{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "x"}};
  std::map<std::string, std::string> slurm{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}};
  std::map<std::string, std::string> open_mpi{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  for (const auto* variables : {&torchrun, &slurm, &open_mpi}) EXPECT_EQ(launched(*variables)->token, "");
  torchrun["TORCHELASTIC_RUN_ID"] = "none";  // torchrun's preset: known to all
  EXPECT_EQ(launched(torchrun)->token, "");
  torchrun["TORCHELASTIC_RUN_ID"] = "0dca4c3f";
  EXPECT_THAT(launched(torchrun)->token, HasSubstr("0dca4c3f"));
  slurm["SLURM_JOB_ID"] = "4711";
  slurm["SLURM_STEP_ID"] = "3";
  EXPECT_THAT(launched(slurm)->token, HasSubstr("4711.3"));
  open_mpi["PMIX_NAMESPACE"] = "job7";
  open_mpi["OMPI_MCA_orte_precondition_transports"] = "3c586db82ff01f1b-26ee2dad80b50311";
  EXPECT_THAT(launched(open_mpi)->token, HasSubstr("job7 3c586db82ff01f1b-26ee2dad80b50311"));
  for (auto* variables : {&torchrun, &slurm, &open_mpi}) {
    (*variables)["LONGSPAN_JOB_TOKEN"] = "0123456789abcdef";
    EXPECT_EQ(launched(*variables)->token, "0123456789abcdef");
    (*variables)["LONGSPAN_JOB_TOKEN"] = "0123456789abcde";
    const std::string error = error_of(*variables);
    EXPECT_THAT(error, HasSubstr("LONGSPAN_JOB_TOKEN has 15 characters"));
    EXPECT_EQ(error.find("abcde"), std::string::npos) << "a message shows the token";
  }
}

}  // namespace
}  // namespace longspan
