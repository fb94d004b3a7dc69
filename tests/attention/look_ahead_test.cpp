// Barriers looked at ahead of their wait (emit_look_ahead): the wait is skipped where the answer was yes and taken where it was no; a look at another block's barrier
// is noticed; own schedules whose P V is of the block before and stands behind the exponentials.
// Next: gen/kernels/attention_forward.cpp (emit_look_ahead), tests/gen/schedule_test.cpp.
#include <cmath>

#include "gen/schedule/text.h"
#include "tests/attention/beds.h"
#include "tests/support.h"

using namespace flashptx;
using test::Bed;

namespace {

Case looked_shape(const KernelConfig& c, int rows, int keys) {
  reference::Problem p;
  p.dtype = c.problem.dtype, p.mask = c.problem.mask, p.threads = 1;
  p.heads_q = 2, p.heads_kv = 1, p.seqlen_q = rows, p.seqlen_k = keys;
  p.head_dim = p.head_dim_v = c.problem.head_dim;
  p.scale = 1 / std::sqrt(static_cast<float>(p.head_dim));
  return make_case(p, reference::Layout::bshd, reference::Inputs::random, 7, true, 0);
}

Bed looked_bed(std::uint64_t seed) {
  EmulatorOptions options = test::emulated_order(seed, 2);
  options.threads = 1;
  return test::open_bed(DeviceChoice::emulator, options);
}

}  // namespace

TEST_SUITE("attention/look ahead") {
  // A trap in the way of each answer.
  TEST_CASE("both ways are taken, for K and for V") {
    for (const std::string name : {"attn_fwd_bf16_d64_full__q128_kv64_s2__overlap_guarded2_ob", "attn_fwd_e4m3_d64_causal__q128_kv128_s2_qs2__trailing_guarded1_dyn_ob",
                                   "attn_fwd_f16_d64_full__q128_kv64_s3_qs2__overlap_pp_guarded2_ob_x2"}) {
      const std::string clean = emit(test::kernel_named(name)).text;
      const Case data = looked_shape(test::kernel_named(name), 200, 1500);
      for (const std::string branch : {"@%k_ready bra ", "@%v_ready bra "})
        for (const char* guard : {"@", "@!"}) {
          std::string text = clean;
          std::size_t traps = 0;
          for (std::size_t at = 0; (at = text.find(branch, at)) != std::string::npos; ++traps) {
            const std::string trap = guard + branch.substr(1, branch.find(' ') - 1) + " trap; ";
            text.insert(at, trap), at += trap.size() + branch.size();
          }
          REQUIRE(traps > 0);
          Bed bed = looked_bed(1);
          ForwardChoice choice;
          choice.kernel = name, choice.ptx = text;
          CHECK_MESSAGE(!run_case(*bed.device, *bed.attention, data, choice).ok(), name, " ", branch, guard);
        }
    }
  }

  TEST_CASE("a look at another block's barrier is noticed") {
    const std::string name = "attn_fwd_bf16_d64_full__q128_kv64_s4__overlap_guarded2_ob", clean = emit(test::kernel_named(name)).text;
    const auto instead = [&](const std::string& from, const std::string& to) {
      std::string out = clean;
      std::size_t at = 0, times = 0;
      while ((at = out.find(from, at)) != std::string::npos) out.replace(at, from.size(), to), at += to.size(), ++times;
      REQUIRE_MESSAGE(times > 0, from);
      return out;
    };
    const Case data = looked_shape(test::kernel_named(name), 200, 1500);
    for (const auto& [what, text] : std::vector<std::pair<std::string, std::string>>{
             {"nothing", clean},
             {"K is not waited for", instead("@%k_ready bra", "bra")},
             {"V is not waited for", instead("@%v_ready bra", "bra")},
             {"K: this block's", instead("add.u32 %next_position, %kv_count, 1;", "add.u32 %next_position, %kv_count, 0;")},
             {"V: the one before", instead("and.b32 %next_v_stage, %kv_count, 3;", "sub.u32 %next_v_stage, %kv_count, 1; and.b32 %next_v_stage, %next_v_stage, 3;")}}) {
      bool noticed = false;
      for (std::uint64_t seed = 0; seed < 24 && !noticed; ++seed) {
        Bed bed = looked_bed(seed);
        ForwardChoice choice;
        choice.kernel = name, choice.ptx = text;
        noticed = !run_case(*bed.device, *bed.attention, data, choice).ok();
      }
      CHECK_MESSAGE(noticed == (text != clean), what);
    }
  }

  TEST_CASE("own schedules whose P V is of the block before, behind the exponentials") {
    Schedule own;
    for (const char* turns : {"", "token_wait\n"}) {
      const std::string table = std::string("schedule latepv\n") + turns + "qk\n" + (*turns ? "token_pass\n" : "") +
                                "wait_qk\nfree_k\nmask_max\nexp_sum\npv lag 1\nwait_pv lag 1\nfree_v lag 1\nrescale_o\npack_p\n";
      std::string error;
      REQUIRE_MESSAGE(parse_schedule(table, "own", &own, &error), error);
      for (const char* kind : {"attn_fwd_bf16_d16_full__q64_kv16_s8__overlap_plain", "attn_fwd_f16_d64_full__q128_kv64_s2__overlap_guarded2_ob",
                               "attn_fwd_bf16_d64_causal__q128_kv64_s2__overlap_lazy8", "attn_fwd_e4m3_d64_full_vt__q128_kv128_s2__overlap_plain_ob"}) {
        KernelConfig c = test::kernel_named(kind);
        c.plan.ping_pong = *turns != 0;
        c.plan.follow(own);
        const Case data = looked_shape(c, 200, 900);
        for (std::uint64_t seed = 0; seed < 6; ++seed) {
          Bed bed = looked_bed(seed);
          ForwardChoice choice;
          choice.kernel = c.name(), choice.schedule = own;
          const Outcome r = run_case(*bed.device, *bed.attention, data, choice);
          CHECK_MESSAGE(r.ok(), c.name(), " seed ", seed, ": ", r.complaint());
        }
      }
    }
  }
}
