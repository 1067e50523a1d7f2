// A row of a table of kernels: what is known of a kernel without asking it, also where this build lacks it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "attention/kernel.h"

namespace longspan {

struct KernelRow {
  std::string name;
  std::string colour;              // of its charts: "#0b62a8"; empty: a report picks one
  const Kernel* kernel = nullptr;  // null: this build lacks it
  std::string reason;              // why it is lacking: "not in this build (no CUDA)"
  std::string remedy;              // what to do about it: "configure with -DLONGSPAN_CUDA=ON"
  std::string description;         // of a lacking kernel, where it is known
  std::string claims;              // passes and masks, as the file of a peer states them
  std::string package;             // that a peer's kernel is in: "flash_attn"
  // "auto" takes the kernel with the highest of those that can do a problem, and none with 0.
  int preference = 0;
};

// "kernel 'sm90' is not in this build (no CUDA); configure with -DLONGSPAN_CUDA=ON" where the name is that of
// a lacking kernel among the rows, else "".
inline std::string lacking_message(std::string_view name, std::span<const KernelRow> rows) {
  for (const KernelRow& row : rows) {
    if (row.name != name || row.kernel != nullptr) continue;
    return fmt::format("kernel '{}' is {}{}{}", name, row.reason, row.remedy.empty() ? "" : "; ", row.remedy);
  }
  return "";
}

}  // namespace longspan
