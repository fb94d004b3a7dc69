// Schedules as text: what is read is what is printed, and every refusal names its line.
// Next: gen/schedule/text.h.
#include "gen/catalog.h"
#include "gen/schedule/text.h"
#include "tests/support.h"

using namespace flashptx;

namespace {

std::string refusal(const std::string& text) {
  Schedule s;
  std::string error;
  REQUIRE_FALSE_MESSAGE(parse_schedule(text, "mine.txt", &s, &error), "accepted: ", text);
  return error;
}
bool starts(const std::string& s, const std::string& with) { return s.rfind(with, 0) == 0; }

std::string overlap_as(const std::string& name) {
  Schedule s = *find_forward_schedule("overlap");
  s.name = name;
  return print_schedule(s);
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_SUITE("gen/schedule_text") {
  TEST_CASE("every built-in table is printed and read back the same") {
    for (const Schedule& s : forward_schedules()) {
      Schedule back;
      std::string error;
      REQUIRE_MESSAGE(parse_schedule(print_schedule(s), s.name, &back, &error), error);
      CHECK(print_schedule(back) == print_schedule(s));
      CHECK(back.about == s.about);
      CHECK(back.steps.size() == s.steps.size());
    }
  }

  TEST_CASE("comments, blank lines, tabs, carriage returns and both forms of a lag are read") {
    std::string text =
        with(overlap_as("mine"), "pv lag 1\n", "\n \tpv\t-1  # the block before\r\n# alone\n");
    Schedule s;
    std::string error;
    REQUIRE_MESSAGE(parse_schedule(text, "mine.txt", &s, &error), error);
    CHECK(print_schedule(s) == overlap_as("mine"));
  }

  TEST_CASE("a wrong word is refused with its line and the words there are") {
    std::string e = refusal("# mine\nschedule mine\nqk\n\nsoftmax\n");
    CHECK(starts(e, "mine.txt:5: \"softmax\" is no step; the steps are token_wait, qk, "));
  }

  TEST_CASE("a wrong lag is refused with its line") {
    for (const char* lag : {"1", "lag", "lag x", "-x", "- 1", "lag 1 1", "-10", "--1", "lag -1"}) {
      CAPTURE(lag);
      std::string e = refusal(std::string("schedule mine\nqk\npv ") + lag + "\n");
      CHECK(starts(e, "mine.txt:3: "));
      CHECK(e.find("is no lag") != std::string::npos);
    }
    CHECK(starts(refusal(with(overlap_as("mine"), "pv lag 1", "pv lag 2")),
                 "mine.txt:5: schedule mine: lag 2 of pv"));
    CHECK(starts(refusal(with(overlap_as("mine"), "mask_max", "mask_max -1")),
                 "mine.txt:9: schedule mine: mask_max cannot lag"));
  }

  TEST_CASE("a wrong order is refused with its line, the checker's sentence and the drawn table") {
    std::string e = refusal(with(with(overlap_as("mine"), "wait_pv lag 1\n", ""), "pack_p\n",
                                 "pack_p\nwait_pv lag 1\n"));
    CHECK(starts(e, "mine.txt:11: schedule mine, step 9 {free_v, 1}"));
    CHECK(e.find("frees V before wait_pv") != std::string::npos);
    CHECK(e.find("step         lag | trip 0") != std::string::npos);
  }

  TEST_CASE("names that a kernel's name could not carry are refused") {
    for (const char* name :
         {"", "Mine", "my_own", "2nd", "a-b", "averyveryverylongnamethatprofilerscut"}) {
      CAPTURE(name);
      CHECK(
          starts(refusal(std::string("schedule ") + name + "\nqk\n"), "mine.txt:1: schedule name"));
    }
    CHECK(refusal("qk\n").find("no \"schedule NAME\" line") != std::string::npos);
    CHECK(refusal("schedule a\nschedule b\n").find("second") != std::string::npos);
    CHECK(refusal(with(overlap_as("serial"), "", "")).find("built in with other steps") !=
          std::string::npos);
  }

  TEST_CASE("an own schedule's name is in the kernel's, and the name alone asks for the table") {
    KernelConfig c;
    c.plan.softmax = Softmax::plain;
    Schedule s = *find_forward_schedule("overlap");
    s.name = "mine";
    c.plan.follow(s);
    CHECK(c.name().find("__mine_pp_plain") != std::string::npos);
    CHECK(emit(c).text.find("Schedule \"mine\"") != std::string::npos);
    KernelConfig parsed;
    std::string error;
    REQUIRE(KernelConfig::parse(c.name(), &parsed, &error));
    CHECK_THROWS_WITH_AS(emit(parsed), doctest::Contains("--schedule FILE"), std::exception);
    c.plan.follow(*find_forward_schedule("overlap"));
    CHECK_FALSE(c.plan.own_schedule.has_value());
  }
}
