// Conformance checks for every communicator. Each runs on all ranks at once, with the rank's own endpoint.
#pragma once

#include "comm/communicator.h"
#include "longspan/base.h"

namespace longspan::conformance {

// The memory that holds the messages.
struct Place {
  Device device;
  Stream stream;
};

void exchanges_with_every_rank(Communicator& communicator, const Place& place);
void keeps_the_order_of_messages(Communicator& communicator, const Place& place);
void carries_empty_and_large_messages(Communicator& communicator, const Place& place);
void runs_several_transfers_at_once(Communicator& communicator, const Place& place);
void gathers_and_transposes(Communicator& communicator, const Place& place);
void carries_rows_if_it_takes_them(Communicator& communicator, const Place& place);

struct Check {
  const char* name;
  void (*run)(Communicator&, const Place&);
};
inline constexpr Check kChecks[] = {
    {"exchanges_with_every_rank", exchanges_with_every_rank},
    {"keeps_the_order_of_messages", keeps_the_order_of_messages},
    {"carries_empty_and_large_messages", carries_empty_and_large_messages},
    {"runs_several_transfers_at_once", runs_several_transfers_at_once},
    {"gathers_and_transposes", gathers_and_transposes},
    {"carries_rows_if_it_takes_them", carries_rows_if_it_takes_them},
};

}  // namespace longspan::conformance
