// RoPE, random signs, Hadamard and quantisation on pairs: two values a register, from the load to the 8 bits.
//
// Four lanes share a row, and a thread holds two rows (or four) of the tile as words of 16-bit pairs and nothing else. A row's way:
//   RoPE       half: x1 c - x2 s, x2 c + x1 s in bf16x2. Interleaved: x c and x s only, as the product below adds them. cos and sin,
//              rounded to bf16, stand in shared memory, each thread's own, for all heads that the CTA does in turn.
//   D, H_16    mma with a row of each of two steps as its two rows of A; the signs are in B, made once for each CTA.
//              Interleaved: x s by another B, whose pairs are turned.
//   the rest   bit 2 and bits from 5 on, between a thread's words: bf16x2; f16x2 where the scale is known (quantize), as then no
//              partial sum is above what the 8-bit type holds.
//   magnitude  of the words that are held; to 8 bits from f32 of them, or from f16x2, which is one instruction for two.
// Rows beyond the last are the last again: a magnitude that is taken twice is the same, and no register is set to zero before a load.
//
// Roundings to bf16, 1.7e-3 in the mean where e4m3 is 2.64e-2: cos and sin, RoPE's product and sum, behind mma, each further stage.
// On the emulator 2.64 to 2.69e-2 in all (f32: 2.63 to 2.66e-2).
//
// From the SASS, half, tables f32, blocks of 128; f32 kernels beside them:
//                                  d = 64            d = 128           d = 256
//   registers                     48   ( 64)        64   ( 80)       128   (128)
//   warps an SM                   40   ( 32)        32   ( 24)        16   ( 16)
//   lane instructions a value     10.8 (14.6)       9.2  (15.3)       8.7  (14.7)      interleaved 11.4, 9.9, 9.2
//   and of amax, then quantize    6.5 + 8.8         5.7 + 8.0         5.5 + 7.0
// Foretold for 33.5 million values on an H200, where a copy's speed takes 28 us: blocks 31 to 33, 31 to 33, 33 to 36 us; per head
// (47 us) 50 to 54 us.
// Next: prepare_rows.h (what is shared with the other kernels), prepare_scales.cpp.
#include <cmath>
#include <memory>

#include "gen/kernels/prepare_rows.h"

namespace flashptx::gen {
namespace {

constexpr int lanes = 4;
constexpr int fragment_bytes = 16 * 32;  // two n8 tiles of B

class Packed {
 public:
  Packed(Kernel& kernel, const PrepareConfig& config) : k(kernel), c(config), r(kernel, config) {}
  void emit();

 private:
  bool rope() const { return c.rope != Rope::none; }
  bool half() const { return c.rope == Rope::half; }
  bool interleaved() const { return c.rope == Rope::interleaved; }
  bool to_f16() const { return c.sink == Sink::quantize; }
  const char* mixed_type() const { return to_f16() ? "f16" : "bf16"; }
  // Of a piece: B of its halves, then what turns the pairs of both.
  int fragments() const { return interleaved() ? 4 : 2; }
  int steps() const { return r.at.steps; }
  int vectors() const { return r.at.vectors; }
  void coordinates();
  void rows();
  void table_line(int step, const Reg& cos, const Reg& sin);
  void share_tables();
  void table_words(const Vec& to, const Reg& at, int offset);
  void store_table(const Vec& words, int step, int slot);
  void load_factors(int step, int slot);
  void share_fragments();
  void fragments_of(const Reg& at, const Reg& signs, const Reg& plus, int v);
  void share_places();
  void prefetch(const Reg& at, const Reg* when);
  void load_rows();
  void load_row(int step, const Reg& at, const Reg* when = nullptr);
  void next_rows(int step, const Reg& more, const Reg& more_yet);
  void has_head(const Reg& is, const Reg& head);
  void apart(int i, const std::function<void()>& body);
  void transform();
  void load_fragment(int to, int v, int i);
  void rotate(int step, int v, int h);
  void keep(int step, int v, int h);
  void turn(int step, int v, int h);
  void multiply(int step, int v, int h, const std::vector<std::vector<Reg>>& a, int fragment = 0);
  std::vector<Reg> half_of(int step, int v, int h) const;
  void pack(const Reg& word, const Reg& even, const Reg& odd);
  void butterfly(const Reg& a, const Reg& b);
  void between_pieces();
  void rescale(const Reg& value);
  void find_y();
  void next_y();
  void one_head(const Reg* more);

