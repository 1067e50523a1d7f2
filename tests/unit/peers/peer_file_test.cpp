// Parsing a peer's file, and the messages for invalid files.
#include "peers/peer_file.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "base/error.h"
#include "peers/peers.h"

namespace longspan {
namespace {

using peers::parse_peer_file;
using peers::PeerFile;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kGood = R"("""mine: "PEER = {" in a text is no block."""

PEER = {
    "description": "a kernel, {of} mine \"so\",]",
    "framework": "numpy",  # "not": "read"}
    "package": "my-kernel",
    "device": "cpu",
    "passes": ["forward", "backward",],
    "masks": "full",
    "colour": "#0B62a8",
}

import numpy
)";

TEST(PeerFile, IsReadWithoutPython) {
  const PeerFile file = parse_peer_file(kGood, "/there/my_kernel.py");
  EXPECT_EQ(file.name, "my-kernel");
  EXPECT_EQ(file.description, "a kernel, {of} mine \"so\",]");
  EXPECT_EQ(file.framework, "numpy");
  EXPECT_EQ(file.package, "my-kernel");
  EXPECT_EQ(file.device, DeviceKind::kCpu);
  EXPECT_TRUE(file.backward);
  EXPECT_EQ(file.masks, "full");
  EXPECT_EQ(file.colour, "#0B62a8");
}

TEST(PeerFile, NeedsNoPackageMasksOrColour) {
  const PeerFile file = parse_peer_file(
      R"(PEER = {"description": "d", "framework": "torch", "device": "cuda", "passes": ["forward"]})",
      "a.py");
  EXPECT_EQ(file.device, DeviceKind::kCuda);
  EXPECT_FALSE(file.backward);
  EXPECT_EQ(file.package + file.masks + file.colour, "");
}

struct Wrong {
  const char *name, *before, *after, *message;
};

class WrongPeerFile : public testing::TestWithParam<Wrong> {};

TEST_P(WrongPeerFile, IsNamedWithWhatIsWrong) {
  std::string text = kGood;
  const size_t at = text.find(GetParam().before);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::string_view(GetParam().before).size(), GetParam().after);
  try {
    parse_peer_file(text, "/there/my_kernel.py");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("/there/my_kernel.py: "), HasSubstr(GetParam().message)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongPeerFile,
    testing::Values(
        Wrong{"NoBlock", "\nPEER = {", "\npeer = {", "has no line that begins with PEER = {"},
        Wrong{"NoEnd", "\n}\n", "\n", "PEER has no closing brace"},
        Wrong{"SingleQuotes", "\"device\"", "'device'", "PEER is not JSON"},
        Wrong{"UnknownKey", "\"colour\"", "\"color\"", "unknown key 'color'; the keys are description"},
        Wrong{"MissingKey", "\"framework\": \"numpy\",  # ", "# ", "PEER lacks 'framework'"},
        Wrong{"NoText", "\"numpy\"", "7", "'framework' must be a text, not 7"},
        Wrong{"EmptyText", "\"numpy\"", "\"\"", "'framework' must be a text"},
        Wrong{"Colour", "#0B62a8", "blue", "'colour' must be like \"#0b62a8\", not \"blue\""},
        Wrong{"Device", "\"cpu\"", "\"gpu\"", "'device' must be \"cuda\" or \"cpu\", not \"gpu\""},
        Wrong{"Passes", "\"forward\", ", "", "'passes' must be"},
        Wrong{"NoPasses", "\"forward\", \"backward\",", "", "'passes' must be"},
        Wrong{"PassesAsText", "[\"forward\", \"backward\",]", "\"forward\"", "must be a list of strings"}),
    [](const testing::TestParamInfo<Wrong>& tested) { return tested.param.name; });

TEST(PeerFile, HasANameThatPythonCanImport) {
  EXPECT_THROW(parse_peer_file(kGood, "my-kernel.py"), Error);
  EXPECT_THROW(parse_peer_file(kGood, "My.py"), Error);
}

TEST(Peers, AreTheFilesOfAFolder) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("longspan_peers_{}", ::getpid());
  std::filesystem::create_directories(folder / "support");
  const auto write = [&](const char* name, const char* text) { std::ofstream(folder / name) << text; };
  write("worker.py", "");
  write("_private.py", "");
  write("notes.txt", "");
  write("my_kernel.py", kGood);
  write("broken_one.py", "import torch\n");
  std::vector<KernelRow> rows = peers_in(folder);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "broken-one");
  EXPECT_EQ(rows[0].kernel, nullptr);
  EXPECT_THAT(rows[0].reason, AllOf(HasSubstr("broken_one.py"), HasSubstr("PEER")));
  EXPECT_THAT(lacking_message("broken-one", rows),
              HasSubstr("kernel 'broken-one' is a peer with an invalid file"));
  ASSERT_NE(rows[1].kernel, nullptr);
  EXPECT_EQ(rows[1].kernel->name(), "my-kernel");
  EXPECT_EQ(rows[1].kernel->device_kind(), DeviceKind::kCpu);
  EXPECT_EQ(rows[1].colour, "#0B62a8");
  EXPECT_EQ(lacking_message("my-kernel", rows), "");
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(peers_in(folder).empty());
}

TEST(Peers, OfTheRepositoryAreUnderstood) {
  const std::vector<KernelRow> rows = peers_in(PEERS_FOLDER);
  EXPECT_GE(rows.size(), 14u);
  for (const KernelRow& row : rows) {
    EXPECT_THAT(row.reason, testing::Not(HasSubstr("wrong"))) << row.name;
    EXPECT_NE(row.description, "") << row.name;
    EXPECT_NE(row.colour, "") << row.name;
#ifndef LONGSPAN_WITH_CUDA
    EXPECT_EQ(row.reason, "not in this build (no CUDA)") << row.name;
#endif
  }
}

}  // namespace
}  // namespace longspan
