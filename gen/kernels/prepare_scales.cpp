// Magnitudes, scales and the conversion to 8 bits.
//
// Rule for values that are not finite: they are left out of the magnitude; an infinity then becomes the largest
// value of the 8-bit type, NaN stays NaN. max.f32 leaves NaN out by itself; an infinite maximum is the rare case
// and is taken again over what is finite. A magnitude of 0 gives scale 1; one below 2^-100 counts as 2^-100, so
// that neither the scale nor its reciprocal leaves the normal numbers. Next: prepare_rows.cpp.
#include <limits>

#include "gen/kernels/prepare_rows.h"
#include "gen/tile/key_order.h"

namespace flashptx::gen {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float smallest_magnitude = 0x1p-100f;

float largest_of(DataType t) { return t == DataType::e4m3 ? 448.0f : 57344.0f; }

}  // namespace

Scales::Scales(Rows& rows) : r_(rows) {
  Kernel& k = r_.k;
  const PrepareConfig& c = r_.c;
  largest = k.f32("largest"), scale = k.f32("scale"), inverse = k.f32("inverse_scale");
  part_ = k.f32("row_largest"), magnitude_ = k.f32("magnitude");
  infinite_ = k.pred("is_infinite"), finite_ = k.pred("is_finite");
  if (c.sink == Sink::quantize_blocks || c.sink == Sink::amax) pair_ = k.b32("pair_largest", 2);
  if (c.sink != Sink::amax) {
    quarter_ = k.b16("two_bytes", 4);
    out_ = k.b32("eight_bytes", 2);
  }
  if (c.sink != Sink::quantize_blocks) index_ = k.b64("scale_at");
  if (c.sink != Sink::quantize && r_.at.threads > 32) k.static_shared("warp_largest", (takes_heads(c) ? 8 : 4) * r_.at.threads / 32, 16);
  if (c.sink == Sink::quantize_blocks || !r_.transforms() || (c.packed && c.sink == Sink::amax)) unpacked_ = k.f32("unpacked", 8);
}

void Scales::clear() { r_.k.mov_f32(largest, f32_imm(0)); }

// Adds to part_ the magnitudes of `values` that are finite.
void Scales::take(const std::vector<Reg>& values) {
  Kernel& k = r_.k;
  for (const Reg& v : values) {
    k.abs_f32(magnitude_, v);
    k.setp("lt", "f32", finite_, magnitude_, f32_imm(infinity));
    k.selp_f32(magnitude_, magnitude_, f32_imm(0), finite_);
    k.max_f32(part_, part_, magnitude_);
  }
}

void Scales::take_values(int v) {
  Kernel& k = r_.k;
  const std::vector<Reg> values = r_.value.slice(8 * v, 8);
  k.scope([&] {
    const Vec parts = k.f32("part_largest", 4);  // four chains: one would wait for itself
    for (int i = 0; i < 8; ++i) {
      const Reg part = parts[i % 4], value = values[static_cast<std::size_t>(i)];
      if (i < 4) {
        k.abs_f32(part, value);
        continue;
      }
      k.abs_f32(magnitude_, value);
      k.max_f32(part, part, magnitude_);
    }
    k.max_f32(parts[0], parts[0], parts[1]);
    k.max_f32(parts[2], parts[2], parts[3]);
    k.max_f32(part_, parts[0], parts[2]).note("NaN goes at the next maximum");
  });
  k.setp("eq", "f32", infinite_, part_, f32_imm(infinity));
  k.if_rare(infinite_, [&] {
    k.mov_f32(part_, f32_imm(0));
    take(values);
  }, "only finite values count");
  k.max_f32(largest, largest, part_);
}

// Two values an instruction, of which ptxas makes one of three operands: two extremes cost less than magnitudes.
void Scales::take_words(int step) {
  Kernel& k = r_.k;
  const DataType type = r_.held();
  const std::string of = std::string(".") + to_string(type) + "x2";
  k.mov_b32(pair_[0], 0), k.mov_b32(pair_[1], 0);
  for (int v = 0; v < r_.at.vectors; ++v)
    for (const Reg& word : r_.vector(step, v)) {
      k.emit("max" + of, {pair_[0], pair_[0], word}, Location::current());
      k.emit("min" + of, {pair_[1], pair_[1], word}, Location::current());
    }
  for (const Reg& pair : {pair_[0], pair_[1]}) k.and_b32(pair, pair, hex(0x7fff7fff));
  k.emit("max" + of, {pair_[0], pair_[0], pair_[1]}, Location::current());
  unpack(r_, type, part_, magnitude_, pair_[0]);
  k.max_f32(part_, part_, magnitude_);
  k.setp("eq", "f32", infinite_, part_, f32_imm(infinity));
  k.if_rare(infinite_, [&] {
    k.mov_f32(part_, f32_imm(0));
    for (int v = 0; v < r_.at.vectors; ++v)
      for (const Reg& word : r_.vector(step, v)) {
        unpack(r_, type, unpacked_[0], unpacked_[1], word);
        take({unpacked_[0], unpacked_[1]});
      }
  }, "only finite values count");
  k.max_f32(largest, largest, part_);
}

