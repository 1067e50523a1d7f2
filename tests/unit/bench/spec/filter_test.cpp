// Filter expressions: what they select, and their errors.
#include "bench/spec/filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longspan::bench {
namespace {

Case sample_case() {
  Case c;
  c.kernel = "cpu-flash";
  c.mask = "causal_document";
  c.seqlen = 8192;
  c.heads_q = 8;
  c.heads_kv = 2;
  c.head_dim = 128;
  c.lengths = "pile";
  return c;
}

TEST(Filter, AnEmptyFilterMatchesEveryCase) {
  EXPECT_TRUE(Filter().matches(sample_case()));
  EXPECT_TRUE(Filter("  ").matches(sample_case()));
}

TEST(Filter, Holds) {
  for (const char* expression : {"mask=causal_document",
                                 "mask=full,causal_document",
                                 "mask=causal*",
                                 "mask=*",
                                 "kernel=cpu-*",
                                 "kernel!=cpu-naive",
                                 "seqlen=8K",
                                 "seqlen=8192",
                                 "seqlen>=8K",
                                 "seqlen<=8K",
                                 "seqlen<8193",
                                 "seqlen>4K",
                                 "heads=8:2",
                                 "heads_kv=2",
                                 "dtype=f32",
                                 "direction=fwd",
                                 "direction=forward",
                                 "mask=causal* seqlen>=8K kernel!=cpu-naive",
                                 "density!=0.5",
                                 "window!=4,4",
                                 "lengths=pile",
                                 "seed=42",
                                 "deterministic=false",
                                 "deterministic!=true",
                                 "mask==causal_document"}) {
    EXPECT_TRUE(Filter(expression).matches(sample_case())) << expression;
  }
}

TEST(Filter, DoesNotHold) {
  for (const char* expression :
       {"mask=causal", "mask!=causal_document", "mask!=full,causal*", "kernel=cpu", "seqlen>8K", "seqlen<8K",
        "seqlen=8191", "direction=bwd", "density=0.5", "density>0", "block<1K", "mask=causal* seqlen>8K",
        "heads=8", "deterministic=true"}) {
    EXPECT_FALSE(Filter(expression).matches(sample_case())) << expression;
  }
}

TEST(Filter, ComparesDensitiesAndWindows) {
  Case c = sample_case();
  c.options.set("density", 0.1).set("window", TokenPair{512, 0});
  EXPECT_TRUE(Filter("density=0.1").matches(c));
  EXPECT_TRUE(Filter("density=.1,0.5").matches(c));
  EXPECT_TRUE(Filter("density<0.2 window=512,0").matches(c));
  EXPECT_FALSE(Filter("window=512").matches(c));
}

std::string message_of(const std::string& expression) {
  try {
    Filter filter(expression);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

TEST(Filter, GivesThePositionOfTheError) {
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(message_of("mask=full seqlne>=8K"),
              AllOf(HasSubstr("at character 11"), HasSubstr("'seqlne' is not a field"),
                    HasSubstr("did you mean 'seqlen'"), HasSubstr("head_dim")));
  EXPECT_THAT(message_of("seqlen>=8X"), AllOf(HasSubstr("at character 9"), HasSubstr("'8X'")));
  EXPECT_THAT(message_of("seqlen"), HasSubstr("must be followed by one of = !="));
  EXPECT_THAT(message_of("seqlen=>8K"), HasSubstr("must be followed by one of"));
  EXPECT_THAT(message_of("seqlen >= 8K"), HasSubstr("without spaces"));
  EXPECT_THAT(message_of("mask>full"), HasSubstr("'mask' is not numeric"));
  EXPECT_THAT(message_of("mask="), HasSubstr("a value is missing after 'mask='"));
  EXPECT_THAT(message_of("mask=casual"), AllOf(HasSubstr("casual"), HasSubstr("causal")));
  EXPECT_THAT(message_of("dtype=fp8"), HasSubstr("f32, bf16, f16"));
  EXPECT_THAT(message_of("deterministic=maybe"), HasSubstr("'maybe': must be true or false"));
  EXPECT_THAT(message_of("=8K"), HasSubstr("is not a field"));
  EXPECT_THAT(message_of("&&"), HasSubstr("'&&' is not a field"));
}

}  // namespace
}  // namespace longspan::bench
