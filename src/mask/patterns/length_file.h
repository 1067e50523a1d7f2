// CSV files of document lengths or of length histograms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace longspan {

// A bin is picked by weight; a length is then drawn uniformly from begin to end, both included.
struct LengthBin {
  int64_t begin = 0, end = 0;
  double weight = 0;
};

// Either lengths, one per line, or bins, one `begin,end,weight` per line. Comments begin with '#'. The first
// line that is neither empty nor a comment may name the columns.
struct LengthFile {
  std::vector<int64_t> lengths;
  std::vector<LengthBin> bins;
};

// Throws an input error that names the file and the wrong line.
LengthFile parse_length_file(std::string_view text, const std::string& name);
LengthFile read_length_file(const std::string& path);

}  // namespace longspan
