// Reading CSV files of document lengths and histograms.
#include "mask/patterns/length_file.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/input_file.h"
#include "mask/mask.h"

namespace longspan {
namespace {

std::string_view trimmed(std::string_view text) {
  const char* const blanks = " \t\r\v\f";
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (;;) {
    const size_t comma = line.find(',');
    fields.push_back(trimmed(line.substr(0, comma)));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

template <class Number>
bool parse(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// A quoted excerpt on one line, whatever bytes the file holds.
std::string excerpt(std::string_view line) {
  std::string text;
  for (char c : line.substr(0, 60)) text += c >= ' ' && c <= '~' ? c : '?';
  return "'" + text + (line.size() > 60 ? "...'" : "'");
}

bool names_columns(const std::vector<std::string_view>& fields) {
  for (std::string_view field : fields)
    if (field.empty() || std::string_view("0123456789+-.").find(field[0]) != std::string_view::npos)
      return false;
  return fields.size() == 1 || fields.size() == 3;
}

}  // namespace

LengthFile parse_length_file(std::string_view text, const std::string& name) {
  LengthFile file;
  size_t columns = 0;
  bool first = true;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // the byte-order mark of some editors
  for (int number = 1; !text.empty(); ++number) {
    const size_t newline = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, newline));
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (line.empty() || line[0] == '#') continue;
    const auto fields = fields_of(line);
    if (std::exchange(first, false) && names_columns(fields)) {
      columns = fields.size();
      continue;
    }
    LONGSPAN_CHECK_INPUT(fields.size() == 1 || fields.size() == 3,
                         "{}:{}: {} has {} columns; give one length per line, or begin,end,weight", name,
                         number, excerpt(line), fields.size());
    if (columns == 0) columns = fields.size();
    LONGSPAN_CHECK_INPUT(columns == fields.size(), "{}:{}: {} has {} columns, earlier lines have {}", name,
                         number, excerpt(line), fields.size(), columns);
    if (columns == 1) {
      int64_t length = 0;
      LONGSPAN_CHECK_INPUT(parse(fields[0], length) && 1 <= length && length <= kMaxTokens,
                           "{}:{}: {} is not a length; a length is a whole number from 1 to {}", name, number,
                           excerpt(line), kMaxTokens);
      file.lengths.push_back(length);
      continue;
    }
    LengthBin bin;
    LONGSPAN_CHECK_INPUT(parse(fields[0], bin.begin) && parse(fields[1], bin.end) && 0 <= bin.begin &&
                             bin.begin <= bin.end && bin.end <= kMaxTokens,
                         "{}:{}: {} is not a bin; begin and end are whole numbers, 0 <= begin <= end <= {}",
                         name, number, excerpt(line), kMaxTokens);
    LONGSPAN_CHECK_INPUT(parse(fields[2], bin.weight) && std::isfinite(bin.weight) && bin.weight >= 0,
                         "{}:{}: {} has no valid weight; a weight is a finite number, at least 0", name,
                         number, excerpt(line));
    file.bins.push_back(bin);
  }
  LONGSPAN_CHECK_INPUT(!file.lengths.empty() || !file.bins.empty(),
                       "{}: holds no lengths; give one length per line, or begin,end,weight", name);
  double total = 0;
  for (const LengthBin& bin : file.bins) total += bin.weight;
  LONGSPAN_CHECK_INPUT(file.bins.empty() || (total > 0 && std::isfinite(total)),
                       "{}: its weights sum to {}; the sum must be above 0 and finite", name, total);
  return file;
}

LengthFile read_length_file(const std::string& path) {
  return parse_length_file(read_input_file(path, kLengthsFile), path);
}

}  // namespace longspan
