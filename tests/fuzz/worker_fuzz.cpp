// The reader of the answers of peers' workers. Any line is refused with an Error of one line, or gives values
// that can be true.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "base/error.h"
#include "peers/worker_answer.h"

namespace longspan::peers {
namespace {

void expect(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

bool on_one_line(const std::string& text) {
  for (const unsigned char c : text) {
    if (c < 0x20 || c == 0x7f) return false;
  }
  return true;
}

template <class Read>
void reads(Read&& read) {
  try {
    read();
  } catch (const Error& error) {
    expect(error.kind() == ErrorKind::kPeer, "not an error of a peer");
    expect(on_one_line(error.what()), "an error of several lines");
  }
}

void read_all(const Json& answer) {
  constexpr Bounds kBounds{2.0, size_t{1} << 36};
  constexpr int64_t kCount = 16;
  const auto believed = [](double time_s) { return time_s >= 0 && time_s < 2.1; };
  reads([&] {
    if (const auto refusal = refusal_of(answer))
      expect(on_one_line(refusal->reason) && refusal->reason.size() <= 500, "a reason of several lines");
  });
  reads([&] {
    const Planned planned = planned_of(answer, kBounds);
    expect(believed(planned.plan_s) && believed(planned.compile_s), "a plan of an impossible time");
    expect(planned.plan_bytes <= kBounds.most_bytes && planned.drift_keys >= 0,
           "a plan of an impossible size");
    expect(on_one_line(planned.settings), "settings of several lines");
  });
  reads([&] {
    const Ran ran = ran_of(answer, kBounds);
    expect(believed(ran.compile_s) && ran.peak_bytes <= kBounds.most_bytes, "an impossible run");
  });
  reads([&] {
    const std::vector<double> times_s = times_of(answer, kCount, 1000, kBounds);
    expect(!times_s.empty() && times_s.size() <= kCount, "an impossible number of times");
    for (const double time_s : times_s) expect(time_s >= 1e-11, "an impossible time");
    expect(believed(std::accumulate(times_s.begin(), times_s.end(), 0.0)), "impossible times");
  });
  reads([&] {
    for (const auto& [package, version] : versions_of(answer))
      expect(on_one_line(package) && on_one_line(version), "a version of several lines");
  });
}

}  // namespace
}  // namespace longspan::peers

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longspan::peers;
  reads([&] { read_all(parse_answer({reinterpret_cast<const char*>(data), size})); });
  return 0;
}
