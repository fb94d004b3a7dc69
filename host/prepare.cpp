// See host/prepare.h: checks first, then what is launched. Next: gen/kernels/prepare.cpp (the parameters).
#include "host/prepare.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>

#include "gen/hadamard_signs.h"
#include "gen/kernels/prepare_kernels.h"
#include "gen/tile/key_order.h"
#include "host/refusal.h"

namespace flashptx {
namespace {

std::string number(DataType t) { return text(static_cast<int>(t)); }

constexpr std::int64_t max_batch = 65535;  // gridDim.y

bool is_16_bit(DataType t) { return t == DataType::bf16 || t == DataType::f16; }
bool is_8_bit(DataType t) { return t == DataType::e4m3 || t == DataType::e5m2; }
int size_of(DataType t) { return is_8_bit(t) ? 1 : t == DataType::f32 ? 4 : 2; }

Status check_extents(std::int64_t batch, std::int64_t seqlen, std::int64_t heads) {
  const struct {
    const char* name;
    std::int64_t value, limit;
  } extents[] = {{"batch", batch, max_batch}, {"seqlen", seqlen, max_extent}, {"heads", heads, max_extent}};
  for (const auto& e : extents) {
    if (e.value < 0) return invalid(std::string(e.name) + " is " + text(e.value) + ": must be >= 0");
    if (e.value > e.limit)
      return unsupported(std::string(e.name) + " is " + text(e.value) + ": the limit is " + text(e.limit));
  }
  return {};
}

Status check_head_dim(std::int64_t d, int step, const std::string& why) {
  if (d < 1) return invalid("head_dim is " + text(d) + ": must be >= 1");
  if (d > 256) return unsupported("head_dim is " + text(d) + ": the limit is 256");
  if (d % step != 0)
    return unsupported("head_dim is " + text(d) + ": must be a multiple of " + text(step) + " " + why);
  return {};
}

Status check_steps(const PrepareProblem& p) {
  if (p.heads_per_cta < 0 || p.heads_per_cta > 64 || (p.heads_per_cta & (p.heads_per_cta - 1)) != 0)
    return invalid("heads_per_cta is " + text(p.heads_per_cta) + ": must be 0 or a power of two up to 64");
  if (p.lanes != 0 && p.lanes != 4 && p.lanes != 8) return invalid("lanes is " + text(p.lanes) + ": must be 0, 4 or 8");
  if (p.hadamard != Hadamard::none && p.hadamard != Hadamard::forward && p.hadamard != Hadamard::inverse)
    return invalid("hadamard is " + text(static_cast<int>(p.hadamard)) + ": must be 0 (none), 1 (forward) or 2 (inverse)");
  if (p.hadamard == Hadamard::inverse && (p.quantizes() || p.rope != Rope::none))
    return unsupported("hadamard is 2 (inverse): neither rope nor quantisation goes with it");
  if (p.rope != Rope::none && p.rope != Rope::interleaved && p.rope != Rope::half)
    return invalid("rope is " + text(static_cast<int>(p.rope)) + ": must be 0 (none), 1 (interleaved) or 2 (half)");
  if (!p.quantizes() && p.rope == Rope::none && p.hadamard == Hadamard::none)
    return invalid("output_dtype equals input_dtype, with neither rope nor hadamard: nothing to do");
  if (p.rope == Rope::none) return {};
  if (p.table != DataType::f32 && p.table != DataType::bf16)
    return unsupported("table_dtype is " + number(p.table) + ": must be f32 or bf16");
  if (p.position < 0) return invalid("position is " + text(p.position) + ": must be >= 0");
  if (p.table_rows < 0 || p.table_rows > max_extent)
    return invalid("table_rows is " + text(p.table_rows) + ": must be in [0, 2^31 - 1]");
  if (p.position > p.table_rows || p.seqlen > p.table_rows - p.position)
    return invalid("table_rows is " + text(p.table_rows) + ": must be at least position + seqlen = " +
                   text(p.position) + " + " + text(p.seqlen));
  return {};
}

Status check_transposed(const PrepareProblem& p) {
  if (!p.transpose) return {};
  if (!p.quantizes()) return unsupported("output_dtype equals input_dtype: V is transposed as e4m3 or e5m2");
  if (p.rope != Rope::none || p.hadamard != Hadamard::none) return unsupported("V is transposed with neither rope nor hadamard");
  if (p.scale_kind == ScaleKind::block && p.block_rows != key_order_padding)
    return unsupported("block_rows is " + text(p.block_rows) + ": must be " + text(key_order_padding) + " where V is transposed");
  return {};
}

Status check_scales(const PrepareProblem& p) {
  if (!p.quantizes()) return {};
  if (p.scale_kind != ScaleKind::tensor && p.scale_kind != ScaleKind::head && p.scale_kind != ScaleKind::block)
    return invalid("scale_kind is " + text(static_cast<int>(p.scale_kind)) + ": must be 0 (tensor), 1 (head) or 2 (block)");
  if (p.scale_kind == ScaleKind::block && (p.block_rows < 1 || p.block_rows > max_extent))
    return invalid("block_rows is " + text(p.block_rows) + ": must be in [1, 2^31 - 1]");
  if (p.scale_kind != ScaleKind::block && p.block_rows != 0)
    return invalid("block_rows is " + text(p.block_rows) + ": must be 0 unless the scales are per block");
  if (p.scale_kind == ScaleKind::block && p.heads * ((p.seqlen + p.block_rows - 1) / p.block_rows) > max_extent)
    return unsupported("heads * ceil(seqlen / block_rows) is above 2^31 - 1: split the heads");
  if (p.fixed_scale == 0) return {};
  if (p.scale_kind != ScaleKind::tensor)
    return invalid("fixed_scale is " + std::to_string(p.fixed_scale) + ": only with one scale per tensor");
  // Its reciprocal must be a normal number too.
  if (!(p.fixed_scale >= 1e-37f && p.fixed_scale <= 1e37f))
    return invalid("fixed_scale is " + std::to_string(p.fixed_scale) + ": must be in [1e-37, 1e37], or 0 for none");
  return {};
}

Status check_pointer(const char* name, std::uint64_t at, int alignment) {
  if (at == 0) return invalid(std::string(name) + " is a null pointer");
  if (at % static_cast<std::uint64_t>(alignment) != 0)
    return invalid(std::string(name) + " is not aligned: its address must be a multiple of " + text(alignment) + " bytes");
  return {};
}

Status check_pointers(const PrepareProblem& p, const PreparePointers& at) {
  struct Pointer {
    const char* name;
    std::uint64_t at;
    int alignment;
    bool wanted;
  };
  const bool rope = p.rope != Rope::none;
  const Pointer pointers[] = {
      {"x", at.x, 16, true},          {p.transpose ? "vt" : "y", at.y, 16, true},
      {"cos", at.cos, 16, rope},      {"sin", at.sin, 16, rope},
      {"scales", at.scales, 4, p.quantizes()},
      {"amax", at.amax, 4, p.quantizes() && p.scale_kind != ScaleKind::block && p.fixed_scale == 0}};
  for (const Pointer& w : pointers)
    if (w.wanted)
      if (Status s = check_pointer(w.name, w.at, w.alignment); !s.ok()) return s;
  if (p.quantizes() && at.scales == at.amax && p.scale_kind != ScaleKind::block && p.fixed_scale == 0)
    return invalid("scales and amax are the same pointer: a CTA would read a scale for a magnitude");
  // A CTA reads its rows before it writes them, but with other strides it would write those of another.
  if (at.x == at.y) {
    const bool same = p.x.batch == p.y.batch && p.x.seq == p.y.seq && p.x.head == p.y.head;
    if (p.quantizes() || !same) return invalid("x and y are the same pointer: only without quantisation and with equal strides");
  }
  return {};
}

}  // namespace

// Every value that a preparation kernel can ask for.
struct PrepareArguments {
  std::uint64_t x = 0, y = 0, v = 0, vt = 0, scales = 0, amax = 0, cos = 0, sin = 0;
  std::int64_t x_stride_batch = 0, x_stride_seq = 0, x_stride_head = 0;  // bytes; of V too
  std::int64_t y_stride_batch = 0, y_stride_seq = 0, y_stride_head = 0;
  std::uint32_t seqlen = 0, heads = 0, per_tensor = 0, block_rows = 0, position = 0, prefetch_tables = 0, heads_per_cta = 1;
  std::uint32_t block_count = 0, head_groups = 1, tile_factor = 0, tile_shift = 0;
  float fixed_scale = 0;
  std::uint32_t signs[8] = {};
};

namespace {

struct Known {
  const char* name;
  std::size_t offset;
};
#define FLASHPTX_KNOWN(field) {#field, offsetof(PrepareArguments, field)}
constexpr Known known[] = {
    FLASHPTX_KNOWN(x), FLASHPTX_KNOWN(y), FLASHPTX_KNOWN(v), FLASHPTX_KNOWN(vt), FLASHPTX_KNOWN(scales),
    FLASHPTX_KNOWN(amax), FLASHPTX_KNOWN(cos), FLASHPTX_KNOWN(sin),
    FLASHPTX_KNOWN(x_stride_batch), FLASHPTX_KNOWN(x_stride_seq), FLASHPTX_KNOWN(x_stride_head),
    FLASHPTX_KNOWN(y_stride_batch), FLASHPTX_KNOWN(y_stride_seq), FLASHPTX_KNOWN(y_stride_head),
    {"v_stride_batch", offsetof(PrepareArguments, x_stride_batch)},
    {"v_stride_seq", offsetof(PrepareArguments, x_stride_seq)},
    {"v_stride_head", offsetof(PrepareArguments, x_stride_head)},
    FLASHPTX_KNOWN(seqlen), FLASHPTX_KNOWN(heads), FLASHPTX_KNOWN(per_tensor), FLASHPTX_KNOWN(block_rows),
    FLASHPTX_KNOWN(position), FLASHPTX_KNOWN(prefetch_tables), FLASHPTX_KNOWN(heads_per_cta),
    FLASHPTX_KNOWN(block_count), FLASHPTX_KNOWN(head_groups), FLASHPTX_KNOWN(tile_factor), FLASHPTX_KNOWN(tile_shift),
    FLASHPTX_KNOWN(fixed_scale),
    FLASHPTX_KNOWN(signs[0]), FLASHPTX_KNOWN(signs[1]), FLASHPTX_KNOWN(signs[2]), FLASHPTX_KNOWN(signs[3]),
    FLASHPTX_KNOWN(signs[4]), FLASHPTX_KNOWN(signs[5]), FLASHPTX_KNOWN(signs[6]), FLASHPTX_KNOWN(signs[7]),
};
#undef FLASHPTX_KNOWN

Status offsets_of(const LaunchFacts& facts, std::vector<std::size_t>* out) {
  for (const ParamFact& p : facts.params) {
    const std::string name =
        p.name.rfind("signs_", 0) == 0 ? "signs[" + p.name.substr(6) + "]" : p.name;
    const Known* found = std::find_if(std::begin(known), std::end(known), [&](const Known& k) { return name == k.name; });
    if (found == std::end(known))
      return Status::error(StatusCode::internal, "kernel " + facts.entry + " has a parameter '" + p.name +
                                                     "' that the host does not know");
    out->push_back(found->offset);
  }
  return {};
}

std::int64_t blocks(std::int64_t n, std::int64_t of) { return (n + of - 1) / of; }

// A stride of an extent of 1 is never used and may be anything.
std::int64_t bytes(std::int64_t extent, std::int64_t stride, int size) { return extent <= 1 ? 0 : stride * size; }

PrepareArguments arguments_of(const PrepareProblem& p, const PreparePointers& at) {
  PrepareArguments a;
  a.x = at.x, a.y = a.vt = at.y, a.scales = at.scales, a.amax = at.amax, a.cos = at.cos, a.sin = at.sin;
  const int in = size_of(p.in), out = size_of(p.out);
  a.x_stride_batch = bytes(p.batch, p.x.batch, in), a.y_stride_batch = bytes(p.batch, p.y.batch, out);
  a.x_stride_seq = bytes(p.seqlen, p.x.seq, in), a.y_stride_seq = bytes(p.seqlen, p.y.seq, out);
  a.x_stride_head = bytes(p.heads, p.x.head, in), a.y_stride_head = bytes(p.heads, p.y.head, out);
  a.seqlen = static_cast<std::uint32_t>(p.seqlen), a.heads = static_cast<std::uint32_t>(p.heads);
  a.per_tensor = p.scale_kind == ScaleKind::tensor;
  a.block_rows = static_cast<std::uint32_t>(p.block_rows);
  if (p.block_rows > 0) a.block_count = static_cast<std::uint32_t>(blocks(p.seqlen, p.block_rows));
  a.position = static_cast<std::uint32_t>(p.position);
  a.prefetch_tables = p.prefetch_tables;
  a.fixed_scale = p.fixed_scale;
  hadamard_signs(p.seed, a.signs);
  return a;
}

// What a kernel needs to divide ctaid.x, below 2^31, by `groups`: with n = ceil(log2(groups)) the factor is above
// 2^(31 + n) / groups by a part of at most 2^-31, so that the quotient's whole part is right.
void set_groups(std::int64_t groups, PrepareArguments* a) {
  int log2 = 0;
  while ((std::int64_t{1} << log2) < groups) ++log2;
  const std::uint64_t power = std::uint64_t{1} << (31 + log2), divisor = static_cast<std::uint64_t>(groups);
  a->head_groups = static_cast<std::uint32_t>(groups), a->tile_shift = static_cast<std::uint32_t>(31 + log2);
  a->tile_factor = static_cast<std::uint32_t>(power / divisor + (power % divisor != 0));
}

// With RoPE: cos and sin come from L2 once for so many heads. Measured on an H200 at 1k, of a copy's speed
// (tools/bench/results/prepare_rope_variants_h200.csv): RoPE alone (half, f32) 99 to 103 % with one head a CTA, 91 to 98 % with more; with Hadamard and blocks 68 to 69 % with two and 65 to 66 % with one (head_dim 64
// and 128), 64 % with four and 60 % with one (256, f32). Fewer where an SM would get too few CTAs for its rounds to end evenly.
// In pairs of bf16, launched as dependents (prepare_heads_h200.csv), RoPE half and blocks, f32: 74 % with eight heads, 76 with four, 77 with two (64);
// 71, 76 and 78 % (128; with f32 tables and eight times the values 83 and 83 % with two, 84 with eight and 85 with four); 64, 76 and 74 % (256). Interleaved four and two are level but for 256 with bf16 tables, 66 and 65 %; per head four
// are the best, 81 and 79 % with two (128).
std::int64_t heads_each(const PrepareProblem& p, const PrepareConfig& c, std::int64_t tiles, int multiprocessors) {
  if (!gen::takes_heads(c)) return 1;
  if (p.heads_per_cta != 0) return p.heads_per_cta;
  const std::int64_t round = std::int64_t{multiprocessors} * gen::rows_ctas_per_sm(c), fewest = c.packed ? 3 * round / 4 : 2 * round;
  if (c.sink == Sink::store && c.hadamard == Hadamard::none) return 1;
  if (!c.packed && c.sink == Sink::quantize_blocks && c.head_dim > 128 && c.table == DataType::f32) return p.heads % 4 == 0 ? 4 : 1;
  std::int64_t each = c.sink == Sink::quantize_blocks ? 2 : 4;
  if (c.packed) {
    const bool narrow = c.sink == Sink::quantize_blocks && c.rope == Rope::half && c.head_dim <= 128;
    const std::int64_t wide_tables = c.head_dim == 64 ? 8 : 4;
    const bool many = c.table == DataType::f32 && tiles * blocks(p.heads, wide_tables) * p.batch >= 4 * round;
    each = narrow && !many ? 2 : narrow ? wide_tables : 4;
  }
  while (each > 1 && (each > p.heads || tiles * blocks(p.heads, each) * p.batch < fewest)) each /= 2;
  return each;
}

}  // namespace

std::int64_t PrepareProblem::scale_count() const {
  if (!quantizes()) return 0;
  if (scale_kind == ScaleKind::tensor) return 1;
  return batch * heads * (scale_kind == ScaleKind::block ? blocks(seqlen, block_rows) : 1);
}

std::int64_t transposed_seqlen(std::int64_t seqlen) { return blocks(seqlen, key_order_padding) * key_order_padding; }

Status check_prepare(const PrepareProblem& p) {
  if (!is_16_bit(p.in)) return unsupported("input_dtype is " + number(p.in) + ": must be f16 or bf16");
  if (p.out != p.in && !is_8_bit(p.out))
    return unsupported("output_dtype is " + number(p.out) + ": must be e4m3, e5m2 or that of the input");
  if (Status s = check_extents(p.batch, p.seqlen, p.heads); !s.ok()) return s;
  const int step = p.rope == Rope::none ? 16 : 32;
  if (Status s = check_head_dim(p.head_dim, step, p.rope == Rope::none ? "" : "with rope"); !s.ok()) return s;
  if (Status s = check_steps(p); !s.ok()) return s;
  if (Status s = check_scales(p); !s.ok()) return s;
  if (Status s = check_transposed(p); !s.ok()) return s;
  if (p.empty()) return {};
  if (Status s = check_view({"x", p.batch, p.seqlen, p.heads, p.head_dim, p.x}, size_of(p.in), false); !s.ok()) return s;
  if (p.transpose) return {};
  return check_view({"y", p.batch, p.seqlen, p.heads, p.head_dim, p.y}, size_of(p.out), true);
}

Status check_transpose(const TransposeProblem& p) {
  if (!is_8_bit(p.dtype)) return unsupported("dtype is " + number(p.dtype) + ": must be e4m3 or e5m2");
  if (Status s = check_extents(p.batch, p.seqlen, p.heads); !s.ok()) return s;
  if (Status s = check_head_dim(p.head_dim, 16, ""); !s.ok()) return s;
  if (p.empty()) return {};
  return check_view({"v", p.batch, p.seqlen, p.heads, p.head_dim, p.v}, 1, false);
}

std::vector<PrepareConfig> Prepare::kernels_of(const PrepareProblem& p) {
  PrepareConfig c;
  if (p.rope != Rope::none || p.hadamard != Hadamard::none) c.lanes = p.lanes;
  c.rope = p.rope, c.table = p.table, c.hadamard = p.hadamard;
  c.in = p.in, c.out = p.out, c.head_dim = static_cast<int>(p.head_dim);
  if (!p.quantizes()) {
    c.sink = Sink::store;
    c.out = DataType::e4m3;  // not part of the name
    return {c};
  }
  // Partial sums of what a fixed scale lets saturate have no room in f16.
  const bool packed = p.packed && p.fixed_scale == 0 && p.threads == 0 && !p.prefetch_tables;
  if (p.scale_kind == ScaleKind::block) {
    c.sink = Sink::quantize_blocks;
    c.transposed = p.transpose;
    if (!p.transpose) c.rows = gen::rows_to_hold(c, p.block_rows);
    c.packed = packed && p.block_rows <= gen::packed_rows && gen::packs(c);
    c.threads = p.threads;
    return {c};
  }
  c.sink = Sink::quantize;
  c.packed = packed && gen::packs(c);
  PrepareConfig amax = c;
  amax.sink = Sink::amax;
  c.transposed = p.transpose;
  if (p.fixed_scale != 0) return {c};
  return {amax, c};
}

Prepare::~Prepare() {
  for (auto& [name, entry] : entries_)
    if (entry.loaded != nullptr) device_.unload(entry.loaded);
}

Status Prepare::entry_for(const PrepareConfig& config, Entry** out) {
  std::lock_guard lock(mutex_);
  Entry& entry = entries_[config.name()];
  *out = &entry;
  if (entry.loaded != nullptr) return {};
  EmittedKernel emitted;
  try {
    emitted = emit_prepare(config);
  } catch (const std::exception& e) {
    return unsupported("kernel " + config.name() + " cannot be generated: " + e.what());
  }
  entry.facts = emitted.facts;
  entry.rows = config.sink == Sink::transpose ? key_order_padding : gen::tile_rows(config);
  entry.offsets.clear();
  if (Status s = offsets_of(entry.facts, &entry.offsets); !s.ok()) return s;
  return device_.load(emitted.text, entry.facts.entry, entry.facts.shared_bytes, &entry.loaded);
}

Status Prepare::launch(const Entry& e, PrepareArguments& arguments, std::int64_t ctas, std::int64_t batch,
                       Stream stream) {
  if (ctas > INT32_MAX) return unsupported("seqlen * heads needs more than 2^31 - 1 CTAs: split the heads");
  LaunchDims dims;
  dims.grid[0] = static_cast<std::uint32_t>(ctas);
  dims.grid[1] = static_cast<std::uint32_t>(batch);
  dims.block[0] = static_cast<std::uint32_t>(e.facts.block_threads);
  dims.shared_bytes = e.facts.shared_bytes;
  dims.programmatic_dependent = early_ && device_.info().launches_dependents();
  void* params[32];
  const std::size_t n = e.offsets.size();
  for (std::size_t i = 0; i < n; ++i) params[i] = reinterpret_cast<char*>(&arguments) + e.offsets[i];
  return device_.launch(e.loaded, dims, params, static_cast<int>(n), stream);
}

Status Prepare::run(const PrepareProblem& p, const PreparePointers& at, Stream stream) {
  if (Status s = check_prepare(p); !s.ok()) return s;
  if (p.empty()) return {};
  if (Status s = check_pointers(p, at); !s.ok()) return s;
  PrepareArguments arguments = arguments_of(p, at);
  for (const PrepareConfig& c : kernels_of(p)) {
    Entry* e = nullptr;
    if (Status s = entry_for(c, &e); !s.ok()) return s;
    if (c.sink == Sink::amax)
      if (Status s = device_.fill(at.amax, 0, static_cast<std::size_t>(p.scale_count()) * 4, stream); !s.ok()) return s;
    const std::int64_t rows = c.sink == Sink::quantize_blocks ? p.block_rows : e->rows;
    const std::int64_t tiles = blocks(p.seqlen, rows);
    const std::int64_t each = heads_each(p, c, tiles, device_.info().multiprocessors), groups = blocks(p.heads, each);
    set_groups(groups, &arguments);
    arguments.heads_per_cta = static_cast<std::uint32_t>(each);
    // Nothing may stand between amax and the quantisation, which reads x, cos and sin while amax runs.
    if (Status s = launch(*e, arguments, tiles * groups, p.batch, stream); !s.ok()) return s;
  }
  return {};
}

Status Prepare::transpose_v(const TransposeProblem& p, std::uint64_t v, std::uint64_t vt, Stream stream) {
  if (Status s = check_transpose(p); !s.ok()) return s;
  if (p.empty()) return {};
  if (Status s = check_pointer("v", v, 16); !s.ok()) return s;
  if (Status s = check_pointer("vt", vt, 16); !s.ok()) return s;
  if (v == vt) return invalid("v and vt are the same pointer");
  PrepareArguments a;
  a.v = v, a.vt = vt;
  a.x_stride_batch = bytes(p.batch, p.v.batch, 1), a.x_stride_seq = bytes(p.seqlen, p.v.seq, 1);
  a.x_stride_head = bytes(p.heads, p.v.head, 1);
  a.seqlen = static_cast<std::uint32_t>(p.seqlen), a.heads = static_cast<std::uint32_t>(p.heads);
  PrepareConfig c;
  c.sink = Sink::transpose, c.head_dim = static_cast<int>(p.head_dim);
  Entry* e = nullptr;
  if (Status s = entry_for(c, &e); !s.ok()) return s;
  const std::int64_t groups = blocks(p.heads, gen::transpose_heads(c));
  set_groups(groups, &a);
  return launch(*e, a, blocks(p.seqlen, e->rows) * groups, p.batch, stream);
}

Status Prepare::load(const PrepareProblem& p) {
  if (Status s = check_prepare(p); !s.ok()) return s;
  for (const PrepareConfig& c : kernels_of(p)) {
    Entry* e = nullptr;
    if (Status s = entry_for(c, &e); !s.ok()) return s;
  }
  return {};
}

Status Prepare::load_transpose(const TransposeProblem& p) {
  if (Status s = check_transpose(p); !s.ok()) return s;
  PrepareConfig c;
  c.sink = Sink::transpose, c.head_dim = static_cast<int>(p.head_dim);
  Entry* e = nullptr;
  return entry_for(c, &e);
}

}  // namespace flashptx
