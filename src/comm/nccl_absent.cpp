// Replaces nccl.cpp in a build without CUDA or without NCCL's header.
#include "base/error.h"
#include "comm/nccl.h"

namespace longspan {

std::string nccl_unavailable_reason() {
  return "this build has no NCCL: it needs LONGSPAN_CUDA=ON and nccl.h";
}

std::string nccl_version() {
  return "";
}

std::vector<std::unique_ptr<Communicator>> nccl_communicators(std::span<const Device>,
                                                              std::chrono::milliseconds) {
  LONGSPAN_CHECK_INPUT(false, "{}", nccl_unavailable_reason());
  return {};
}

std::unique_ptr<Communicator> nccl_communicator(const Launch&, const Device&, std::chrono::milliseconds) {
  LONGSPAN_CHECK_INPUT(false, "{}", nccl_unavailable_reason());
  return nullptr;
}

std::string nccl_identifiers() {
  LONGSPAN_CHECK_INPUT(false, "{}", nccl_unavailable_reason());
  return "";
}

std::unique_ptr<Communicator> nccl_communicator(int, int, const std::string&, const Device&,
                                                std::chrono::milliseconds) {
  LONGSPAN_CHECK_INPUT(false, "{}", nccl_unavailable_reason());
  return nullptr;
}

}  // namespace longspan
