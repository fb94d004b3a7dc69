// The SVG writer: what it draws is well-formed, stays on its card and escapes text.
// Next: tools/flashptx/svg.h.
#include "tools/flashptx/svg.h"

#include <set>

#include "tests/support.h"

using namespace flashptx::svg;

TEST_SUITE("tools/svg") {
  TEST_CASE("text is escaped") { CHECK(escape("a<b & \"c\"") == "a&lt;b &amp; &quot;c&quot;"); }

  TEST_CASE("ticks are round, span the range and have no minus zero") {
    CHECK(ticks(0, 100, 5) == std::vector<double>{0, 20, 40, 60, 80, 100});
    for (double v : ticks(-1, 1, 4)) CHECK_FALSE((v == 0 && std::to_string(v)[0] == '-'));
    CHECK(short_number(4096) == "4096");
    CHECK(short_number(12.08) == "12.1");
  }

  TEST_CASE("colours of neighbouring series differ") {
    std::set<std::string> seen;
    for (int i = 0; i < 7; ++i) seen.insert(colour(i));
    CHECK(seen.size() == 7);
  }

  TEST_CASE("a bar ends where its value stands on the axis, and its reference has a tick") {
    BarChart c;
    c.title = "t";
    c.unit = "u";
    c.bars = {{"half", 50, 100, "", 0}, {"whole", 100, 0, "", 1}};
    const std::string s = draw(c);
    auto width = [&](const char* fill) {
      const auto at = s.find(std::string("fill=\"") + fill);
      const auto w = s.rfind("width=\"", at);
      return std::stod(s.substr(w + 7));
    };
    CHECK(width(colour(1)) == doctest::Approx(2 * width(colour(0))).epsilon(0.01));
    CHECK(s.find("stroke-width=\"2.5\"") != std::string::npos);
  }

  TEST_CASE("a timeline draws every span and closes every element") {
    Timeline t;
    t.title = "t";
    t.lanes = {"a", "b"};
    t.spans = {{0, 0, 10, 0, "x"}, {1, 5, 20, 1, "y"}};
    const std::string s = draw(t);
    std::size_t titles = 0;
    for (std::size_t at = 0; (at = s.find("<title>", at)) != std::string::npos; ++at) ++titles;
    CHECK(titles == 2);
    CHECK(s.ends_with("</svg>\n"));
  }
}
