// What Attention asks of a device: which kernel, grid, maps and parameters, and that nothing is
// asked when there is nothing to do. On a fake device, so that each value can be read.
#include "host/attention.h"

#include <bit>
#include <cfloat>
#include <cmath>
#include <thread>

#include "host/select.h"
#include "tests/host/fake_device.h"
#include "tests/host/problems.h"
#include "tests/support.h"

namespace flashptx::test {
namespace {

constexpr ForwardPointers at{0x1000, 0x2000, 0x3000, 0x4000, 0x5000};

struct Bench {
  FakeDevice device;
  Attention attention{device};
  std::unique_ptr<ForwardPlan> plan;

  Status make(const ForwardProblem& p, const ForwardChoice& choice = {}) {
    Status s = attention.plan_forward(p, choice, &plan);
    if (s.ok() && plan->kernel() != nullptr) device.expect(plan->kernel()->facts);
    return s;
  }
  // First word of the parameter `name` in the last launch.
  std::uint64_t word(const std::string& name) const {
    const auto& params = plan->kernel()->facts.params;
    for (std::size_t i = 0; i < params.size(); ++i)
      if (params[i].name == name) return device.words.back()[i];
    FAIL("no parameter " << name);
    return 0;
  }
  float scalar(const std::string& name) const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(word(name)));
  }
  const TensorMapDesc& map(const std::string& name) const {
    for (auto i = device.encoded.rbegin(); i != device.encoded.rend(); ++i)
      if (i->name == name) return *i;
    FAIL("no map " << name);
    return device.encoded.front();
  }
};

}  // namespace

