// Messages between the runner and the process of its cases, each one line of JSON. The runner sends a
// request; the process sends the phases of its work and one answer.
#pragma once

#include "bench/case/case_answer.h"
#include "bench/spec/case.h"
#include "record/fields.h"
#include "record/record_json.h"

namespace longspan::bench {

struct DeviceName {
  std::string kind;  // "cpu", "cuda"
  int64_t index = 0;
  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

// Requests a case with a rule, or the ceiling of a dtype.
struct Request {
  DeviceName device;
  std::optional<record::Workload> workload;
  record::TimingRule rule;
  std::string ceiling;
};

struct ProbeAnswer {
  std::string driver;
  std::optional<record::Ceiling> ceiling;
  std::string reason;  // why there is no ceiling
};

// Exactly one of these is set.
struct Message {
  std::string phase = {};
  std::optional<CaseAnswer> answer = {};
  std::optional<ProbeAnswer> probe = {};
};

template <class V, record::Is<DeviceName> S>
void visit(V& v, S& s) {
  v.field("kind", s.kind, "", record::kRequired);
  v.field("index", s.index, "");
}

template <class V, record::Is<Request> S>
void visit(V& v, S& s) {
  v.field("device", s.device, "", record::kRequired);
  v.field("case", s.workload, "");
  v.field("rule", s.rule, "");
  v.field("ceiling", s.ceiling, "", record::kOmitted);
}

template <class V, record::Is<ProbeAnswer> S>
void visit(V& v, S& s) {
  v.field("driver", s.driver, "");
  v.field("ceiling", s.ceiling, "");
  v.field("reason", s.reason, "", record::kOmitted);
}

template <class V, record::Is<Message> S>
void visit(V& v, S& s) {
  v.field("phase", s.phase, "", record::kOmitted);
  v.field("answer", s.answer, "");
  v.field("probe", s.probe, "");
}

inline record::Workload workload_of(const Case& c) {
  return record::workload_from(to_json(c));
}

inline Case case_of(const record::Workload& workload) {
  return case_from_json(workload.json);
}

}  // namespace longspan::bench
