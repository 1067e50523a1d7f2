#include "base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longspan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kColours[] = {"red", "green"};
constexpr OptionSpec kSize{.name = "size", .help = "how large", .least = 1, .most = 4096};
constexpr OptionSpec kShare{
    .name = "kept_share", .help = "how many", .kind = OptionKind::kRatio, .preset = "0.5"};
constexpr OptionSpec kLoud{.name = "loud", .help = "whether", .kind = OptionKind::kFlag, .preset = "no"};
constexpr OptionSpec kColour{
    .name = "colour", .help = "which", .kind = OptionKind::kChoice, .choices = kColours, .preset = "red"};
constexpr OptionSpec kSides{.name = "sides", .help = "how far", .kind = OptionKind::kTokenPair};
constexpr OptionSpec kAll[] = {kSize, kShare, kLoud, kColour, kSides};

template <class Work>
std::string message_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

TEST(OptionSpec, ReadsWhatToTextWrites) {
  const std::pair<const OptionSpec*, OptionValue> values[] = {
      {&kSize, 2048},      {&kShare, 0.125},           {&kLoud, true},
      {&kColour, "green"}, {&kSides, TokenPair{3, 0}}, {&kSides, TokenPair{3, {}}}};
  for (const auto& [option, value] : values)
    EXPECT_EQ(option->parse(to_text(value)), value) << to_text(value);
  EXPECT_EQ(kSize.parse("2K"), OptionValue(2048));
  EXPECT_EQ(kSides.parse("1K, 3"), OptionValue(TokenPair{1024, 3}));
  EXPECT_EQ(kLoud.parse("true"), OptionValue(true));
}

TEST(OptionSpec, SaysWhatIsAllowed) {
  EXPECT_THAT(message_of([] { kSize.parse("0"); }), HasSubstr("'0': must be a whole number from 1 to 4K"));
  EXPECT_THAT(message_of([] { kShare.parse("2"); }),
              HasSubstr("'2': must be a number above 0 and at most 1"));
  EXPECT_THAT(message_of([] { kLoud.parse("maybe"); }), HasSubstr("'maybe': must be yes or no"));
  EXPECT_THAT(message_of([] { kColour.parse("blue"); }), HasSubstr("'blue': must be one of red, green"));
  EXPECT_THAT(message_of([] { kSides.parse("3,"); }), HasSubstr("'': must be a whole number"));
  EXPECT_THAT(message_of([] { kSize.check(0); }), HasSubstr("--size 0: must be at least 1"));
  EXPECT_THAT(message_of([] { kSize.check(8192); }), HasSubstr("--size 8192: must be at most 4096"));
  EXPECT_THAT(message_of([] { kShare.check(0.0); }), HasSubstr("--kept-share 0: must be above 0"));
  EXPECT_THAT(message_of([] {
                kSides.check(TokenPair{1, -2});
              }),
              HasSubstr("--sides -2: must be at least 0"));
}

TEST(OptionValues, FallBackToPresets) {
  OptionValues values;
  EXPECT_EQ(values.ratio(kShare), 0.5);
  EXPECT_FALSE(values.flag(kLoud));
  EXPECT_EQ(values.choice(kColour), 0u);
  EXPECT_EQ(values.value_of(kSize), std::nullopt);
  EXPECT_THROW(values.count(kSize), Error);
  values.set("size", 7).set("colour", "green").set("loud", true);
  EXPECT_EQ(values.count(kSize), 7);
  EXPECT_EQ(values.choice(kColour), 1u);
  EXPECT_TRUE(values.flag(kLoud));
  EXPECT_FALSE(values.has(kShare));
}

TEST(OptionValues, KeepWhatIsRead) {
  OptionValues values, sized;
  values.set("size", 7).set("elsewhere", 8);
  sized.set("size", 7);
  values.keep(kAll);
  EXPECT_EQ(values, sized);
  values.keep({});
  EXPECT_TRUE(values.empty());
}

std::vector<std::string> names_of(const std::vector<TableOption>& options) {
  std::vector<std::string> names;
  for (const TableOption& option : options) names.emplace_back(option.spec.name);
  return names;
}

TEST(TableOptions, HaveEachOptionOnceBehindItsPredecessor) {
  const OptionSpec first[] = {kSize.with_preset("64"), kShare},
                   second[] = {kSize.with_preset("256"), kLoud, kShare}, third[] = {kColour, kShare};
  TableOptions table;
  table.add_row("one", first);
  table.add_row("two", second);
  table.add_row("three", third);
  const std::vector<TableOption> options = table.take();
  EXPECT_THAT(names_of(options), ElementsAre("colour", "size", "loud", "kept_share"));
  EXPECT_EQ(find_option(options, "size")->help(), "how large (one [64], two [256])");
  EXPECT_EQ(find_option(options, "loud")->help(), "whether (two) [no]");
  EXPECT_EQ(find_option(options, "kept_share")->help(), "how many [0.5]");
  EXPECT_EQ(find_option(options, "kept_share")->rows(), "one, two and three");
  EXPECT_EQ(find_option(options, "sides"), nullptr);
}

}  // namespace
}  // namespace longspan
