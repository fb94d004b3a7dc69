// How a CTA of the preparation kernels holds rows, and the registers that go with it.
//
// A row of head_dim 16-bit values is `vectors` x `lanes` pieces of 16 bytes: lane p of the row's group holds the
// pieces v * lanes + p, so that a load reads neighbouring pieces and the partners of RoPE (half a row away) and
// of most Hadamard stages stand in the same thread. `steps` rows per thread are in flight at once.
//
// What binds: an SM moves 27 KB/us at the speed of a copy (H200, 3.57 TB/s) and issues 224 lane instructions a ns. From
// the SASS: lane instructions a value, and their share of the slots at a copy's speed.
//                                    d = 64       d = 128      d = 256
//   hadamard + blocks of 128           9.9 40 %     8.8 35 %   10.5 42 %   (d = 64: blocks of 64)
//   hadamard + quantize                7.3 29 %     7.6 30 %
//   rope half + hadamard + blocks     14.6 59 %    15.3 62 %   14.7 59 %
// With RoPE, Hadamard and blocks of 128 no unit is full: 64 to 77 % of a copy's speed, ncu at d = 128: issue 54 %, L1 63 %, L2 58 %, DRAM
// 40 %. RoPE alone moves as many bytes at a copy's speed, Hadamard with blocks 84 to 93 % of it: a block's phases (rows and tables, transform,
// magnitude, store) follow one another, and their registers leave 22 warps an SM to hide that. Tried (tools/bench/results/prepare_wgmma_variants_h200.csv
// and prepare_ring_h200.csv), none taken: the whole transform as one wgmma with the signs in its matrix and cos and sin in shared memory for all
// heads, 8 instructions a value in place of 15 (predicted 31 to 34 us, measured 37 to 46: a copy's share - 4 to + 6 % by case, another run each; issue 32 %, L2 76 %); CTAs that stay
// on their SM with rings of rows and that wgmma's A in shared memory (predicted 33 to 36, measured 51 to 77); four lanes a row.
// What keeps instructions few: bf16 unpacked by a shift and a
// mask, for ptxas makes three instructions of two conversions; integer divisions; scales computed by all threads; stages of the
// transform by mma that were additions; words of B kept in pairs of registers (moves otherwise, one for two mma).
// Taken, where it is faster: two values a register all the way, prepare_packed.cpp (PrepareConfig::packed). By default blocks with RoPE and
// Hadamard are at 65 to 79 % of a copy's speed (half with f32 tables 76 %, where these kernels are at 64 to 72 %), per head half at 80 %.
// Next: prepare_rows.cpp (the frame of a kernel), prepare_steps.cpp (RoPE, Hadamard), prepare_scales.cpp.
#pragma once

#include "gen/kernels/prepare_kernels.h"

namespace flashptx::gen {

struct RowLayout {
  int lanes = 4;     // threads that share a row: a power of two
  int vectors = 4;   // 16-byte pieces of a row in each
  int threads = 256;
  int steps = 1;     // rows that a thread holds
  int trips = 1;     // of a streaming sink: times a CTA does that
  int rows_per_step() const { return threads / lanes; }
  int rows() const { return rows_per_step() * steps; }
  int pieces() const { return lanes * vectors; }
};
RowLayout row_layout(const PrepareConfig& c);
RowLayout packed_layout(const PrepareConfig& c);  // of config.packed
bool holds_table(const PrepareConfig& c, const RowLayout& at);  // cos and sin in registers, for all heads
bool loads_ahead(const PrepareConfig& c, const RowLayout& at);  // a head's rows while the one before is computed

// Everything the parts of a kernel share. `words`: the 16-bit pairs as held, vector after vector, step after step.
struct Rows {
  Rows(Kernel& kernel, const PrepareConfig& config);
  Kernel& k;
  const PrepareConfig& c;
  const RowLayout at;
  // bf16 holds what comes out of a step without overflow; without a step the input is held as it is.
  DataType held() const { return transforms() ? DataType::bf16 : c.in; }
  bool transforms() const { return c.rope != Rope::none || c.hadamard != Hadamard::none; }
  std::vector<Reg> vector(int step, int v) const { return words.slice(4 * (step * at.vectors + v), 4); }

  std::vector<Reg> row_words(int step) const { return words.slice(4 * step * at.vectors, 4 * at.vectors); }

