#include "record/schema.h"

#include <map>

#include <fmt/format.h>

#include "record/fields.h"
#include "record/json_writer.h"

namespace longspan::record {
namespace {

constexpr std::string_view kTop = R"(# The results file

<!-- `longspan results-page` prints this page from src/record/fields.h. Edit that list, not this page. -->

A results file is JSON Lines, UTF-8: one object a line, appended as soon as its case ends. `longspan run` writes `results.jsonl`
into its output folder; `longspan report` and `longspan compare` read such files.

- There are three kinds of line; `type` says which. A line of `longspan simulate --json` has a fourth type, `simulated`: it counts
  nowhere as measured.
- Every line has a `schema`, currently {}. A reader refuses an unknown schema and ignores unknown keys.
- Times are in seconds, sizes in bytes, rates in FLOP/s. A missing number is null or absent, never 0 or NaN.
- Only mask parameters and temperatures may be negative.
- An optional key is left out if it has no value. A reader treats null as absent.
- A line ends in a newline. If the last line is incomplete, the run was interrupted while writing it; `--resume` removes it and runs its
  case again. `--resume` also tries failed cases again: where a file holds an `id` more than once, the last line counts.
- The last key of every line is `crc32`: zlib's CRC-32 of the bytes before its comma, as eight hexadecimal digits. `report`, `compare`
  and `run --resume` name a line that does not match, change nothing, and exit with 2. Remove the key from a line that you edit
  (`jq -c 'del(.crc32)'`). Lines of older versions have no checksum and are read as they are.

[Metrics](metrics.md) derives the numbers.
)";

constexpr std::string_view kRun = R"(
## `"type": "run"`: a run, its machine and its build

This line is written first, and again by each `--resume`. If a suite's cases run on several devices (`--devices`), each device
has its own line. Cases refer to it by `run`.
)";

constexpr std::string_view kWorkload = R"(
## `"type": "workload"`: the steps of a workload

`longspan run --workload` writes one for each kernel and strategy, behind the line of its run. The cases stand in lines of their own.
)";

constexpr std::string_view kCase = R"(
## `"type": "case"`: one kernel on one workload

`share_of_ceiling` is absent if ranks are processes on the CPU.
)";

constexpr std::string_view kBottom = R"(
## `longspan plan --json`

One object:

| key | meaning |
|---|---|
| `case`, `topology` | as above; nodes and devices |
| a key for each of the strategy's options | its value, as given or as chosen by the strategy |
| `area`, `build_s`, `check_s` | visible pairs; time to build and to check the schedule |
| `owned` | each rank's tokens as `[begin, end]` pairs |
| `forward`, `backward` | the keys of [`plan`](#plan) except `owned`, for each pass |

## `longspan simulate --json`

One line with the keys of a case, those that a simulation knows. Times are predicted.

| key | meaning |
|---|---|
| `type` | `simulated` |
| `machine` | `name`, and `measured`: whether every figure of the machine is |
| `timeline` | of mask 0, up to 64 ranks: columns `rank`, `what` (`compute`, `wait`, `reorder`, `merge`), `begin_s`, `end_s`, `peer` (of a wait) |
| `memory` | of mask 0, up to 64 ranks: columns `rank`, `begin_s` (of a round), `bytes`: the most that its buffers use at once |
| `interval_s` | with `--band`: the time with links a quarter faster, and slower |

With `--against`, a line for each case: `id`, `case`, `measured_s`, `predicted_s`, `error` (relative to the measured time), and the parts of
both times as means over the ranks, `measured` and `predicted`. The last line has `errors` (number of cases, mean, largest) by strategy,
mask, pass and length, and `choices`: for each problem the predicted and the measured fastest strategy, and the `regret` of the former.

## `longspan advise --json`

One object: `machine` as above, `mask`, `seqlen`, and `candidates`, the fastest first. Each has its `kernel`, the axes of its strategy as a case
does, and

| key | meaning |
|---|---|
| `forward_s`, `backward_s` | predicted times |
| `slower_links_s`, `faster_links_s` | both passes together, if all links carried a quarter less, or more |
| `held_bytes`, `memory_bytes` | of the fullest rank: buffers; these and its q, k, v, o, lse and gradients |
| `fits` | whether `memory_bytes` is within `--memory`; true without it |
| `reason` | the part of the slowest rank's time that exceeds the fastest candidate's by the most |
| `too_close` | within 3 % of the fastest: too close to call |

`refused_kernels` says for each of the machine's kernels that was not tried why it does not take the tensors.

`nearest_measured` lists, with `--measured`, for each pass of the fastest candidate the measured case that is most like it: `direction`,
`case`, `measured_s`, `predicted_s`.

With `--workload`, one object: `machine`, `workload` (the file), `steps`, `ranks`, `nodes`, `memory_bytes` (the limit), `pricing_s` (what
this machine took to price all choices), and the ways to divide the ranks: `one_degree`, a list with a `degree` and the axes of a strategy each;
`each_step`; `each_micro_batch`. Each way has

| key | meaning |
|---|---|
| `fits`, `memory_bytes` | whether every micro-batch fits, and what the GPU that holds the most needs. What does not fit has no other keys |
| `step_s`, `planned_step_s` | `p50`, `p95`, `p99` and `sum` over the steps, without and with planning |
| `exposed_share` | share of the ranks' time in attention that they wait for data |
| `between_nodes_bytes`, `idle_gpu_hours` | of all GPUs in all steps |
| `regret`, `planned_regret` | `sum` over that of `each_micro_batch` without planning, less 1 |
| `degrees` | number of micro-batches by degree |
)";

