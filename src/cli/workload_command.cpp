// `longspan workload`: draws a workload, document lengths for each step of a training run, or describes one.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "bench/spec/case.h"
#include "bench/spec/draw_workload.h"
#include "bench/spec/values.h"
#include "cli/command.h"
#include "cli/pattern_options.h"
#include "report/output_file.h"

namespace longspan::cli {
namespace {

struct WorkloadArguments {
  std::string file;  // to describe
  std::string output, lengths = "auto", mask = "causal_document", packing = "cut";
  std::string tokens = "64K", steps = "100", micro_batches = "8", seed = "42";
  std::string heads = "64:8", head_dim = "128", dtype = "bf16", layers = "1", outside = "0", memory;
  std::string dp = "1", cp = "1", pp = "1", tp = "1";
  std::map<std::string, std::string> pattern_options;
};

// What the file begins with, so that no other file is replaced.
constexpr std::string_view kBegin = R"({"type":"workload")";
constexpr int64_t kMost = 100000;

template <class Parse>
auto parsed(const char* option, Parse&& parse) {
  try {
    return parse();
  } catch (const Error& error) {
    LONGSPAN_CHECK_INPUT(false, "{} {}", option, error.what());
    throw;
  }
}

int64_t count(const char* option, const std::string& text, int64_t most) {
  return parsed(option, [&] { return bench::parse_count(text, 1, most); });
}

// A value of a case, by the axis that reads it.
void set(bench::Case& c, const char* axis, const std::string& text) {
  parsed(option_name(axis).c_str(), [&] {
    bench::find_axis(axis)->set(c, text);
    return 0;
  });
}

bench::Workload drawn(const WorkloadArguments& given) {
  const Pattern& pattern = pattern_from_name(given.mask);
  LONGSPAN_CHECK_INPUT(pattern.documents, "--mask {}: has no documents; see `longspan list masks`",
                       given.mask);
  bench::WorkloadStep step{given.mask, parse_options(given.pattern_options), {}};
  for (const TableOption& option : pattern_options())
    LONGSPAN_CHECK_INPUT(
        !step.options.has(option.spec) || find_option(pattern.options, option.spec.name) != nullptr,
        "{} does not apply to {}, only to {}", option_name(option.spec.name), given.mask, option.rows());
  bench::Case c;
  set(c, "heads", given.heads);
  set(c, "head_dim", given.head_dim);
  set(c, "dtype", given.dtype);
  bench::Workload w;
  w.heads_q = c.heads_q;
  w.heads_kv = c.heads_kv;
  w.head_dim = c.head_dim;
  w.dtype = c.dtype;
  w.layers = count("--layers", given.layers, 65536);
  for (const auto& [option, text, degree] :
       {std::tuple{"--dp", &given.dp, &w.dp}, std::tuple{"--cp", &given.cp, &w.cp},
        std::tuple{"--pp", &given.pp, &w.pp}, std::tuple{"--tp", &given.tp, &w.tp}})
    *degree = count(option, *text, 4096);
  if (given.outside != "0")
    w.outside_s_per_token =
        parsed("--outside-s-per-token", [&] { return bench::parse_real(given.outside, 0, 1); });
  if (!given.memory.empty())
    w.memory_bytes = static_cast<double>(count("--memory", given.memory, int64_t{1'000'000'000'000'000}));
  bench::check_header(w);

  bench::Drawing drawing;
  drawing.steps = count("--steps", given.steps, kMost);
  drawing.micro_batches = count("--micro-batches", given.micro_batches, kMost);
  drawing.tokens = count("--tokens", given.tokens, kMaxTokens);
  drawing.packing = parsed("--packing", [&] { return bench::packing_from_name(given.packing); });
  drawing.seed = parsed("--seed", [&] { return bench::parse_seed(given.seed); });
  LONGSPAN_CHECK_INPUT(drawing.steps * drawing.micro_batches <= kMost,
                       "--steps {} times --micro-batches {} is more than {} micro-batches", drawing.steps,
                       drawing.micro_batches, kMost);
  LONGSPAN_CHECK_INPUT(drawing.micro_batches % w.dp == 0,
                       "--micro-batches {} are those of all replicas: a multiple of --dp {}",
                       drawing.micro_batches, w.dp);
  const LengthSource source = LengthSource::from_name(given.lengths, drawing.tokens);
  for (std::vector<bench::MicroBatch>& batches : draw_micro_batches(source, drawing)) {
    step.micro_batches = std::move(batches);
    w.steps.push_back(step);
  }
  w.source = fmt::format("longspan workload: lengths {}, packing {}, seed {}", source.name(), given.packing,
                         drawing.seed);
  return w;
}

void describe(const bench::Workload& w, const std::string& file) {
  std::vector<int64_t> lengths, tokens;
  for (const bench::WorkloadStep& step : w.steps) {
    for (const bench::MicroBatch& batch : step.micro_batches) {
      tokens.push_back(bench::tokens_of(batch));
      lengths.insert(lengths.end(), batch.begin(), batch.end());
    }
  }
  std::sort(lengths.begin(), lengths.end());
  const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
  const auto share_up_to = [&](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(lengths.size())));
    return lengths[std::max<size_t>(rank, 1) - 1];
  };
  fmt::print("{}: {} steps, {} micro-batches of {} to {} tokens\n", printable(file), w.steps.size(),
             tokens.size(), format_length(*least), format_length(*most));
  if (!w.source.empty()) fmt::print("  made by      {}\n", printable(w.source));
  fmt::print("  model        {}:{} heads of {}, {}, {} layers\n", w.heads_q, w.heads_kv, w.head_dim,
             name_of(w.dtype), w.layers);
  fmt::print("  degrees      dp {}, cp {}, pp {}, tp {}\n", w.dp, w.cp, w.pp, w.tp);
  fmt::print("  documents    {} of {} to {} tokens; half have at most {}, 99% at most {}\n", lengths.size(),
             lengths.front(), lengths.back(), share_up_to(0.5), share_up_to(0.99));
}

void run_workload(const WorkloadArguments& options) {
  if (!options.file.empty()) return describe(bench::read_workload(options.file), options.file);
  if (options.output.empty()) {
    write_workload(drawn(options), std::cout);
    std::cout.flush();
    return;
  }
  const report::OutputFile file("--output", options.output, {"a workload", kBegin}, {options.lengths});
  const bench::Workload workload = drawn(options);
  std::ostringstream text;
  write_workload(workload, text);
  file.write(text.view());
  if (!file.is_stdout()) describe(workload, options.output);
}

}  // namespace

void add_workload_command(CLI::App& program) {
  auto options = std::make_shared<WorkloadArguments>();
  CLI::App* command = program.add_subcommand(
      "workload", "Draw the document lengths of a training run's steps, or describe such a file");
  CLI::Option* file =
      command->add_option("file", options->file, "a workload file to describe, instead of drawing one");
  const auto add = [&](const char* name, std::string& value, const std::string& help) {
    command->add_option(name, value, help + (value.empty() ? "" : fmt::format(" [{}]", value)))
        ->type_name("VALUE")
        ->excludes(file);
  };
  add("--lengths", options->lengths,
      "document lengths: pile, prolong64k, prolong512k, uniform:A:B, list:A:B:..., or a file with a length "
      "on each line, all equally likely");
  add("--tokens", options->tokens, "tokens of a micro-batch, at most");
  add("--steps", options->steps, "steps");
  add("--micro-batches", options->micro_batches, "micro-batches of a step, of all replicas together");
  add("--packing", options->packing,
      "cut: the last document of a micro-batch is cut to fit; whole: documents stay whole, the longest are "
      "placed first");
  add("--seed", options->seed, "seed of the lengths");
  add("--mask", options->mask, "a mask pattern of documents");
  add("--heads", options->heads, "the model's query heads : KV heads");
  add("--head-dim", options->head_dim, "head dimension");
  add("--dtype", options->dtype, "element type");
  add("--layers", options->layers, "layers of the model");
  add("--outside-s-per-token", options->outside,
      "seconds of a GPU for each token outside attention, both passes, in the layers of its pipeline stage");
  add("--memory", options->memory, "bytes of a GPU for what attention holds, such as 40G");
  add("--dp", options->dp, "data-parallel replicas: micro-batch i belongs to replica i mod dp");
  add("--cp", options->cp, "ranks that share a micro-batch");
  add("--pp", options->pp, "pipeline stages");
  add("--tp", options->tp, "tensor-parallel GPUs, which divide the heads");
  add_pattern_options(*command, options->pattern_options);
  command
      ->add_option("-o,--output", options->output,
                   "the file to write, instead of standard output; replaces only a workload")
      ->type_name("FILE")
      ->excludes(file);
  command->footer(
      "The same arguments give the same file on every machine. docs/reference/workload.md has its format.\n"
      "Examples:\n"
      "  longspan workload --lengths prolong512k --tokens 128K --steps 20 -o workload.jsonl\n"
      "  longspan workload --lengths lengths.csv --packing whole --layers 32 --cp 8 -o workload.jsonl\n"
      "  longspan workload workload.jsonl\n"
      "  longspan run --workload workload.jsonl --strategy all --ranks 4 --kernel cpu-flash --dtype f32");
  command->callback([options] { run_workload(*options); });
}

}  // namespace longspan::cli
