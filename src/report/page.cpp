#include "report/page.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "record/base64.h"
#include "record/fields.h"
#include "report/format.h"
#include "report/page_assets.h"
#include "report/workload_summary.h"

namespace longspan::report {
namespace {

using record::Json;

// The most samples plotted per case: enough to see a distribution, few enough for thousands of cases.
constexpr size_t kShownSamples = 60;

// Rounds to five digits. More would not be visible in a chart and would double the size of the page.
Json rounded(double value) {
  return std::strtod(fmt::format("{:.5g}", value).c_str(), nullptr);
}

void put(Json& object, const char* key, const std::optional<double>& value) {
  if (value) object[key] = rounded(*value);
}

void put(Json& object, const char* key, const std::optional<int64_t>& value) {
  if (value) object[key] = rounded(static_cast<double>(*value));
}

void put(Json& object, const char* key, const std::string& text) {
  if (!text.empty()) object[key] = text;
}

Json json_of(const Facts& facts) {
  Json list = Json::array();
  for (const Fact& fact : facts) list.push_back({fact.key, fact.text});
  return list;
}

Json json_of(const RunRecord& run) {
  Json json = Json::object();
  json["id"] = run.run;
  put(json, "started", run.started);
  put(json, "command", run.command);
  put(json, "suite", run.suite);
  json["machine"] = json_of(run.machine.facts());
  json["device"] = json_of(run.device.facts());
  json["software"] = json_of(run.software.facts());
  json["rule"] = json_of(run.rule.facts());
  json["ceilings"] = Json::array();
  for (const auto& [dtype, ceiling] : run.ceilings) {
    json["ceilings"].push_back(
        {{"dtype", dtype}, {"what", ceiling.what}, {"rate", rounded(ceiling.flops_per_s)}});
  }
  return json;
}

// Each sample's deviation from the median of its mask, in thousandths, in the order taken, evenly thinned.
Json deviations(const CaseRecord& c, size_t& count) {
  std::vector<int> all;
  for (const Measurement& m : c.measurements) {
    if (!m.median_s) continue;
    for (double sample : m.samples_s) {
      const double deviation = std::clamp(1000 * (sample / *m.median_s - 1), -1000.0, 1e6);
      all.push_back(static_cast<int>(std::lround(deviation)));
    }
  }
  count = all.size();
  Json shown = Json::array();
  const size_t take = std::min(kShownSamples, all.size());
  for (size_t i = 0; i < take; ++i) shown.push_back(all[i * all.size() / take]);
  return shown;
}

Json json_of(const record::Accuracy& accuracy) {
  Json json = Json::object();
  for (const record::ErrorFigure& figure : accuracy.errors()) {
    json["errors"][figure.tensor] = {rounded(figure.error),
                                     figure.tolerance ? rounded(*figure.tolerance) : Json()};
  }
  put(json, "counting", accuracy.counting);
  if (accuracy.same_bits) json["same_bits"] = *accuracy.same_bits ? "yes" : "no";
  return json;
}

// Adds the lists by rank, with the same keys as in a results file.
class RankLists {
 public:
  explicit RankLists(Json& json) : json_(json) {}

  template <class T>
  void field(std::string_view key, const T& value, const char* /*meaning*/, unsigned /*flags*/ = 0) {
    if constexpr (std::same_as<T, std::vector<double>>) {
      if (key.ends_with("held_bytes")) return;  // no chart shows them
      for (double one : value) json_[std::string(key)].push_back(rounded(one));
    }
  }

