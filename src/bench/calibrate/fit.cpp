#include "bench/calibrate/fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "base/error.h"

namespace longspan::bench {
namespace {

using Row = std::vector<double>;

// Solves the normal equations of the chosen columns by elimination; empty if they are dependent.
Row solve(const std::vector<Row>& rows, const std::vector<size_t>& columns) {
  const size_t n = columns.size();
  std::vector<Row> matrix(n, Row(n + 1));
  for (const Row& row : rows) {
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) matrix[i][j] += row[columns[i]] * row[columns[j]];
      matrix[i][n] += row[columns[i]];  // each row's target is 1
    }
  }
  Row scale(n);
  for (size_t i = 0; i < n; ++i) scale[i] = matrix[i][i];
  for (size_t i = 0; i < n; ++i) {
    if (!(matrix[i][i] > 1e-12 * scale[i])) return {};
    for (size_t row = 0; row < n; ++row) {
      const double factor = matrix[row][i] / matrix[i][i];
      if (row == i || factor == 0) continue;
      for (size_t j = i; j <= n; ++j) matrix[row][j] -= factor * matrix[i][j];
    }
  }
  Row x(n);
  for (size_t i = 0; i < n; ++i) x[i] = matrix[i][n] / matrix[i][i];
  return x;
}

double misfit(const std::vector<Row>& rows, const Row& x) {
  double sum = 0;
  for (const Row& row : rows) {
    double value = -1;
    for (size_t i = 0; i < x.size(); ++i) value += row[i] * x[i];
    sum += value * value;
  }
  return sum;
}

// The x >= 0 for which rows * x comes closest to 1. There are few unknowns, so every set of those that are
// not 0 is tried.
Row nearest_to_one(const std::vector<Row>& rows, size_t unknowns) {
  Row best(unknowns);
  double least = std::numeric_limits<double>::infinity();
  for (size_t set = 1; set < size_t{1} << unknowns; ++set) {
    std::vector<size_t> columns;
    for (size_t i = 0; i < unknowns; ++i) {
      if ((set >> i & 1) != 0) columns.push_back(i);
    }
    const Row part = solve(rows, columns);
    if (part.empty() || *std::min_element(part.begin(), part.end()) < 0) continue;
    Row x(unknowns);
    for (size_t i = 0; i < columns.size(); ++i) x[columns[i]] = part[i];
    if (const double here = misfit(rows, x); here < least) best = x, least = here;
  }
  return best;
}

Residual residual_of(const std::vector<double>& errors) {
  Residual residual;
  for (const double error : errors) {
    residual.mean += std::abs(error) / static_cast<double>(errors.size());
    residual.largest = std::max(residual.largest, std::abs(error));
  }
  return residual;
}

Residual residual_of(const std::vector<KernelSample>& samples, int64_t units, const KernelPassCost& pass) {
  std::vector<double> errors;
  errors.reserve(samples.size());
  for (const KernelSample& s : samples)
    errors.push_back(seconds_of(s.work, pass, units, s.head_dim) / s.time_s - 1);
  return residual_of(errors);
}

// The model is linear in the times but for the tail's share, and for what bounds the pass: the
// multiprocessors together, or the longest row tile. So both are held while the times are solved for.
void fit_times(const std::vector<KernelSample>& samples, int64_t units, KernelPassCost& pass) {
  constexpr int kRounds = 8;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Row> rows;
    for (const KernelSample& s : samples) {
      const double of_head = static_cast<double>(s.head_dim) / 128;
      const double all_s = (s.work.tiles * pass.tile_s + s.work.row_tiles * pass.row_tile_s +
                            s.work.key_tiles * pass.key_tile_s) /
                           static_cast<double>(units);
      const bool together = round == 0 || all_s >= s.work.longest * pass.tile_s + pass.row_tile_s;
      const double part = together ? 1 / static_cast<double>(units) : 0,
                   longest = pass.tail + (together ? 0 : 1);
      rows.push_back({of_head * (s.work.tiles * part + s.work.longest * longest) / s.time_s,
                      of_head * (s.work.row_tiles * part + longest) / s.time_s,
                      of_head * s.work.key_tiles * part / s.time_s, 1 / s.time_s});
    }
    const Row x = nearest_to_one(rows, 4);
    pass.tile_s = x[0], pass.row_tile_s = x[1], pass.key_tile_s = x[2], pass.launch_s = x[3];
  }
}

}  // namespace

