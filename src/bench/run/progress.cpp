// Progress lines and the bar with the time left.
#include "bench/run/progress.h"

#include <algorithm>

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/printable.h"
#include "bench/spec/values.h"

namespace longspan::bench {
namespace {

size_t terminal_columns(std::FILE* out) {
  winsize size{};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace

TimeLeft::TimeLeft(std::vector<Case> cases, size_t at_once) : cases_(std::move(cases)), at_once_(at_once) {}

std::vector<std::string> TimeLeft::keys_of(const Case& c) const {
  const std::string kind = fmt::format("{} {}", c.kernel, name_of(c.direction));
  return {fmt::format("{} {} {}:{}", kind, c.seqlen, c.heads_q, c.heads_kv), kind, ""};
}

void TimeLeft::done(const Case& c, double elapsed_s) {
  if (const auto found = std::find(cases_.begin(), cases_.end(), c); found != cases_.end())
    cases_.erase(found);
  for (const std::string& key : keys_of(c)) {
    means_[key].sum_s += elapsed_s;
    ++means_[key].count;
  }
}

double TimeLeft::estimate_s() const {
  if (means_.empty()) return -1;
  double sum = 0;
  for (const Case& c : cases_) {
    for (const std::string& key : keys_of(c)) {
      const auto it = means_.find(key);
      if (it == means_.end()) continue;
      sum += it->second.sum_s / static_cast<double>(it->second.count);
      break;
    }
  }
  return sum / static_cast<double>(at_once_);
}

Progress::Progress(std::FILE* out, bool terminal, Clock& clock, std::vector<Case> cases, size_t finished,
                   size_t at_once)
    : out_(out),
      terminal_(terminal),
      clock_(clock),
      total_(cases.size() + finished),
      finished_(finished),
      time_left_(std::move(cases), at_once) {}

void Progress::note(const std::string& text) {
  clear();
  write(printable(text) + "\n");
}

void Progress::begin(const Case& c) {
  if (terminal_) draw_bar(describe(c));
}

void Progress::end(const Case& c, const record::Outcome& outcome, double elapsed_s) {
  ++finished_;
  time_left_.done(c, elapsed_s);
  const size_t width = fmt::formatted_size("{}", total_);
  note(fmt::format("[{:>{}}/{}] {}: {}", finished_, width, total_, describe(c), describe_outcome(outcome)));
}

void Progress::clear() {
  if (terminal_) write("\r\x1b[2K");
}

void Progress::draw_bar(const std::string& what) {
  constexpr size_t kCells = 24;
  const size_t filled = total_ == 0 ? kCells : finished_ * kCells / total_;
  const double left = time_left_.estimate_s();
  std::string bar;
  for (size_t i = 0; i < kCells; ++i) bar += i < filled ? "█" : "░";
  const std::string text =
      fmt::format(" {}/{}  {}  {}", finished_, total_,
                  left < 0 ? "" : "about " + format_duration(left) + " left", printable(what));
  // Cut to the terminal's width: a wrapped bar could not be erased.
  const size_t columns = terminal_columns(out_);
  const size_t room = columns > kCells + 1 ? columns - kCells - 1 : 0;
  write(fmt::format("\r\x1b[2K{}{}", columns > kCells ? bar : "", text.substr(0, room)));
}

// A terminal that is gone or a full disk does not end the run.
void Progress::write(const std::string& text) {
  std::fputs(text.c_str(), out_);
  std::fflush(out_);
}

std::string describe_outcome(const record::Outcome& outcome) {
  if (outcome.status != record::Status::kOk)
    return fmt::format("{}: {}", name_of(outcome.status), outcome.reason);
  std::string text = fmt::format("{}, {}", format_seconds(outcome.time_s.value_or(0)),
                                 format_rate(outcome.flops_per_s.value_or(0)));
  if (outcome.share_of_ceiling)
    text += fmt::format(", {:.0f} % of the ceiling", 100 * *outcome.share_of_ceiling);
  return text;
}

}  // namespace longspan::bench
