// The preparation kernels on the emulator through the host's face: every kind against float64, quantisation bit by
// bit, adversarial orders, values that are not finite; and what is refused. Next: tools/reference/prepare.h.
#include "host/prepare.h"

#include <cstring>

#include "gen/hadamard_signs.h"
#include "host/emulator/emulator.h"
#include "tests/host/fake_device.h"
#include "tests/support.h"
#include "tools/reference/numeric.h"
#include "tools/reference/prepare.h"

using namespace flashptx;
using namespace flashptx::reference;

namespace {

struct PrepareOutcome {
  Status status;
  Prepared got;
  std::string stats;  // of the last launch
};

PrepareOutcome run(const PrepareData& data, std::uint64_t seed, bool in_place = false) {
  const PrepareProblem& p = data.problem;
  PrepareOutcome out;
  std::unique_ptr<Device> device;
  EmulatorOptions options;
  options.seed = seed;
  options.adversary_level = seed ? 2 : 1;
  if (out.status = open_emulator(options, &device); !out.status.ok()) return out;
  out.got.y.resize(output_bytes(p));
  out.got.scales.resize(static_cast<std::size_t>(p.scale_count()));
  if (p.scale_kind != ScaleKind::block) out.got.amax.resize(out.got.scales.size());
  const auto count = [](const auto& v) { return v.size() * sizeof v[0]; };
  PreparePointers at;
  std::vector<std::uint64_t> taken;
  const auto take = [&](std::size_t bytes, const void* from) {
    std::uint64_t a = 0;
    if (bytes == 0 || !out.status.ok()) return a;
    out.status = device->allocate(bytes, &a);
    taken.push_back(a);
    if (out.status.ok()) out.status = from ? device->copy_to_device(a, from, bytes) : device->fill(a, 0xFF, bytes, nullptr);
    return a;
  };
  at.x = take(data.x.size(), data.x.data()), at.y = in_place ? at.x : take(out.got.y.size(), nullptr);
  at.scales = take(count(out.got.scales), nullptr), at.amax = take(count(out.got.amax), nullptr);
  at.cos = take(data.cos.size(), data.cos.data()), at.sin = take(data.sin.size(), data.sin.data());
  {
    Prepare prepare(*device);
    if (out.status.ok()) out.status = prepare.run(p, at, nullptr);
  }
  const auto back = [&](auto& v, std::uint64_t from) {
    if (out.status.ok() && !v.empty()) out.status = device->copy_from_device(v.data(), from, count(v));
  };
  out.stats = emulator_stats(*device);
  back(out.got.y, at.y), back(out.got.scales, at.scales), back(out.got.amax, at.amax);
  for (std::uint64_t a : taken) device->free(a);
  return out;
}

std::string failure_of(const PrepareProblem& p, const std::string& inputs, std::uint64_t seed = 0) {
  const PrepareData data = make_prepare_data(p, inputs, 3 + seed);
  const PrepareOutcome o = run(data, seed);
  return o.status.ok() ? judge(data, o.got).failure : o.status.message;
}

PrepareProblem problem(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d) {
  PrepareProblem p;
  p.batch = b, p.seqlen = s, p.heads = h, p.head_dim = d;
  p.x = p.y = strides_bshd(s, h, d);
  p.scale_kind = ScaleKind::head;
  return p;
}
PrepareProblem blocks(PrepareProblem p, std::int64_t rows) {
  p.scale_kind = ScaleKind::block, p.block_rows = rows;
  return p;
}
PrepareProblem with(PrepareProblem p, Hadamard h, Rope r = Rope::none, DataType table = DataType::f32) {
  p.hadamard = h, p.rope = r, p.table = table, p.seed = 12345;
  if (r != Rope::none) p.position = 5, p.table_rows = p.position + p.seqlen;
  return p;
}
PrepareProblem stored(PrepareProblem p) {
  p.out = p.in;
  return p;
}

// `whole` in one pass is `first`, stored in 16 bits, and then `rest`.
void check_two_passes(const PrepareProblem& whole, const PrepareProblem& first, const PrepareProblem& rest) {
  PrepareData data = make_prepare_data(whole, "outliers", 9);
  const PrepareOutcome fused = run(data, 1);
  REQUIRE_MESSAGE(fused.status.ok(), fused.status.message);
  data.problem = first;
  const PrepareOutcome between = run(data, 2);
  REQUIRE_MESSAGE(between.status.ok(), between.status.message);
  data.problem = rest, data.x = between.got.y;
  const PrepareOutcome second = run(data, 3);
  REQUIRE_MESSAGE(second.status.ok(), second.status.message);
  CHECK(fused.got.y == second.got.y);
  CHECK(fused.got.scales == second.got.scales);
}

}  // namespace

