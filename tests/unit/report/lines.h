// Lines of results files for the tests: made up, complete, and easy to modify.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace longspan::report::test {

inline nlohmann::json run_json(const std::string& run = "00000000000000aa") {
  return {{"type", "run"},
          {"schema", 1},
          {"run", run},
          {"started", "2026-01-02T03:04:05Z"},
          {"command", "longspan run suites/quick.toml --out out"},
          {"suite", "quick"},
          {"machine", {{"kind", "test"}, {"cpu_model", "Made-up CPU"}, {"governor", "performance"}}},
          {"device", {{"kind", "cpu"}, {"name", "Made-up CPU"}, {"units", 2}, {"driver", nullptr}}},
          {"software", {{"commit", "0123456789abcdef"}, {"dirty", false}, {"libraries", {{"fmt", "9.1.0"}}}}},
          {"rule", {{"confidence", 0.95}}},
          {"ceilings", {{"f32", {{"flops_per_s", 1e11}, {"what", "product"}, {"samples_s", {1.0}}}}}}};
}

inline nlohmann::json case_json(const std::string& kernel, const std::string& mask, double time_s,
                                const std::string& run = "00000000000000aa") {
  return {{"type", "case"},
          {"schema", 1},
          {"run", run},
          {"id", kernel + "-" + mask},
          {"case",
           {{"kernel", kernel},
            {"mask", mask},
            {"options", nlohmann::json::object()},
            {"seqlen", 4096},
            {"heads_q", 8},
            {"heads_kv", 2},
            {"head_dim", 128},
            {"dtype", "f32"},
            {"direction", "forward"},
            {"masks", 1},
            {"lengths", nullptr},
            {"seed", 42}}},
          {"command", "longspan run --kernel " + kernel + " --mask " + mask},
          {"status", "ok"},
          {"time_s", time_s},
          {"interval_s", {0.99 * time_s, 1.02 * time_s}},
          {"flops_per_s", 5e9 / time_s},
          {"share_of_ceiling", 0.05 / time_s},
          {"peak_bytes", 3 << 20},
          {"accuracy",
           {{"checked", {"o"}},
            {"max_error", {{"o", 1e-6}}},
            {"tolerance", {{"o", 1e-5}}},
            {"counting", "pass"}}},
          {"measurements", {{{"index", 0}, {"median_s", time_s}, {"converged", true}}}}};
}

inline nlohmann::json unmeasured_json(const std::string& kernel, const std::string& mask,
                                      const std::string& status, const std::string& reason) {
  nlohmann::json line = case_json(kernel, mask, 1);
  for (const char* key :
       {"time_s", "interval_s", "flops_per_s", "share_of_ceiling", "accuracy", "measurements"}) {
    line.erase(key);
  }
  line["status"] = status;
  line["reason"] = reason;
  return line;
}

template <class... Lines>
std::string text_of(const Lines&... lines) {
  return ((lines.dump() + "\n") + ...);
}

}  // namespace longspan::report::test
