// A suite: the timing rule, and lists of values by axis, of which every combination is a case. It comes from
// a TOML file or from the command line; both use the same table of axes.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/kernel_row.h"
#include "bench/spec/case.h"
#include "bench/spec/timing_rule.h"

namespace longspan::bench {

// A value as given, and its location: "suites/quick.toml:12" or "--seqlen".
struct Given {
  std::string text;
  std::string where;
};

// One [[case]] table: every combination of its values, the first axis slowest.
struct Group {
  std::map<std::string, std::vector<Given>, std::less<>> values;  // by axis; an absent axis takes its preset
};

struct Suite {
  std::string name;
  std::string description;
  TimingRule rule;
  std::vector<Group> groups;
};

// `name` is the path of the file; its stem is the suite's name unless the file sets another. Throws only
// longspan::Error, whatever the text. expand() checks the names of kernels.
Suite parse_suite(std::string_view text, std::string_view name);
Suite read_suite(const std::string& path);

// Checks one value of an axis, except the names of kernels, and adds it to the group.
void add_value(Group& group, const Axis& axis, const Given& value);

// Throws an input error if the group gives an option that none of its masks and strategies reads.
void check_options_read(const Group& group);

// A required axis that the group lacks, or nullptr. Mask files have their own sequence length.
const Axis* missing_axis(const Group& group);

// All cases in order, without duplicates. `all_kernels`: the kernels of this build. `offered`: those that
// 'all' stands for. `rows`: why other kernels are absent; a suite may have cases of those, the command line
// may not. Throws an input error for an unknown kernel or for options that a pattern cannot take.
std::vector<Case> expand(const Suite& suite, const std::vector<std::string>& all_kernels,
                         const std::vector<std::string>& offered, std::span<const KernelRow> rows = {});

// The suites built into the program.
struct BuiltinSuite {
  std::string_view name;  // "quick"
  std::string_view text;
};
std::span<const BuiltinSuite> builtin_suites();

// A path (it contains a slash or ends in .toml), or the name of a built-in suite. Throws an input error that
// lists the names.
Suite find_suite(const std::string& name_or_path);

}  // namespace longspan::bench
