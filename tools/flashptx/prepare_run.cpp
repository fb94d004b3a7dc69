// See prepare_run.h.
#include "tools/flashptx/prepare_run.h"

#include <algorithm>

#include "gen/isa/kernel.h"
#include "gen/tile/key_order.h"
#include "tools/reference/numeric.h"
#include "tools/reference/prepare.h"

namespace flashptx {
namespace {

constexpr int calls_per_sample = 8;  // back to back, as in a program; an event pair around one costs microseconds
constexpr std::size_t most_copies = 16;
constexpr std::size_t copy_bytes = 16384;  // a CTA of the copy

std::size_t whole_copies(std::size_t bytes) { return (bytes + copy_bytes - 1) / copy_bytes; }

// Four 16-byte loads in flight a thread.
std::string copy_text() {
  using namespace gen;
  Kernel k("copy");
  k.param("from", "u64");
  k.param("to", "u64");
  k.threads(256);
  const Reg at = k.b64("at"), out = k.b64("out"), offset = k.b64("offset"), cta = k.b32("cta"), t = k.b32("thread");
  const Vec words = k.b32("word", 16);
  k.mov_b32(cta, special("ctaid.x"));
  k.mov_b32(t, special("tid.x"));
  k.mul_wide_u32(offset, cta, static_cast<int>(copy_bytes));
  k.mad_wide_u32(offset, t, 16, offset);
  k.ld_param_u64(at, "from");
  k.add_u64(at, at, offset);
  k.ld_param_u64(out, "to");
  k.add_u64(out, out, offset);
  for (int i = 0; i < 4; ++i) k.ld_global_nc_L1_no_allocate("v4.b32", words.slice(4 * i, 4), address(at, 4096 * i));
  for (int i = 0; i < 4; ++i) k.st_global_v4_b32(address(out, 4096 * i), words.slice(4 * i, 4));
  k.ret();
  return k.text();
}

TransposeProblem transpose_of(const PrepareProblem& p) {
  TransposeProblem t;
  t.dtype = p.out, t.batch = p.batch, t.seqlen = p.seqlen, t.heads = p.heads, t.head_dim = p.head_dim;
  t.v = p.x;
  return t;
}

double elements(const PrepareProblem& p) { return static_cast<double>(p.batch * p.seqlen * p.heads * p.head_dim); }
double transposed_elements(const PrepareProblem& p) {
  return static_cast<double>(p.batch * transposed_seqlen(p.seqlen) * p.heads * p.head_dim);
}

// Device memory of one job; freed at the end.
struct Memory {
  explicit Memory(Device& d) : device(d) {}
  ~Memory() {
    for (std::uint64_t a : taken) device.free(a);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::uint64_t take(std::size_t bytes) {
    std::uint64_t a = 0;
    if (!status.ok()) return 0;
    status = device.allocate(std::max<std::size_t>(bytes, 16), &a);
    if (status.ok()) taken.push_back(a);
    return a;
  }
  std::uint64_t upload(const std::vector<std::uint8_t>& bytes) {
    const std::uint64_t a = take(bytes.size());
    if (status.ok() && !bytes.empty()) status = device.copy_to_device(a, bytes.data(), bytes.size());
    return a;
  }
  std::uint64_t filled(std::size_t bytes) {
    const std::uint64_t a = take(bytes);
    if (status.ok()) status = device.fill(a, 0xFF, bytes, nullptr);
    return a;
  }
  Device& device;
  Status status;
  std::vector<std::uint64_t> taken;
};

// The same job on few rows.
PrepareProblem shrunk(PrepareProblem p) {
  p.batch = std::min<std::int64_t>(p.batch, 2), p.seqlen = std::min<std::int64_t>(p.seqlen, 200);
  p.heads = std::min<std::int64_t>(p.heads, 3);
  p.x = p.y = strides_bshd(p.seqlen, p.heads, p.head_dim);
  if (p.rope != Rope::none) p.table_rows = p.position + p.seqlen;
  return p;
}

void check_transposition(Device& device, const PrepareProblem& p, PrepareRow* row) {
  const std::size_t in = static_cast<std::size_t>(elements(p)), out = static_cast<std::size_t>(transposed_elements(p));
  std::vector<std::uint8_t> v(in), vt(out);
  for (std::size_t i = 0; i < in; ++i) v[i] = static_cast<std::uint8_t>(i * 0x9E3779B97F4A7C15u >> 40);
  Memory m(device);
  Prepare prepare(device);
  const std::uint64_t from = m.upload(v), to = m.filled(out);
  if (m.status.ok()) m.status = prepare.transpose_v(transpose_of(p), from, to, nullptr);
  if (m.status.ok()) m.status = device.synchronize(nullptr);
  if (m.status.ok()) m.status = device.copy_from_device(vt.data(), to, out);
  row->failure = m.status.message;
  const std::int64_t padded = transposed_seqlen(p.seqlen);
  for (std::size_t i = 0; i < out && row->failure.empty(); ++i) {
    const std::int64_t at = static_cast<std::int64_t>(i), position = at % padded, column = at / padded % p.head_dim;
    const std::int64_t head = at / padded / p.head_dim % p.heads, batch = at / padded / p.head_dim / p.heads;
    const std::int64_t key = position / key_order_group * key_order_group + key_at_position(static_cast<int>(position % key_order_group));
    const std::int64_t source = batch * p.x.batch + key * p.x.seq + head * p.x.head + column;
    const std::uint8_t wanted = key < p.seqlen ? v[static_cast<std::size_t>(source)] : 0;
    if (vt[i] != wanted) row->failure = "byte " + std::to_string(i) + " of V^T is " + std::to_string(vt[i]) + ", wanted " + std::to_string(wanted);
  }
}

PreparePointers pointers_of(Memory& m, const reference::PrepareData& data, std::size_t scales) {
  PreparePointers at;
  at.scales = m.filled(4 * scales), at.amax = m.filled(4 * scales);
  at.cos = m.upload(data.cos), at.sin = m.upload(data.sin);
  return at;
}

void check_preparation(Device& device, const PrepareProblem& p, const std::string& inputs, std::uint64_t seed, PrepareRow* row) {
  const reference::PrepareData data = reference::make_prepare_data(p, inputs, seed);
  reference::Prepared got;
  got.y.resize(reference::output_bytes(p));
  got.scales.resize(static_cast<std::size_t>(p.scale_count()));
  got.amax.resize(got.scales.size());
  Memory m(device);
  Prepare prepare(device);
  PreparePointers at = pointers_of(m, data, got.scales.size());
  at.x = m.upload(data.x), at.y = m.filled(got.y.size());
  if (m.status.ok()) m.status = prepare.run(p, at, nullptr);
  if (m.status.ok()) m.status = device.synchronize(nullptr);
  const auto back = [&](auto& v, std::uint64_t from) {
    if (m.status.ok() && !v.empty()) m.status = device.copy_from_device(v.data(), from, v.size() * sizeof v[0]);
  };
  back(got.y, at.y), back(got.scales, at.scales), back(got.amax, at.amax);
  if (!m.status.ok()) {
    row->failure = m.status.message;
    return;
  }
  const reference::PrepareVerdict verdict = reference::judge(data, got);
  row->failure = verdict.failure, row->rms = verdict.rms;
}

struct Set {
  std::uint64_t x, y;
};

// One block of random 16-bit values around 1, again and again.
void fill_random(Memory& m, std::uint64_t to, std::size_t bytes) {
  std::vector<std::uint16_t> block(std::min<std::size_t>(bytes, 4 << 20) / 2);
  for (std::size_t i = 0; i < block.size(); ++i) {
    const std::uint64_t h = (i + 1) * 0x9E3779B97F4A7C15u;
    block[i] = static_cast<std::uint16_t>(0x3E00u + (h >> 40 & 0x1FFu) + (h >> 63 << 15));
  }
  for (std::size_t at = 0; at < bytes && m.status.ok(); at += 2 * block.size())
    m.status = m.device.copy_to_device(to + at, block.data(), std::min(2 * block.size(), bytes - at));
}

std::size_t x_bytes(const PrepareJob& job) { return static_cast<std::size_t>(elements(job.problem)) * (job.kind == PrepareKind::transpose ? 1 : 2); }
std::size_t y_bytes(const PrepareJob& job) {
  if (job.kind == PrepareKind::transpose || job.problem.transpose) return static_cast<std::size_t>(transposed_elements(job.problem));
  return static_cast<std::size_t>(elements(job.problem)) * (job.kind == PrepareKind::prepare && job.problem.quantizes() ? 1 : 2);
}

}  // namespace

std::string PrepareJob::title() const {
  if (kind == PrepareKind::copy) return "copy";
  if (kind == PrepareKind::transpose) return "transpose V";
  const PrepareProblem& p = problem;
  std::string s;
  const auto add = [&](const std::string& part) { s += (s.empty() ? "" : " + ") + part; };
  if (p.rope != Rope::none) add(std::string("rope ") + (p.rope == Rope::half ? "half " : "interleaved ") + to_string(p.table));
  if (p.hadamard != Hadamard::none) add(p.hadamard == Hadamard::forward ? "hadamard" : "unhadamard");
  if (!p.quantizes()) return s + " " + to_string(p.in);
  add(std::string(to_string(p.in)) + " to " + to_string(p.out));
  if (p.transpose) s += " V^T";
  if (p.fixed_scale != 0) return s + ", fixed scale";
  if (p.scale_kind == ScaleKind::block) return s + ", blocks of " + std::to_string(p.block_rows);
  return s + (p.scale_kind == ScaleKind::head ? ", per head" : ", per tensor");
}

std::string PrepareJob::kernels() const {
  if (kind == PrepareKind::copy) return "copy";
  if (kind == PrepareKind::transpose) return "prep_transpose_fp8_d" + std::to_string(problem.head_dim);
  std::string s;
  for (const PrepareConfig& c : Prepare::kernels_of(problem)) s += (s.empty() ? "" : "+") + c.name();
  return s;
}

double PrepareJob::bytes() const {
  const PrepareProblem& p = problem;
  const double n = elements(p);
  if (kind == PrepareKind::copy) return 4 * n;
  if (kind == PrepareKind::transpose) return n + transposed_elements(p);
  const double tables = p.rope == Rope::none ? 0 : static_cast<double>(p.seqlen * p.head_dim) * (p.table == DataType::f32 ? 4 : 2);
  const bool twice = p.quantizes() && p.scale_kind != ScaleKind::block && p.fixed_scale == 0;
  if (p.transpose) return (twice ? 4 : 2) * n + transposed_elements(p);
  return (twice ? 2 : 1) * (2 * n + tables) + n * (p.quantizes() ? 1 : 2);
}

double PrepareRow::terabytes() const { return job.bytes() / quartiles(microseconds).median * 1e-6; }

std::vector<PrepareJob> prepare_sweep(std::int64_t tokens, std::int64_t hidden, std::int64_t seqlen, int head_dim) {
  PrepareProblem base;
  base.seqlen = seqlen, base.batch = tokens / seqlen, base.heads = hidden / head_dim, base.head_dim = head_dim;
  base.x = base.y = strides_bshd(base.seqlen, base.heads, base.head_dim);
  base.seed = 1;
  std::vector<PrepareJob> all;
  const auto add = [&](PrepareKind kind, auto change) {
    PrepareJob job{kind, base};
    change(job.problem);
    if (job.problem.rope != Rope::none) job.problem.table_rows = seqlen;
    all.push_back(job);
  };
  const auto job = [&](auto change) { add(PrepareKind::prepare, change); };
  const auto blocks = [](PrepareProblem& p, int rows) { p.scale_kind = ScaleKind::block, p.block_rows = rows; };
  add(PrepareKind::copy, [](auto&) {});
  add(PrepareKind::transpose, [](auto&) {});
  job([](auto& p) { p.scale_kind = ScaleKind::tensor, p.fixed_scale = 0.01f; });
  job([](auto& p) { p.scale_kind = ScaleKind::tensor; });
  job([](auto&) {});
  for (int rows : {64, 128}) job([&](auto& p) { blocks(p, rows); });
  job([&](auto& p) { blocks(p, 128), p.in = DataType::f16, p.out = DataType::e5m2; });
  job([](auto& p) { p.transpose = true; });
  job([&](auto& p) { blocks(p, 128), p.transpose = true; });
  job([](auto& p) { p.hadamard = Hadamard::forward, p.out = p.in; });
  job([](auto& p) { p.hadamard = Hadamard::inverse, p.out = p.in; });
  job([](auto& p) { p.hadamard = Hadamard::forward; });
  for (int rows : {64, 128}) job([&](auto& p) { blocks(p, rows), p.hadamard = Hadamard::forward; });
  for (Rope r : {Rope::half, Rope::interleaved})
    for (DataType table : {DataType::f32, DataType::bf16}) {
      job([&](auto& p) { p.rope = r, p.table = table, p.out = p.in; });
      job([&](auto& p) { blocks(p, 128), p.rope = r, p.table = table, p.hadamard = Hadamard::forward; });
    }
  job([](auto& p) { p.rope = Rope::half, p.hadamard = Hadamard::forward; });
  return all;
}

void check_prepare_job(Device& device, const std::string& inputs, std::uint64_t seed, PrepareRow* row) {
  if (row->job.kind == PrepareKind::copy) return;
  const PrepareProblem p = shrunk(row->job.problem);
  row->checked = std::to_string(p.batch) + " x " + std::to_string(p.seqlen) + " x " + std::to_string(p.heads);
  if (row->job.kind == PrepareKind::transpose) check_transposition(device, p, row);
  else check_preparation(device, p, inputs, seed, row);
}

void time_prepare_job(Device& device, int repeats, PrepareRow* row) {
  const PrepareJob& job = row->job;
  const PrepareProblem& p = job.problem;
  Memory m(device);
  Prepare prepare(device);
  LoadedKernel* copy = nullptr;
  if (job.kind == PrepareKind::copy) m.status = device.load(copy_text(), "copy", 0, &copy);
  const std::size_t x = whole_copies(x_bytes(job)) * copy_bytes, y = whole_copies(y_bytes(job)) * copy_bytes;
  const std::size_t count = std::clamp<std::size_t>(2 * device.info().l2_bytes / (x + y) + 2, 2, most_copies);
  std::vector<Set> sets;
  for (std::size_t i = 0; i < count; ++i) {
    sets.push_back({m.take(x), m.take(y)});
    if (m.status.ok()) fill_random(m, sets.back().x, x);
  }
  reference::PrepareData data;
  PrepareProblem no_rows = p;
  no_rows.batch = 0;
  if (job.kind == PrepareKind::prepare) data = reference::make_prepare_data(no_rows, "zeros", 0);
  PreparePointers at = pointers_of(m, data, static_cast<std::size_t>(p.scale_count()));
  std::size_t next = 0;
  const auto one = [&]() -> Status {
    Set s = sets[next++ % count];
    if (job.kind == PrepareKind::transpose) return prepare.transpose_v(transpose_of(p), s.x, s.y, nullptr);
    if (job.kind == PrepareKind::copy) {
      LaunchDims dims;
      dims.grid[0] = static_cast<std::uint32_t>(x / copy_bytes), dims.block[0] = 256;
      void* params[] = {&s.x, &s.y};
      return device.launch(copy, dims, params, 2, nullptr);
    }
    at.x = s.x, at.y = s.y;
    return prepare.run(p, at, nullptr);
  };
  const auto sample = [&]() -> Status {
    for (int i = 0; i < calls_per_sample; ++i)
      if (Status s = one(); !s.ok()) return s;
    return {};
  };
  if (m.status.ok()) m.status = device.time(sample, 2, repeats, nullptr, &row->microseconds);
  if (copy != nullptr) device.unload(copy);
  for (float& t : row->microseconds) t *= 1000.0f / calls_per_sample;
  row->failure = m.status.ok() ? refuse_samples(row->microseconds) : m.status.message;
}

}  // namespace flashptx
