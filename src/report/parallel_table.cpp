#include "report/parallel_table.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/printable.h"
#include "report/format.h"

namespace longspan::report {
namespace {

constexpr size_t kColumns = 12;
using Row = std::vector<std::string>;

std::string share_text(const std::optional<double>& share) {
  return share ? format_share(*share) : "";
}

// Options in which the cases differ.
std::vector<std::string> varying_options(const std::vector<const CaseRecord*>& cases) {
  std::map<std::string, std::set<std::string>> values;
  for (const CaseRecord* c : cases) {
    for (const Fact& fact : c->workload.extra) values[fact.key].insert(fact.text);
  }
  std::vector<std::string> keys;
  for (const auto& [key, texts] : values) {
    const bool own_column = key == "strategy" || key == "ranks" || key == "transport";
    if (texts.size() > 1 && !own_column) keys.push_back(key);
  }
  return keys;
}

std::string strategy_title(const Workload& workload, const std::vector<std::string>& options) {
  std::string title = fact_text(workload.extra, "strategy");
  for (const std::string& key : options) {
    if (const Fact* fact = record::find_fact(workload.extra, key))
      title += fmt::format(" {} {}", key, fact->text);
  }
  return title;
}

Row row_of(const CaseRecord& c, const std::vector<std::string>& options) {
  const record::ParallelRecord& p = *c.parallel;
  double difference = 0;
  for (const auto& [tensor, error] : p.difference) difference = std::max(difference, error);
  return {
      printable(strategy_title(c.workload, options)),
      printable(mask_title(c.workload)) + (c.workload.deterministic ? " · same bits" : ""),
      c.workload.direction == "backward" ? "bwd" : "fwd",
      p.transport.empty() || p.transport == "threads"
          ? fmt::format("{}", p.ranks)
          : fmt::format("{} over {}", p.ranks, printable(p.transport)),
      share_text(p.share(p.compute_s)),
      share_text(p.share(p.exposed_s)),
      share_text(p.share(p.reorder_s)),
      share_text(p.share(p.merge_s)),
      p.imbalance ? fmt::format("{:.2f}", *p.imbalance) : "",
      share_text(p.spread),
      p.sent_bytes.empty() ? "" : format_bytes(*std::max_element(p.sent_bytes.begin(), p.sent_bytes.end())),
      p.difference.empty() ? "" : fmt::format("{:.1e}", difference)};
}

}  // namespace

std::string format_parallel(const std::vector<const CaseRecord*>& cases, int width) {
  std::vector<Row> rows{{"strategy", "mask", "dir", "ranks", "compute", "exposed", "reorder", "merge", "load",
                         "spread", "sent", "from one device"}};
  const std::vector<std::string> options = varying_options(cases);
  for (const CaseRecord* c : cases) {
    if (c->parallel) rows.push_back(row_of(*c, options));
  }
  if (rows.size() == 1) return "";
  std::vector<size_t> widths(kColumns);
  for (const Row& row : rows) {
    for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  // Drop columns from the right until the table fits.
  size_t shown = kColumns;
  const auto total = [&] {
    size_t sum = 2 * (shown - 1);
    for (size_t i = 0; i < shown; ++i) sum += widths[i];
    return sum;
  };
  while (width > 0 && shown > 5 && total() > static_cast<size_t>(width)) --shown;
  std::string text = "\nTime of the ranks\n";
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < shown; ++i) {
      const std::string padding(widths[i] - display_width(row[i]), ' ');
      if (i > 0) line += "  ";
      line += i < 3 ? row[i] + padding : padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  text += "\n";
  for (const std::string& note :
       wrap("compute, exposed (waiting for data), reorder, merge: shares of a rank's time, mean over the "
            "ranks. load: visible pairs of the largest rank, over the mean. spread: time between the fastest "
            "and the slowest rank, over the slowest. sent: bytes of the rank that sends most. difference: "
            "norm of the difference from the single-device result, over the norm of that result.",
            width > 0 ? static_cast<size_t>(width) : 118))
    text += note + "\n";
  return text;
}

}  // namespace longspan::report
