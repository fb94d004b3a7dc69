// The snippets of tests/emulator/ptx that move or convert data, launched, against results computed here; and those that
// multiply memory which nobody wrote, which must be reported. Next: snippet_test.cpp has the ones with barriers.
#include <algorithm>
#include <cmath>

#include "tests/emulator/snippets.h"
#include "tools/reference/numeric.h"

using namespace flashptx;
using namespace flashptx::emulator;
using namespace flashptx::emulator::test;

namespace {

constexpr Seed result_orders[] = {{0, 0}, {1, 1}, {2, 2}, {3, 2}};

// bf16 rows of 64 (one swizzle atom), `extent` of them in the second dimension, 1 in the others.
TensorMap map_of_rank(Launcher& l, std::uint64_t address, int rank, std::uint64_t extent, std::uint32_t box_rows) {
  TensorMapDesc d;
  d.name = "tile";
  d.address = address;
  d.rank = rank;
  for (int i = 0; i < rank; ++i) d.dims[i] = 1, d.box[i] = 1;
  d.dims[0] = 64, d.box[0] = 64;
  d.dims[1] = extent, d.box[1] = box_rows;
  for (int i = 0; i + 1 < rank; ++i) d.stride_bytes[i] = i == 0 ? 128 : 128 * extent;
  TensorMap m;
  const Status s = l.device->encode(d, &m);
  REQUIRE_MESSAGE(s.ok(), s.message);
  return m;
}

}  // namespace