TEST_SUITE("host/attention") {
  TEST_CASE("passes every parameter by its name") {
    Bench b;
    REQUIRE(b.make(bshd(2, 8, 2, 300, 500, 128, Mask::causal)).ok());
    REQUIRE(b.plan->run(at, reinterpret_cast<Stream>(7)).ok());
    REQUIRE(b.device.launches.size() == 1);
    CHECK(b.device.launches[0].stream == reinterpret_cast<Stream>(7));
    CHECK(b.device.launches[0].param_count ==
          static_cast<int>(b.plan->kernel()->facts.params.size()));
    CHECK(b.word("q_map") == at.q);
    CHECK(b.word("k_map") == at.k);
    CHECK(b.word("v_map") == at.v);
    CHECK(b.word("o_map") == at.o);
    CHECK(b.word("lse") == at.lse);
    CHECK(b.word("seqlen_q") == 300);
    CHECK(b.word("seqlen_k") == 500);
    CHECK(b.word("heads_q") == 8);
    CHECK(b.word("heads_kv") == 2);
    CHECK(b.word("batch") == 2);
    CHECK(b.scalar("softmax_scale_log2") ==
          doctest::Approx(std::log2(std::exp(1.0)) / std::sqrt(128.0)));
  }

  TEST_CASE("describes each tensor as a strided view with the kernel's box") {
    Bench b;
    ForwardProblem p = usual();
    p.k = {500 * 3 * 256, 3 * 256, 256};
    REQUIRE(b.make(p).ok());
    REQUIRE(b.plan->run(at, nullptr).ok());
    const TensorMapDesc& k = b.map("K");
    CHECK(k.rank == 4);
    CHECK(k.type == ElementType::bf16);
    const std::uint64_t dims[] = {128, 500, 2, 2}, strides[] = {1536, 512, 768000};
    CHECK(std::equal(dims, dims + 4, k.dims));
    CHECK(std::equal(strides, strides + 3, k.stride_bytes));
    CHECK(k.box[0] == 64);
    CHECK(k.box[1] == static_cast<std::uint32_t>(b.plan->kernel()->config.plan.tile_kv));
    CHECK(k.swizzle_bytes == 128);
    CHECK(b.map("Q").box[1] == 64);
    CHECK(b.map("O").dims[2] == 8);
  }

  TEST_CASE("replaces the stride of a dimension of extent 1") {
    Bench b;
    ForwardProblem p = bshd(1, 1, 1, 1, 9, 40);
    p.q = {-1, 7, INT64_MAX};
    p.k.batch = p.k.head = 3;
    REQUIRE(b.make(p).ok());
    REQUIRE(b.plan->run(at, nullptr).ok());
    for (int i = 0; i < 3; ++i) CHECK(b.map("Q").stride_bytes[i] == 80);
    CHECK(b.map("K").stride_bytes[0] == 80);
    CHECK(b.map("K").stride_bytes[1] == 80);
    CHECK(b.map("K").dims[0] == 40);  // true head dimension: TMA fills the compiled one with zeros
  }

  TEST_CASE("separate head dimensions of V reach the maps of V and O") {
    Bench b;
    ForwardProblem p = bshd(1, 2, 2, 64, 64, 128);
    p.head_dim_v = 120;
    p.v = p.o = strides_bshd(64, 2, 120);
    REQUIRE(b.make(p).ok());
    REQUIRE(b.plan->run(at, nullptr).ok());
    CHECK(b.map("K").dims[0] == 128);
    CHECK(b.map("V").dims[0] == 120);
    CHECK(b.map("O").dims[0] == 120);
  }

  TEST_CASE("launches nothing and loads nothing for an empty problem") {
    Bench b;
    for (int which = 0; which < 3; ++which) {
      ForwardProblem p = usual();
      if (which == 0) p.batch = 0;
      if (which == 1) p.seqlen_q = 0;
      if (which == 2) p.heads_q = p.heads_kv = 0;
      REQUIRE(b.make(p).ok());
      CHECK(b.plan->run({}, nullptr).ok());
      CHECK(b.plan->kernel_name().empty());
    }
    CHECK(b.device.launches.empty());
    CHECK(b.device.live_kernels == 0);
  }

  TEST_CASE("without keys K and V are legal maps on O and may be null") {
    Bench b;
    ForwardProblem p = bshd(2, 8, 2, 300, 0, 128, Mask::causal);
    REQUIRE(b.make(p).ok());
    REQUIRE(b.plan->run({0x1000, 0, 0, 0x4000, 0}, nullptr).ok());
    REQUIRE(b.device.launches.size() == 1);
    CHECK(b.word("k_map") == 0x4000);
    CHECK(b.word("v_map") == 0x4000);
    CHECK(b.word("seqlen_k") == 0);
    CHECK(b.word("lse") == 0);
    CHECK(b.word("head_group") == 16);
  }

  TEST_CASE("a scale of 0 reaches the kernel as the smallest normal float") {
    Bench b;
    ForwardProblem p = usual();
    p.softmax_scale = 0;
    REQUIRE(b.make(p).ok());
    REQUIRE(b.plan->run(at, nullptr).ok());
    CHECK(b.scalar("softmax_scale_log2") == FLT_MIN);
  }

  TEST_CASE("the grid is the tiles, at most the multiprocessors that are not kept free") {
    FakeDevice device;
    Attention all(device), most(device, 100), none(device, 132);
    std::unique_ptr<ForwardPlan> plan;
    REQUIRE(all.plan_forward(bshd(1, 2, 2, 129, 64, 64), {}, &plan).ok());
    const int tile_q = plan->kernel()->config.tile_q();
    CHECK(plan->dims().grid[0] == static_cast<unsigned>(2 * ((129 + tile_q - 1) / tile_q)));
    // What the kernel's own facts tell those who launch it without this library.
    CHECK(plan->kernel()->facts.grid == "min(ceil(seqlen_q / " + std::to_string(tile_q) +
                                            ") * heads_q * batch, multiprocessors)");
    REQUIRE(all.plan_forward(bshd(4, 32, 8, 4096, 4096, 64), {}, &plan).ok());
    CHECK(plan->dims().grid[0] == 132);
    CHECK(plan->dims().block[0] == static_cast<unsigned>(plan->kernel()->facts.block_threads));
    REQUIRE(most.plan_forward(bshd(4, 32, 8, 4096, 4096, 64), {}, &plan).ok());
    CHECK(plan->dims().grid[0] == 32);
    const Status s = none.plan_forward(bshd(4, 32, 8, 4096, 4096, 64), {}, &plan);
    CHECK(s.code == StatusCode::invalid_argument);
    CHECK(s.message ==
          "sm_margin is 132: must leave at least 1 of the device's 132 multiprocessors");
  }

  TEST_CASE("the sizes of bug report B34 fit one grid dimension") {
    FakeDevice device;
    Attention attention(device);
    std::unique_ptr<ForwardPlan> plan;
    for (const ForwardProblem& p :
         {bshd(1, 71280, 71280, 3, 3, 128), bshd(65536, 8, 8, 4, 4, 64, Mask::full, DataType::f16),
          bshd(262144, 1, 1, 1, 121, 40)}) {
      REQUIRE(attention.plan_forward(p, {}, &plan).ok());
      CHECK(plan->run(at, nullptr).ok());
    }
    const ForwardProblem huge = bshd(1 << 20, 1 << 12, 1, 1, 1, 8);
    const Status s = attention.plan_forward(huge, {}, &plan);
    CHECK(s.code == StatusCode::unsupported);
    CHECK(s.message.find("above 2^31 - 1 tiles: split the batch") != std::string::npos);
  }

  TEST_CASE("heads whose K and V fit in 32 MB are scheduled together") {
    Bench b;
    const auto group = [&](const ForwardProblem& p) {
      REQUIRE(b.make(p).ok());
      REQUIRE(b.plan->run(at, nullptr).ok());
      return b.word("head_group");
    };
    // bf16, head_dim 128: 512 bytes a key. 16384 keys are 8 MB a head.
    CHECK(group(bshd(1, 32, 32, 128, 16384, 128, Mask::causal)) == 4);
    CHECK(group(bshd(1, 32, 8, 128, 16384, 128, Mask::causal)) == 16);
    CHECK(group(bshd(1, 2, 2, 128, 128, 128, Mask::causal)) == 2);
    CHECK(group(bshd(1, 32, 32, 128, 1 << 20, 128, Mask::causal)) == 1);
  }

  TEST_CASE("encodes a map again only when its pointer changed") {
    Bench b;
    REQUIRE(b.make(usual()).ok());
    const int synchronisations = b.device.synchronisations;  // of planning
    REQUIRE(b.plan->run(at, nullptr).ok());
    CHECK(b.device.encoded.size() == 4);
    REQUIRE(b.plan->run(at, nullptr).ok());
    CHECK(b.device.encoded.size() == 4);
    ForwardPointers moved = at;
    moved.v = 0x9000;
    REQUIRE(b.plan->run(moved, nullptr).ok());
    CHECK(b.device.encoded.size() == 5);
    CHECK(b.word("v_map") == 0x9000);
    CHECK(b.word("k_map") == at.k);
    CHECK(b.device.synchronisations == synchronisations);
  }

  TEST_CASE("every launch gets the next counter, and a captured one keeps its own") {
    Bench b;
    REQUIRE(b.make(bshd(1, 8, 8, 512, 512, 128, Mask::causal)).ok());
    const auto counter = [&] {
      REQUIRE(b.plan->run(at, nullptr).ok());
      return b.word("tile_counter");
    };
    const std::uint64_t first = counter(), second = counter();
    CHECK(first % 8 == 0);
    CHECK(second == first + 16);
    b.device.is_capturing = true;
    const std::uint64_t captured = counter();
    b.device.is_capturing = false;
    b.device.launches.clear();
    b.device.words.clear();
    for (int i = 2; i < 20000; ++i) REQUIRE(counter() != captured);
  }

  TEST_CASE("a kernel of ours may start before the one in front of it ends, where graphs can hold that; another's text and one with marks may not") {
    const auto early = [](const ForwardProblem& p, const ForwardChoice& choice, int driver) {
      Bench b;
      b.device.information.driver_version = driver;
      const Status s = b.make(p, choice);
      REQUIRE_MESSAGE(s.ok(), s.message);
      ForwardPointers with = at;
      with.workspace = 0x100000;
      REQUIRE(b.plan->run(with, nullptr).ok());
      return b.device.launches.back().dims.programmatic_dependent;
    };
    ForwardProblem cut = bshd(4, 16, 16, 4096, 4096, 128);
    cut.allow_workspace = true;
    for (const ForwardProblem& p : {usual(), bshd(2, 8, 2, 300, 500, 64, Mask::causal), bshd(2, 8, 2, 300, 0, 128), cut,
                                    bshd(2, 8, 8, 300, 500, 128, Mask::full, DataType::e4m3)}) {
      CHECK(early(p, {}, 13000));
      CHECK(early(p, {}, 12030));
      CHECK_FALSE(early(p, {}, 12020));
      CHECK_FALSE(early(p, {}, 0));  // the emulator
    }
    // Wide and full: where V comes from a pass in front.
    CHECK_FALSE(early(bshd(2, 8, 8, 300, 500, 256), {}, 13000));
    CHECK_FALSE(early(bshd(2, 8, 8, 300, 500, 256, Mask::full, DataType::e4m3), {}, 13000));
    CHECK(early(bshd(2, 8, 8, 300, 500, 256, Mask::causal), {}, 13000));
    ForwardProblem passed = bshd(2, 8, 8, 16384, 16384, 256, Mask::full, DataType::e4m3);
    passed.allow_workspace = true;
    CHECK(early(passed, {}, 13000));
    const std::string name = "attn_fwd_bf16_d128_full__q128_kv128_s2__overlap_pp_plain";
    CHECK(early(usual(), {name, ""}, 13000));
    CHECK(early(usual(), {"attn_fwd_bf16_d128_full__q128_kv64_s2__overlap_pp_guarded1_ob_c2", ""}, 13000));
    KernelConfig config;
    REQUIRE(KernelConfig::parse(name, &config, nullptr));
    CHECK_FALSE(early(usual(), {name, emit(config).text}, 13000));
    config.plan.trace = Marks::all;
    CHECK_FALSE(early(usual(), {config.name(), ""}, 13000));
  }

  TEST_CASE("where multiprocessors are kept free no grid waits on them") {
    FakeDevice device;
    device.information.driver_version = 13000;
    Attention attention(device, 4);
    std::unique_ptr<ForwardPlan> plan;
    ForwardProblem p = bshd(1, 2, 2, 300, 500, 128, Mask::full, DataType::e4m3);
    p.allow_workspace = true;
    const Status s = attention.plan_forward(p, {"attn_fwd_e4m3_d128_full_vt__q192_kv128_s3_qs2__serial_pp_guarded3_chord4_psum_dyn_ob_fold16", ""}, &plan);
    REQUIRE_MESSAGE(s.ok(), s.message);
    ForwardPointers with = at;
    with.workspace = 0x100000;
    REQUIRE(plan->run(with, nullptr).ok());
    REQUIRE(device.launches.size() == 2);  // V to V^T, attention
    for (const FakeDevice::Launch& l : device.launches) CHECK_FALSE(l.dims.programmatic_dependent);
  }

  TEST_CASE("a kernel that writes V^T itself: maps of V and V^T, flags of its own for each launch, no other launch") {
    const std::string name = "attn_fwd_e4m3_d256_full_vt__q128_kv128_s2_vb__overlap_pp_guarded3_ob";
    Bench b;
    ForwardProblem p = bshd(2, 8, 2, 300, 500, 256, Mask::full, DataType::e4m3);
    p.allow_workspace = true;
    Status s = b.make(p, {name, ""});
    REQUIRE_MESSAGE(s.ok(), s.message);
    CHECK(b.plan->in_background());
    CHECK_FALSE(b.plan->transposes_v());
    CHECK(b.plan->workspace_bytes() == 2 * 2 * 256 * 512);
    CHECK(b.plan->describe().find("written by the kernel's idle warps") != std::string::npos);
    CHECK(b.plan->run(at, nullptr).message.rfind("workspace is address 0", 0) == 0);
    ForwardPointers with = at;
    with.workspace = 0x70000;
    const int allocations = b.device.live_allocations;
    const std::size_t loaded = b.device.loaded_images.size();
    CHECK(loaded == 1);  // not the pass
    REQUIRE(b.plan->run(with, nullptr).ok());
    CHECK(b.device.launches.size() == 1);
    CHECK(b.device.encoded.size() == 6);
    CHECK(b.word("v_rows_map") == at.v);
    CHECK(b.word("v_map") == with.workspace);
    CHECK(b.word("vt_store_map") == with.workspace);
    const TensorMapDesc &rows = b.map("V"), &store = b.device.encoded.back();
    const std::uint64_t v_dims[] = {256, 500, 2, 2}, vt_dims[] = {512, 256, 2, 2};
    CHECK(std::equal(v_dims, v_dims + 4, rows.dims));
    CHECK(std::equal(vt_dims, vt_dims + 4, store.dims));
    for (const TensorMapDesc* d : {&rows, &store}) {
      CHECK(d->box[0] == 128);
      CHECK(d->box[1] == 128);
      CHECK(d->type == ElementType::u8);
    }
    const std::uint64_t first = b.word("v_flags");
    REQUIRE(b.plan->run(with, nullptr).ok());
    CHECK(b.word("v_flags") >= first + 4 * (2 + 4));
    b.device.is_capturing = true;
    REQUIRE(b.plan->run(with, nullptr).ok());
    const std::uint64_t captured = b.word("v_flags");
    b.device.is_capturing = false;
    b.device.launches.clear(), b.device.words.clear();
    for (int i = 0; i < 20000; ++i) {
      REQUIRE(b.plan->run(with, nullptr).ok());
      REQUIRE(b.word("v_flags") != captured);
    }
    CHECK(b.device.live_allocations == allocations);
    // V moves: its two maps of three.
    const std::size_t encoded = b.device.encoded.size();
    with.v = 0x9000;
    REQUIRE(b.plan->run(with, nullptr).ok());
    CHECK(b.device.encoded.size() == encoded + 1);
    CHECK(b.word("v_rows_map") == 0x9000);
    // What it is not for.
    ForwardProblem bad = p;
    bad.allow_workspace = false;
    CHECK(b.make(bad, {name, ""}).message.find("transposes V into a workspace: the problem must allow one") != std::string::npos);
    bad = p, bad.v_transposed = true, bad.v = strides_bhsd(256, 2, 512);
    CHECK(b.make(bad, {name, ""}).message.find("transposes V itself: the problem has it transposed") != std::string::npos);
    ForwardProblem many = bshd(4097, 1, 1, 30, 50, 256, Mask::full, DataType::e4m3);
    many.allow_workspace = true;
    s = b.make(many, {name, ""});
    CHECK(s.code == StatusCode::unsupported);
    CHECK(s.message.find("batch * heads_kv is 4097") != std::string::npos);
    many.batch = 4096;
    CHECK(b.make(many, {name, ""}).ok());
    ForwardProblem none = bshd(1, 2, 2, 30, 0, 256, Mask::full, DataType::e4m3);
    none.allow_workspace = true;
    REQUIRE(b.make(none, {name, ""}).ok());
    REQUIRE(b.plan->run(at, nullptr).ok());  // no keys: no workspace
    CHECK(b.word("v_rows_map") == at.o);
    CHECK(b.word("vt_store_map") == at.o);
  }

  TEST_CASE("plans of one kernel share one module, unloaded with the context") {
    FakeDevice device;
    {
      Attention attention(device);
      std::unique_ptr<ForwardPlan> a, b, c;
      REQUIRE(attention.plan_forward(bshd(1, 8, 8, 512, 512, 128, Mask::causal), {}, &a).ok());
      REQUIRE(attention.plan_forward(bshd(3, 4, 2, 99, 1, 120, Mask::causal), {}, &b).ok());
      CHECK(device.live_kernels == 1);
      ForwardChoice edited{a->kernel_name(), "// an edited text"};
      REQUIRE(attention.plan_forward(bshd(1, 8, 8, 512, 512, 128, Mask::causal), edited, &c).ok());
      CHECK(device.live_kernels == 2);
      CHECK(device.loaded_images.back() == "// an edited text");
      CHECK(c->describe().find("text given by the caller") != std::string::npos);
      CHECK(device.live_allocations == 1);
    }
    CHECK(device.live_kernels == 0);
    CHECK(device.live_allocations == 0);
  }

  TEST_CASE("refuses a named kernel that does not fit the problem") {
    Bench b;
    REQUIRE(b.make(usual()).ok());
    const std::string name = b.plan->kernel_name();
    CHECK(b.make(usual(), {name, ""}).ok());
    const auto refusal = [&](const ForwardProblem& p) { return b.make(p, {name, ""}).message; };
    CHECK(refusal(bshd(1, 1, 1, 8, 8, 128, Mask::causal)) ==
          "kernel " + name + " is for mask full: the problem has causal");
    CHECK(refusal(bshd(1, 1, 1, 8, 8, 128, Mask::full, DataType::f16)) ==
          "kernel " + name + " is for dtype bf16: the problem has f16");
    CHECK(refusal(bshd(1, 1, 1, 8, 8, 136)) ==
          "kernel " + name + " is for head_dim up to 128: the problem has 136");
    CHECK(b.make(usual(), {"attn_fwd_nonsense", ""})
              .message.rfind("kernel is 'attn_fwd_nonsense': not a kernel name", 0) == 0);
  }

  TEST_CASE("a kernel that does not load leaves nothing behind and may be tried again") {
    Bench b;
    b.device.load_status = Status::error(StatusCode::bad_ptx, "line 3");
    CHECK(b.make(usual()).code == StatusCode::bad_ptx);
    b.device.load_status = {};
    CHECK(b.make(usual()).ok());
    CHECK(b.plan->run(at, nullptr).ok());
  }

  TEST_CASE("one plan runs from several threads, each with its own pointers") {
    Bench b;
    REQUIRE(b.make(usual()).ok());
    std::vector<std::thread> threads;
    std::atomic<int> failures{0};
    for (std::uint64_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (std::uint64_t i = 0; i < 500; ++i) {
          const std::uint64_t base = (t * 1000 + i % 3 + 1) << 20;
          if (!b.plan->run({base, base + 16, base + 32, base + 48, base + 64}, nullptr).ok())
            ++failures;
        }
      });
    for (auto& t : threads) t.join();
    CHECK(failures == 0);
    REQUIRE(b.device.words.size() == 2000);
    for (const auto& w : b.device.words) {  // maps of one launch belong together: q, k, v, o
      REQUIRE(w[1] == w[0] + 16);
      REQUIRE(w[2] == w[0] + 32);
      REQUIRE(w[3] == w[0] + 48);
    }
  }

  TEST_CASE("plans every head dimension, mask and type with the generator's own kernels") {
    FakeDevice device;
    Attention attention(device);
    for (DataType t : {DataType::f16, DataType::bf16, DataType::e4m3, DataType::e5m2})
      for (Mask m : {Mask::full, Mask::causal})
        for (int d = 8; d <= 256; d += 8) {
          if (element_bytes(t) == 1 && d % 16) continue;  // rows of 16 bytes
          std::unique_ptr<ForwardPlan> plan;
          const Status s = attention.plan_forward(bshd(1, 2, 1, 99, 77, d, m, t), {}, &plan);
          INFO(s.message);
          REQUIRE(s.ok());
          CHECK(plan->run(at, nullptr).ok());
          CHECK(plan->kernel()->facts.shared_bytes <= 232448);
        }
    CHECK(device.live_kernels == 128);  // head dimensions are compiled in steps of 16
  }

  TEST_CASE("several threads plan at once and load each kernel once") {
    FakeDevice device;
    Attention attention(device);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int d : {64, 128, 256}) {
          std::unique_ptr<ForwardPlan> plan;
          if (!attention.plan_forward(bshd(1, 2, 2, 64, 64, d), {}, &plan).ok()) std::abort();
        }
      });
    for (auto& t : threads) t.join();
    CHECK(device.live_kernels == 3);
  }
}

