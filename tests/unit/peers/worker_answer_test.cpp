// What is believed of a worker's answer, at the bounds.
#include "peers/worker_answer.h"

#include <gmock/gmock.h>

namespace longspan::peers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::ThrowsMessage;

constexpr Bounds kBounds{2.0, 1000};

std::vector<double> times(const std::string& list) {
  return times_of(parse_answer(R"({"ok": true, "times_s": )" + list + "}"), 3, 1 << 20, kBounds);
}

TEST(WorkerAnswer, TimesMustBePossible) {
  EXPECT_THAT(times("[0.5]"), ElementsAre(0.5));
  EXPECT_THAT(times("[0.5, 1, 0.5]"), ElementsAre(0.5, 1, 0.5)) << "as long as the request";
  EXPECT_THAT([] { times("[0.5, 1, 0.6]"); },
              ThrowsMessage<Error>(HasSubstr("2.1 s together, but had only 2")));
  EXPECT_THAT([] { times("[0.1, 0.1, 0.1, 0.1]"); }, ThrowsMessage<Error>(HasSubstr("1 to 3 numbers")));
  EXPECT_THAT([] { times("[]"); }, ThrowsMessage<Error>(HasSubstr("1 to 3 numbers")));
  // A megabyte at 100 TB/s takes 10.5 ns.
  EXPECT_THAT(times("[1.1e-8]"), ElementsAre(1.1e-8));
  EXPECT_THAT([] { times("[0.5, 1.0e-8]"); },
              ThrowsMessage<Error>(HasSubstr("no memory takes 1048576 bytes")));
}

TEST(WorkerAnswer, PlansAndRunsMustBePossible) {
  const auto planned = [](const std::string& fields) {
    return planned_of(
        parse_answer(R"({"ok": true, "plan_s": 1, "compile_s": 2, "plan_bytes": 1000)" + fields + "}"),
        kBounds);
  };
  EXPECT_EQ(planned("").plan_bytes, 1000u);
  EXPECT_EQ(planned(R"(, "settings": "a\nb", "drift_keys": 64)").settings, "a b");
  EXPECT_THAT([&] { planned(R"(, "drift_keys": -1)"); }, ThrowsMessage<Error>(HasSubstr("drift_keys = -1")));
  const auto ran = [](const std::string& compile_s, const std::string& peak) {
    return ran_of(parse_answer(R"({"ok":true,"compile_s":)" + compile_s + R"(,"peak_bytes":)" + peak + "}"),
                  kBounds);
  };
  EXPECT_EQ(ran("0", "0").peak_bytes, 0u);
  EXPECT_THAT([&] { ran("2.1", "0"); }, ThrowsMessage<Error>(HasSubstr("compile_s = 2.1 s, but had only 2")));
  EXPECT_THAT([&] { ran("0", "1001"); }, ThrowsMessage<Error>(HasSubstr("whole number from 0 to 1000")));
  EXPECT_THAT([] { ran_of(parse_answer(R"({"ok": true})"), kBounds); },
              ThrowsMessage<Error>(HasSubstr("without 'compile_s'")));
}

TEST(WorkerAnswer, ARefusalIsOneShortLine) {
  EXPECT_FALSE(refusal_of(parse_answer(R"({"ok": true})")).has_value());
  const auto refusal = [](const std::string& fields) {
    return *refusal_of(parse_answer(R"({"ok": false)" + fields + "}"));
  };
  EXPECT_EQ(refusal("").reason, "the worker gave no reason");
  EXPECT_EQ(refusal(R"(, "kind": "unsupported")").kind, ErrorKind::kUnsupported);
  EXPECT_EQ(refusal(R"(, "kind": "memory")").kind, ErrorKind::kOutOfMemory);
  EXPECT_EQ(refusal(R"(, "kind": "anything")").kind, ErrorKind::kPeer);
  std::string long_text;
  for (int i = 0; i < 300; ++i) long_text += "é";
  EXPECT_EQ(refusal(R"(, "reason": "a)" + long_text + "\"").reason.size(), 499u) << "cut between characters";
}

TEST(WorkerAnswer, VersionsAreShortLines) {
  const auto versions = [](const std::string& list) {
    return versions_of(parse_answer(R"({"ok": true, "versions": )" + list + "}"));
  };
  EXPECT_THAT(versions(R"({"a\tb": "1\n2"})"), ElementsAre(Pair("a b", "1 2")));
  EXPECT_THAT([&] { versions(R"({"a\tb": true})"); },
              ThrowsMessage<Error>(HasSubstr("with 'a?b' that is a JSON boolean, not a text")));
  EXPECT_THAT([&] { versions("[]"); }, ThrowsMessage<Error>(HasSubstr("no object of at most 64 texts")));
}

TEST(WorkerAnswer, NestsLittleAndNamesNothingTwice) {
  EXPECT_NO_THROW(parse_answer(R"({"ok": true, "a": [[[1]]], "b": {"a": 1}, "c": {"a": 1}})"));
  EXPECT_THAT([] { parse_answer(R"({"ok": true, "b": {"x": 1, "x": 1}})"); },
              ThrowsMessage<Error>(HasSubstr("'x' comes twice")));
  EXPECT_THAT(
      [] { parse_answer(R"({"ok": true, "a": )" + std::string(10, '[') + std::string(10, ']') + "}"); },
      ThrowsMessage<Error>(HasSubstr("nested too deeply")));
}

}  // namespace
}  // namespace longspan::peers
