// P V in flight before the vote on its P is looked at (Plan::late_vote): right for every size, order and number of CTAs, with the same bits where no tile is done again; what it
// goes with; and that the branch which takes P V back has run, for one warp's rows and for all.
// Next: gen/tile/softmax.cpp (emit_late_look), redo_test.cpp (its two kinds of kernel past the range).
#include <cmath>
#include <sstream>

#include "gen/kernels/attention_forward.h"
#include "host/emulator/emulator.h"
#include "tests/attention/beds.h"
#include "tests/attention/scores.h"
#include "tests/support.h"

using namespace flashptx;
using test::Bed;

namespace {

const char* const voting_late[] = {
    "attn_fwd_e4m3_d64_full__q192_kv128_s2_qs2__trailing_guarded3_chord8_lv_dyn_ob",
    "attn_fwd_e4m3_d64_causal__q256_kv64_s4_qs2__serial_guarded1_lv_dyn_ob",
    "attn_fwd_e5m2_d48_causal__q128_kv128_s2_qs2__trailing_pp_guarded1_chord4_lv_dyn_ob",
    "attn_fwd_e4m3_d64_full_vt__q192_kv128_s2_qs2__trailing_pp_guarded3_chord8_lv_ob",
    "attn_fwd_e4m3_d128_full__q128_kv128_s2_qs2__serial_pp_guarded2_lv_ob",
};

// Times that a P V of a negated P was issued, by warps.
std::uint64_t taken_back(Device& device, const std::string& text) {
  const std::vector<std::uint64_t> counts = emulator_line_counts(device);
  std::istringstream lines(text);
  std::uint64_t times = 0;
  std::size_t number = 0, start = 0;  // an instruction may take several lines
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find("wgmma.mma_async") != std::string::npos) start = number;
    if (start != 0 && line.find(", -1, 1;") != std::string::npos && start < counts.size()) times += counts[start];
    if (line.find(';') != std::string::npos) start = 0;
  }
  return times;
}

}  // namespace

