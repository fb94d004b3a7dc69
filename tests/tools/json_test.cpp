// The JSON writer against the usual reader, which shares nothing with it. Next: tools/flashptx/json.cpp.
#include "tools/flashptx/json.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

using flashptx::Json;

namespace {

nlohmann::ordered_json read(const Json& j) { return nlohmann::ordered_json::parse(j.dump(1)); }

}  // namespace

TEST_SUITE("tools/json") {
  TEST_CASE("braces are objects and arrays as they look, in their order") {
    Json j{{"z", 1}, {"a", {{"deep", true}}}, {"list", {1, 2, 3}}, {"none", nullptr}, {"empty", Json::array()}, {"bare", Json::object()}};
    j["rows"].push_back({{"ok", false}});
    j["rows"].push_back(Json::array({"x", "y"}));
    j["a"].update({{"deep", false}, {"more", std::vector<int>{4, 5}}});
    const nlohmann::ordered_json wanted{{"z", 1}, {"a", {{"deep", false}, {"more", {4, 5}}}}, {"list", {1, 2, 3}}, {"none", nullptr},
                                        {"empty", nlohmann::ordered_json::array()}, {"bare", nlohmann::ordered_json::object()},
                                        {"rows", {{{"ok", false}}, nlohmann::ordered_json::array({"x", "y"})}}};
    CHECK(j.dump(1) == wanted.dump(1));
  }
  TEST_CASE("every byte of a text comes back") {
    std::string all = "\xc3\xa4\xe2\x82\xac";
    for (char c = 0; c < 0x7f; ++c) all += c;
    CHECK(read(Json{{all, all}})[all] == all);
  }
  TEST_CASE("numbers come back in every bit; what JSON has no number for is null") {
    for (double d : {0.0, -1.5, 0.1, 1e-5, 1.0 / 3, 5e-324, 1.7976931348623157e308, 123456789012345678.0}) {
      CHECK(read(Json{{"v", d}})["v"].get<double>() == d);
      CHECK(read(Json{{"v", d}})["v"].is_number_float());
    }
    CHECK(read(Json{{"v", 0.1f}})["v"].get<float>() == 0.1f);
    CHECK(read(Json{{"v", std::numeric_limits<std::uint64_t>::max()}})["v"] == std::numeric_limits<std::uint64_t>::max());
    CHECK(read(Json{{"v", std::numeric_limits<std::int64_t>::min()}})["v"] == std::numeric_limits<std::int64_t>::min());
    CHECK(read(Json{{"v", NAN}, {"w", -INFINITY}}) == nlohmann::ordered_json{{"v", nullptr}, {"w", nullptr}});
  }
}
