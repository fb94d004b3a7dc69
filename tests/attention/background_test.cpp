// V^T written by the kernel's own idle warps (Plan::v_background): the bits of the same kernel behind the pass, for every size,
// order and number of CTAs; flags and counters zero after each launch; what fits together, what is refused; and texts that
// lack one of the steps that order V^T, which must not pass.
// Next: gen/tile/tile_background.cpp, tests/host/attention_test.cpp (maps, flags, workspace).
#include <cmath>
#include <cstring>

#include "gen/kernels/attention_forward.h"
#include "host/emulator/emulator.h"
#include "tests/attention/beds.h"
#include "tests/attention/scores.h"
#include "tests/forwarding_device.h"
#include "tests/support.h"

using namespace flashptx;
using reference::Inputs;
using reference::Layout;
using test::Bed;

namespace {

// Looks behind every launch at the flags, and at the counter of tiles.
class FlagsSpy : public test::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::vector<std::pair<std::size_t, std::size_t>> watched;  // parameter, words
  int launches = 0, left = 0;                                // of them, words that were not zero after one
  std::vector<std::uint64_t> flags;                          // where each launch had them
  Status launch_choosing(LoadedKernel* kernel, const LaunchDims& dims, void** params, int count, Stream stream,
                         const std::function<void(bool)>& choose) override {
    if (Status s = inner->launch_choosing(kernel, dims, params, count, stream, choose); !s.ok()) return s;
    if (Status s = inner->synchronize(stream); !s.ok()) return s;
    ++launches;
    for (const auto& [parameter, size] : watched) {
      const std::uint64_t at = *static_cast<const std::uint64_t*>(params[parameter]);
      std::vector<std::uint32_t> words(size);
      if (Status s = inner->copy_from_device(words.data(), at, 4 * size); !s.ok()) return s;
      for (std::uint32_t w : words) left += w != 0;
      if (parameter == watched.front().first) flags.push_back(at);
    }
    return {};
  }
  void watch(const std::string& kernel, const reference::Problem& p) {
    watched.clear();
    const LaunchFacts facts = emit(test::kernel_named(kernel)).facts;
    for (std::size_t i = 0; i < facts.params.size(); ++i)
      if (facts.params[i].name == "v_flags") watched.insert(watched.begin(), {i, static_cast<std::size_t>(2 + p.batch * p.heads_kv)});
      else if (facts.params[i].name == "tile_counter") watched.push_back({i, 2});
    REQUIRE(!watched.empty());
  }
};

std::string behind_the_pass(std::string name) { return name.erase(name.find("_vb"), 3); }

reference::Problem shape(const KernelConfig& c, std::int64_t batch, std::int64_t heads, std::int64_t heads_kv, std::int64_t seqlen_q,
                         std::int64_t seqlen_k) {
  reference::Problem p;
  p.dtype = c.problem.dtype, p.dtype_k = c.problem.dtype_k, p.dtype_v = c.problem.dtype_v, p.dtype_o = c.problem.dtype_o;
  p.mask = c.problem.mask, p.head_dim = c.problem.head_dim, p.head_dim_v = c.problem.head_dim_v;
  p.batch = batch, p.heads_q = heads, p.heads_kv = heads_kv, p.seqlen_q = seqlen_q, p.seqlen_k = seqlen_k;
  p.scale = 1 / std::sqrt(static_cast<float>(p.head_dim));
  return p;
}

Case case_of(const std::string& kernel, const reference::Problem& p, Layout layout = Layout::bshd, Inputs inputs = Inputs::random) {
  Case c = make_case(p, layout, inputs, 5, true, 24);
  c.fast = test::kernel_named(kernel).plan.direct_of_16 != 0;
  return c;
}

// Right, and the bits of the kernel that a pass precedes.
void same_as_pass(Device& device, Attention& attention, const std::string& kernel, const Case& c) {
  const reference::Problem& p = c.problem();
  INFO(kernel, " ", p.batch, "x", p.heads_q, "/", p.heads_kv, " ", p.seqlen_q, "x", p.seqlen_k);
  const Outcome own = run_case(device, attention, c, {kernel, ""});
  REQUIRE_MESSAGE(own.ok(), own.complaint());
  const Outcome pass = run_case(device, attention, c, {behind_the_pass(kernel), ""});
  REQUIRE_MESSAGE(pass.status.ok(), pass.complaint());
  CHECK(own.o_bytes == pass.o_bytes);
  CHECK(own.lse_bytes == pass.lse_bytes);
}
void same_as_pass(Bed& bed, const std::string& kernel, const Case& c) { same_as_pass(*bed.device, *bed.attention, kernel, c); }

