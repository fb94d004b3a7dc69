// What RoPE, signs and Hadamard are to the kernels that hold two values a register: prepare_packed.cpp is their frame,
// prepare_packed_steps.cpp what they compute. Next: either.
#pragma once

#include "gen/kernels/prepare_rows.h"

namespace flashptx::gen {

struct PackedSteps {
  PackedSteps(Rows& rows, const Scales& scales);
  void share_tables();     // cos and sin of this thread's rows, for all heads that follow
  void share_fragments();  // H_16 with the signs; to be read behind a barrier
  void transform();        // the words of two rows, in place; of quantize: f16, times scales.inverse
  // What the transform leaves to whoever scales its words next: a factor of `value`.
  void rescale(const Reg& value);

 private:
  bool half() const { return r.c.rope == Rope::half; }
  bool to_f16() const { return r.c.sink == Sink::quantize; }
  const char* mixed_type() const { return to_f16() ? "f16" : "bf16"; }
  // Of a piece: B of its halves, then what turns the pairs of both.
  int fragments() const { return half() ? 2 : 4; }
  int vectors() const { return r.at.vectors; }
  void load_half(const Vec& words, const Vec& value, const Reg& cos, const Reg& sin, int offset);
  void load_interleaved(const Vec& words, const Vec& value, const Reg& cos, const Reg& sin, int offset);
  void load_factors(int slot);
  void fragments_of(const Reg& at, const Reg& signs, const Reg& plus, int v);
  void load_fragment(int to, int v, int i);
  void apart(int i, const std::function<void()>& body);
  void rotate(int v, int h);
  void turn(int v, int h);
  void multiply(int v, int h, const std::vector<std::vector<Reg>>& a, int fragment = 0);
  std::vector<Reg> half_of(int v, int h) const;
  void pack(const Reg& word, const Reg& even, const Reg& odd);
  void butterfly(const Reg& a, const Reg& b);
  void between_pieces();

  Kernel& k;
  Rows& r;
  const Scales& scales_;
  Vec b_, sum_, factor_, product_, zero_;
  Reg tables_at_, fragments_at_, other_;
};

}  // namespace flashptx::gen
