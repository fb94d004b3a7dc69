// Instructions by group, each lane's result computed here from the PTX ISA's definition.
//
// A case is a line or a few of PTX that stores a 64-bit value per thread, and a C++ function of the
// thread number. Next: tests/emulator/parser_test.cpp.
#include <bit>
#include <cmath>
#include <functional>

#include "host/emulator/numeric.h"
#include "tests/emulator/machine.h"

using namespace flashptx;
using namespace flashptx::emulator;
using namespace flashptx::emulator::test;

namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
using Want = std::function<u64(u32)>;

void check_body(const std::string& body, const Want& want, int threads = 32) {
  for (auto [seed, level] : {std::pair{0, 0}, {3, 2}}) {
    Result r = run(body, threads, static_cast<u64>(seed), level);
    CHECK_MESSAGE(r.status.ok(), body << "\n" << r.status.message);
    for (int t = 0; t < threads; ++t)
      if (r.out[static_cast<std::size_t>(t)] != want(static_cast<u32>(t))) {
        CHECK_MESSAGE(r.out[static_cast<std::size_t>(t)] == want(static_cast<u32>(t)),
                      body << "\nthread " << t);
        break;
      }
  }
}
// `op` uses %r1 = t * 0x9e3779b1 + 12345 and %r2 = t * 77 - 1000 and leaves its result in %r3.
u32 first(u32 t) { return t * 0x9e3779b1u + 12345u; }
u32 second(u32 t) { return t * 77u - 1000u; }
void check32(const std::string& op, const std::function<u32(u32, u32)>& f) {
  check_body("mad.lo.u32 %r1, %t, 0x9e3779b1, 12345;\nmad.lo.s32 %r2, %t, 77, -1000;\n" + op +
            "\ncvt.u64.u32 %rd1, %r3;\nst.global.u64 [%at], %rd1;",
        [&](u32 t) { return f(first(t), second(t)); });
}
u32 f32_bits(float f) { return std::bit_cast<u32>(f); }
void check_f32(const std::string& op, const std::function<float(float, float)>& f) {
  check_body(
      "cvt.rn.f32.u32 %f1, %t; mul.f32 %f1, %f1, 0f3EAAAAAB; sub.f32 %f1, %f1, "
      "0f40490FDB;\ncvt.rn.f32.u32 %f2, %t; add.f32 %f2, %f2, 0.25;\n" +
          op + "\nmov.b32 %r3, %f3;\ncvt.u64.u32 %rd1, %r3;\nst.global.u64 [%at], %rd1;",
      [&](u32 t) {
        float a = static_cast<float>(t) * std::bit_cast<float>(0x3EAAAAABu);
        a = a - std::bit_cast<float>(0x40490FDBu);
        return f32_bits(f(a, static_cast<float>(t) + 0.25f));
      });
}
const std::string store32 = "\ncvt.u64.u32 %rd1, %r3;\nst.global.u64 [%at], %rd1;";

}  // namespace

