// What one lane does alone, and then hands on alone: its own accesses are ordered before its arrival, those of the other
// lanes of its warp are not, unless a bar.warp.sync stands between.
//
// Each case is a clean kernel and its mutants, all on the round-robin schedule. Next: host/emulator/checkers/shared_memory.cpp.
#include "tests/emulator/machine.h"

using namespace flashptx;
using namespace flashptx::emulator;
using namespace flashptx::emulator::test;

namespace {

// Warp 0 does `first`, its lane `arrives` frees, warp 1 waits and does `second`. %p1 to %p3: lane 0, lane 3, all but lane 3.
// x is a line of shared memory that all have seen written, %at32 a word of its own for each thread.
Status passed_on_alone(const std::string& first, const std::string& second, const std::string& arrives = "@%p1") {
  Launcher l(0, 0);
  std::uint64_t out = l.buffer(256);
  LaunchDims dims;
  dims.block[0] = 64;
  return l.launch(kernel(R"(
.shared .align 128 .b8 x[128];
.shared .align 128 .b8 own[256];
.shared .align 8 .b64 free;
.reg .b32 %lane, %x, %line, %word;
mov.u32 %x, x; mov.u32 %r0, free; mov.u32 %at32, own;
shl.b32 %r2, %t, 2; add.u32 %at32, %at32, %r2;
and.b32 %lane, %t, 31;
shl.b32 %line, %lane, 2; add.u32 %line, %line, %x;
setp.eq.u32 %p1, %lane, 0; setp.eq.u32 %p2, %lane, 3; setp.ne.u32 %p3, %lane, 3;
setp.lt.u32 %p4, %t, 32;
@%p4 st.shared.u32 [%line], %t;
fence.proxy.async.shared::cta;
setp.eq.u32 %p0, %t, 0;
@%p0 mbarrier.init.shared::cta.b64 [%r0], 1;
bar.sync 0;
@!%p4 bra WAIT;
)" + first + "\n" + arrives + R"( mbarrier.arrive.shared::cta.b64 _, [%r0];
bra DONE;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r0], 0;
@!%p5 bra WAIT;
)" + second + "\nDONE:", 64),
                  "k", {&out}, dims);
}

const std::string all_store = "st.shared.u32 [%at32], %t;\n";
const std::string all_load = "ld.shared.u32 %r4, [%x];\n";
const std::string write_x = "@%p1 st.shared.u32 [%x], %t;";
const std::string read_x = "ld.shared.u32 %r5, [%x];";
const std::string copy_x = "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%out], [%x], 16;\n"
                           "@%p1 cp.async.bulk.commit_group;\n@%p1 cp.async.bulk.wait_group 0;\n";
std::string by(const std::string& lanes, const std::string& what) { return lanes + " " + what + "\n"; }
const std::string load = "ld.shared.u32 %word, [%x];", store = "st.shared.u32 [%x], %t;";
const std::string fence = "fence.proxy.async.shared::cta;";

void clean(const Status& s) { CHECK_MESSAGE(s.ok(), s.message); }
void reported(const Status& s, const std::string& words = "no barrier orders the two") {
  REQUIRE_FALSE(s.ok());
  CHECK_MESSAGE(mentions(s, words), s.message);
}

}  // namespace

TEST_SUITE("emulator/one lane") {
  TEST_CASE("a lane's arrival releases what it alone has read, whatever the others touched since they met") {
    for (const std::string& others : {std::string(), all_store, "@!%p1 ld.shared.u32 %r4, [%x+64];\n" + all_store}) {
      CAPTURE(others);
      clean(passed_on_alone(by("@%p1", load) + others, write_x));
      clean(passed_on_alone(others + by("@%p1", load), write_x));
      clean(passed_on_alone(by("@%p2", load) + others, write_x, "@%p2"));
    }
  }
  TEST_CASE("it does not release what another lane has read") {
    for (const std::string& others : {std::string(), all_store}) {
      CAPTURE(others);
      reported(passed_on_alone(by("@%p2", load) + others, write_x));
      reported(passed_on_alone(by("@%p1", load) + by("@%p2", load) + others, write_x));
      reported(passed_on_alone(by("@%p2", load) + by("@%p1", load) + others, write_x));
      reported(passed_on_alone(all_load + by("@%p1", load) + others, write_x));
      reported(passed_on_alone(by("@%p1", load) + all_load + others, write_x));
      reported(passed_on_alone(by("@%p1", load) + by("@%p3", load) + others, write_x, "@%p2"));
      clean(passed_on_alone(by("@%p2", load) + others + "bar.warp.sync 0xffffffff;\n" + by("@%p1", load), write_x));
      clean(passed_on_alone(all_load + others + "bar.warp.sync 0xffffffff;\n" + by("@%p1", load) + all_store, write_x));
    }
    reported(passed_on_alone(by("@%p1", load) + all_store, "@%p1 st.shared.u32 [%x+128], %t;"));  // own[0 to 31], stored by all
  }
  TEST_CASE("nor what the lane reads behind its arrival") {
    reported(passed_on_alone(all_store + "@%p1 mbarrier.arrive.shared::cta.b64 _, [%r0];\n" + by("@%p1", load), write_x, "@!%p4"));
  }
  TEST_CASE("the same of what it writes, for a reader") {
    clean(passed_on_alone(by("@%p1", store) + all_store, read_x));
    reported(passed_on_alone(by("@%p2", store) + all_store, read_x));
    reported(passed_on_alone(by("@%p1", store) + by("@%p2", store) + all_store, read_x));
    reported(passed_on_alone(by("@%p2", store) + by("@%p1", store) + all_store, read_x));
    reported(passed_on_alone(by("@%p2", load) + by("@%p1", store) + all_store, write_x));
    reported(passed_on_alone(all_load + by("@%p1", store) + all_store, write_x));
  }
  TEST_CASE("and for a copy, if the lane that wrote has fenced") {
    const std::string missing = "fence.proxy.async by the writer is missing";
    clean(passed_on_alone(by("@%p1", store) + by("@%p1", fence) + all_store, copy_x));
    clean(passed_on_alone(by("@%p1", store) + fence + all_store, copy_x));
    reported(passed_on_alone(by("@%p1", store) + all_store, copy_x), missing);
    reported(passed_on_alone(by("@%p1", store) + by("@%p2", fence) + all_store, copy_x), missing);
    reported(passed_on_alone(by("@%p1", fence) + by("@%p1", store) + all_store, copy_x), missing);
    // The write is published; the fence, by a lane that was left out, is not.
    reported(passed_on_alone(by("@%p1", store) + "bar.warp.sync 0xffffffff;\n" + by("@%p1", fence) + all_store, copy_x, "@%p2"), missing);
    clean(passed_on_alone(by("@%p1", store) + by("@%p1", fence) + "bar.warp.sync 0xffffffff;\n" + all_store, copy_x, "@%p2"));
  }
  TEST_CASE("a lane's own copy knows what it wrote, not what another did") {
    clean(passed_on_alone(by("@%p1", store) + by("@%p1", fence) + all_store + copy_x, read_x));
    reported(passed_on_alone(by("@%p2", store) + fence + all_store + copy_x, read_x));
    reported(passed_on_alone(by("@%p1", store) + by("@%p1", fence) + by("@%p2", store) + by("@%p2", fence) + copy_x, read_x));
  }
}
