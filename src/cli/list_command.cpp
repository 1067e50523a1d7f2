// `longspan list`: lists kernels, masks, devices, suites and strategies, and what can run here.
#include "cli/list_command.h"

#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "bench/spec/suite.h"
#include "bench/spec/values.h"
#include "cli/command.h"
#include "cli/kernel_features.h"
#include "cli/peer_options.h"
#include "cli/wiring.h"
#include "cp/strategies/strategy.h"
#include "mask/patterns/patterns.h"
#include "peers/peers_folder.h"

namespace longspan::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string_view kind_name(DeviceKind kind) {
  return kind == DeviceKind::kCpu ? "cpu" : "cuda";
}

// "8 to 256 in steps of 8", or the values if their steps differ.
std::string head_dims_text(const std::vector<int64_t>& dims) {
  if (dims.size() > 2) {
    const int64_t step = dims[1] - dims[0];
    bool even = true;
    for (size_t i = 1; i < dims.size(); ++i) even = even && dims[i] - dims[i - 1] == step;
    if (even) return fmt::format("{} to {} in steps of {}", dims.front(), dims.back(), step);
  }
  return fmt::format("{}", fmt::join(dims, " "));
}

// "all 14 masks", "all masks except ..." if a few are missing, else the masks; and the block sizes, unless
// all are supported.
std::string masks_text(const DirectionFeatures& features) {
  const std::vector<std::string_view>& masks = features.masks;
  const std::string blocks =
      features.block_sizes.empty() || features.block_sizes.size() == std::size(kProbedBlocks)
          ? ""
          : fmt::format(" (blocks of {})", fmt::join(features.block_sizes, " "));
  std::vector<std::string_view> lacking;
  for (const Pattern& pattern : patterns()) {
    if (std::find(masks.begin(), masks.end(), pattern.name) == masks.end()) lacking.push_back(pattern.name);
  }
  if (lacking.empty()) return fmt::format("all {} masks{}", masks.size(), blocks);
  if (lacking.size() <= 3) return fmt::format("all masks except {}{}", fmt::join(lacking, " "), blocks);
  return fmt::format("masks {}{}", fmt::join(masks, " "), blocks);
}

std::string features_text(const DirectionFeatures& features) {
  if (!features.reason.empty()) return "no: " + features.reason;
  std::vector<std::string> parts;
  std::vector<std::string_view> dtypes;
  for (DType dtype : features.dtypes) dtypes.push_back(name_of(dtype));
  parts.push_back(fmt::format("{}", fmt::join(dtypes, " ")));
  parts.push_back("head_dim " + head_dims_text(features.head_dims));
  parts.push_back(masks_text(features));
  parts.push_back(features.grouped ? "grouped KV heads" : "no grouped KV heads");
  if (!features.rectangular) parts.push_back("square masks only");
  if (features.deterministic) parts.push_back("deterministic");
  if (features.head_dim_v) parts.push_back("head_dim_v of its own");
  if (features.softcap) parts.push_back("softcap");
  if (features.alibi) parts.push_back("ALiBi");
  return fmt::format("{}", fmt::join(parts, "; "));
}

Json features_json(const DirectionFeatures& features) {
  if (!features.reason.empty()) return {{"supported", false}, {"reason", features.reason}};
  Json dtypes = Json::array();
  for (DType dtype : features.dtypes) dtypes.push_back(name_of(dtype));
  return {{"supported", true},
          {"dtypes", dtypes},
          {"head_dims", features.head_dims},
          {"masks", features.masks},
          {"block_sizes", features.block_sizes},
          {"grouped", features.grouped},
          {"rectangular", features.rectangular},
          {"fp32_output", features.fp32_output},
          {"deterministic", features.deterministic},
          {"lse_gradient", features.lse_gradient},
          {"head_dim_v", features.head_dim_v},
          {"softcap", features.softcap},
          {"alibi", features.alibi}};
}

