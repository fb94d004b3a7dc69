// The steps of a row on its way: RoPE and the Hadamard transform with random signs.
//
// Of log2(n) butterfly stages four are one product with H_16 on the tensor cores (below), which take the 16-bit words
// as they are, and up to two more its sums over pieces; the others run between a thread's values in f32. So no value crosses
// lanes by a shuffle where four lanes share a row. Narrow rows, and RoPE whose result is stored, take f32 butterflies and shuffles throughout.
// Next: prepare_scales.cpp.
#include <algorithm>
#include <cmath>

#include "gen/kernels/prepare_rows.h"

namespace flashptx::gen {
namespace {

constexpr int piece_elems = 8;

}  // namespace

// H_16 goes over bits 0, 1, 3 and 4 of the column: a pair, the words of half a piece, and the four lanes of an mma row.
bool mixes_by_mma(const PrepareConfig& c, const RowLayout& at) {
  return c.hadamard != Hadamard::none && at.lanes >= 4 && hadamard_size(c.head_dim) >= piece_elems * at.lanes &&
         !(c.rope != Rope::none && c.sink == Sink::store);
}

void unpack(Rows& r, DataType type, const Reg& even, const Reg& odd, const Reg& word) {
  Kernel& k = r.k;
  if (type == DataType::bf16) {  // the upper half of an f32; ptxas makes two instructions of cvt
    k.shl_b32(r.bits, word, 16);
    k.mov_b32(even, r.bits);
    k.and_b32(r.bits, word, hex(0xffff0000u));
    k.mov_b32(odd, r.bits);
    return;
  }
  k.mov_b32({r.half[0], r.half[1]}, word);
  for (int i = 0; i < 2; ++i) {
    k.cvt_f32_f16(i == 0 ? even : odd, r.half[i]);
  }
}

Steps::Steps(Rows& rows) : r_(rows) {
  Kernel& k = r_.k;
  const PrepareConfig& c = r_.c;
  if (c.hadamard != Hadamard::none) {
    k.section("signs and H_16 to shared memory");
    share_signs();
    if (mixes_by_mma(c, r_.at)) share_h16();
    signs_ = k.b32("sign_mask", 4);
    signs_at_ = k.b32("signs_at");
    k.mov_b32(signs_at_, symbol("sign_masks"));
    k.mad_lo_u32(signs_at_, r_.piece, 16, signs_at_);
    other_ = k.f32("other");
  }
  if (mixes_by_mma(c, r_.at)) {
    declare_mma();
  } else if (c.hadamard != Hadamard::none) {
    lane_sign_ = k.f32("lane_sign", 3);
    k.scope([&] {
      const Reg bit = k.b32("lane_bit"), set = k.pred("is_upper_lane");
      for (int m = 1, i = 0; m < r_.at.lanes; m *= 2, ++i) {
        k.and_b32(bit, r_.piece, m);
        k.setp("ne", "u32", set, bit, 0);
        k.selp_f32(lane_sign_[i], f32_imm(-1), f32_imm(1), set);
      }
    });
  }
  if (c.rope != Rope::none) {
    held_ = holds_table(c, r_.at);
    const int pairs = held_ ? 4 * r_.at.vectors : 4;
    cosine_ = k.f32("cosine", pairs), sine_ = k.f32("sine", pairs);
    if (c.table == DataType::bf16)
      for (const char* name : {"cosine_pair", "sine_pair"}) table_words_.push_back(k.b32(name, c.rope == Rope::half ? 4 : 2));
    cos_at_ = k.b64("cos_at"), sin_at_ = k.b64("sin_at");
    turned_ = k.f32("turned", 2);
  }
}

// The signs in shared memory as masks for pairs of 16-bit values, bits 15 and 31: 16 bytes cover a piece.
void Steps::share_signs() {
  Kernel& k = r_.k;
  const int pairs = r_.c.head_dim / 2, threads = r_.at.threads;
  k.static_shared("sign_masks", 4 * pairs, 16);
  k.scope([&] {
    const Reg pair = k.b32("column_pair"), word = k.b32("sign_bits"), which = k.b32("sign_word"), t = k.b32("sign_shift"),
              mask = k.b32("pair_mask"), is_it = k.pred("is_this_word"), exists = k.pred("pair_exists");
    for (int first = 0; first < pairs; first += threads) {
      k.add_u32(pair, r_.thread, first);
      k.setp("lt", "u32", exists, pair, pairs);
      k.if_(exists, [&] {
        k.shr_u32(which, pair, 4);
        k.mov_b32(word, 0);
        for (int w = 0; w < (pairs + 15) / 16; ++w) {
          k.setp("eq", "u32", is_it, which, w);
          k.ld_param_u32(word, "signs_" + std::to_string(w)).when(is_it);
        }
        k.and_b32(t, pair, 15);
        k.shl_b32(t, t, 1);
        k.shr_u32(word, word, t).note("bits 0 and 1: the pair's");
        k.shl_b32(mask, word, 15);
        k.and_b32(mask, mask, hex(0x8000));
        k.shl_b32(word, word, 30);
        k.lop3_b32(mask, word, hex(0x80000000), mask, 0xEA).note("(a & b) | c");
        k.mov_b32(t, symbol("sign_masks"));
        k.mad_lo_u32(t, pair, 4, t);
        k.st_shared_u32(address(t), mask);
      });
    }
  });
}

void Steps::load_signs(int v) { r_.k.ld_shared_v4_b32(signs_.all(), address(signs_at_, 16 * v * r_.at.lanes)); }

void Steps::apply(int step, const std::function<void(int v)>& take) {
  const bool forward = r_.c.hadamard == Hadamard::forward, by_mma = mixes_by_mma(r_.c, r_.at);
  const bool rounds = r_.c.rope != Rope::none && forward && r_.c.sink != Sink::store;
  const int vectors = r_.at.vectors;
  // What the transform reads: of an mma apart from the words, which its first results overwrite.
  const auto input = [&](int v) { return by_mma ? piece(row_, v) : r_.vector(step, v); };
  if (r_.c.rope != Rope::none) {
    if (!held_) table_address(loads_ahead(r_.c, r_.at) ? 0 : step);  // there `step` is a place for words
    const bool half = r_.c.rope == Rope::half;
    const int partner = half ? vectors / 2 : vectors;  // a pair's second vector is so much further
    for (int v = 0; v < partner; ++v)
      for (int word = 0; word < 4; word += half ? 2 : 4)  // four pairs at a time, so that few are unpacked at once
        for (int part : {0, 1, 2})
          for (int i = v; i < vectors; i += partner) {
            const Words w{word, half ? 2 : 4};
            if (part == 0) unpack_vector(r_.c.in, step, i, w);
            if (part == 1 && i == v) rope(v, word);
            if (part == 2 && rounds) round_and_flip(input(i), i, w);
          }
    if (forward && !rounds) apply_signs_f32();
  } else if (forward) {
    for (int v = 0; v < vectors; ++v) flip(input(v), r_.vector(step, v), v);
  } else if (by_mma) {
    for (int i = 0; i < 4 * vectors; ++i) r_.k.mov_b32(row_[i], r_.words[4 * vectors * step + i]);
  }
  if (by_mma) return hadamard_by_mma(take);
  if (rounds || r_.c.rope == Rope::none)
    for (int v = 0; v < vectors; ++v) unpack_vector(rounds ? DataType::bf16 : r_.c.in, step, v, {0, 4});
  if (r_.c.hadamard != Hadamard::none) hadamard();
  for (int v = 0; v < vectors; ++v) take(v);
}

void Steps::flip(const std::vector<Reg>& to, const std::vector<Reg>& from, int v) {
  load_signs(v);
  for (std::size_t j = 0; j < 4; ++j) r_.k.xor_b32(to[j], from[j], signs_[static_cast<int>(j)]);
}

void Steps::unpack_vector(DataType type, int step, int v, Words w) {
  for (int j = w.first; j < w.first + w.count; ++j) {
    const int at = piece_elems * v + 2 * j;
    unpack(r_, type, r_.value[at], r_.value[at + 1], r_.vector(step, v)[static_cast<std::size_t>(j)]);
  }
}

// What RoPE made, as bf16 with the signs of the transform.
void Steps::round_and_flip(const std::vector<Reg>& to, int v, Words w) {
  const std::string wide = "v" + std::to_string(w.count) + ".b32";
  r_.k.ld_shared(wide, signs_.slice(0, w.count), address(signs_at_, 16 * v * r_.at.lanes + 4 * w.first));
  for (int i = 0; i < w.count; ++i) {
    const int at = piece_elems * v + 2 * (w.first + i);
    const Reg word = to[static_cast<std::size_t>(w.first + i)];
    r_.k.cvt_rn_x2_f32("bf16", word, r_.value[at + 1], r_.value[at]);
    r_.k.xor_b32(word, word, signs_[i]);
  }
}

// How many pieces of a thread the transform mixes, and of them how many by mma.
int Steps::mixed() const { return hadamard_size(r_.c.head_dim) / (piece_elems * r_.at.lanes); }
int Steps::mixed_by_mma() const { return std::min(mixed(), r_.at.lanes == 8 ? 2 : 4); }

// B of m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"): lane 4g + t holds k = 2t, 2t + 1 and 8 more of column
// n = g. H_16[k][n] = -1 where k & n has an odd number of bits, so that all registers are one word up to its sign. Its
// magnitude is the whole power of two in 1 / sqrt(size), exact in both types. Columns n and n + 8, and where pieces are
// mixed both with a minus: two or four pairs, which the last warp makes. (From shared memory, for ptxas would keep one
// word and move it to a pair of registers before each mma.)
void Steps::share_h16() {
  Kernel& k = r_.k;
  const bool f16 = mma_type() == DataType::f16;
  const int halvings = log2_of(hadamard_size(r_.c.head_dim)) / 2, pairs = mixed() > 1 ? 4 : 2;
  const int one = f16 ? (15 - halvings) << 10 : (127 - halvings) << 7;
  k.static_shared("h16_pairs", 32 * 8 * pairs, 16);
  k.scope([&] {
    const Reg makes = k.pred("makes_h16"), at = k.b32("h16_at");
    k.setp("ge", "u32", makes, r_.thread, r_.at.threads - 32);
    k.if_(makes, [&] {
      const Reg t = k.b32("h16_t"), g = k.b32("h16_g"), odd = k.b32("h16_odd"), plus = k.b32("h16_plus"), minus = k.b32("h16_minus");
      k.and_b32(t, r_.thread, 3);
      k.shl_b32(t, t, 1);
      k.shr_u32(g, r_.thread, 2);
      k.and_b32(g, g, 7);
      k.and_b32(t, t, g);
      k.popc_b32(odd, t);
      k.shl_b32(plus, odd, 15);
      k.and_b32(plus, plus, hex(0x8000)).note("k = 2t");
      k.add_u32(odd, odd, g);
      k.shl_b32(odd, odd, 31).note("k = 2t + 1: bit 0 of n too");
      k.or_b32(plus, plus, odd);
      k.xor_b32(plus, plus, hex(static_cast<std::uint32_t>(one) * 0x10001u));
      k.xor_b32(minus, plus, hex(0x80008000u));
      k.mov_b32(at, symbol("h16_pairs"));
      k.and_b32(t, r_.thread, 31);
      k.mad_lo_u32(at, t, 16, at);
      k.st_shared_v4_b32(address(at), std::vector<Reg>{plus, plus, plus, minus}).note("n, n + 8");
      if (pairs == 4) k.st_shared_v4_b32(address(at, 512), std::vector<Reg>{minus, minus, minus, plus});
    });
  });
}

void Steps::declare_mma() {
  Kernel& k = r_.k;
  h16_ = k.b32("h16_pair", mixed() > 1 ? 8 : 4), zero_ = k.f32("no_sum", 4);
  row_ = k.b32("row_pair", 4 * r_.at.vectors);
  for (const Reg& z : zero_.all()) k.mov_f32(z, f32_imm(0));
  if (r_.at.lanes != 8) return;
  own_ = k.b32("own_pair", 4 * r_.at.vectors), upper_ = k.b32("upper_mask");
  k.scope([&] {
    const Reg upper = k.b32("upper_lane"), low = k.b32("low_half");
    k.and_b32(upper, r_.piece, 4);
    k.shl_b32(low, upper, 13);
    k.shl_b32(upper_, upper, 29);
    k.or_b32(upper_, upper_, low).note("0x80008000 in the upper four of a row's lanes");
  });
}

// Not held from row to row: registers are what bounds the rows in flight.
void Steps::load_h16() {
  Kernel& k = r_.k;
  k.scope([&] {
    const Reg at = k.b32("h16_at"), lane = k.b32("h16_lane");
    k.mov_b32(lane, special("tid.x"));
    k.and_b32(lane, lane, 31);
    k.mov_b32(at, symbol("h16_pairs"));
    k.mad_lo_u32(at, lane, 16, at);
    for (int i = 0; i < h16_.size(); i += 4) k.ld_shared_v4_b32(h16_.slice(i, 4), address(at, 128 * i));
  });
}

// Where eight lanes share a row, bit 5 of the column is bit 2 of the lane: (own + other, other - own), summed by mma.
void Steps::meet_other_lanes() {
  Kernel& k = r_.k;
  for (int i = 0; i < row_.size(); ++i) {
    k.xor_b32(own_[i], row_[i], upper_);
    k.shfl_sync_bfly_b32(row_[i], row_[i], 4);
  }
}

// Words n and n + 2 of piece v: the sum over `count` pieces from `first` of +-H_16 times them, which is a stage of the
// transform for each doubling of count. A piece's halves are two rows of A; columns 0 to 7 and 8 to 15 of the product are
// words 0 and 1 of a half.
void Steps::multiply_h16(int first, int count, int v, int n) {
  Kernel& k = r_.k;
  const char* type = to_string(mma_type());
  const int at = piece_elems * v + 2 * n;
  const std::vector<Reg> d = {r_.value[at], r_.value[at + 1], r_.value[at + 4], r_.value[at + 5]};
  bool adds = false;
  for (int i = 0; i < count; ++i) {
    const int minus = __builtin_parity(static_cast<unsigned>(i & (v - first)));
    for (const Vec* from : {&row_, &own_}) {
      if (from == &own_ && r_.at.lanes != 8) continue;
      const std::vector<Reg> a = piece(*from, first + i);
      k.mma_sync("m16n8k16", "f32", type, type, d, {a[0], a[2], a[1], a[3]}, h16_.slice(4 * minus + 2 * n, 2), adds ? d : zero_.all());
      adds = true;
    }
  }
}

// Bit 2 of the column, of these words.
void Steps::within_piece(int v, int n) {
  Kernel& k = r_.k;
  const float half_power = static_cast<float>(std::sqrt(0.5));
  const bool scales = log2_of(hadamard_size(r_.c.head_dim)) % 2 != 0;
  for (int i = piece_elems * v + 2 * n; i < piece_elems * v + 2 * n + 2; ++i) {
    if (!scales) {
      butterfly(r_.value[i], r_.value[i + 4]);
      continue;
    }
    k.mul_f32(other_, r_.value[i], f32_imm(half_power)).note(i ? "" : "what is left of 1 / sqrt(n)");
    k.fma_rn_f32(r_.value[i], r_.value[i + 4], f32_imm(half_power), other_);
    k.fma_rn_f32(r_.value[i + 4], r_.value[i + 4], f32_imm(-half_power), other_);
  }
}

// H_16 and up to two stages between a thread's pieces by mma, which costs an instruction for 32 values where a stage by
// additions takes 32; the others, in f32, within the thread.
void Steps::hadamard_by_mma(const std::function<void(int v)>& take) {
  load_h16();
  if (r_.at.lanes == 8) meet_other_lanes();
  for (int first = 0; first < r_.at.vectors; first += mixed())
    for (int low = 0; low < mixed_by_mma(); ++low) {
      for (int n : {0, 1}) between_pieces(first, low, n);
      for (int v = first + low; v < first + mixed(); v += mixed_by_mma()) take(v);
    }
}

// Words n and n + 2 of the pieces first + low, and those further by what mma mixes.
void Steps::between_pieces(int first, int low, int n) {
  const int by_mma = mixed_by_mma();
  for (int i = first; i < first + mixed(); i += by_mma) {
    multiply_h16(i, by_mma, i + low, n);
    within_piece(i + low, n);
  }
  for (int m = by_mma; m < mixed(); m *= 2)
    for (int i = 0; i < mixed(); i += by_mma)
      for (int j : {0, 1, 4, 5}) {
        const int at = piece_elems * (first + i + low) + 2 * n + j;
        if (!(i & m)) butterfly(r_.value[at], r_.value[at + piece_elems * m]);
      }
}

void Steps::pack(DataType type, int step, int v) {
  Kernel& k = r_.k;
  const bool inverse = r_.c.hadamard == Hadamard::inverse;
  if (inverse) load_signs(v);
  for (int j = 0; j < 4; ++j) {
    const Reg word = r_.vector(step, v)[static_cast<std::size_t>(j)];
    k.cvt_rn_x2_f32(to_string(type), word, r_.value[piece_elems * v + 2 * j + 1], r_.value[piece_elems * v + 2 * j]);
    if (inverse) k.xor_b32(word, word, signs_[j]);
  }
}

// A pair's first element has the lower half of the mask.
void Steps::apply_signs_f32() {
  Kernel& k = r_.k;
  k.scope([&] {
    const Reg bits = r_.bits, sign = k.b32("sign");
    for (int i = 0; i < 8 * r_.at.vectors; ++i) {
      if (i % 8 == 0) load_signs(i / 8);
      const Reg mask = signs_[i % 8 / 2], value = r_.value[i];
      if (i % 2 == 0) k.shl_b32(sign, mask, 16);
      else k.and_b32(sign, mask, hex(0x80000000));
      k.mov_b32(bits, value);
      k.xor_b32(bits, bits, sign);
      k.mov_b32(value, bits);
    }
  });
}

int table_line_bytes(const PrepareConfig& c) { return c.head_dim / 2 * (c.table == DataType::f32 ? 4 : 2); }
int table_lane_bytes(const PrepareConfig& c) { return (c.rope == Rope::half ? 8 : 4) * (c.table == DataType::f32 ? 4 : 2); }

void table_lines(Rows& r, int step, const Reg& end, const Reg& cos, const Reg& sin) {
  Kernel& k = r.k;
  k.scope([&] {
    const Reg line = k.b32("table_row"), last = k.b32("last_row");
    k.add_u32(line, r.row, step * r.at.rows_per_step());
    k.sub_u32(last, end, 1);
    k.min_u32(line, line, last);
    k.ld_param_u32(last, "position");
    k.add_u32(line, line, last);
    for (const auto& [at, name] : {std::pair{&cos, "cos"}, std::pair{&sin, "sin"}}) {
      k.ld_param_u64(*at, name);
      k.mad_wide_u32(*at, line, table_line_bytes(r.c), *at);
      k.mad_wide_u32(*at, r.piece, table_lane_bytes(r.c), *at);
    }
  });
}

void Steps::table_address(int step) { table_lines(r_, step, r_.seqlen, cos_at_, sin_at_); }

// The lines of cos and sin of all steps to L1, while x is on its way: where registers hold the table of one row at a time
// each step would wait for L2 anew. Lanes that share a line of the cache ask as one.
void Steps::prefetch_tables() {
  Kernel& k = r_.k;
  k.scope([&] {
    const Reg wanted = k.pred("wants_tables"), flag = k.b32("prefetch_tables");
    k.ld_param_u32(flag, "prefetch_tables");
    k.setp("ne", "u32", wanted, flag, 0);
    k.if_(wanted, [&] {
      for (int step = 0; step < r_.at.steps; ++step) {
        table_address(step);
        for (int more = 0; more < table_line_bytes(r_.c); more += r_.at.lanes * table_lane_bytes(r_.c))
          for (const Reg& at : {cos_at_, sin_at_}) k.emit("prefetch.global.L1", {address(at, more)}, Location::current());
      }
    });
  });
}

// Where in cosine_ and sine_ the pairs of vector v stand that begin with this word.
int Steps::table_slot(int v, int word) const { return !held_ ? 0 : r_.c.rope == Rope::half ? 8 * v + 2 * word : 4 * v; }

void Steps::hold_table() {
  const bool half = r_.c.rope == Rope::half;
  table_address(0);
  for (int v = 0; v < (half ? r_.at.vectors / 2 : r_.at.vectors); ++v)
    for (int word = 0; word < 4; word += half ? 2 : 4) load_table(v, word);
}

// For four pairs of vector v: all that it has (interleaved), or those of two words with the other half's vector.
void Steps::load_table(int v, int word) {
  Kernel& k = r_.k;
  const bool f32 = r_.c.table == DataType::f32;
  const int offset = v * r_.at.lanes * table_lane_bytes(r_.c) + 2 * word * (f32 ? 4 : 2);
  const int slot = table_slot(v, word);
  const Vec* words = table_words_.data();
  for (const auto& [to, from] : {std::pair{&cosine_, &cos_at_}, std::pair{&sine_, &sin_at_}}) {
    if (f32) {
      k.ld_global("v4.f32", to->slice(slot, 4), address(*from, offset));
      continue;
    }
    // Of eight pairs both halves at once.
    if (word == 0) k.ld_global(table_lane_bytes(r_.c) == 16 ? "v4.b32" : "v2.b32", words->all(), address(*from, offset));
    for (int i = 0; i < 2; ++i) unpack(r_, DataType::bf16, (*to)[slot + 2 * i], (*to)[slot + 2 * i + 1], (*words)[word + i]);
    ++words;
  }
}

// (a, b) -> (a cos - b sin, b cos + a sin), for the pairs of vector v that begin with this word
void Steps::rope(int v, int word) {
  Kernel& k = r_.k;
  const bool half = r_.c.rope == Rope::half;
  const int slot = table_slot(v, word);
  if (!held_) load_table(v, word);
  for (int i = 0; i < 4; ++i) {
    const Reg a = r_.value[piece_elems * v + (half ? 2 * word + i : 2 * i)];
    const Reg b = half ? r_.value[piece_elems * (v + r_.at.vectors / 2) + 2 * word + i] : r_.value[piece_elems * v + 2 * i + 1];
    k.mul_f32(turned_[0], b, sine_[slot + i]);
    k.neg_f32(turned_[0], turned_[0]);
    k.mul_f32(turned_[1], a, sine_[slot + i]);
    k.fma_rn_f32(a, a, cosine_[slot + i], turned_[0]);
    k.fma_rn_f32(b, b, cosine_[slot + i], turned_[1]);
  }
}

// (a, b) -> (a + b, a - b)
void Steps::butterfly(const Reg& a, const Reg& b) {
  Kernel& k = r_.k;
  k.sub_f32(other_, a, b);
  k.add_f32(a, a, b);
  k.mov_f32(b, other_);
}

void Steps::hadamard() {
  Kernel& k = r_.k;
  const int size = hadamard_size(r_.c.head_dim), count = r_.value.size();
  const float norm = static_cast<float>(1 / std::sqrt(static_cast<double>(size)));
  for (int i = 0; i < count; i += 2) {
    k.mul_f32(other_, r_.value[i], f32_imm(norm)).note(i ? "" : "the first stage scales by 1 / sqrt(n)");
    k.fma_rn_f32(r_.value[i], r_.value[i + 1], f32_imm(norm), other_);
    k.fma_rn_f32(r_.value[i + 1], r_.value[i + 1], f32_imm(-norm), other_);
  }
  // In value's index: bits 1 and 2 stand within a piece, those above between the thread's pieces.
  const int in_thread = piece_elems * size / (piece_elems * r_.at.lanes);
  for (int m = 2; m < in_thread; m *= 2)
    for (int i = 0; i < count; ++i)
      if (!(i & m)) butterfly(r_.value[i], r_.value[i + m]);
  for (int m = 1, s = 0; m < r_.at.lanes; m *= 2, ++s)
    for (int i = 0; i < count; ++i) {
      k.shfl_sync_bfly_b32(other_, r_.value[i], m);
      k.fma_rn_f32(r_.value[i], r_.value[i], lane_sign_[s], other_).note(i ? "" : "between lanes");
    }
}

}  // namespace flashptx::gen
