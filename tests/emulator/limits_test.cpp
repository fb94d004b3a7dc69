// What the emulator says of its own limits is true: refused by name, or read and without effect.
// Next: host/emulator/device.cpp, emulator_limits().
#include <bit>

#include "tests/emulator/machine.h"

using namespace flashptx;
using namespace flashptx::emulator::test;

TEST_SUITE("emulator/limits") {
  TEST_CASE("what the list says is not there is refused at load, by its name") {
    const struct {
      const char *body, *name;
    } missing[] = {
        {".local .b32 mem; st.local.b32 [mem], %r1;", "local"},
        {"call.uni f;", "call"},
        {"tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd0, {%f4, %f5}];", "tex"},
        {"add.cc.u32 %r1, %r2, %r3;", "cc"},
        {"addc.u32 %r1, %r2, %r3;", "addc"},
        {"st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], %r2, [%r3];", "async"},
        {"red.async.relaxed.cluster.global.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r1], %r2, [%r3];", "async"},
        {"cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%rd0, {%r2, %r3, %r4}], [%r5], {%h0};",
         "im2col"},
        {"mma.sync.aligned.m16n8k32.row.col.s32.s4.s4.s32 {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%r6}, {%r0, %r1, %r2, %r3};", "s4"},
        {"mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r4, %r5, %r6, %r7}, {%r8, %r9, %r10, %r11}, "
         "{%f0, %f1, %f2, %f3}, %r12, 0x0;",
         "sp"},
        {"wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd0, %rd1, %r0, 0, 1, 1, 1, 0, 0;", "sp"},
    };
    for (const auto& m : missing) {
      const Result r = run(m.body);
      CHECK_MESSAGE(r.status.code == StatusCode::bad_ptx, m.body, ": ", r.status.message);
      CHECK_MESSAGE(mentions(r.status, m.name), m.body, ": ", r.status.message);
    }
    const std::string text = kernel("") + ".func f() { ret; }\n";
    Launcher l;
    std::uint64_t out = l.buffer(256);
    LaunchDims d;
    d.block[0] = 32;
    const Status s = l.launch(text, "k", {&out}, d);
    CHECK((s.code == StatusCode::bad_ptx && mentions(s, "func")));
    for (const char* word : {".func", ".local", "textures", "im2col", "add.cc", "st.async", "red.async", "sparse", "race",
                             "approximate", ".pragma", "time", "griddepcontrol"})
      CHECK_MESSAGE(emulator_limits().find(word) != std::string::npos, word);
  }

  TEST_CASE("a loop that ptxas is told not to unroll runs as one, and hints change nothing") {
    const Result r = run(R"(.loc 1 7 0
mov.u32 %r1, 0; mov.u32 %r2, 0;
LOOP:
.pragma "nounroll";
add.u32 %r2, %r2, %t; add.u32 %r1, %r1, 1;
setp.lt.u32 %p1, %r1, 5;
@%p1 bra LOOP;
prefetch.global.L2 [%at];
cvt.u64.u32 %rd1, %r2; st.global.u64 [%at], %rd1;)");
    REQUIRE_MESSAGE(r.status.ok(), r.status.message);
    for (std::size_t t = 0; t < 32; ++t) CHECK(r.out[t] == 5 * t);
  }

  TEST_CASE("bfind finds the leading bit of either sign, its distance from the left, and says -1 of none") {
    const auto find = [](const char* text, std::uint32_t want0, std::uint32_t want5, std::uint32_t want31) {
      const Result r = run(text);
      REQUIRE_MESSAGE(r.status.ok(), text, ": ", r.status.message);
      CHECK_MESSAGE((r.out[0] == want0 && r.out[5] == want5 && r.out[31] == want31), text, ": ", r.out[0], " ", r.out[5], " ", r.out[31]);
    };
    // 0, 5 and 31; then minus these: PTX ISA, "bfind": the most significant bit that differs from the sign.
    find("bfind.u32 %r1, %t; cvt.u64.u32 %rd1, %r1; st.global.u64 [%at], %rd1;", ~0u, 2, 4);
    find("bfind.shiftamt.u32 %r1, %t; cvt.u64.u32 %rd1, %r1; st.global.u64 [%at], %rd1;", ~0u, 29, 27);
    find("neg.s32 %r1, %t; bfind.s32 %r1, %r1; cvt.u64.u32 %rd1, %r1; st.global.u64 [%at], %rd1;", ~0u, 2, 4);
    find("cvt.u64.u32 %rd1, %t; shl.b64 %rd1, %rd1, 40; bfind.u64 %r1, %rd1; cvt.u64.u32 %rd1, %r1; st.global.u64 [%at], %rd1;",
         ~0u, 42, 44);
    find("cvt.u64.u32 %rd1, %t; bfind.shiftamt.u64 %r1, %rd1; cvt.u64.u32 %rd1, %r1; st.global.u64 [%at], %rd1;", ~0u, 61, 59);
  }
}