Residual fit_kernel(const std::vector<KernelSample>& samples, int64_t units, KernelPassCost& pass) {
  LONGSPAN_CHECK(samples.size() >= 5, "{} samples for five figures", samples.size());
  for (const KernelSample& s : samples)
    LONGSPAN_CHECK_INPUT(s.time_s > 0, "a pass of the kernel took {} s: it must be more than 0", s.time_s);
  KernelPassCost best = pass;
  Residual least{std::numeric_limits<double>::infinity(), 0};
  // On one unit there is nothing to wait for at the end.
  for (const double tail : units == 1 ? std::vector{0.0} : std::vector{0.0, 0.125, 0.25, 0.5, 1.0}) {
    pass.tail = tail;
    fit_times(samples, units, pass);
    const Residual here = residual_of(samples, units, pass);
    if (here.mean < least.mean) best = pass, least = here;
  }
  pass = best;
  return least;
}

Line fit_line(const std::vector<LineSample>& samples) {
  std::vector<Row> rows;
  double most = 0, least = std::numeric_limits<double>::infinity();
  for (const LineSample& s : samples) {
    LONGSPAN_CHECK_INPUT(s.time_s > 0 && s.bytes > 0, "{} bytes in {} s: both must be more than 0", s.bytes,
                         s.time_s);
    rows.push_back({1 / s.time_s, s.bytes / s.time_s});
    most = std::max(most, s.bytes);
    least = std::min(least, s.bytes);
  }
  LONGSPAN_CHECK_INPUT(most > least, "times of at least two sizes are needed for a rate");
  Row x = nearest_to_one(rows, 2);
  // Noise can make larger messages no slower. Then a rate alone is fitted, and the residual says how badly.
  if (x[1] == 0) x = {0, solve(rows, {1}).front()};
  Line line{x[0], 1 / x[1], {}};
  std::vector<double> errors;
  errors.reserve(samples.size());
  for (const LineSample& s : samples)
    errors.push_back((line.latency_s + s.bytes / line.bytes_per_s) / s.time_s - 1);
  line.residual = residual_of(errors);
  return line;
}

std::vector<LineSample> read_nccl_tests(const std::string& text) {
  std::istringstream lines(text);
  // The columns, by the first of their names: out of place.
  size_t time = 0, rate = 0;
  bool found = false;
  std::vector<LineSample> samples;
  const auto words_of = [](const std::string& line) {
    std::istringstream in(line);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    return words;
  };
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> words = words_of(line);
    if (words.empty()) continue;
    if (words.front().starts_with("#")) {
      if (words.front() == "#") words.erase(words.begin());
      const auto time_name = std::find(words.begin(), words.end(), "time"),
                 rate_name = std::find(words.begin(), words.end(), "busbw");
      if (time_name == words.end() || rate_name == words.end()) continue;
      time = static_cast<size_t>(time_name - words.begin());
      rate = static_cast<size_t>(rate_name - words.begin());
      found = true;
      continue;
    }
    if (!found || words.size() <= std::max(time, rate)) continue;
    char *end_of_time = nullptr, *end_of_rate = nullptr;
    const double time_s = 1e-6 * std::strtod(words[time].c_str(), &end_of_time);
    const double bytes_per_s = 1e9 * std::strtod(words[rate].c_str(), &end_of_rate);
    if (*end_of_time != 0 || *end_of_rate != 0) continue;
    const double bytes = time_s * bytes_per_s;
    if (time_s > 0 && bytes > 0 && std::isfinite(bytes)) samples.push_back({bytes, time_s});
  }
  LONGSPAN_CHECK_INPUT(!samples.empty(),
                       "has no table of nccl-tests: a line with size, time and busbw, and rows");
  return samples;
}

}  // namespace longspan::bench