 private:
  Json& json_;
};

Json json_of(const record::ParallelRecord& p) {
  Json json = {{"ranks", p.ranks}, {"nodes", p.nodes}};
  put(json, "transport", p.transport);
  put(json, "imbalance", p.imbalance);
  put(json, "spread", p.spread);
  RankLists lists(json);
  visit(lists, p);
  for (const auto& [key, errors] :
       {std::pair("difference", &p.difference), {"single_error", &p.single_error}}) {
    for (const auto& [tensor, error] : *errors) {
      if (!std::isnan(error)) json[key][tensor] = rounded(error);
    }
  }
  if (!p.plan.owned.empty()) json["owned"] = p.plan.owned;
  for (const record::PlanRound& round : p.plan.by_round) {
    Json moves = Json::array();
    for (const record::PlanMove& move : round.moves.value_or(std::vector<record::PlanMove>()))
      moves.push_back({move.what, move.from, move.to, rounded(static_cast<double>(move.bytes))});
    json["plan"].push_back({{"area", round.area}, {"sent", round.sent_bytes}, {"moves", std::move(moves)}});
  }
  return json;
}

Json json_of(const Results& results, const CaseRecord& c) {
  const Workload& w = c.workload;
  Json json = {{"setup", results.setup_of(c)},
               {"id", c.id},
               {"kernel", w.kernel},
               {"pattern", w.mask},
               {"mask", mask_title(w)},
               {"seqlen", w.seqlen},
               {"heads", heads_title(w)},
               {"head_dim", w.head_dim},
               {"dtype", w.dtype},
               {"direction", w.direction},
               {"status", name_of(c.status)}};
  if (w.masks != 1) json["masks"] = w.masks;
  put(json, "lengths", w.lengths);
  for (const Fact& option : w.option_facts) json["options"][option.key] = option.text;
  if (w.deterministic) json["deterministic"] = true;
  for (const Fact& fact : w.extra) json["extra"][fact.key] = fact.text;
  put(json, "command", c.command);
  put(json, "reason", c.reason);
  put(json, "area", c.area);
  put(json, "density", c.density);
  put(json, "time", c.time_s);
  if (c.interval_s) json["interval"] = {rounded(c.interval_s->lo), rounded(c.interval_s->hi)};
  put(json, "rate", c.flops_per_s);
  put(json, "share", c.share_of_ceiling);
  put(json, "plan", c.plan_s);
  put(json, "plan_bytes", c.plan_bytes);
  put(json, "workspace", c.workspace_bytes);
  put(json, "peak", c.peak_bytes);
  put(json, "total", c.total_bytes);
  put(json, "throttled", c.throttled);
  if (c.accuracy) json["accuracy"] = json_of(*c.accuracy);
  if (c.parallel) json["parallel"] = json_of(*c.parallel);
  if (const Facts state = c.device_state.facts(); !state.empty()) json["state"] = json_of(state);
  size_t samples = 0;
  Json shown = deviations(c, samples);
  if (samples > 0) {
    json["n"] = samples;
    json["samples"] = std::move(shown);
  }
  if (std::any_of(c.measurements.begin(), c.measurements.end(),
                  [](const Measurement& m) { return m.converged && !*m.converged; })) {
    json["unconverged"] = true;
  }
  return json;
}

Json rounded(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(rounded(value));
  return list;
}

// More stretches of time would be too narrow to see.
constexpr size_t kMostStretches = 20000;

Json json_of(const record::SimulatedTimeline& t) {
  return {{"rank", t.rank},
          {"what", t.what},
          {"begin", rounded(t.begin_s)},
          {"end", rounded(t.end_s)},
          {"peer", t.peer}};
}

// A prediction. Rates are per rank; `ends` are those with slower and with faster links.
Json json_of(const SimulatedRecord& s) {
  const Workload& w = s.workload;
  Json json = {{"machine", s.machine.name}, {"kernel", w.kernel},       {"mask", mask_title(w)},
               {"seqlen", w.seqlen},        {"heads", heads_title(w)},  {"head_dim", w.head_dim},
               {"dtype", w.dtype},          {"direction", w.direction}, {"ranks", s.parallel->ranks}};
  put(json, "lengths", w.lengths);
  for (const Fact& fact : w.extra) json["extra"][fact.key] = fact.text;
  put(json, "time", s.time_s);
  put(json, "rate", s.flops_per_s_per_rank);
  if (s.interval_s && s.flops_per_s_per_rank) {
    const double work = *s.flops_per_s_per_rank * *s.time_s;
    json["ends"] = {rounded(work / s.interval_s->hi), rounded(work / s.interval_s->lo)};
  }
  if (!s.parallel->held_bytes.empty()) {
    json["held"] = rounded(*std::max_element(s.parallel->held_bytes.begin(), s.parallel->held_bytes.end()));
  }
  if (s.timeline && s.timeline->rank.size() <= kMostStretches) json["timeline"] = json_of(*s.timeline);
  if (s.memory) {
    json["memory"] = {
        {"rank", s.memory->rank}, {"begin", rounded(s.memory->begin_s)}, {"bytes", rounded(s.memory->bytes)}};
  }
  return json;
}

// Two hexadecimal digits per cell.
std::string encode(const record::Picture& picture) {
  std::string cells;
  cells.reserve(2 * picture.cells.size());
  for (uint8_t cell : picture.cells) fmt::format_to(std::back_inserter(cells), "{:02x}", cell);
  return cells;
}

Json json_of(const MaskPicture& picture) {
  Json json = {{"mask", mask_title(picture.workload)},
               {"seqlen", picture.workload.seqlen},
               {"size", picture.picture.size},
               {"cells", encode(picture.picture)}};
  put(json, "lengths", picture.workload.lengths);
  put(json, "density", picture.density);
  return json;
}

std::string title_of(const Results& results, const PageOptions& options) {
  if (!options.title.empty()) return options.title;
  std::vector<std::string> suites, devices;
  const auto add = [](std::vector<std::string>& names, std::string name) {
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(std::move(name));
  };
  for (const RunRecord& run : results.runs) {
    add(suites, run.suite);
    add(devices, run.device_name());
  }
  const auto join = [](const std::vector<std::string>& names) {
    if (names.size() > 3) return fmt::format("{} and {} more", names.front(), names.size() - 1);
    return fmt::format("{}", fmt::join(names, ", "));
  };
  if (devices.empty()) return results.simulated.empty() ? "Attention, measured" : "Attention, predicted";
  return suites.empty() ? fmt::format("Attention on {}", join(devices))
                        : fmt::format("Attention on {}: {}", join(devices), join(suites));
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string escape_script_json(const std::string& json) {
  // '<' and '>' occur in JSON only inside strings, where they can be escaped.
  std::string out;
  out.reserve(json.size() + json.size() / 64);
  for (char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else if (c == '>') {
      out += "\\u003e";
    } else {
      out += c;
    }
  }
  return out;
}

std::string_view page_begin() {
  return page_assets::page_html.substr(0, page_assets::page_html.find("{{"));
}

namespace {

// The source of a Content-Security-Policy that allows the text with this hash: 'sha256-BASE64'.
std::string source_of(std::string_view sha256) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < sha256.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoi(std::string(sha256.substr(i, 2)), nullptr, 16)));
  return fmt::format("'sha256-{}'", record::base64(bytes));
}

}  // namespace

