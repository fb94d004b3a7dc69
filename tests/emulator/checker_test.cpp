// Each hazard planted once: the mutant must be reported with the right words, its clean twin must
// run.
//
// The kernels are small and whole; a mutant differs from its twin in one place. Reported means on
// the round-robin schedule, where the hazard does no harm: the checkers reason about order, they do
// not wait for bad luck. Next: tests/emulator/instruction_test.cpp.
#include "host/emulator/numeric.h"
#include "tests/emulator/machine.h"

using namespace flashptx;
using namespace flashptx::emulator;
using namespace flashptx::emulator::test;

namespace {

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  std::size_t at = text.find(what);
  REQUIRE_MESSAGE(at != std::string::npos, what);
  return text.replace(at, what.size(), with);
}

// `out` is 64 KiB of global memory, `map` a bf16 tile map {64, 64} over it.
Status launch(const std::string& text, int threads, std::uint64_t seed = 0, int level = 1,
              int cluster = 1) {
  Launcher l(seed, level);
  std::vector<std::uint16_t> ones(32768, f32_to_bf16(1.0f));
  std::uint64_t out = l.upload(ones);
  TensorMapDesc d;
  d.name = "tile";
  d.address = out;
  d.rank = 2;
  d.dims[0] = 64, d.dims[1] = 128;
  d.stride_bytes[0] = 128;
  d.box[0] = 64, d.box[1] = 64;
  TensorMap map;
  REQUIRE(l.device->encode(d, &map).ok());
  LaunchDims dims;
  dims.block[0] = static_cast<std::uint32_t>(threads);
  dims.cluster[0] = dims.grid[0] = static_cast<std::uint32_t>(cluster);
  return l.launch(text, "k", {&out, &map}, dims);
}

std::string with_map(const std::string& body, int threads) {
  return kernel(body, threads, ", .param .align 64 .b8 p_map[128]");
}

void pair(const std::string& clean, const std::string& mutant, int threads,
          const std::string& words) {
  for (int seed = 0; seed < 4; ++seed) {
    Status good = launch(clean, threads, static_cast<std::uint64_t>(seed), 1 + seed % 2);
    CHECK_MESSAGE(good.ok(), good.message);
  }
  Status bad = launch(mutant, threads);
  CHECK_MESSAGE(!bad.ok(), "not reported: " << words);
  CHECK_MESSAGE(mentions(bad, words), bad.message);
  CHECK(bad.code == StatusCode::launch_failed);
  CHECK_MESSAGE(mentions(bad, "k.ptx:"), bad.message);
}
void pair(const std::string& clean, const std::string& what, const std::string& with, int threads,
          const std::string& words) {
  pair(clean, replaced(clean, what, with), threads, words);
}

// One warpgroup: TMA brings a 64 x 64 tile, wgmma multiplies it with itself, the result goes out by
// TMA.
const std::string tile = R"(
.shared .align 1024 .b8 a[8192];
.shared .align 8 .b64 full;
.reg .f32 %s<32>;
.reg .b64 %map, %desc, %t64;
.reg .b32 %addr, %bar, %zero;
mov.b64 %t64, p_map; cvta.param.u64 %map, %t64;
mov.u32 %addr, a; mov.u32 %bar, full; mov.u32 %zero, 0;
setp.eq.u32 %p0, %t, 0;
@%p0 mbarrier.init.shared::cta.b64 [%bar], 1;
@%p0 fence.mbarrier_init.release.cluster;
bar.sync 0;
@!%p0 bra WAIT;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 8192;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%addr], [%map, {%zero, %zero}], [%bar];
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%bar], 0;
@!%p1 bra WAIT;
shr.u32 %r0, %addr, 4; or.b32 %r0, %r0, 0x10000; mov.b64 %desc, {%r0, 0x40000040};
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
 {%s0, %s1, %s2, %s3, %s4, %s5, %s6, %s7, %s8, %s9, %s10, %s11, %s12, %s13, %s14, %s15, %s16, %s17, %s18, %s19, %s20, %s21,
  %s22, %s23, %s24, %s25, %s26, %s27, %s28, %s29, %s30, %s31}, %desc, %desc, 0, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
add.f32 %f0, %s0, %s1;
bar.sync 1, 128;
shl.b32 %r1, %t, 2; add.u32 %r1, %r1, %addr;
st.shared.f32 [%r1], %f0;
fence.proxy.async.shared::cta;
bar.sync 2, 128;
@!%p0 bra DONE;
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {%zero, %zero}], [%addr];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
DONE:
)";
const std::string clean_tile = with_map(tile, 128);

}  // namespace

