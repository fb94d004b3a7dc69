// The snippets of tests/emulator/ptx that multiply on the tensor cores or transpose, on tiles that hold something.
//
// They leave the loading to somebody else. So a few lines are put in front, and behind where results stay in shared
// memory: rows of 128 bytes whose 16-byte chunks change places with the 128-byte swizzle (PTX ISA, "Swizzling Modes":
// chunk ^ row % 8), written by ordinary stores, fenced for the async proxy. The snippet's own statements are untouched;
// what they must give is computed here from the PTX ISA's matrix fragments. Next: fp8_kernel_test.cpp.
#include <cmath>

#include "tests/emulator/snippets.h"
#include "tools/reference/numeric.h"

using namespace flashptx;
using namespace flashptx::emulator;
using namespace flashptx::emulator::test;

namespace {

constexpr Seed product_orders[] = {{0, 0}, {1, 1}, {2, 2}, {3, 2}, {4, 1}, {5, 2}};

// Sixteen bytes a thread and turn, between row-major global memory and a swizzled tile.
std::string move_tile(const std::string& tile, int bytes, int global_offset, bool fill) {
  std::string s;
  for (int first = 0; first < bytes / 16; first += 128) {
    s += "add.u32 %xc, %xt, " + std::to_string(first) + "; shr.u32 %xrow, %xc, 3; and.b32 %xchunk, %xc, 7;\n"
         "mul.wide.u32 %xat, %xc, 16; add.u64 %xat, %xat, %xglobal;\n"
         "and.b32 %xkey, %xrow, 7; xor.b32 %xchunk, %xchunk, %xkey; shl.b32 %xchunk, %xchunk, 4;\n"
         "mad.lo.u32 %xto, %xrow, 128, %xchunk; mov.u32 %xbase, " + tile + "; add.u32 %xto, %xto, %xbase;\n";
    const std::string global = "[%xat+" + std::to_string(global_offset) + "]", shared = "[%xto]", data = "{%xv0, %xv1, %xv2, %xv3}";
    s += fill ? "ld.global.v4.b32 " + data + ", " + global + "; st.shared.v4.b32 " + shared + ", " + data + ";\n"
              : "ld.shared.v4.b32 " + data + ", " + shared + "; st.global.v4.b32 " + global + ", " + data + ";\n";
  }
  return s;
}

std::string scope(const std::string& parameter, const std::string& body) {
  return "{ .reg .b64 %xglobal, %xat; .reg .b32 %xt, %xc, %xrow, %xchunk, %xkey, %xto, %xbase, %xv<4>;\n"
         "ld.param.u64 %xglobal, [" + parameter + "]; mov.u32 %xt, %tid.x;\n" + body + "}\n";
}
const char* const visible = "fence.proxy.async.shared::cta;\nbar.sync 0;\n";

// Each thread its own 128 or 256 bytes: the snippets that give no thread number would all use the same.
std::string own_place(const std::string& pointer, int bytes) {
  return "mul.wide.u32 %xat, %xt, " + std::to_string(bytes) + "; add.u64 " + pointer + ", " + pointer + ", %xat;\n";
}

std::string insert(std::string text, const std::string& behind, const std::string& what) {
  const std::size_t at = text.find(behind);
  REQUIRE_MESSAGE(at != std::string::npos, behind);
  return text.insert(at + behind.size(), "\n" + what);
}

constexpr int inputs_at = 1 << 16;  // of the buffer whose beginning takes the results

Status launch(Launcher& l, const std::string& text, const char* entry, std::vector<void*> parameters) {
  return l.launch(text, entry, std::move(parameters), dims(1, 128));
}

// Row-major (rows, columns) of small whole numbers that depend on both.
std::vector<int> whole_numbers(int rows, int columns, unsigned seed, int most = 4) {
  std::mt19937 g(seed);
  std::vector<int> v(static_cast<std::size_t>(rows * columns));
  for (auto& x : v) x = static_cast<int>(g() % static_cast<unsigned>(2 * most + 1)) - most;
  return v;
}
std::vector<std::uint8_t> bf16_bytes(const std::vector<int>& v) {
  std::vector<std::uint8_t> out(v.size() * 2);
  for (std::size_t i = 0; i < v.size(); ++i)
    reference::store(DataType::bf16, out.data(), static_cast<std::int64_t>(i), v[i]);
  return out;
}
void append(std::vector<std::uint8_t>* to, const std::vector<std::uint8_t>& more) {
  to->insert(to->end(), more.begin(), more.end());
}
std::vector<std::uint8_t> behind_results(const std::vector<std::uint8_t>& inputs) {
  std::vector<std::uint8_t> out(inputs_at, 0xee);
  append(&out, inputs);
  return out;
}

// D of m64nNk*: register i of a thread (PTX ISA, "Register Fragments for wgmma.mma_async").
int row_of(int thread, int i) { return 16 * (thread / 32) + thread % 32 / 4 + 8 * (i / 2 % 2); }
int column_of(int thread, int i) { return 8 * (i / 4) + 2 * (thread % 4) + i % 2; }

// Slot of a group of 16 keys in V^T to the key that it holds (the head of 13_v_transpose_fp8).
constexpr int key_of_slot[16] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};

