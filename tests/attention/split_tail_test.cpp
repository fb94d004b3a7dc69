// Tiles of the last wave cut along the keys (gen/tile/split_tail.cpp, host/split_tail.cpp): the shares, the results,
// the same bits whoever comes second, and tiles that are done again when a part of them overflows.
// Next: redo_test.cpp.
#include <cmath>
#include <cstring>
#include <set>
#include <sstream>
#include <tuple>
#include <vector>

#include "host/emulator/emulator.h"
#include "host/split_tail.h"
#include "tests/attention/beds.h"
#include "tests/attention/scores.h"
#include "tests/forwarding_device.h"
#include "tests/support.h"

using namespace flashptx;
using test::Bed;

namespace {

Bed cut_bed(std::uint64_t seed, int ctas) {
  EmulatorOptions o;
  o.seed = seed, o.adversary_level = seed == 0 ? 0 : seed % 2 ? 2 : 1;
  o.multiprocessors = ctas;
  return test::open_bed(DeviceChoice::emulator, o);
}

ForwardProblem problem_of(std::int64_t batch, std::int64_t heads, std::int64_t seqlen_q, std::int64_t seqlen_k, int head_dim) {
  ForwardProblem p;
  p.batch = batch, p.heads_q = p.heads_kv = heads, p.seqlen_q = seqlen_q, p.seqlen_k = seqlen_k;
  p.head_dim = p.head_dim_v = head_dim;
  return p;
}

const char* const cut_kernels[] = {
    "attn_fwd_bf16_d64_full__q256_kv64_s4_qs2__overlap_pp_guarded2_ob_tail",
    "attn_fwd_bf16_d64_full__q256_kv64_s8_qs2__overlap_pp_guarded2_ob_late_tail",
    "attn_fwd_f16_d128_full__q192_kv64_s3_qs2__overlap_pp_guarded1_tail",
    "attn_fwd_bf16_d64_full__q128_kv48_s2__overlap_lazy8_dyn_tail",
    "attn_fwd_bf16_d32v16_full__q64_kv32_s2__serial_plain_tail",
    "attn_fwd_e4m3_d64_full__q192_kv128_s3_qs2__overlap_guarded3_dyn_ob_tail",
    "attn_fwd_e4m3_d64_full_vt__q128_kv128_s2_qs2__trailing_pp_guarded3_ob_fold2_tail",
    "attn_fwd_e5m2_of16_d64_full_vt__q128_kv128_s2__serial_pp_guarded1_fast12_ob_tail",
    "attn_fwd_e4m3_d64_full_vt__q192_kv128_s3_qs2_vb__overlap_guarded3_dyn_ob_tail",
};

// Looks at the arrivals behind every launch that takes any.
class ArrivalsSpy : public test::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::size_t parameter = 0;  // where tail_arrivals stands
  int launches = 0, left = 0;  // of them, words that were not zero after one
  Status launch_choosing(LoadedKernel* kernel, const LaunchDims& dims, void** params, int count, Stream stream,
                         const std::function<void(bool)>& choose) override {
    if (Status s = inner->launch_choosing(kernel, dims, params, count, stream, choose); !s.ok()) return s;
    if (Status s = inner->synchronize(stream); !s.ok()) return s;
    const std::uint64_t at = *static_cast<const std::uint64_t*>(params[parameter]);
    if (at == 0) return {};
    std::vector<std::uint32_t> words(most_cut_tiles);
    if (Status s = inner->copy_from_device(words.data(), at, 4 * words.size()); !s.ok()) return s;
    ++launches;
    for (std::uint32_t w : words) left += w != 0;
    return {};
  }
};

