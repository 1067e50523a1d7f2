// The subjects of `longspan list`.
#pragma once

#include <string>
#include <vector>

namespace longspan::cli {

std::vector<std::string> listable();  // "kernels", "masks", ...

}  // namespace longspan::cli