  // Of this CTA and thread: declared, then found; head is the CTA's, of a CTA of several the number of its group until first_head().
  void declare_coordinates();
  void find_coordinates();
  void first_head();
  // Whether `which` is still one of this CTA's. Heads a CTA are a power of two, so that no register holds which is the last.
  void has_head(const Reg& is, const Reg& which);
  // In each thread, in front of its first access to global memory, loads and prefetches included (prepare_rows.cpp says how).
  void meet_other_grids();
  // Declares what the parts need of the frame, once its coordinates are known.
  void declare();
  Reg thread, piece, batch, head, heads, tile, seqlen;
  Reg row, end;         // this thread's first row of the chunk; first row that is not the tile's
  Reg x_at, y_at;
  Vec words, value;     // value: one row of this thread in f32
  Vec half;             // of a word
  Reg bits;             // of an f32
};

// prepare_steps.cpp
// Whether the tensor cores do four stages of this kernel's transform. Between RoPE and a transform that is quantised
// a row is rounded to bf16 in either case, as a separate RoPE would have stored it.
bool mixes_by_mma(const PrepareConfig& c, const RowLayout& at);
// A line of cos or sin in bytes, and what a lane reads of it at once; where those of this lane are for row `step`. Rows from `end` on take
// the last one's: they are not stored. From the parameters, which are no registers that are held.
int table_line_bytes(const PrepareConfig& c);
int table_lane_bytes(const PrepareConfig& c);
void table_lines(Rows& r, int step, const Reg& end, const Reg& cos, const Reg& sin);
void unpack(Rows& r, DataType type, const Reg& even, const Reg& odd, const Reg& word);
struct Steps {
  explicit Steps(Rows& rows);
  // Row `step`: from words to value, through RoPE and Hadamard; `take` is called for each piece v once its values are
  // there, and may overwrite the row's words.
  void apply(int step, const std::function<void(int v)>& take);
  void prefetch_tables();
  void hold_table();  // cos and sin of step 0, for all that follows
  // Piece v of value, rounded, to the words of the row; signs of the inverse are applied here.
  void pack(DataType type, int step, int v);

 private:
  void share_signs();
  void load_signs(int v);  // those of piece v
  void table_address(int step);
  int table_slot(int v, int word) const;
  void load_table(int v, int word);
  void flip(const std::vector<Reg>& to, const std::vector<Reg>& from, int v);  // the signs of piece v
  struct Words {
    int first, count;  // of a piece
  };
  void unpack_vector(DataType type, int step, int v, Words w);
  void rope(int v, int word);
  void apply_signs_f32();
  void round_and_flip(const std::vector<Reg>& to, int v, Words w);
  // H_16 by mma, the other stages in the thread.
  DataType mma_type() const { return r_.c.rope == Rope::none ? r_.c.in : DataType::bf16; }
  int mixed() const;
  int mixed_by_mma() const;
  void share_h16();
  void declare_mma();
  void load_h16();
  void meet_other_lanes();
  void multiply_h16(int first, int count, int v, int n);
  void within_piece(int v, int n);
  void between_pieces(int first, int low, int n);
  void hadamard_by_mma(const std::function<void(int v)>& take);
  std::vector<Reg> piece(const Vec& words, int v) const { return words.slice(4 * v, 4); }
  // All stages by butterflies and shuffles.
  void hadamard();
  void butterfly(const Reg& a, const Reg& b);
  Rows& r_;
  Vec signs_, lane_sign_, cosine_, sine_, turned_, h16_, zero_, row_, own_;
  std::vector<Vec> table_words_;  // cos, sin
  bool held_ = false;  // cos and sin
  Reg signs_at_, other_, cos_at_, sin_at_, upper_;
};

// prepare_scales.cpp
struct Scales {
  explicit Scales(Rows& rows);
  void clear();               // largest = 0
  void take_values(int v);    // largest over piece v of value
  void take_words(int step);  // largest over the words of a row
  void reduce();              // over the CTA, in every thread; once
  // Quantize: the scale of this head, from amax or fixed; one CTA of those that share it writes it.
  void read();
  void add_to_amax();         // this CTA's largest
  // Blocks: inverse, from largest; the scale is written by the CTA's first thread.
  void write_block();
  // Eight values times inverse to the eight bytes of two words.
  void convert(const std::vector<Reg>& values, const Reg& first, const Reg& second);
  void convert_words(const std::vector<Reg>& words, const Reg& first, const Reg& second);
  // value, or the words, to y_at; a row that is not inside is not stored.
  void quantize_values(int v, const Reg& inside);
  void quantize_words(int step, const Reg& inside);
  void quantize_halves(int step, const Reg& inside);  // words of f16, scaled
  Reg largest, scale, inverse;

 private:
  void take(const std::vector<Reg>& values);
  void to_inverse();
  void to_scale();
  void head_index();
  void store_piece(int v, const Reg& inside);
  Rows& r_;
  Reg part_, magnitude_, infinite_, finite_, index_;
  Vec pair_, quarter_, out_, unpacked_;
};

}  // namespace flashptx::gen