void Scales::reduce() {
  Kernel& k = r_.k;
  const int warps = r_.at.threads / 32;
  k.scope([&] {
    const Reg bits = k.b32("largest_bits");
    k.mov_b32(bits, largest);
    k.redux_sync("max.u32", bits, bits).note("floats that are not negative compare as integers");
    k.mov_b32(largest, bits);
    if (warps == 1) return;
    const Reg at = k.b32("partial_at"), t = k.b32("partial_offset"), leads = k.pred("leads_warp");
    const Vec others = k.f32("partial", warps);
    k.mov_b32(at, symbol("warp_largest"));
    if (takes_heads(r_.c)) {
      k.and_b32(t, r_.head, 1);
      k.mad_lo_u32(at, t, 4 * warps, at).note("two places in turn: a warp may be a head ahead of those that read");
    }
    k.and_b32(t, r_.thread, 31);
    k.setp("eq", "u32", leads, t, 0);
    k.shr_u32(t, r_.thread, 5);
    k.mad_lo_u32(t, t, 4, at);
    k.st_shared_f32(address(t), largest).when(leads);
    k.bar_sync_all(0);
    const int wide = warps % 4 == 0 ? 4 : warps % 2 == 0 ? 2 : 1;
    for (int i = 0; i < warps; i += wide) {
      if (wide == 1) k.ld_shared_f32(others[i], address(at, 4 * i));
      else k.ld_shared("v" + std::to_string(wide) + ".f32", others.slice(i, wide), address(at, 4 * i));
    }
    for (const Reg& o : others.all()) k.max_f32(largest, largest, o);
  });
}

// part_ and inverse, from largest.
void Scales::to_inverse() {
  Kernel& k = r_.k;
  k.setp("eq", "f32", finite_, largest, f32_imm(0));
  k.max_f32(part_, largest, f32_imm(smallest_magnitude));
  k.mov_f32(magnitude_, f32_imm(largest_of(r_.c.out)));
  k.div_rn_f32(inverse, magnitude_, part_);
  k.selp_f32(inverse, f32_imm(1), inverse, finite_).note("nothing but zeros: scale 1");
}

// scale, from what to_inverse left: only who writes it needs it.
void Scales::to_scale() {
  Kernel& k = r_.k;
  k.div_rn_f32(scale, part_, f32_imm(largest_of(r_.c.out)));
  k.selp_f32(scale, f32_imm(1), scale, finite_);
}

// Offset in bytes of this head's magnitude and scale.
void Scales::head_index() {
  Kernel& k = r_.k;
  k.scope([&] {
    const Reg index = k.b32("scale_index"), whole = k.b32("per_tensor"), one = k.pred("is_per_tensor"), zero = k.b32("zero");
    k.ld_param_u32(whole, "per_tensor");
    k.setp("ne", "u32", one, whole, 0);
    k.mov_b32(zero, 0);
    k.mad_lo_u32(index, r_.batch, r_.heads, r_.head);
    k.selp_b32(index, zero, index, one);
    k.mul_wide_u32(index_, index, 4);
  });
}

void Scales::add_to_amax() {
  Kernel& k = r_.k;
  head_index();
  k.scope([&] {
    const Reg at = k.b64("amax_at"), bits = k.b32("amax_bits"), leads = k.pred("leads");
    k.setp("eq", "u32", leads, r_.thread, 0);
    k.ld_param_u64(at, "amax");
    k.add_u64(at, at, index_);
    k.mov_b32(bits, largest);
    k.red_global("relaxed", "gpu", "max.u32", address(at), bits).when(leads);
  });
}

