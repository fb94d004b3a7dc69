// The builder: what it prints, what it refuses and in which words, which version it states.
//
// Refusals are compared as whole sentences, with this file's line in front: that is what a kernel's
// author reads. Next: gen/isa/kernel.h.
#include <functional>

#include "gen/catalog.h"
#include "gen/isa/kernel.h"
#include "tests/support.h"

namespace flashptx::test {
namespace {

using namespace gen;

std::string refusal(const std::function<void(Kernel&)>& build) {
  try {
    Kernel k("refused");
    build(k);
    k.text();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}
// The sentence behind "tests/gen/isa_builder_test.cpp:LINE: ", or everything if that is not in
// front.
std::string sentence(const std::function<void(Kernel&)>& build) {
  std::string all = refusal(build), file = "tests/gen/isa_builder_test.cpp:";
  auto colon = all.find(": ");
  return all.rfind(file, 0) == 0 && colon != std::string::npos ? all.substr(colon + 2)
                                                               : "(no line) " + all;
}

// A ring of one stage: role scopes, a loop, a wait, a guard, notes and a long list.
void small_kernel(Kernel& k) {
  k.header("small: what the builder prints");
  k.param_tensor_map("map", "the tile");
  k.param("out", "u64");
  k.threads(128);
  k.min_ctas_per_sm(1);
  k.dynamic_shared("memory", 1024);
  Reg bar = k.b32("bar"), first = k.pred("first");
  k.mov_b32(bar, symbol("memory")).note("mbarrier at byte 0");
  k.setp("eq", "u32", first, bar, 0);
  k.role("consumer", "one warpgroup", [&] {
    k.setmaxnreg_inc(240);
    Reg trip = k.b32("trip"), more = k.pred("more");
    Vec acc = k.f32("acc", 12);
    Reg a = k.b64("a"), b = k.b64("b");
    k.mov_b32(trip, 3);
    k.loop("kv", [&] {
      k.wait("full", address(bar), 0);
      k.section("product");
      k.wgmma_ss_16("bf16", 24, acc.all(), a, b, 1, 0, 1).note("S of this block");
      k.sub_u32(trip, trip, 1);
      k.setp("ne", "u32", more, trip, 0);
      return more;
    });
    k.mbarrier_arrive(address(bar, 8)).when(first);
  });
}

const char* const kSmallText =
    R"(// small: what the builder prints
.version 8.0
.target sm_90a
.address_size 64

.extern .shared .align 1024 .b8 memory[];

.visible .entry small(
    .param .align 64 .b8 map[128],          // the tile
    .param .u64 out
)
.reqntid 128
.minnctapersm 1
{
    .reg .b32 %bar;
    .reg .pred %first;
    mov.b32 %bar, memory;                                                   // mbarrier at byte 0
    setp.eq.u32 %first, %bar, 0;

    // == role: consumer -- one warpgroup
    {
        .reg .b32 %trip;
        .reg .pred %more;
        .reg .f32 %acc<12>;
        .reg .b64 %a;
        .reg .b64 %b;
        setmaxnreg.inc.sync.aligned.u32 240;
        mov.b32 %trip, 3;
    $KV:
            {
                .reg .pred %done_9;
            $WAIT_FULL:
                mbarrier.try_wait.parity.shared::cta.b64 %done_9, [%bar], 0;
                @!%done_9 bra $WAIT_FULL;
            }

            // == product
            wgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16
                {%acc0, %acc1, %acc2, %acc3, %acc4, %acc5, %acc6, %acc7,
                 %acc8, %acc9, %acc10, %acc11}, %a, %b, 1, 1, 1, 0, 1;      // S of this block
            sub.u32 %trip, %trip, 1;
            setp.ne.u32 %more, %trip, 0;
        @%more bra $KV;
        @%first mbarrier.arrive.shared::cta.b64 _, [%bar+8];
    }
    ret;
}
)";

TEST_SUITE("gen/isa_builder") {
  TEST_CASE("prints a small kernel exactly so, twice the same, and ptxas takes it") {
    Kernel k("small"), again("small");
    small_kernel(k);
    small_kernel(again);
    CHECK(k.text() == kSmallText);
    CHECK(k.text() == again.text());
    if (ptxas().empty()) FLASHPTX_SKIP("no ptxas");
    Assembled a = assemble(k.text());
    CHECK_MESSAGE(a.ok, a.log);
  }

  TEST_CASE("line_info adds .file and one .loc a section, and nothing else") {
    Kernel k("small");
    small_kernel(k);
    k.line_info(true);
    std::string text = k.text(), stripped;
    CHECK(k.line_table_file() == "small.schedule");
    CHECK(k.line_table() == "role: consumer -- one warpgroup\nproduct\n");
    CHECK(text.find(".file 1 \"small.schedule\"\n") != std::string::npos);
    CHECK(text.find("        .loc 1 1 1\n        setmaxnreg") != std::string::npos);
    CHECK(text.find("            .loc 1 2 1\n            wgmma") != std::string::npos);
    CHECK(text.find("        .loc 1 2 1\n        @%first") == std::string::npos);
    std::size_t locations = 0;
    for (std::size_t from = 0; from < text.size();) {
      std::size_t to = text.find('\n', from) + 1;
      std::string line = text.substr(from, to - from);
      from = to;
      if (line.find(".loc ") != std::string::npos) {
        ++locations;
      } else if (line.rfind(".file", 0) == 0) {
        ++from;  // and the empty line behind it
      } else {
        stripped += line;
      }
    }
    CHECK(locations == 2);
    CHECK(stripped == kSmallText);
    if (ptxas().empty()) FLASHPTX_SKIP("no ptxas");
    Assembled a = assemble(text, "-lineinfo");
    CHECK_MESSAGE(a.ok, a.log);
  }

  TEST_CASE("within a step all instructions point at the step's line, sections or not") {
    Kernel k("stepped");
    k.line_table_begins({"head", "", "row"});
    k.line_info(true);
    Reg r = k.b32("r");
    k.section("before");
    k.add_u32(r, r, 1);
    k.step("row", [&] {
      k.add_u32(r, r, 2);
      k.section("inside");
      k.add_u32(r, r, 3);
    });
    k.add_u32(r, r, 4);
    CHECK(k.line_table() == "head\n\nrow\nbefore\n");
    const std::string text = k.text();
    auto at = [&](const char* words) { return text.find(words); };
    CHECK(at(".loc 1 4 1\n    add.u32 %r, %r, 1") != std::string::npos);
    CHECK(at(".loc 1 3 1\n    add.u32 %r, %r, 2") != std::string::npos);
    CHECK(at(".loc 1 4 1\n    add.u32 %r, %r, 4") != std::string::npos);
    CHECK(text.find("// == inside\n    add.u32 %r, %r, 3") != std::string::npos);
  }

  TEST_CASE("states the lowest version and target that its instructions need") {
    auto head = [](const std::function<void(Kernel&, Reg)>& body) {
      Kernel k("head");
      k.threads(128);
      k.min_ctas_per_sm(1);
      Reg r = k.b32("r");
      body(k, r);
      std::string text = k.text();
      if (!ptxas().empty()) {
        Assembled a = assemble(text);
        CHECK_MESSAGE(a.ok, a.log);
      }
      return text.substr(0, text.find("\n.address_size"));
    };
    CHECK(head([](Kernel& k, Reg r) { k.add_u32(r, r, 1); }) == ".version 7.8\n.target sm_90");
    CHECK(head([](Kernel& k, Reg) { k.fence_mbarrier_init(); }) == ".version 8.0\n.target sm_90");
    CHECK(head([](Kernel& k, Reg) { k.setmaxnreg_dec(24); }) == ".version 8.0\n.target sm_90a");
    CHECK(head([](Kernel& k, Reg r) { k.st_async("b32", address(r), r, address(r)); }) ==
          ".version 8.1\n.target sm_90");
    CHECK(head([](Kernel& k, Reg) { k.fence_proxy_tensormap_release_gpu(); }) ==
          ".version 8.3\n.target sm_90");
    CHECK(head([](Kernel& k, Reg) { k.emit("fence.acquire.gpu", {}, Location::current()); }) ==
          ".version 8.6\n.target sm_90");
    CHECK(head([](Kernel& k, Reg) {
            for (int i = 0; i < 33; ++i) k.param_tensor_map("map" + std::to_string(i));
          }) == ".version 8.1\n.target sm_90");
    CHECK(driver_for(80) == "525 (CUDA 12.0)");
  }

  TEST_CASE("refuses constants out of range, with the caller's line and the limits") {
    CHECK(refusal([](Kernel& k) { k.setmaxnreg_dec(30); }) ==
          "tests/gen/isa_builder_test.cpp:" + std::to_string(__LINE__ - 1) +
              ": setmaxnreg.dec.sync.aligned.u32: count 30 must be a multiple of 8 in [24, 256]");
    CHECK(sentence([](Kernel& k) { k.setmaxnreg_inc(264); }) ==
          "setmaxnreg.inc.sync.aligned.u32: count 264 must be a multiple of 8 in [24, 256]");
    CHECK(sentence([](Kernel& k) { k.bar_sync(16, 128); }) ==
          "bar.sync: barrier id 16 must be in [0, 15]");
    CHECK(sentence([](Kernel& k) { k.bar_arrive(1, 48); }) ==
          "bar.arrive: thread count 48 must be a multiple of 32 in [32, 1024]");
    CHECK(sentence([](Kernel& k) { k.mbarrier_init(address(k.b32("m")), 0); }) ==
          "mbarrier.init.shared::cta.b64: arrival count 0 must be in [1, 1048575]");
    CHECK(sentence([](Kernel& k) { k.mbarrier_arrive_expect_tx(address(k.b32("m")), 1 << 20); }) ==
          "mbarrier.arrive.expect_tx.shared::cta.b64: bytes 1048576 must be in [0, 1048575]");
    CHECK(sentence([](Kernel& k) { k.wgmma_wait_group(8); }) ==
          "wgmma.wait_group.sync.aligned: pending 8 must be in [0, 7]");
    CHECK(sentence([](Kernel& k) {
            k.cp_async_bulk_store(address(k.b64("g")), address(k.b32("m")), 24);
          }) ==
          "cp.async.bulk.global.shared::cta.bulk_group: size 24 must be a multiple of 16 in [16, "
          "1048560]");
    CHECK(sentence([](Kernel& k) {
            k.cp_async_ca(address(k.b32("m")), address(k.b64("g")), 12);
          }) == "cp.async.ca.shared::cta.global: size 12 must be 4");
    CHECK(sentence([](Kernel& k) { k.threads(1025); }) ==
          "threads per CTA 1025 must be in [1, 1024]");
    CHECK(sentence([](Kernel& k) { k.cluster(17); }) == "CTAs per cluster 17 must be in [1, 16]");
    CHECK(sentence([](Kernel& k) { k.dynamic_shared("m", 24); }) ==
          "m: alignment 24 must be a power of two");
  }

  TEST_CASE("refuses misaligned offsets and addresses of the wrong width") {
    CHECK(sentence([](Kernel& k) { k.mbarrier_arrive(address(k.b32("m"), 4)); }) ==
          "mbarrier.arrive.shared::cta.b64: offset of [%m+4] must be a multiple of 8");
    CHECK(sentence([](Kernel& k) {
            k.st_global_v4_b32(address(k.b64("g"), 8), k.b32("v", 4).all());
          }) == "st.global.v4.b32: offset of [%g+8] must be a multiple of 16");
    CHECK(sentence([](Kernel& k) { k.st_global_u32(address(k.b32("g")), 1); }) ==
          "st.global.u32: operand 1 must be gmem, got [%g]");
    CHECK(sentence([](Kernel& k) { k.ld_shared_u32(k.b32("v"), address(k.b64("m"))); }) ==
          "ld.shared::cta.u32: operand 2 must be smem, got [%m]");
  }

  TEST_CASE("refuses wgmma and tensor copies whose lists do not fit") {
    CHECK(sentence([](Kernel& k) {
            k.wgmma_ss_16("bf16", 68, k.f32("d", 34).all(), k.b64("a"), k.b64("b"), 1, 0, 0);
          }) ==
          "wgmma.mma_async.sync.aligned.m64n68k16.f32.bf16.bf16: N = 68 must be a multiple of 8 in "
          "[8, 256]");
    CHECK(sentence([](Kernel& k) {
            k.wgmma_ss_16("bf16", 64, k.f32("d", 31).all(), k.b64("a"), k.b64("b"), 1, 0, 0);
          }) ==
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16: D must hold N/2 = 32 registers, "
          "got 31");
    CHECK(sentence([](Kernel& k) {
            k.wgmma_mma_async(64, 16, "f16.f16.f16", k.b32("d", 32).all(), k.b64("a"), k.b64("b"),
                              {1, 1, 1, 0, 0});
          }) ==
          "wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16: D must hold N/4 = 16 registers, got "
          "32");
    CHECK(sentence([](Kernel& k) {
            k.wgmma_mma_async(64, 16, "f32.f16.f16", k.f32("d", 32).all(), k.b64("a"), k.b64("b"),
                              {1, 0, 1, 0, 0});
          }) ==
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16: factor of A 0 must be -1 or 1");
    CHECK(sentence([](Kernel& k) {
            k.wgmma_mma_async(64, 32, "f32.e4m3.e4m3", k.f32("d", 32).all(), k.b64("a"), k.b64("b"),
                              {1, 1, 1, 0, 1});
          }) == "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3: takes 6 operands, got 8");
    CHECK(sentence([](Kernel& k) {
            Reg m = k.b32("m");
            k.emit("cp.async.bulk.prefetch.tensor.3d.L2.global",
                   {tensor_address(k.b64("map"), {m, 0})}, Location::current());
          }) == "cp.async.bulk.prefetch.tensor.3d.L2.global: takes 3 coordinates, got 2");
    CHECK(sentence([](Kernel& k) { k.ldmatrix(k.b32("d", 3).all(), address(k.b32("m"))); }) ==
          "ldmatrix.sync.aligned.m8n8.x3.shared::cta.b16: no such instruction in the table "
          "(gen/isa/table_data_*.cpp)");
    CHECK(sentence([](Kernel& k) { k.add_u32(k.b32("a"), special("tid.x"), 1); }) ==
          "add.u32: operand 2 must be b32|imm, got %tid.x");
  }

  TEST_CASE("refuses registers outside the scope that declares them, by name") {
    CHECK(sentence([](Kernel& k) {
            k.mov_b32(Reg{"lost", RegType::b32}, 0);
          }) == "mov.b32: register %lost is not declared");
    CHECK(sentence([](Kernel& k) {
            Reg inner;
            k.scope([&] { inner = k.b32("inner"); });
            k.mov_b32(inner, 0);
          }) == "mov.b32: register %inner is used outside the scope that declares it");
    CHECK(sentence([](Kernel& k) {
            Vec v;
            k.role("one", "", [&] { v = k.b32("row", 4); });
            k.role("two", "", [&] { k.mov_b32(v[2], 0); });
          }) == "mov.b32: register %row2 is used outside the scope that declares it");
    CHECK(sentence([](Kernel& k) {
            k.b32("row", 4), k.mov_b32(Reg{"row4", RegType::b32}, 0);
          }) == "mov.b32: register %row4 is used outside the scope that declares it");
    CHECK(sentence([](Kernel& k) {
            k.st_global_u32(address(Reg{"g", RegType::b64}), 1);
          }) == "st.global.u32: register %g is not declared");
    CHECK(sentence([](Kernel& k) {
            k.trap().when(Reg{"gone", RegType::pred});
          }) == "trap: register %gone is not declared");
    CHECK(sentence([](Kernel& k) {
            k.elect_sync(Reg{"chosen", RegType::pred});
          }) == "elect.sync: register %chosen is not declared");
    CHECK(sentence([](Kernel& k) { k.trap().when(k.b32("word")); }) ==
          "trap: guard %word is not a predicate");
    CHECK(sentence([](Kernel& k) {
            k.b16("half"), k.mov_b32(Reg{"half", RegType::b32}, 0);
          }) == "mov.b32: register %half is declared .b16, used as .b32");
    CHECK(sentence([](Kernel& k) { k.b32("x"), k.f32("x"); }) == "register %x is declared already");
    CHECK(sentence([](Kernel& k) { k.b32("x3"), k.f32("x", 4); }) ==
          "register %x is declared already");
    CHECK(sentence([](Kernel& k) { k.f32("x", 4), k.b32("x3"); }) ==
          "register %x3 is declared already");
    CHECK(sentence([](Kernel& k) { k.f32("x2", 4); }) ==
          "%x2<4>: the name of a row must not end in a digit, ptxas takes %x20 for an element of "
          "another row");
    CHECK(sentence([](Kernel& k) { k.b32("tid"); }) ==
          "register name %tid is a special register; choose another");
  }

  TEST_CASE("takes a name again in a sibling scope, and an outer register in an inner one") {
    Kernel k("scopes");
    Reg outer = k.b32("outer");
    for (int i = 0; i < 2; ++i) k.scope([&] { k.mov_b32(k.b32("inner"), outer); });
    if (ptxas().empty()) FLASHPTX_SKIP("no ptxas");
    Assembled a = assemble(k.text());
    CHECK_MESSAGE(a.ok, a.log);
  }

  TEST_CASE("refuses lost labels, hidden labels, labels placed twice and unknown symbols") {
    CHECK(sentence([](Kernel& k) { k.branch("$NOWHERE"); }) ==
          "label $NOWHERE is branched to but never placed");
    CHECK(sentence([](Kernel& k) {
            k.branch("$INSIDE");
            k.scope([&] { k.label("$INSIDE"); });
          }) == "label $INSIDE stands in a scope that the branch is not in");
    const int first = __LINE__ + 1;
    CHECK(sentence([](Kernel& k) { k.label("$TWICE"), k.label("$TWICE"); }) ==
          "label $TWICE is placed already, at line " + std::to_string(first));
    CHECK(sentence([](Kernel& k) { k.ld_param_u32(k.b32("r"), "absent"); }) ==
          "ld.param.u32: absent is no parameter or variable of the kernel");
    CHECK(sentence([](Kernel& k) { k.mov_b32(k.b32("r"), symbol("absent")); }) ==
          "mov.b32: absent is no parameter or variable of the kernel");
    CHECK(sentence([](Kernel& k) { k.param("n", "u32"), k.param_tensor_map("n"); }) ==
          "a parameter or variable n is declared already");
    CHECK(sentence([](Kernel& k) { k.param("n", "uint"); }) == "parameter n: no type .uint");
    CHECK(sentence([](Kernel& k) { k.threads(384), k.setmaxnreg_dec(24); }) ==
          "setmaxnreg: ptxas may drop it (C7508) unless threads() and min_ctas_per_sm() are given");
  }
}

}  // namespace
}  // namespace flashptx::test
