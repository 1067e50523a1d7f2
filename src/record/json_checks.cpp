#include "record/json_checks.h"

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"

namespace longspan::record {
namespace {

constexpr size_t kDeepestNesting = 64;

// Walks over the brackets and keys of a text.
class Walk {
 public:
  explicit Walk(std::string_view text) : text_(text) {}

  void run() {
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"') string();
      if (c == '{' || c == '[') open(c);
      if (c == '}' || c == ']') close();
      if (c == ',') key_next_ = !open_.empty() && open_.back().object;
    }
  }

 private:
  struct Bracket {
    bool object;
    size_t first_key;  // of this object in keys_
  };

  // From behind the opening quote to behind the closing one.
  void string() {
    const size_t begin = at_ - 1;
    bool escaped = false;
    while (at_ < text_.size() && text_[at_] != '"') {
      escaped = escaped || text_[at_] == '\\';
      at_ += text_[at_] == '\\' ? 2 : 1;
    }
    if (at_ >= text_.size()) return;  // not JSON
    ++at_;
    if (!key_next_) return;
    key_next_ = false;
    keys_.emplace_back(text_.substr(begin + 1, at_ - begin - 2));
    if (!escaped) return;
    const auto key = nlohmann::json::parse(text_.substr(begin, at_ - begin), nullptr, false);
    if (key.is_string()) keys_.back() = key.get<std::string>();
  }

  void open(char bracket) {
    LONGSPAN_CHECK_INPUT(open_.size() < kDeepestNesting,
                         "lists and objects are nested more than {} deep at byte {}; no file of Longspan "
                         "needs that",
                         kDeepestNesting, at_);
    open_.push_back({bracket == '{', keys_.size()});
    key_next_ = bracket == '{';
  }

  void close() {
    key_next_ = false;
    if (open_.empty()) return;  // not JSON
    const auto first = keys_.begin() + static_cast<std::ptrdiff_t>(open_.back().first_key);
    std::sort(first, keys_.end());
    const auto twice = std::adjacent_find(first, keys_.end());
    LONGSPAN_CHECK_INPUT(twice == keys_.end(), "an object has the key \"{}\" twice", printable(*twice));
    keys_.erase(first, keys_.end());
    open_.pop_back();
  }

  std::string_view text_;
  size_t at_ = 0;
  bool key_next_ = false;
  std::vector<Bracket> open_;
  std::vector<std::string> keys_;  // of the open objects
};

}  // namespace

void check_json(std::string_view text) {
  const size_t nul = text.find('\0');
  LONGSPAN_CHECK_INPUT(nul == std::string_view::npos, "byte {} is NUL; JSON is text", nul + 1);
  Walk(text).run();
}

}  // namespace longspan::record