Json row_json(const KernelRow& row) {
  Json json = {{"name", row.name}, {"in_this_build", row.kernel != nullptr}};
  json["description"] = row.kernel != nullptr ? row.kernel->description() : row.description;
  if (row.kernel != nullptr) json["device"] = kind_name(row.kernel->device_kind());
  if (!row.claims.empty()) json["claims"] = row.claims;
  if (!row.package.empty()) json["package"] = row.package;
  return json;
}

void print_row(const KernelRow& row, const KernelFeatures& features) {
  const std::string description(row.kernel != nullptr ? row.kernel->description() : row.description);
  fmt::print("{}{}{}\n", row.name, description.empty() ? "" : ": ", description);
  if (!features.reason.empty()) {
    fmt::print("  runs here  no: {}\n", features.reason);
    if (!row.claims.empty()) fmt::print("  has        {}\n", row.claims);
  } else {
    fmt::print("  runs here  yes, on {}\n",
               row.kernel->device_kind() == DeviceKind::kCpu ? "the CPU" : "the GPU");
  }
  if (!row.package.empty()) fmt::print("  package    {}\n", row.package);
  // Where nothing could be probed the reason above has said it.
  if (row.kernel == nullptr || (!features.reason.empty() && features.forward.reason == features.reason))
    return;
  fmt::print("  forward    {}\n", features_text(features.forward));
  fmt::print("  backward   {}\n",
             features.backward == features.forward ? "the same" : features_text(features.backward));
}

void list_kernels(bool json) {
  const std::vector<Device> all_devices = devices();
  // Probe in parallel, since the framework of a peer takes seconds to start.
  std::vector<std::future<KernelFeatures>> probed;
  for (const KernelRow& row : workbench().rows) {
    const auto features = [&row, &all_devices] {
      if (row.kernel != nullptr) return probe(*row.kernel, all_devices);
      return KernelFeatures{row.reason, {}, {}};
    };
    probed.push_back(
        std::async(row.kernel != nullptr ? std::launch::async : std::launch::deferred, features));
  }
  Json rows = Json::array();
  auto next = probed.begin();
  for (const KernelRow& row : workbench().rows) {
    const KernelFeatures features = (next++)->get();
    if (!json) {
      print_row(row, features);
      continue;
    }
    Json entry = row_json(row);
    entry["runs_here"] = features.reason.empty();
    entry["reason"] = features.reason;
    if (!row.remedy.empty()) entry["remedy"] = row.remedy;
    if (row.kernel != nullptr) {
      entry["forward"] = features_json(features.forward);
      entry["backward"] = features_json(features.backward);
    }
    rows.push_back(std::move(entry));
  }
  const peers::PeersFolder peers = peers::peers_folder();
  if (json) {
    const Json all{{"kernels", rows}, {"peers_folder", peers.path}, {"peers_refusal", peers.refusal}};
    fmt::print("{}\n", all.dump(2));
    return;
  }
  std::vector<std::string> remedies;  // each once
  for (const KernelRow& row : workbench().rows) {
    if (!row.remedy.empty() && std::find(remedies.begin(), remedies.end(), row.remedy) == remedies.end())
      remedies.push_back(row.remedy);
  }
  if (!remedies.empty())
    fmt::print("For kernels that are not in this build, {}.\n", fmt::join(remedies, ", and "));
  if (peers.refusal.empty())
    fmt::print("The peers are those of {}.\n", printable(peers.path));
  else
    fmt::print("No peers: {}.\n", printable(peers.refusal));
}

void list_masks(bool json) {
  Json rows = Json::array();
  for (const Pattern& pattern : patterns()) {
    const std::string parameters = pattern.parameters();
    if (json)
      rows.push_back({{"name", pattern.name},
                      {"condition", pattern.condition},
                      {"parameters", parameters},
                      {"documents", pattern.documents},
                      {"block_sparse", pattern.block_sparse}});
    else
      fmt::print("{:<24}{}{}\n", pattern.name, pattern.condition,
                 parameters.empty() ? "" : fmt::format("  ({})", parameters));
  }
  if (json)
    fmt::print("{}\n", Json{{"masks", rows}}.dump(2));
  else
    fmt::print(
        "Row i sees key j if the condition holds; d(x) is the document of token x. Parameters are in "
        "brackets.\n");
}

