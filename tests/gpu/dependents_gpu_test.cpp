// Kernels of every kind one behind the other, each reading what the one before it wrote, in place or where an older result stood.
//
// With programmatic launches each may start before the one in front of it has ended: whoever reads or writes too early gives other bits than
// the same launches with a pause between them. Next: tests/catalog/dependents_test.cpp (the waits in the texts).
#include <bit>
#include <random>

#include "host/driver/cuda_device.h"
#include "host/fp8_attention.h"
#include "tests/host/problems.h"
#include "tests/support.h"

namespace flashptx::test {
namespace {

// Four tensors of one shape: O of each step is Q, K or V of the next ones. Kernels without guard and counter, whose bits are no
// matter of time.
struct Chain {
  static constexpr std::int64_t batch = 2, heads = 12, rows = 1000, dim = 128;
  static constexpr std::size_t elems = batch * heads * rows * dim;
  Device& device;
  Attention attention;
  std::uint64_t tensor[4] = {}, workspace = 0;
  std::unique_ptr<ForwardPlan> plain;
  std::unique_ptr<Fp8Plan> fp8[3];

  explicit Chain(Device& d) : device(d), attention(d) {
    ForwardProblem p = bshd(batch, heads, heads, rows, rows, dim);
    p.softmax_scale = 0.5f;  // few keys count, so that O keeps the spread of V
    Status s = attention.plan_forward(p, {"attn_fwd_bf16_d128_full__q128_kv128_s2__overlap_pp_plain", ""}, &plain);
    REQUIRE_MESSAGE(s.ok(), s.message);
    std::size_t bytes = 0;
    for (ScaleKind kind : {ScaleKind::tensor, ScaleKind::head, ScaleKind::block}) {
      Fp8Options o;
      o.scale_kind = kind, o.hadamard = true;
      const std::string name = std::string("attn_fwd_e4m3_d128_full_vt") + (kind == ScaleKind::block ? "_bs128" : "") + "__q128_kv128_s2__serial_pp_plain_ob";
      std::unique_ptr<Fp8Plan>& plan = fp8[static_cast<int>(kind)];
      s = plan_fp8_attention(attention, p, o, {name, ""}, &plan);
      REQUIRE_MESSAGE(s.ok(), s.message);
      bytes = std::max(bytes, plan->workspace_bytes());
    }
    REQUIRE(d.allocate(bytes, &workspace).ok());
    for (std::uint64_t& t : tensor) REQUIRE(d.allocate(2 * elems, &t).ok());
    REQUIRE(attention.prepare().load(turned(Hadamard::forward)).ok());
    REQUIRE(attention.prepare().load(turned(Hadamard::inverse)).ok());
  }
  ~Chain() {
    for (std::uint64_t t : tensor) device.free(t);
    device.free(workspace);
  }

  static PrepareProblem turned(Hadamard which) {
    PrepareProblem p;
    p.out = p.in, p.batch = batch, p.seqlen = rows, p.heads = heads, p.head_dim = dim;
    p.x = p.y = strides_bshd(rows, heads, dim);
    p.hadamard = which;
    return p;
  }

  void start() {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> host(elems);
    for (std::uint64_t t : tensor) {
      for (std::uint16_t& x : host) {
        x = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(random)) >> 16);
      }
      REQUIRE(device.copy_to_device(t, host.data(), 2 * elems).ok());
    }
  }

  // Enqueues all steps, with a pause behind each or without.
  void run(int rounds, Stream stream, bool pauses) {
    const auto then = [&](const Status& s) {
      REQUIRE_MESSAGE(s.ok(), s.message);
      if (pauses) REQUIRE(device.synchronize(stream).ok());
    };
    for (int i = 0; i < rounds; ++i) {
      const auto t = [&](int k) { return tensor[(i + k) % 4]; };
      const auto turn = [&](std::uint64_t at, Hadamard which) {
        PreparePointers p;
        p.x = p.y = at;
        then(attention.prepare().run(turned(which), p, stream));
      };
      then(plain->run({t(0), t(1), t(2), t(3)}, stream));
      turn(t(3), Hadamard::forward);
      Fp8Pointers p;
      p.q = t(1), p.k = t(3), p.v = t(2), p.o = t(0), p.workspace = workspace;
      then(fp8[i % 3]->run(p, stream));
      turn(t(3), Hadamard::inverse);
      turn(t(0), Hadamard::forward);
    }
  }

  std::vector<std::uint16_t> results() const {
    std::vector<std::uint16_t> all(4 * elems);
    for (std::size_t i = 0; i < 4; ++i) REQUIRE(device.copy_from_device(all.data() + i * elems, tensor[i], 2 * elems).ok());
    return all;
  }
};

}  // namespace

TEST_SUITE("gpu/dependents") {
  TEST_CASE("kernels in a row give the bits of kernels with pauses, enqueued or replayed from a graph") {
    const DriverApi* api = nullptr;
    std::unique_ptr<Device> device;
    Status s = load_driver(&api);
    if (s.ok()) s = open_cuda_device(CudaOptions{}, &device);
    if (!s.ok()) FLASHPTX_SKIP(s.message);
    Chain chain(*device);
    constexpr int rounds = 12;
    chain.start();
    chain.run(rounds, nullptr, true);
    const std::vector<std::uint16_t> wanted = chain.results();
    std::size_t spread = 0;  // bits that differ tell of a spread that is left
    for (std::size_t i = 1; i < wanted.size(); ++i) spread += wanted[i] != wanted[i - 1];
    CHECK(spread > wanted.size() / 2);
    for (int i = 0; i < 20; ++i) {
      chain.start();
      chain.run(rounds, nullptr, false);
      REQUIRE(device->synchronize(nullptr).ok());
      CHECK(chain.results() == wanted);
    }
    driver::Context context = nullptr, ignored = nullptr;
    REQUIRE(api->primary_context_retain(&context, 0) == driver::success);
    REQUIRE(api->context_push(context) == driver::success);
    void *stream = nullptr, *graph = nullptr, *exec = nullptr;
    REQUIRE(api->stream_create(&stream, 1) == driver::success);
    REQUIRE(api->stream_begin_capture(stream, 1) == driver::success);
    chain.run(rounds, stream, false);
    REQUIRE(api->stream_end_capture(stream, &graph) == driver::success);
    REQUIRE(api->graph_instantiate(&exec, graph, 0) == driver::success);
    for (int i = 0; i < 20; ++i) {
      chain.start();
      REQUIRE(api->graph_launch(exec, stream) == driver::success);
      REQUIRE(device->synchronize(stream).ok());
      CHECK(chain.results() == wanted);
    }
    api->graph_exec_destroy(exec);
    api->graph_destroy(graph);
    api->stream_destroy(stream);
    api->context_pop(&ignored);
    api->primary_context_release(0);
  }
}

}  // namespace flashptx::test