TEST_SUITE("emulator/snippet_results") {
  TEST_CASE("dynamic shared memory rounded up to 1024 moves by less than that") {
    Launcher l;
    TensorMap m = map_of_rank(l, l.buffer(8192), 2, 64, 64);
    std::uint64_t out = l.buffer(16, 0xee);
    std::uint32_t rows = 64;
    const Status r = l.launch(snippet("01_module_header"), "header_demo", {&m, &out, &rows}, dims(1, 384, 2048));
    REQUIRE_MESSAGE(r.ok(), r.message);
    CHECK(l.download<std::uint32_t>(out, 1)[0] < 1024);
  }

  TEST_CASE("tiles of two to five dimensions arrive, with hint and multicast") {
    for (Seed s : result_orders) {
      Launcher l(s.seed, s.level);
      std::uint64_t in = l.upload(random_bf16(128 * 64, 1));
      TensorMap m2 = map_of_rank(l, in, 2, 128, 64), m3 = map_of_rank(l, in, 3, 128, 64),
                m4 = map_of_rank(l, in, 4, 128, 64), m5 = map_of_rank(l, in, 5, 128, 64);
      const Status r = l.launch(snippet("05_tma_load"), "tma_loads", {&m2, &m3, &m4, &m5}, dims(1, 128));
      CHECK_MESSAGE(r.ok(), r.message);
    }
  }

  TEST_CASE("a store and two reductions from shared memory add up") {
    for (Seed s : result_orders) {
      Launcher l(s.seed, s.level);
      // Only the first 512 of the tile's bytes are written, as fp32 ones; as bf16 that is {0, 1} in turn.
      std::uint64_t tile = l.buffer(64 * 128, 0), acc = l.upload(std::vector<float>(128, 2.0f));
      TensorMap m = map_of_rank(l, tile, 3, 64, 4);
      const Status r = l.launch(snippet("06_tma_store_reduce"), "tma_stores", {&m, &acc}, dims(1, 128));
      REQUIRE_MESSAGE(r.ok(), r.message);
      // The order of a store and a reduction of one group is open (PTX ISA): 1 if the store came last, else 2.
      const auto t = l.download<std::uint16_t>(tile, 64 * 64);
      for (int i = 0; i < 4 * 64; ++i) {
        const float v = bf16_to_f32(t[static_cast<std::size_t>(i)]);
        CHECK((i % 2 ? v == 1 || v == 2 : v == 0));
      }
      for (int i = 4 * 64; i < 64 * 64; ++i) CHECK(t[static_cast<std::size_t>(i)] == 0);
      for (float v : l.download<float>(acc, 128)) CHECK(v == 3);
    }
  }

  TEST_CASE("a tensor map edited in shared memory loads from its new address") {
    for (Seed s : result_orders) {
      Launcher l(s.seed, s.level);
      TensorMap m = map_of_rank(l, l.buffer(8192), 2, 64, 64);
      std::uint64_t maps = l.buffer(256), base = l.upload(random_bf16(64 * 64, 2));
      std::uint32_t rows = 64;
      const Status r = l.launch(snippet("07_tensormap_replace"), "tmap_edit", {&m, &maps, &base, &rows}, dims(2, 32));
      CHECK_MESSAGE(r.ok(), r.message);
      std::uint64_t nowhere = base + (1u << 30);
      const Status bad =
          l.launch(snippet("07_tensormap_replace"), "tmap_edit", {&m, &maps, &nowhere, &rows}, dims(2, 32));
      CHECK(!bad.ok());
    }
  }

  TEST_CASE("two shuffles put P's bytes in the order of the A fragment") {
    Launcher l;
    std::vector<float> in(32 * 8);
    const auto element = [](int row, int column) { return static_cast<float>((row * 16 + column) % 15 - 7); };
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 8; ++i)  // D fragment: rows g and g + 8, columns 8 (i / 4) + 2 t + i % 2
        in[static_cast<std::size_t>(lane * 8 + i)] = element(lane / 4 + 8 * (i / 2 % 2), 8 * (i / 4) + 2 * (lane % 4) + i % 2);
    std::uint64_t from = l.upload(in), to = l.buffer(32 * 8);
    const Status r = l.launch(snippet("12_fp8_pack_shuffle"), "fp8_pack", {&from, &to}, dims(1, 32));
    REQUIRE_MESSAGE(r.ok(), r.message);
    const auto out = l.download<std::uint8_t>(to, 32 * 8);
    for (int lane = 0; lane < 32; ++lane)
      for (int b = 0; b < 8; ++b)
        CHECK(reference::decode(DataType::e4m3, out[static_cast<std::size_t>(lane * 8 + b)]) ==
              element(lane / 4 + 8 * (b / 4), 4 * (lane % 4) + b % 4));
  }

  TEST_CASE("conversions to 8 and 16 bits and the functions of a softmax") {
    Launcher l;
    std::vector<float> io(32 * 16, 0);
    for (int lane = 0; lane < 32; ++lane) {
      float* v = &io[static_cast<std::size_t>(lane * 16)];
      v[0] = 0.37f * static_cast<float>(lane) - 5, v[1] = std::ldexp(1.1f, lane - 16), v[2] = 1.5f, v[3] = -2.25f * static_cast<float>(lane);
    }
    std::uint64_t at = l.upload(io);
    const Status r = l.launch(snippet("14_convert_math"), "conv_math", {&at}, dims(1, 32));
    REQUIRE_MESSAGE(r.ok(), r.message);
    const auto out = l.download<std::uint32_t>(at, 32 * 16);
    const auto encode = [](DataType t, float v) { return reference::encode(t, v); };
    for (int lane = 0; lane < 32; ++lane) {
      const float* v = &io[static_cast<std::size_t>(lane * 16)];
      const std::uint32_t* got = &out[static_cast<std::size_t>(lane * 16)];
      CHECK(got[4] == (encode(DataType::bf16, v[1]) << 16 | encode(DataType::bf16, v[0])));
      CHECK(got[5] == (encode(DataType::f16, v[1]) << 16 | encode(DataType::f16, v[0])));
      std::uint32_t fp8 = 0;
      for (int i = 0; i < 4; ++i) fp8 |= encode(DataType::e4m3, v[i]) << 8 * i;
      CHECK(got[6] == fp8);
      std::uint32_t back = 0;  // the low two, as f16
      for (int i = 0; i < 2; ++i)
        back |= encode(DataType::f16, static_cast<float>(reference::decode(DataType::e4m3, fp8 >> 8 * i & 0xff))) << 16 * i;
      CHECK(got[7] == back);
      CHECK((got[13] & 0xff) == encode(DataType::e5m2, v[0]));
      float sum;
      std::memcpy(&sum, &got[12], 4);
      const double f4 = reference::decode(DataType::f16, back & 0xffff);
      const double want = v[0] + std::exp2(-static_cast<double>(v[0])) + std::max(std::fma(static_cast<double>(v[0]), v[1], v[2]), f4);
      CHECK(std::fabs(sum - want) <= 1e-5 * (1 + std::fabs(want)));
    }
  }

  TEST_CASE("shuffles, votes and a trace record") {
    Launcher l;
    std::uint64_t trace = l.buffer(2 * 4 * 32, 0xff);
    const Status r = l.launch(snippet("17_warp_and_trace"), "warp_trace", {&trace}, dims(2, 128));
    REQUIRE_MESSAGE(r.ok(), r.message);
    const auto out = l.download<std::uint64_t>(trace, 2 * 4 * 4);
    for (int record = 0; record < 8; ++record) {
      const std::uint64_t* w = &out[static_cast<std::size_t>(record * 4)];
      const int warp = record % 4;
      CHECK(w[1] >= w[0]);
      // Lanes whose quad's largest thread number exceeds 10: all but those of the first two quads of warp 0.
      const std::uint32_t ballot = warp == 0 ? 0xffffff00u : 0xffffffffu, most = static_cast<std::uint32_t>(32 * warp + 31);
      const std::uint32_t mixed = (ballot & 0xff) | (ballot >> 16 & 0xff) << 8 | (most & 0xff) << 16 | (most >> 16 & 0xff) << 24;
      CHECK(static_cast<std::uint32_t>(w[3] >> 32) == mixed);
    }
  }

  TEST_CASE("accumulators leave through stmatrix and TMA, each lane's at its rows and columns") {
    for (Seed s : result_orders) {
      Launcher l(s.seed, s.level);
      std::vector<float> in(32);  // every thread loads the same 32
      for (int i = 0; i < 32; ++i) in[static_cast<std::size_t>(i)] = static_cast<float>(i) - 7.25f;
      std::uint64_t from = l.upload(in), to = l.buffer(3 * 64 * 128, 0xff);
      TensorMap m = map_of_rank(l, to, 2, 192, 64);
      const Status r = l.launch(snippet("18_epilogue_stmatrix_tma"), "epilogue", {&m, &from}, dims(3, 128));
      REQUIRE_MESSAGE(r.ok(), r.message);
      const auto out = l.download<std::uint16_t>(to, 192 * 64);
      int wrong = 0;
      for (int row = 0; row < 192; ++row)
        for (int column = 0; column < 64; ++column) {
          const int i = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
          wrong += out[static_cast<std::size_t>(row * 64 + column)] != f32_to_bf16(in[static_cast<std::size_t>(i)]);
        }
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("products and transpositions of memory that nothing has written are reported") {
    struct {
      const char *file, *entry;
    } const unwritten[] = {{"08_wgmma_bf16_ss", "wgmma_ss"},
                           {"09_wgmma_bf16_rs_vtrans", "wgmma_rs"},
                           {"10_wgmma_fp8", "wgmma_fp8"},
                           {"13_v_transpose_fp8", "v_transpose"},
                           {"19_wgmma_transA", "wgmma_transA"}};
    for (const auto& u : unwritten) {
      Launcher l;
      std::uint64_t out = l.buffer(1 << 20);
      std::vector<void*> parameters(std::string(u.entry) == "wgmma_rs" ? 2 : 1, &out);
      const Status r = l.launch(snippet(u.file), u.entry, parameters, dims(1, 128));
      CHECK_MESSAGE(mentions(r, "which nothing has written"), u.file, ": ", r.message);
    }
  }
}
