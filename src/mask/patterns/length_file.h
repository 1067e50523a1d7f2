// CSV files of document lengths or of length histograms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mask/patterns/document_lengths.h"

namespace longspan {

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
