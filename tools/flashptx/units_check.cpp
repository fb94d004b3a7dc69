// What each micro-kernel must leave in memory, computed on the host from the same recurrence.
// Number formats come from tools/reference/numeric.h, which shares nothing with the devices.
// Next: units_list.cpp.
#include <bit>
#include <cmath>
#include <cstring>

#include "tools/flashptx/units.h"
#include "tools/reference/numeric.h"

namespace flashptx::units {

namespace {

using reference::decode;
using reference::encode;

std::string number(double x) {
  char text[48];
  std::snprintf(text, sizeof text, "%.9g", x);
  return text;
}

template <class T>
T at(const std::vector<std::uint8_t>& bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

std::string differs(const std::string& where, double wanted, double got) {
  return where + ": wanted " + number(wanted) + ", got " + number(got);
}

DataType type_of(const std::string& name) {
  DataType t = DataType::f16;
  reference::parse_data_type(name, &t);
  return t;
}

bool near(double wanted, double got, double tolerance) {
  if (std::isnan(wanted) || std::isinf(wanted))
    return std::isnan(wanted) == std::isnan(got) && (std::isnan(got) || wanted == got);
  return std::fabs(wanted - got) <= tolerance * std::max(std::fabs(wanted), 1e-30);
}

// Which chains of a sample of threads to look at: all would take longer than the kernel.
constexpr int sampled_threads[] = {0, 1, 31, 32, 517, 1023};

std::uint32_t start_value(Start start, std::uint32_t thread, std::uint32_t chain,
                          std::uint32_t seed) {
  const std::uint32_t hash = (thread * 8 + chain) * 0x9e3779b1u + seed;
  if (start == Start::integer) return hash;
  const float x = static_cast<float>(hash) * 0x1p-32f + 0.5f;  // 0f2F800000 is 2^-32
  if (start == Start::f32) return std::bit_cast<std::uint32_t>(x);
  const std::uint32_t half = encode(start == Start::f16 ? DataType::f16 : DataType::bf16, x);
  return half << 16 | half;
}

// Values of one chain as numbers: one f32 or two halves.
std::string compare_chain(std::uint32_t wanted, std::uint32_t got, Start start, double tolerance,
                          bool packed_half, const std::string& where) {
  if (tolerance == 0)
    return wanted == got
               ? ""
               : where + ": wanted bits " + std::to_string(wanted) + ", got " + std::to_string(got);
  if (!packed_half) {
    const float w = std::bit_cast<float>(wanted), g = std::bit_cast<float>(got);
    return near(w, g, tolerance) ? "" : differs(where, w, g);
  }
  const DataType t = start == Start::bf16 ? DataType::bf16 : DataType::f16;
  for (int shift : {0, 16}) {
    const double w = decode(t, wanted >> shift & 0xffff), g = decode(t, got >> shift & 0xffff);
    if (!near(w, g, tolerance)) return differs(where, w, g);
  }
  return "";
}

// Element (row, column byte) of a tile with 128-byte rows and the 128-byte swizzle.
std::size_t swizzled(int row, int byte) {
  return static_cast<std::size_t>(row) * 128 + ((byte / 16) ^ (row & 7)) * 16 + byte % 16;
}

double tile_value(const std::vector<std::uint8_t>& tile, DataType t, std::size_t base, int row,
                  int column) {
  const int bytes = reference::bytes_of(t);
  std::uint32_t bits = 0;
  std::memcpy(&bits, tile.data() + base + swizzled(row, column * bytes),
              static_cast<std::size_t>(bytes));
  return decode(t, bits);
}

double dot(const std::vector<std::uint8_t>& tile, DataType t, int row, int column) {
  double sum = 0;
  for (int k = 0; k < 128 / reference::bytes_of(t); ++k)
    sum += tile_value(tile, t, 0, row, k) * tile_value(tile, t, 8192, column, k);
  return sum;
}

// The accumulator fragment of one warpgroup (PTX ISA, wgmma register fragments): acc[i] of thread
// -> row, column.
std::string check_fragments(const std::vector<std::uint8_t>& out, std::size_t first, int thread,
                            const std::vector<std::uint8_t>& data, DataType t, int n,
                            double times) {
  const int warp = thread % 128 / 32, lane = thread % 32;
  for (int i = 0; i < n / 2; ++i) {
    const int row = 16 * warp + lane / 4 + 8 * (i / 2 % 2),
              column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
    const double wanted = times * dot(data, t, row, column);
    const double got = at<float>(out, first + static_cast<std::size_t>(i));
    if (wanted != got)
      return differs("D[" + std::to_string(row) + "][" + std::to_string(column) + "]", wanted, got);
  }
  return "";
}

}  // namespace

Check check_arithmetic(Start start, int rounds, Step step, double tolerance, bool packed_half,
                       bool across_lanes) {
  return [=](const std::vector<std::uint8_t>& out, const Launch& l) -> std::string {
    std::uint32_t scale = std::bit_cast<std::uint32_t>(l.scale);
    if (start == Start::f16 || start == Start::bf16) {
      scale = encode(start == Start::f16 ? DataType::f16 : DataType::bf16, l.scale);
      scale |= scale << 16;
    }
    for (int thread : sampled_threads) {
      // Instructions across lanes need the whole warp; the others one thread. The step sees chains
      // of lane-major order.
      const int lanes = across_lanes ? 32 : 1, first = across_lanes ? thread / 32 * 32 : thread;
      std::vector<std::uint32_t> x(static_cast<std::size_t>(lanes) * 8);
      for (int lane = 0; lane < lanes; ++lane)
        for (int i = 0; i < 8; ++i)
          x[static_cast<std::size_t>(lane * 8 + i)] =
              start_value(start, static_cast<std::uint32_t>(first + lane),
                          static_cast<std::uint32_t>(i), l.seed);
      for (std::uint32_t r = 0; r < l.iterations * static_cast<std::uint32_t>(rounds); ++r)
        for (int i = 0; i < 8; ++i) step(x.data(), i, scale, l.seed);
      for (int cta : {0, l.ctas - 1})
        for (int i = 0; i < 8; ++i) {
          const std::size_t index =
              (static_cast<std::size_t>(cta) * 1024 + static_cast<std::size_t>(thread)) * 8 +
              static_cast<std::size_t>(i);
          const std::string where = "CTA " + std::to_string(cta) + " thread " +
                                    std::to_string(thread) + " chain " + std::to_string(i);
          const std::string wrong =
              compare_chain(x[static_cast<std::size_t>((thread - first) * 8 + i)],
                            at<std::uint32_t>(out, index), start, tolerance, packed_half, where);
          if (!wrong.empty()) return wrong;
        }
    }
    return "";
  };
}

Check check_wgmma(const std::string& type, int n, int warpgroups) {
  return [=](const std::vector<std::uint8_t>& out, const Launch& l) -> std::string {
    for (int cta : {0, l.ctas - 1})
      for (int thread = 0; thread < 128 * warpgroups; thread += 17) {
        const std::size_t first =
            (static_cast<std::size_t>(cta) * 128 * static_cast<std::size_t>(warpgroups) +
             static_cast<std::size_t>(thread)) *
            static_cast<std::size_t>(n / 2);
        const std::string wrong =
            check_fragments(out, first, thread, l.data, type_of(type), n, 4.0 * l.iterations);
        if (!wrong.empty()) return wrong;
      }
    return "";
  };
}

// mma.sync m16n8k16 fragments (PTX ISA, warp-level matrix fragments): data holds 8 words of A and
// 16 of B a lane.
Check check_mma_sync(const std::string& type, int warps) {
  return [=](const std::vector<std::uint8_t>& out, const Launch& l) -> std::string {
    const DataType t = type_of(type);
    auto half = [&](int lane, int word, int h) {
      return decode(
          t, at<std::uint16_t>(l.data, static_cast<std::size_t>((lane * 24 + word) * 2 + h)));
    };
    auto a = [&](int m, int row, int k) {
      return half(row % 8 * 4 + k % 8 / 2, 4 * m + row / 8 + 2 * (k / 8), k % 2);
    };
    auto b = [&](int n, int k, int column) {
      return half(column * 4 + k % 8 / 2, 8 + 2 * n + k / 8, k % 2);
    };
    for (int thread = 0; thread < 32 * warps; thread += 13) {
      const int lane = thread % 32;
      for (int tile = 0; tile < 16; ++tile)
        for (int c = 0; c < 4; ++c) {
          const int m = tile / 8, n = tile % 8, row = lane / 4 + 8 * (c / 2),
                    column = 2 * (lane % 4) + c % 2;
          double sum = 0;
          for (int k = 0; k < 16; ++k) sum += a(m, row, k) * b(n, k, column);
          const double got = at<float>(out, static_cast<std::size_t>(thread * 64 + tile * 4 + c));
          if (got != 4.0 * l.iterations * sum)
            return differs("thread " + std::to_string(thread) + " tile " + std::to_string(tile),
                           4.0 * l.iterations * sum, got);
        }
    }
    return "";
  };
}

// kind: ld_v4, ldmatrix, ldmatrix_trans, st_v4, stmatrix
Check check_shared(int threads, const std::string& kind) {
  return [=](const std::vector<std::uint8_t>& out, const Launch& l) -> std::string {
    auto word = [&](std::uint32_t byte) { return byte / 4 * 0x9e3779b1u + l.seed; };
    for (int thread : {0, 1, 33, threads - 1}) {
      std::uint32_t x[4];
      const auto t = static_cast<std::uint32_t>(thread);
      for (std::uint32_t i = 0; i < 4; ++i) x[i] = t + 1000 * i;
      for (std::uint32_t trip = 0; trip < l.iterations; ++trip)
        for (std::uint32_t i = 0; i < 16; ++i) {
          const std::uint32_t window = (trip << 13 & 0xe000u) + 4096 * i, warp = t / 32 * 512,
                              lane = t % 32;
          for (std::uint32_t r = 0; r < 4; ++r) {
            if (kind == "ld_v4") x[r] += word(window + t * 16 + 4 * r);
            if (kind == "ldmatrix")
              x[r] += word(window + warp + (8 * r + lane / 4) * 16 + 4 * (lane % 4));
            if (kind == "ldmatrix_trans") {  // rows 2 (lane % 4) and the next, column lane / 4
              const std::uint32_t row = 8 * r + 2 * (lane % 4), byte = 2 * (lane / 4);
              auto element = [&](std::uint32_t at_row) {
                const std::uint32_t a = window + warp + at_row * 16 + byte;
                return word(a) >> (a % 4 * 8) & 0xffffu;
              };
              x[r] += element(row) | element(row + 1) << 16;
            }
          }
        }
      if (kind == "stmatrix") {  // the thread reads back bytes 16 t .. 16 t + 15: row t of its
                                 // warp's four matrices
        for (std::uint32_t r = 0; r < 4; ++r)
          x[r] = (t / 32 * 32 + t % 8 * 4 + r) + 1000 * (t % 32 / 8);
      }
      for (std::uint32_t r = 0; r < 4; ++r) {
        const auto got = at<std::uint32_t>(out, static_cast<std::size_t>(thread) * 4 + r);
        if (got != x[r])
          return differs("thread " + std::to_string(thread) + " word " + std::to_string(r), x[r],
                         got);
      }
    }
    return "";
  };
}

// First words of the boxes that each CTA took. The data of a check is small; a timed walk is not
// checked.
Check check_tma(int rows) {
  return [=](const std::vector<std::uint8_t>& out, const Launch& l) -> std::string {
    for (int cta = 0; cta < l.ctas; ++cta) {
      std::uint32_t sum = 0, box = static_cast<std::uint32_t>(cta) % l.footprint;
      for (std::uint32_t i = 0; i < l.iterations;
           ++i, box = (box + static_cast<std::uint32_t>(l.ctas)) % l.footprint)
        sum += at<std::uint32_t>(
            l.data, static_cast<std::size_t>(box) * static_cast<std::size_t>(rows) * 32);
      const auto got = at<std::uint32_t>(out, static_cast<std::size_t>(cta));
      if (got != sum) return differs("CTA " + std::to_string(cta), sum, got);
    }
    return "";
  };
}

Check check_counter(std::uint32_t per_iteration) {
  return [=](const std::vector<std::uint8_t>& out, const Launch& l) -> std::string {
    for (int cta = 0; cta < l.ctas; ++cta)
      if (at<std::uint32_t>(out, static_cast<std::size_t>(cta)) != per_iteration * l.iterations)
        return differs("CTA " + std::to_string(cta), per_iteration * l.iterations,
                       at<std::uint32_t>(out, static_cast<std::size_t>(cta)));
    return "";
  };
}

// Eight times: each thread adds its number to the token in its slot and puts it into the next
// thread's.
Check check_barrier_tokens(int threads) {
  return [=](const std::vector<std::uint8_t>& out, const Launch&) -> std::string {
    std::vector<std::uint32_t> slot(static_cast<std::size_t>(threads), 0), next = slot;
    for (int round = 0; round < 8; ++round, slot = next)
      for (std::size_t t = 0; t < slot.size(); ++t)
        next[(t + 1) % slot.size()] = slot[t] + static_cast<std::uint32_t>(t);
    for (std::size_t t = 0; t < slot.size(); ++t)
      if (at<std::uint32_t>(out, t) != slot[t])
        return differs("thread " + std::to_string(t), slot[t], at<std::uint32_t>(out, t));
    return "";
  };
}

namespace {

// A worker's chains and sums after all its trips.
void softmax_work(float* x, float* sum, float* maximum, float scale, std::uint32_t trips,
                  bool with_maximum) {
  for (std::uint32_t round = 0; round < 8 * trips; ++round) {
    for (int i = 0; i < 8; ++i) {
      x[i] = std::exp2(std::fma(x[i], scale, scale));
      sum[i] += x[i];
      if (with_maximum) maximum[i] = std::max(maximum[i], x[i]);
    }
    for (int i = 0; i < 8; i += 2) {
      const std::uint32_t packed =
          encode(DataType::bf16, x[i]) << 16 | encode(DataType::bf16, x[i + 1]);
      x[i] = std::bit_cast<float>(packed);
    }
  }
}

std::string check_worker(const std::vector<std::uint8_t>& out, int thread, const Launch& l,
                         const std::string& work) {
  float x[8], sum[8] = {}, maximum[8] = {};
  for (int i = 0; i < 8; ++i) x[i] = static_cast<float>(thread + 16 * i) / 512.0f;
  if (work == "ex2")
    for (std::uint32_t r = 0; r < 8 * l.work_trips; ++r)
      for (float& v : x) v = std::exp2(-v);
  else softmax_work(x, sum, maximum, l.scale, l.work_trips, work == "softmax_max");
  for (int i = 0; i < 8; ++i) {
    const double got_x = at<float>(out, static_cast<std::size_t>(thread * 64 + i));
    const double got_sum = at<float>(out, static_cast<std::size_t>(thread * 64 + 8 + i));
    // A chain that was rounded to bf16 on the way may differ by one such step.
    if (!near(x[i], got_x, work == "ex2" ? 1e-5 : 1e-2))
      return differs("thread " + std::to_string(thread) + " chain " + std::to_string(i), x[i],
                     got_x);
    if (work != "ex2" && !near(sum[i] + maximum[i], got_sum, 1e-3))
      return differs("thread " + std::to_string(thread) + " sum " + std::to_string(i),
                     sum[i] + maximum[i], got_sum);
  }
  return "";
}

std::string check_ldmatrix_worker(const std::vector<std::uint8_t>& out, int thread,
                                  const Launch& l) {
  std::uint32_t x[8];
  for (int i = 0; i < 8; ++i)
    x[i] = std::bit_cast<std::uint32_t>(static_cast<float>(thread + 16 * i) / 512.0f);
  const std::uint32_t warp = static_cast<std::uint32_t>(thread) / 32 * 512,
                      lane = static_cast<std::uint32_t>(thread) % 32;
  for (std::uint32_t trip = 0; trip < l.work_trips; ++trip)
    for (std::uint32_t round = 0; round < 8; ++round)
      for (std::uint32_t i = 0; i < 8; ++i)
        for (std::uint32_t r = 0; r < 4; ++r)
          x[i] += at<std::uint32_t>(
              l.data, ((trip & 1) * 4096 + round * 128 + 4096 * (i % 4) + 64 * (i / 4) + warp +
                       (8 * r + lane / 4) * 16 + 4 * (lane % 4)) /
                          4);
  for (int i = 0; i < 8; ++i)
    if (at<std::uint32_t>(out, static_cast<std::size_t>(thread * 64 + i)) != x[i])
      return differs("thread " + std::to_string(thread) + " fold " + std::to_string(i), x[i],
                     at<std::uint32_t>(out, static_cast<std::size_t>(thread * 64 + i)));
  return "";
}

}  // namespace

Check check_beside(const std::string& type, const std::string& work) {
  return [=](const std::vector<std::uint8_t>& out, const Launch& l) -> std::string {
    for (int thread = 0; thread < 384; thread += 19) {
      const std::string wrong =
          thread < 128 ? check_fragments(out, static_cast<std::size_t>(thread) * 64, thread, l.data,
                                         type_of(type), 128, 2.0 * l.mma_trips)
          : work == "ldmatrix" ? check_ldmatrix_worker(out, thread, l)
                               : check_worker(out, thread, l, work);
      if (!wrong.empty()) return wrong;
    }
    return "";
  };
}

// A (64 rows) then B (n rows) of 128 bytes, swizzled. Exact: integers in -1..1, so that sums stay
// exact in any accumulator.
std::vector<std::uint8_t> wgmma_data(const std::string& type, int n, bool exact) {
  const DataType t = type_of(type);
  const int bytes = reference::bytes_of(t), columns = 128 / bytes;
  std::vector<std::uint8_t> tile(static_cast<std::size_t>(64 + n) * 128);
  for (int row = 0; row < 64 + n; ++row)
    for (int column = 0; column < columns; ++column) {
      const auto index = static_cast<std::uint64_t>(row * columns + column);
      const double value =
          exact ? std::floor(3 * reference::uniform(1, index)) - 1 : reference::normal(1, index);
      const std::uint32_t bits = encode(t, value);
      std::memcpy(tile.data() + (row < 64 ? swizzled(row, column * bytes)
                                          : 8192 + swizzled(row - 64, column * bytes)),
                  &bits, static_cast<std::size_t>(bytes));
    }
  return tile;
}

std::vector<std::uint8_t> mma_sync_data(const std::string& type, bool exact) {
  std::vector<std::uint8_t> data(32 * 24 * 4);
  for (std::size_t i = 0; i < data.size() / 2; ++i) {
    const double value =
        exact ? std::floor(5 * reference::uniform(2, i)) - 2 : reference::normal(2, i);
    const std::uint32_t bits = encode(type_of(type), value);
    std::memcpy(data.data() + 2 * i, &bits, 2);
  }
  return data;
}

}  // namespace flashptx::units
