#include "report/results.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/input_file.h"
#include "base/parallel.h"
#include "record/results_file.h"

namespace longspan::report {
namespace {

// The place in the input that a message names.
struct Place {
  std::string_view file;
  int64_t line;
};

// A setup's name: the folder of a results.jsonl, else the file's own name.
std::string label_of(std::string_view source) {
  const std::filesystem::path path(source);
  std::string name = path.stem().string();
  if (name == "results" && path.has_parent_path()) {
    const std::string folder = path.parent_path().filename().string();
    if (!folder.empty() && folder != "." && folder != "..") name = folder;
  }
  return name.empty() ? "results" : name;
}

// What a line says, or why it cannot be read.
struct LineRead {
  record::ResultsLine::Type type = record::ResultsLine::Type::kOther;
  record::RunRecord run;
  record::CaseRecord c;
  record::WorkloadRecord workload;
  record::SimulatedRecord simulated;
  std::string error;
};

LineRead read_line(const std::string& text) {
  LineRead row;
  try {
    const record::ResultsLine line = record::parse_results_line(text);
    row.type = line.type;
    if (line.type == record::ResultsLine::Type::kRun) row.run = record::run_from(line);
    if (line.type == record::ResultsLine::Type::kCase) row.c = record::case_from(line);
    if (line.type == record::ResultsLine::Type::kWorkload) row.workload = record::workload_record_from(line);
    if (line.type == record::ResultsLine::Type::kSimulated) row.simulated = record::simulated_from(line);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    row.error = error.what();
  }
  row.c.workload.json = {};  // its fields say the same
  row.simulated.workload.json = {};
  return row;
}

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}

// Collects the lines of one or several files.
class Collector {
 public:
  void add(std::istream& file, std::string_view name);
  Results finish();

 private:
  int run_index(const std::string& id, std::string_view source);
  void add_line(LineRead row, const Place& at);
  void add_picture(CaseRecord& c);
  void group_runs();
  void drop_duplicates();
  void name_defaults();

