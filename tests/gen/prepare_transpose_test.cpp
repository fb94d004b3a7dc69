// V^T with permuted keys: the key order, the kernel bit by bit on the emulator, its assembly.
// Next: gen/tile/key_order.h, gen/kernels/prepare_transpose.cpp.
#include "gen/kernels/prepare.h"
#include "gen/tile/key_order.h"
#include "host/emulator/emulator.h"
#include "host/prepare.h"
#include "tests/support.h"

using namespace flashptx;

namespace {

std::uint8_t byte_of(std::uint64_t i) { return static_cast<std::uint8_t>((i * 0x9E3779B97F4A7C15u) >> 40); }

struct Run {
  std::string failure, stats;
};

// Transposes on the emulator and compares every byte of V^T, the zeros of its tail too.
Run transpose(TransposeProblem p, std::int64_t row_pitch, bool heads_outside, std::uint64_t seed) {
  const std::int64_t b = p.batch, s = p.seqlen, h = p.heads, d = p.head_dim, padded = transposed_seqlen(s);
  p.v = heads_outside ? Strides{h * s * row_pitch, row_pitch, s * row_pitch} : Strides{s * h * row_pitch, h * row_pitch, row_pitch};
  std::unique_ptr<Device> device;
  EmulatorOptions options;
  options.seed = seed;
  options.adversary_level = seed ? 2 : 1;
  if (Status st = open_emulator(options, &device); !st.ok()) return {st.message, ""};
  std::vector<std::uint8_t> v(static_cast<std::size_t>(b * s * h * row_pitch)), out(static_cast<std::size_t>(b * h * d * padded + 64));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = byte_of(i);
  std::uint64_t v_at = 0, out_at = 0;
  if (Status st = device->allocate(v.size(), &v_at); !st.ok()) return {st.message, ""};
  if (Status st = device->allocate(out.size(), &out_at); !st.ok()) return {st.message, ""};
  Status st = device->copy_to_device(v_at, v.data(), v.size());
  if (st.ok()) st = device->fill(out_at, 0xAB, out.size(), nullptr);
  Prepare prepare(*device);
  if (st.ok()) st = prepare.transpose_v(p, v_at, out_at, nullptr);
  if (st.ok()) st = device->copy_from_device(out.data(), out_at, out.size());
  if (!st.ok()) return {st.message, ""};
  Run run{"", emulator_stats(*device)};
  for (std::int64_t i = 0; i < b * h * d * padded + 64; ++i) {
    const std::int64_t position = i % padded, c = i / padded % d, head = i / padded / d % h, batch = i / padded / d / h;
    const std::int64_t key = position / 32 * 32 + key_at_position(static_cast<int>(position % 32));
    std::uint8_t wanted = 0;
    if (batch >= b) wanted = 0xAB;  // nothing behind the end
    else if (key < s) wanted = v[static_cast<std::size_t>(batch * p.v.batch + key * p.v.seq + head * p.v.head + c)];
    const std::uint8_t got = out[static_cast<std::size_t>(i)];
    if (got != wanted) {
      run.failure = "batch " + std::to_string(batch) + " head " + std::to_string(head) + " column " + std::to_string(c) +
                    " position " + std::to_string(position) + ": " + std::to_string(got) + ", wanted " + std::to_string(wanted);
      break;
    }
  }
  device->free(v_at);
  device->free(out_at);
  return run;
}

TransposeProblem problem(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d) {
  TransposeProblem p;
  p.batch = b, p.seqlen = s, p.heads = h, p.head_dim = d;
  return p;
}

}  // namespace

TEST_SUITE("gen/prepare_transpose") {
  TEST_CASE("the order of keys is that of the 8-bit A fragment against the f32 accumulator") {
    for (int lane = 0; lane < 4; ++lane)
      for (int half = 0; half < 2; ++half)
        for (int i = 0; i < 4; ++i) {
          // What the thread packs, value by value: accumulator columns in the order in which it holds them.
          const int g = 2 * half + i / 2, column = 8 * g + 2 * lane + i % 2;
          CHECK(key_at_position(16 * half + 4 * lane + i) == column);
          CHECK(position_of_key(column) == 16 * half + 4 * lane + i);
        }
  }

  TEST_CASE("every byte stands at its place, for each head_dim") {
    for (int d = 16; d <= 256; d += 16) {
      CAPTURE(d);
      CHECK(transpose(problem(1, 200, 2, d), d, false, 0).failure == "");
    }
  }

  TEST_CASE("strides, ragged tails, one key, adversarial orders") {
    CHECK(transpose(problem(2, 1, 3, 64), 64, false, 1).failure == "");
    CHECK(transpose(problem(2, 129, 2, 128), 160, true, 2).failure == "");
    CHECK(transpose(problem(1, 384, 1, 256), 256, false, 3).failure == "");
    CHECK(transpose(problem(3, 127, 2, 96), 112, false, 4).failure == "");
  }

  TEST_CASE("no bank conflicts for the usual head dims") {
    for (int d : {64, 96, 128, 192, 256}) {
      CAPTURE(d);
      const Run run = transpose(problem(1, 256, 1, d), d, false, 0);
      CHECK(run.failure == "");
      CAPTURE(run.stats);
      CHECK(run.stats.find("no bank conflicts") != std::string::npos);
    }
  }

  TEST_CASE("the kernels assemble without spill or remark") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas");
    for (int d : {64, 96, 128, 192, 256, 80}) {
      PrepareConfig c;
      c.sink = Sink::transpose, c.head_dim = d;
      const test::Assembled a = test::assemble(emit_prepare(c).text);
      CAPTURE(c.name());
      CHECK_MESSAGE(a.ok, a.log);
      CHECK(a.spill_bytes + a.stack_bytes == 0);
      CHECK(a.registers <= 40);
      CHECK(a.log.find("warning") == std::string::npos);
    }
  }
}
