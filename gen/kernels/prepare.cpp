// Names, parameters and headers of the preparation kernels.
// Next: prepare_transpose.cpp, prepare_rows.cpp.
#include "gen/kernels/prepare.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "gen/kernels/prepare_kernels.h"

namespace flashptx {
namespace {

using namespace gen;

// The words of a name, taken from the front.
struct Words {
  std::vector<std::string> left;
  explicit Words(const std::string& name) {
    std::istringstream in(name);
    for (std::string w; std::getline(in, w, '_');) left.push_back(w);
  }
  bool take(const std::string& word) {
    if (left.empty() || left.front() != word) return false;
    left.erase(left.begin());
    return true;
  }
  bool type(std::initializer_list<DataType> choices, DataType* out) {
    for (DataType t : choices)
      if (take(to_string(t))) return *out = t, true;
    return false;
  }
  bool number(char letter, int* out) {
    if (left.empty() || left.front().size() < 2 || left.front().size() > 4 || left.front()[0] != letter) return false;
    const std::string digits = left.front().substr(1);
    if (digits[0] == '0' || digits.find_first_not_of("0123456789") != std::string::npos) return false;
    *out = std::atoi(digits.c_str());
    left.erase(left.begin());
    return true;
  }
};

void parse_steps(Words& w, PrepareConfig* c) {
  if (w.take("rope")) {
    c->rope = w.take("interleaved") ? Rope::interleaved : w.take("half") ? Rope::half : Rope::none;
    if (c->rope == Rope::none || !w.type({DataType::f32, DataType::bf16}, &c->table)) w.left.clear();
  }
  if (w.take("hadamard")) c->hadamard = Hadamard::forward;
  if (w.take("unhadamard")) c->hadamard = Hadamard::inverse;
  c->sink = Sink::store;
  if (w.take("amax")) c->sink = Sink::amax;
  if (w.take("quantize")) {
    c->sink = w.take("blocks") ? Sink::quantize_blocks : Sink::quantize;
    c->transposed = w.take("transpose");
  }
}

void add(LaunchFacts& f, const std::string& name, ParamKind kind, const std::string& meaning, bool written = false) {
  ParamFact p;
  p.name = name, p.kind = kind, p.meaning = meaning, p.written = written;
  f.params.push_back(p);
}

void add_tensor(LaunchFacts& f, const std::string& name, const std::string& meaning, bool written) {
  add(f, name, ParamKind::pointer, meaning + " (batch, seqlen, heads, head_dim) with the strides below, 16-byte aligned",
      written);
  for (const char* dim : {"batch", "seq", "head"})
    add(f, name + "_stride_" + dim, ParamKind::i64, std::string("bytes from one ") + dim + " to the next, a multiple of " +
        "16; head_dim is contiguous");
}

void add_transposed(LaunchFacts& f, const std::string& type) {
  add(f, "vt", ParamKind::pointer, type + "(batch, heads, head_dim, seqlen rounded up to 128) contiguous, 16-byte aligned; "
      "zeros beyond seqlen", true);
}

void add_grid(LaunchFacts& f, const std::string& groups) {
  add(f, "head_groups", ParamKind::u32, groups);
  add(f, "tile_factor", ParamKind::u32, "ctaid.x / head_groups is ctaid.x * tile_factor >> tile_shift: floor(2^tile_shift / head_groups),");
  add(f, "tile_shift", ParamKind::u32, "one more unless head_groups is a power of two; 31 + ceil(log2(head_groups))");
}

void add_sink(LaunchFacts& f, const PrepareConfig& c) {
  const std::string limit = c.out == DataType::e4m3 ? "448" : "57344";
  if (c.sink == Sink::amax) {
    add(f, "amax", ParamKind::pointer,
        "fp32 (batch, heads), or 1: largest finite magnitude; the caller sets it to zero before", true);
    add(f, "per_tensor", ParamKind::u32, "1: one value for the whole tensor, 0: one for each (batch, head)");
  } else if (c.sink == Sink::quantize) {
    add(f, "amax", ParamKind::pointer, std::string("fp32 (batch, heads), or 1: what prep_amax wrote; not read with a fixed_scale") +
        (reads_ahead(c) ? "; it may still run if it was launched right before (programmatic launch)" : ""));
    add(f, "scales", ParamKind::pointer, "fp32, as many: x is about scale * y, scale = amax / " + limit, true);
    add(f, "per_tensor", ParamKind::u32, "1: one value for the whole tensor, 0: one for each (batch, head)");
    add(f, "fixed_scale", ParamKind::f32, "0: the scale follows from amax; else this scale, > 0");
  } else if (c.sink == Sink::quantize_blocks && c.transposed) {
    add(f, "scales", ParamKind::pointer,
        "fp32 (batch, heads, ceil(seqlen / 128)): x is about scale * y, scale = amax of 128 rows / " + limit, true);
  } else if (c.sink == Sink::quantize_blocks) {
    add(f, "scales", ParamKind::pointer,
        "fp32 (batch, heads, ceil(seqlen / block_rows)): x is about scale * y, scale = amax of the block / " + limit, true);
    add(f, "block_rows", ParamKind::u32, "rows that share a scale, >= 1; one pass over memory up to " +
        std::to_string(c.rows));
    add(f, "block_count", ParamKind::u32, "ceil(seqlen / block_rows)");
  }
}

LaunchFacts rows_facts(const PrepareConfig& c) {
  LaunchFacts f;
  add_tensor(f, "x", to_string(c.in), false);
  if (c.transposed) add_transposed(f, std::string(to_string(c.out)) + " ");
  else if (c.has_output()) add_tensor(f, "y", c.sink == Sink::store ? to_string(c.in) : to_string(c.out), true);
  add(f, "seqlen", ParamKind::u32, "rows");
  add(f, "heads", ParamKind::u32, "heads");
  if (c.rope != Rope::none) {
    for (const char* t : {"cos", "sin"})
      add(f, t, ParamKind::pointer, std::string(to_string(c.table)) + " (positions, head_dim / 2), 16-byte aligned");
    add(f, "position", ParamKind::u32, "line of cos and sin that belongs to row 0");
  }
  if (takes_heads(c)) add(f, "heads_per_cta", ParamKind::u32, "heads that a CTA does in turn, a power of two");
  if (c.rope != Rope::none && !c.packed) add(f, "prefetch_tables", ParamKind::u32, "of quantize_blocks, 1: lines of cos and sin are fetched to L1 beside x; 0: not");
  if (c.hadamard != Hadamard::none)
    for (int i = 0; i < (c.head_dim + 31) / 32; ++i)
      add(f, "signs_" + std::to_string(i), ParamKind::u32,
          "bit j: column " + std::to_string(32 * i) + " + j is negated (hadamard_signs of gen/hadamard_signs.h)");
  add_sink(f, c);
  add_grid(f, takes_heads(c) ? "ceil(heads / heads_per_cta)" : "heads");
  f.grid = "ceil(seqlen / " + (c.sink == Sink::quantize_blocks && !c.transposed ? "block_rows" : std::to_string(tile_rows(c))) +
           ") * head_groups, batch";
  f.block_threads = rows_threads(c);
  if (c.packed) f.shared_bytes = static_cast<std::uint32_t>(packed_shared_bytes(c));
  return f;
}

LaunchFacts transpose_facts(const PrepareConfig& c) {
  LaunchFacts f;
  add_tensor(f, "v", "any 8-bit type", false);
  add_transposed(f, "");
  add(f, "seqlen", ParamKind::u32, "keys");
  add(f, "heads", ParamKind::u32, "heads of V");
  const int each = transpose_heads(c);
  add_grid(f, each == 1 ? "heads" : "ceil(heads / " + std::to_string(each) + ")");
  f.grid = "ceil(seqlen / 128) * head_groups, batch";
  f.block_threads = transpose_threads(c);
  return f;
}

std::string about(const PrepareConfig& c) {
  if (c.sink == Sink::transpose)
    return "V^T for FP8 attention: position 4t + i of 16 keys holds key 8 (i / 2) + 2t + i % 2 of them.";
  std::string s;
  if (c.rope != Rope::none) s += c.rope == Rope::half ? "RoPE (pairs i, i + head_dim / 2), " : "RoPE (pairs 2i, 2i + 1), ";
  const std::string n = std::to_string(hadamard_size(c.head_dim));
  if (c.hadamard == Hadamard::forward) s += "H D x / sqrt(" + n + ") of each " + n + " columns, ";
  if (c.hadamard == Hadamard::inverse) s += "D H x / sqrt(" + n + ") of each " + n + " columns, ";
  if (c.sink == Sink::amax) s += "largest finite magnitude.";
  if (c.sink == Sink::store) s += "rounded to the type of the input.";
  if (c.sink == Sink::quantize) s += std::string("then to ") + to_string(c.out) + ", saturating, with the scale of a tensor or head.";
  if (c.sink == Sink::quantize_blocks) s += std::string("then to ") + to_string(c.out) + ", saturating, with a scale for each block of rows.";
  if (c.transposed) s += " Written as V^T: position 4t + i of 16 keys holds key 8 (i / 2) + 2t + i % 2 of them.";
  return s;
}

const char* ptx_name(ParamKind kind) {
  switch (kind) {
    case ParamKind::pointer: return "u64";
    case ParamKind::i64: return "s64";
    case ParamKind::f32: return "f32";
    default: return "u32";
  }
}

void check_lanes(const PrepareConfig& c) {
  const std::string name = c.name() + ": ";
  if (c.rope == Rope::none && c.hadamard == Hadamard::none) throw Error(name + "lanes are for rope and hadamard");
  const int pieces = c.head_dim / 8, vectors = pieces / std::max(1, c.lanes);
  if ((c.lanes != 4 && c.lanes != 8) || pieces % c.lanes != 0 || (c.rope == Rope::half && vectors % 2 != 0) || vectors > 8 ||
      (c.hadamard != Hadamard::none && hadamard_size(c.head_dim) < 8 * c.lanes))
    throw Error(name + "lanes " + std::to_string(c.lanes) + " must be 4 or 8 and fit head_dim");
}

void check(const PrepareConfig& c) {
  const std::string name = c.name() + ": ";
  const int step = c.rope == Rope::none ? 16 : 32;
  if (c.head_dim < step || c.head_dim > 256 || c.head_dim % step)
    throw Error(name + "head_dim " + std::to_string(c.head_dim) + " must be a multiple of " + std::to_string(step) +
                " in [" + std::to_string(step) + ", 256]");
  if (c.sink == Sink::transpose) {
    if (c.rope != Rope::none || c.hadamard != Hadamard::none) throw Error(name + "a transposition has no other step");
    return;
  }
  if (c.in != DataType::bf16 && c.in != DataType::f16) throw Error(name + "the input must be bf16 or f16");
  const bool quantizes = c.sink == Sink::quantize || c.sink == Sink::quantize_blocks;
  if (quantizes && c.out != DataType::e4m3 && c.out != DataType::e5m2) throw Error(name + "the output must be e4m3 or e5m2");
  if (c.rope != Rope::none && c.table != DataType::f32 && c.table != DataType::bf16)
    throw Error(name + "cos and sin must be f32 or bf16");
  if (c.sink == Sink::store && c.rope == Rope::none && c.hadamard == Hadamard::none)
    throw Error(name + "nothing to do: neither rope nor hadamard");
  if (c.lanes != 0) check_lanes(c);
  if (c.packed && !packs(c))
    throw Error(name + "packed is for bf16 with rope and hadamard: blocks of up to " + std::to_string(packed_rows) + " rows, head_dim 64 (f32 "
                "tables), 128 or 256; else rope half, head_dim 128 or 256");
  if (c.hadamard == Hadamard::inverse && (c.sink != Sink::store || c.rope != Rope::none))
    throw Error(name + "the inverse is for O: neither rope nor quantisation goes with it");
  if (c.transposed && (!quantizes || c.rope != Rope::none || c.hadamard != Hadamard::none))
    throw Error(name + "what is written transposed is quantised and nothing else");
  if (c.sink == Sink::quantize_blocks && !c.transposed) check_block_rows(c);
  if (c.threads != 0 && !threads_fit(c))
    throw Error(name + "threads " + std::to_string(c.threads) + " must be a power of two in [32, 256], for blocks with rope or "
                "hadamard, and what a thread then holds fit its registers");
}

}  // namespace

std::string PrepareConfig::name() const {
  const std::string d = "_d" + std::to_string(head_dim);
  if (sink == Sink::transpose) return "prep_transpose_fp8" + d;
  std::string s = "prep";
  if (rope != Rope::none) s += std::string(rope == Rope::half ? "_rope_half_" : "_rope_interleaved_") + to_string(table);
  if (hadamard != Hadamard::none) s += hadamard == Hadamard::forward ? "_hadamard" : "_unhadamard";
  if (sink == Sink::amax) s += "_amax";
  if (sink == Sink::quantize) s += "_quantize";
  if (sink == Sink::quantize_blocks) s += "_quantize_blocks";
  if (transposed) s += "_transpose";
  s += std::string("_") + to_string(in);
  if (sink == Sink::quantize || sink == Sink::quantize_blocks) s += std::string("_") + to_string(out);
  s += d;
  if (sink == Sink::quantize_blocks && !transposed) s += "_r" + std::to_string(rows);
  if (packed) s += "_packed";
  if (lanes != 0) s += "_l" + std::to_string(lanes);
  if (threads != 0) s += "_t" + std::to_string(threads);
  return s;
}

bool PrepareConfig::parse(const std::string& name, PrepareConfig* out, std::string* error) {
  Words w(name);
  PrepareConfig c;
  bool good = w.take("prep");
  if (w.take("transpose")) {
    c.sink = Sink::transpose;
    good = good && w.take("fp8");
  } else {
    parse_steps(w, &c);
    good = good && w.type({DataType::bf16, DataType::f16}, &c.in);
    if (c.sink == Sink::quantize || c.sink == Sink::quantize_blocks)
      good = good && w.type({DataType::e4m3, DataType::e5m2}, &c.out);
  }
  good = good && w.number('d', &c.head_dim) && (c.sink != Sink::quantize_blocks || c.transposed || w.number('r', &c.rows));
  c.packed = good && w.take("packed");
  if (good && !w.left.empty()) w.number('l', &c.lanes);
  if (good && !w.left.empty()) good = w.number('t', &c.threads);
  if (good && w.left.empty() && c.name() == name) return *out = c, true;
  if (error) *error = "kernel name \"" + name + "\" is not that of a preparation kernel";
  return false;
}

EmittedKernel emit_prepare(const PrepareConfig& c, std::string* line_table) {
  check(c);
  EmittedKernel out;
  LaunchFacts& f = out.facts;
  f = c.sink == Sink::transpose ? transpose_facts(c) : rows_facts(c);
  f.entry = c.name();
  f.driver_min = "520 (CUDA 11.8)";
  Kernel k(f.entry);
  k.line_info(line_table != nullptr);
  k.header(f.entry);
  k.header("");
  k.header("Written by: flashptx emit " + f.entry);
  k.header(about(c));
  k.header("");
  k.header("Launch: grid (" + f.grid + "), block " + std::to_string(f.block_threads) + ", " +
           (f.shared_bytes == 0 ? "no dynamic shared memory." : "dynamic shared memory " + std::to_string(f.shared_bytes) + " bytes."));
  k.header("  It may be a programmatic dependent of the grid before it: every thread waits for that before it touches memory" +
           std::string(reads_ahead(c) ? "," : "."));
  if (reads_ahead(c)) k.header("  but behind amax, which has waited for what was before, only before it touches what amax wrote or writes anything.");
  for (const ParamFact& p : f.params) {
    k.header("  " + p.name + ": " + p.meaning);
    k.param(p.name, ptx_name(p.kind));
  }
  k.threads(f.block_threads);
  if (c.sink == Sink::transpose || c.transposed) {
    emit_transpose(k, c);
  } else if (c.packed) {
    emit_packed(k, c);
  } else {
    emit_rows(k, c);
  }
  k.ret();
  f.ptx_version = std::to_string(k.ptx_version() / 10) + "." + std::to_string(k.ptx_version() % 10);
  out.text = k.text();
  if (line_table) *line_table = k.line_table();
  return out;
}

std::vector<PrepareConfig> prepare_catalog() {
  std::vector<PrepareConfig> all;
  for (const char* name : {"prep_transpose_fp8_d64", "prep_transpose_fp8_d128", "prep_transpose_fp8_d256", "prep_amax_bf16_d128",
                           "prep_quantize_bf16_e4m3_d128", "prep_quantize_blocks_bf16_e4m3_d128_r128",
                           "prep_quantize_blocks_f16_e5m2_d64_r64",
                           "prep_quantize_transpose_bf16_e4m3_d128", "prep_quantize_blocks_transpose_bf16_e4m3_d128",
                           "prep_hadamard_bf16_d128", "prep_unhadamard_bf16_d128",
                           "prep_hadamard_quantize_blocks_bf16_e4m3_d128_r128",
                           "prep_hadamard_quantize_blocks_bf16_e4m3_d256_r64",
                           "prep_rope_half_f32_hadamard_quantize_blocks_bf16_e4m3_d128_r128_packed",
                           "prep_rope_half_f32_hadamard_amax_bf16_d128_packed", "prep_rope_half_f32_hadamard_quantize_bf16_e4m3_d128_packed",
                           "prep_rope_interleaved_bf16_hadamard_quantize_blocks_bf16_e4m3_d128_r128_packed"}) {
    PrepareConfig c;
    std::string error;
    if (!PrepareConfig::parse(name, &c, &error)) throw Error(error);
    all.push_back(c);
  }
  return all;
}

}  // namespace flashptx

