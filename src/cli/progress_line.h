// One line on the terminal that says what is being done.
#pragma once

#include <string_view>

namespace longspan::cli {

// Written to stderr if that is a terminal, replaced by the next one, and erased at the end. Prints nothing to
// a file or a pipe.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(std::string_view what) const;
  void clear() const;  // before anything else is printed

 private:
  const bool shown_;
};

}  // namespace longspan::cli