TEST_SUITE("host/arguments") {
  TEST_CASE("a parameter that the host does not know is an error with its name") {
    LaunchFacts facts;
    facts.entry = "k";
    ParamFact p;
    p.name = "moon_phase";
    facts.params.push_back(p);
    Binding binding;
    CHECK(bind(facts, &binding).message ==
          "kernel k has a parameter 'moon_phase' that the host does not know");
    facts.params[0].name = "seqlen_q";
    facts.params[0].kind = ParamKind::f32;
    CHECK(bind(facts, &binding).message ==
          "kernel k declares parameter 'seqlen_q' with a kind that the host does not pass");
    facts.params[0].kind = ParamKind::u32;
    CHECK(bind(facts, &binding).ok());
    facts.params.resize(Binding::max_params + 1, facts.params[0]);
    CHECK(bind(facts, &binding).code == StatusCode::internal);
  }
}

TEST_SUITE("host/select") {
  TEST_CASE("finds a kernel for every head dimension, mask and type, with a reason") {
    for (DataType t : {DataType::f16, DataType::bf16})
      for (Mask m : {Mask::full, Mask::causal})
        for (int d = 8; d <= 256; d += 8) {
          Selection s;
          REQUIRE(select_forward(bshd(1, 1, 1, 100, 100, d, m, t), &s).ok());
          CHECK(s.config.problem.head_dim == (d + 15) / 16 * 16);
          CHECK(s.config.problem.dtype == t);
          CHECK(s.config.problem.mask == m);
          CHECK_FALSE(s.reason.empty());
          CHECK(check_forced(bshd(1, 1, 1, 100, 100, d, m, t), s.config).ok());
        }
  }

  TEST_CASE("names what no row covers") {
    ForwardProblem p = usual();
    p.dtype = DataType::f32;
    Selection s;
    const Status status = select_forward(p, &s);
    CHECK(status.code == StatusCode::unsupported);
    CHECK(status.message.rfind("no kernel for dtype ", 0) == 0);
  }
}

}  // namespace flashptx::test
