// Which folder of peers is used, and who must not be able to write to it.
#include "peers/peers_folder.h"

#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "peers/peers.h"

namespace longspan::peers {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// FOLDER/prefix/peers with worker.py, mine.py and support/adapter.py, all private.
class PeersFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    top_ = fs::canonical(fs::temp_directory_path()) / fmt::format("longspan_folder_{}", ::getpid());
    peers_ = top_ / "prefix" / "peers";
    fs::create_directories(peers_ / "support");
    std::ofstream(peers_ / "worker.py") << "raise SystemExit\n";
    std::ofstream(peers_ / "support" / "adapter.py") << "\n";
    std::ofstream(peers_ / "mine.py") << "PEER = {\"description\": \"mine\", \"framework\": \"numpy\", "
                                         "\"device\": \"cpu\", \"passes\": [\"forward\"]}\n";
    for (const fs::path& path : all()) ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  }
  void TearDown() override { fs::remove_all(top_); }

  std::vector<fs::path> all() const {
    return {top_,
            top_ / "prefix",
            peers_,
            peers_ / "worker.py",
            peers_ / "mine.py",
            peers_ / "support",
            peers_ / "support" / "adapter.py"};
  }

  fs::path top_, peers_;
};

TEST_F(PeersFolderTest, IsTrustedIfOnlyItsOwnerWritesIt) {
  EXPECT_EQ(refusal_of(peers_, Owners::kInstallers), "");
  EXPECT_EQ(refusal_of(peers_, Owners::kAnyone), "");
  EXPECT_THAT(refusal_of(top_ / "none", Owners::kAnyone), HasSubstr("none cannot be read"));
}

TEST_F(PeersFolderTest, IsRefusedIfEveryUserCanWriteAnyPartOfIt) {
  for (const fs::path& path : all()) {
    ASSERT_EQ(::chmod(path.c_str(), 0757), 0);
    for (const Owners owners : {Owners::kInstallers, Owners::kAnyone})
      EXPECT_EQ(refusal_of(peers_, owners),
                fmt::format("{} can be written by every user: chmod o-w", path.string()));
    ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  }
  EXPECT_EQ(refusal_of(peers_, Owners::kInstallers), "");
}

TEST_F(PeersFolderTest, IsTrustedBelowAStickyFolderButNotAsOne) {
  ASSERT_EQ(::chmod(top_.c_str(), 01777), 0);
  EXPECT_EQ(refusal_of(peers_, Owners::kInstallers), "");
  ASSERT_EQ(::chmod(peers_.c_str(), 01777), 0);
  EXPECT_THAT(refusal_of(peers_, Owners::kInstallers), HasSubstr("can be written by every user"));
}

TEST_F(PeersFolderTest, IsJudgedByWhatItsLinksLeadTo) {
  const fs::path elsewhere = top_ / "elsewhere.py";
  std::ofstream(elsewhere) << "\n";
  fs::create_symlink(elsewhere, peers_ / "linked.py");
  ASSERT_EQ(::chmod(elsewhere.c_str(), 0644), 0);
  EXPECT_EQ(refusal_of(peers_, Owners::kInstallers), "");
  ASSERT_EQ(::chmod(elsewhere.c_str(), 0666), 0);
  EXPECT_THAT(refusal_of(peers_, Owners::kInstallers), HasSubstr("linked.py can be written by every user"));
  fs::create_directory_symlink(peers_, top_ / "link");
  EXPECT_THAT(refusal_of(top_ / "link", Owners::kAnyone),
              HasSubstr("linked.py can be written by every user"));
}

TEST_F(PeersFolderTest, OfAnotherUserIsOnlyUsedIfItIsNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  constexpr uid_t kNobody = 65534;
  for (const fs::path& path : {peers_, peers_ / "mine.py", peers_ / "support" / "adapter.py"}) {
    ASSERT_EQ(::chown(path.c_str(), kNobody, kNobody), 0);
    EXPECT_THAT(
        refusal_of(peers_, Owners::kInstallers),
        testing::AllOf(HasSubstr(path.string() + " belongs to user 65534"), HasSubstr("LONGSPAN_PEERS")));
    EXPECT_EQ(refusal_of(peers_, Owners::kAnyone), "");
    ASSERT_EQ(::chown(path.c_str(), geteuid(), getegid()), 0);
  }
}

TEST_F(PeersFolderTest, IsTheOneThatTheUserNames) {
  setenv("LONGSPAN_PEERS", peers_.c_str(), 1);
  EXPECT_EQ(peers_folder().path, peers_.string());
  EXPECT_EQ(peers_folder().refusal, "");
  ASSERT_EQ(::chmod((peers_ / "mine.py").c_str(), 0666), 0);
  EXPECT_EQ(peers_folder().path, peers_.string());
  EXPECT_THAT(peers_folder().refusal, HasSubstr("mine.py can be written by every user"));
  setenv("LONGSPAN_PEERS", "/no/such/folder", 1);
  EXPECT_EQ(peers_folder().path, "");
  EXPECT_THAT(peers_folder().refusal, HasSubstr("set LONGSPAN_PEERS to its path"));
  unsetenv("LONGSPAN_PEERS");
}

TEST_F(PeersFolderTest, FilesThatTheUserNamesAreJudgedAlone) {
  const fs::path mine = peers_ / "mine.py";
  EXPECT_NE(peer_of(mine).kernel, nullptr);
  EXPECT_EQ(peer_of(mine, "a stranger wrote the worker").kernel, nullptr);
  ASSERT_EQ(::chmod((peers_ / "worker.py").c_str(), 0666), 0);
  EXPECT_EQ(refusal_of(mine, Owners::kAnyone), "");
  for (const fs::path& path : {mine, peers_}) {
    ASSERT_EQ(::chmod(path.c_str(), 0757), 0);
    EXPECT_EQ(refusal_of(mine, Owners::kAnyone),
              fmt::format("{} can be written by every user: chmod o-w", path.string()));
    EXPECT_THROW(peer_of(mine), Error);
    ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  }
  EXPECT_THROW(peer_of(top_ / "none.py"), Error);
}

TEST(PeerFiles, AreListedByColons) {
  setenv("LONGSPAN_PEER_FILES", "/x/mine.py::other.py:", 1);
  EXPECT_THAT(peer_files(), testing::ElementsAre("/x/mine.py", fs::absolute("other.py")));
  unsetenv("LONGSPAN_PEER_FILES");
  EXPECT_THAT(peer_files(), testing::IsEmpty());
}

// Their names stay in lists, with the reason.
TEST_F(PeersFolderTest, GivesNoKernelIfItIsRefused) {
  ASSERT_EQ(peers_in(peers_).size(), 1u);
  EXPECT_NE(peers_in(peers_)[0].kernel, nullptr);
  const std::vector<KernelRow> rows = peers_in(peers_, "a stranger wrote it");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].name, "mine");
  EXPECT_EQ(rows[0].kernel, nullptr);
  EXPECT_EQ(rows[0].reason, "a peer that may not be executed: a stranger wrote it");
  EXPECT_EQ(lacking_message("mine", rows),
            "kernel 'mine' is a peer that may not be executed: a stranger wrote it");
}

}  // namespace
}  // namespace longspan::peers