  Kernel& k;
  const PrepareConfig& c;
  Rows r;
  std::unique_ptr<Scales> scales_;
  Vec inside_, b_, sum_, factor_, product_, zero_;
  Reg first_, tables_at_, fragments_at_, places_at_, other_;
};

void Packed::coordinates() {
  k.griddepcontrol_launch_dependents().note(std::string(c.sink == Sink::amax ? "quantisation" : "attention") +
                                            " may take its place on an SM as soon as one is free");
  k.section("coordinates");
  r.thread = k.b32("thread"), r.piece = k.b32("piece"), r.batch = k.b32("batch"), r.head = k.b32("head");
  r.heads = k.b32("heads"), r.tile = k.b32("tile"), r.seqlen = k.b32("seqlen"), r.row = k.b32("row"), r.end = k.b32("row_end");
  if (c.has_output()) r.y_at = k.b64("y_at");
  first_ = k.b32("first_row");
  inside_ = k.pred("is_inside", steps());
  k.mov_b32(r.thread, special("tid.x"));
  k.and_b32(r.piece, r.thread, lanes - 1);
  k.ld_param_u32(r.seqlen, "seqlen");
  tile_and_head(k, r.tile, r.head, r.batch, r.heads, 1, c.follows_amax());
  if (takes_heads(c)) {
    k.scope([&] {
      const Reg each = k.b32("heads_per_cta");
      k.ld_param_u32(each, "heads_per_cta");
      k.mul_lo_u32(r.head, r.head, each).note("the first of this CTA's heads");
    });
  }
  k.scope([&] {
    const Reg rows = k.b32("tile_rows");
    if (c.sink == Sink::quantize_blocks) k.ld_param_u32(rows, "block_rows");
    else k.mov_b32(rows, tile_rows(c));
    k.mul_lo_u32(first_, r.tile, rows);
    k.add_u32(r.end, first_, rows);
  });
  k.min_u32(r.end, r.end, r.seqlen);
  k.shr_u32(r.row, r.thread, log2_of(lanes));
  k.add_u32(r.row, r.row, first_);
}

// Where this thread's rows stand. With heads in turn that is kept in shared memory, each thread's own: two registers for each row
// would be some of the few. And first only L2 is asked for the words, so that cos and sin find registers to be loaded to at once.
void Packed::rows() {
  k.section("the first head's rows");
  const bool turns = takes_heads(c);
  if (turns) share_places();
  k.scope([&] {
    const Reg base = k.b64("x_base"), stride = k.b64("x_row_stride"), at = k.b64("x_at"), row = k.b32("x_row_index"), last = k.b32("x_last_row");
    tensor_base(k, base, "x", r.batch, r.head);
    k.mad_wide_u32(base, r.piece, 16, base);
    k.ld_param_u64(stride, "x_stride_seq");
    k.sub_u32(last, r.end, 1);
    for (int s = 0; s < steps(); ++s) {
      k.add_u32(row, r.row, s * r.at.rows_per_step());
      k.setp("lt", "u32", inside_[s], row, r.end);
      k.min_u32(row, row, last);
      k.cvt_u64_u32(at, row);
      k.mad_lo_u64(at, at, stride, base);
      if (!turns) {
        load_row(s, at);
        continue;
      }
      prefetch(at, nullptr);
      k.st_shared("b64", address(places_at_, 8 * r.at.threads * s), at);
    }
  });
  if (!turns || !c.has_output()) return;
  find_y();
  k.st_shared("b64", address(places_at_, 8 * r.at.threads * steps()), r.y_at);
}

void Packed::share_places() {
  k.static_shared("places", 8 * r.at.threads * (steps() + c.has_output()), 16);
  places_at_ = k.b32("places_at");
  k.mov_b32(places_at_, symbol("places"));
  k.mad_lo_u32(places_at_, r.thread, 8, places_at_);
}

void Packed::load_row(int step, const Reg& at, const Reg* when) {
  for (int v = 0; v < vectors(); ++v) {
    Instr& load = k.emit("ld.global.nc.L1::no_allocate.v4.b32", {r.vector(step, v), address(at, 16 * v * lanes)}, Location::current());
    if (when != nullptr) load.when(*when);
  }
}

void Packed::load_rows() {
  k.scope([&] {
    const Reg at = k.b64("x_at");
    for (int s = 0; s < steps(); ++s) {
      k.ld_shared("b64", at, address(places_at_, 8 * r.at.threads * s));
      load_row(s, at);
    }
  });
}

// Row `step` of the next head, and the one behind it to L2.
void Packed::next_rows(int step, const Reg& more, const Reg& more_yet) {
  k.scope([&] {
    const Reg at = k.b64("x_at"), stride = k.b64("head_stride"), place = places_at_;
    k.ld_shared("b64", at, address(place, 8 * r.at.threads * step));
    k.ld_param_u64(stride, "x_stride_head");
    k.add_u64(at, at, stride);
    k.st_shared("b64", address(place, 8 * r.at.threads * step), at);
    load_row(step, at, &more);
    k.add_u64(at, at, stride);
    prefetch(at, &more_yet);
  });
}

// Four lanes ask for all lines of a row.
void Packed::prefetch(const Reg& at, const Reg* when) {
  k.scope([&] {
    const Reg line = k.b64("line_at");
    k.mad_wide_u32(line, r.piece, c.head_dim / 2 - 16, at);
    Instr& asks = k.prefetch_global_L2(address(line));
    if (when != nullptr) asks.when(*when);
  });
}

// ---- cos and sin

// Of this lane's pairs in the line of row `step`.
void Packed::table_line(int step, const Reg& cos, const Reg& sin) {
  const int value_bytes = c.table == DataType::f32 ? 4 : 2, pairs = half() ? 8 : 4;
  k.scope([&] {
    const Reg line = k.b32("table_row"), last = k.b32("last_row");
    k.add_u32(line, r.row, step * r.at.rows_per_step());
    k.sub_u32(last, r.end, 1);
    k.min_u32(line, line, last);
    k.ld_param_u32(last, "position");
    k.add_u32(line, line, last);
    for (const auto& [at, name] : {std::pair{&cos, "cos"}, std::pair{&sin, "sin"}}) {
      k.ld_param_u64(*at, name);
      k.mad_wide_u32(*at, line, c.head_dim / 2 * value_bytes, *at);
      k.mad_wide_u32(*at, r.piece, pairs * value_bytes, *at);
    }
  });
}

// Words of this thread alone: no thread waits for another's. Half: cos of four pairs, then sin; interleaved: (cos, sin) of four.
void Packed::share_tables() {
  k.section("cos and sin to shared memory");
  k.scope([&] {
    const Reg cos = k.b64("cos_at"), sin = k.b64("sin_at");
    const bool f32 = c.table == DataType::f32;
    const Vec words = k.b32("table_word", 4), value = k.f32("table_value", 8), narrow = k.b32("narrow_pair", 4);
    for (int s = 0; s < steps(); ++s) {
      table_line(s, cos, sin);
      const int lane_bytes = (half() ? 8 : 4) * (f32 ? 4 : 2);
      for (int v = 0; v < (half() ? vectors() / 2 : vectors()); ++v) {
        const int offset = v * lanes * lane_bytes;
        if (half()) {
          for (int h : {0, 1}) {
            const int at = offset + h * lane_bytes / 2;
            if (f32) {
              k.ld_global_nc("v4.f32", value.slice(0, 4), address(cos, at));
              k.ld_global_nc("v4.f32", value.slice(4, 4), address(sin, at));
              for (int i = 0; i < 4; ++i) k.cvt_rn_x2_f32("bf16", words[i], value[2 * i + 1], value[2 * i]);
            } else {
              k.ld_global_nc("v2.b32", words.slice(0, 2), address(cos, at));
              k.ld_global_nc("v2.b32", words.slice(2, 2), address(sin, at));
            }
            store_table(words, s, 2 * v + h);
          }
          continue;
        }
        if (f32) {
          k.ld_global_nc("v4.f32", value.slice(0, 4), address(cos, offset));
          k.ld_global_nc("v4.f32", value.slice(4, 4), address(sin, offset));
          for (int i = 0; i < 4; ++i) k.cvt_rn_x2_f32("bf16", words[i], value[4 + i], value[i]);
        } else {
          k.ld_global_nc("v2.b32", narrow.slice(0, 2), address(cos, offset));
          k.ld_global_nc("v2.b32", narrow.slice(2, 2), address(sin, offset));
          for (int i = 0; i < 4; ++i) k.prmt_b32(words[i], narrow[i / 2], narrow[2 + i / 2], hex(i % 2 ? 0x7632 : 0x5410));
        }
        store_table(words, s, v);
      }
    }
  });
}

void Packed::store_table(const Vec& words, int step, int slot) {
  k.st_shared_v4_b32(address(tables_at_, 16 * r.at.threads * (step * vectors() + slot)), words.all());
}
// Of two rows.
void Packed::load_factors(int step, int slot) {
  for (int s : {0, 1})
    k.ld_shared_v4_b32(factor_.slice(4 * s, 4), address(tables_at_, 16 * r.at.threads * ((step + s) * vectors() + slot)));
}

// ---- B: H_16 with the signs

// B of m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"): lane 4g + t holds k = 2t, 2t + 1 and 8 more of column n = g. k and n
// are alike: bit 0 the pair, bits 1 and 2 the lane, bit 3 the word of half a piece. H_16[k][n] = -1 where k & n has an odd number of
// bits; row k has the sign of its column. A warp makes those of a piece: signs of 32 columns are one parameter.
// Magnitude 2^-ceil(log2(n) / 2), exact: rescale() is what is left.
void Packed::share_fragments() {
  k.section("H_16 with the signs of each piece to shared memory");
  const int halvings = (log2_of(hadamard_size(c.head_dim)) + 1) / 2, warps = r.at.threads / 32;
  k.static_shared("fragments", fragment_bytes * fragments() * vectors(), 16);
  fragments_at_ = k.b32("fragments_at");
  k.scope([&] {
    const Reg warp = k.b32("fragment_warp"), lane = k.b32("fragment_lane"), t = k.b32("fragment_t"), g = k.b32("fragment_g"),
              odd = k.b32("odd_bits"), plus = k.b32("h16_pair"), signs = k.b32("piece_signs"), at = k.b32("fragment_at");
    k.shr_u32(warp, r.thread, 5);
    k.and_b32(lane, r.thread, 31);
    k.mov_b32(fragments_at_, symbol("fragments"));
    k.mad_lo_u32(fragments_at_, lane, 16, fragments_at_);
    k.shl_b32(t, r.piece, 1);
    k.shr_u32(g, lane, 2);
    k.and_b32(t, t, g);
    k.popc_b32(odd, t);
    k.shl_b32(plus, odd, 15);
    k.and_b32(plus, plus, hex(0x8000)).note("k = 2t");
    k.add_u32(odd, odd, g);
    k.shl_b32(odd, odd, 31).note("k = 2t + 1: bit 0 of n too");
    k.or_b32(plus, plus, odd);
    k.xor_b32(plus, plus, hex(static_cast<std::uint32_t>(127 - halvings) * 0x00800080u));
    k.shl_b32(t, r.piece, 3).note("columns of this lane's piece");
    for (int first = 0; first < vectors(); first += warps) {
      k.mov_b32(signs, 0);
      k.scope([&] {
        const Reg is_it = k.pred("is_this_piece"), exists = k.pred("piece_exists");
        for (int v = first; v < std::min(first + warps, vectors()); ++v) {
          k.setp("eq", "u32", is_it, warp, v - first);
          k.ld_param_u32(signs, "signs_" + std::to_string(v)).when(is_it);
        }
        k.mad_lo_u32(at, warp, fragment_bytes * fragments(), fragments_at_);
        k.shr_u32(signs, signs, t);
        k.setp("lt", "u32", exists, warp, std::min(warps, vectors() - first));
        k.if_(exists, [&] { fragments_of(at, signs, plus, first); });
      });
    }
  });
}

void Packed::fragments_of(const Reg& at, const Reg& signs, const Reg& plus, int v) {
  k.scope([&] {
    const Vec word = k.b32("b_word", 2);
    const Reg low = k.b32("low_sign"), minus = k.b32("b_minus");
    const int base = fragment_bytes * fragments() * v;
    for (int h : {0, 1}) {
      for (int w : {0, 1}) {
        const int bit = 4 * h + 2 * w;
        k.shl_b32(word[w], signs, 30 - bit);
        k.and_b32(word[w], word[w], hex(0x80000000));
        k.shl_b32(low, signs, 15 - bit);
        k.lop3_b32(word[w], low, hex(0x8000), word[w], 0xEA).note("(a & b) | c");
        k.xor_b32(word[w], word[w], plus);
      }
      k.xor_b32(minus, word[1], hex(0x80008000)).note("k and n both of the second word");
      k.st_shared_v4_b32(address(at, base + fragment_bytes * h), std::vector<Reg>{word[0], word[1], word[0], minus});
      if (!interleaved()) continue;
      // x s of a pair's first goes to its second, that of the second, with a minus, to the first.
      for (int w : {0, 1}) {
        k.prmt_b32(word[w], word[w], word[w], hex(0x1032));
        k.xor_b32(word[w], word[w], hex(0x80000000));
      }
      k.xor_b32(minus, word[1], hex(0x80008000));
      k.st_shared_v4_b32(address(at, base + fragment_bytes * (2 + h)), std::vector<Reg>{word[0], word[1], word[0], minus}).note("turned");
    }
  });
}

// ---- A head's rows

// Whether `head` is still this CTA's. Heads a CTA are a power of two, so that no register holds which is the last.
void Packed::has_head(const Reg& is, const Reg& head) {
  k.scope([&] {
    const Reg each = k.b32("heads_per_cta"), left = k.pred("is_same_group");
    k.ld_param_u32(each, "heads_per_cta");
    k.sub_u32(each, each, 1);
    k.and_b32(each, each, head);
    k.setp("ne", "u32", left, each, 0);
    k.setp("lt", "u32", is, head, r.heads);
    k.and_pred(is, is, left);
  });
}

// A branch that is always taken: ptxas would load the tables and fragments of all pieces first, and spill what they displace.
// `i` differs, lest it makes one branch of two.
void Packed::apart(int i, const std::function<void()>& body) {
  k.scope([&] {
    const Reg count = k.b32("row_count"), always = k.pred("has_rows");
    k.ld_param_u32(count, "seqlen");
    k.add_u32(count, count, i);
    k.setp("ne", "u32", always, count, 0);
    k.if_(always, body);
  });
}

void Packed::transform() {
  k.section("RoPE, signs, Hadamard");
  int i = 0;
  for (int v = 0; v < (half() ? vectors() / 2 : vectors()); ++v)
    for (int h : {0, 1})
      apart(i++, [&] {
        load_fragment(0, v, h);
        if (half()) load_fragment(1, v + vectors() / 2, h);
        if (interleaved()) load_fragment(1, v, 2 + h);
        for (int s = 0; s < steps(); s += 2) {
          if (half()) rotate(s, v, h);
          else if (interleaved()) turn(s, v, h);
          else keep(s, v, h);
        }
      });
  between_pieces();
}

// To b_, the one that is to be number `to`.
void Packed::load_fragment(int to, int v, int i) {
  k.ld_shared_v4_b32(b_.slice(4 * to, 4), address(fragments_at_, fragment_bytes * (fragments() * v + i)));
}

// Words 2h and 2h + 1 of two rows, as A: rows g and g + 8.
std::vector<Reg> Packed::half_of(int step, int v, int h) const {
  const std::vector<Reg> a = r.vector(step, v), b = r.vector(step + 1, v);
  const std::size_t w = static_cast<std::size_t>(2 * h);
  return {a[w], b[w], a[w + 1], b[w + 1]};
}

// (a, b) -> (a cos - b sin, b cos + a sin), for half of piece v and of the one half a row further. ptxas makes one fma of mul and sub.
void Packed::rotate(int step, int v, int h) {
  const int further = v + vectors() / 2;
  const std::vector<Reg> first = half_of(step, v, h), second = half_of(step, further, h), to = product_.slice(0, 4), to_further = product_.slice(4, 4);
  load_factors(step, 2 * v + h);
  for (std::size_t i = 0; i < 4; ++i) {
    const Reg a = first[i], b = second[i], cos = factor_[static_cast<int>(4 * (i % 2) + i / 2)], sin = factor_[static_cast<int>(4 * (i % 2) + i / 2) + 2];
    k.mul_bf16x2(to[i], b, sin);
    k.mul_bf16x2(to_further[i], a, cos);
    k.sub_bf16x2(to[i], to_further[i], to[i]);
    k.mul_bf16x2(to_further[i], a, sin);
    k.fma_rn_bf16x2(to_further[i], b, cos, to_further[i]);
  }
  multiply(step, v, h, {to});
  multiply(step, further, h, {to_further}, 1);
}

// No RoPE: x apart from the words, which the first tile of the product overwrites.
void Packed::keep(int step, int v, int h) {
  const std::vector<Reg> x = half_of(step, v, h), kept = product_.slice(0, 4);
  for (std::size_t i = 0; i < 4; ++i) k.mov_b32(kept[i], x[i]);
  multiply(step, v, h, {kept});
}

// x cos and x sin of half a piece: the product with H_16 whose pairs are turned makes RoPE's sums.
void Packed::turn(int step, int v, int h) {
  const std::vector<Reg> x = half_of(step, v, h), by_cos = product_.slice(0, 4), by_sin = product_.slice(4, 4);
  if (h == 0 || steps() > 2) load_factors(step, v);
  k.scope([&] {
    const Vec each = k.b16("cos_sin", 2);
    const Reg both = k.b32("cos_cos"), sines = k.b32("sin_sin");
    for (std::size_t i = 0; i < 4; ++i) {
      k.mov_b32({each[0], each[1]}, factor_[static_cast<int>(4 * (i % 2) + i / 2) + 2 * h]);
      k.mov_b32(both, {each[0], each[0]});
      k.mov_b32(sines, {each[1], each[1]});
      k.mul_bf16x2(by_cos[i], x[i], both);
      k.mul_bf16x2(by_sin[i], x[i], sines);
    }
  });
  multiply(step, v, h, {by_cos, by_sin});
}

// Half of piece v, by H_16 and the signs: bits 0, 1, 3 and 4. The sum over `a`, each with its fragment, the first with `fragment`.
void Packed::multiply(int step, int v, int h, const std::vector<std::vector<Reg>>& a, int fragment) {
  for (int tile : {0, 1}) {
    const std::vector<Reg> d = sum_.slice(4 * tile, 4);
    for (std::size_t i = 0; i < a.size(); ++i)
      k.mma_sync("m16n8k16", "f32", "bf16", "bf16", d, a[i], b_.slice(4 * (fragment + static_cast<int>(i)) + 2 * tile, 2), i > 0 ? d : zero_.all());
    for (int s : {0, 1}) pack(r.vector(step + s, v)[static_cast<std::size_t>(2 * h + tile)], d[static_cast<std::size_t>(2 * s)], d[static_cast<std::size_t>(2 * s + 1)]);
  }
}

void Packed::pack(const Reg& word, const Reg& even, const Reg& odd) {
  if (to_f16()) {
    k.mul_f32(even, even, scales_->inverse);
    k.mul_f32(odd, odd, scales_->inverse);
  }
  k.cvt_rn_x2_f32(mixed_type(), word, odd, even);
}

// (a, b) -> (a + b, a - b)
void Packed::butterfly(const Reg& a, const Reg& b) {
  const std::string type = std::string(mixed_type()) + "x2";
  k.emit("sub." + type, {other_, a, b}, Location::current());
  k.emit("add." + type, {a, a, b}, Location::current());
  k.mov_b32(b, other_);
}

// Bits 2 (a piece's halves), 5 and up.
void Packed::between_pieces() {
  const int mixed = hadamard_size(c.head_dim) / 32;
  for (int s = 0; s < steps(); ++s)
    for (int v = 0; v < vectors(); ++v)
      for (std::size_t w : {std::size_t{0}, std::size_t{1}}) butterfly(r.vector(s, v)[w], r.vector(s, v)[w + 2]);
  for (int m = mixed / 2; m >= 1; m /= 2)
    for (int s = 0; s < steps(); ++s)
      for (int v = 0; v < vectors(); ++v)
        for (std::size_t w = 0; w < 4; ++w)
          if (!(v & m)) butterfly(r.vector(s, v)[w], r.vector(s, v + m)[w]);
}

void Packed::find_y() {
  k.scope([&] {
    const Reg wide = k.b64("y_row"), stride = k.b64("y_row_stride");
    k.ld_param_u64(stride, "y_stride_seq");
    tensor_base(k, r.y_at, "y", r.batch, r.head);
    k.cvt_u64_u32(wide, r.row);
    k.mad_lo_u64(r.y_at, wide, stride, r.y_at);
    k.mad_wide_u32(r.y_at, r.piece, 8, r.y_at);
  });
}

void Packed::next_y() {
  k.scope([&] {
    const Reg stride = k.b64("head_stride"), at = k.b64("next_y_at");
    const int offset = 8 * r.at.threads * steps();
    k.ld_shared("b64", r.y_at, address(places_at_, offset));
    k.ld_param_u64(stride, "y_stride_head");
    k.add_u64(at, r.y_at, stride);
    k.st_shared("b64", address(places_at_, offset), at);
  });
}

// H_16 has the whole power of two in 1 / sqrt(n), up: half of an odd one is left. Neither sums nor words exceed the result so.
void Packed::rescale(const Reg& value) {
  if (log2_of(hadamard_size(c.head_dim)) % 2 != 0) k.mul_f32(value, value, f32_imm(static_cast<float>(std::sqrt(2.0))));
}

// From words that are no longer needed to those of the next head, `more` where there is one.
void Packed::one_head(const Reg* more) {
  if (c.sink == Sink::quantize) {
    scales_->read();
    rescale(scales_->inverse);
  }
  transform();
  if (c.sink != Sink::quantize) {
    k.section("the largest magnitude");
    k.mov_b32(r.thread, special("tid.x"));  // what a register need not hold while words fill them
    k.mov_b32(r.batch, special("ctaid.y"));
    scales_->clear();
    for (int s = 0; s < steps(); ++s) scales_->take_words(s);
  }
  Reg more_yet;
  if (more != nullptr) {
    more_yet = k.pred("has_more_yet");
    k.scope([&] {
      const Reg next = k.b32("next_head"), flag = k.b32("prefetch_tables"), wanted = k.pred("wants_rows");
      k.add_u32(next, r.head, 1);
      has_head(*more, next);
      k.add_u32(next, next, 1);
      has_head(more_yet, next);
      k.ld_param_u32(flag, "prefetch_tables");
      k.setp("ne", "u32", wanted, flag, 0);
      k.and_pred(more_yet, more_yet, *more);
      k.and_pred(more_yet, more_yet, wanted);
      k.mov_b32(r.piece, special("tid.x"));
      k.and_b32(r.piece, r.piece, lanes - 1);
    });
  }
  const auto next = [&](int s) {
    if (more != nullptr) next_rows(s, *more, more_yet);
  };
  if (c.sink == Sink::amax)
    for (int s = 0; s < steps(); ++s) next(s);
  if (c.sink != Sink::quantize) scales_->reduce();
  if (c.sink != Sink::quantize) rescale(scales_->largest);
  if (c.sink == Sink::amax) return scales_->add_to_amax();
  if (c.sink == Sink::quantize_blocks) {
    scales_->write_block();
    rescale(scales_->inverse);
  }
  k.section("to 8 bits, and the next head's rows");
  if (more != nullptr) next_y();
  else find_y();
  for (int s = 0; s < steps(); ++s) {
    if (to_f16()) scales_->quantize_halves(s, inside_[s]);
    else scales_->quantize_words(s, inside_[s]);
    if (s + 1 < steps()) {
      k.scope([&] {
        const Reg bytes = k.b64("step_bytes");
        k.ld_param_u64(bytes, "y_stride_seq");
        k.mad_lo_u64(r.y_at, bytes, r.at.rows_per_step(), r.y_at);
      });
    }
    next(s);
  }
}

void Packed::emit() {
  k.min_ctas_per_sm(rows_ctas_per_sm(c));
  coordinates();
  r.declare();
  b_ = k.b32("b_pair", 8), sum_ = k.f32("sum", 8), zero_ = k.f32("no_sum", 4), other_ = k.b32("other");
  if (rope()) factor_ = k.b32("factor", 8);
  product_ = k.b32("product", rope() ? 8 : 4);
  for (const Reg& z : zero_.all()) k.mov_f32(z, f32_imm(0));
  scales_ = std::make_unique<Scales>(r);
  rows();
  if (rope()) {
    k.dynamic_shared("tables", 16);
    tables_at_ = k.b32("tables_at");
    k.mov_b32(tables_at_, symbol("tables"));
    k.mad_lo_u32(tables_at_, r.thread, 16, tables_at_);
    apart(2 * vectors(), [&] {
      k.bar_sync_all(0).note("for ptxas, which would ask L2 only when the rows are loaded");
      share_tables();
    });
    load_rows();
  }
  share_fragments();
  k.bar_sync_all(0).note("fragments, written while rows are on their way");
  if (!takes_heads(c)) return one_head(nullptr);
  const Reg more = k.pred("has_more_heads");
  k.loop("heads", [&] {
    one_head(&more);
    k.add_u32(r.head, r.head, 1);
    return more;
  });
}

}  // namespace

bool packs(const PrepareConfig& c) {
  if (c.sink != Sink::quantize && c.sink != Sink::quantize_blocks && c.sink != Sink::amax) return false;
  return c.hadamard == Hadamard::forward && c.in == DataType::bf16 && c.head_dim % 64 == 0 && c.lanes == 0 && !c.transposed &&
         (c.sink != Sink::quantize_blocks || (c.rows >= 16 && c.rows <= packed_rows));
}

RowLayout packed_layout(const PrepareConfig& c) {
  RowLayout at;
  at.lanes = lanes, at.vectors = c.head_dim / 8 / lanes;
  const bool blocks = c.sink == Sink::quantize_blocks;  // else a tile is as the threads want it
  at.threads = c.threads != 0 ? c.threads : (blocks ? c.rows : packed_rows) * lanes / 2;
  at.steps = blocks ? c.rows * lanes / at.threads : 2;
  return at;
}

int packed_shared_bytes(const PrepareConfig& c) { return c.rope == Rope::none ? 0 : tile_rows(c) * c.head_dim * 2; }

void emit_packed(Kernel& k, const PrepareConfig& c) { Packed(k, c).emit(); }

}  // namespace flashptx::gen