TEST_SUITE("host/prepare") {
  TEST_CASE("quantisation per head, per tensor and per block is right to the bit") {
    for (const std::string& inputs : prepare_inputs()) {
      CAPTURE(inputs);
      PrepareProblem p = problem(2, 150, 3, 128);
      CHECK(failure_of(p, inputs) == "");
      p.out = DataType::e5m2, p.scale_kind = ScaleKind::tensor;
      CHECK(failure_of(p, inputs, 1) == "");
      CHECK(failure_of(blocks(problem(2, 150, 2, 64), 64), inputs, 2) == "");
      p = blocks(problem(1, 100, 2, 256), 32);
      p.in = DataType::f16, p.out = DataType::e5m2;
      CHECK(failure_of(p, inputs, 3) == "");
    }
  }

  TEST_CASE("every head_dim, ragged blocks, blocks of any number of rows") {
    for (int d = 16; d <= 256; d += 16) {
      CAPTURE(d);
      CHECK(failure_of(problem(1, 70, 2, d), "random") == "");
      CHECK(failure_of(blocks(problem(1, 70, 1, d), 48), "random") == "");
    }
    for (int rows : {1, 7, 16, 33, 64, 128, 200, 256, 700}) {
      CAPTURE(rows);
      CHECK(failure_of(blocks(problem(1, 410, 1, 128), rows), "outliers") == "");
    }
    CHECK(failure_of(blocks(problem(1, 300, 1, 256), 300), "random", 4) == "");
  }

  TEST_CASE("a fixed scale is used as it is") {
    PrepareProblem p = problem(1, 90, 2, 128);
    p.scale_kind = ScaleKind::tensor, p.fixed_scale = 0.003f;
    CHECK(failure_of(p, "random") == "");
    CHECK(failure_of(p, "not_finite") == "");
  }

  TEST_CASE("Hadamard and its inverse equal float64") {
    for (int d : {64, 128, 256, 96, 192, 80}) {
      CAPTURE(d);
      CHECK(failure_of(stored(with(problem(1, 70, 2, d), Hadamard::forward)), "random", 1) == "");
      PrepareProblem p = problem(1, 33, 2, d);
      p.in = DataType::f16;
      CHECK(failure_of(stored(with(p, Hadamard::inverse)), "ramp", 2) == "");
    }
    CHECK(failure_of(stored(with(problem(1, 40, 1, 128), Hadamard::forward)), "not_finite") == "");
  }

  TEST_CASE("RoPE equals float64: both pairings, both tables") {
    for (int d : {64, 128, 256, 96, 192, 32, 224})
      for (Rope r : {Rope::interleaved, Rope::half})
        for (DataType table : {DataType::f32, DataType::bf16}) {
          CAPTURE(d);
          CHECK(failure_of(stored(with(problem(1, 40, 3, d), Hadamard::none, r, table)), "random", 1) == "");
        }
  }

  TEST_CASE("fused: RoPE, Hadamard and quantisation in one pass") {
    for (int d : {64, 128, 256, 96, 192})
      for (Rope r : {Rope::none, Rope::interleaved, Rope::half}) {
        CAPTURE(d);
        const DataType table = d == 128 ? DataType::bf16 : DataType::f32;
        PrepareProblem p = with(problem(1, 70, 5, d), Hadamard::forward, r, table);
        CHECK(failure_of(blocks(p, 64), "outliers", 1) == "");
        p.packed = false;
        CHECK(failure_of(blocks(p, 64), "outliers", 1) == "");
        CHECK(failure_of(p, "not_finite", 1) == "");
        p.in = DataType::f16, p.heads = 2;
        CHECK(failure_of(p, "random", 3) == "");
        p.heads = 1, p.scale_kind = ScaleKind::tensor;
        CHECK(failure_of(blocks(p, 128), "random", 2) == "");
      }
    CHECK(failure_of(blocks(with(problem(1, 260, 1, 256), Hadamard::forward, Rope::half), 250), "random", 4) == "");
    CHECK(failure_of(blocks(with(problem(1, 130, 1, 128), Hadamard::forward, Rope::half), 64), "not_finite", 5) == "");
    CHECK(failure_of(blocks(with(problem(1, 130, 1, 128), Hadamard::none, Rope::half), 64), "zeros", 6) == "");
  }

  TEST_CASE("blocks fused with Hadamard are Hadamard, then blocks, to the bit") {
    const PrepareProblem p = blocks(with(problem(2, 150, 2, 128), Hadamard::forward), 64);
    PrepareProblem rest = p;
    rest.hadamard = Hadamard::none;
    check_two_passes(p, stored(p), rest);
  }

  TEST_CASE("RoPE and Hadamard in one pass are RoPE, Hadamard, then blocks, to the bit where RoPE rounds alike") {
    PrepareProblem p = blocks(with(problem(1, 80, 2, 128), Hadamard::forward, Rope::half), 64);
    p.packed = false;
    PrepareProblem first = stored(p), rest = p;
    first.hadamard = Hadamard::none, rest.rope = Rope::none;
    check_two_passes(p, first, rest);
  }

  TEST_CASE("how many threads a CTA has, and whether it asks for cos and sin early, changes no bit") {
    for (const PrepareProblem& base : {blocks(with(problem(1, 90, 2, 192), Hadamard::forward, Rope::interleaved), 64),
                                       blocks(with(problem(1, 140, 2, 128), Hadamard::forward, Rope::half), 128)}) {
      PrepareData data = make_prepare_data(base, "outliers", 9);
      data.problem.packed = false;
      const PrepareOutcome wanted = run(data, 0);
      REQUIRE_MESSAGE(wanted.status.ok(), wanted.status.message);
      for (const auto& [threads, early] : {std::pair{256, true}, std::pair{128, false}}) {
        data.problem.threads = threads, data.problem.prefetch_tables = early;
        const PrepareOutcome got = run(data, 1);
        REQUIRE_MESSAGE(got.status.ok(), got.status.message);
        CHECK(got.got.y == wanted.got.y);
        CHECK(got.got.scales == wanted.got.scales);
      }
    }
    PrepareProblem p = blocks(with(problem(1, 90, 2, 128), Hadamard::forward), 128);
    for (int threads : {-32, 16, 96, 32, 512}) {
      p.threads = threads;
      CHECK(failure_of(p, "random").find("threads " + std::to_string(threads) + " must be a power of two") != std::string::npos);
    }
  }

  TEST_CASE("in pairs of bf16: right within their roundings, whatever is not finite, tiny or ragged") {
    std::uint64_t seed = 0;
    for (int d : {64, 128, 256})
      for (Rope r : {Rope::interleaved, Rope::half}) {
        CAPTURE(d);
        const PrepareProblem p = with(problem(1, 140, 3, d), Hadamard::forward, r, d == 128 ? DataType::bf16 : DataType::f32);
        for (const std::string& inputs : prepare_inputs()) {
          CAPTURE(inputs);
          CHECK(failure_of(blocks(p, 128), inputs, ++seed) == "");
          CHECK(failure_of(p, inputs, ++seed) == "");
        }
      }
    PrepareProblem p = with(problem(2, 133, 5, 128), Hadamard::forward, Rope::half);
    for (int rows : {1, 7, 16, 33, 64, 100, 128}) {
      CAPTURE(rows);
      CHECK(failure_of(blocks(p, rows), "random", ++seed) == "");
    }
    p.out = DataType::e5m2, p.scale_kind = ScaleKind::tensor;
    CHECK(failure_of(p, "outliers", ++seed) == "");
    for (Rope r : {Rope::interleaved, Rope::half}) {
      p = with(problem(2, 60, 3, 128), Hadamard::forward, r);
      p.x = {3 * 60 * 144, 144, 60 * 144};
      p.y = {60 * 3 * 176, 3 * 176, 176};
      CHECK(failure_of(p, "random", ++seed) == "");
      CHECK(failure_of(blocks(p, 32), "random", ++seed) == "");
    }
  }

  TEST_CASE("in pairs of bf16: the error is at most 2 % above that in f32, and no bank conflicts") {
    for (int d : {64, 128, 256})
      for (Rope r : {Rope::interleaved, Rope::half})
        for (bool by_block : {true, false}) {
          CAPTURE(d);
          const PrepareProblem p = with(problem(1, 256, 4, d), Hadamard::forward, r);
          PrepareData data = make_prepare_data(by_block ? blocks(p, 128) : p, "random", 3);
          const bool is_packed = Prepare::kernels_of(data.problem).back().packed;
          CHECK(is_packed == (by_block || (d > 64 && r == Rope::half)));
          if (!is_packed) continue;
          const PrepareOutcome pairs = run(data, 0);
          const double rms = judge(data, pairs.got).rms;
          data.problem.packed = false;
          const PrepareOutcome f32 = run(data, 0);
          REQUIRE_MESSAGE((f32.status.ok() && pairs.status.ok()), f32.status.message, pairs.status.message);
          const double wide = judge(data, f32.got).rms;
          CHECK(wide > 0.025);
          CHECK_MESSAGE(rms < 1.02 * wide, rms, " against ", wide);
          CHECK(pairs.stats.find("no bank conflicts") != std::string::npos);
        }
  }

  TEST_CASE("in pairs of bf16 is done what was faster so, and what such kernels can") {
    const auto is_packed = [](const PrepareProblem& p) {
      bool all = true, any = false;
      for (const PrepareConfig& c : Prepare::kernels_of(p)) all = all && c.packed, any = any || c.packed;
      CHECK(all == any);  // the magnitude found is that of what is quantised
      return all;
    };
    for (DataType table : {DataType::f32, DataType::bf16})
      for (Rope r : {Rope::interleaved, Rope::half})
        for (int d : {64, 128, 192, 256}) {
          CAPTURE(d);
          const PrepareProblem p = with(problem(1, 64, 2, d), Hadamard::forward, r, table);
          CHECK(is_packed(blocks(p, 128)) == (d == 128 || d == 256 || (d == 64 && table == DataType::f32)));
          CHECK(is_packed(p) == ((d == 128 || d == 256) && r == Rope::half));
        }
    const PrepareProblem p = with(problem(1, 64, 2, 128), Hadamard::forward, Rope::half);
    CHECK(is_packed(blocks(p, 1)));
    CHECK(!is_packed(blocks(p, 129)));
    CHECK(!is_packed(stored(p)));
    CHECK(!is_packed(with(p, Hadamard::none, Rope::half)));
    CHECK(!is_packed(with(p, Hadamard::forward)));
    PrepareProblem q = p;
    q.packed = false;
    CHECK(!is_packed(q));
    q = p, q.in = DataType::f16;
    CHECK(!is_packed(q));
    q = p, q.lanes = 8;
    CHECK(!is_packed(q));
    q = blocks(p, 128), q.threads = 256;
    CHECK(!is_packed(q));
    q = blocks(p, 128), q.prefetch_tables = true;
    CHECK(!is_packed(q));
    q = p, q.scale_kind = ScaleKind::tensor;
    CHECK(is_packed(q));
    q.fixed_scale = 0.5f;
    CHECK(!is_packed(q));
  }

  TEST_CASE("in pairs of bf16: heads a CTA as measured best, fewer where the GPU would be left empty") {
    const auto ctas = [](std::int64_t batch, std::int64_t heads, std::int64_t d, Rope r) {
      test::FakeDevice device;
      device.information.multiprocessors = 132;
      Prepare prepare(device);
      const Status s = prepare.run(blocks(with(problem(batch, 1024, heads, static_cast<int>(d)), Hadamard::forward, r), 128),
                                   {0x10000, 0x20000, 0x30000, 0x40000, 0x50000, 0x60000}, nullptr);
      REQUIRE_MESSAGE(s.ok(), s.message);
      REQUIRE(device.launches.size() == 1);
      return device.launches[0].dims.grid[0];
    };
    CHECK(ctas(16, 32, 64, Rope::half) == 8 * 16);
    CHECK(ctas(128, 32, 64, Rope::half) == 8 * 4);
    CHECK(ctas(128, 16, 128, Rope::half) == 8 * 4);
    CHECK(ctas(16, 32, 64, Rope::interleaved) == 8 * 8);
    CHECK(ctas(16, 4, 64, Rope::half) == 8 * 4);
    for (Rope r : {Rope::half, Rope::interleaved}) {
      CHECK(ctas(16, 16, 128, r) == 8 * (r == Rope::half ? 8 : 4));
      CHECK(ctas(16, 8, 256, r) == 8 * 2);
      CHECK(ctas(8, 16, 128, r) == 8 * 8);
      CHECK(ctas(1, 16, 128, r) == 8 * 16);
    }
  }

  TEST_CASE("in pairs of bf16: registers leave room for the warps they are to, and nothing is spilled") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas");
    for (int d : {64, 128, 256})
      for (Rope r : {Rope::interleaved, Rope::half})
        for (DataType table : {DataType::f32, DataType::bf16})
          for (ScaleKind kind : {ScaleKind::block, ScaleKind::head}) {
            const PrepareProblem p = with(problem(1, 128, 2, d), Hadamard::forward, r, table);
            for (const PrepareConfig& c : Prepare::kernels_of(kind == ScaleKind::block ? blocks(p, 128) : p)) {
              if (!c.packed) continue;
              CAPTURE(c.name());
              const test::Assembled a = test::assemble(emit_prepare(c).text);
              CHECK_MESSAGE(a.ok, a.log);
              CHECK(a.registers <= (d == 64 ? 48 : d == 128 ? 64 : 128));
              CHECK(a.spill_bytes == 0);
            }
          }
  }

  TEST_CASE("several heads a CTA in turn change no bit, whether or not they divide the heads") {
    const auto same = [](const PrepareProblem& base) {
      PrepareData data = make_prepare_data(base, "outliers", 9);
      data.problem.heads_per_cta = 1;
      const PrepareOutcome wanted = run(data, 0);
      REQUIRE_MESSAGE(wanted.status.ok(), wanted.status.message);
      for (int each : {2, 4, 8}) {
        CAPTURE(each);
        data.problem.heads_per_cta = each;
        CHECK(failure_of(data.problem, "outliers", 2) == "");
        const PrepareOutcome got = run(data, 1);
        REQUIRE_MESSAGE(got.status.ok(), got.status.message);
        CHECK(got.got.y == wanted.got.y);
        CHECK(got.got.scales == wanted.got.scales);
      }
    };
    for (Rope r : {Rope::interleaved, Rope::half})
      for (int d : {64, 128, 256, 96}) {
        CAPTURE(d);
        PrepareProblem p = with(problem(1, 37, 5, d), Hadamard::forward, r, d == 64 ? DataType::bf16 : DataType::f32);
        same(blocks(p, 64));
        same(p);
        p.packed = false;
        if (d > 64) same(blocks(p, 64)), same(p);
        same(stored(with(p, Hadamard::none, r)));
      }
    same(blocks(with(problem(2, 300, 3, 256), Hadamard::forward, Rope::half), 280));  // read twice
    PrepareProblem p = with(problem(1, 8, 5, 64), Hadamard::none, Rope::half);
    p.heads_per_cta = 3;
    CHECK(failure_of(p, "random").find("heads_per_cta is 3") != std::string::npos);
  }

  TEST_CASE("four and eight lanes to a row are right; others are refused") {
    for (const auto& [d, lanes] : {std::pair{64, 8}, std::pair{128, 8}, std::pair{256, 4}, std::pair{128, 4}})
      for (Rope r : {Rope::none, Rope::interleaved, Rope::half}) {
        if (r == Rope::half && d == 64) continue;
        CAPTURE(d);
        PrepareProblem p = with(problem(1, 70, 4, d), Hadamard::forward, r);
        p.lanes = lanes;
        CHECK(failure_of(blocks(p, 64), "outliers", 1) == "");
        CHECK(failure_of(p, "random", 2) == "");
        CHECK(failure_of(stored(p), "random", 3) == "");
      }
    PrepareProblem p = with(problem(1, 70, 4, 96), Hadamard::forward);
    p.lanes = 8;
    CHECK(failure_of(p, "random").find("lanes 8 must be 4 or 8 and fit head_dim") != std::string::npos);
    p.lanes = 2;
    CHECK(failure_of(p, "random").find("lanes is 2") != std::string::npos);
  }

  TEST_CASE("quantisation from the last row to the first: every row, head and batch once, in any order") {
    std::uint64_t seed = 0;
    for (ScaleKind kind : {ScaleKind::head, ScaleKind::tensor})
      for (std::int64_t rows : {1, 63, 129, 700}) {
        CAPTURE(rows);
        PrepareProblem p = problem(2, rows, 3, 128);
        p.scale_kind = kind;
        CHECK(failure_of(p, "outliers", ++seed) == "");
        if (rows < 700) CHECK(failure_of(with(p, Hadamard::forward, Rope::half), "outliers", ++seed) == "");
        p = problem(2, rows, 5, 64);
        p.scale_kind = kind, p.heads_per_cta = 2;
        if (rows < 700) CHECK(failure_of(with(p, Hadamard::none, Rope::interleaved, DataType::bf16), "random", ++seed) == "");
      }
    // A block that is a whole head is the head, by another kernel.
    for (std::int64_t rows : {1, 150, 700}) {
      PrepareData data = make_prepare_data(problem(2, rows, 3, 128), "outliers", 9);
      const PrepareOutcome head = run(data, 1);
      data.problem = blocks(data.problem, rows);
      const PrepareOutcome block = run(data, 2);
      REQUIRE_MESSAGE((head.status.ok() && block.status.ok()), head.status.message, block.status.message);
      CHECK(head.got.y == block.got.y);
      CHECK(head.got.scales == block.got.scales);
    }
  }

  TEST_CASE("each kernel may start before the one in front of it ends, where graphs can hold that") {
    const auto launches = [](const PrepareProblem& p, int driver) {
      test::FakeDevice device;
      device.information.driver_version = driver;
      Prepare prepare(device);
      const Status s = prepare.run(p, {0x10000, 0x20000, 0x30000, 0x40000, 0x50000, 0x60000}, nullptr);
      CHECK_MESSAGE(s.ok(), s.message);
      std::string all;
      for (const test::FakeDevice::Launch& l : device.launches) all += l.dims.programmatic_dependent ? "early " : "plain ";
      // tests/catalog/dependents_test.cpp: where they wait.
      for (const std::string& image : device.loaded_images) CHECK(image.find("griddepcontrol.wait") != std::string::npos);
      return all;
    };
    PrepareProblem p = problem(1, 300, 4, 128);
    for (const PrepareProblem& q : {p, with(p, Hadamard::forward), with(p, Hadamard::forward, Rope::half),
                                    with(p, Hadamard::forward, Rope::interleaved, DataType::bf16)}) {
      CHECK(launches(q, 13000) == "early early ");
      CHECK(launches(q, 12030) == "early early ");
      CHECK(launches(q, 12020) == "plain plain ");
      CHECK(launches(blocks(q, 64), 13000) == "early ");
    }
    p.scale_kind = ScaleKind::tensor;
    CHECK(launches(p, 13000) == "early early ");
    p.fixed_scale = 0.5f;
    CHECK(launches(p, 13000) == "early ");
    CHECK(launches(p, 12020) == "plain ");
    p.fixed_scale = 0, p.transpose = true;
    CHECK(launches(p, 13000) == "early early ");
    TransposeProblem v{DataType::e4m3, 1, 300, 4, 128, strides_bshd(300, 4, 128)};
    for (int driver : {12020, 12030}) {
      test::FakeDevice device;
      device.information.driver_version = driver;
      Prepare prepare(device);
      REQUIRE(prepare.transpose_v(v, 0x10000, 0x20000, nullptr).ok());
      CHECK(device.launches.at(0).dims.programmatic_dependent == (driver == 12030));
    }
  }

  TEST_CASE("the inverse undoes Hadamard") {
    PrepareProblem p = stored(with(problem(1, 64, 1, 128), Hadamard::forward));
    PrepareData data = make_prepare_data(p, "ramp", 9);
    const std::vector<std::uint8_t> before = data.x;
    data.x = run(data, 0).got.y;
    data.problem.hadamard = Hadamard::inverse;
    const PrepareOutcome back = run(data, 0);
    REQUIRE_MESSAGE(back.status.ok(), back.status.message);
    for (std::int64_t i = 0; i < 64 * 128; ++i)
      CHECK(std::abs(load(DataType::bf16, back.got.y.data(), i) - load(DataType::bf16, before.data(), i)) < 0.15);
  }

  TEST_CASE("V quantised and transposed in one pass is right to the bit") {
    for (int d : {64, 96, 128, 192, 256, 80, 16}) {
      CAPTURE(d);
      PrepareProblem p = problem(1, 200, 2, d);
      p.transpose = true;
      CHECK(failure_of(p, "outliers", 1) == "");
      CHECK(failure_of(blocks(p, 128), "random", 2) == "");
    }
    for (const std::string& inputs : prepare_inputs()) {
      CAPTURE(inputs);
      PrepareProblem p = problem(2, 129, 2, 128);
      p.transpose = true, p.in = DataType::f16, p.out = DataType::e5m2;
      CHECK(failure_of(blocks(p, 128), inputs, 3) == "");
      p.in = DataType::bf16, p.scale_kind = ScaleKind::tensor;
      CHECK(failure_of(p, inputs, 4) == "");
      p.fixed_scale = 0.02f, p.x = strides_bhsd(129, 2, 128);
      CHECK(failure_of(p, inputs, 5) == "");
    }
  }

  TEST_CASE("no kernel has bank conflicts") {
    for (int d : {64, 128, 256, 192}) {
      CAPTURE(d);
      PrepareProblem transposed = blocks(problem(1, 256, 1, d), 128);
      transposed.transpose = true;
      for (const PrepareProblem& p : {transposed, blocks(with(problem(1, 128, 2, d), Hadamard::forward, Rope::half), 128)}) {
        const PrepareOutcome o = run(make_prepare_data(p, "random", 1), 0);
        REQUIRE_MESSAGE(o.status.ok(), o.status.message);
        CHECK_MESSAGE(o.stats.find("no bank conflicts") != std::string::npos, o.stats);
      }
    }
  }

  TEST_CASE("in place gives what out of place gives") {
    for (Rope r : {Rope::none, Rope::half}) {
      const PrepareData data = make_prepare_data(stored(with(problem(2, 100, 3, 128), Hadamard::forward, r)), "outliers", 2);
      const PrepareOutcome beside = run(data, 1), in_place = run(data, 2, true);
      REQUIRE_MESSAGE(in_place.status.ok(), in_place.status.message);
      CHECK(beside.got.y == in_place.got.y);
    }
  }

  TEST_CASE("strides: heads outside, gaps between rows, broadcast input") {
    PrepareProblem p = problem(2, 60, 3, 96);
    p.x = {3 * 60 * 112, 112, 60 * 112};
    p.y = {60 * 3 * 144, 3 * 144, 144};
    CHECK(failure_of(p, "random", 1) == "");
    CHECK(failure_of(blocks(with(p, Hadamard::forward, Rope::half), 32), "random", 2) == "");
    p.x.head = 0;
    CHECK(failure_of(stored(with(p, Hadamard::forward)), "ramp", 3) == "");
  }

  TEST_CASE("the signs are the stated hash, half of them negative") {
    int negative = 0;
    for (std::uint32_t seed = 0; seed < 16; ++seed) {
      std::uint32_t words[8];
      hadamard_signs(seed, words);
      for (std::uint32_t j = 0; j < 256; ++j) {
        CHECK((words[j / 32] >> j % 32 & 1) == hadamard_negates(seed, j));
        negative += hadamard_negates(seed, j);
      }
    }
    CHECK(negative > 1900);
    CHECK(negative < 2200);
  }

  TEST_CASE("an empty problem launches nothing") {
    CHECK(failure_of(problem(0, 10, 2, 128), "random") == "");
    CHECK(failure_of(problem(1, 0, 2, 128), "random") == "");
  }
}