// The scale of this head; one CTA of those that share it writes it.
// Behind amax every thread waits first, so that this grid's end is amax's too.
void Scales::read() {
  Kernel& k = r_.k;
  if (reads_ahead(r_.c)) k.griddepcontrol_wait().note("amax is complete");
  head_index();
  k.scope([&] {
    const Reg at = k.b64("amax_at"), fixed = k.f32("fixed_scale"), follows = k.pred("scale_follows"), writes = k.pred("writes_scale"),
              whole = k.b32("is_first"), cta = k.b32("cta");
    k.ld_param_f32(fixed, "fixed_scale");
    k.setp("eq", "f32", follows, fixed, f32_imm(0));
    k.if_else(follows, [&] {
      k.ld_param_u64(at, "amax");
      k.add_u64(at, at, index_);
      k.ld_global_f32(largest, address(at));
      to_inverse();
    }, [&] { k.rcp_rn_f32(inverse, fixed); });
    k.ld_param_u32(whole, "per_tensor");
    k.or_b32(cta, r_.batch, r_.head);
    k.mul_lo_u32(whole, whole, cta);
    k.or_b32(whole, whole, r_.tile);
    k.or_b32(whole, whole, r_.thread);
    k.setp("eq", "u32", writes, whole, 0);
    k.if_(writes, [&] {
      k.mov_f32(scale, fixed);
      k.if_(follows, [&] { to_scale(); });
      k.ld_param_u64(at, "scales");
      k.add_u64(at, at, index_);
      k.st_global_f32(address(at), scale);
    });
  });
}

void Scales::write_block() {
  Kernel& k = r_.k;
  to_inverse();
  k.scope([&] {
    const Reg at = k.b64("scales_at"), index = k.b64("scale_index"), n = k.b32("blocks"), head = k.b32("scale_head"),
              leads = k.pred("leads");
    k.setp("eq", "u32", leads, r_.thread, 0);
    k.if_(leads, [&] {
      to_scale();
      if (r_.c.transposed) {
        k.add_u32(n, r_.seqlen, key_order_padding - 1);
        k.shr_u32(n, n, log2_of(key_order_padding));
      } else {
        k.ld_param_u32(n, "block_count");
      }
      k.mad_lo_u32(head, r_.batch, r_.heads, r_.head);
      k.mul_wide_u32(index, head, n);
      k.cvt_u64_u32(at, r_.tile);
      k.add_u64(index, index, at);
      k.ld_param_u64(at, "scales");
      k.mad_lo_u64(at, index, 4, at);
      k.st_global_f32(address(at), scale);
    });
  });
}

void Scales::convert(const std::vector<Reg>& values, const Reg& first, const Reg& second) {
  Kernel& k = r_.k;
  const auto at = [&](int i) { return values[static_cast<std::size_t>(i)]; };
  for (int i = 0; i < 8; ++i) k.mul_f32(at(i), at(i), inverse);
  for (int i = 0; i < 4; ++i) k.cvt_rn_satfinite_fp8x2_f32(to_string(r_.c.out), quarter_[i], at(2 * i + 1), at(2 * i));
  k.mov_b32(first, {quarter_[0], quarter_[1]});
  k.mov_b32(second, {quarter_[2], quarter_[3]});
}

void Scales::convert_words(const std::vector<Reg>& words, const Reg& first, const Reg& second) {
  for (int j = 0; j < 4; ++j)
    unpack(r_, r_.held(), unpacked_[2 * j], unpacked_[2 * j + 1], words[static_cast<std::size_t>(j)]);
  convert(unpacked_.all(), first, second);
}

void Scales::store_piece(int v, const Reg& inside) {
  r_.k.st_global_v2_b32(address(r_.y_at, 8 * v * r_.at.lanes), out_.all()).when(inside);
}

void Scales::quantize_values(int v, const Reg& inside) {
  convert(r_.value.slice(8 * v, 8), out_[0], out_[1]);
  store_piece(v, inside);
}

void Scales::quantize_words(int step, const Reg& inside) {
  for (int v = 0; v < r_.at.vectors; ++v) {
    convert_words(r_.vector(step, v), out_[0], out_[1]);
    store_piece(v, inside);
  }
}

void Scales::quantize_halves(int step, const Reg& inside) {
  Kernel& k = r_.k;
  for (int v = 0; v < r_.at.vectors; ++v) {
    const std::vector<Reg> words = r_.vector(step, v);
    for (std::size_t j = 0; j < 4; ++j) k.cvt_rn_satfinite_fp8x2_f16x2(to_string(r_.c.out), quarter_[static_cast<int>(j)], words[j]);
    k.mov_b32(out_[0], {quarter_[0], quarter_[1]});
    k.mov_b32(out_[1], {quarter_[2], quarter_[3]});
    store_piece(v, inside);
  }
}

}  // namespace flashptx::gen