int at(const std::vector<int>& v, int columns, int row, int column) {
  return v[static_cast<std::size_t>(row * columns + column)];
}

// `count` floats that the kernel leaves in front of its inputs, in one order.
std::vector<float> product(Seed s, const std::string& text, const char* entry, const std::vector<std::uint8_t>& inputs,
                           std::size_t count) {
  Launcher l(s.seed, s.level);
  std::uint64_t out = l.upload(behind_results(inputs));
  const Status r = launch(l, text, entry, {&out});
  REQUIRE_MESSAGE(r.ok(), r.message);
  return l.download<float>(out, count);
}

}  // namespace

TEST_SUITE("emulator/snippet_products") {
  TEST_CASE("08: S = Q K^T of two swizzled tiles in shared memory") {
    const std::string text =
        insert(snippet("08_wgmma_bf16_ss"), "ld.param.u64 %out, [p_out];",
               scope("p_out", move_tile("sq", 8192, inputs_at, true) + move_tile("sk", 8192, inputs_at + 8192, true)) + visible);
    const auto q = whole_numbers(64, 64, 1), k = whole_numbers(64, 64, 2);
    auto in = bf16_bytes(q);
    append(&in, bf16_bytes(k));
    for (Seed s : product_orders) {
      const auto got = product(s, text, "wgmma_ss", in, 64 * 64);
      int wrong = 0;
      for (int i = 0; i < 64; ++i)
        for (int j = 0; j < 64; ++j) {
          int want = 0;
          for (int c = 0; c < 64; ++c) want += at(q, 64, i, c) * at(k, 64, j, c);
          wrong += got[static_cast<std::size_t>(i * 64 + j)] != static_cast<float>(want);
        }
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("09: O = P V, P packed from accumulators into registers, V as its rows lie") {
    std::string text = insert(snippet("09_wgmma_bf16_rs_vtrans"), "ld.param.u64 %out, [p_out];",
                              scope("p_out", move_tile("sv", 8192, inputs_at, true) + own_place("%in", 128) + own_place("%out", 128)) + visible);
    const auto p = whole_numbers(64, 64, 3), v = whole_numbers(64, 64, 4);
    std::vector<float> fragments(128 * 32);
    for (int t = 0; t < 128; ++t)
      for (int i = 0; i < 32; ++i) fragments[static_cast<std::size_t>(t * 32 + i)] = static_cast<float>(at(p, 64, row_of(t, i), column_of(t, i)));
    for (Seed s : product_orders) {
      Launcher l(s.seed, s.level);
      std::uint64_t in = l.upload(fragments), out = l.upload(behind_results(bf16_bytes(v)));
      const Status r = launch(l, text, "wgmma_rs", {&in, &out});
      REQUIRE_MESSAGE(r.ok(), r.message);
      const auto got = l.download<float>(out, 128 * 32);
      int wrong = 0;
      for (int t = 0; t < 128; ++t)
        for (int i = 0; i < 32; ++i) {
          int want = 0;
          for (int key = 0; key < 64; ++key) want += at(p, 64, row_of(t, i), key) * at(v, 64, key, column_of(t, i));
          wrong += got[static_cast<std::size_t>(t * 32 + i)] != static_cast<float>(want);
        }
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("10: 8 bit, S = Q K^T, then P packed without shuffles times V^T in the order of its slots") {
    const std::string text =
        insert(snippet("10_wgmma_fp8"), "ld.param.u64 %out, [p_out];",
               scope("p_out", move_tile("sq", 8192, inputs_at, true) + move_tile("sk", 8192, inputs_at + 8192, true) +
                                  move_tile("svt", 16384, inputs_at + 16384, true) + own_place("%out", 256)) + visible);
    const auto q = whole_numbers(64, 128, 5, 1), k = whole_numbers(64, 128, 6, 1), v = whole_numbers(64, 128, 7);
    std::vector<std::uint8_t> in;
    const auto add = [&](int value) { in.push_back(static_cast<std::uint8_t>(reference::encode(DataType::e4m3, value))); };
    for (int x : q) add(x);
    for (int x : k) add(x);
    for (int d = 0; d < 128; ++d)
      for (int slot = 0; slot < 128; ++slot) add(slot < 64 ? at(v, 128, slot / 16 * 16 + key_of_slot[slot % 16], d) : 7);
    double p[64][64];
    for (int i = 0; i < 64; ++i)
      for (int j = 0; j < 64; ++j) {
        int sum = 0;
        for (int c = 0; c < 128; ++c) sum += at(q, 128, i, c) * at(k, 128, j, c);
        p[i][j] = reference::decode(DataType::e4m3, reference::encode(DataType::e4m3, sum));
      }
    for (Seed s : product_orders) {
      const auto got = product(s, text, "wgmma_fp8", in, 128 * 64);
      int wrong = 0;
      for (int t = 0; t < 128; ++t)
        for (int i = 0; i < 64; ++i) {
          double want = 0;
          for (int key = 0; key < 64; ++key) want += p[row_of(t, i)][key] * at(v, 128, key, column_of(t, i));
          wrong += got[static_cast<std::size_t>(t * 64 + i)] != static_cast<float>(want);
        }
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("13: V^T has each byte in the row and slot that the snippet's head says") {
    std::string text = insert(snippet("13_v_transpose_fp8"), ".reg .pred %p0, %p1;",
                              scope("p_dummy", move_tile("vin", 16384, inputs_at, true)) + "bar.sync 0;\n");
    text = insert(text, "bar.sync 1, 128;", scope("p_dummy", move_tile("vt", 16384, 0, false)));
    std::vector<std::uint8_t> v(128 * 128);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<std::uint8_t>(i * 37 + i / 128 * 11);
    for (Seed s : product_orders) {
      Launcher l(s.seed, s.level);
      std::uint64_t io = l.upload(behind_results(v));
      const Status r = launch(l, text, "v_transpose", {&io});
      REQUIRE_MESSAGE(r.ok(), r.message);
      const auto got = l.download<std::uint8_t>(io, 128 * 128);
      int wrong = 0;
      for (int column = 0; column < 128; ++column)
        for (int slot = 0; slot < 128; ++slot) {
          const int g = column % 16 / 2, odd = column % 2, row = column / 16 * 16 + (g < 4 ? 2 * g : 2 * g - 7) + 8 * odd;
          const int key = slot / 16 * 16 + key_of_slot[slot % 16];
          wrong += got[static_cast<std::size_t>(row * 128 + slot)] != v[static_cast<std::size_t>(key * 128 + column)];
        }
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("19: D = dS^T Q with both operands as their rows lie") {
    const std::string text =
        insert(snippet("19_wgmma_transA"), "ld.param.u64 %out, [p_out];",
               scope("p_out", move_tile("sds", 8192, inputs_at, true) + move_tile("sq", 8192, inputs_at + 8192, true) +
                                  own_place("%out", 128)) + visible);
    const auto ds = whole_numbers(64, 64, 8), q = whole_numbers(64, 64, 9);
    auto in = bf16_bytes(ds);
    append(&in, bf16_bytes(q));
    for (Seed s : product_orders) {
      const auto got = product(s, text, "wgmma_transA", in, 128 * 32);
      int wrong = 0;
      for (int t = 0; t < 128; ++t)
        for (int i = 0; i < 32; ++i) {
          int want = 0;
          for (int row = 0; row < 64; ++row) want += at(ds, 64, row, row_of(t, i)) * at(q, 64, row, column_of(t, i));
          wrong += got[static_cast<std::size_t>(t * 32 + i)] != static_cast<float>(want);
        }
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("without the fence in front, the async proxy's read of what ordinary stores wrote is reported") {
    const std::string fill = scope("p_out", move_tile("sq", 8192, inputs_at, true) + move_tile("sk", 8192, inputs_at + 8192, true));
    const std::string text = insert(snippet("08_wgmma_bf16_ss"), "ld.param.u64 %out, [p_out];", fill + "bar.sync 0;\n");
    Launcher l;
    std::uint64_t out = l.upload(std::vector<std::uint8_t>(inputs_at + 16384, 0));
    const Status r = launch(l, text, "wgmma_ss", {&out});
    CHECK_MESSAGE(mentions(r, "fence.proxy.async by the writer is missing"), r.message);
  }
}