TEST_SUITE("emulator/checkers") {
  TEST_CASE("an accumulator read before its wait_group is reported") {
    pair(clean_tile, "wgmma.wait_group.sync.aligned 0;", "", 128,
         "reads %s0 while the wgmma that accumulates into it");
    pair(clean_tile, "wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;", 128,
         "wait_group 0 missing");
    pair(clean_tile, "wgmma.wait_group.sync.aligned 0;",
         "mov.f32 %s5, 0f00000000;\nwgmma.wait_group.sync.aligned 0;", 128,
         "writes %s5 while the wgmma that accumulates into it");
  }
  TEST_CASE("a wgmma that no commit covers is reported") {
    pair(clean_tile, "wgmma.commit_group.sync.aligned;", "", 128, "wgmma.commit_group");
  }
  TEST_CASE("a buffer used again under a copy or a wgmma that no commit covers: it is the commit that is missing") {
    const std::string again = "bar.sync 4, 128;\nst.shared.f32 [%r1], %f0;\n";
    const std::string stored = with_map(replaced(tile, "DONE:\n", "DONE:\n" + again), 128);
    const Status uncommitted = launch(replaced(stored, "cp.async.bulk.commit_group;", ""), 128);
    CHECK_MESSAGE(mentions(uncommitted, "its cp.async.bulk.commit_group is missing"), uncommitted.message);
    const Status unwaited = launch(replaced(stored, "cp.async.bulk.wait_group.read 0;", ""), 128);
    CHECK_MESSAGE(mentions(unwaited, "cp.async.bulk.wait_group.read is missing, or bar.warp.sync after it"), unwaited.message);
    // The word is written before anything looks at the accumulators.
    const std::string early = "bar.sync 3, 128;\nshl.b32 %r1, %t, 2; add.u32 %r1, %r1, %addr;\nst.shared.u32 [%r1], %t;\nadd.f32 %f0, %s0, %s1;";
    const std::string reused = replaced(clean_tile, "add.f32 %f0, %s0, %s1;", early);
    const Status open = launch(replaced(reused, "wgmma.commit_group.sync.aligned;", ""), 128);
    CHECK_MESSAGE(mentions(open, "its wgmma.commit_group is missing"), open.message);
    const Status flying = launch(replaced(reused, "wgmma.wait_group.sync.aligned 0;", ""), 128);
    CHECK_MESSAGE(mentions(flying, "its wgmma.wait_group, or a barrier after it, is missing"), flying.message);
  }
  TEST_CASE("a store to where an earlier one may still write is reported; .read does not say that it has written") {
    const std::string again = "fence.proxy.async.shared::cta;\nbar.sync 4, 128;\n@!%p0 bra END;\n"
                              "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {%zero, %zero}], [%addr];\n"
                              "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\nEND:\n";
    const std::string twice = replaced(tile, "DONE:\n", "DONE:\n" + again);
    const std::string clean = with_map(replaced(twice, "wait_group.read 0;\nDONE", "wait_group 0;\nDONE"), 128);
    pair(clean, "wait_group 0;\nDONE", "wait_group.read 0;\nDONE", 128, "cp.async.bulk.wait_group 0 missing (.read is not enough)");
    pair(clean, "wait_group 0;\nDONE", "wait_group 1;\nDONE", 128, "cp.async.bulk.wait_group 0 missing");
  }
  TEST_CASE("a missing wgmma.fence is reported") {
    pair(clean_tile, "wgmma.fence.sync.aligned;", "", 128, "without a wgmma.fence");
    pair(clean_tile, "wgmma.fence.sync.aligned;",
         "wgmma.fence.sync.aligned;\nmov.f32 %s3, 0f00000000;", 128,
         "accumulates into %s3, which ordinary instructions touched");
  }
  TEST_CASE("an A register overwritten in flight is reported") {
    std::string text = replaced(clean_tile, "%s30, %s31}, %desc, %desc, 0, 1, 1, 0, 0;",
                                "%s30, %s31}, {%r4, %r5, %r6, %r7}, %desc, 0, 1, 1, 0;");
    text = replaced(text, "wgmma.fence",
                    "mov.b32 %r4, 0; mov.b32 %r5, 0; mov.b32 %r6, 0; mov.b32 %r7, 0;\nwgmma.fence");
    pair(text, "wgmma.wait_group.sync.aligned 0;",
         "mov.b32 %r6, 1;\nwgmma.wait_group.sync.aligned 0;", 128,
         "writes %r6 while the wgmma that reads it as A operand");
    pair(text, "mov.b32 %r6, 0;", "", 128, "reads %r6, which has no value");
  }
  TEST_CASE("shared memory read before its phase completed is reported") {
    pair(clean_tile, "@!%p1 bra WAIT;", "", 128, "this warp has not waited for that phase");
  }
  TEST_CASE("a wait on the wrong parity is reported with the phase seen") {
    pair(clean_tile, "%p1, [%bar], 0;", "%p1, [%bar], 1;", 128, "for parity 1; it is in phase 1");
  }
  TEST_CASE("shared memory overwritten while wgmma may read it is reported") {
    pair(clean_tile, "wgmma.wait_group.sync.aligned 0;",
         "mov.f32 %f9, 0f00000000; setp.eq.u32 %p5, %t, 127; @%p5 st.shared.f32 [%addr], "
         "%f9;\nwgmma.wait_group.sync.aligned 0;",
         128, "which the wgmma at line");
  }
  TEST_CASE("generic writes that reach the async proxy without a fence are reported") {
    pair(clean_tile, "fence.proxy.async.shared::cta;", "", 128,
         "fence.proxy.async by the writer is missing");
    pair(clean_tile, "fence.proxy.async.shared::cta;", "@%p0 fence.proxy.async.shared::cta;", 128,
         "fence.proxy.async by the writer is missing");
  }
  TEST_CASE("a missing barrier between writers and the store is reported") {
    pair(clean_tile, "bar.sync 2, 128;", "", 128, "no barrier orders the two");
  }
  TEST_CASE("an exit before the bulk store has read its source is reported") {
    pair(clean_tile, "cp.async.bulk.wait_group.read 0;", "", 128, "wait_group.read 0 missing");
    pair(clean_tile, "cp.async.bulk.commit_group;", "", 128,
         "commit_group and cp.async.bulk.wait_group.read 0 missing");
  }
  TEST_CASE("a source overwritten while the bulk store reads it is reported") {
    std::string text = replaced(clean_tile, "cp.async.bulk.wait_group.read 0;\n",
                                "cp.async.bulk.wait_group.read 0;\nst.shared.f32 [%r1], %f0;\n");
    pair(text, "cp.async.bulk.wait_group.read 0;\n", "", 128, "wait_group.read is missing");
  }
  TEST_CASE("wrong expect-tx bytes end in a deadlock that names both sums") {
    pair(clean_tile, "_, [%bar], 8192;", "_, [%bar], 8208;", 128, "expects 8208");
    pair(clean_tile, "_, [%bar], 8192;", "_, [%bar], 4096;", 128, "never sum up");
  }
  TEST_CASE("a missing init fence or init barrier is reported") {
    pair(clean_tile, "@%p0 fence.mbarrier_init.release.cluster;", "", 128,
         "no fence.mbarrier_init");
    pair(clean_tile, "bar.sync 0;", "", 128, "mbarrier");
  }
  TEST_CASE("arrival counts that do not fit are reported") {
    pair(clean_tile, "[%bar], 1;", "[%bar], 2;", 128, "1 of 2 arrivals");
    pair(clean_tile, "mbarrier.arrive.expect",
         "mbarrier.arrive.shared::cta.b64 _, [%bar];\nmbarrier.arrive.expect", 128,
         "for parity 0; it is in phase 2");
  }
  TEST_CASE("an exit with a load that nobody waited for is reported") {
    std::string clean = with_map(R"(
.shared .align 1024 .b8 a[8192];
.shared .align 8 .b64 full;
.reg .b64 %map, %t64;
mov.b64 %t64, p_map; cvta.param.u64 %map, %t64;
mov.u32 %r0, 0; mov.u32 %r1, a;
setp.eq.u32 %p0, %t, 0;
@!%p0 bra END;
mbarrier.init.shared::cta.b64 [full], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 8192;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%map, {%r0, %r0}], [full];
W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [full], 0;
@!%p1 bra W;
END:
)",
                                 32);
    pair(clean, "@!%p1 bra W;", "mov.u32 %r2, 1;", 32, "waited for");
    pair(clean, "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [full], 0;\n@!%p1 bra W;", "", 32,
         "exits without anybody having waited");
  }
  TEST_CASE("a write over a live mbarrier is reported") {
    std::string clean = kernel(
        ".shared .align 8 .b64 b;\nsetp.eq.u32 %p0, %t, 0;\n@%p0 mbarrier.init.shared::cta.b64 "
        "[b], 1;\n"
        "@%p0 mbarrier.inval.shared::cta.b64 [b];\n@%p0 st.shared.u32 [b], %t;\n",
        32, ", .param .align 64 .b8 p_map[128]");
    pair(clean, "@%p0 mbarrier.inval.shared::cta.b64 [b];\n", "", 32, "live mbarrier");
  }
  TEST_CASE("an undefined register or predicate is reported") {
    std::string clean = kernel(
        "mov.u32 %r1, 1;\nadd.u32 %r2, %r1, 1;\nsetp.eq.u32 %p1, %r2, 0;\n@%p1 mov.u32 %r3, 0;\n",
        32, ", .param .align 64 .b8 p_map[128]");
    pair(clean, "mov.u32 %r1, 1;", "", 32, "reads %r1, which has no value");
    pair(clean, "setp.eq.u32 %p1, %r2, 0;", "", 32, "reads %p1, which has no value");
    pair(clean, "mov.u32 %r1, 1;", "setp.lt.u32 %p1, %t, 5;\n@%p1 mov.u32 %r1, 1;", 32, "lane 5");
  }
  TEST_CASE("addresses outside memory and misaligned ones are reported") {
    std::string clean = kernel(
        ".shared .align 4 .b8 s[64];\nmov.u32 %r0, s;\nmov.u32 %r1, 7;\nst.shared.u32 [%r0], "
        "%r1;\nst.global.u32 [%out+4], %r1;\n",
        1, ", .param .align 64 .b8 p_map[128]");
    pair(clean, "st.shared.u32 [%r0]", "st.shared.u32 [%r0+64]", 1,
         "outside the CTA's shared memory");
    pair(clean, "st.shared.u32 [%r0]", "st.shared.u32 [%r0+2]", 1, "not a multiple of 4");
    pair(clean, "[%out+4]", "[%out+65536]", 1, "outside every allocation");
    pair(clean, "[%out+4]", "[%out-4]", 1, "outside every allocation");
  }
  TEST_CASE("a deadlock lists each warp and what it waits for") {
    std::string clean = kernel(
        "setp.lt.u32 %p0, %t, 32;\n@%p0 bra A;\nbar.sync 3, 64;\nbra E;\nA: bar.arrive 3, "
        "64;\nE:\n",
        64, ", .param .align 64 .b8 p_map[128]");
    pair(clean, "bar.arrive 3, 64;", "bar.arrive 4, 64;", 64,
         "waits at barrier 3; 32 of 64 threads");
    pair(clean, "bar.arrive 3, 64;", "bar.arrive 3, 32;", 64, "barrier 3");
    pair(clean, "bar.arrive 3, 64;", "bar.arrive 16, 64;", 64, "barrier 16 does not exist");
    pair(clean, "bar.arrive 3, 64;", "bar.arrive 3, 48;", 64, "multiple of 32");
  }
  TEST_CASE("register requests that can never be met are reported") {
    std::string clean =
        replaced(kernel("setp.lt.u32 %p0, %t, 128;\n@%p0 bra P;\nsetmaxnreg.inc.sync.aligned.u32 "
                        "240;\nbra E;\nP: setmaxnreg.dec.sync.aligned.u32 24;\nE:\n",
                        384, ", .param .align 64 .b8 p_map[128]"),
                 ".reqntid 384", ".reqntid 384\n.minnctapersm 1");
    pair(clean, "u32 240;", "u32 248;", 384, "setmaxnreg.inc 248 can never be met");
    pair(clean, "u32 24;", "u32 88;", 384, ": setmaxnreg.dec 88");  // by its line
    pair(clean, "u32 24;", "u32 40;", 384, "can never be met");
    pair(clean, "dec.sync.aligned.u32 24;", "dec.sync.aligned.u32 176;", 384, "wrong way");
  }
  TEST_CASE("divergent aligned instructions are reported") {
    std::string clean =
        kernel("setp.lt.u32 %p0, %t, 16;\n@%p0 bra E;\nmov.u32 %r0, 1;\nE: bar.sync 0;\n", 32,
               ", .param .align 64 .b8 p_map[128]");
    pair(clean, "mov.u32 %r0, 1;", "bar.sync 1;", 32, "bar.sync");
    pair(clean, "E: bar.sync 0;", "E: @%p0 bar.sync 0;", 32, "part of the warp only");
  }
  TEST_CASE("warps of a warpgroup that disagree on a wgmma are reported") {
    pair(clean_tile, "shr.u32 %r0, %addr, 4;",
         "shr.u32 %r0, %addr, 4; setp.ge.u32 %p4, %t, 96; @%p4 add.u32 %r0, %r0, 2;", 128,
         "differs between the warps");
  }
  TEST_CASE("a swizzle base that the descriptor does not explain is reported") {
    pair(clean_tile, "mov.u32 %addr, a;", "mov.u32 %addr, a; add.u32 %addr, %addr, 64;", 128,
         "128");
  }
  TEST_CASE("the same seed gives the same fault") {
    std::string bad = replaced(clean_tile, "bar.sync 2, 128;", "");
    Status a = launch(bad, 128, 7, 2), b = launch(bad, 128, 7, 2);
    CHECK(!a.ok());
    CHECK(a.message == b.message);
    CHECK(mentions(a, "seed 7"));
    CHECK(mentions(a, "last events of this warp"));
  }
}