TEST_SUITE("attention/late vote") {
  TEST_CASE("right in every order and size, with the same bits; P V is taken back where some row's keys rise") {
    for (const char* name : voting_late) {
      const KernelConfig c = test::kernel_named(name);
      const std::string text = emit(c).text;
      for (const auto& [rows, keys, heads] : std::vector<std::tuple<int, int, int>>{{700, 900, 2}, {300, 129, 4}, {130, 1, 2}, {65, 64, 6}})
        for (double rise : {0.0, 3.0}) {
          reference::Problem p;
          p.dtype = c.problem.dtype, p.mask = c.problem.mask, p.threads = 1;
          p.heads_q = heads, p.heads_kv = heads / 2, p.seqlen_q = rows, p.seqlen_k = keys, p.head_dim = p.head_dim_v = c.problem.head_dim;
          p.scale = 1 / std::sqrt(static_cast<float>(p.head_dim));
          // Blocks run from the last to the first: earlier keys score more, by `rise` log2 units a block, for every third row.
          test::Scores s;
          s.q0 = [](std::int64_t, std::int64_t row) { return row % 3 ? 0.0 : 1.0; };
          s.k0 = [rise, &p](std::int64_t, std::int64_t key) { return rise * std::log(2.0) / p.scale * std::floor(static_cast<double>(p.seqlen_k - 1 - key) / 64) / 2; };
          const Case data = test::scored_case(p, s);
          std::vector<std::uint8_t> o;
          for (std::uint64_t seed = 0; seed < 3; ++seed) {
            EmulatorOptions options = test::emulated_order(seed, seed == 1 ? 1 : 3);
            options.threads = 1;
            Bed bed = test::open_bed(DeviceChoice::emulator, options);
            ForwardChoice choice;
            choice.kernel = name;
            const Outcome r = run_case(*bed.device, *bed.attention, data, choice);
            const std::string what = std::string(name) + " " + std::to_string(rows) + " x " + std::to_string(keys) + " rise " + std::to_string(rise);
            CHECK_MESSAGE(r.ok(), what, ": ", r.complaint());
            if (seed == 0) o = r.o_bytes;
            CHECK_MESSAGE(r.o_bytes == o, what, ", seed ", seed, ": other bits");
            if (rise > 0 && keys >= 900) CHECK_MESSAGE(taken_back(*bed.device, text) != 0, what);
          }
        }
    }
  }

  TEST_CASE("a wait, a fence or the vote less in the branch that takes P V back is noticed") {
    const std::string name = voting_late[1], clean = emit(test::kernel_named(name)).text;
    const std::string fence = "wgmma.fence.sync.aligned;", branch = "P V taken back, P scaled";
    const auto without = [&](const std::string& from, const std::string& what, const std::string& instead) {
      const std::size_t at = clean.find(what, clean.find(from));
      REQUIRE_MESSAGE(at != std::string::npos, what);
      return std::string(clean).replace(at, what.size(), instead);
    };
    const std::size_t scaled = clean.find("largest_p", clean.find(branch));
    REQUIRE(scaled != std::string::npos);
    const std::size_t last_fence = clean.find(fence, scaled);
    REQUIRE(last_fence != std::string::npos);
    const std::pair<std::string, std::string> edits[] = {
        {"nothing", clean},
        {"the wait for O", without(branch + "\n", "wgmma.wait_group.sync.aligned 0;                // O is what it was", "")},
        {"the fence behind the scaling", std::string(clean).replace(last_fence, fence.size(), "")},
        {"the warpgroup's vote", without("%vote_barrier;", "@!%some_warp_is_over bra", "@!%over_late bra")},
        {"the product that takes back", without(branch, "%o_keep, -1, 1;", "%o_keep, 1, 1;")},
    };
    reference::Problem p;
    p.dtype = DataType::e4m3, p.mask = Mask::causal, p.threads = 1;
    p.heads_q = 2, p.heads_kv = 1, p.seqlen_q = 500, p.seqlen_k = 700, p.head_dim = p.head_dim_v = 64;
    p.scale = 0.125f;
    test::Scores s;  // as above
    s.q0 = [](std::int64_t, std::int64_t row) { return row % 48 ? 0.0 : 1.0; };
    s.k0 = [&p](std::int64_t, std::int64_t key) { return 3 * std::log(2.0) / p.scale * std::floor(static_cast<double>(p.seqlen_k - 1 - key) / 64) / 2; };
    const Case data = test::scored_case(p, s);
    for (const auto& [what, text] : edits) {
      bool noticed = false;
      for (std::uint64_t seed = 0; seed < 4 && !noticed; ++seed) {
        EmulatorOptions options = test::emulated_order(seed, 1);
        options.threads = 1;
        Bed bed = test::open_bed(DeviceChoice::emulator, options);
        ForwardChoice choice;
        choice.kernel = name, choice.ptx = text;
        const Outcome r = run_case(*bed.device, *bed.attention, data, choice);
        noticed = !r.ok();
      }
      CHECK_MESSAGE(noticed == (text != clean), what);
    }
  }

  TEST_CASE("what it does not go with is refused by name") {
    const auto refusal = [](const std::string& name) { return gen::check_forward(test::kernel_named(name)); };
    for (const auto& [name, why] : std::vector<std::pair<std::string, std::string>>{
             {"attn_fwd_bf16_d64_full__q256_kv64_s4_qs2__serial_guarded2_lv_ob", "late_vote is for 8-bit kernels"},
             {"attn_fwd_e4m3_d64_full__q192_kv128_s2_qs2__serial_plain_lv_dyn_ob", "late_vote is for 8-bit kernels with a guarded softmax"},
             {"attn_fwd_e4m3_d64_full_bs128__q192_kv128_s2_qs2__serial_guarded3_lv_dyn_ob", "scales by head"},
             {"attn_fwd_e4m3_d64_full__q192_kv128_s2_qs2__serial_guarded3_fast8_lv_dyn_ob", "no direct words"},
             {"attn_fwd_e4m3_d64_full__q192_kv128_s2_qs2__serial_guarded3_lv_dyn_ob_fold16", "neither fold_blocks nor cluster"},
             {"attn_fwd_e4m3_d144_full__q64_kv128_s2__serial_guarded1_lv_ob", "a head_dim_v up to 128"},
             {"attn_fwd_e4m3_d64_full__q192_kv128_s2_qs2__overlap_guarded3_lv_dyn_ob", "does not issue P V in the trip that packs P"},
             {"attn_fwd_e4m3_d128_full__q192_kv128_s2_qs2__serial_guarded3_lv_dyn_ob", "leaves no registers for late_vote"}})
      CHECK_MESSAGE(refusal(name).find(why) != std::string::npos, name, ": ", refusal(name));
    for (const char* name : voting_late) CHECK(refusal(name) == "");
  }
}
