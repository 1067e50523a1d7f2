// The answer of a case's process to the runner: the outcome, and flags that the runner alone needs.
#pragma once

#include "comm/communicator.h"
#include "record/fields.h"

namespace longspan::bench {

struct CaseAnswer {
  record::Outcome outcome;
  bool always = false;        // the reason to skip applies to every case of this kernel
  bool group_failed = false;  // messages between processes may still be in flight

  static CaseAnswer skipped(const std::string& reason) { return {record::Outcome::skipped(reason)}; }
  static CaseAnswer failed(const std::string& reason) { return {record::Outcome::failed(reason)}; }
};

template <class V, record::Is<CaseAnswer> S>
void visit(V& v, S& s) {
  v.field("outcome", s.outcome, "", record::kRequired);
  v.field("always", s.always, "", record::kOmitted);
  v.field("group_failed", s.group_failed, "", record::kOmitted);
}

// Called at the end of a case whose ranks are processes: if one fails, all fail. All ranks see a wrong result
// or a reason to skip by themselves, so those need no message.
void agree(Communicator& process, CaseAnswer& answer);

}  // namespace longspan::bench