// Notes printed above the table of an object, by its key.
const std::map<std::string_view, std::string_view> kNotes = {
    {"case",
     "If v and o have another head dimension than q and k, the object also has it as `head_dim_v`. If the "
     "case is "
     "spread over\nranks, it has `strategy`, `ranks`, and each option of the strategy that differs from its "
     "default, "
     "under its own name.\nIt has `sinks`, `softcap` and `alibi` where they are set. `time_s` then "
     "includes adding the sinks and, in the backward pass,\ntheir gradients.\n"},
    {"accuracy", "[Proof](../concepts/proof.md) defines the errors.\n"},
    {"parallel",
     "`time_s` of such a case is the time of the slowest rank: each sample starts when all ranks are "
     "ready, and is the largest of the\nranks' times. `flops_per_s` counts the work of the whole problem. "
     "Lists are by rank, each entry a mean over the masks.\n[Metrics](metrics.md#ranks) says what the "
     "figures mean.\n"},
};

template <class T>
struct Item {
  using type = T;
};
template <class T>
struct Item<std::optional<T>> : Item<T> {};
template <class T>
struct Item<std::vector<T>> : Item<T> {};
template <class T>
struct Item<std::map<std::string, T>> : Item<T> {};
template <class T>
struct Item<std::pair<std::string, T>> : Item<T> {};
template <class T>
struct Item<Open<T>> : Item<T> {};
template <>
struct Item<Open<void>> {
  using type = Open<void>;
};

template <class T>
std::string kind_of(unsigned flags) {
  if constexpr (detail::IsOptional<T>::value) {
    return kind_of<typename T::value_type>(flags);
  } else if constexpr (std::same_as<T, bool>) {
    return "boolean";
  } else if constexpr (std::same_as<T, double>) {
    return "number";
  } else if constexpr (std::integral<T>) {
    return "integer";
  } else if constexpr (std::same_as<T, std::string> || std::same_as<T, Status>) {
    return "string";
  } else if constexpr (std::same_as<T, std::vector<uint8_t>>) {
    return "base64";
  } else if constexpr (std::same_as<T, Interval> || std::same_as<T, std::pair<int64_t, int64_t>>) {
    return "pair";
  } else if constexpr (detail::IsNamed<T>::value) {
    return kind_of<typename Item<T>::type>(flags) + " by name";
  } else if constexpr (detail::IsList<T>::value) {
    return (flags & kByRank) != 0 ? "list by rank" : "list";
  } else {
    return "object";
  }
}

// A table of an object's fields, followed by the tables of its nested objects.
class Schema {
 public:
  template <class T>
  void field(const char* key, const T&, const char* meaning, unsigned flags = 0) {
    using Inner = typename Item<T>::type;
    std::string kind = kind_of<T>(flags);
    if ((flags & kNull) != 0) kind += " or null";
    const bool may_miss = detail::IsOptional<T>::value || (flags & kOmitted) != 0;
    if (may_miss && (flags & kNull) == 0) kind += ", optional";
    std::string link;
    if constexpr (requires(Schema & schema, Inner & inner) { visit(schema, inner); }) {
      if constexpr (!std::same_as<Inner, PlanMove>) {
        link = fmt::format(": [`{}`](#{})", key, key);
        Schema schema;
        Inner inner;
        visit(schema, inner);
        const auto note = kNotes.find(key);
        inner_ += fmt::format("\n### `{}`\n{}{}", key,
                              note == kNotes.end() ? "" : fmt::format("\n{}", note->second), schema.text());
      }
    }
    rows_ += fmt::format("| `{}` | {} | {}{} |\n", key, kind, meaning, link);
  }

  std::string text() const { return "\n| key | value | meaning |\n|---|---|---|\n" + rows_ + inner_; }

 private:
  std::string rows_, inner_;
};

template <class T>
std::string fields_of() {
  Schema schema;
  T value;
  visit(schema, value);
  return schema.text();
}

}  // namespace

std::string results_page() {
  return fmt::format(kTop, kSchema) + std::string(kRun) + fields_of<RunRecord>() + std::string(kWorkload) +
         fields_of<WorkloadRecord>() + std::string(kCase) + fields_of<CaseRecord>() + std::string(kBottom);
}

}  // namespace longspan::record
