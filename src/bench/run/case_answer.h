// What the process of a case answers to the runner: what came out of the case, and what else the runner
// needs.
#pragma once

#include "comm/communicator.h"
#include "record/fields.h"

namespace longspan::bench {

struct CaseAnswer {
  record::Outcome outcome;
  bool always = false;        // skipped for a reason that holds for every case of this kernel
  bool group_failed = false;  // ranks that are processes no longer know what is under way between them

  static CaseAnswer skipped(const std::string& reason) { return {record::Outcome::skipped(reason)}; }
  static CaseAnswer failed(const std::string& reason) { return {record::Outcome::failed(reason)}; }
};

template <class V, record::Is<CaseAnswer> S>
void visit(V& v, S& s) {
  v.field("outcome", s.outcome, "", record::kRequired);
  v.field("always", s.always, "", record::kOmitted);
  v.field("group_failed", s.group_failed, "", record::kOmitted);
}

// At the end of a case whose ranks are processes: a failure of one is a failure of all. What all of them see
// alike, as a wrong result or a reason to skip, needs no telling.
void agree(Communicator& process, CaseAnswer& answer);

}  // namespace longspan::bench
