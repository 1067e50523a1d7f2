// The page as text; tests/browser opens it.
#include "report/page.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "lines.h"

namespace longspan::report {
namespace {

using test::case_json, test::run_json, test::text_of;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHostile = "</script><script>alert(1)</script><!-- & \" '";

TEST(Page, EscapesHtml) {
  EXPECT_EQ(escape_html("<a href=\"x\">'&amp;'</a>"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;amp;&#39;&lt;/a&gt;");
}

TEST(Page, EscapedJsonEndsNoScriptAndMeansTheSame) {
  const std::string escaped = escape_script_json(nlohmann::json(kHostile).dump());
  EXPECT_THAT(escaped, Not(HasSubstr("<")));
  EXPECT_THAT(escaped, Not(HasSubstr(">")));
  EXPECT_EQ(nlohmann::json::parse(escaped).get<std::string>(), kHostile);
}

size_t count(const std::string& text, std::string_view what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(Page, NothingFromAFileBecomesMarkup) {
  auto run = run_json();
  run["suite"] = run["command"] = run["device"]["name"] = kHostile;
  auto line = case_json(kHostile, kHostile, 1);
  line["command"] = kHostile;
  line["case"]["lengths"] = kHostile;
  line["case"][kHostile] = kHostile;
  const std::string hostile = format_page(parse_results(text_of(run, line), kHostile), {});
  const std::string plain = format_page(parse_results(text_of(run_json(), case_json("a", "b", 1)), "r"), {});
  for (const char* mark : {"<script", "</script", "<!--", "<title", "alert(1)</script"}) {
    EXPECT_EQ(count(hostile, mark), count(plain, mark)) << mark;
  }
}

// Not a matcher, since a failure would print half a megabyte.
bool has(const std::string& text, std::string_view what) {
  return text.find(what) != std::string::npos;
}

TEST(Page, IsOneFileThatAsksForNothing) {
  const std::string page =
      format_page(parse_results(text_of(run_json(), case_json("a", "causal", 1)), "r"), {});
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_TRUE(has(page, "Chart.js v3")) << "the library's licence comment stays";
  EXPECT_TRUE(has(page, "default-src 'none'"));
  EXPECT_FALSE(has(page, " src="));
  EXPECT_FALSE(has(page, "<link"));
  EXPECT_FALSE(has(page, "{{")) << "a mark was left in the page";
}

TEST(Page, RefusesMoreCasesThanABrowserDraws) {
  Results r = parse_results(text_of(run_json(), case_json("a", "causal", 1)), "r");
  r.cases.resize(kMostCases + 1, r.cases.front());
  EXPECT_THAT([&] { format_page(r, {}); },
              ::testing::ThrowsMessage<Error>(HasSubstr("20001 cases are too many for one page")));
}

TEST(Page, BeginsAsEveryPage) {
  const std::string page = format_page(parse_results(text_of(run_json()), "r"), {.title = "any"});
  EXPECT_GT(page_begin().size(), 100u);
  EXPECT_TRUE(page.starts_with(page_begin()));
}

TEST(Page, TitleIsGivenOrMade) {
  const Results r = parse_results(text_of(run_json(), case_json("a", "causal", 1)), "r");
  EXPECT_TRUE(has(format_page(r, {}), "<title>Attention on Made-up CPU: quick</title>"));
  EXPECT_TRUE(has(format_page(r, {.title = "Mine & yours"}), "<title>Mine &amp; yours</title>"));
}

TEST(Page, HasTheColoursOfTheTables) {
  const Results r = parse_results(text_of(run_json(), case_json("mine", "causal", 1)), "r");
  const std::string page =
      format_page(r, {.kernel_colours = {{"mine", "#d33682"}}, .plainest_mask = "causal"});
  EXPECT_TRUE(has(page, R"("kernels":[{"name":"mine","colour":"#d33682"}])"));
  EXPECT_TRUE(has(page, R"("plainestMask":"causal")"));
}

TEST(Page, OfNoResultsIsStillAPage) {
  EXPECT_TRUE(format_page({}, {}).starts_with("<!doctype html>"));
}

}  // namespace
}  // namespace longspan::report