struct Spied {
  int launches, left;
};
Spied run_spied(const Case& data, const ForwardChoice& choice, std::uint64_t seed, int ctas) {
  ArrivalsSpy spy(test::emulated_order(seed, ctas));
  const EmittedKernel kernel = emit(test::kernel_named(choice.kernel));
  while (kernel.facts.params[spy.parameter].name != "tail_arrivals") ++spy.parameter;
  Attention attention(spy);
  const Outcome r = run_case(spy, attention, data, choice);
  CHECK_MESSAGE(r.ok(), choice.kernel, ": ", r.complaint());
  return {spy.launches, spy.left};
}

// The statements of a text, without notes, from the one that has `what` on: `before` of them ahead of it, and `after`.
std::vector<std::vector<std::string>> around(const std::string& text, const std::string& what, std::size_t before, std::size_t after) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    line = line.substr(0, line.find("//"));
    if (line.find(';') == std::string::npos || line.find(".reg ") != std::string::npos) continue;
    lines.push_back(line.substr(line.find_first_not_of(' ')));
  }
  std::vector<std::vector<std::string>> out;
  for (std::size_t i = before; i + after < lines.size(); ++i)
    if (lines[i].find(what) != std::string::npos) out.push_back({lines.begin() + static_cast<long>(i - before), lines.begin() + static_cast<long>(i + after + 1)});
  return out;
}

// Two query heads a K/V head, rows that fill no tile, keys that fill no block.
Case shaped(const KernelConfig& c, std::int64_t heads, std::int64_t blocks, std::uint64_t seed, bool lse) {
  reference::Problem p;
  p.dtype = c.problem.dtype, p.dtype_o = c.problem.dtype_o, p.batch = 1, p.heads_q = heads, p.heads_kv = heads % 2 ? heads : heads / 2;
  p.head_dim = c.problem.head_dim, p.head_dim_v = c.problem.head_dim_v;
  p.seqlen_q = c.tile_q() + 30, p.seqlen_k = (blocks - 1) * c.plan.tile_kv + 9;
  Case made = make_case(p, reference::Layout::bshd, reference::Inputs::random, seed, lse, 24);
  made.fast = c.plan.direct_of_16 != 0;
  return made;
}

}  // namespace

