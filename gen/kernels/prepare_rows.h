// How a CTA of the preparation kernels holds rows, and the registers that go with it.
//
// A row of head_dim 16-bit values is `vectors` x `lanes` pieces of 16 bytes: lane p of the row's group holds the
// pieces v * lanes + p, so that a load reads neighbouring pieces and the partners of RoPE (half a row away) and
// of most Hadamard stages stand in the same thread. `steps` rows per thread are in flight at once.
//
// What binds: an SM moves 27 KB/us at the speed of a copy (H200, 3.57 TB/s) and issues 224 lane instructions a ns. From
// the SASS, d = 128, lane instructions a value, their share of the slots at a copy's speed, and what a closed queue of the
// resident CTAs (issue, memory, 1.3 us of latency; 0.8 with the next head on its way to L2) predicts without | with
// prefetch, as % of a copy. It gives 76 for Hadamard + blocks by shuffles (20 instructions), where 78 was measured.
//   hadamard + blocks of 128            12.0   48 %    87 | 100
//   hadamard + blocks of 64, d = 64     10.6   43 %   100 | 100
//   hadamard + quantize                  8.1   33 %    91 | 100
//   hadamard + amax                      6.5   39 %    84 | 100
//   rope                                 6.0   18 %    96 | 100
//   rope + hadamard + blocks, 4 lanes   16.8   68 %    66 |  88   (two CTAs an SM)
//   rope + hadamard + blocks, 8 lanes   16.5   67 %    81 | 100   (three)
// Measured (H200, one head a CTA, no prefetch): hadamard + blocks 90, 93 (blocks of 64, d = 64), hadamard per head 83,
// rope 95; rope + hadamard + blocks 62 with four lanes. Heads one after the other lose more by uneven rounds of CTAs than
// the prefetch gains: host/prepare.cpp, choose_heads_per_cta.
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

  // Declares what the parts need of the frame, once its coordinates are known.
  void declare();
  Reg thread, piece, batch, head, heads, tile, seqlen;  // head: the one at hand
  Reg row, end;         // this thread's first row of the chunk; first row that is not the tile's
  Reg x_at, y_at;
  Vec words, value;     // value: one row of this thread in f32
  Vec half;             // of a word
};

// prepare_steps.cpp
// Whether the tensor cores do four stages of this kernel's transform. Between RoPE and a transform that is quantised
// a row is rounded to bf16 in either case, as a separate RoPE would have stored it.
bool mixes_by_mma(const PrepareConfig& c);
void unpack(Rows& r, DataType type, const Reg& even, const Reg& odd, const Reg& word);
struct Steps {
  explicit Steps(Rows& rows);
  // Row `step`: from words to value, through RoPE and Hadamard.
  void apply(int step);
  void prefetch_tables();
  // value, rounded, into `out` (the words of the row); signs of the inverse are applied here.
  void pack(DataType type, int step);

 private:
  void share_signs();
  void load_signs(int v);  // those of piece v
  void table_address(int step);
  void table_line(int step, int bytes_a_lane);
  void load_table(int v);
  void flip(int step, int v);  // the signs of piece v
  void unpack_vector(DataType type, int step, int v);
  void rope(int v);
  void apply_signs_f32();
  void round_and_flip(int step, int v);
  // H_16 by mma, the other stages in the thread.
  DataType mma_type() const { return r_.c.rope == Rope::none ? r_.c.in : DataType::bf16; }
  void make_h16();
  void multiply_h16(int step, int v);
  void rest_of_hadamard();
  // All stages by butterflies and shuffles.
  void hadamard();
  void butterfly(const Reg& a, const Reg& b);
  Rows& r_;
  Vec signs_, lane_sign_, cosine_, sine_, table_words_, turned_, h16_, zero_, own_;
  Reg signs_at_, other_, cos_at_, sin_at_, upper_;
};

// prepare_scales.cpp
struct Scales {
  explicit Scales(Rows& rows);
  void clear();               // largest = 0
  void take_values();         // largest over value
  void take_words(int step);  // largest over the words of a row
  // Over the CTA, in every thread. May be called once for each value of `turn`, 0 or 1, between barriers.
  void reduce(const Reg& turn);
  void from_largest();        // scale and inverse
  // Quantize: the scale of this head, from amax or fixed; one CTA of those that share it writes it.
  void read();
  void add_to_amax();         // this CTA's largest
  void write_block(const Operand& block_rows);
  // Eight values times inverse to the eight bytes of two words.
  void convert(const std::vector<Reg>& values, const Reg& first, const Reg& second);
  void convert_words(const std::vector<Reg>& words, const Reg& first, const Reg& second);
  // value, or the words, to y_at; a row that is not inside is not stored.
  void quantize_values(const Reg& inside);
  void quantize_words(int step, const Reg& inside);
  Reg largest, scale, inverse;

 private:
  void take(const std::vector<Reg>& values);
  void head_index();
  void store_piece(int v, const Reg& inside);
  Rows& r_;
  Reg part_, magnitude_, infinite_, finite_, index_;
  Vec pair_, quarter_, out_, unpacked_;
};

}  // namespace flashptx::gen
