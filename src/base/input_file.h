// Reads files that users name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace longspan {

// What a file is read as, and the most bytes that such a file may have.
struct InputKind {
  std::string_view name;
  int64_t most_bytes;
};
inline constexpr InputKind kSuiteFile{"a suite", int64_t{1} << 20};
inline constexpr InputKind kMaskFile{"a mask file", int64_t{1} << 30};
inline constexpr InputKind kLengthsFile{"a file of lengths", int64_t{64} << 20};
inline constexpr InputKind kWorkloadFile{"a workload", int64_t{64} << 20};
inline constexpr InputKind kResultsFile{"a results file", int64_t{4} << 30};
inline constexpr InputKind kMachineFile{"a machine file", int64_t{1} << 20};
inline constexpr InputKind kNcclTestsFile{"nccl-tests output", int64_t{16} << 20};
inline constexpr InputKind kPeerFile{"a peer's file", int64_t{1} << 20};

// The whole file. Throws an input error that begins with the path if it cannot be opened or read, if it is
// not a regular file (a folder, a device, a pipe), or if it is too large.
std::string read_input_file(const std::string& path, const InputKind& kind);

// Throws these errors, but for those of reading, for a file that is too large to be held as a whole.
void check_input_file(const std::string& path, const InputKind& kind);

}  // namespace longspan
