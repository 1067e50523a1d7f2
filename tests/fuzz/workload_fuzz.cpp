// The reader of workloads.
#include <sstream>

#include "bench/spec/workload_file.h"
#include "reads_cleanly.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longspan;
  return reads_cleanly(data, size, [](std::string_view text) {
    // A written workload is read back unchanged.
    const auto written = [](const bench::Workload& workload) {
      std::ostringstream out;
      write_workload(workload, out);
      return out.str();
    };
    const std::string once = written(bench::parse_workload(text, "fuzz.jsonl"));
    LONGSPAN_CHECK(written(bench::parse_workload(once, "written.jsonl")) == once,
                   "a workload written is not the workload read");
  });
}