TEST_SUITE("emulator/instructions") {
  TEST_CASE("integer arithmetic") {
    check32("add.u32 %r3, %r1, %r2;", [](u32 a, u32 b) { return a + b; });
    check32("add.sat.s32 %r3, %r1, %r2;", [](u32 a, u32 b) {
      s64 v = s64{static_cast<s32>(a)} + static_cast<s32>(b);
      return static_cast<u32>(std::min<s64>(std::max<s64>(v, INT32_MIN), INT32_MAX));
    });
    check32("sub.s32 %r3, %r1, %r2;", [](u32 a, u32 b) { return a - b; });
    check32("mul.lo.u32 %r3, %r1, %r2;", [](u32 a, u32 b) { return a * b; });
    check32("mul.hi.u32 %r3, %r1, %r2;",
            [](u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); });
    check32("mul.hi.s32 %r3, %r1, %r2;", [](u32 a, u32 b) {
      return static_cast<u32>(s64{static_cast<s32>(a)} * static_cast<s32>(b) >> 32);
    });
    check32("mad.hi.u32 %r3, %r1, %r2, 7;",
            [](u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32) + 7; });
    check32("div.u32 %r3, %r1, 1000;", [](u32 a, u32) { return a / 1000; });
    check32("div.s32 %r3, %r2, 7;",
            [](u32, u32 b) { return static_cast<u32>(static_cast<s32>(b) / 7); });
    check32("rem.s32 %r3, %r2, 7;",
            [](u32, u32 b) { return static_cast<u32>(static_cast<s32>(b) % 7); });
    check32("min.s32 %r3, %r1, %r2;", [](u32 a, u32 b) {
      return static_cast<u32>(std::min(static_cast<s32>(a), static_cast<s32>(b)));
    });
    check32("max.u32 %r3, %r1, %r2;", [](u32 a, u32 b) { return std::max(a, b); });
    check32("abs.s32 %r3, %r2;",
            [](u32, u32 b) { return static_cast<u32>(std::abs(static_cast<s32>(b))); });
    check32("neg.s32 %r3, %r1;", [](u32 a, u32) { return 0 - a; });
    check_body("mul.wide.s32 %rd1, %t, -3;\nmad.wide.u32 %rd1, %t, 5, %rd1;\nst.global.u64 [%at], %rd1;",
          [](u32 t) { return u64{t} * 2; });
    check_body(
        "cvt.u64.u32 %rd1, %t; shl.b64 %rd1, %rd1, 40; mul.hi.u64 %rd1, %rd1, "
        "0x100000000;\nst.global.u64 [%at], %rd1;",
        [](u32 t) { return u64{t} << 8; });
  }
  TEST_CASE("logic, shifts and bit fields") {
    check32("and.b32 %r3, %r1, %r2;", [](u32 a, u32 b) { return a & b; });
    check32("not.b32 %r3, %r1;", [](u32 a, u32) { return ~a; });
    check32("lop3.b32 %r3, %r1, %r2, %t, 0x96;",
            [](u32 a, u32 b) { return a ^ b ^ (b + 1000) / 77; });
    check32("lop3.b32 %r3, %r1, %r2, %r1, 0xE8;", [](u32 a, u32) { return a; });
    check32("shl.b32 %r3, %r1, %t;", [](u32 a, u32 b) { return a << (b + 1000) / 77; });
    check32("shl.b32 %r3, %r1, 32;", [](u32, u32) { return 0u; });
    check32("shr.u32 %r3, %r1, 5;", [](u32 a, u32) { return a >> 5; });
    check32("shr.s32 %r3, %r1, 40;", [](u32 a, u32) { return a >> 31 ? ~0u : 0u; });
    check32("shf.l.wrap.b32 %r3, %r1, %r1, 8;", [](u32 a, u32) { return std::rotl(a, 8); });
    check32("shf.r.clamp.b32 %r3, %r1, %r2, 32;", [](u32, u32 b) { return b; });
    check32("bfe.u32 %r3, %r1, 4, 9;", [](u32 a, u32) { return a >> 4 & 511; });
    check32("bfe.s32 %r3, %r1, 4, 9;",
            [](u32 a, u32) { return static_cast<u32>(static_cast<s32>(a << 19) >> 23); });
    check32("bfi.b32 %r3, %r1, %r2, 8, 8;",
            [](u32 a, u32 b) { return (b & 0xffff00ffu) | (a & 255) << 8; });
    check32("popc.b32 %r3, %r1;", [](u32 a, u32) { return static_cast<u32>(std::popcount(a)); });
    check32("clz.b32 %r3, %r1;", [](u32 a, u32) { return static_cast<u32>(std::countl_zero(a)); });
    check32("bfind.u32 %r3, %r1;",
            [](u32 a, u32) { return static_cast<u32>(31 - std::countl_zero(a)); });
    check32("brev.b32 %r3, %r1;", [](u32 a, u32) {
      u32 r = 0;
      for (int i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i);
      return r;
    });
    check32("prmt.b32 %r3, %r1, %r2, 0x6420;", [](u32 a, u32 b) {
      return (a & 255) | (a >> 16 & 255) << 8 | (b & 255) << 16 | (b >> 16 & 255) << 24;
    });
    check32("prmt.b32 %r3, %r1, %r2, 0x888F;",
            [](u32 a, u32 b) { return (b >> 31 ? 0xffu : 0u) | (a & 0x80 ? 0xffffff00u : 0u); });
  }
  TEST_CASE("comparison and selection") {
    check32("setp.lt.s32 %p1, %r1, %r2; selp.b32 %r3, 1, 2, %p1;",
            [](u32 a, u32 b) { return static_cast<s32>(a) < static_cast<s32>(b) ? 1u : 2u; });
    check32("setp.lo.u32 %p1|%p2, %r1, %r2; selp.b32 %r3, 1, 0, %p2;",
            [](u32 a, u32 b) { return a < b ? 0u : 1u; });
    check32("setp.eq.u32 %p1, %t, 3; setp.gt.or.s32 %p2, %r2, 0, %p1; selp.b32 %r3, 1, 0, %p2;",
            [](u32, u32 b) { return static_cast<s32>(b) > 0 || (b + 1000) / 77 == 3 ? 1u : 0u; });
    check32("setp.eq.u32 %p1, %t, 3; setp.eq.and.u32 %p2, %t, 3, !%p1; selp.b32 %r3, 1, 0, %p2;",
            [](u32, u32) { return 0u; });
    check32("set.lt.u32.s32 %r3, %r1, %r2;",
            [](u32 a, u32 b) { return static_cast<s32>(a) < static_cast<s32>(b) ? ~0u : 0u; });
    check32(
        "mov.u32 %r3, 5; setp.lt.u32 %p1, %t, 9; @%p1 mov.u32 %r3, 6; @!%p1 add.u32 %r3, %r3, %t;",
        [](u32, u32 b) {
          u32 t = (b + 1000) / 77;
          return t < 9 ? 6u : 5 + t;
        });
    // NaN: ordered comparisons are false, unordered ones true.
    for (auto [op, want] : {std::pair{"lt", 0u},
                            {"ne", 0u},
                            {"ltu", 1u},
                            {"neu", 1u},
                            {"nan", 1u},
                            {"num", 0u},
                            {"equ", 1u}})
      check32(
          std::string("setp.") + op + ".f32 %p1, 0f7FC00000, 0f00000000; selp.b32 %r3, 1, 0, %p1;",
          [w = want](u32, u32) { return w; });
  }
  TEST_CASE("floating point") {
    check_f32("add.f32 %f3, %f1, %f2;", [](float a, float b) { return a + b; });
    check_f32("mul.rz.f32 %f3, %f1, %f2;", [](float a, float b) {
      return mul_f32(a, b, {Round::rz, false, false});
    });
    check_f32("fma.rn.ftz.f32 %f3, %f1, %f2, %f1;",
              [](float a, float b) { return std::fmaf(a, b, a); });
    check_f32("max.f32 %f3, %f1, 0f7FC00000;", [](float a, float) { return a; });
    check_f32("min.NaN.f32 %f3, %f1, 0f7FC00000;", [](float, float) { return canonical_nan(); });
    check_f32("add.sat.f32 %f3, %f1, 0f00000000;",
              [](float a, float) { return std::min(std::max(a, 0.0f), 1.0f); });
    check_f32("neg.f32 %f3, %f1;", [](float a, float) { return -a; });
    check_f32("ex2.approx.ftz.f32 %f3, %f1;",
              [](float a, float) { return ex2_approx_f32(a, true); });
    check_f32("rcp.approx.ftz.f32 %f3, %f2;",
              [](float, float b) { return rcp_approx_f32(b, true); });
    check_f32("div.rn.f32 %f3, %f1, %f2;", [](float a, float b) { return a / b; });
    check_f32("tanh.approx.f32 %f3, %f1;", [](float a, float) { return tanh_approx_f32(a); });
    check_body(
        "cvt.rn.f64.u32 %fd1, %t; fma.rn.f64 %fd1, %fd1, %fd1, 0.5; mov.b64 %rd1, %fd1; "
        "st.global.u64 [%at], %rd1;",
        [](u32 t) { return std::bit_cast<u64>(static_cast<double>(t) * t + 0.5); });
  }
  TEST_CASE("conversions") {
    check32("cvt.u16.u32 %h0, %r2; cvt.s32.s16 %r3, %h0;", [](u32, u32 b) {
      return static_cast<u32>(static_cast<s32>(static_cast<std::int16_t>(b)));
    });
    check_f32("cvt.rn.bf16x2.f32 %r1, %f1, %f2; shl.b32 %r1, %r1, 16; mov.b32 %f3, %r1;",
              [](float, float b) { return bf16_to_f32(f32_to_bf16(b)); });
    check_f32("cvt.rn.f16.f32 %h1, %f1; cvt.f32.f16 %f3, %h1;",
              [](float a, float) { return f16_to_f32(f32_to_f16(a)); });
    check_f32("cvt.rni.s32.f32 %r1, %f1; cvt.rn.f32.s32 %f3, %r1;", [](float a, float) {
      return static_cast<float>(static_cast<int>(std::nearbyint(a)));
    });
    check_f32("cvt.rmi.f32.f32 %f3, %f1;", [](float a, float) { return std::floor(a); });
    check32("cvt.u32.u8 %r3, %r1;", [](u32 a, u32) { return a & 255; });
    check32("cvt.sat.s8.s32 %r3, %r2;", [](u32, u32 b) {
      return static_cast<u32>(std::min(std::max(static_cast<s32>(b), -128), 127));
    });
    check_f32(
        "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2; cvt.rn.f16x2.e4m3x2 %r1, %h1; mov.b32 {%h2, "
        "%h3}, %r1; cvt.f32.f16 %f3, %h3;",
        [](float a, float) { return e4m3_to_f32(f32_to_e4m3(a)); });
  }
  TEST_CASE("moves, vectors and special registers") {
    check_body("mov.b64 %rd1, {%t, 7}; mov.b64 {%r1, %r2}, %rd1; add.u32 %r3, %r1, %r2;" + store32,
          [](u32 t) { return u64{t} + 7; });
    check_body("mov.b32 %r1, 0x12345678; mov.b32 {%h1, %h2}, %r1; mov.b32 %r3, {%h2, %h1};" + store32,
          [](u32) { return u64{0x56781234}; });
    check_body(
        "mov.u32 %r1, %laneid; mov.u32 %r2, %warpid; mad.lo.u32 %r3, %r2, 32, %r1;" + store32,
        [](u32 t) { return u64{t}; }, 96);
    check_body(
        "mov.u32 %r3, %ntid.x;" + store32, [](u32) { return u64{64}; }, 64);
    check_body("mov.u32 %r3, %lanemask_lt;" + store32, [](u32 t) { return (u64{1} << t) - 1; });
    check_body("mov.u32 %r1, -1; mov.b32 %r2, 0b101; add.u32 %r3, %r1, %r2; add.u32 %r3, %r3, 017;" +
              store32,
          [](u32) { return u64{19}; });
  }
  TEST_CASE("memory: vectors, sub-word types, atomics") {
    check_body(
        ".shared .align 16 .b8 s[1024];\nmov.u32 %r1, s; shl.b32 %r2, %t, 4; add.u32 %r1, %r1, "
        "%r2;\n"
        "st.shared.v4.u32 [%r1], {%t, 1, 2, 3}; ld.shared.v2.u32 {%r4, %r5}, [%r1+8]; ld.shared.u8 "
        "%r6, [%r1]; add.u32 %r3, %r4, %r5; add.u32 %r3, %r3, %r6;" +
            store32,
        [](u32 t) { return u64{t} + 5; });
    check_body(
        "st.global.u64 [%at], -1; st.global.u8 [%at], %t; ld.global.s8 %r1, [%at+1]; ld.global.u16 "
        "%r2, [%at]; sub.u32 %r3, %r2, %r1;" +
            store32,
        [](u32 t) { return u64{0xff00u + t + 1}; });
    check_body(
        ".shared .align 4 .b32 c;\nsetp.eq.u32 %p0, %t, 0; @%p0 st.shared.u32 [c], 0; bar.sync 0; "
        "atom.shared.add.u32 %r1, [c], 1; bar.sync 0; ld.shared.u32 %r3, [c];" +
            store32,
        [](u32) { return u64{64}; }, 64);
    check_body(
        "st.global.u64 [%at], 0; red.global.add.u32 [%at], 3; atom.global.cas.b32 %r1, [%at], 3, "
        "9; atom.global.max.u32 %r2, [%at], 4; add.u32 %r3, %r1, %r2;" +
            store32,
        [](u32) { return u64{12}; });
    check_body(".const .align 4 .u32 table[4];\nmov.u32 %r3, 1;" + store32, [](u32) { return u64{1}; });
  }
  TEST_CASE("warp instructions") {
    check_body("shfl.sync.bfly.b32 %r3, %t, 5, 31, 0xffffffff;" + store32,
          [](u32 t) { return u64{t ^ 5}; });
    check_body("shfl.sync.idx.b32 %r3, %t, 2, 0x1c03, 0xffffffff;" + store32,
          [](u32 t) { return u64{(t & ~3u) | 2}; });
    check_body("shfl.sync.up.b32 %r3|%p1, %t, 1, 0, 0xffffffff; @!%p1 mov.u32 %r3, 99;" + store32,
          [](u32 t) { return u64{t ? t - 1 : 99}; });
    check_body("shfl.sync.down.b32 %r3, %t, 2, 31, 0xffffffff;" + store32,
          [](u32 t) { return u64{t < 30 ? t + 2 : t}; });
    check_body("setp.lt.u32 %p1, %t, 5; vote.sync.ballot.b32 %r3, %p1, 0xffffffff;" + store32,
          [](u32) { return u64{31}; });
    check_body(
        "setp.lt.u32 %p1, %t, 5; vote.sync.any.pred %p2, %p1, 0xffffffff; vote.sync.all.pred %p3, "
        "%p1, 0xffffffff; selp.b32 %r3, 2, 0, %p2; @%p3 add.u32 %r3, %r3, 1;" +
            store32,
        [](u32) { return u64{2}; });
    check_body("redux.sync.add.u32 %r3, %t, 0xffffffff;" + store32, [](u32) { return u64{496}; });
    check_body("sub.u32 %r1, %t, 16; redux.sync.min.s32 %r3, %r1, 0xffffffff;" + store32,
          [](u32) { return u64{0xfffffff0u}; });
    check_body(
        "elect.sync %r1|%p1, 0xffffffff; selp.b32 %r2, 1, 0, %p1; redux.sync.add.u32 %r3, %r2, "
        "0xffffffff;" +
            store32,
        [](u32) { return u64{1}; });
    check_body("shr.u32 %r1, %t, 2; match.any.sync.b32 %r3, %r1, 0xffffffff;" + store32,
          [](u32 t) { return u64{15u << (t & ~3u)}; });
    check_body(
        "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %t; movmatrix.sync.aligned.m8n8.trans.b16 %r3, "
        "%r1;" +
            store32,
        [](u32 t) { return u64{t}; });
  }
  TEST_CASE("divergence: both sides run, loops end lane by lane, the warp comes together again") {
    check_body(
        "mov.u32 %r3, 0; setp.lt.u32 %p1, %t, 10; @%p1 bra A; add.u32 %r3, %r3, 1; bra B; A: "
        "add.u32 %r3, %r3, 2; B: shfl.sync.bfly.b32 %r1, %r3, 31, 31, 0xffffffff; add.u32 %r3, "
        "%r3, %r1;" +
            store32,
        [](u32 t) { return u64{(t < 10 ? 2u : 1u) + (31 - t < 10 ? 2u : 1u)}; });
    check_body(
        "mov.u32 %r3, 0; mov.u32 %r1, %t; L: setp.eq.u32 %p1, %r1, 0; @%p1 bra E; add.u32 %r3, "
        "%r3, %r1; sub.u32 %r1, %r1, 1; bra L; E: bar.warp.sync 0xffffffff;" +
            store32,
        [](u32 t) { return u64{t} * (t + 1) / 2; });
    // The join lies before the side block in the text.
    check_body(
        "mov.u32 %r3, 0; setp.eq.u32 %p1, %t, 7; @%p1 bra SIDE; JOIN: redux.sync.add.u32 %r3, %t, "
        "0xffffffff; bra DONE; SIDE: mov.u32 %r2, 1; bra JOIN; DONE:" +
            store32,
        [](u32) { return u64{496}; });
    check_body(
        "setp.eq.u32 %p1, %t, 3; @%p1 st.global.u64 [%at], 77; @%p1 ret; cvt.u64.u32 %rd1, %t; "
        "st.global.u64 [%at], %rd1;",
        [](u32 t) { return u64{t == 3 ? 77 : t}; });
  }
  TEST_CASE("barriers that reduce: bar.red, for all warps and for some") {
    const std::string body =
        "setp.eq.u32 %p0, %t, 77;\nbar.red.or.pred %p1, 3, 128, %p0;\nselp.u32 %r0, 1, 0, %p1;\n"
        "bar.red.and.pred %p2, 3, 128, %p0;\nselp.u32 %r1, 2, 0, %p2;\nsetp.lt.u32 %p3, %t, 70;\n"
        "barrier.cta.red.popc.aligned.u32 %r2, 4, %p3;\nshl.b32 %r2, %r2, 8;\nbar.red.and.pred %p4, 5, 128, !%p0;\nselp.u32 %r3, 4, 0, %p4;\n"
        "setp.ge.u32 %p5, %t, 0;\nbar.red.and.pred %p6, 6, 128, %p5;\nselp.u32 %r4, 8, 0, %p6;\n"
        "or.b32 %r0, %r0, %r1;\nor.b32 %r0, %r0, %r2;\nor.b32 %r0, %r0, %r3;\nor.b32 %r0, %r0, %r4;\n"
        "cvt.u64.u32 %rd0, %r0;\nst.global.u64 [%at], %rd0;\n";
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const Result r = run(body, 128, seed);
      REQUIRE_MESSAGE(r.status.ok(), r.status.message);
      for (std::uint64_t v : r.out) CHECK(v == (70 << 8 | 1 | 8));
    }
    const Result mixed = run("setp.lt.u32 %p0, %t, 32;\n@%p0 bra A;\nbar.sync 1, 64;\nbra B;\nA: bar.red.or.pred %p1, 1, 64, %p0;\nB:\n", 64, 0);
    CHECK_MESSAGE(mixed.status.message.find("another reduction, or by none") != std::string::npos, mixed.status.message);
  }

  TEST_CASE("mbarrier: counts, tokens, transactions") {
    check_body(
        ".shared .align 8 .b64 b;\n.reg .b64 %token;\nsetp.eq.u32 %p0, %t, 0; @%p0 "
        "mbarrier.init.shared::cta.b64 [b], 64; bar.sync 0;\n"
        "mbarrier.arrive.shared::cta.b64 %token, [b];\nW: mbarrier.test_wait.shared::cta.b64 %p1, "
        "[b], %token; @!%p1 bra W; mov.u32 %r3, 1;" +
            store32,
        [](u32) { return u64{1}; }, 64);
    check_body(
        ".shared .align 8 .b64 b;\nsetp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared::cta.b64 [b], "
        "1; bar.sync 0;\n"
        "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [b], 16; @%p0 "
        "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [b], 16;\n"
        "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [b], 0; @!%p1 bra W; mov.u32 %r3, 1;" +
            store32,
        [](u32) { return u64{1}; });
  }
  TEST_CASE("bulk copies and cp.async") {
    check_body(
        ".shared .align 16 .b8 s[256];\n.shared .align 8 .b64 b;\nst.global.u64 [%at], %at; "
        "setp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared::cta.b64 [b], 1; @%p0 "
        "fence.mbarrier_init.release.cluster;\n"
        "bar.sync 0; mov.u32 %r1, s; mov.u32 %r2, b;\n@!%p0 bra W; "
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [b], 256;\n"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%out], 256, "
        "[%r2];\n"
        "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [b], 0; @!%p1 bra W; shl.b32 %r3, %t, 3; "
        "add.u32 %r1, %r1, %r3; ld.shared.u64 %rd1, [%r1]; sub.u64 %rd1, %rd1, %out; st.global.u64 "
        "[%at], %rd1;",
        [](u32 t) { return u64{t} * 8; });
    check_body(
        ".shared .align 16 .b8 s[256];\nst.global.u64 [%at], %at; mov.u32 %r1, s; shl.b32 %r3, %t, "
        "3; add.u32 %r1, %r1, %r3;\n"
        "cp.async.ca.shared::cta.global [%r1], [%at], 8, 4; cp.async.commit_group; "
        "cp.async.wait_group 0; ld.shared.u64 %rd1, [%r1]; cvt.u32.u64 %r4, %out; shl.b32 %r3, %t, "
        "3; add.u32 %r4, %r4, %r3; cvt.u64.u32 %rd2, %r4; sub.u64 %rd1, %rd1, %rd2; st.global.u64 "
        "[%at], %rd1;",
        [](u32) { return u64{0}; });  // the upper half is filled with zeros
  }
}
