#include "cli/progress_line.h"

#include <cstdio>
#include <string>

#include <unistd.h>

#include "base/printable.h"

namespace longspan::cli {

ProgressLine::ProgressLine() : shown_(isatty(STDERR_FILENO) != 0) {}

void ProgressLine::clear() const {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::show(std::string_view what) const {
  if (!shown_) return;
  constexpr size_t kLongest = 78;  // a wrapped line could not be erased
  std::fputs(("\r\033[K" + printable(what.substr(0, kLongest))).c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace longspan::cli
