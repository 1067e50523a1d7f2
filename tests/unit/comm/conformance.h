// What every communicator must do. Each check runs on all ranks at once, with the rank's own end.
#pragma once

#include "comm/communicator.h"

namespace longspan::conformance {

void exchanges_with_every_rank(Communicator& communicator);
void keeps_the_order_of_messages(Communicator& communicator);
void carries_empty_and_large_messages(Communicator& communicator);
void runs_several_transfers_at_once(Communicator& communicator);
void gathers_and_transposes(Communicator& communicator);

struct Check {
  const char* name;
  void (*run)(Communicator&);
};
inline constexpr Check kChecks[] = {
    {"exchanges_with_every_rank", exchanges_with_every_rank},
    {"keeps_the_order_of_messages", keeps_the_order_of_messages},
    {"carries_empty_and_large_messages", carries_empty_and_large_messages},
    {"runs_several_transfers_at_once", runs_several_transfers_at_once},
    {"gathers_and_transposes", gathers_and_transposes},
};

}  // namespace longspan::conformance
