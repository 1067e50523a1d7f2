// Values in readable notation: 8K, 8:2, 0.05. Every parser throws an input error that begins with the value
// and says what is allowed; the caller adds the location.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/parse.h"

namespace longspan::bench {

using longspan::parse_count;
using longspan::parse_real;
uint64_t parse_seed(std::string_view text);
bool parse_bool(std::string_view text);
double parse_duration(std::string_view text);  // 90s, 30m, 2h, 90 (seconds); above 0

std::string format_bytes(double bytes);       // "1.5 GiB"
std::string format_seconds(double seconds);   // "1.23 ms"
std::string format_duration(double seconds);  // "1 h 02 min", "3 min 20 s", "12 s"
std::string format_rate(double flops_per_s);  // "85.1 GFLOP/s"

std::vector<std::string> split(std::string_view text, char separator);
std::string shell_quoted(std::string_view word);  // unchanged if it needs no quotes

uint64_t hash64(std::string_view bytes);  // FNV-1a with a finaliser: stable across machines and versions
std::string hex16(uint64_t value);

}  // namespace longspan::bench
