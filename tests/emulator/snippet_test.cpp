// Whole kernels of tests/emulator/ptx that can be launched, against results computed here.
//
// They use what attention kernels use: ring of mbarriers, clusters, TMA with swizzle, wgmma, named
// barriers. Each runs round-robin and under adversaries. Next: tests/emulator/checker_test.cpp.
#include <cmath>

#include "tests/emulator/snippets.h"

using namespace flashptx;
using namespace flashptx::emulator;
using namespace flashptx::emulator::test;

namespace {

constexpr Seed seeds[] = {{0, 0}, {1, 1}, {2, 2}, {3, 2}, {4, 1}};

TensorMap map2(Launcher& l, std::uint64_t address, std::uint64_t columns, std::uint64_t rows,
               std::uint32_t box_columns, std::uint32_t box_rows) {
  TensorMapDesc d;
  d.name = "tile";
  d.address = address;
  d.rank = 2;
  d.dims[0] = columns, d.dims[1] = rows;
  d.stride_bytes[0] = columns * 2;
  d.box[0] = box_columns, d.box[1] = box_rows;
  TensorMap m;
  Status s = l.device->encode(d, &m);
  REQUIRE_MESSAGE(s.ok(), s.message);
  return m;
}

double value(std::uint16_t b) { return bf16_to_f32(b); }

}  // namespace

TEST_SUITE("emulator/snippets") {
  TEST_CASE("every snippet prints to a text that parses to the same text") {
    for (const char* name :
         {"01_module_header", "02_setmaxnreg_split", "03_mbarrier_ring", "04_mbarrier_cluster",
          "05_tma_load", "06_tma_store_reduce", "07_tensormap_replace", "08_wgmma_bf16_ss",
          "09_wgmma_bf16_rs_vtrans", "10_wgmma_fp8", "11_fa3_loop", "12_fp8_pack_shuffle",
          "13_v_transpose_fp8", "14_convert_math", "15_named_barriers", "16_cluster_pdl",
          "17_warp_and_trace", "18_epilogue_stmatrix_tma", "19_wgmma_transA"}) {
      std::string once, twice;
      CHECK_MESSAGE(emulator_reprint(snippet(name), name, &once).ok(), name);
      CHECK_MESSAGE(emulator_reprint(once, name, &twice).ok(), name);
      CHECK_MESSAGE(once == twice, name);
      Launcher l;
      std::size_t at = once.find(".entry ") + 7;
      LoadedKernel* k = nullptr;
      Status s = l.device->load(once, once.substr(at, once.find('(', at) - at), 1024, &k);
      CHECK_MESSAGE(s.ok(), s.message);
    }
  }

  TEST_CASE("setmaxnreg moves registers from the producer to both consumers") {
    for (Seed s : seeds) {
      Launcher l(s.seed, s.level);
      std::uint64_t out = l.buffer(384 * 4, 0x55);
      Status r = l.launch(snippet("02_setmaxnreg_split"), "reg_split", {&out}, dims(1, 384));
      REQUIRE_MESSAGE(r.ok(), r.message);
      auto v = l.download<std::uint32_t>(out, 384);
      CHECK(v[0] == 0);
      CHECK(v[127] == 0x55555555u);
      CHECK(v[128] == 1);
      CHECK(v[383] == 2);
    }
  }

  TEST_CASE("a ring of three stages passes seven tiles") {
    for (Seed s : seeds) {
      Launcher l(s.seed, s.level);
      std::uint64_t in = l.upload(random_bf16(7 * 64 * 64, 1));
      TensorMap m = map2(l, in, 64, 7 * 64, 64, 64);
      std::uint32_t tiles = 7;
      Status r = l.launch(snippet("03_mbarrier_ring"), "ring", {&m, &tiles}, dims(2, 256));
      CHECK_MESSAGE(r.ok(), r.message);
    }
  }

  TEST_CASE("a cluster arrives on each other's mbarriers") {
    for (Seed s : seeds) {
      Launcher l(s.seed, s.level);
      std::uint64_t out = l.buffer(4, 0x77);
      Status r =
          l.launch(snippet("04_mbarrier_cluster"), "cluster_mbar", {&out}, dims(4, 128, 0, 2));
      REQUIRE_MESSAGE(r.ok(), r.message);
      CHECK(l.download<std::uint32_t>(out, 1)[0] <= 1);
    }
  }

  TEST_CASE("a peer's shared word is read through mapa") {
    for (Seed s : seeds) {
      Launcher l(s.seed, s.level);
      std::uint64_t out = l.buffer(4, 0x77);
      Status r = l.launch(snippet("16_cluster_pdl"), "cluster_pdl", {&out}, dims(2, 128, 0, 2));
      REQUIRE_MESSAGE(r.ok(), r.message);
      CHECK(l.download<std::uint32_t>(out, 1)[0] <= 1);
    }
  }

  TEST_CASE("two warpgroups pass the ping-pong token five times") {
    for (Seed s : seeds) {
      Launcher l(s.seed, s.level);
      std::uint32_t n = 5;
      Status r = l.launch(snippet("15_named_barriers"), "ping_pong", {&n}, dims(1, 384));
      CHECK_MESSAGE(r.ok(), r.message);
    }
  }

  TEST_CASE("the FA3 loop computes attention for 128 queries and 160 keys") {
    constexpr int rows = 128, keys = 160, d = 64;
    auto q = random_bf16(rows * d, 1), k = random_bf16(keys * d, 2), v = random_bf16(keys * d, 3);
    const double scale = 0.125;
    std::vector<double> want(rows * d);
    for (int i = 0; i < rows; ++i) {
      std::vector<double> p(keys);
      double max = -1e30, sum = 0;
      for (int j = 0; j < keys; ++j) {
        double s = 0;
        for (int c = 0; c < d; ++c) s += value(q[i * d + c]) * value(k[j * d + c]);
        p[j] = s * scale, max = std::max(max, p[j]);
      }
      for (auto& x : p) x = std::exp(x - max), sum += x;
      for (int c = 0; c < d; ++c) {
        double o = 0;
        for (int j = 0; j < keys; ++j) o += p[j] * value(v[j * d + c]);
        want[i * d + c] = o / sum;
      }
    }
    for (Seed s : seeds) {
      Launcher l(s.seed, s.level);
      TensorMap mq = map2(l, l.upload(q), d, rows, 64, 128),
                mk = map2(l, l.upload(k), d, keys, 64, 32),
                mv = map2(l, l.upload(v), d, keys, 64, 32);
      std::uint64_t out = l.buffer(rows * d * 4);
      std::uint32_t tiles = keys / 32;
      float scale_log2 = static_cast<float>(scale * 1.4426950408889634);
      Status r = l.launch(snippet("11_fa3_loop"), "fa3_loop",
                          {&mq, &mk, &mv, &out, &tiles, &scale_log2}, dims(1, 384, 34000));
      REQUIRE_MESSAGE(r.ok(), r.message);
      auto got = l.download<float>(out, rows * d);
      double worst = 0;
      for (std::size_t i = 0; i < want.size(); ++i)
        worst = std::max(worst, std::fabs(got[i] - want[i]));
      CHECK(worst < 0.01);
      CHECK(emulator_stats(*l.device).find("consumer") != std::string::npos);
    }
  }
}
