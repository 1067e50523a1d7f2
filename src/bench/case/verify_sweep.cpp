// The default sweep of `longspan verify`, parts of masks, and the verification of each case.
#include "bench/case/verify_sweep.h"

#include <algorithm>
#include <cmath>
#include <exception>

#include "base/error.h"
#include "base/parse.h"
#include "bench/spec/mask_file.h"

namespace longspan {
namespace {

// A length of the default sweep, and the shape used with it.
struct Recipe {
  int64_t seqlen, head_dim;
  bool deterministic, fp32_output, lse_gradient;
  int64_t head_dim_v = 0;
  float scale = 0, softcap = 0;
  bool alibi = false;
};
constexpr Recipe kRecipes[] = {
    {1, 8, false, false, true},
    {2, 16, true, false, false},
    {63, 64, false, true, true, 0, 0, 20},
    {64, 128, false, false, false},
    {65, 40, true, false, true, 0, 0.3f},
    {127, 96, false, true, false, 64},
    {129, 256, false, false, true, 0, 0, 0, true},
    {1000, 64, true, false, true, 128, 0, 5, true},
    {4097, 16, false, false, false},
};
constexpr int64_t kUsualHeadDims[] = {128, 64};
constexpr int64_t kLong = 1024;  // from this length on, fewer heads and one dtype, to limit the time

const Recipe& recipe_for(int64_t seqlen) {
  const Recipe* nearest = &kRecipes[0];
  for (const Recipe& recipe : kRecipes) {
    if (recipe.seqlen <= seqlen) nearest = &recipe;
  }
  return *nearest;
}

constexpr std::string_view kPartNames[] = {"shuffled", "late_keys",
                                           "early_rows"};  // in the order of MaskPart

std::vector<std::string> default_masks() {
  std::vector<std::string> names;
  for (const Pattern& pattern : patterns()) names.emplace_back(pattern.name);
  for (size_t part = 0; part < std::size(kPartNames); ++part) {
    for (const Pattern& pattern : patterns()) {
      const std::vector<MaskPart>& parts = pattern.parts;
      if (std::find(parts.begin(), parts.end(), static_cast<MaskPart>(part)) != parts.end())
        names.push_back(fmt::format("{}:{}", kPartNames[part], pattern.name));
    }
  }
  names.emplace_back("empty");
  return names;
}

// About two thirds of the pieces of [0, tokens), in random order.
std::vector<Range> shuffled_pieces(int64_t tokens, Mt19937& generator) {
  std::vector<Range> pieces;
  for (int64_t begin = 0; begin < tokens;) {
    const int64_t end = std::min(tokens, begin + generator.randint(1, std::max<int64_t>(1, tokens / 5)));
    pieces.push_back({begin, end});
    begin = end;
  }
  generator.shuffle(pieces);
  pieces.resize((pieces.size() * 2 + 2) / 3);
  return pieces;
}

// Sets options to values that suit this length, for patterns whose presets suit longer sequences.
void suit_to_length(PatternOptions& options, const std::string& mask) {
  const std::string name = mask.substr(mask.rfind(':') + 1);
  if (name == "empty" || name.ends_with(".json")) return;
  const Pattern& pattern = pattern_from_name(name);
  if (pattern.documents && options.lengths == PatternOptions().lengths) options.lengths = "uniform:1:200";
  if (pattern.suit_length != nullptr) pattern.suit_length(options);
}

Problem problem_of(const VerifyCase& c, std::shared_ptr<const HeadMasks> masks) {
  Problem problem;
  problem.tokens_q = masks->front().rows();
  problem.tokens_kv = masks->front().columns();
  problem.heads_q = c.heads.q;
  problem.heads_kv = c.heads.kv;
  problem.head_dim = c.head_dim;
  problem.head_dim_v = c.head_dim_v;
  problem.dtype = c.dtype;
  problem.fp32_output = c.fp32_output;
  problem.lse_gradient = c.lse_gradient && c.backward;
  problem.scale = c.scale;
  problem.softcap = c.softcap;
  if (c.alibi) problem.alibi_slopes = alibi_slopes(c.heads.q);
  if (c.sinks && c.kernel->takes_sinks()) problem.sinks = drawn_sinks(c.heads.q, c.options.seed);
  problem.deterministic = c.deterministic;
  problem.masks = std::move(masks);
  return problem;
}

Support supports(const VerifyCase& c, const Problem& problem, const Device& device, bool backward) {
  Support support = c.kernel->supports(problem, Direction::kForward, device);
  if (support && backward) support = c.kernel->supports(problem, Direction::kBackward, device);
  return support;
}

// The case itself or, if it may be adapted, the first similar case that the kernel supports.
VerifyCase adapted(const VerifyCase& c, const std::shared_ptr<const HeadMasks>& masks, const Device& device) {
  if (!c.adapt) return c;
  std::vector<int64_t> head_dims = {c.head_dim};
  head_dims.insert(head_dims.end(), std::begin(kUsualHeadDims), std::end(kUsualHeadDims));
  enum class Changes { kNone, kNoFeatures, kPlain };
  for (const Changes changes : {Changes::kNone, Changes::kNoFeatures, Changes::kPlain}) {
    for (const int64_t head_dim : head_dims) {
      VerifyCase other = c;
      other.head_dim = head_dim;
      if (changes != Changes::kNone) {
        other.head_dim_v = 0;
        other.softcap = 0;
        other.alibi = false;
      }
      if (changes == Changes::kPlain) {
        other.scale = 0;
        other.deterministic = other.fp32_output = other.lse_gradient = false;
      }
      const Problem problem = problem_of(other, masks);
      if (supports(other, problem, device, false)) return other;
    }
  }
  return c;
}

}  // namespace

void check_mask_name(const std::string& name) {
  const size_t colon = name.find(':');
  if (colon != std::string::npos) {
    const std::string part = name.substr(0, colon);
    LONGSPAN_CHECK_INPUT(
        std::find(std::begin(kPartNames), std::end(kPartNames), part) != std::end(kPartNames),
        "mask '{}': '{}' is not a part of a mask; the parts are {}", name, part, fmt::join(kPartNames, ", "));
    return check_mask_name(name.substr(colon + 1));
  }
  if (name.ends_with(".json")) {
    read_masks(name);
  } else if (name != "empty") {
    pattern_from_name(name);
  }
}

HeadMasks masks_from_name(const std::string& name, const PatternOptions& options) {
  check_mask_name(name);
  if (name == "empty") return {Mask(options.seqlen, options.seqlen, std::vector<Band>())};
  const size_t colon = name.find(':');
  if (colon == std::string::npos) {
    return name.ends_with(".json") ? read_masks(name) : draw_mask(name, options).masks;
  }
  const std::string part = name.substr(0, colon);
  HeadMasks masks = masks_from_name(name.substr(colon + 1), options);
  const int64_t rows = masks.front().rows(), columns = masks.front().columns();
  std::vector<Range> q = {{0, rows}}, k = {{0, columns}};
  if (part == "shuffled") {
    Mt19937 generator(options.seed);
    q = shuffled_pieces(rows, generator);
    k = shuffled_pieces(columns, generator);
  } else if (part == "late_keys") {
    k = {{columns / 2, columns}};
  } else {
    q = {{0, (rows + 1) / 2}};
  }
  for (Mask& mask : masks) mask = mask.gather(q, k);
  return masks;
}

std::string command_of(const VerifyCase& c, Direction direction) {
  std::string command = fmt::format("longspan verify --kernel {} --mask {}", c.kernel->name(), c.mask);
  if (!c.mask.ends_with(".json")) command += fmt::format(" --seqlen {}", format_length(c.options.seqlen));
  command += fmt::format(" --heads {}:{} --head-dim {} --dtype {} --direction {} --seed {}", c.heads.q,
                         c.heads.kv, c.head_dim, name_of(c.dtype), name_of(direction), c.options.seed);
  if (c.head_dim_v != 0) command += fmt::format(" --head-dim-v {}", c.head_dim_v);
  if (c.scale != 0) command += fmt::format(" --scale {}", c.scale);
  if (c.softcap != 0) command += fmt::format(" --softcap {}", c.softcap);
  if (c.alibi) command += " --alibi";
  if (c.sinks) command += " --sinks";
  if (c.deterministic) command += " --deterministic";
  if (c.fp32_output) command += " --fp32-output";
  if (c.lse_gradient) command += " --lse-gradient";
  const PatternOptions& options = c.options;
  const PatternOptions preset;
  if (options.index != 0) command += fmt::format(" --index {}", options.index);
  if (options.lengths != preset.lengths) command += " --lengths " + options.lengths;
  for (const TableOption& option : pattern_options()) {
    if (const OptionValue* value = options.values.find(option.spec.name))
      command += fmt::format(" {} {}", option_name(option.spec.name), to_text(*value));
  }
  return command;
}

std::vector<VerifyCase> expand(const SweepOptions& options) {
  const bool varied = !options.head_dim && !options.head_dim_v && !options.scale && !options.softcap &&
                      !options.alibi && !options.deterministic && !options.fp32_output &&
                      !options.lse_gradient;
  std::vector<int64_t> seqlens = options.seqlens;
  if (seqlens.empty()) {
    for (const Recipe& recipe : kRecipes) seqlens.push_back(recipe.seqlen);
  }
  const std::vector<std::string> masks = options.masks.empty() ? default_masks() : options.masks;
  const std::vector<DType> all_dtypes = {DType::kF32, DType::kBF16, DType::kF16};
  std::vector<VerifyCase> cases;
  for (const Kernel* kernel : options.kernels) {
    size_t next_dtype = 0;  // selects the dtype if one is enough
    for (const std::string& mask : masks) {
      const bool file = mask.ends_with(".json");
      for (const int64_t seqlen : file ? std::vector<int64_t>{0} : seqlens) {
        const Recipe& recipe = recipe_for(seqlen);
        const bool reduced = varied && !file && seqlen >= kLong / 2;
        std::vector<Heads> heads = options.heads;
        if (heads.empty() && file) {
          const auto masks_in_file = static_cast<int64_t>(masks_from_name(mask, {}).size());
          const int64_t kv = masks_in_file == 1 ? 2 : masks_in_file;
          heads = {{kv, kv}, {3 * kv, kv}};
        } else if (heads.empty()) {
          heads = reduced && seqlen >= kLong ? std::vector<Heads>{{1, 1}, {2, 1}}
                                             : std::vector<Heads>{{2, 2}, {6, 2}};
        }
        for (const Heads& shape : heads) {
          std::vector<DType> dtypes = options.dtypes.empty() ? all_dtypes : options.dtypes;
          if (reduced && options.dtypes.empty()) dtypes = {all_dtypes[next_dtype++ % 2]};
          for (const DType dtype : dtypes) {
            VerifyCase c;
            c.kernel = kernel;
            c.mask = mask;
            c.options = options.pattern;
            c.options.seqlen = seqlen;
            c.options.kv_heads = shape.kv;
            if (varied) suit_to_length(c.options, mask);
            c.heads = shape;
            c.dtype = dtype;
            c.forward = options.forward;
            c.backward = options.backward;
            c.head_dim = varied ? recipe.head_dim : options.head_dim.value_or(64);
            c.head_dim_v = varied ? recipe.head_dim_v : options.head_dim_v.value_or(0);
            c.softcap = varied ? recipe.softcap : options.softcap.value_or(0);
            c.alibi = varied ? recipe.alibi : options.alibi.value_or(false);
            c.sinks = options.sinks;
            c.scale = varied ? recipe.scale : options.scale.value_or(0);
            c.deterministic = varied ? recipe.deterministic : options.deterministic.value_or(false);
            c.fp32_output = varied ? recipe.fp32_output : options.fp32_output.value_or(false);
            c.lse_gradient = varied ? recipe.lse_gradient : options.lse_gradient.value_or(false);
            c.counting = !reduced || seqlen < kLong || shape.q > shape.kv;
            c.adapt = varied;
            cases.push_back(std::move(c));
          }
        }
      }
    }
  }
  return cases;
}

std::vector<CaseOutcome> run_case(const VerifyCase& c, const std::vector<Device>& devices) {
  using Status = CaseOutcome::Status;
  std::vector<CaseOutcome> outcomes;
  VerifyCase ran = c;
  const auto conclude = [&](Direction direction, Status status, const std::string& reason,
                            const VerifyReport& report) {
    const bool asked = direction == Direction::kForward ? c.forward : c.backward;
    if (asked) outcomes.push_back({ran, direction, status, reason, report});
  };
  const auto conclude_all = [&](Status status, const std::string& reason) {
    conclude(Direction::kForward, status, reason, {});
    conclude(Direction::kBackward, status, reason, {});
    return outcomes;
  };
  const auto device = std::find_if(devices.begin(), devices.end(), [&](const Device& candidate) {
    return candidate.kind == c.kernel->device_kind();
  });
  if (device == devices.end())
    return conclude_all(Status::kSkipped, c.kernel->device_kind() == DeviceKind::kCuda
                                              ? "needs a CUDA device: " + no_cuda_reason()
                                              : "needs the CPU, which is not among the devices");

  std::shared_ptr<const HeadMasks> masks;
  try {
    masks = std::make_shared<HeadMasks>(masks_from_name(c.mask, c.options));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    return conclude_all(Status::kSkipped, error.what());
  }
  bool forward_concluded = false;
  try {
    ran = adapted(c, masks, *device);
    const Problem problem = problem_of(ran, masks);
    problem.check();
    const Support forward = ran.kernel->supports(problem, Direction::kForward, *device);
    if (!forward) return conclude_all(Status::kSkipped, forward.reason);
    const Support backward = ran.kernel->supports(problem, Direction::kBackward, *device);
    const Direction last = c.backward && backward ? Direction::kBackward : Direction::kForward;

    VerifyOptions options;
    options.input_seed = options.samples.seed = ran.options.seed;
    options.counting = ran.counting;
    const std::unique_ptr<Plan> plan = ran.kernel->plan(problem, *device);
    Problem with_sinks = problem;  // which calls get
    if (ran.sinks) with_sinks.sinks = drawn_sinks(ran.heads.q, ran.options.seed);
    const VerifyReport report = verify(*plan, with_sinks, last, *device, options);
    const auto status = [](const std::string& failure) {
      return failure.empty() ? Status::kPassed : Status::kFailed;
    };
    conclude(Direction::kForward, status(report.forward_failure), report.forward_failure, report);
    forward_concluded = true;
    if (!backward) {
      conclude(Direction::kBackward, Status::kSkipped, backward.reason, {});
    } else if (c.backward) {
      // With a wrong o or lse the backward pass cannot be judged, so it fails for the same reason.
      const std::string reason =
          !report.backward_failure.empty() ? report.backward_failure : report.forward_failure;
      conclude(Direction::kBackward, status(reason), reason, report);
    }
    return outcomes;
  } catch (const Error& error) {
    const bool cannot = error.kind() == ErrorKind::kInput || error.kind() == ErrorKind::kUnsupported;
    if (!forward_concluded) return conclude_all(cannot ? Status::kSkipped : Status::kFailed, error.what());
    throw;
  } catch (const std::exception& error) {
    return conclude_all(Status::kFailed, error.what());
  }
}

SweepSummary sweep(const std::vector<VerifyCase>& cases, const std::vector<Device>& devices,
                   const std::function<void(const CaseOutcome&)>& watch) {
  SweepSummary summary;
  for (const VerifyCase& c : cases) {
    for (const CaseOutcome& outcome : run_case(c, devices)) {
      switch (outcome.status) {
        case CaseOutcome::Status::kPassed:
          ++summary.passed;
          break;
        case CaseOutcome::Status::kFailed:
          ++summary.failed;
          break;
        case CaseOutcome::Status::kSkipped:
          ++summary.skipped;
          ++summary.skip_reasons[fmt::format("{}: {}", c.kernel->name(), outcome.reason)];
          break;
      }
      watch(outcome);
    }
  }
  return summary;
}

}  // namespace longspan