std::string format_page(const Results& results, const PageOptions& options) {
  const std::set<const CaseRecord*> of_workloads = cases_of_workloads(results);
  const size_t shown = results.cases.size() - of_workloads.size();
  LONGSPAN_CHECK_INPUT(shown <= kMostCases,
                       "{} cases are too many for one page, which shows at most {}: name fewer results, or "
                       "select lines of a file, as by grep -e '\"type\":\"run\"' -e '\"kernel\":\"sm90\"'; "
                       "without --output a table shows all",
                       shown, kMostCases);
  Json data = {{"setups", Json::array()},
               {"cases", Json::array()},
               {"warnings", results.warnings},
               {"strategies", options.strategies},
               {"strategyOptions", options.strategy_options},
               {"sweptOptions", options.swept_options},
               {"plainestMask", options.plainest_mask},
               {"experiment", options.experiment},
               {"workloads", workloads_json(summarise_workloads(results))},
               {"kernels", Json::array()}};
  for (const auto& [name, colour] : options.kernel_colours)
    data["kernels"].push_back({{"name", name}, {"colour", colour}});
  for (const Setup& setup : results.setups) {
    Json json = {{"label", setup.label},
                 {"source", setup.source},
                 {"device", results.runs[static_cast<size_t>(setup.runs.front())].device_name()},
                 {"runs", Json::array()}};
    for (int run : setup.runs) json["runs"].push_back(json_of(results.runs[static_cast<size_t>(run)]));
    data["setups"].push_back(std::move(json));
  }
  for (const CaseRecord& c : results.cases) {
    if (!of_workloads.contains(&c)) data["cases"].push_back(json_of(results, c));
  }
  data["simulated"] = Json::array();
  for (const SimulatedRecord& each : results.simulated) {
    if (each.parallel && each.time_s) data["simulated"].push_back(json_of(each));
  }
  data["pictures"] = Json::array();
  for (const MaskPicture& picture : results.pictures) data["pictures"].push_back(json_of(picture));

  using namespace page_assets;
  std::string page(page_html);
  const std::string title = title_of(results, options);
  // Marks are replaced in order, so inserted text is never searched for marks.
  std::string out;
  const auto put_in = [&](std::string_view mark, std::string_view value) {
    const size_t at = page.find(mark);
    LONGSPAN_CHECK(at != std::string::npos, "the page has no mark {}", mark);
    out.append(page, 0, at).append(value);
    page.erase(0, at + mark.size());
  };
  put_in("{{style-hash}}", source_of(style_css_sha256));
  put_in("{{chart-hash}}", source_of(chart_js_sha256));
  put_in("{{script-hash}}", source_of(script_js_sha256));
  put_in("{{title}}", escape_html(title));
  put_in("/*{{style}}*/", style_css);
  put_in("{{heading}}", escape_html(title));
  put_in("{{data}}", escape_script_json(record::text_of(data)));
  put_in("/*{{chart}}*/", chart_js);
  put_in("/*{{script}}*/", script_js);
  return out + page;
}

}  // namespace longspan::report
