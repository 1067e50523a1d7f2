// The histograms of data/ as text, compiled into the library.
#pragma once

namespace longspan {

extern const char* const kPileCsv;
extern const char* const kProlong64kCsv;
extern const char* const kProlong512kCsv;

}  // namespace longspan
