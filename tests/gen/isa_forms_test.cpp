// Every form of the instruction table, spelt in every alternative, against ptxas.
//
// ptxas judges three things: that each line assembles at the version and target that its row
// states, that no lower version takes it, and that a row marked sm_90a is refused on plain sm_90.
// Next: tests/gen/isa_samples.h.
#include <map>
#include <set>

#include "tests/gen/isa_samples.h"
#include "tests/support.h"
#include "tools/flashptx/pattern.h"

namespace flashptx::test {
namespace {

// Versions that ptxas knows, from the first with sm_90.
constexpr int kVersions[] = {78, 80, 81, 82, 83, 84, 85, 86, 87, 88, 90};

int previous_version(int version) {
  int before = 0;
  for (int v : kVersions)
    if (v < version) before = v;
  return before;
}
// Introduced with 8.6 by PTX ISA 9.7.13.4; ptxas 13.0 takes them at any version, an older one knows
// none.
bool ptxas_is_lenient(const std::string& opcode) {
  return opcode.rfind("fence.acquire.", 0) == 0 || opcode.rfind("fence.release.", 0) == 0;
}
int lowest_version(const gen::Form& f) { return std::max(f.ptx_version, f.needs_sm90a ? 80 : 78); }

// Message of ptxas by the index of the sample that it speaks of.
std::map<std::size_t, std::string> complaints(const std::vector<Sample>& some, int version,
                                              bool sm90a, bool warnings = false) {
  ScratchFolder folder;
  SampleModule module = sample_module(some, version, sm90a);
  write_file(folder.path("forms.ptx"), module.text);
  std::string arch = sm90a ? "sm_90a" : "sm_90";
  ProcessResult r = shell(ptxas() + " -O0 -arch=" + arch + " " + folder.path("forms.ptx") + " -o " +
                          folder.path("forms.cubin"));
  std::map<std::size_t, std::string> found;
  const Pattern pattern(warnings ? "line (\\d+); (?:error|warning) *: (.*)"
                              : "line (\\d+); error *: (.*)");
  for (const Match& it : pattern.all(r.output)) {
    long index = module.sample_of_line.at(std::stoul(it[1]));
    REQUIRE_MESSAGE(index >= 0, r.output);
    found.emplace(static_cast<std::size_t>(index), it[2]);
  }
  if (r.exit_code != 0 && found.empty()) FAIL_CHECK(r.output.substr(0, 2000));
  return found;
}

std::string told(const Sample& s, const std::string& what) {
  return std::string("row \"") + s.form->opcode + "\": " + s.text() + "\n  " + what;
}

TEST_SUITE("gen/isa_forms") {
  TEST_CASE(
      "the matcher takes every sample and finds a row that needs no more than the sample's own") {
    for (const Sample& s : all_samples()) {
      std::string why;
      const gen::Form* f = gen::find_form(s.opcode, s.operands, &why);
      CHECK_MESSAGE(f != nullptr, told(s, why));
      if (f) CHECK_MESSAGE(lowest_version(*f) <= lowest_version(*s.form), told(s, f->opcode));
    }
  }

  TEST_CASE("every spelling assembles at the version and target that its row states") {
    if (ptxas().empty()) FLASHPTX_SKIP("no ptxas");
    std::map<std::pair<int, bool>, std::vector<Sample>> groups;
    std::size_t lines = 0;
    for (const Sample& s : all_samples()) {
      groups[{lowest_version(*s.form), s.form->needs_sm90a}].push_back(s);
      ++lines;
    }
    CHECK(lines > 5000);
    for (const auto& [need, some] : groups)
      for (const auto& [index, what] : complaints(some, need.first, need.second))
        FAIL_CHECK(told(some[index], what));
  }

  TEST_CASE("no lower version takes a spelling") {
    if (ptxas().empty()) FLASHPTX_SKIP("no ptxas");
    std::map<int, std::vector<Sample>> groups;
    for (const Sample& s : all_samples())
      if (s.first_operands && !ptxas_is_lenient(s.opcode) &&
          lowest_version(*s.form) > (s.form->needs_sm90a ? 80 : 78))
        groups[lowest_version(*s.form)].push_back(s);
    CHECK(groups.size() >= 5);
    for (const auto& [version, some] : groups) {
      bool sm90a = previous_version(version) >= 80;
      auto found = complaints(some, previous_version(version), sm90a);
      for (std::size_t i = 0; i < some.size(); ++i)
        CHECK_MESSAGE(found.count(i), told(some[i], "assembles at .version " +
                                                        std::to_string(previous_version(version))));
    }
  }

  TEST_CASE("plain sm_90 refuses or warns of what is marked sm_90a") {
    if (ptxas().empty()) FLASHPTX_SKIP("no ptxas");
    std::map<int, std::vector<Sample>> groups;
    for (const Sample& s : all_samples())
      if (s.first_operands && s.form->needs_sm90a) groups[lowest_version(*s.form)].push_back(s);
    for (const auto& [version, some] : groups) {
      auto found = complaints(some, version, false, true);
      for (std::size_t i = 0; i < some.size(); ++i)
        CHECK_MESSAGE(found.count(i), told(some[i], "assembles for sm_90"));
    }
  }
}

}  // namespace
}  // namespace flashptx::test
