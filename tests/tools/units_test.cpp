// The micro-kernels: their template language, their machine code (does the loop hold what it claims
// to measure?), their checks. Next: tools/flashptx/units.h.
#include "tools/flashptx/units.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/support.h"
#include "tools/flashptx/sass.h"

using namespace flashptx;
using namespace flashptx::units;

namespace {

// All kernels as one module, so that assembler and disassembler start once.
std::string one_module(const std::vector<std::string>& texts) {
  std::string all =
      ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 "
      "shared_memory[];\n";
  for (const std::string& t : texts) all += t.substr(t.find(".visible"));
  return all;
}

// How many instructions of the timed loop begin with `opcode`; -1 without a loop.
int count_in_loop(const sass::Function& f, const sass::Report& r, const std::string& label,
                  const std::string& opcode) {
  for (const sass::LoopReport& l : r.loops) {
    if (l.loop.name != label) continue;
    int n = 0;
    for (int i : l.loop.body) n += f.code[static_cast<std::size_t>(i)].opcode.rfind(opcode, 0) == 0;
    return n;
  }
  return -1;
}

const Unit& unit_named(const std::vector<Unit>& list, const std::string& name) {
  for (const Unit& u : list)
    if (u.name == name) return u;
  throw std::runtime_error("no unit " + name);
}

}  // namespace

