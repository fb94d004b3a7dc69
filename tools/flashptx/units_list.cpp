// Every unit: instruction, template values, work of a trip, what the host computes, and the rate to
// expect. Expected rates are those measured on an H200 with other kernels (one per clock and SM), 0
// where none is known. Next: units_check.cpp, ptx/units/*.ptx.in.
#include <bit>
#include <cmath>

#include "tools/flashptx/units.h"
#include "tools/reference/numeric.h"

namespace flashptx::units {

namespace {

float as_float(std::uint32_t x) { return std::bit_cast<float>(x); }
std::uint32_t as_bits(float x) { return std::bit_cast<std::uint32_t>(x); }
float flush(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
std::uint32_t half_bits(DataType t, double x) { return reference::encode(t, x); }

// An f32 recurrence x = f(x, next chain, scale), flushing subnormals as .ftz does.
Step f32_step(float (*f)(float x, float next, float scale)) {
  return [f](std::uint32_t* x, int i, std::uint32_t scale, std::uint32_t) {
    x[i] =
        as_bits(flush(f(flush(as_float(x[i])), flush(as_float(x[(i + 1) % 8])), as_float(scale))));
  };
}
Step integer_step(std::uint32_t (*f)(std::uint32_t x, std::uint32_t next, std::uint32_t seed)) {
  return [f](std::uint32_t* x, int i, std::uint32_t, std::uint32_t seed) {
    x[i] = f(x[i], x[(i + 1) % 8], seed);
  };
}
// The same function on both halves.
Step half_step(DataType t, double (*f)(double x, double next, double scale)) {
  return [=](std::uint32_t* x, int i, std::uint32_t scale, std::uint32_t) {
    std::uint32_t result = 0;
    for (int shift : {0, 16}) {
      auto part = [&](std::uint32_t word) { return reference::decode(t, word >> shift & 0xffff); };
      result |= (half_bits(t, f(part(x[i]), part(x[(i + 1) % 8]), part(scale))) & 0xffff) << shift;
    }
    x[i] = result;
  };
}
Step pack_step(DataType t) {  // cvt.rn.T x2: first source to the upper half
  return [t](std::uint32_t* x, int i, std::uint32_t, std::uint32_t) {
    x[i] = half_bits(t, as_float(x[i])) << 16 | (half_bits(t, as_float(x[(i + 1) % 8])) & 0xffff);
  };
}
std::uint32_t e4m3(double x) { return reference::encode(DataType::e4m3, x) & 0xff; }

const char* start_text(Start s) {
  static const char* uniform =
      "cvt.rn.f32.u32 %x<i>, %hash;  mul.f32 %x<i>, %x<i>, 0f2F800000;  add.f32 %x<i>, %x<i>, "
      "0f3F000000;";
  static const std::string f16 = std::string(uniform) + "  cvt.rn.f16x2.f32 %x<i>, %x<i>, %x<i>;";
  static const std::string bf16 = std::string(uniform) + "  cvt.rn.bf16x2.f32 %x<i>, %x<i>, %x<i>;";
  return s == Start::f32    ? uniform
         : s == Start::f16  ? f16.c_str()
         : s == Start::bf16 ? bf16.c_str()
                            : "mov.b32 %x<i>, %hash;";
}

struct Arithmetic {
  const char* name;
  const char* group;
  const char* what;
  const char* instruction;
  Start start;
  float scale;
  int results;       // of one instruction text and thread
  double expected;   // results a clock and SM
  double tolerance;  // relative; 0: bit for bit
  Step step;
};

Unit arithmetic_unit(const Arithmetic& a) {
  Unit u;
  u.name = a.name;
  u.group = a.group;
  u.what = a.what;
  u.file = "arithmetic.ptx.in";
  const bool half = a.start == Start::f16 || a.start == Start::bf16;
  const std::string scale16 = a.start == Start::f16 ? "cvt.rn.f16x2.f32 %scale, %scale, %scale;"
                                                    : "cvt.rn.bf16x2.f32 %scale, %scale, %scale;";
  u.values = {{"what", a.what},
              {"rounds", "32"},
              {"start", start_text(a.start)},
              {"instruction", a.instruction},
              {"prepare", half ? scale16 : ""}};
  u.args = {Arg::out, Arg::clocks, Arg::iterations, Arg::seed, Arg::scale};
  u.threads = 1024;
  u.scale = a.scale;
  u.out_bytes_per_cta = 1024 * 8 * 4;
  u.work_per_trip = 1024.0 * 8 * 32 * a.results;
  u.unit = "results";
  u.expected = a.expected;
  const bool across = std::string(a.name) == "shfl_bfly";
  u.check = check_arithmetic(a.start, 32, a.step, a.tolerance, half && a.tolerance > 0, across);
  return u;
}

std::vector<Arithmetic> special_rows() {
  const char* neg_fused = "ex2.approx.ftz.f32 %x<i>, %x<i>;  rcp.approx.ftz.f32 %x<i>, %x<i>;";
  return {
      {"ex2_f32", "special",
       "ex2.approx.ftz.f32 (with rcp, which ptxas folds into one MUFU.EX2 of the negated source)",
       neg_fused, Start::f32, 1, 1, 16, 1e-5,
       f32_step([](float x, float, float) { return std::exp2(-x); })},
      {"ex2_lg2_f32", "special", "ex2.approx.ftz.f32 and lg2.approx.ftz.f32 in turn",
       "ex2.approx.ftz.f32 %x<i>, %x<i>;  lg2.approx.ftz.f32 %x<i>, %x<i>;", Start::f32, 1, 2, 16,
       1e-4, f32_step([](float x, float, float) { return x; })},
      {"ex2_f16x2", "special", "ex2.approx.f16x2: two MUFU",
       "neg.f16x2 %x<i>, %x<i>;  ex2.approx.f16x2 %x<i>, %x<i>;", Start::f16, 1, 2, 16, 5e-3,
       half_step(DataType::f16, [](double x, double, double) { return std::exp2(-x); })},
      {"ex2_bf16x2", "special", "ex2.approx.ftz.bf16x2: two MUFU",
       "neg.bf16x2 %x<i>, %x<i>;  ex2.approx.ftz.bf16x2 %x<i>, %x<i>;", Start::bf16, 1, 2, 16, 3e-2,
       half_step(DataType::bf16, [](double x, double, double) { return std::exp2(-x); })},
      {"rcp_f32", "special", "rcp.approx.ftz.f32 and an add (two rcp alone would be deleted)",
       "rcp.approx.ftz.f32 %x<i>, %x<i>;  add.ftz.f32 %x<i>, %x<i>, %scale;", Start::f32, 1, 1, 16,
       1e-5, f32_step([](float x, float, float s) { return 1 / x + s; })},
      {"rsqrt_f32", "special", "rsqrt.approx.ftz.f32", "rsqrt.approx.ftz.f32 %x<i>, %x<i>;",
       Start::f32, 1, 1, 16, 1e-5,
       f32_step([](float x, float, float) { return 1 / std::sqrt(x); })},
      {"sin_f32", "special", "sin.approx.ftz.f32 (one FMUL of range reduction each)",
       "sin.approx.ftz.f32 %x<i>, %x<i>;", Start::f32, 1, 1, 16, 1e-3,
       f32_step([](float x, float, float) { return std::sin(x); })},
      {"tanh_f32", "special", "tanh.approx.f32", "tanh.approx.f32 %x<i>, %x<i>;", Start::f32, 1, 1,
       16, 5e-2, f32_step([](float x, float, float) { return std::tanh(x); })},
      {"tanh_f16x2", "special", "tanh.approx.f16x2: two MUFU", "tanh.approx.f16x2 %x<i>, %x<i>;",
       Start::f16, 1, 2, 16, 5e-2,
       half_step(DataType::f16, [](double x, double, double) { return std::tanh(x); })},
  };
}

std::vector<Arithmetic> plain_rows() {
  return {
      {"ffma", "arithmetic", "fma.rn.ftz.f32", "fma.rn.ftz.f32 %x<i>, %x<i>, %scale, %scale;",
       Start::f32, 0.5f, 1, 128, 0,
       f32_step([](float x, float, float s) { return std::fma(x, s, s); })},
      {"fadd", "arithmetic", "add.ftz.f32", "add.ftz.f32 %x<i>, %x<i>, %scale;", Start::f32, 0.001f,
       1, 128, 0, f32_step([](float x, float, float s) { return x + s; })},
      {"fmul", "arithmetic", "mul.ftz.f32", "mul.ftz.f32 %x<i>, %x<i>, %scale;", Start::f32,
       0.99999f, 1, 128, 0, f32_step([](float x, float, float s) { return x * s; })},
      {"fmnmx", "arithmetic", "max.ftz.f32", "max.ftz.f32 %x<i>, %x<i>, %x<(i + 1)%8>;", Start::f32,
       1, 1, 64, 0, f32_step([](float x, float n, float) { return std::max(x, n); })},
      {"hfma2_f16x2", "arithmetic", "fma.rn.f16x2", "fma.rn.f16x2 %x<i>, %x<i>, %scale, %scale;",
       Start::f16, 0.5f, 2, 256, 0,
       half_step(DataType::f16, [](double x, double, double s) { return x * s + s; })},
      {"hfma2_bf16x2", "arithmetic", "fma.rn.bf16x2", "fma.rn.bf16x2 %x<i>, %x<i>, %scale, %scale;",
       Start::bf16, 0.5f, 2, 256, 0,
       half_step(DataType::bf16, [](double x, double, double s) { return x * s + s; })},
      {"hmnmx2_f16x2", "arithmetic", "max.f16x2", "max.f16x2 %x<i>, %x<i>, %x<(i + 1)%8>;",
       Start::f16, 1, 2, 0, 0,
       half_step(DataType::f16, [](double x, double n, double) { return std::max(x, n); })},
      {"imad", "arithmetic", "mad.lo.u32", "mad.lo.u32 %x<i>, %x<i>, %seed, %seed;", Start::integer,
       1, 1, 64, 0,
       integer_step([](std::uint32_t x, std::uint32_t, std::uint32_t s) { return x * s + s; })},
      {"iadd", "arithmetic", "add.u32 (ptxas spreads it over IADD3 and IMAD.IADD)",
       "add.u32 %x<i>, %x<i>, %x<(i + 1)%8>;", Start::integer, 1, 1, 0, 0,
       integer_step([](std::uint32_t x, std::uint32_t n, std::uint32_t) { return x + n; })},
      {"lop3", "arithmetic", "lop3.b32", "lop3.b32 %x<i>, %x<i>, %x<(i + 1)%8>, %seed, 0x96;",
       Start::integer, 1, 1, 64, 0,
       integer_step([](std::uint32_t x, std::uint32_t n, std::uint32_t s) { return x ^ n ^ s; })},
      {"prmt", "arithmetic", "prmt.b32", "prmt.b32 %x<i>, %x<i>, %x<(i + 1)%8>, 0x2143;",
       Start::integer, 1, 1, 64, 0,
       integer_step([](std::uint32_t x, std::uint32_t n, std::uint32_t) {
         const std::uint64_t both = static_cast<std::uint64_t>(n) << 32 | x;
         auto byte = [&](int k) { return static_cast<std::uint32_t>(both >> (8 * k) & 0xff); };
         return byte(3) | byte(4) << 8 | byte(1) << 16 | byte(2) << 24;
       })},
      {"shf", "arithmetic", "shf.l.wrap.b32", "shf.l.wrap.b32 %x<i>, %x<i>, %x<(i + 1)%8>, 7;",
       Start::integer, 1, 1, 0, 0,
       integer_step(
           [](std::uint32_t x, std::uint32_t n, std::uint32_t) { return n << 7 | x >> 25; })},
      {"shfl_bfly", "arithmetic", "shfl.sync.bfly.b32",
       "shfl.sync.bfly.b32 %x<i>, %x<i>, 1, 31, 0xffffffff;", Start::integer, 1, 1, 32, 0,
       [](std::uint32_t* x, int i, std::uint32_t, std::uint32_t) {
         for (int lane = 0; lane < 32; lane += 2) std::swap(x[lane * 8 + i], x[(lane + 1) * 8 + i]);
       }},
  };
}

std::vector<Arithmetic> convert_rows() {
  return {
      {"cvt_bf16x2_f32", "convert", "cvt.rn.bf16x2.f32: two values packed",
       "cvt.rn.bf16x2.f32 %x<i>, %x<i>, %x<(i + 1)%8>;", Start::f32, 1, 2, 128, 0,
       pack_step(DataType::bf16)},
      {"cvt_f16x2_f32", "convert", "cvt.rn.f16x2.f32: two values packed",
       "cvt.rn.f16x2.f32 %x<i>, %x<i>, %x<(i + 1)%8>;", Start::f32, 1, 2, 128, 0,
       pack_step(DataType::f16)},
      {"cvt_e4m3x2_f32", "convert", "cvt.rn.satfinite.e4m3x2.f32, two of them joined to 32 bits",
       "cvt.rn.satfinite.e4m3x2.f32 %low, %x<i>, %x<(i + 1)%8>;  cvt.rn.satfinite.e4m3x2.f32 "
       "%high, %x<(i + 3)%8>, %x<i>;  mov.b32 %x<i>, {%low, %high};",
       Start::f32, 1, 4, 128, 0,
       [](std::uint32_t* x, int i, std::uint32_t, std::uint32_t) {
         auto v = [&](int k) { return static_cast<double>(as_float(x[(i + k) % 8])); };
         x[i] = e4m3(v(1)) | e4m3(v(0)) << 8 | e4m3(v(0)) << 16 | e4m3(v(3)) << 24;
       }},
      {"cvt_f16x2_e4m3x2", "convert", "cvt.rn.f16x2.e4m3x2: two values unpacked",
       "mov.b32 {%low, %high}, %x<i>;  cvt.rn.f16x2.e4m3x2 %x<i>, %low;", Start::integer, 1, 2, 0,
       0,
       [](std::uint32_t* x, int i, std::uint32_t, std::uint32_t) {
         auto widen = [](std::uint32_t b) {
           return reference::encode(DataType::f16, reference::decode(DataType::e4m3, b & 0xff)) &
                  0xffff;
         };
         x[i] = widen(x[i]) | widen(x[i] >> 8) << 16;
       }},
      {"cvt_s32_f32", "convert", "cvt.rni.s32.f32", "cvt.rni.s32.f32 %x<i>, %x<i>;", Start::f32, 1,
       1, 16, 0,
       [](std::uint32_t* x, int i, std::uint32_t, std::uint32_t) {
         x[i] = static_cast<std::uint32_t>(static_cast<int>(std::nearbyint(as_float(x[i]))));
       }},
  };
}

bool is_fp8(const std::string& type) { return type == "e4m3" || type == "e5m2"; }

Unit wgmma_unit(const std::string& type, bool registers, int n, int warpgroups) {
  Unit u;
  const std::string source = registers ? "registers" : "shared memory";
  u.name = "wgmma_" + type + (registers ? "_rs_n" : "_ss_n") + std::to_string(n) + "_wg" +
           std::to_string(warpgroups);
  u.group = "tensor";
  const int k = is_fp8(type) ? 32 : 16;
  u.what = "wgmma m64n" + std::to_string(n) + "k" + std::to_string(k) + " " + type + ", A from " +
           source + ", " + std::to_string(warpgroups) +
           (warpgroups == 1 ? " warpgroup" : " warpgroups");
  u.file = "wgmma.ptx.in";
  u.values = {{"type", type},
              {"N", std::to_string(n)},
              {"k", std::to_string(k)},
              {"warpgroups", std::to_string(warpgroups)},
              {"source", source},
              {"registers", registers ? "1" : "0"},
              {"tail_shared", is_fp8(type) ? "" : ", 0, 0"},
              {"tail_registers", is_fp8(type) ? "" : ", 0"}};
  u.args = {Arg::out, Arg::clocks, Arg::iterations, Arg::data};
  u.threads = 128 * warpgroups;
  u.shared_bytes = static_cast<std::uint32_t>(1024 + (64 + n) * 128);
  u.out_bytes_per_cta = static_cast<std::size_t>(128 * warpgroups * 2 * n);
  u.work_per_trip = 16.0 * 2 * 64 * n * k * warpgroups;
  u.unit = "FLOP";
  u.expected = is_fp8(type) ? 8192 : 4096;
  u.make_data = [=](bool exact) { return wgmma_data(type, n, exact); };
  u.check = check_wgmma(type, n, warpgroups);
  return u;
}

Unit mma_sync_unit(const std::string& type, int warps) {
  Unit u;
  u.name = "mma_sync_" + type + "_warps" + std::to_string(warps);
  u.group = "tensor";
  u.what = "mma.sync m16n8k16 " + type + ", " + std::to_string(warps) + " warps";
  u.file = "mma_sync.ptx.in";
  u.values = {{"type", type}, {"warps", std::to_string(warps)}};
  u.args = {Arg::out, Arg::clocks, Arg::iterations, Arg::data};
  u.threads = 32 * warps;
  u.out_bytes_per_cta = static_cast<std::size_t>(32 * warps * 256);
  u.work_per_trip = 64.0 * 2 * 16 * 8 * 16 * warps;
  u.unit = "FLOP";
  u.make_data = [=](bool exact) { return mma_sync_data(type, exact); };
  u.check = check_mma_sync(type, warps);
  return u;
}

Unit shared_unit(const std::string& kind, const std::string& what, const std::string& instruction) {
  Unit u;
  u.name = "shared_" + kind;
  u.group = "shared";
  u.what = what;
  u.file = "shared_memory.ptx.in";
  const bool stores = kind[0] == 's';
  const std::string fold =
      "\n    add.u32 %x0, %x0, %r0;  add.u32 %x1, %x1, %r1;  add.u32 %x2, %x2, %r2;  add.u32 %x3, "
      "%x3, %r3;";
  u.values = {{"what", what},
              {"threads", "256"},
              {"stores", stores ? "1" : "0"},
              {"instruction", instruction + (stores ? "" : fold)}};
  u.args = {Arg::out, Arg::clocks, Arg::iterations, Arg::seed};
  u.threads = 256;
  u.shared_bytes = 128 * 1024;
  u.out_bytes_per_cta = 256 * 16;
  u.work_per_trip = 256.0 * 16 * 16;
  u.unit = "bytes";
  u.expected = 128;
  u.check = check_shared(256, kind);
  return u;
}

Unit tma_unit(const std::string& name, const std::string& what, int rows, int stages,
              std::uint64_t footprint, bool latency) {
  Unit u;
  u.name = name;
  u.group = "tma";
  u.what = what;
  u.file = "tma_load.ptx.in";
  u.values = {{"rows", std::to_string(rows)}, {"stages", std::to_string(stages)}};
  u.args = {Arg::map, Arg::out, Arg::clocks, Arg::iterations, Arg::footprint};
  u.threads = 32;
  u.shared_bytes = static_cast<std::uint32_t>(1024 + 128 * rows * stages + 64);
  u.out_bytes_per_cta = 4;
  u.work_per_trip = latency ? 1 : 128.0 * rows;
  u.unit = latency ? "clocks" : "bytes";
  u.is_latency = latency;
  u.max_ctas = latency ? 8 : 1 << 30;
  u.footprint_bytes = footprint;
  u.check = check_tma(rows);
  return u;
}

Unit latency_unit(const std::string& name, const std::string& what, const std::string& file,
                  int threads, double events) {
  Unit u;
  u.name = name;
  u.group = "synchronisation";
  u.what = what;
  u.file = file;
  u.args = {Arg::out, Arg::clocks, Arg::iterations};
  u.threads = threads;
  u.out_bytes_per_cta = static_cast<std::size_t>(threads) * 4;
  u.work_per_trip = events;
  u.unit = "clocks";
  u.is_latency = true;
  return u;
}

void add_tensor(std::vector<Unit>* out) {
  for (const char* type : {"f16", "bf16", "e4m3", "e5m2"})
    for (bool registers : {false, true}) out->push_back(wgmma_unit(type, registers, 128, 1));
  for (int n : {8, 16, 32, 64, 96, 176, 192, 256})
    for (bool registers : {false, true}) out->push_back(wgmma_unit("bf16", registers, n, 1));
  for (int n : {64, 256}) out->push_back(wgmma_unit("e4m3", false, n, 1));
  for (int warpgroups : {2, 3, 4})
    for (const char* type : {"bf16", "e4m3"})
      out->push_back(wgmma_unit(type, false, 128, warpgroups));
  for (int warps : {4, 8, 16}) out->push_back(mma_sync_unit("f16", warps));
  out->push_back(mma_sync_unit("bf16", 16));
}

void add_memory(std::vector<Unit>* out) {
  const std::string r = "{%r0, %r1, %r2, %r3}", x = "{%x0, %x1, %x2, %x3}",
                    at = "[%address + <4096*i>]";
  out->push_back(
      shared_unit("ld_v4", "ld.shared.v4.b32", "ld.shared.v4.b32 " + r + ", " + at + ";"));
  out->push_back(shared_unit("ldmatrix", "ldmatrix.x4",
                             "ldmatrix.sync.aligned.m8n8.x4.shared.b16 " + r + ", " + at + ";"));
  out->push_back(
      shared_unit("ldmatrix_trans", "ldmatrix.x4.trans",
                  "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 " + r + ", " + at + ";"));
  out->push_back(
      shared_unit("st_v4", "st.shared.v4.b32", "st.shared.v4.b32 " + at + ", " + x + ";"));
  out->push_back(shared_unit("stmatrix", "stmatrix.x4",
                             "stmatrix.sync.aligned.m8n8.x4.shared.b16 " + at + ", " + x + ";"));
  constexpr std::uint64_t mib = 1 << 20;
  out->push_back(tma_unit("tma_latency_l2_1k", "TMA load of 1 KiB from L2, one in flight", 8, 1,
                          8 * mib, true));
  out->push_back(tma_unit("tma_latency_l2_16k", "TMA load of 16 KiB from L2, one in flight", 128, 1,
                          16 * mib, true));
  out->push_back(tma_unit("tma_latency_hbm_1k", "TMA load of 1 KiB from HBM, one in flight", 8, 1,
                          2048 * mib, true));
  out->push_back(tma_unit("tma_bandwidth_l2", "TMA loads of 16 KiB from L2, 8 in flight", 128, 8,
                          24 * mib, false));
  out->push_back(tma_unit("tma_bandwidth_hbm", "TMA loads of 16 KiB from HBM, 8 in flight", 128, 8,
                          2048 * mib, false));
}

void add_synchronisation(std::vector<Unit>* out) {
  Unit u = latency_unit("mbarrier_round_trip", "arrive, wait, arrive, wait between two warps",
                        "mbarrier_round_trip.ptx", 256, 1);
  u.check = check_counter(1);
  out->push_back(u);
  u = latency_unit("named_barrier_ping_pong", "a token from one warpgroup to the other and back",
                   "named_barrier_ping_pong.ptx", 256, 1);
  u.check = check_counter(2);
  out->push_back(u);
  for (int threads : {64, 128, 256, 384, 1024}) {
    u = latency_unit("named_barrier_" + std::to_string(threads),
                     "bar.sync of " + std::to_string(threads) + " threads", "named_barrier.ptx.in",
                     threads, 16);
    u.values = {{"threads", std::to_string(threads)}};
    u.check = check_barrier_tokens(threads);
    out->push_back(u);
  }
}

}  // namespace

std::vector<Unit> all_units() {
  std::vector<Unit> out;
  add_tensor(&out);
  for (const auto& rows : {special_rows(), plain_rows(), convert_rows()})
    for (const Arithmetic& a : rows) out.push_back(arithmetic_unit(a));
  add_memory(&out);
  add_synchronisation(&out);
  return out;
}

std::vector<Unit> beside_units() {
  const struct {
    const char *work, *what;
  } works[] = {{"ex2", "exponentials alone"},
               {"softmax", "ffma, ex2, fadd, half a cvt an element"},
               {"softmax_max", "ffma, ex2, fadd, max, half a cvt an element"},
               {"ldmatrix", "ldmatrix.x4 and four adds"}};
  std::vector<Unit> out;
  for (const char* type : {"f16", "e4m3"})
    for (const auto& w : works) {
      const std::string work = w.work;
      Unit u;
      u.name = "beside_" + std::string(type) + "_" + work;
      u.group = "beside";
      u.what = w.what;
      u.file = "beside_wgmma.ptx.in";
      const bool softmax = work.rfind("softmax", 0) == 0;
      u.values = {{"what", w.what},
                  {"type", type},
                  {"k", is_fp8(type) ? "32" : "16"},
                  {"tail_shared", is_fp8(type) ? "" : ", 0, 0"},
                  {"ex2", work == "ex2" ? "1" : "0"},
                  {"softmax", softmax ? "1" : "0"},
                  {"maximum", work == "softmax_max" ? "1" : "0"},
                  {"ldmatrix", work == "ldmatrix" ? "1" : "0"}};
      u.args = {Arg::out,  Arg::clocks, Arg::mma_trips, Arg::work_trips,
                Arg::data, Arg::scale,  Arg::stride};
      u.threads = 384;
      u.shared_bytes = 1024 + 192 * 128;
      u.out_bytes_per_cta = 384 * 256;
      u.scale = -0.5f;
      u.work_per_trip = 8.0 * 2 * 64 * 128 * (is_fp8(type) ? 32 : 16);
      u.unit = "FLOP";
      const std::string t = type;
      u.make_data = [t](bool exact) { return wgmma_data(t, 128, exact); };
      u.check = check_beside(t, work);
      out.push_back(u);
    }
  return out;
}

}  // namespace flashptx::units
