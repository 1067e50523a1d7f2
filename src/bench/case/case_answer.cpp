// Agreement between the processes of a case on whether it failed.
#include "bench/case/case_answer.h"

#include <fmt/format.h>

namespace longspan::bench {

void agree(Communicator& process, CaseAnswer& answer) {
  const auto fail = [&](const std::string& reason) {
    process.fail(fmt::format("rank {}: {}", process.rank(), reason));
    answer = CaseAnswer::failed(reason);
    answer.group_failed = true;
  };
  if (answer.outcome.status == record::Status::kFailed && !answer.outcome.accuracy) {
    fail(std::string(answer.outcome.reason));
    return;
  }
  try {
    process.barrier();
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

}  // namespace longspan::bench
