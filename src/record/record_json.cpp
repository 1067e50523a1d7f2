#include "record/record_json.h"

#include "record/json_reader.h"
#include "record/json_writer.h"

namespace longspan::record {
namespace {

template <class T>
Json line_of(const T& value, const char* type) {
  Json line = {{"type", type}, {"schema", kSchema}};
  JsonWriter writer;
  writer.object = std::move(line);
  visit(writer, value);
  return std::move(writer.object);
}

}  // namespace

Json to_json(const RunRecord& run) {
  return line_of(run, "run");
}

Json to_json(const WorkloadRecord& workload) {
  return line_of(workload, "workload");
}

Json to_json(const CaseRecord& c) {
  return line_of(c, "case");
}

Json to_json(const PassPlan& plan) {
  return encode(plan);
}

Open<Machine> open_object(const Machine& machine) {
  return {encode(machine)};
}

Open<DeviceInfo> open_object(const DeviceInfo& device) {
  return {encode(device)};
}

Open<Software> open_object(const Software& software) {
  return {encode(software)};
}

Open<TimingRule> open_object(const TimingRule& rule) {
  return {encode(rule)};
}

Open<DeviceState> open_object(const DeviceState& state) {
  return {encode(state)};
}

Workload workload_from(const Json& json) {
  return from_json<Workload>(json);
}

}  // namespace longspan::record
