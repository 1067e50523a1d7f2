// A suite: lists of values by axis, whose every combination is a case, and the timing rule. It comes from a
// TOML file or from the command line, by the same table of axes.
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

// A value as given, and where: "suites/quick.toml:12" or "--seqlen".
struct Given {
  std::string text;
  std::string where;
};

// One [[case]] table: every combination of its values, the first axis slowest.
struct Group {
  std::map<std::string, std::vector<Given>, std::less<>> values;  // by axis; what is absent takes its preset
};

struct Suite {
  std::string name;
  std::string description;
  TimingRule rule;
  std::vector<Group> groups;
};

// `name` is the file as the user knows it; the suite is called by its stem unless it says otherwise. Throws
// only longspan::Error, whatever the text. Kernel names are checked by expand, which knows them.
Suite parse_suite(std::string_view text, std::string_view name);
Suite read_suite(const std::string& path);

// Checks one value of an axis (any but a kernel) and adds it to the group: the command line's way in.
void add_value(Group& group, const Axis& axis, Given value);

// A required axis that the group lacks, or nullptr. Mask files bring their own sequence length.
const Axis* missing_axis(const Group& group);

// All cases in order, equal ones once. `all_kernels` are the names that there are; `offered` those that
// 'all' stands for; `rows` say why others are lacking. Throws an input error for a kernel that there is not,
// or for what a pattern cannot do.
std::vector<Case> expand(const Suite& suite, const std::vector<std::string>& all_kernels,
                         const std::vector<std::string>& offered, std::span<const KernelRow> rows = {});

// The suites that came with the program.
struct BuiltinSuite {
  std::string_view name;  // "quick"
  std::string_view text;
};
std::span<const BuiltinSuite> builtin_suites();

// A path (it holds a slash or ends in .toml), or the name of a built-in suite. Throws an input error that
// lists the names.
Suite find_suite(const std::string& name_or_path);

}  // namespace longspan::bench
