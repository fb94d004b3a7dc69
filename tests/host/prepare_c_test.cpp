// The preparation calls through C, from constants whose result is known without a reference.
// Next: tests/host/prepare_refusal_test.cpp.
#include <vector>

#include "host/context.h"
#include "tests/support.h"

using namespace flashptx;

namespace {

constexpr std::uint16_t bf16_one = 0x3f80;
constexpr std::uint8_t e4m3_448 = 0x7e;

struct Memory {
  std::unique_ptr<flashptx_context> context;
  std::vector<void*> taken;
  Memory() {
    std::unique_ptr<Device> device;
    const Status s = open_emulator({}, &device);
    REQUIRE_MESSAGE(s.ok(), s.message);
    context = std::make_unique<flashptx_context>(std::move(device), 0);
  }
  ~Memory() {
    for (void* p : taken) flashptx_device_free(context.get(), p);
  }
  template <class T>
  T* take(const std::vector<T>& values) {
    void* p = nullptr;
    REQUIRE(flashptx_device_alloc(context.get(), values.size() * sizeof(T), &p) == FLASHPTX_OK);
    taken.push_back(p);
    REQUIRE(flashptx_copy_to_device(context.get(), p, values.data(), values.size() * sizeof(T)) == FLASHPTX_OK);
    return static_cast<T*>(p);
  }
  template <class T>
  std::vector<T> back(const T* from, std::size_t count) {
    std::vector<T> values(count);
    REQUIRE(flashptx_copy_from_device(context.get(), values.data(), from, count * sizeof(T)) == FLASHPTX_OK);
    return values;
  }
  void ok(flashptx_status s) { REQUIRE_MESSAGE(s == FLASHPTX_OK, flashptx_last_error(context.get())); }
};

constexpr int rows = 40, heads = 2, d = 64, n = rows * heads * d;

flashptx_prepare_problem problem(int32_t out) {
  flashptx_prepare_problem p{};
  p.size = sizeof p;
  p.input_dtype = FLASHPTX_BF16, p.output_dtype = out;
  p.batch = 1, p.seqlen = rows, p.heads = heads, p.head_dim = d;
  p.x = p.y = flashptx_strides_bshd(rows, heads, d);
  p.scale_kind = FLASHPTX_SCALE_HEAD;
  return p;
}

}  // namespace

TEST_SUITE("host/prepare_c") {
  TEST_CASE("ones become the largest value, with scale 1 / 448") {
    Memory m;
    const std::uint16_t* x = m.take(std::vector<std::uint16_t>(n, bf16_one));
    std::uint8_t* y = m.take(std::vector<std::uint8_t>(n));
    float* scales = m.take(std::vector<float>(heads, -1));
    float* amax = m.take(std::vector<float>(heads, -1));
    const flashptx_prepare_problem p = problem(FLASHPTX_E4M3);
    m.ok(flashptx_quantize(m.context.get(), &p, x, y, scales, amax, nullptr));
    CHECK(m.back(y, n) == std::vector<std::uint8_t>(n, e4m3_448));
    CHECK(m.back(amax, heads) == std::vector<float>(heads, 1.0f));
    CHECK(m.back(scales, heads) == std::vector<float>(heads, 1.0f / 448));
  }

  TEST_CASE("Hadamard in place and back is where it was") {
    Memory m;
    std::uint16_t* x = m.take(std::vector<std::uint16_t>(n, bf16_one));
    flashptx_prepare_problem p = problem(FLASHPTX_BF16);
    p.hadamard = FLASHPTX_HADAMARD_FORWARD, p.seed = 7;
    m.ok(flashptx_hadamard(m.context.get(), &p, x, x, nullptr));
    CHECK(m.back(x, n) != std::vector<std::uint16_t>(n, bf16_one));
    p.hadamard = FLASHPTX_HADAMARD_INVERSE;
    m.ok(flashptx_hadamard(m.context.get(), &p, x, x, nullptr));
    CHECK(m.back(x, n) == std::vector<std::uint16_t>(n, bf16_one));  // 64 sums of +-1 / 8: exact
  }

  TEST_CASE("RoPE by a quarter turn swaps the halves") {
    Memory m;
    std::vector<std::uint16_t> halves(n, 0);
    for (int i = 0; i < n; ++i)
      if (i % d < d / 2) halves[static_cast<std::size_t>(i)] = bf16_one;
    const std::uint16_t* x = m.take(halves);
    std::uint16_t* y = m.take(std::vector<std::uint16_t>(n));
    const float* cos = m.take(std::vector<float>((rows + 3) * d / 2, 0.0f));
    const float* sin = m.take(std::vector<float>((rows + 3) * d / 2, 1.0f));
    flashptx_prepare_problem p = problem(FLASHPTX_BF16);
    p.rope = FLASHPTX_ROPE_HALF, p.table_dtype = FLASHPTX_F32, p.position = 3, p.table_rows = rows + 3;
    m.ok(flashptx_rope_hadamard_quantize(m.context.get(), &p, x, cos, sin, y, nullptr, nullptr, nullptr));
    for (std::uint16_t& v : halves) v = v ? 0 : bf16_one;
    for (std::uint16_t v : m.back(y, n)) CHECK((v == 0x8000 || v == 0 || v == bf16_one));
    std::vector<std::uint16_t> got = m.back(y, n);
    for (std::uint16_t& v : got) v &= 0x7fff;
    CHECK(got == halves);
  }

  TEST_CASE("V^T has a row for each column, in both ways to make it") {
    Memory m;
    std::vector<std::uint8_t> bytes(n);
    for (int i = 0; i < n; ++i) bytes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(i % d);
    const std::uint8_t* v = m.take(bytes);
    std::uint8_t* vt = m.take(std::vector<std::uint8_t>(heads * d * 128, 0xee));
    const flashptx_transpose_problem t{sizeof t, FLASHPTX_E4M3, 1, rows, heads, d, flashptx_strides_bshd(rows, heads, d)};
    m.ok(flashptx_transpose_v(m.context.get(), &t, v, vt, nullptr));
    std::vector<std::uint8_t> wanted(heads * d * 128);
    // 40 keys: 16, 16 and 8 of the last group, which stand at positions 4t and 4t + 1.
    const auto inside = [](int p) { return p < 32 || (p < 48 && p % 4 < 2); };
    for (int i = 0; i < heads * d * 128; ++i)
      wanted[static_cast<std::size_t>(i)] = inside(i % 128) ? static_cast<std::uint8_t>(i / 128 % d) : 0;
    CHECK(m.back(vt, wanted.size()) == wanted);

    const std::uint16_t* x = m.take(std::vector<std::uint16_t>(n, bf16_one));
    float* scales = m.take(std::vector<float>(heads, -1));
    flashptx_prepare_problem p = problem(FLASHPTX_E4M3);
    p.scale_kind = FLASHPTX_SCALE_BLOCK, p.block_rows = 128;
    m.ok(flashptx_quantize_transpose_v(m.context.get(), &p, x, vt, scales, nullptr, nullptr));
    for (int i = 0; i < heads * d * 128; ++i) wanted[static_cast<std::size_t>(i)] = inside(i % 128) ? e4m3_448 : 0;
    CHECK(m.back(vt, wanted.size()) == wanted);
    CHECK(m.back(scales, heads) == std::vector<float>(heads, 1.0f / 448));
  }
}