void list_devices(bool json) {
  const std::vector<Device> all = devices();
  const bool cuda =
      std::any_of(all.begin(), all.end(), [](const Device& d) { return d.kind == DeviceKind::kCuda; });
  Json rows = Json::array();
  for (const Device& device : all) {
    const std::string_view kind = kind_name(device.kind);
    if (json) {
      rows.push_back({{"kind", kind},
                      {"index", device.index},
                      {"name", device.name},
                      {"units", device.units},
                      {"capability", device.capability},
                      {"memory_bytes", device.memory_bytes},
                      {"cache_bytes", device.cache_bytes}});
      continue;
    }
    const std::string what = device.kind == DeviceKind::kCpu
                                 ? fmt::format("{} hardware threads", device.units)
                                 : fmt::format("{} multiprocessors, sm_{}", device.units, device.capability);
    fmt::print("{:<8}{}: {}, {} memory, {} last-level cache\n", fmt::format("{} {}", kind, device.index),
               device.name, what, bench::format_bytes(static_cast<double>(device.memory_bytes)),
               bench::format_bytes(static_cast<double>(device.cache_bytes)));
  }
  if (json)
    fmt::print("{}\n", Json{{"devices", rows}, {"no_cuda_reason", cuda ? "" : no_cuda_reason()}}.dump(2));
  else if (!cuda)
    fmt::print("cuda    none: {}\n", no_cuda_reason());
}

void list_suites(bool json) {
  std::vector<std::string> names;
  for (const Kernel* kernel : workbench().kernels) names.emplace_back(kernel->name());
  Json rows = Json::array();
  for (const bench::BuiltinSuite& builtin : bench::builtin_suites()) {
    const bench::Suite suite = bench::find_suite(std::string(builtin.name));
    const size_t cases = bench::expand(suite, names, names, workbench().rows).size();
    if (json)
      rows.push_back({{"name", builtin.name}, {"description", suite.description}, {"cases", cases}});
    else
      fmt::print("{:<10}{:>5} cases  {}\n", builtin.name, cases, suite.description);
  }
  if (json) fmt::print("{}\n", Json{{"suites", rows}}.dump(2));
}

void list_strategies(bool json) {
  Json rows = Json::array();
  for (const Strategy& strategy : strategies()) {
    if (json)
      rows.push_back({{"name", strategy.name}, {"description", strategy.description}});
    else
      fmt::print("{:<16}{}\n", strategy.name, strategy.description);
  }
  if (json) fmt::print("{}\n", Json{{"strategies", rows}}.dump(2));
}

struct Row {
  std::string_view name;
  void (*list)(bool json);
};
constexpr Row kRows[] = {
    {"kernels", list_kernels}, {"masks", list_masks},           {"devices", list_devices},
    {"suites", list_suites},   {"strategies", list_strategies},
};

}  // namespace

std::vector<std::string> listable() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

void add_list_command(CLI::App& program) {
  struct ListArguments {
    std::string what;
    bool json = false;
    PeerOptions peers;
  };
  auto options = std::make_shared<ListArguments>();
  CLI::App* command = program.add_subcommand(
      "list", "List kernels, masks, devices, suites or strategies, and what can run here");
  command->add_option("what", options->what, "kernels, masks, devices, suites or strategies")->required();
  command->add_flag("--json", options->json, "print JSON");
  add_peer_options(*command, options->peers);
  command->footer(
      "Examples:\n"
      "  longspan list kernels            the features of each kernel, or why it cannot run here\n"
      "  longspan list masks --json       for other programs");
  command->callback([options] {
    set_peer_options(options->peers);
    for (const Row& row : kRows) {
      if (row.name == options->what) return row.list(options->json);
    }
    LONGSPAN_CHECK_INPUT(false, "list '{}': must be one of {}{}", options->what, fmt::join(listable(), ", "),
                         did_you_mean(options->what, listable()));
  });
}

}  // namespace longspan::cli
