// The parser on good and bad text: constants, messages with line and column, refusals by name, and
// mutilated text.
//
// Next: host/emulator/ptx_parser.cpp.
#include <random>

#include "host/emulator/ptx_ast.h"
#include "tests/emulator/machine.h"

using namespace flashptx;
using namespace flashptx::emulator;
using namespace flashptx::emulator::test;

namespace {

std::string load_error(const std::string& text) {
  Launcher l;
  LoadedKernel* k = nullptr;
  Status s = l.device->load(text, "k", 0, &k);
  CHECK(s.code == StatusCode::bad_ptx);
  return s.message;
}
void refuses(const std::string& body, const std::string& words) {
  std::string m = load_error(kernel(body));
  CHECK_MESSAGE(m.find(words) != std::string::npos, m);
  CHECK_MESSAGE(m.rfind("k.ptx:", 0) == 0, m);
}

}  // namespace

TEST_SUITE("emulator/parser") {
  TEST_CASE("constants are read in every notation") {
    for (auto [text, bits] : std::initializer_list<std::pair<const char*, std::uint64_t>>{
             {"10", 10},
             {"-1", ~0ull},
             {"0x1F", 31},
             {"0b101", 5},
             {"017", 15},
             {"0", 0},
             {"5U", 5},
             {"(1 << 4) | 3", 19},
             {"~0", ~0ull},
             {"2 + 3 * 4", 14},
             {"0f3F800000", 0x3f800000},
             {"0d3FF0000000000000", 0x3ff0000000000000ull},
             {"1.5", 0x3ff8000000000000ull},
             {"1e3", 0x408f400000000000ull}}) {
      AstModule m = parse_ptx(".entry k() { mov.u32 %r, " + std::string(text) + "; }", "t");
      CHECK_MESSAGE(m.kernels[0].body[0].instruction.operands[1].bits == bits, text);
    }
  }
  TEST_CASE("an error names file, line, column, what was expected and what stands there") {
    std::string out;
    Status s =
        emulator_reprint(".version 8.0\n.entry k()\n{\n  mov.u32 %r1 %r2;\n}\n", "x.ptx", &out);
    CHECK(s.message == "x.ptx:4:15: expected ; or , after an operand of mov.u32, got %r2");
    s = emulator_reprint("/* open", "x.ptx", &out);
    CHECK(mentions(s, "x.ptx:1:1: expected */"));
    s = emulator_reprint(".entry k() { ld.u32 %r, [%a+; }", "x.ptx", &out);
    CHECK(mentions(s, "x.ptx:1:29"));
  }
  TEST_CASE("refuses targets and versions that it does not know, and zero bytes, with their place") {
    std::string out;
    auto said = [&](const std::string& text) { return emulator_reprint(text, "x.ptx", &out).message; };
    CHECK(said(".version 8.0\n.target sm_80\n") == "x.ptx:2:9: expected the target sm_90 or sm_90a, got sm_80");
    CHECK(said(".version 7.0\n").rfind("x.ptx:1:10: expected a PTX version", 0) == 0);
    CHECK(said(".version 7.8\n.target sm_90a\n").rfind("x.ptx:2:9: expected sm_90, for sm_90a", 0) == 0);
    CHECK(said(std::string(".version 8.0\n  \0", 16)) == "x.ptx:2:3: a zero byte: this is no PTX text");
    CHECK(said(std::string("// note\0 more", 13)).rfind("x.ptx:1:8: a zero byte", 0) == 0);
    CHECK(said(".version 7.8\n.target sm_90\n") == "");
  }
  TEST_CASE("what is not implemented is refused by name") {
    refuses("frob.u32 %r1, %r2;", "the opcode frob.u32 is not implemented");
    refuses("add.frob.u32 %r1, %r2, %r3;", "the qualifier .frob is not implemented");
    refuses("add.u32 %r1, %r2, %nowhere;", "%nowhere is not declared");
    refuses("add.u32 %rd1, %r2, %r3;", "%rd1 has 64 bits, expected 32");
    refuses("bra NOWHERE;", "expected a label");
    refuses("add.u32 %r1, %r2;", "expected 3 operands, got 2");
    refuses("@%r1 mov.u32 %r2, 0;", "not a predicate");
    refuses("setmaxnreg.inc.sync.aligned.u32 30;", "count 30 must be a multiple of 8 in [24, 256]");
    refuses(
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, 0, "
        "1, 1, 0, 0;",
        "k16");
    refuses(".reg .b32 %tid;", "special register");
    refuses("{ .reg .b32 %inner; }\nmov.u32 %inner, 0;", "destination register");
  }
  TEST_CASE("mutilated text ends in an error or a module, never in a crash") {
    std::mt19937 g(7);
    for (const char* name :
         {"11_fa3_loop", "07_tensormap_replace", "06_tma_store_reduce", "14_convert_math"}) {
      std::string text =
                      flashptx::test::read_file(std::string("tests/emulator/ptx/") + name + ".ptx"),
                  printed;
      std::size_t at = text.find(".entry ") + 7;
      std::string entry = text.substr(at, text.find('(', at) - at);
      for (int i = 0; i < 60; ++i) {
        std::string t = text;
        for (int k = 0; k < 1 + i % 4; ++k) {
          std::size_t p = g() % t.size(), n = 1 + g() % 12;
          switch (g() % 4) {
            case 0:
              t.erase(p, n);
              break;
            case 1:
              t[p] = static_cast<char>(g() % 256);
              break;
            case 2:
              t.insert(p, t.substr(g() % t.size(), n));
              break;
            default:
              t.resize(p + 1);
          }
        }
        Launcher l;
        LoadedKernel* kernel = nullptr;
        Status s = l.device->load(t, entry, 0, &kernel);
        CHECK((s.ok() || s.code == StatusCode::bad_ptx));
        CHECK((s.ok() || !s.message.empty()));
      }
    }
    std::string deep(100000, '{');
    CHECK(load_error(".entry k() " + deep).find("nested") != std::string::npos);
    CHECK(!load_error(".entry k() { mov.u32 %r, " + std::string(100000, '(') + "; }").empty());
    CHECK(!load_error(".entry k() { mov.u32 %r, " + std::string(100000, '-') + "1; }").empty());
  }
}