  Results results_;
  std::map<std::string, int, std::less<>> run_by_id_;
  std::set<int> announced_;  // runs whose run line was read
  std::set<std::tuple<std::string, std::string, int64_t, std::string>> drawn_;
};

int Collector::run_index(const std::string& id, std::string_view source) {
  const auto [found, is_new] = run_by_id_.try_emplace(id, static_cast<int>(results_.runs.size()));
  if (is_new) {
    RunRecord run;
    run.run = id;
    run.source = source;
    results_.runs.push_back(std::move(run));
  }
  return found->second;
}

void Collector::add_line(LineRead row, const Place& at) {
  LONGSPAN_CHECK_INPUT(row.error.empty(), "{}:{}: {}", at.file, at.line, row.error);
  if (row.type == record::ResultsLine::Type::kRun) {
    RunRecord run{std::move(row.run), std::string(at.file)};
    std::erase_if(run.ceilings, [](const auto& entry) { return !(entry.second.flops_per_s > 0); });
    std::sort(run.ceilings.begin(), run.ceilings.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    const int index = run_index(run.run, at.file);
    // A resumed run writes its run line again.
    if (announced_.insert(index).second) results_.runs[static_cast<size_t>(index)] = std::move(run);
  } else if (row.type == record::ResultsLine::Type::kCase) {
    CaseRecord c{std::move(row.c)};
    c.run_index = run_index(c.run, at.file);
    if (c.picture) add_picture(c);
    results_.cases.push_back(std::move(c));
  } else if (row.type == record::ResultsLine::Type::kWorkload) {
    const WorkloadRecord workload{std::move(row.workload), std::string(at.file)};
    const auto same = [&](const WorkloadRecord& other) {
      return other.source == workload.source && other.hash == workload.hash && other.steps == workload.steps;
    };
    auto& all = results_.workloads;
    if (std::none_of(all.begin(), all.end(), same)) all.push_back(workload);
  } else if (row.type == record::ResultsLine::Type::kSimulated) {
    results_.simulated.push_back({std::move(row.simulated), std::string(at.file)});
  }  // other types belong to later versions of the same schema
}

void Collector::add_picture(CaseRecord& c) {
  const Workload& w = c.workload;
  if (drawn_.insert({w.mask, record::text_of(w.options.json), w.seqlen, w.lengths}).second)
    results_.pictures.push_back({w, c.density, std::move(*c.picture)});
  c.picture.reset();
}

void Collector::add(std::istream& file, std::string_view name) {
  constexpr size_t kAtOnce = 1024;
  int64_t before = 0;  // lines
  bool ended = true;   // the last line, by a newline
  while (file) {
    std::vector<std::string> lines;
    for (std::string line; lines.size() < kAtOnce && std::getline(file, line);) {
      ended = !file.eof();
      lines.push_back(std::move(line));
    }
    LONGSPAN_CHECK_INPUT(!file.bad(), "{}: cannot be read", name);
    if (lines.empty()) return;
    if (before == 0 && lines.front().starts_with("\xEF\xBB\xBF")) lines.front().erase(0, 3);
    if (!ended && !is_blank(lines.back()) && !nlohmann::json::accept(lines.back())) {
      results_.warnings.push_back(fmt::format("{}:{}: the last line is incomplete; it is left out", name,
                                              before + static_cast<int64_t>(lines.size())));
      lines.pop_back();
    }
    std::vector<LineRead> rows(lines.size());
    parallel_for(static_cast<int64_t>(lines.size()), [&](int64_t i, int) {
      const auto at = static_cast<size_t>(i);
      if (!is_blank(lines[at])) rows[at] = read_line(lines[at]);
    });
    for (LineRead& row : rows) add_line(std::move(row), {name, ++before});
  }
}

void Collector::group_runs() {
  std::map<std::string, int> setup_by_key;
  std::map<std::string, int> uses;
  for (size_t i = 0; i < results_.runs.size(); ++i) {
    RunRecord& run = results_.runs[i];
    const std::string key =
        fmt::format("{}\n{}\n{}\n{}", run.source, run.device_name(), fact_text(run.machine.facts(), "kind"),
                    fact_text(run.software.facts(), "commit"));
    const auto [found, is_new] = setup_by_key.try_emplace(key, static_cast<int>(results_.setups.size()));
    if (is_new) {
      const std::string source = label_of(run.source);
      std::string label = source;
      if (const int count = ++uses[label]; count > 1) label += fmt::format(" ({})", count);
      results_.setups.push_back({std::move(label), source, {}});
    }
    run.setup = found->second;
    results_.setups[static_cast<size_t>(run.setup)].runs.push_back(static_cast<int>(i));
    if (!announced_.contains(static_cast<int>(i))) {
      results_.warnings.push_back(
          fmt::format("{}: run {} has no run line; its machine is unknown", run.source, run.run));
    }
  }
}

// Of a setup's records of a case the last one counts. A failure counts for nothing once the file has a later
// record: the run was resumed and tried the case again, perhaps with another build.
void Collector::drop_duplicates() {
  std::map<std::pair<int, std::string>, size_t> last;            // by setup
  std::map<std::pair<std::string, std::string>, size_t> latest;  // by file
  for (size_t i = 0; i < results_.cases.size(); ++i) {
    const CaseRecord& c = results_.cases[i];
    last[{results_.setup_of(c), c.id}] = i;
    latest[{results_.run_of(c).source, c.id}] = i;
  }
  size_t repeated = 0;
  std::vector<CaseRecord> kept;
  for (size_t i = 0; i < results_.cases.size(); ++i) {
    CaseRecord& c = results_.cases[i];
    if (c.status == Status::kFailed && latest[{results_.run_of(c).source, c.id}] != i) continue;
    if (last[{results_.setup_of(c), c.id}] == i) {
      kept.push_back(std::move(c));
    } else {
      ++repeated;
    }
  }
  results_.cases = std::move(kept);
  if (repeated == 0) return;
  results_.warnings.push_back(fmt::format("{} case{} recorded more than once; the last record is used",
                                          repeated, repeated == 1 ? " was" : "s were"));
}

// A case leaves out options of its strategy that hold their defaults. Where another case of that strategy has
// a value, they are named, so that tables and charts tell the two apart.
void Collector::name_defaults() {
  std::map<std::string, std::vector<std::string>> keys;  // by strategy
  for (const CaseRecord& c : results_.cases) {
    const std::string strategy = fact_text(c.workload.extra, "strategy");
    if (strategy.empty()) continue;
    std::vector<std::string>& named = keys[strategy];
    for (const Fact& fact : c.workload.extra) {
      if (std::find(named.begin(), named.end(), fact.key) == named.end()) named.push_back(fact.key);
    }
  }
  for (CaseRecord& c : results_.cases) {
    for (const std::string& key : keys[fact_text(c.workload.extra, "strategy")]) {
      if (record::find_fact(c.workload.extra, key) == nullptr)
        c.workload.extra.push_back({key, "default", std::nullopt});
    }
  }
}

Results Collector::finish() {
  group_runs();
  drop_duplicates();
  name_defaults();
  std::map<std::string, int> simulated;  // lines by file
  for (const SimulatedRecord& each : results_.simulated) ++simulated[each.source];
  for (const auto& [file, lines] : simulated) {
    results_.warnings.push_back(fmt::format("{}: {} simulated {} left out of what was measured", file, lines,
                                            lines == 1 ? "case is" : "cases are"));
  }
  return std::move(results_);
}

// The results files at or below a path, in a stable order. A folder that cannot be listed is an error: it may
// hold the cases that matter.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  const auto check = [](const fs::path& where, const std::error_code& error) {
    LONGSPAN_CHECK_INPUT(!error, "{}: cannot be read: {}", where.string(), error.message());
  };
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  LONGSPAN_CHECK_INPUT(status.type() != fs::file_type::not_found, "{}: no such file or folder",
                       path.string());
  check(path, error);
  if (!fs::is_directory(status)) return {path};
  std::vector<fs::path> files;
  fs::recursive_directory_iterator entry(path, error);
  check(path, error);
  while (entry != fs::recursive_directory_iterator()) {
    const fs::path here = entry->path();
    if (here.filename() == "results.jsonl") files.push_back(here);
    entry.increment(error);
    check(here, error);
  }
  LONGSPAN_CHECK_INPUT(!files.empty(), "{}: no results.jsonl in this folder or below it", path.string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

const record::Ceiling* RunRecord::ceiling(std::string_view dtype) const {
  const auto found =
      std::find_if(ceilings.begin(), ceilings.end(), [&](const auto& entry) { return entry.first == dtype; });
  return found == ceilings.end() ? nullptr : &found->second;
}

std::string RunRecord::device_name() const {
  std::string name = fact_text(device.facts(), "name");
  if (name.empty()) name = fact_text(machine.facts(), "cpu_model");
  return name.empty() ? "unknown device" : name;
}

Results parse_results(std::string_view text, std::string_view name) {
  std::istringstream lines{std::string(text)};
  Collector collector;
  collector.add(lines, name);
  return collector.finish();
}

std::vector<std::filesystem::path> results_files(const std::vector<std::filesystem::path>& paths) {
  LONGSPAN_CHECK_INPUT(!paths.empty(), "no results given: name a results.jsonl or a folder that holds one");
  std::vector<std::filesystem::path> files;
  std::set<std::filesystem::path> seen;
  for (const auto& path : paths) {
    for (const auto& file : files_of(path)) {
      std::error_code ignored;
      const auto canonical = std::filesystem::weakly_canonical(file, ignored);
      if (seen.insert(ignored ? file : canonical).second) files.push_back(file);
    }
  }
  return files;
}

Results read_results(const std::vector<std::filesystem::path>& paths) {
  Collector collector;
  for (const auto& path : results_files(paths)) {
    check_input_file(path.string(), kResultsFile);
    std::ifstream file(path, std::ios::binary);
    LONGSPAN_CHECK_INPUT(file.is_open(), "{}: cannot be opened", path.string());
    collector.add(file, path.string());
  }
  return collector.finish();
}

}  // namespace longspan::report