// One or two slabs of a head, the last of them narrower; 16 to 256 columns; every softmax; static and drawn tiles.
const char* const kernels[] = {
    "attn_fwd_e4m3_d256_full_vt__q128_kv128_s2_vb__overlap_pp_guarded3_ob",
    "attn_fwd_e4m3_d256_causal_vt__q128_kv128_s2_vb__overlap_pp_plain_dyn_ob",
    "attn_fwd_e4m3_d128_causal_vt__q192_kv128_s3_qs2_vb__serial_pp_guarded3_chord4_dyn_ob",
    "attn_fwd_e4m3_d64_full_vt__q192_kv128_s3_qs2_vb__overlap_guarded3_chord6_dyn_ob",
    "attn_fwd_e5m2_d192_full_vt__q128_kv128_s2_vb__overlap_pp_guarded3_dyn_ob",
    "attn_fwd_e4m3_d96_causal_vt__q192_kv128_s2_vs3_vb__serial_pp_lazy4_ob",
    "attn_fwd_e4m3_d128v16_full_vt__q128_kv128_s2_vb__serial_pp_plain_ob",
    "attn_fwd_e4m3_d64v144_full_vt__q128_kv128_s2_vb__serial_pp_plain_ob",
    "attn_fwd_e4m3_of16_d64v80_full_vt__q64_kv256_s2_vb__serial_plain_dyn_ob",
};

// With everything that a kernel can have beside.
const char* const with_all[] = {
    "attn_fwd_e4m3_ke5m2_d64_full_vt__q128_kv128_s2_qs2_vb__trailing_pp_guarded1_fast12_dyn_ob",
    "attn_fwd_e4m3_ve5m2_d64_causal_vt__q192_kv128_s2_qs2_vb__overlap_guarded3_chord6_dyn_ob",
    "attn_fwd_e5m2_ve4m3_d128_full_vt__q192_kv128_s3_qs2_vb__serial_pp_guarded3_dyn_ob_fold2",
    "attn_fwd_e4m3_d64_causal_vt__q128_kv128_s2_vb__serial_pp_guarded3_dyn_ob_two",
    "attn_fwd_e4m3_d128_full_vt__q192_kv128_s3_qs2_vb__serial_pp_guarded3_chord4_dyn_ob_tail",
    "attn_fwd_e4m3_d64_full_vt__q128_kv128_s2_qs2_vb__trailing_pp_guarded3_ob_fold2_tail",
};

void sizes(Bed& bed, const char* kernel) {
  const KernelConfig c = test::kernel_named(kernel);
  same_as_pass(bed, kernel, case_of(kernel, shape(c, 1, 1, 1, 1, 1)));
  same_as_pass(bed, kernel, case_of(kernel, shape(c, 2, 2, 1, 130, 129)));
  same_as_pass(bed, kernel, case_of(kernel, shape(c, 1, 4, 2, 200, 333), Layout::bhsd, Inputs::outliers));
  same_as_pass(bed, kernel, case_of(kernel, shape(c, 2, 1, 1, 70, 640)));
}

void background_edges(Bed& bed) {
  for (const char* kernel : {kernels[1], kernels[3]}) {
    const KernelConfig c = test::kernel_named(kernel);
    same_as_pass(bed, kernel, case_of(kernel, shape(c, 2, 2, 2, 50, 0)));    // no unit
    same_as_pass(bed, kernel, case_of(kernel, shape(c, 1, 4, 2, 700, 40)));  // causal: tiles without keys
    same_as_pass(bed, kernel, case_of(kernel, shape(c, 1, 2, 2, 3, 900)));
    same_as_pass(bed, kernel, case_of(kernel, shape(c, 1, 3, 1, 130, 130), Layout::qkv));
  }
  // Fewer columns than the kernel has.
  reference::Problem narrow = shape(test::kernel_named(kernels[0]), 1, 2, 1, 100, 200);
  narrow.head_dim = narrow.head_dim_v = 144;
  same_as_pass(bed, kernels[0], case_of(kernels[0], narrow));
}

