#include "report/format.h"

#include <cmath>

#include <fmt/format.h>

namespace longspan::report {
namespace {

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

std::string with_unit(double value, const Unit& unit) {
  return fmt::format("{} {}", three_digits(value / unit.scale), unit.name);
}

}  // namespace

Unit rate_unit(double flops_per_s) {
  if (flops_per_s >= 1e15) return {"PFLOP/s", 1e15};
  if (flops_per_s >= 1e12) return {"TFLOP/s", 1e12};
  if (flops_per_s >= 1e9) return {"GFLOP/s", 1e9};
  return {"MFLOP/s", 1e6};
}

std::string three_digits(double value) {
  if (value == 0) return "0";
  const double size = std::fabs(value);
  if (size >= 1e6 || size < 1e-3) return fmt::format("{:.2e}", value);
  // Count the digits before the point after rounding: 9.999 is 10.0, not 10.00.
  const double magnitude = std::floor(std::log10(size) + 1e-12);
  const double step = std::pow(10.0, magnitude - 2);
  const double rounded = std::round(size / step) * step;
  const int before = static_cast<int>(std::floor(std::log10(rounded) + 1e-12));
  return fmt::format("{:.{}f}", value, std::max(0, 2 - before));
}

std::string format_time(double seconds) {
  if (seconds < 0.9995e-6) return with_unit(seconds, {"ns", 1e-9});
  if (seconds < 0.9995e-3) return with_unit(seconds, {"us", 1e-6});
  if (seconds < 0.9995) return with_unit(seconds, {"ms", 1e-3});
  if (seconds < 3600) return with_unit(seconds, {"s", 1});
  return with_unit(seconds, {"h", 3600});
}

std::string format_bytes(double bytes) {
  if (bytes < 1024) return fmt::format("{:.0f} B", bytes);
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = bytes / 1024;
  int unit = 0;
  while (value >= 999.5 && unit < 3) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", three_digits(value), units[unit]);
}

std::string format_share(double share) {
  const double percent = 100 * share;
  return fmt::format("{:.{}f} %", percent, percent < 9.95 ? 1 : 0);
}

std::string format_rate(double flops_per_s, Unit unit) {
  return three_digits(flops_per_s / unit.scale);
}

std::string format_seqlen(int64_t tokens) {
  constexpr int64_t kKibi = 1024, kMebi = kKibi * kKibi;
  if (tokens >= kMebi && tokens % kMebi == 0) return fmt::format("{}M", tokens / kMebi);
  if (tokens >= kKibi && tokens % kKibi == 0) return fmt::format("{}K", tokens / kKibi);
  return fmt::format("{}", tokens);
}

std::string mask_title(const Workload& workload) {
  std::string title = workload.mask;
  for (const Fact& option : workload.option_facts) title += fmt::format(" {} {}", option.key, option.text);
  return title;
}

std::string heads_title(const Workload& workload) {
  return fmt::format("{}:{}", workload.heads_q, workload.heads_kv);
}

std::string case_title(const Workload& workload) {
  std::string title = fmt::format("{} {} {} {} {} {}x{}", workload.kernel, mask_title(workload),
                                  format_seqlen(workload.seqlen), workload.direction, workload.dtype,
                                  heads_title(workload), workload.head_dim);
  // The micro-batches of a workload differ in nothing else.
  if (workload.lengths.starts_with("list:")) title += " " + fit(workload.lengths, 32);
  if (workload.deterministic) title += " deterministic";
  for (const Fact& fact : workload.extra) title += fmt::format(" {} {}", fact.key, fact.text);
  return title;
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (char c : text) width += continues_character(c) ? 0 : 1;
  return width;
}

std::string fit(std::string_view text, size_t width) {
  if (display_width(text) <= width) return std::string(text);
  constexpr std::string_view kCut = "...";
  const size_t keep = width > kCut.size() ? width - kCut.size() : 0;
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    if (!continues_character(text[end]) && seen++ == keep) break;
  }
  return std::string(text.substr(0, end)) + std::string(kCut.substr(0, width - keep));
}

std::vector<std::string> wrap(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  std::string line;
  while (!text.empty()) {
    const size_t end = text.find(' ');
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (word.empty()) continue;
    if (!line.empty() && display_width(line) + 1 + display_width(word) > width) {
      lines.push_back(std::move(line));
      line.clear();
    }
    line += (line.empty() ? "" : " ") + std::string(word);
  }
  if (!line.empty() || lines.empty()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace longspan::report
