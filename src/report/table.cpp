#include "report/table.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/printable.h"
#include "report/format.h"
#include "report/parallel_table.h"
#include "report/workload_summary.h"

namespace longspan::report {
namespace {

constexpr size_t kGap = 2;             // between columns
constexpr size_t kNarrowestMask = 12;  // a shorter mask name would not be recognisable

enum class Ink { kPlain, kBold, kDim, kGood, kWarn, kBad };

std::string paint(std::string_view text, Ink ink, bool colour) {
  if (!colour || ink == Ink::kPlain) return std::string(text);
  static const std::map<Ink, std::string_view> codes = {
      {Ink::kBold, "1"}, {Ink::kDim, "2"}, {Ink::kGood, "1;32"}, {Ink::kWarn, "33"}, {Ink::kBad, "1;31"}};
  return fmt::format("\x1b[{}m{}\x1b[0m", codes.at(ink), text);
}

std::string paragraph(std::string_view text, const std::string& indent, Ink ink,
                      const TableOptions& options) {
  const size_t limit = options.width > 0 ? static_cast<size_t>(options.width) : SIZE_MAX;
  std::string out;
  for (const std::string& line : wrap(printable(text), limit > indent.size() ? limit - indent.size() : 1)) {
    out += fmt::format("{}{}\n", indent, paint(line, ink, options.colour));
  }
  return out;
}

struct Column {
  Column(std::string heading, bool right, std::vector<std::string> cells)
      : heading(std::move(heading)), right(right), cells(std::move(cells)) {
    width = display_width(this->heading);
    for (const std::string& cell : this->cells) width = std::max(width, display_width(cell));
  }

