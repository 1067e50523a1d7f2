#include "cli/schedule_case.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"
#include "cp/strategies/strategy.h"

namespace longspan::cli {
namespace {

using bench::Case;

// Presets that differ from those of a run: typical values of large models.
constexpr std::pair<std::string_view, std::string_view> kPresets[] = {{"heads", "64:8"}, {"dtype", "bf16"}};

std::vector<const bench::Axis*> axes_read(const ScheduleArguments& arguments) {
  std::vector<const bench::Axis*> axes;
  const auto& unread = arguments.unread;
  for (const bench::Axis& axis : bench::axes()) {
    if (std::find(unread.begin(), unread.end(), axis.name) == unread.end()) axes.push_back(&axis);
  }
  return axes;
}

std::string_view preset_of(const bench::Axis& axis) {
  for (const auto& [name, preset] : kPresets) {
    if (name == axis.name) return preset;
  }
  return axis.preset;
}

// Options that the mask does not read are refused, not ignored.
void check_mask_options(const ScheduleArguments& options, const Case& c) {
  const Pattern* pattern = c.mask_is_file() ? nullptr : &pattern_from_name(c.mask);
  LONGSPAN_CHECK_INPUT(options.axes.at("lengths").empty() || (pattern != nullptr && pattern->documents),
                       "--lengths does not apply to {}, only to masks of documents", c.mask);
  for (const TableOption& option : pattern_options()) {
    const bool given = !options.axes.at(std::string(option.spec.name)).empty();
    const bool read = pattern != nullptr && find_option(pattern->options, option.spec.name) != nullptr;
    LONGSPAN_CHECK_INPUT(!given || read, "{} does not apply to {}, only to {}", option_name(option.spec.name),
                         c.mask, option.rows());
  }
}

}  // namespace

CLI::Option* add_strategy_argument(CLI::App& command, ScheduleArguments& arguments) {
  std::vector<std::string_view> names;
  for (const Strategy& strategy : strategies()) names.push_back(strategy.name);
  return command.add_option("strategy", arguments.strategy, fmt::format("one of {}", fmt::join(names, ", ")));
}

void add_schedule_options(CLI::App& command, ScheduleArguments& arguments) {
  for (const bench::Axis* axis : axes_read(arguments)) {
    const std::string_view preset = preset_of(*axis);
    command
        .add_option(option_name(axis->name), arguments.axes[std::string(axis->name)],
                    axis->help + (preset.empty() ? "" : fmt::format(" [{}]", preset)))
        ->type_name("VALUE");
  }
}

Case schedule_case(const ScheduleArguments& options, std::string_view kernel) {
  Case c;
  c.kernel = kernel;
  const Strategy& strategy = strategy_from_name(options.strategy);
  c.parallelism.strategy = options.strategy;
  for (const bench::Axis* axis : axes_read(options)) {
    const std::string& given = options.axes.at(std::string(axis->name));
    const std::string_view value = given.empty() ? preset_of(*axis) : given;
    if (value.empty()) continue;
    try {
      axis->set(c, value);
    } catch (const Error& error) {
      LONGSPAN_CHECK_INPUT(false, "{} {}", option_name(axis->name), error.what());
    }
  }
  LONGSPAN_CHECK_INPUT(!c.mask.empty(), "--mask is missing ({})", bench::find_axis("mask")->help);
  LONGSPAN_CHECK_INPUT(c.seqlen > 0 || c.mask_is_file(), "--seqlen is missing ({})",
                       bench::find_axis("seqlen")->help);
  LONGSPAN_CHECK_INPUT(c.parallelism.ranks > 0,
                       "--ranks is missing; give the number of ranks, or --topology NODESxDEVICES");
  // Options that the strategy does not read are refused, not ignored.
  for (const TableOption& option : strategy_options()) {
    const auto axis = options.axes.find(std::string(option.spec.name));
    const bool given = axis != options.axes.end() && !axis->second.empty();
    LONGSPAN_CHECK_INPUT(!given || find_option(strategy.options, option.spec.name) != nullptr,
                         "{} does not apply to {}, only to {}", option_name(option.spec.name),
                         options.strategy, option.rows());
  }
  check_mask_options(options, c);
  return bench::normalised(c);
}

}  // namespace longspan::cli
