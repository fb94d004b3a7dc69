// The reader of machine code: control bits against encodings read by hand, loops, PTX lines, what
// ptxas moved. The fixture text is what nvdisasm prints; the last case asks the programs themselves
// where they are found. Next: tools/flashptx/sass.h.
#include "tools/flashptx/sass.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/support.h"

using namespace flashptx::sass;

namespace {

// An instruction as nvdisasm -hex prints it.
std::string row(int address, const std::string& text, const char* low, const char* high) {
  char head[32];
  std::snprintf(head, sizeof head, "        /*%04x*/   ", address);
  return head + text + " ;   /* " + low + " */\n      /* " + high + " */\n";
}
std::string plain(int address, const std::string& text) {
  return row(address, text, "0x0000000000007918", "0x000fc00000000000");
}
std::string line(int n) {
  return "\t//## File \".nv_debug_ptx_txt\", line " + std::to_string(n) + "\n";
}

// A kernel with one loop: wgmma, an exp under it, the wait, an exp behind it that stood before it
// in the PTX; and an mbarrier wait whose second try lies behind the code and jumps back into the
// loop.
std::string fixture() {
  return "\t.section\t.text.k,\"ax\",@progbits\nk:\n" + line(1) + plain(0x00, "MOV R1, R2") +
         ".L_x_1:\n" + line(3) + plain(0x10, "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R3") +
         plain(0x20, "@!P0 BRA `(.L_x_2)") + ".L_x_3:\n" + line(6) +
         plain(0x30, "HGMMA.64x32x16.F32.BF16 R56, gdesc[UR8], RZ, !UPT") + line(7) +
         plain(0x40, "HGMMA.64x32x16.F32.BF16 R56, gdesc[UR8], R56, gsb0") + line(8) +
         plain(0x50, "MUFU.EX2 R4, R5") + line(10) + plain(0x60, "WARPGROUP.DEPBAR.LE gsb0, 0x0") +
         line(9) + plain(0x70, "MUFU.EX2 R6, R7") + line(11) + plain(0x80, "@P1 BRA `(.L_x_1)") +
         line(12) + plain(0x90, "EXIT") + ".L_x_2:\n" + line(3) +
         plain(0xa0, "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R3+URZ], R2") +
         plain(0xb0, "@!P0 BRA `(.L_x_2)") + plain(0xc0, "BRA `(.L_x_3)");
}

const char* fixture_ptx =
    "mov.u32 %a, %b;\n"
    "// == softmax loop\n"
    "mbarrier.try_wait.parity.shared::cta.b64 p, [full], phase;\n"
    "\n"
    "// == S = Q K^T ==\n"
    "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {d}, a, b, 0, 1, 1, 0, 0;\n"
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {d}, a, b, 1, 1, 1, 0, 0;\n"
    "ex2.approx.ftz.f32 x, y;\n"
    "ex2.approx.ftz.f32 z, w;\n"
    "wgmma.wait_group.sync.aligned 0;\n"
    "@p bra $KV_LOOP;\n"
    "ret;\n";

}  // namespace

