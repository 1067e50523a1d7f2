// `longspan verify`: checks kernels against the oracles.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/parse.h"
#include "base/printable.h"
#include "bench/case/verify_sweep.h"
#include "bench/spec/values.h"
#include "cli/command.h"
#include "cli/environment.h"
#include "cli/pattern_options.h"
#include "cli/peer_options.h"
#include "cli/progress_line.h"
#include "cli/wiring.h"
#include "kernels/registry.h"

namespace longspan::cli {
namespace {

struct VerifyArguments {
  std::vector<std::string> kernels, masks, seqlens, heads, dtypes, directions;
  PeerOptions peers;
  std::string lengths;
  std::map<std::string, std::string> pattern_options;
  std::optional<int64_t> head_dim, head_dim_v, seed, index;
  std::optional<float> scale, softcap;
  bool alibi = false, sinks = false, deterministic = false, fp32_output = false, lse_gradient = false;
  bool verbose = false, table = false, allow_skipped = false;
};

// "Q:KV", or "H" for H of both.
Heads parse_heads(const std::string& text) {
  constexpr int64_t kMostHeads = 65536;
  const size_t colon = text.find(':');
  const auto number = [&](std::string_view digits) {
    try {
      return parse_count(digits, 1, kMostHeads);
    } catch (const Error&) {
      LONGSPAN_CHECK_INPUT(false, "--heads {}: must be QUERY:KV heads, such as 8:2, at most {}", text,
                           kMostHeads);
    }
  };
  const std::string_view view = text;
  Heads heads;
  heads.q = number(view.substr(0, colon));
  heads.kv = colon == std::string::npos ? heads.q : number(view.substr(colon + 1));
  LONGSPAN_CHECK_INPUT(heads.q % heads.kv == 0,
                       "--heads {}: {} query heads are not a multiple of {} KV heads", text, heads.q,
                       heads.kv);
  return heads;
}

// The words of lists that commas separate.
void split(std::vector<std::string>& lists, std::string_view option) {
  std::vector<std::string> words;
  for (const std::string& list : lists) {
    for (std::string& word : bench::split(list, ',')) {
      LONGSPAN_CHECK_INPUT(!word.empty(), "{} '{}': a value of the list is empty", option, list);
      words.push_back(std::move(word));
    }
  }
  lists = std::move(words);
}

// Options that none of the masks reads are refused, not ignored.
void check_options_read(const VerifyArguments& given) {
  const auto any_mask = [&](const std::function<bool(const Pattern&)>& reads) {
    if (given.masks.empty()) return true;  // all patterns
    return std::any_of(given.masks.begin(), given.masks.end(), [&](const std::string& name) {
      const std::string pattern = name.substr(name.rfind(':') + 1);
      return pattern != "empty" && !pattern.ends_with(".json") && reads(pattern_from_name(pattern));
    });
  };
  const std::string masks = fmt::format("{}", fmt::join(given.masks, ", "));
  LONGSPAN_CHECK_INPUT(given.lengths.empty() || any_mask([](const Pattern& p) { return p.documents; }),
                       "--lengths does not apply to {}, only to masks of documents", masks);
  for (const TableOption& option : pattern_options()) {
    const std::string_view name = option.spec.name;
    const bool is_given = !given.pattern_options.at(std::string(name)).empty();
    LONGSPAN_CHECK_INPUT(
        !is_given || any_mask([&](const Pattern& p) { return find_option(p.options, name) != nullptr; }),
        "{} does not apply to {}, only to {}", option_name(name), masks, option.rows());
  }
}

SweepOptions sweep_options(VerifyArguments given) {
  SweepOptions options;
  split(given.kernels, "--kernel");
  split(given.masks, "--mask");
  split(given.seqlens, "--seqlen");
  split(given.heads, "--heads");
  split(given.dtypes, "--dtype");
  split(given.directions, "--direction");
  for (const std::string& name : given.kernels)
    options.kernels.push_back(&kernel_from_name(name, workbench().kernels, workbench().rows));
  if (given.kernels.empty()) options.kernels = workbench().kernels;
  for (const std::string& name : given.masks) check_mask_name(name);
  options.masks = given.masks;
  check_options_read(given);
  for (const std::string& text : given.seqlens) {
    options.seqlens.push_back(parse_length(text, "--seqlen"));
    LONGSPAN_CHECK_INPUT(options.seqlens.back() >= 1, "--seqlen {}: must be at least 1", text);
  }
  for (const std::string& text : given.heads) options.heads.push_back(parse_heads(text));
  for (const std::string& name : given.dtypes) {
    options.dtypes.push_back(dtype_from_name(name));
    LONGSPAN_CHECK_INPUT(options.dtypes.back() != DType::kF64, "--dtype f64: must be f32, bf16 or f16");
  }
  if (!given.directions.empty()) {
    options.forward = options.backward = false;
    for (const std::string& name : given.directions) {
      (direction_from_name(name) == Direction::kForward ? options.forward : options.backward) = true;
    }
  }
  for (const auto& [option, dim] :
       {std::pair{"--head-dim", given.head_dim}, std::pair{"--head-dim-v", given.head_dim_v}})
    LONGSPAN_CHECK_INPUT(dim.value_or(1) >= 1 && dim.value_or(1) <= 65536, "{} {}: must be 1 to 65536",
                         option, *dim);
  options.head_dim = given.head_dim;
  options.head_dim_v = given.head_dim_v;
  options.softcap = given.softcap;
  if (given.alibi) options.alibi = true;
  options.sinks = given.sinks;
  options.scale = given.scale;
  if (given.deterministic) options.deterministic = true;
  if (given.fp32_output) options.fp32_output = true;
  if (given.lse_gradient) options.lse_gradient = true;

  PatternOptions& pattern = options.pattern;
  LONGSPAN_CHECK_INPUT(given.seed.value_or(0) >= 0, "--seed {}: must be at least 0", *given.seed);
  LONGSPAN_CHECK_INPUT(given.index.value_or(0) >= 0, "--index {}: must be at least 0", *given.index);
  if (given.seed) pattern.seed = static_cast<uint64_t>(*given.seed);
  if (given.index) pattern.index = *given.index;
  if (!given.lengths.empty()) pattern.lengths = given.lengths;
  pattern.values = parse_options(given.pattern_options);
  return options;
}

const char* word_for(CaseOutcome::Status status) {
  switch (status) {
    case CaseOutcome::Status::kPassed:
      return "passed";
    case CaseOutcome::Status::kFailed:
      return "FAILED";
    case CaseOutcome::Status::kSkipped:
      return "skipped";
  }
  return "";
}

std::string errors_of(const CaseOutcome& outcome) {
  std::string text;
  for (const TensorAccuracy& tensor : outcome.report.tensors) {
    const bool gradient = tensor.tensor.starts_with('d');
    if (gradient != (outcome.direction == Direction::kBackward)) continue;
    text += fmt::format("  {} {:.2g} of {:.2g}", tensor.tensor, tensor.error, tensor.tolerance);
  }
  if (!outcome.report.counting.empty()) text += "  counting " + outcome.report.counting;
  return text;
}

void print_outcome(const CaseOutcome& outcome, const VerifyArguments& given) {
  const std::string peer = peer_words(given.peers)[std::string(outcome.verified.kernel->name())];
  const std::string command = printable(command_of(outcome.verified, outcome.direction) + peer);
  if (outcome.status == CaseOutcome::Status::kFailed) {
    fmt::print("FAILED  {}\n        repeat: {}\n", printable(outcome.reason), command);
  } else if (given.verbose) {
    fmt::print("{:7} {}{}\n", word_for(outcome.status), command,
               outcome.status == CaseOutcome::Status::kPassed ? errors_of(outcome)
                                                              : ": " + printable(outcome.reason));
  }
  std::fflush(stdout);
}

// Masks in rows, kernels in columns: the largest error over its tolerance, forward / backward.
class Table {
 public:
  void add(const CaseOutcome& outcome) {
    const std::string kernel(outcome.verified.kernel->name());
    if (std::find(kernels_.begin(), kernels_.end(), kernel) == kernels_.end()) kernels_.push_back(kernel);
    if (std::find(masks_.begin(), masks_.end(), outcome.verified.mask) == masks_.end())
      masks_.push_back(outcome.verified.mask);
    Cell& cell = cells_[{outcome.verified.mask, kernel}][outcome.direction == Direction::kForward ? 0 : 1];
    if (outcome.status == CaseOutcome::Status::kSkipped) return;
    ++cell.cases;
    if (outcome.status == CaseOutcome::Status::kFailed) ++cell.failed;
    for (const TensorAccuracy& tensor : outcome.report.tensors) {
      const bool gradient = tensor.tensor.starts_with('d');
      if (gradient == (outcome.direction == Direction::kBackward))
        cell.share = std::max(cell.share, tensor.error / tensor.tolerance);
    }
  }