  std::string heading;
  bool right;
  std::vector<std::string> cells;
  size_t width;  // of the widest cell
};

// What a table shows. Narrower layouts drop one item after another.
struct Layout {
  bool interval_ends = true;   // [lo, hi] rather than +- half
  bool options_below = false;  // a pattern's options on a line of their own
  bool total = true, peak = true, error = true, interval = true, share = true;
};

std::vector<Layout> layouts() {
  std::vector<Layout> steps(1);
  const auto next = [&](auto&& change) {
    Layout layout = steps.back();
    change(layout);
    steps.push_back(layout);
  };
  next([](Layout& l) { l.total = false; });
  next([](Layout& l) { l.interval_ends = false; });
  next([](Layout& l) { l.options_below = true; });
  next([](Layout& l) { l.peak = false; });
  next([](Layout& l) { l.error = false; });
  next([](Layout& l) { l.interval = false; });
  next([](Layout& l) { l.share = false; });
  return steps;
}

std::string short_direction(const std::string& direction) {
  if (direction == "forward") return "fwd";
  if (direction == "backward") return "bwd";
  return direction;
}

// Axes of which a case without a value has one all the same.
constexpr std::pair<std::string_view, const char*> kAbsent[] = {
    {"head_dim_v", "head_dim"}, {"sinks", "false"}, {"softcap", "none"}, {"alibi", "false"}};

// An axis of a workload other than kernel and mask. Axes that never vary are named once, above the table.
struct Axis {
  std::string heading;
  bool right;
  std::function<std::string(const Workload&)> text;
  std::function<std::string(const std::string&)> sentence;  // for the line above the table
  bool of_all = false;  // named in that line only if every case has the axis
};

std::vector<Axis> axes_of(const std::vector<const CaseRecord*>& cases) {
  const auto prefixed = [](const std::string& prefix) {
    return [prefix](const std::string& text) { return prefix + text; };
  };
  const auto suffixed = [](const std::string& suffix) {
    return [suffix](const std::string& text) { return text + suffix; };
  };
  std::vector<Axis> axes = {
      {"seqlen", true, [](const Workload& w) { return format_seqlen(w.seqlen); }, prefixed("seqlen ")},
      {"heads", true, [](const Workload& w) { return heads_title(w); }, suffixed(" heads")},
      {"dim", true, [](const Workload& w) { return fmt::format("{}", w.head_dim); }, prefixed("head_dim ")},
      {"dtype", false, [](const Workload& w) { return printable(w.dtype); }, prefixed("")},
      {"dir", false, [](const Workload& w) { return printable(short_direction(w.direction)); }, prefixed("")},
      {"lengths", false, [](const Workload& w) { return printable(w.lengths); }, prefixed("lengths ")},
      {"masks", true, [](const Workload& w) { return fmt::format("{}", w.masks); },
       prefixed("masks averaged: ")},
  };
  if (std::any_of(cases.begin(), cases.end(), [](auto* c) { return c->workload.deterministic; })) {
    axes.push_back({"same bits", false,
                    [](const Workload& w) { return std::string(w.deterministic ? "required" : "no"); },
                    [](const std::string&) { return std::string("the same bits on every run"); }});
  }
  std::vector<std::string> extra;
  for (const CaseRecord* c : cases) {
    for (const Fact& fact : c->workload.extra) {
      if (std::find(extra.begin(), extra.end(), fact.key) == extra.end()) extra.push_back(fact.key);
    }
  }
  for (const std::string& key : extra) {
    const auto* const found =
        std::ranges::find(kAbsent, key, &std::pair<std::string_view, const char*>::first);
    const std::string absent = found == std::end(kAbsent) ? "" : found->second;
    axes.push_back({printable(key), false,
                    [key, absent](const Workload& w) {
                      const std::string text = fact_text(w.extra, key);
                      return text.empty() ? absent : printable(text);
                    },
                    prefixed(printable(key) + " "), true});
  }
  return axes;
}

bool converged(const CaseRecord& c) {
  return std::none_of(c.measurements.begin(), c.measurements.end(),
                      [](const Measurement& m) { return m.converged && !*m.converged; });
}

std::string interval_text(const CaseRecord& c, bool ends) {
  if (!c.interval_s) return "";
  if (!ends) {
    const double half = std::max(c.interval_s->hi - *c.time_s, *c.time_s - c.interval_s->lo) / *c.time_s;
    return fmt::format("±{:.1f} %", 100 * half);
  }
  // Both ends in the unit of the upper one, which is written once.
  const std::string hi = format_time(c.interval_s->hi);
  const size_t space = hi.find(' ');
  const double scale = std::map<std::string, double>{
      {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1.0}, {"h", 3600.0}}[hi.substr(space + 1)];
  return fmt::format("[{}, {}] {}", three_digits(c.interval_s->lo / scale), hi.substr(0, space),
                     hi.substr(space + 1));
}

std::string error_text(const CaseRecord& c) {
  if (!c.accuracy) return "";
  const auto worst = c.accuracy->worst();
  return !worst ? "" : three_digits(worst->error / *worst->tolerance);
}

// Equal for cases with the same work, whatever their kernel.
std::string work_key(const Workload& w, const std::vector<Axis>& axes) {
  std::string key = mask_title(w);
  for (const Axis& axis : axes) key += fmt::format("\n{}", axis.text(w));
  return key;
}

// A table of the measured cases of one setup.
class Table {
 public:
  Table(std::vector<const CaseRecord*> cases, const TableOptions& options);
  std::string text() const;
  std::string constants() const;  // "every case: f32, 8:2 heads"

 private:
  std::vector<Column> columns(const Layout& layout) const;
  void sort();
  std::string line(const std::vector<Column>& columns, size_t row, bool heading) const;
  std::string notes(const std::vector<Column>& columns) const;  // explains the headings