TEST_SUITE("attention/split tail") {
  TEST_CASE("the shares cover every tile's keys once, and nobody has more than a whole tile's") {
    const KernelConfig c = test::kernel_named("attn_fwd_bf16_d128_full__q192_kv64_s3_qs2__overlap_pp_guarded1");
    int cut = 0;
    for (std::int64_t ctas : {2, 7, 114, 132, 256})
      for (std::int64_t heads : {1, 3, 16, 64, 100})
        for (std::int64_t seqlen : {64, 500, 4096, 16384, 100000})
          for (bool always : {false, true}) {
            const ForwardProblem p = problem_of(1, heads, seqlen, seqlen, 128);
            const SplitTail t = split_tail(p, c, ctas, always);
            if (t.parts == 0) continue;
            ++cut;
            const std::int64_t tiles = forward_tiles(p, c), all = (seqlen + 63) / 64, last = tiles - t.first;
            CAPTURE(ctas);
            CAPTURE(heads);
            CAPTURE(seqlen);
            CHECK(t.first % ctas == 0);
            CHECK(last > 0);
            CHECK(last < ctas);
            CHECK((t.blocks >= 1 && t.blocks < all));
            CHECK((t.grid - last) * t.parts >= last);  // every second part has a CTA
            CHECK(t.grid <= ctas);
            if (t.first > 0) CHECK(t.grid == ctas);
            if (!always) CHECK(t.parts * (all - t.blocks) <= t.blocks);
            CHECK(t.workspace_bytes == static_cast<std::size_t>(2 * last * 192 * 130 * 4));
          }
    CHECK(cut > 50);
    CHECK(split_tail(problem_of(1, 7, 192, 4096, 128), c, 7).parts == 0);   // a whole wave
    CHECK(split_tail(problem_of(1, 3, 192, 64, 128), c, 7, true).parts == 0);  // one block
    CHECK(split_tail(problem_of(1, 3, 192, 4096, 128), c, 1, true).parts == 0);
    CHECK(split_tail(problem_of(1, 290, 192, 4096, 128), c, 300, true).parts == 0);  // more than there are arrivals for
    CHECK(split_tail(problem_of(1, 256, 192, 4096, 128), c, 300, true).parts != 0);
    const std::int64_t most = INT32_MAX;  // refused later; nothing may overflow until then
    CHECK(forward_tiles(problem_of(most, most, most, 4096, 128), c) == INT64_MAX);
  }

  TEST_CASE("whoever comes second: right, and the same bits in every order") {
    for (const char* name : cut_kernels) {
      const KernelConfig c = test::kernel_named(name);
      for (const auto& [ctas, heads, blocks] :
           std::vector<std::tuple<int, int, int>>{{3, 4, 7}, {4, 3, 5}, {5, 1, 6}, {7, 2, 2}, {5, 2, 9}, {2, 1, 3}}) {
        const Case data = shaped(c, heads, blocks, static_cast<std::uint64_t>(ctas), heads != 2);
        std::vector<std::uint8_t> o, lse;
        const bool cuts = split_tail(host_problem(data), c, ctas, true).parts != 0;
        for (std::uint64_t seed = 0; seed < 3; ++seed) {
          Bed bed = cut_bed(seed, ctas);
          ForwardChoice choice;
          choice.kernel = name;
          const Outcome r = run_case(*bed.device, *bed.attention, data, choice);
          CHECK_MESSAGE(r.ok(), name, " on ", ctas, ": ", r.complaint());
          if (seed == 0) o = r.o_bytes, lse = r.lse_bytes;
          CHECK_MESSAGE((r.o_bytes == o && r.lse_bytes == lse), name, " on ", ctas, ", seed ", seed);
          if (seed >= 2 && !cuts) break;
        }
      }
    }
  }

  TEST_CASE("without the workspace no tile is cut: the bits of the kernel that cannot") {
    const std::string whole = "attn_fwd_bf16_d64_full__q128_kv64_s2__overlap_pp_guarded1_ob";
    const KernelConfig c = test::kernel_named(whole + "_tail");
    const Case data = shaped(c, 3, 6, 5, true);
    Bed bed = cut_bed(1, 4);
    ForwardChoice choice;
    choice.kernel = whole;
    const Outcome uncut = run_case(*bed.device, *bed.attention, data, choice);
    REQUIRE_MESSAGE(uncut.ok(), uncut.complaint());
    std::unique_ptr<ForwardPlan> plan;
    choice.kernel = c.name();
    REQUIRE(bed.attention->plan_forward(host_problem(data), choice, &plan).ok());
    CHECK(plan->tail().parts > 0);
    CHECK(plan->workspace_bytes() == plan->tail().workspace_bytes);
    ForwardProblem none = host_problem(data);
    none.allow_workspace = false;
    std::unique_ptr<ForwardPlan> without;
    REQUIRE(bed.attention->plan_forward(none, choice, &without).ok());
    CHECK(without->workspace_bytes() == 0);
    const reference::Tensors& t = data.tensors;
    GuardedBuffer q(*bed.device, t.q.size()), k(*bed.device, t.k.size()), v(*bed.device, t.v.size());
    GuardedBuffer o(*bed.device, uncut.o_bytes.size());
    REQUIRE((q.allocate(0).ok() && k.allocate(0).ok() && v.allocate(0).ok()));
    REQUIRE((q.upload(t.q).ok() && k.upload(t.k).ok() && v.upload(t.v).ok()));
    for (ForwardPlan* one : {plan.get(), without.get()}) {
      REQUIRE(o.allocate(0xff).ok());
      ForwardPointers at;
      at.q = q.address(), at.k = k.address(), at.v = v.address(), at.o = o.address();
      REQUIRE(one->run(at, nullptr).ok());
      std::vector<std::uint8_t> bytes;
      bool guards = false;
      REQUIRE(o.download(&bytes, &guards).ok());
      CHECK(guards);
      CHECK(bytes == uncut.o_bytes);
      at.workspace = 24;  // not a multiple of 16
      if (one->workspace_bytes() != 0) CHECK(one->run(at, nullptr).code == StatusCode::invalid_argument);
    }
  }

  TEST_CASE("a kernel asked for by name cuts as the host's choice does; where that cuts nothing, at least two blocks") {
    Bed bed = cut_bed(1, 132);
    for (std::int64_t keys : {16384, 256}) {
      ForwardProblem p;
      p.batch = 1, p.heads_q = p.heads_kv = 8, p.seqlen_q = 1024, p.seqlen_k = keys, p.head_dim = 128;
      p.q = p.o = strides_bshd(p.seqlen_q, 8, 128), p.k = p.v = strides_bshd(keys, 8, 128);
      p.softmax_scale = 0.1f, p.allow_workspace = true;
      std::unique_ptr<ForwardPlan> chosen, named;
      REQUIRE(bed.attention->plan_forward(p, {}, &chosen).ok());
      KernelConfig c;
      REQUIRE(KernelConfig::parse(chosen->kernel_name(), &c, nullptr));
      CHECK(c.plan.split_tail == (keys == 16384));
      c.plan.split_tail = true;
      ForwardChoice choice;
      choice.kernel = c.name();
      REQUIRE(bed.attention->plan_forward(p, choice, &named).ok());
      CHECK(named->tail().parts > 0);
      CHECK(split_tail(p, c, 132, true).blocks != split_tail(p, c, 132).blocks);  // the two rules differ here
      if (keys != 16384) continue;
      CHECK(named->tail().blocks == chosen->tail().blocks);
      CHECK(named->tail().parts == chosen->tail().parts);
    }
  }

  TEST_CASE("a part that overflows is done again, its other part and its other rows are not stored twice") {
    for (const char* name : {"attn_fwd_bf16_d64_full__q128_kv64_s2_qs2__overlap_pp_guarded1_ob_tail",
                             "attn_fwd_bf16_d64_full__q128_kv64_s2_qs2__overlap_pp_guarded1_ob_late_tail",
                             "attn_fwd_f16_d64_full__q128_kv64_s2__overlap_pp_guarded1_dyn_tail",
                             "attn_fwd_e4m3_d64_full__q128_kv128_s2__serial_pp_guarded1_ob_tail"}) {
      const KernelConfig c = test::kernel_named(name);
      reference::Problem p;
      p.dtype = c.problem.dtype;
      p.heads_q = p.heads_kv = 3, p.head_dim = p.head_dim_v = 64;
      p.seqlen_q = c.tile_q(), p.seqlen_k = 5 * c.plan.tile_kv + 20;
      for (int ctas : {4, 5, 2})
        for (const std::set<int>& failing : {std::set<int>{0}, {2}, {0, 1, 2}}) {
          reference::Problem q = p;
          // One warpgroup's rows jump, and of those one warp's.
          const test::Scores s = test::jumping_scores(&q, 140, [&](std::int64_t head, std::int64_t row) {
            return failing.count(static_cast<int>(head)) != 0 && row / 16 == (failing.size() > 1 ? 6 : 1);
          });
          const Case data = test::scored_case(q, s);
          REQUIRE(split_tail(host_problem(data), c, ctas, true).parts != 0);
          for (std::uint64_t seed = 0; seed < 3; ++seed) {
            Bed bed = cut_bed(seed, ctas);
            ForwardChoice choice;
            choice.kernel = name;
            const Outcome r = run_case(*bed.device, *bed.attention, data, choice);
            CHECK_MESSAGE(r.ok(), name, " on ", ctas, " seed ", seed, ": ", r.complaint());
          }
        }
    }
  }

  TEST_CASE("every launch leaves its arrivals zero, also where a part is done again") {
    for (const char* name : cut_kernels) {
      const KernelConfig c = test::kernel_named(name);
      for (const auto& [ctas, heads] : std::vector<std::pair<int, int>>{{5, 1}, {5, 2}, {4, 3}}) {
        const Case data = shaped(c, heads, 4, 2, true);
        ForwardChoice choice;
        choice.kernel = name;
        const Spied spy = run_spied(data, choice, 3, ctas);
        CHECK(spy.launches == (split_tail(host_problem(data), c, ctas, true).parts != 0 ? 1 : 0));
        CHECK_MESSAGE(spy.left == 0, name, " on ", ctas);
      }
    }
    ForwardChoice choice;
    choice.kernel = "attn_fwd_bf16_d64_full__q128_kv64_s2_qs2__overlap_pp_guarded1_ob_tail";
    reference::Problem p;
    p.dtype = DataType::bf16, p.heads_q = p.heads_kv = 3, p.head_dim = p.head_dim_v = 64, p.seqlen_q = 128, p.seqlen_k = 340;
    const test::Scores s = test::jumping_scores(&p, 140, [](std::int64_t head, std::int64_t row) { return head != 1 && row / 16 == 2; });
    const Case data = test::scored_case(p, s);
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      const Spied spy = run_spied(data, choice, seed, 4);
      CHECK(spy.launches == 1);
      CHECK(spy.left == 0);
    }
    // This test can fail: nobody takes the arrivals back.
    choice.ptx = emit(test::kernel_named(choice.kernel)).text;
    const std::string clears = "add.u32 %unused, [%arrivals_at], %two;";
    for (std::size_t at; (at = choice.ptx.find(clears)) != std::string::npos;)
      choice.ptx.replace(at, clears.size(), "add.u32 %unused, [%arrivals_at], 0;");
    CHECK(run_spied(data, choice, 0, 4).left == 3);
  }

  // The emulator orders global memory more than a GPU does: what it cannot miss is looked for in the text.
  TEST_CASE("a warp's rows are behind one fence before it says so, the other's ahead of one after") {
    std::vector<KernelConfig> all;
    for (const char* name : cut_kernels) all.push_back(test::kernel_named(name));
    for (const KernelConfig& c : catalog())
      if (c.plan.split_tail) all.push_back(c);
    for (const KernelConfig& c : all) {
      const std::string text = emit(c).text;
      const auto arrivals = around(text, "add.u32 %before, [%arrivals_at], %field_bit", 3, 10);
      CHECK(arrivals.size() >= 2);
      for (const auto& a : arrivals) {
        CAPTURE(c.name());
        CHECK(a[0].rfind("bar.warp.sync", 0) == 0);
        CHECK(a[1].rfind("@!%is_lane0 bra", 0) == 0);
        CHECK(a[2] == a[10]);
        CHECK(a[10].rfind("fence.acq_rel.gpu;", 0) == 0);
        CHECK(a[11].rfind("bar.warp.sync", 0) == 0);
        CHECK(a[12].rfind("shfl.sync.idx.b32", 0) == 0);
        CHECK(a[13].rfind("setp.ne.u32 %is_second, %before, 0", 0) == 0);
      }
      // Through caches that the fence empties: not by way of the read-only one.
      CHECK(text.find("ld.global.nc") == std::string::npos);
    }
  }

  TEST_CASE("a maximum next to which fp32 forgets the sum, and rows that see only -inf: as without cutting") {
    for (const char* softmax : {"plain", "lazy8", "guarded1"}) {
      const std::string whole = std::string("attn_fwd_bf16_d64_full__q128_kv64_s2__overlap_pp_") + softmax + "_ob";
      const KernelConfig c = test::kernel_named(whole + "_tail");
      Case data = shaped(c, 3, 6, 5, true);
      // Heads have 64 columns: of the rows named, and of every key, all but the first are zero.
      const auto put = [](std::vector<std::uint8_t>& bytes, std::int64_t at, std::uint16_t bf16) {
        for (int i = 0; i < 64; ++i) bytes[static_cast<std::size_t>(2 * (at + i))] = bytes[static_cast<std::size_t>(2 * (at + i) + 1)] = 0;
        bytes[static_cast<std::size_t>(2 * at)] = static_cast<std::uint8_t>(bf16), bytes[static_cast<std::size_t>(2 * at + 1)] = static_cast<std::uint8_t>(bf16 >> 8);
      };
      const reference::Problem& p = data.problem();
      for (std::int64_t key = 0; key < p.seqlen_k; ++key) put(data.tensors.k, (key * 3 + 1) * 64, 0xbf80);  // -1
      put(data.tensors.q, (3 * 3 + 1) * 64, 0x7f80);   // infinity: every score is -inf
      put(data.tensors.q, (20 * 3 + 1) * 64, 0x7a00);  // 2^117 / 8: every score is the same
      put(data.tensors.q, (40 * 3 + 1) * 64, 0xfa00);
      for (int ctas : {4, 5, 8}) {
        REQUIRE(split_tail(host_problem(data), c, ctas, true).parts != 0);
        Bed bed = cut_bed(1, ctas);
        ForwardChoice choice;
        choice.kernel = whole;
        const Outcome uncut = run_case(*bed.device, *bed.attention, data, choice);
        choice.kernel = c.name();
        const Outcome cut = run_case(*bed.device, *bed.attention, data, choice);
        REQUIRE_MESSAGE((uncut.status.ok() && cut.status.ok()), cut.status.message);
        for (std::int64_t row : {3, 20, 40, 41}) {
          CAPTURE(whole);
          CAPTURE(ctas);
          CAPTURE(row);
          const auto lse = [&](const Outcome& o) {  // of head 1
            float value = 0;
            std::memcpy(&value, &o.lse_bytes[static_cast<std::size_t>(4 * (p.seqlen_q + row))], 4);
            return value;
          };
          const auto value = [&](const Outcome& o, std::int64_t i) {
            float f = 0;
            std::memcpy(reinterpret_cast<char*>(&f) + 2, &o.o_bytes[static_cast<std::size_t>(2 * ((row * 3 + 1) * 64 + i))], 2);
            return f;
          };
          if (row == 3) CHECK((lse(cut) == -HUGE_VALF && lse(uncut) == -HUGE_VALF));
          else CHECK(std::fabs(lse(cut) - lse(uncut)) <= 1e-6f * std::fabs(lse(uncut)));
          float worst = 0;
          for (std::int64_t i = 0; i < 64; ++i) {
            const float off = std::fabs(value(cut, i) - value(uncut, i));
            if (!(off <= worst)) worst = off;
          }
          CHECK(worst <= 0.004f);
        }
      }
    }
  }

  TEST_CASE("gpu: cut tiles of every kind, 40 runs with the same bits") {
    Bed& gpu = test::gpu_bed();
    if (!gpu.device) FLASHPTX_SKIP("no GPU: " + gpu.missing);
    for (const char* name : cut_kernels) {
      const KernelConfig c = test::kernel_named(name);
      for (std::int64_t heads : {40, 100}) {
        const Case data = shaped(c, heads, 20, 3, true);
        ForwardChoice choice;
        choice.kernel = name;
        std::vector<std::uint8_t> o;
        for (int run = 0; run < 20; ++run) {
          const Outcome r = run_case(*gpu.device, *gpu.attention, data, choice);
          REQUIRE_MESSAGE(r.ok(), name, ": ", r.complaint());
          if (run == 0) o = r.o_bytes;
          REQUIRE_MESSAGE(r.o_bytes == o, name, " run ", run);
        }
      }
    }
  }
}
