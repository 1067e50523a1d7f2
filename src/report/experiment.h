// An experiment of a paper: what it expects, as data (suites/expected/*.toml), and whether results agree.
// Verdicts are computed from the results alone; a written reason is shown only beside a verdict that calls
// for one.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "record/json.h"
#include "report/results.h"
#include "report/table.h"

namespace longspan::report {

// The cases whose field has any of these values, for each field: {"kernel": ["fa3"], "seqlen": ["8K",
// "16K"]}. Fields are those of a workload in the form of the command line, and `tokens_per_rank`.
using Selection = std::map<std::string, std::vector<std::string>, std::less<>>;

// Either a ratio, side a over side b, within bounds; or an outcome of side a.
struct Claim {
  std::string text;       // "FlashAttention-3 is faster than SDPA"
  std::string source;     // where the paper says so: "section 3.3, Figure 6"
  std::string figure;     // the paper's number, if it gives one
  std::string otherwise;  // why results may differ
  std::string over;       // the field of which each value is checked: "seqlen"
  Selection where;        // of both sides; has the values of `over`
  Selection a, b;         // the best case of each side counts
  std::string compare;    // "rate" or "memory"; empty: an outcome
  std::string outcome;    // "failed" or "skipped"
  std::string reason;     // words of the reason of that outcome: a missing package is no lack of support
  double at_least = 0, at_most = std::numeric_limits<double>::infinity();  // the ratio
};

struct Experiment {
  std::string title, paper;
  std::vector<Claim> claims;
};

// Throws an input error that names the place if a key is unknown, missing or of the wrong type.
Experiment parse_experiment(std::string_view text, std::string_view name);

// One of the built-in ones: "1", "2", "3". Throws an input error that lists them.
Experiment find_experiment(const std::string& name);

bool selects(const Selection& selection, const Workload& workload);

enum class Agreement : uint8_t { kAgrees, kInPart, kDiffers, kNotMeasured };
std::string_view name_of(
    Agreement agreement);  // "agrees", "agrees in part", "does not agree", "not measured"

// One value of `over`, on cases that otherwise do the same work.
struct Finding {
  std::string at = {};       // "32K"
  std::string context = {};  // what tells findings of the same value apart: "64:8 bf16 forward"
  const CaseRecord* a = nullptr;
  const CaseRecord* b = nullptr;
  std::string a_text = {}, b_text = {};  // "fa3: 669 TFLOP/s"
  double ratio = 0;                      // a over b; 0 without one
  bool apart = false;                    // the sides are of different runs
  Agreement agreement = Agreement::kNotMeasured;
  std::string reason = {};  // why it was not measured
};

struct ClaimResult {
  const Claim* claim = nullptr;
  Agreement agreement = Agreement::kNotMeasured;
  std::vector<Finding> findings;

  // The claim's reason, if the verdict needs one.
  std::string_view otherwise() const;
  std::string measured() const;  // "2 of 6": the values of `over` that were measured
};

// The findings point into the results.
std::vector<ClaimResult> evaluate(const Experiment& experiment, const Results& results);

std::string format_experiment(const Experiment& experiment, const std::vector<ClaimResult>& claims,
                              const TableOptions& options);
record::Json experiment_json(const Experiment& experiment, const std::vector<ClaimResult>& claims);

}  // namespace longspan::report
