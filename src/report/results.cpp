#include "report/results.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/input_file.h"
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

// Collects the lines of one or several files.
class Collector {
 public:
  void add(std::string_view text, std::string_view name);
  Results finish();

 private:
  int run_index(const std::string& id, std::string_view source);
  void add_line(std::string_view text, const Place& at);
  void group_runs();
  void drop_duplicates();
  void name_defaults();

  Results results_;
  std::map<std::string, int, std::less<>> run_by_id_;
  std::set<int> announced_;  // runs whose run line was read
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

void Collector::add_line(std::string_view text, const Place& at) {
  try {
    const record::ResultsLine line = record::parse_results_line(text);
    if (line.type == record::ResultsLine::Type::kRun) {
      RunRecord run{record::run_from(line), std::string(at.file)};
      std::erase_if(run.ceilings, [](const auto& entry) { return !(entry.second.flops_per_s > 0); });
      std::sort(run.ceilings.begin(), run.ceilings.end(),
                [](const auto& a, const auto& b) { return a.first < b.first; });
      const int index = run_index(run.run, at.file);
      // A resumed run writes its run line again.
      if (announced_.insert(index).second) results_.runs[static_cast<size_t>(index)] = std::move(run);
    } else if (line.type == record::ResultsLine::Type::kCase) {
      CaseRecord c{record::case_from(line)};
      c.run_index = run_index(c.run, at.file);
      results_.cases.push_back(std::move(c));
    }  // other types belong to later versions of the same schema
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    LONGSPAN_CHECK_INPUT(false, "{}:{}: {}", at.file, at.line, error.what());
  }
}

void Collector::add(std::string_view text, std::string_view name) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const bool ended = end != std::string_view::npos;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(ended ? end + 1 : text.size());
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Place at{name, number};
    if (!ended && !nlohmann::json::accept(line)) {
      results_.warnings.push_back(
          fmt::format("{}:{}: the last line is incomplete; it is left out", name, number));
      break;
    }
    add_line(line, at);
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
  Collector collector;
  collector.add(text, name);
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
  for (const auto& file : results_files(paths)) collector.add(read_input_file(file.string(), kResultsFile), file.string());
  return collector.finish();
}

}  // namespace longspan::report