TEST_SUITE("tools/units") {
  TEST_CASE("the template language") {
    const Values v = {{"N", "8"}, {"op", "add %x<i>"}, {"yes", "1"}, {"no", "0"}};
    CHECK(expand("%r<4> <N> <N/2 + 1> %d<<N/2>>", v) == "%r<4> 8 5 %d<4>\n");
    CHECK(expand("{<list %d N/4>}", v) == "{%d0, %d1}\n");
    CHECK(expand("//: repeat i 2\n<op> %y<(i + 1)%2>\n//: end", v) == "add %x0 %y1\nadd %x1 %y0\n");
    CHECK(expand("//: if yes\na\n//: end\n//: if !yes\nb\n//: end\n//: if no\nc\n//: end", v) ==
          "a\n");
    CHECK(expand("//: repeat i 0\na\n//: end\nb", v) == "b\n");
    CHECK(expand("//: if no\n//: repeat j unknown\n//: end\n//: end", v) == "");
    CHECK_THROWS_AS(expand("//: repeat i 2\na", v), std::runtime_error);
    CHECK_THROWS_AS(expand("//: end", v), std::runtime_error);
    CHECK_THROWS_AS(expand("//: if missing\n//: end", v), std::runtime_error);
    CHECK_THROWS_AS(expand("//: repeat i 1/0\n//: end", v), std::runtime_error);
  }

  TEST_CASE("every kernel is found and has no placeholder left") {
    for (const auto& list : {all_units(), beside_units()})
      for (const Unit& u : list) {
        const std::string text = unit_text(u, unit_folders());
        CAPTURE(u.name);
        CHECK(text.find("//:") == std::string::npos);
        CHECK(text.find(".visible .entry unit_" + u.name + "(") != std::string::npos);
        CHECK(text.find("<rounds>") == std::string::npos);
      }
  }

  TEST_CASE("the timed loops hold exactly the instructions that the rates count") {
    const sass::Tools tools = sass::find_tools();
    if (tools.ptxas.empty() || !tools.has_lines) FLASHPTX_SKIP(tools.how_to_get);
    const struct {
      std::string name;
      const char* opcode;
      int count;
    } rows[] = {{"ex2_f32", "MUFU", 256},
                {"ex2_f16x2", "MUFU", 512},
                {"rcp_f32", "MUFU.RCP", 256},
                {"ffma", "FFMA", 256},
                {"fmnmx", "FMNMX", 256},
                {"imad", "IMAD", 256},
                {"shfl_bfly", "SHFL", 256},
                {"cvt_e4m3x2_f32", "F2FP", 512},
                {"shared_ldmatrix", "LDSM", 16},
                {"shared_st_v4", "STS", 16},
                {"wgmma_bf16_ss_n64_wg1", "HGMMA", 16},
                {"wgmma_e4m3_rs_n128_wg1", "QGMMA", 16},
                {"mma_sync_f16_warps4", "HMMA", 64},
                {"named_barrier_128", "BAR.SYNC", 16},
                {"beside_f16_ex2", "MUFU", 64},
                {"beside_e4m3_softmax_max", "MUFU", 64},
                {"beside_f16_ldmatrix", "LDSM", 64}};
    std::vector<Unit> units = all_units();
    for (const Unit& u : beside_units()) units.push_back(u);
    std::vector<std::string> texts;
    for (const auto& row : rows)
      texts.push_back(unit_text(unit_named(units, row.name), unit_folders()));
    const std::string module = one_module(texts);
    const sass::Assembled a = sass::assemble(tools, module);
    std::vector<sass::Function> functions = sass::parse_disassembly(a.disassembly);
    for (const auto& row : rows) {
      CAPTURE(row.name);
      const auto f = std::find_if(functions.begin(), functions.end(), [&](const sass::Function& g) {
        return g.name == "unit_" + row.name;
      });
      REQUIRE(f != functions.end());
      const sass::Report r =
          sass::analyse(*f, sass::read_ptx(module), sass::parse_assembler_log(a.log, f->name));
      const bool beside = row.name.rfind("beside", 0) == 0;
      const int n = count_in_loop(*f, r, beside ? "$WORK_TRIP" : "$TRIP", row.opcode);
      CHECK(n >= row.count);
      CHECK(n % row.count == 0);  // ptxas may unroll
      CHECK(r.facts.remarks.empty());
      CHECK(r.facts.registers > 0);
      CHECK(r.facts.spill_store_bytes == 0);
    }
  }

  TEST_CASE("every kernel leaves what the host computes, on the emulator at its worst") {
    EmulatorOptions options;
    options.seed = 7;
    options.adversary_level = 2;
    std::unique_ptr<Device> device;
    REQUIRE(open_emulator(options, &device).ok());
    for (const Unit& u : all_units()) {
      CAPTURE(u.name);
      const Result r = run_unit(*device, u, unit_folders(), 1);
      CHECK(r.error == "");
      CHECK(r.checked);
      CHECK_FALSE(r.timed);
    }
    for (const Unit& u : beside_units())
      CHECK(run_beside(*device, u, unit_folders(), 1).error == "");
  }

  TEST_CASE("a check refuses memory that the kernel never wrote") {
    for (const auto& list : {all_units(), beside_units()})
      for (const Unit& u : list) {
        Launch l;
        l.ctas = 2;
        l.iterations = 3;
        l.mma_trips = l.work_trips = 2;
        l.footprint = 16;
        l.scale = u.scale;
        if (u.make_data) l.data = u.make_data(true);
        else if (u.group == "tma") l.data.assign(static_cast<std::size_t>(16 * 128 * 128), 1);
        CAPTURE(u.name);
        CHECK_FALSE(u.check(std::vector<std::uint8_t>(2 * u.out_bytes_per_cta, 0xee), l).empty());
      }
  }

  TEST_CASE("JSON has nvbench's shape, and a unit that was not timed says why") {
    Findings f;
    f.device.name = "emulator";
    Result r;
    r.name = "ffma";
    r.checked = true;
    f.results.push_back(r);
    const auto j = nlohmann::json::parse(json_text(f));
    CHECK(j["benchmarks"][0]["states"][0]["is_skipped"] == true);
    CHECK(j["benchmarks"][0]["states"][0]["skip_reason"] ==
          "timing needs a GPU; the result was checked");
    CHECK(j["meta"]["version"]["json"]["major"] == 1);
  }

  TEST_CASE("charts from a written CSV are those of the run that wrote it") {
    units::Findings f;
    f.device.name = "a card, of one's own";
    units::Result r;
    r.group = "special", r.name = "ex2_f32", r.unit = "results", r.checked = r.timed = true;
    r.median = 15.99, r.expected = 16, r.megahertz = 1980;
    f.results.push_back(r);
    units::BesideSweep sweep;
    sweep.type = "f16", sweep.work = "ex2";
    sweep.points = {{0.001, 4096, 16, 1000, 900, 100, 0}, {0.01, 2048, 16, 2000, 900, 1900, 0.5}};
    f.sweeps.push_back(sweep);
    const units::Findings back = units::read_csv(units::csv_text(f));
    CHECK(units::rates_svg(back) == units::rates_svg(f));
    CHECK(units::beside_svg(back) == units::beside_svg(f));
    CHECK_THROWS_WITH(units::read_csv("a,b\n"), "line 1: no line of `units --csv`");
  }
}