  std::vector<const CaseRecord*> cases_;
  TableOptions options_;
  std::vector<Axis> axes_;
  std::vector<bool> varies_;
  std::vector<std::string> constants_;  // [axes]: the one value of an axis that does not vary
  std::vector<bool> fastest_;           // [cases]: the fastest of several kernels on the same work
  Unit unit_{"GFLOP/s", 1e9};
};

Table::Table(std::vector<const CaseRecord*> cases, const TableOptions& options)
    : cases_(std::move(cases)), options_(options), axes_(axes_of(cases_)) {
  double top = 0;
  for (const CaseRecord* c : cases_) top = std::max(top, c->flops_per_s.value_or(0));
  unit_ = rate_unit(top);
  for (const Axis& axis : axes_) {
    std::set<std::string> values;  // empty for a case without the axis
    for (const CaseRecord* c : cases_) values.insert(axis.text(c->workload));
    const bool partial = values.erase("") > 0;
    varies_.push_back(values.size() > 1);
    constants_.push_back(values.size() == 1 && !(partial && axis.of_all) ? *values.begin() : "");
  }
  sort();
  fastest_.assign(cases_.size(), false);
  std::map<std::string, std::vector<size_t>> by_work;
  for (size_t i = 0; i < cases_.size(); ++i) by_work[work_key(cases_[i]->workload, axes_)].push_back(i);
  for (const auto& [key, rows] : by_work) {
    if (rows.size() < 2) continue;
    fastest_[*std::min_element(rows.begin(), rows.end(), [&](size_t a, size_t b) {
      return *cases_[a]->time_s < *cases_[b]->time_s;
    })] = true;
  }
}

// Groups cases with equal work, in the order of the suite, fastest kernel first.
void Table::sort() {
  std::map<std::string, size_t> mask_rank, direction_rank;
  for (const CaseRecord* c : cases_) {
    mask_rank.try_emplace(mask_title(c->workload), mask_rank.size());
    direction_rank.try_emplace(c->workload.direction, direction_rank.size());
  }
  const auto order = [&](const CaseRecord* c) {
    const Workload& w = c->workload;
    std::string rest;
    for (const Fact& fact : w.extra) rest += fact.text + "\n";
    return std::tuple(direction_rank[w.direction], w.dtype, w.heads_q, w.heads_kv, w.head_dim,
                      mask_rank[mask_title(w)], w.seqlen, w.lengths, w.deterministic, rest, *c->time_s);
  };
  std::vector<std::pair<decltype(order(nullptr)), const CaseRecord*>> sorted;
  sorted.reserve(cases_.size());
  for (const CaseRecord* c : cases_) sorted.emplace_back(order(c), c);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::transform(sorted.begin(), sorted.end(), cases_.begin(),
                 [](const auto& entry) { return entry.second; });
}

std::vector<Column> Table::columns(const Layout& layout) const {
  std::vector<Column> columns;
  const auto add = [&](std::string heading, bool right,
                       const std::function<std::string(const CaseRecord&)>& text) {
    std::vector<std::string> cells;
    cells.reserve(cases_.size());
    for (const CaseRecord* c : cases_) cells.push_back(text(*c));
    const bool empty = std::all_of(cells.begin(), cells.end(), [](auto& cell) { return cell.empty(); });
    if (!empty) columns.emplace_back(std::move(heading), right, std::move(cells));
  };
  add("kernel", false, [](const CaseRecord& c) { return printable(c.workload.kernel); });
  add("mask", false, [&](const CaseRecord& c) {
    return printable(layout.options_below ? c.workload.mask : mask_title(c.workload));
  });
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (varies_[i])
      add(axes_[i].heading, axes_[i].right, [&](const CaseRecord& c) { return axes_[i].text(c.workload); });
  }
  add(std::string(unit_.name), true,
      [&](const CaseRecord& c) { return c.flops_per_s ? format_rate(*c.flops_per_s, unit_) : ""; });
  if (layout.share) {
    add("share", true,
        [](const CaseRecord& c) { return c.share_of_ceiling ? format_share(*c.share_of_ceiling) : ""; });
  }
  add("time", true, [](const CaseRecord& c) { return format_time(*c.time_s) + (converged(c) ? "" : "~"); });
  if (layout.interval) {
    add(layout.interval_ends ? "95 % interval" : "95 %", !layout.interval_ends,
        [&](const CaseRecord& c) { return interval_text(c, layout.interval_ends); });
  }
  if (layout.error) add("error", true, error_text);
  const auto bytes = [](const std::optional<int64_t>& value) {
    return value ? format_bytes(static_cast<double>(*value)) : "";
  };
  if (layout.peak) add("memory", true, [&](const CaseRecord& c) { return bytes(c.peak_bytes); });
  if (layout.total) add("total", true, [&](const CaseRecord& c) { return bytes(c.total_bytes); });
  return columns;
}

std::string Table::line(const std::vector<Column>& columns, size_t row, bool heading) const {
  std::string line;
  for (size_t i = 0; i < columns.size(); ++i) {
    const Column& column = columns[i];
    const std::string& cell = heading ? column.heading : column.cells[row];
    const size_t padding = column.width - display_width(cell);
    std::string painted = cell;
    if (heading) {
      painted = paint(cell, Ink::kBold, options_.colour);
    } else if (fastest_[row] && (i == 0 || column.heading == unit_.name)) {
      painted = paint(cell, Ink::kGood, options_.colour);
    }
    if (i > 0) line += std::string(kGap, ' ');
    line += column.right ? std::string(padding, ' ') + painted : painted + std::string(padding, ' ');
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string Table::text() const {
  const auto width_of = [](const std::vector<Column>& columns) {
    size_t width = kGap * (columns.size() - 1);
    for (const Column& column : columns) width += column.width;
    return width;
  };
  const size_t limit = options_.width > 0 ? static_cast<size_t>(options_.width) : SIZE_MAX;
  Layout layout;
  std::vector<Column> chosen;
  for (const Layout& step : layouts()) {
    layout = step;
    chosen = columns(step);
    if (width_of(chosen) <= limit) break;
  }
  if (const size_t width = width_of(chosen); width > limit) {
    const size_t mask = chosen[1].width, excess = width - limit;
    const size_t target = std::max(kNarrowestMask, mask > excess ? mask - excess : 0);
    for (std::string& cell : chosen[1].cells) cell = fit(cell, target);
    chosen[1] = Column(chosen[1].heading, chosen[1].right, std::move(chosen[1].cells));
  }

  std::string text = line(chosen, 0, true);
  for (size_t row = 0; row < cases_.size(); ++row) {
    text += line(chosen, row, false);
    const Facts& mask_options = cases_[row]->workload.option_facts;
    if (layout.options_below && !mask_options.empty()) {
      std::string below(chosen[0].width + kGap + 2, ' ');
      for (const Fact& option : mask_options) below += fmt::format("{} {} ", option.key, option.text);
      below.pop_back();
      text += paint(fit(printable(below), limit), Ink::kDim, options_.colour) + "\n";
    }
  }
  return text + notes(chosen);
}

std::string Table::notes(const std::vector<Column>& columns) const {
  std::string notes;
  const auto shown = [&](std::string_view heading) {
    return std::any_of(columns.begin(), columns.end(), [&](const Column& c) { return c.heading == heading; });
  };
  const auto add = [&](std::string_view note) { notes += paragraph(note, "", Ink::kDim, options_); };
  if (shown("share")) add("share: rate over the ceiling: a large matrix product, measured in the same run.");
  const auto above = [](const CaseRecord* c) { return c->share_of_ceiling.value_or(0) > 1; };
  if (shown("share") && std::any_of(cases_.begin(), cases_.end(), above)) {
    add("A share above 100 %: a faster product exists, or other work slowed the machine while the ceiling "
        "was measured.");
  }
  if (shown("error")) add("error: the largest error of any output, over its tolerance.");
  if (shown("total")) add("memory: beyond inputs and outputs; total: with them.");
  if (!std::all_of(cases_.begin(), cases_.end(), [](const CaseRecord* c) { return converged(*c); })) {
    add("~: the interval was still wider than the rule requires when the time budget ended.");
  }
  return notes.empty() ? notes : fmt::format("\n{}", notes);
}

std::string Table::constants() const {
  std::string constants;
  for (size_t i = 0; i < axes_.size(); ++i) {
    const std::string& value = constants_[i];
    if (value.empty() || (axes_[i].heading == "masks" && value == "1")) continue;
    constants += (constants.empty() ? "" : ", ") + axes_[i].sentence(value);
  }
  return constants;
}

// The cases that were not measured, by kernel and reason.
std::string format_unmeasured(const std::vector<const CaseRecord*>& cases, Status status,
                              const TableOptions& options) {
  std::vector<std::pair<std::string, std::vector<const CaseRecord*>>> groups;
  std::map<std::string, size_t> places;  // of a group in the list
  for (const CaseRecord* c : cases) {
    if (c->status != status) continue;
    const std::string key =
        fmt::format("{}: {}", c->workload.kernel, c->reason.empty() ? "no reason given" : c->reason);
    const auto [place, is_new] = places.try_emplace(key, groups.size());
    if (is_new) groups.push_back({key, {}});
    groups[place->second].second.push_back(c);
  }
  if (groups.empty()) return "";
  const bool failed = status == Status::kFailed;
  std::string text = fmt::format(
      "\n{}\n", paint(failed ? "Failed" : "Skipped", failed ? Ink::kBad : Ink::kWarn, options.colour));
  for (const auto& [key, members] : groups) {
    text += paragraph(fmt::format("{} ({} case{})", key, members.size(), members.size() == 1 ? "" : "s"),
                      "  ", Ink::kPlain, options);
    constexpr size_t kShown = 4;  // enough to show what the cases have in common
    std::string list;
    for (size_t i = 0; i < std::min(kShown, members.size()); ++i) {
      const Workload& w = members[i]->workload;
      list +=
          fmt::format("{}{} {} {}", i == 0 ? "" : ", ", mask_title(w), format_seqlen(w.seqlen), w.direction);
    }
    if (members.size() > kShown) list += fmt::format(" and {} more", members.size() - kShown);
    text += paragraph(list, "    ", Ink::kDim, options);
    if (status == Status::kFailed && !members.front()->command.empty()) {
      // On one line, however long, so that it can be copied.
      text += fmt::format("    {}\n",
                          paint(printable("repeat: " + members.front()->command), Ink::kDim, options.colour));
    }
  }
  return text;
}

std::string format_setup_heading(const Results& results, const Setup& setup, const TableOptions& options) {
  const RunRecord& run = results.runs[static_cast<size_t>(setup.runs.front())];
  // Each run measured the ceilings of its own device.
  std::set<std::string> uuids;
  std::map<std::string, std::pair<double, double>> ceilings;  // by dtype: lowest and highest
  for (const int i : setup.runs) {
    const RunRecord& one = results.runs[static_cast<size_t>(i)];
    uuids.insert(fact_text(one.device.facts(), "uuid"));
    for (const auto& [dtype, c] : one.ceilings) {
      auto& [lowest, highest] = ceilings.try_emplace(dtype, c.flops_per_s, c.flops_per_s).first->second;
      lowest = std::min(lowest, c.flops_per_s);
      highest = std::max(highest, c.flops_per_s);
    }
  }
  std::string facts =
      (uuids.size() > 1 ? fmt::format("{} x ", uuids.size()) : std::string()) + run.device_name();
  if (const std::string units = fact_text(run.device.facts(), "units"); !units.empty()) {
    facts += fact_text(run.device.facts(), "kind") == "cuda" ? fmt::format(", {} multiprocessors", units)
                                                             : fmt::format(", {} threads", units);
  }
  if (const std::string commit = fact_text(run.software.facts(), "commit"); !commit.empty()) {
    facts += fmt::format("; longspan {}{}", commit.substr(0, 10),
                         fact_text(run.software.facts(), "dirty") == "true" ? " with changes" : "");
  }
  for (const auto& [dtype, range] : ceilings) {
    const Unit unit = rate_unit(range.second);
    const std::string lowest = format_rate(range.first, unit), highest = format_rate(range.second, unit);
    facts += fmt::format("; ceiling {} {}{} {}", dtype, lowest == highest ? "" : lowest + " to ", highest,
                         unit.name);
  }
  return paragraph(setup.label, "", Ink::kBold, options) + paragraph(facts, "", Ink::kPlain, options);
}

std::string format_setup(const Results& results, const Setup& setup,
                         const std::vector<const CaseRecord*>& cases, const TableOptions& options) {
  std::vector<const CaseRecord*> measured;
  size_t skipped = 0, failed = 0;
  for (const CaseRecord* c : cases) {
    if (c->status == Status::kOk) measured.push_back(c);
    skipped += c->status == Status::kSkipped;
    failed += c->status == Status::kFailed;
  }
  std::string text = format_setup_heading(results, setup, options);
  std::string counts = fmt::format("{} measured, {} skipped, {} failed", measured.size(), skipped, failed);
  if (!measured.empty()) {
    const Table table(measured, options);
    if (const std::string constants = table.constants(); !constants.empty())
      counts += "; every case: " + constants;
    text += fmt::format("{}\n{}", paragraph(counts, "", Ink::kPlain, options), table.text());
    text += format_parallel(measured, options.width);
  } else {
    text += paragraph(counts, "", Ink::kPlain, options);
  }
  return text + format_unmeasured(cases, Status::kSkipped, options) +
         format_unmeasured(cases, Status::kFailed, options);
}

}  // namespace

TableOptions table_options_for(std::FILE* out) {
  TableOptions options;
  if (isatty(fileno(out)) == 0) return options;
  const char* no_colour = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  options.colour =
      (no_colour == nullptr || *no_colour == '\0') && (term == nullptr || std::string_view(term) != "dumb");
  winsize size{};
  const char* columns = std::getenv("COLUMNS");
  if (columns != nullptr && std::atoi(columns) > 0) {
    options.width = std::atoi(columns);
  } else if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    options.width = size.ws_col;
  } else {
    options.width = 80;
  }
  return options;
}

std::string format_table(const Results& results, const TableOptions& options) {
  std::vector<std::vector<const CaseRecord*>> cases(results.setups.size());
  const std::set<const CaseRecord*> of_workloads = cases_of_workloads(results);
  std::vector<size_t> left_out(results.setups.size());
  for (const CaseRecord& c : results.cases) {
    const auto setup = static_cast<size_t>(results.setup_of(c));
    if (of_workloads.contains(&c))
      ++left_out[setup];
    else
      cases[setup].push_back(&c);
  }
  std::string text;
  for (size_t i = 0; i < results.setups.size(); ++i) {
    if (i > 0) text += "\n";
    const Setup& setup = results.setups[i];
    // A setup that measured nothing but workloads has no table.
    text += cases[i].empty() && left_out[i] > 0 ? format_setup_heading(results, setup, options)
                                                : format_setup(results, setup, cases[i], options);
    if (left_out[i] > 0)
      text += paragraph(fmt::format("{} case{} of workloads", left_out[i], left_out[i] == 1 ? "" : "s"), "",
                        Ink::kPlain, options);
  }
  text += format_workloads(summarise_workloads(results), options.width);
  if (results.setups.empty()) text += "No results.\n";
  for (const std::string& warning : results.warnings) {
    text += paragraph("warning: " + warning, "", Ink::kWarn, options);
  }
  return text;
}

void print_table(std::FILE* out, const Results& results, const TableOptions& options) {
  const std::string text = format_table(results, options);
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

}  // namespace longspan::report
