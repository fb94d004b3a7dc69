// What asynchronous copies may do between issue and completion, seen by kernels that look too early.
//
// The kernels are wrong on purpose or run without the checkers: a correct one cannot see any of this.
// Next: host/emulator/machine_async.cpp.
#include <set>

#include "tests/emulator/machine.h"

using namespace flashptx;
using namespace flashptx::emulator;
using namespace flashptx::emulator::test;

namespace {

// Thread 0 stores 1 by a bulk copy, waits, stores 2 from the same bytes to the same place. What stays there?
std::set<std::uint32_t> last_stores(const std::string& wait) {
  const std::string text = kernel(R"(
.shared .align 128 .b8 src[512];
setp.ne.u32 %p0, %t, 0;
@%p0 bra DONE;
mov.u32 %at32, src;
mov.u32 %r0, 1; mov.u32 %r1, 2;
st.shared.v4.b32 [%at32], {%r0, %r0, %r0, %r0};
fence.proxy.async.shared::cta;
cp.async.bulk.global.shared::cta.bulk_group [%out], [%at32], 16;
cp.async.bulk.commit_group;
)" + wait + R"(
ld.global.u32 %r2, [%out];
st.global.u32 [%out+32], %r2;
st.shared.v4.b32 [%at32], {%r1, %r1, %r1, %r1};
fence.proxy.async.shared::cta;
cp.async.bulk.global.shared::cta.bulk_group [%out], [%at32], 16;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
DONE:)");
  std::set<std::uint32_t> seen;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    Launcher l(seed, seed ? 2 : 0, false);
    std::uint64_t out = l.buffer(64);
    LaunchDims dims;
    dims.block[0] = 32;
    const Status s = l.launch(text, "k", {&out}, dims);
    REQUIRE_MESSAGE(s.ok(), s.message);
    const auto v = l.download<std::uint32_t>(out, 16);
    CHECK((v[0] == 1 || v[0] == 2));
    CHECK(v[0] == v[3]);
    seen.insert(v[0]), seen.insert(10 + v[8]);  // 10 or 11: what a load after the wait saw
  }
  return seen;
}

// Warp 1 looks at the first and the last word of 4096 bytes that warp 0 copies, until the barrier says they are there.
std::set<std::uint32_t> sightings(int level) {
  const std::string text = kernel(R"(
.shared .align 128 .b8 dst[4096];
.shared .align 8 .b64 bar;
mov.u32 %r0, bar; mov.u32 %at32, dst;
setp.ne.u32 %p0, %t, 0;
@%p0 bra READY;
mbarrier.init.shared::cta.b64 [%r0], 1;
fence.mbarrier_init.release.cluster;
READY:
bar.sync 0;
@%p0 bra LOOK;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], 4096;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%at32], [%out], 4096, [%r0];
LOOK:
setp.ne.u32 %p1, %t, 32;
@%p1 bra LAST;
mov.u32 %r5, 0;
AGAIN:
ld.volatile.shared.u32 %r1, [%at32];
ld.volatile.shared.u32 %r2, [%at32+4092];
setp.eq.u32 %p2, %r1, 7; selp.b32 %r3, 1, 0, %p2;
setp.eq.u32 %p2, %r2, 7; selp.b32 %r4, 2, 0, %p2;
add.u32 %r3, %r3, %r4;
mov.u32 %r4, 1; shl.b32 %r4, %r4, %r3; or.b32 %r5, %r5, %r4;
mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r0], 0;
@!%p3 bra AGAIN;
st.global.u32 [%out+4096], %r5;
LAST:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r0], 0;
@!%p3 bra LAST;)", 64);
  std::set<std::uint32_t> seen;
  for (std::uint64_t seed = 1; seed < 40; ++seed) {
    Launcher l(seed, level, false);
    std::vector<std::uint32_t> data(1032, 7);
    std::uint64_t out = l.upload(data);
    LaunchDims dims;
    dims.block[0] = 64;
    const Status s = l.launch(text, "k", {&out}, dims);
    REQUIRE_MESSAGE(s.ok(), s.message);
    const std::uint32_t bits = l.download<std::uint32_t>(out, 1032)[1024];
    for (std::uint32_t i = 0; i < 4; ++i)
      if (bits >> i & 1) seen.insert(i);
  }
  return seen;
}

}  // namespace

TEST_SUITE("emulator/async_order") {
  TEST_CASE("wait_group.read frees the source but promises nothing of the destination; wait_group does") {
    const std::set<std::uint32_t> full = last_stores("cp.async.bulk.wait_group 0;");
    CHECK(full == std::set<std::uint32_t>{2, 11});
    const std::set<std::uint32_t> read = last_stores("cp.async.bulk.wait_group.read 0;");
    CHECK(read.count(1) == 1);   // the first store came last
    CHECK(read.count(2) == 1);
    CHECK(read.count(10) == 1);  // and was not there after the wait
  }

  TEST_CASE("a copy into shared memory may arrive in parts") {
    CHECK(sightings(0).count(1) == 0);
    const std::set<std::uint32_t> seen = sightings(2);
    CHECK(seen.count(0) == 1);  // nothing yet
    CHECK(seen.count(1) == 1);  // the first word alone
    CHECK(seen.count(3) == 1);
  }

  TEST_CASE("a wait whose answer is not looked at is found out in a later turn of its loop, in any order") {
    // In the first turn another wait has seen to it that the copy is there.
    const auto text = [](const char* look) {
      return kernel(std::string(R"(
.shared .align 128 .b8 dst[64];
.shared .align 8 .b64 bar;
mov.u32 %r0, bar; mov.u32 %at32, dst; mov.u32 %r5, 0;
setp.ne.u32 %p0, %t, 0;
@%p0 bra READY;
mbarrier.init.shared::cta.b64 [%r0], 1;
fence.mbarrier_init.release.cluster;
READY:
bar.sync 0;
TURN:
@%p0 bra ISSUED;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], 16;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%at32], [%out], 16, [%r0];
ISSUED:
and.b32 %r4, %r5, 1;
setp.ne.u32 %p1, %r5, 0;
@%p1 bra LOOK;
FIRST:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r0], %r4;
@!%p3 bra FIRST;
LOOK:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r0], %r4;
)") + look + R"(
ld.shared.u32 %r1, [%at32];
bar.sync 0;
add.u32 %r5, %r5, 1;
setp.lt.u32 %p2, %r5, 3;
@%p2 bra TURN;)");
    };
    for (int seed : {0, 1, 2, 3, 4}) {
      Launcher l(static_cast<std::uint64_t>(seed), seed == 0 ? 0 : seed % 2 + 1);
      std::uint64_t out = l.buffer(64);
      LaunchDims dims;
      dims.block[0] = 32;
      const Status right = l.launch(text("@!%p3 bra LOOK;"), "k", {&out}, dims);
      CHECK_MESSAGE(right.ok(), right.message);
      const Status wrong = l.launch(text(""), "k", {&out}, dims);
      CHECK_MESSAGE(mentions(wrong, "has not waited for that phase"), "seed ", seed, ": ", wrong.message);
    }
  }
}