TEST_SUITE("tools/sass") {
  TEST_CASE("decodes the control bits of known encodings") {
    const Control plain_ldc = decode_control(0x000fe20000000800);  // LDC R1, c[0x0][0x28]
    CHECK(plain_ldc.stall == 1);
    CHECK_FALSE(plain_ldc.yield);
    CHECK(plain_ldc.write_barrier == -1);
    CHECK(plain_ldc.read_barrier == -1);
    CHECK(plain_ldc.wait_mask == 0u);
    const Control s2r =
        decode_control(0x000e2e0000002100);  // S2R R0, SR_TID.X: sets scoreboard 0 when done
    CHECK(s2r.stall == 7);
    CHECK(s2r.write_barrier == 0);
    const Control isetp =
        decode_control(0x001fc60003f05070);  // ISETP that reads R0: waits for scoreboard 0
    CHECK(isetp.wait_mask == 1u);
    CHECK(isetp.stall == 3);
    const Control ulea = decode_control(0x002fc8000f8ec03f);  // waits for scoreboard 1, yields
    CHECK(ulea.wait_mask == 2u);
    CHECK(ulea.yield);
    CHECK(ulea.stall == 4);
    CHECK(decode_control(0x180fe2000001080a).reuse ==
          0x6u);  // FFMA R58, R58, R15.reuse, -R10.reuse: slots 1 and 2
    CHECK(decode_control(std::uint64_t{3} << 49).read_barrier == 3);
  }

  TEST_CASE("finds the loop and not the slow path of an mbarrier wait") {
    const Function f = parse_disassembly(fixture()).at(0);
    REQUIRE(f.code.size() == 13);
    std::vector<Loop> real, polling;
    for (const Loop& l : find_loops(f)) (l.polling ? polling : real).push_back(l);
    REQUIRE(real.size() == 1);
    CHECK(real[0].head == 1);
    CHECK(real[0].last == 8);
    REQUIRE(polling.size() == 1);
    CHECK(f.code[static_cast<std::size_t>(polling[0].head)].address == 0xa0u);
  }

  TEST_CASE("maps lines to sections and counts what lies under the wgmma") {
    Function f = parse_disassembly(fixture()).at(0);
    const Report r = analyse(f, read_ptx(fixture_ptx), {});
    CHECK(f.code[1].step == "softmax loop");
    CHECK(f.code[3].step == "S = Q K^T");
    REQUIRE(r.loops.size() == 1);
    CHECK(r.loops[0].loop.name == "$KV_LOOP");
    CHECK(r.loops[0].mufu == 2);
    CHECK(r.loops[0].mufu_under_wgmma == 1);
    CHECK(r.loops[0].mufu_moved == 1);
    CHECK(r.loops[0].instructions == 8);
  }

  TEST_CASE("finds a register of A that is written before a wait covers its wgmma, round a loop too") {
    const auto kernel = [](const std::string& body) {
      return parse_disassembly("\t.section\t.text.k,\"ax\",@progbits\nk:\n" + body).at(0);
    };
    const std::string first = plain(0x10, "HGMMA.64x128x16.F32.BF16 R24, R120, gdesc[UR16].tnspB, R24, UP0, gsb0"),
                      second = plain(0x20, "HGMMA.64x64x16.F32.BF16 R88, gdesc[UR16], RZ, !UPT, gsb0"),
                      pack = plain(0x40, "F2FP.BF16.F32.PACK_AB R123, R89, R88"), end = plain(0x90, "EXIT");
    const auto wait = [](const char* open) { return plain(0x30, std::string("WARPGROUP.DEPBAR.LE gsb0, ") + open); };
    CHECK(early_writes_of_a(kernel(first + second + wait("0x0") + pack + end)).empty());
    CHECK(early_writes_of_a(kernel(first + second + wait("0x1") + pack + end)).empty());  // the older of two is done
    const auto early = early_writes_of_a(kernel(first + wait("0x1") + pack + end));
    REQUIRE(early.size() == 1);
    CHECK((early[0].wgmma == 0 && early[0].writer == 2 && early[0].reg == 123));
    CHECK(early_writes_of_a(kernel(first + pack + wait("0x0") + end)).size() == 1);
    CHECK(early_writes_of_a(kernel(second + pack + wait("0x0") + end)).empty());  // A in shared memory
    // A write of four registers, the last of them of A.
    CHECK(early_writes_of_a(kernel(first + plain(0x40, "LDS.128 R117, [R4]") + end)).size() == 1);
    CHECK(early_writes_of_a(kernel(first + plain(0x40, "STS.128 [R4], R120") + end)).empty());
    CHECK(early_writes_of_a(kernel(first + plain(0x40, "SHFL.BFLY PT, R121, R4, 0x1, 0x1f") + end)).size() == 1);
    CHECK(early_writes_of_a(kernel(first + plain(0x40, "ISETP.GE.AND P4, PT, R121, UR13, PT") + end)).empty());
    // The write stands in front of the wgmma and comes after it in the next turn.
    const std::string turn = plain(0x60, "@P1 BRA `(.L_x_1)");
    const std::string loop = ".L_x_1:\n" + plain(0x00, "MOV R120, R4") + first;
    CHECK(early_writes_of_a(kernel(loop + wait("0x0") + turn + end)).empty());
    CHECK(early_writes_of_a(kernel(loop + turn + wait("0x0") + end)).size() == 1);
    // One of two ways to the write has no wait.
    CHECK(early_writes_of_a(kernel(first + plain(0x20, "@P1 BRA `(.L_x_2)") + wait("0x0") + ".L_x_2:\n" + pack + end)).size() == 1);
  }

  TEST_CASE("says when a wgmma has another shape than the PTX asked for") {
    Function f = parse_disassembly(fixture()).at(0);
    const Report r = analyse(f, read_ptx(fixture_ptx), {});
    int shape = 0, moved = 0;
    for (const std::string& w : r.warnings) {
      shape += w.find("64x64x16 became HGMMA.64x32x16") != std::string::npos;
      moved += w.find("moved 1 of 2 MUFU") != std::string::npos;
    }
    CHECK(shape == 1);
    CHECK(moved == 1);
  }

  TEST_CASE("reads registers, spills and C75xx from the assembler's log") {
    const AssemblerFacts facts = parse_assembler_log(
        "ptxas info    : (C7513) Potential Performance Loss: wgmma.mma_async instructions are "
        "serialized in the function 'k'\n"
        "ptxas info    : Compiling entry function 'other' for 'sm_90a'\n    0 bytes stack frame, 9 "
        "bytes spill stores, 9 bytes spill loads\n"
        "ptxas info    : Used 11 registers\n"
        "ptxas info    : Compiling entry function 'k' for 'sm_90a'\nptxas info    : Function "
        "properties for k\n"
        "    8 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads\nptxas info    : "
        "Used 168 registers, used 16 barriers\n",
        "k");
    CHECK(facts.registers == 168);
    CHECK(facts.spill_store_bytes == 16);
    CHECK(facts.spill_load_bytes == 20);
    CHECK(facts.stack_bytes == 8);
    CHECK(facts.remarks.size() == 1);
  }

  TEST_CASE("the n-th wgmma has the line of the n-th of the PTX, whatever the line table says") {
    std::string text = fixture();
    const std::string hgmma = line(6) + plain(0x30, "HGMMA.64x32x16.F32.BF16 R56, gdesc[UR8], RZ, !UPT") + line(7);
    const auto at = text.find(hgmma);
    REQUIRE(at != std::string::npos);
    // As ptxas does: both under the line of the instruction before.
    text.replace(at, hgmma.size(), line(4) + plain(0x30, "HGMMA.64x32x16.F32.BF16 R56, gdesc[UR8], RZ, !UPT"));
    Function f = parse_disassembly(text).at(0);
    REQUIRE(f.code[3].ptx_line == 4);
    const Report r = analyse(f, read_ptx(fixture_ptx), {});
    CHECK(f.code[3].ptx_line == 6);
    CHECK(f.code[4].ptx_line == 7);
    CHECK(f.code[3].step == "S = Q K^T");
    // With fewer in the PTX nothing can be said.
    std::string fewer = fixture_ptx;
    fewer.erase(fewer.find("wgmma.mma_async"), 5);
    Function g = parse_disassembly(text).at(0);
    analyse(g, read_ptx(fewer), {});
    CHECK(g.code[3].ptx_line == 4);
  }

  TEST_CASE("a cubin's registers and spills are unknown, not none") {
    Function f = parse_disassembly(fixture()).at(0);
    const Report r = analyse(f, read_ptx(""), {});
    CHECK(report_text(r).find("registers and spills unknown") != std::string::npos);
    CHECK(nlohmann::json::parse(report_json(f, r))["registers"].is_null());
  }

  TEST_CASE("refuses text that is no disassembly") {
    CHECK_THROWS_AS(parse_disassembly("hello\n"), std::runtime_error);
  }

  TEST_CASE("JSON carries address, control bits, PTX line and step") {
    Function f = parse_disassembly(fixture()).at(0);
    const auto j = nlohmann::json::parse(report_json(f, analyse(f, read_ptx(fixture_ptx), {})));
    CHECK(j["instructions"][3]["address"] == 0x30);
    CHECK(j["instructions"][3]["ptx_line"] == 6);
    CHECK(j["instructions"][3]["step"] == "S = Q K^T");
    CHECK(j["instructions"][3]["control"]["write_barrier"] == -1);
    CHECK(j["loops"][0]["mufu_moved_behind_wait"] == 1);
  }

  TEST_CASE("the installed programs: a loop of four exps is found with its PTX lines") {
    const Tools tools = find_tools();
    if (tools.ptxas.empty() || !tools.has_lines) FLASHPTX_SKIP(tools.how_to_get);
    const std::string ptx =
        ".version 8.0\n.target sm_90a\n.address_size 64\n"
        ".visible .entry k(.param .u64 out, .param .u32 n)\n{\n.reg .f32 %x;\n.reg .u32 %i, "
        "%n;\n.reg .u64 %o;\n.reg .pred %p;\n"
        "ld.param.u64 %o, [out];\nld.param.u32 %n, [n];\nmov.u32 %i, 0;\nmov.f32 %x, 0f3F000000;\n"
        "// == chain\n$AGAIN:\nex2.approx.ftz.f32 %x, %x;\nex2.approx.ftz.f32 %x, "
        "%x;\nex2.approx.ftz.f32 %x, %x;\nex2.approx.ftz.f32 %x, %x;\n"
        "add.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, %n;\n.pragma \"nounroll\";\n@%p bra "
        "$AGAIN;\nst.global.f32 [%o], %x;\nret;\n}\n";
    const Assembled a = assemble(tools, ptx);
    Function f = parse_disassembly(a.disassembly).at(0);
    const Report r = analyse(f, read_ptx(ptx), parse_assembler_log(a.log, "k"));
    CHECK(r.facts.registers > 0);
    REQUIRE(r.loops.size() >= 1);
    bool found = false;
    for (const LoopReport& l : r.loops)
      found |= l.loop.name == "$AGAIN" && l.mufu >= 4 && l.mufu % 4 == 0;
    CHECK(found);
  }
}
