// The environment variables that a record keeps.
#include "bench/run/machine.h"

#include <gmock/gmock.h>

#include "record/record_json.h"

namespace longspan::bench {
namespace {

TEST(Settings, AreThoseThatAffectResults) {
  const char* environment[] = {"PATH=/bin",          "NCCL_P2P_DISABLE=1", "CUDA_VISIBLE_DEVICES=0,1",
                               "OMP_NUM_THREADS=4",  "HOME=/root",         "NCCL_TOPO_FILE=/etc/topo.xml",
                               "LONGSPAN_THREADS=2", "LONGSPAN_PYTHON=x",  nullptr};
  EXPECT_EQ(settings_in(environment),
            "CUDA_VISIBLE_DEVICES=0,1 LONGSPAN_THREADS=2 NCCL_P2P_DISABLE=1 NCCL_TOPO_FILE=(a path) "
            "OMP_NUM_THREADS=4");
}

TEST(Settings, OfSecretsAreLeftOut) {
  const char* environment[] = {"NCCL_AUTH=a",     "NCCL_API_KEY=b",     "CUDA_TOKEN=c",   "NCCL_SECRET_ID=d",
                               "CUDA_PASSWORD=e", "NCCL_CREDENTIALS=f", "NCCL_ALGO=Ring", nullptr};
  EXPECT_EQ(settings_in(environment), "NCCL_ALGO=Ring");
}

TEST(Settings, AreEmptyIfNoneIsSet) {
  const char* environment[] = {"PATH=/bin", "NCCLX=1", nullptr};
  EXPECT_EQ(settings_in(environment), "");
  EXPECT_TRUE(record::open_object(machine_record()).json.contains("settings"));
}

TEST(Software, HasTheHashOfTheProgram) {
  EXPECT_THAT(software_record().build_id, testing::MatchesRegex("[0-9a-f]{16,}"));
}

}  // namespace
}  // namespace longspan::bench
