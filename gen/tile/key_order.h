// The order of keys inside V^T for 8-bit types: where both products of FP8 attention meet.
//
// S = Q K^T leaves the tensor core in f32 accumulators, P goes back in as an 8-bit A fragment, and the two
// disagree about which thread holds which key. Within each 32 keys, a thread with t = lane % 4
//   gets from S the columns           8g + 2t, 8g + 2t + 1   for g = 0..3   (PTX ISA 9.7.15.5.1, D fragment)
//   must give as A the k positions    4t .. 4t+3  and  16 + 4t .. 16 + 4t+3          (A fragment, .k32)
// The sum over keys does not care for their order as long as P and V agree, so V^T is written with its
// keys permuted and P needs no shuffle: a thread packs what it already has, in order of g.
// Used by gen/kernels/prepare_transpose.cpp (writes V^T) and the FP8 forward kernel (packs P).
#pragma once

namespace flashptx {

constexpr int key_order_group = 32;  // positions are permuted within aligned groups of this many keys

// V^T pads its rows of keys to a multiple of this many, with zeros.
constexpr int key_order_padding = 128;

// The key that stands at position `p` of a row of V^T, both counted from the group's start:
// position 4t + i holds key 8 (i / 2) + 2t + i % 2, position 16 + 4t + i that key + 16.
constexpr int key_at_position(int p) {
  const int i = p % 4, t = p / 4 % 4;
  return p / 16 * 16 + 8 * (i / 2) + 2 * t + i % 2;
}

// Its inverse.
constexpr int position_of_key(int key) {
  const int g = key / 8 % 2, t = key / 2 % 4;
  return key / 16 * 16 + 4 * t + 2 * g + key % 2;
}

static_assert([] {
  for (int p = 0; p < 4 * key_order_group; ++p)
    if (position_of_key(key_at_position(p)) != p || key_at_position(p) / 16 != p / 16) return false;
  return true;
}());

}  // namespace flashptx