namespace flashptx::gen {

namespace {

// index = count - 1 - index
void from_last(Kernel& k, const Reg& index, const char* count) {
  k.scope([&] {
    const Reg last = k.b32("last_index");
    k.mov_b32(last, special(count));
    k.sub_u32(last, last, 1);
    k.sub_u32(index, last, index);
  });
}

}  // namespace

// The division is a product with a number that the host makes: SASS has no division of integers, and of a CTA's few
// instructions a thread it would be one in ten.
void tile_and_head(Kernel& k, const Reg& tile, const Reg& head, const Reg& batch, const Reg& heads, int each, bool backwards) {
  k.ld_param_u32(heads, "heads");
  k.mov_b32(batch, special("ctaid.y"));
  k.mov_b32(head, special("ctaid.x"));
  if (backwards) {
    from_last(k, batch, "nctaid.y");
    from_last(k, head, "nctaid.x");
  }
  k.scope([&] {
    const Reg groups = k.b32("head_groups"), factor = k.b32("tile_factor"), shift = k.b32("tile_shift"), wide = k.b64("wide_tile");
    k.ld_param_u32(groups, "head_groups");
    k.ld_param_u32(factor, "tile_factor");
    k.ld_param_u32(shift, "tile_shift");
    k.mul_wide_u32(wide, head, factor);
    k.shr_u64(wide, wide, shift).note("ctaid.x / head_groups");
    k.cvt_u32_u64(tile, wide);
    k.mul_lo_u32(groups, groups, tile);
    k.sub_u32(head, head, groups).note("and the rest");
    if (each != 1) k.mul_lo_u32(head, head, each);
  });
}

void tensor_base(Kernel& k, const Reg& to, const std::string& name, const Reg& batch, const Reg& head) {
  k.scope([&] {
    const Reg stride = k.b64(name + "_stride"), wide = k.b64(name + "_index");
    k.ld_param_u64(to, name);
    for (const auto& [index, dim] : {std::pair{&batch, "_stride_batch"}, std::pair{&head, "_stride_head"}}) {
      k.ld_param_u64(stride, name + dim);
      k.cvt_u64_u32(wide, *index);
      k.mad_lo_u64(to, wide, stride, to);
    }
  });
}

}  // namespace flashptx::gen
