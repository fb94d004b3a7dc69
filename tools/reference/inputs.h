// Named inputs. The diagnostic ones give whole numbers where nothing is wrong and another whole number where an
// index is: v_ramp names head, batch and column in the value, one_hot counts keys, identity_qk picks keys.
// Next: inputs.cpp says what each must give.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/reference/attention.h"

namespace flashptx::reference {

enum class Inputs { random, outliers, ones, identity_qk, v_ramp, one_hot };
const char* to_string(Inputs inputs);
bool parse_inputs(const std::string& text, Inputs* out);

enum class Layout { bshd, bhsd, qkv };  // qkv: views of one (batch, seqlen, heads_q + 2 heads_kv, dim) buffer
bool parse_layout(const std::string& text, Layout* out);

// Host tensors in the memory order that `layout` says; `problem` points into them.
struct Tensors {
  Tensors() = default;
  Tensors(Tensors&&) = default;
  Tensors& operator=(Tensors&&) = default;
  Problem problem;
  Strides o_strides;                    // the output has Q's layout (bshd for qkv)
  std::vector<std::uint8_t> q, k, v;    // for qkv all of it lies in q
  std::int64_t o_elements = 0;
  // Byte offsets of the three views inside their buffers.
  std::int64_t q_offset = 0, k_offset = 0, v_offset = 0;
};

// Shape, type, mask and scale are taken from `shape`; its pointers and strides are not. qkv needs
// seqlen_q == seqlen_k and equal head dims; the caller checks.
Tensors make_tensors(const Problem& shape, Layout layout, Inputs inputs, std::uint64_t seed);

// The strides of a dense tensor in that layout.
Strides dense_strides(Layout layout, std::int64_t seqlen, std::int64_t heads, int dim);

}  // namespace flashptx::reference