  void print() const {
    fmt::print("| mask | {} |\n|---|", fmt::join(kernels_, " | "));
    for (size_t i = 0; i < kernels_.size(); ++i) fmt::print("---|");
    fmt::print("\n");
    for (const std::string& mask : masks_) {
      fmt::print("| {} |", mask);
      for (const std::string& kernel : kernels_) {
        const auto found = cells_.find({mask, kernel});
        fmt::print(" {} |", found == cells_.end() ? "-" : text_of(found->second));
      }
      fmt::print("\n");
    }
  }

 private:
  struct Cell {
    int64_t cases = 0, failed = 0;
    double share = 0;
  };
  using Passes = std::array<Cell, 2>;

  static std::string text_of(const Cell& cell) {
    if (cell.cases == 0) return "-";
    return cell.failed > 0 ? fmt::format("FAILED ({:.2f})", cell.share) : fmt::format("{:.2f}", cell.share);
  }
  static std::string text_of(const Passes& passes) {
    return passes[0].cases + passes[1].cases == 0
               ? "-"
               : fmt::format("{} / {}", text_of(passes[0]), text_of(passes[1]));
  }

  std::vector<std::string> kernels_, masks_;  // in order of appearance
  std::map<std::pair<std::string, std::string>, Passes> cells_;
};

void run_verify(const VerifyArguments& given) {
  const std::vector<VerifyCase> cases = expand(sweep_options(given));
  const auto start = std::chrono::steady_clock::now();
  const ProgressLine progress;
  size_t done = 0;
  Table table;
  const SweepSummary summary = sweep(cases, devices(), [&](const CaseOutcome& outcome) {
    if (outcome.status == CaseOutcome::Status::kFailed || given.verbose) progress.clear();
    print_outcome(outcome, given);
    table.add(outcome);
    if (!outcome.verified.backward || outcome.direction == Direction::kBackward) ++done;
    progress.show(fmt::format("{}/{} {} {} {}", done, cases.size(), outcome.verified.kernel->name(),
                              outcome.verified.mask, outcome.verified.options.seqlen));
  });
  progress.clear();
  for (const auto& [reason, count] : summary.skip_reasons)
    fmt::print("skipped {:5} {}\n", count, printable(reason));
  const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (given.table) table.print();
  fmt::print("{} passed, {} failed, {} skipped in {:.0f} s\n", summary.passed, summary.failed,
             summary.skipped, elapsed_s);
  if (summary.passed + summary.failed == 0)
    fmt::print(stderr, "nothing was verified: every case was skipped\n");
  if (summary.failed > 0 || (summary.passed == 0 && !given.allow_skipped)) throw CLI::RuntimeError(1);
}

}  // namespace

void add_verify_command(CLI::App& program) {
  auto options = std::make_shared<VerifyArguments>();
  CLI::App* command = program.add_subcommand("verify", "Check kernels against the oracles");
  const auto list = [&](const std::string& name, std::vector<std::string>& values, const std::string& help) {
    command->add_option(name, values, help);
  };
  list("--kernel", options->kernels, "kernel names [all that can run here]");
  list("--mask", options->masks,
       "patterns, mask files (*.json), `empty`, or parts of masks: shuffled:MASK, late_keys:MASK, "
       "early_rows:MASK [all patterns and several parts]");
  list("--seqlen", options->seqlens, "sequence lengths, such as 1000 or 8K [1,2,63,64,65,127,129,1000,4097]");
  list("--heads", options->heads, "QUERY:KV heads [multi-head and grouped]");
  command->add_option("--head-dim", options->head_dim, "head dimension [varies with the length]");
  command->add_option("--head-dim-v", options->head_dim_v, "head dimension of v and o [that of q and k]");
  list("--dtype", options->dtypes, "f32, bf16, f16 [all]");
  list("--direction", options->directions, "forward (fwd), backward (bwd) [both]");
  command->add_option("--seed", options->seed, "seed of masks, inputs and sampled rows [42]");
  command->add_option("--scale", options->scale, "scale of the scores [1 / sqrt(head_dim)]");
  command->add_option("--softcap", options->softcap, "bound of the scores, as in Gemma 2 [none]");
  command->add_flag("--alibi", options->alibi, "ALiBi, with the usual slope for each head");
  command->add_flag("--sinks", options->sinks, "a random attention sink for each query head, as in gpt-oss");
  command->add_flag("--deterministic", options->deterministic,
                    "require bitwise-identical results from two runs");
  command->add_flag("--fp32-output", options->fp32_output, "f32 outputs for every dtype");
  command->add_flag("--lse-gradient", options->lse_gradient, "a loss that depends on lse, too");
  command->add_option("--index", options->index, "number of the mask in the seed's stream [0]");
  command->add_option("--lengths", options->lengths, "source of document lengths");
  add_pattern_options(*command, options->pattern_options);
  command->add_flag("-v,--verbose", options->verbose, "print each case with its errors and tolerances");
  command->add_flag("--table", options->table,
                    "print a table at the end: the largest error of each kernel and mask over its "
                    "tolerance, forward / backward");
  command->add_flag("--allow-skipped", options->allow_skipped, "exit with 0 even if every case was skipped");
  add_peer_options(*command, options->peers);
  command->footer(
      "The fp64 oracle checks outputs in sampled rows and keys; the counting oracle checks every row and "
      "key\n"
      "(see docs/concepts/proof.md). Exit code: 0, 1 if a case failed or every case was skipped, 2 for a "
      "wrong\n"
      "option or variable.\n"
      "\n"
      "Examples:\n"
      "  longspan verify                                             everything, in a minute or two\n"
      "  longspan verify --kernel cpu-flash --mask causal --verbose  one kernel, one pattern\n"
      "  longspan verify --kernel cpu-flash --mask mask.json         a mask of your own\n"
      "  longspan verify --mask shuffled:causal --seqlen 64K --heads 8:2 --head-dim 128 --dtype bf16");
  command->callback([options] {
    set_peer_options(options->peers);
    check_environment();
    run_verify(*options);
  });
}

}  // namespace longspan::cli