// A text in which the last `from` reads `to`.
std::string mutant(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.rfind(from);
  REQUIRE_MESSAGE(at != std::string::npos, from);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_SUITE("attention/background") {
  TEST_CASE("emulator: the bits of the kernel behind the pass, any size") {
    for (const char* kernel : kernels) sizes(test::emulator_bed(), kernel);
    for (const char* kernel : with_all) sizes(test::emulator_bed(), kernel);
    background_edges(test::emulator_bed());
  }
  TEST_CASE("gpu: the bits of the kernel behind the pass, any size, many heads and many launches") {
    Bed& gpu = test::gpu_bed();
    if (!gpu.device) FLASHPTX_SKIP("no GPU: " + gpu.missing);
    for (const char* kernel : kernels) sizes(gpu, kernel);
    for (const char* kernel : with_all) sizes(gpu, kernel);
    background_edges(gpu);
    for (const char* kernel : kernels)
      for (const auto& [heads, keys] : {std::pair{64, 1000}, {16, 5000}}) {
        const KernelConfig c = test::kernel_named(kernel);
        const Case many = make_case(shape(c, 2, heads, heads, 500, keys), Layout::bshd, Inputs::random, 3, true, 4);
        for (int i = 0; i < 8; ++i) same_as_pass(gpu, kernel, many);
      }
  }

  TEST_CASE("every order, one CTA or several: the same bits, and all words zero after each of two launches") {
    for (const char* kernel : {kernels[0], kernels[1], kernels[2], kernels[3], kernels[8], with_all[0], with_all[4]}) {
      const KernelConfig c = test::kernel_named(kernel);
      const Case data = case_of(kernel, shape(c, 1, 4, 2, c.tile_q() + 40, 300));
      std::vector<std::uint8_t> o;
      for (int ctas : {1, 3}) {
        if (c.plan.split_tail) o.clear();  // other parts, other rounding
        for (std::uint64_t seed : {0, 1, 2}) {
          INFO(std::string(kernel), " seed ", seed, " CTAs ", ctas);
          FlagsSpy spy(test::emulated_order(seed, ctas));
          spy.watch(kernel, data.problem());
          Attention attention(spy);
          for (int launch = 0; launch < 2; ++launch) {
            const Outcome r = run_case(spy, attention, data, {kernel, ""});
            REQUIRE_MESSAGE(r.ok(), r.complaint());
            if (o.empty()) o = r.o_bytes;
            CHECK(r.o_bytes == o);
          }
          CHECK(spy.launches == 2);
          CHECK(spy.left == 0);
          CHECK(spy.flags[0] != spy.flags[1]);
        }
      }
    }
  }

  TEST_CASE("no key, no unit, rows without keys: the words are zero too") {
    for (const char* kernel : {kernels[1], kernels[3]}) {
      const KernelConfig c = test::kernel_named(kernel);
      for (const auto& [queries, keys] : {std::pair{50, 0}, {600, 30}, {600, 300}})
        for (std::uint64_t seed : {0, 1}) {
          const Case data = case_of(kernel, shape(c, 2, 2, 2, queries, keys));
          FlagsSpy spy(test::emulated_order(seed, 2));
          spy.watch(kernel, data.problem());
          Attention attention(spy);
          const Outcome r = run_case(spy, attention, data, {kernel, ""});
          CHECK_MESSAGE(r.ok(), kernel, ": ", r.complaint());
          CHECK(spy.launches == 1);
          CHECK(spy.left == 0);
        }
    }
  }

  TEST_CASE("a text without one of the steps that order V^T does not pass") {
    const std::string kernel = kernels[0], text = emit(test::kernel_named(kernel)).text;
    const Case data = case_of(kernel, shape(test::kernel_named(kernel), 1, 2, 1, 140, 300));
    const auto passes = [&](const std::string& ptx) {
      for (std::uint64_t seed = 0; seed < 3; ++seed) {
        Bed bed = test::open_bed(DeviceChoice::emulator, test::emulated_order(seed, 2));
        if (!run_case(*bed.device, *bed.attention, data, {kernel, ptx}).ok()) return false;
      }
      return true;
    };
    CHECK(passes(text));
    std::string unpolled = text;
    for (std::size_t at; (at = unpolled.find("@%waits_for_vt bra")) != std::string::npos;)
      unpolled.replace(at, unpolled.find(';', at) - at + 1, "");
    CHECK(unpolled != text);
    CHECK_FALSE(passes(unpolled));
    CHECK_FALSE(passes(mutant(text, "cp.async.bulk.wait_group 0;", "")));
    CHECK_FALSE(passes(mutant(text, "bar.sync 7, 96;", "")));
    CHECK_FALSE(passes(mutant(text, "fence.proxy.async.shared::cta;", "")));
    CHECK_FALSE(passes(mutant(text, "cp.async.bulk.wait_group.read 0;", "")));
  }

  // The emulator orders no grids, so that no run would notice.
  TEST_CASE("the warps wait for the kernel before theirs ahead of whatever they read") {
    for (const char* kernel : kernels) {
      const std::string text = emit(test::kernel_named(kernel)).text;
      const std::size_t role = text.find("V to V^T in the background"), wait = text.find("griddepcontrol.wait", role);
      REQUIRE(wait != std::string::npos);
      for (const char* read : {"atom.", "ld.acquire", "cp.async.bulk.tensor"}) CHECK(wait < text.find(read, role));
    }
  }

  // Nor does it know generic writes to global memory from those of TMA, or scopes: each of these can be taken out unseen.
  TEST_CASE("fences between V^T's store and its loads, and around the clearing of the flags, stand where the order needs them") {
    const auto all = [](const std::string& text, const std::string& what) {
      std::vector<std::size_t> at;
      for (std::size_t p = text.find(what); p != std::string::npos; p = text.find(what, p + 1)) at.push_back(p);
      return at;
    };
    const auto each = [&](const char* kernel) {
      CAPTURE(std::string(kernel));
      const std::string text = emit(test::kernel_named(kernel)).text;
      const std::string fence = "fence.proxy.async.global;";
      const std::vector<std::size_t> flags = all(text, "red.release.gpu.global.add.u32 [%flag");
      REQUIRE(flags.size() == 1);
      const std::size_t fenced = text.rfind(fence, flags[0]), over = text.rfind("cp.async.bulk.wait_group 0;", flags[0]);
      REQUIRE((fenced != std::string::npos && over != std::string::npos));
      CHECK(over < fenced);
      CHECK(text.rfind("cp.async.bulk.commit_group;", flags[0]) < over);
      const std::vector<std::size_t> polls = all(text, "ld.acquire.gpu.global.u32 %units_done");
      CHECK(!polls.empty());
      CHECK(all(text, "%units_done, [").size() == polls.size());
      for (std::size_t poll : polls) CHECK(text.find(fence, poll) < text.find("cp.async.bulk.tensor", poll));
      const std::vector<std::size_t> leaves = all(text, "the last role to leave clears flags");
      CHECK(leaves.size() == 2);  // the producer, and one of the warps that transpose
      for (std::size_t leave : leaves) {
        const std::size_t first = text.find("fence.acq_rel.gpu;", leave), counted = text.find("atom.global.relaxed.gpu.add.u32", leave);
        const std::size_t second = text.find("fence.acq_rel.gpu;", counted), cleared = text.find("st.global.u32", leave);
        REQUIRE(cleared != std::string::npos);
        CHECK(first < counted);
        CHECK(second < cleared);
      }
    };
    for (const char* kernel : kernels) each(kernel);
    for (const char* kernel : with_all) each(kernel);
  }

  TEST_CASE("names are read back; what it does not go with is refused by name") {
    for (const char* name : kernels) CHECK(test::kernel_named(name).name() == name);
    for (const char* name : with_all) CHECK(test::kernel_named(name).name() == name);
    const auto refused = [](const char* name, const char* why) {
      CHECK_MESSAGE(gen::check_forward(test::kernel_named(name)).find(why) != std::string::npos, name);
    };
    const char* const alone = "v_background is for 8-bit kernels that read V transposed";
    refused("attn_fwd_bf16_d64_full__q128_kv64_s2_vb__overlap_guarded1", alone);
    refused("attn_fwd_e4m3_d64_full__q128_kv128_s2_vb__serial_pp_guarded3_ob", alone);
    refused("attn_fwd_e4m3_d64_full_vt__q128_kv128_s2_vb__serial_pp_guarded3_ob_c2", alone);
    refused("attn_fwd_e4m3_d256_full_vt__q128_kv128_s2_vb__overlap_pp_guarded3_ob_tail", "head_dim 256 is too wide for v_background with split_tail");
    refused("attn_fwd_e4m3_d256_full_vt__q128_kv128_s3_vb__overlap_pp_guarded3_ob", "shared memory");
  }

  TEST_CASE("ptxas: no kernel spills") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas ($CUDA_HOME, PATH, /usr/local/cuda, build/cuda)");
    for (const char* name : kernels) {
      const test::Assembled a = test::assemble(emit(test::kernel_named(name)).text);
      CHECK_MESSAGE(a.ok, name, "\n", a.log);
      CHECK_MESSAGE(a.spill_bytes + a.stack_bytes == 0, name);
      CHECK_MESSAGE(a.log.find("C75") == std::string::npos, name, "\n", a.log);
    }
  }
}
