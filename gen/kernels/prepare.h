// The kernels that make FP8 operands: quantisation, incoherent processing, RoPE, transposition of V.
//
// One description covers all of them: what is done to a row on its way (rope, then hadamard) and what
// becomes of it (Sink). Each is one pass over memory, bound by bandwidth.
//   prep_transpose_fp8_d128                                 V -> V^T, keys permuted (gen/tile/key_order.h)
//   prep_amax_bf16_d128                                     largest magnitude of a tensor or of each head
//   prep_quantize_bf16_e4m3_d128                            with those magnitudes, or a fixed scale
//   prep_quantize_blocks_bf16_e4m3_d128_r64                 magnitude and quantisation of each block of rows
//   prep_quantize_blocks_transpose_bf16_e4m3_d128           both for V, a scale for each 128 keys
//   prep_hadamard_bf16_d128, prep_unhadamard_bf16_d128      H D x / sqrt(n), and back
//   prep_rope_half_f32_hadamard_quantize_blocks_bf16_e4m3_d128_r64_packed   all in one pass, two values a register
// Next: prepare.cpp (names, parameters), prepare_rows.h (how rows are held), prepare_packed.cpp, prepare_transpose.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gen/catalog.h"

namespace flashptx {

enum class Rope { none, interleaved, half };  // pairs (2i, 2i + 1), or (i, i + head_dim / 2)
enum class Hadamard { none, forward, inverse };
enum class Sink { transpose, store, amax, quantize, quantize_blocks };

struct PrepareConfig {
  Sink sink = Sink::quantize;
  Rope rope = Rope::none;
  DataType table = DataType::f32;   // of cos and sin: f32 or bf16
  Hadamard hadamard = Hadamard::none;
  DataType in = DataType::bf16;     // bf16 or f16; the transposition takes any 8-bit type
  DataType out = DataType::e4m3;    // of the two quantisations: e4m3 or e5m2
  int head_dim = 128;               // a multiple of 16 up to 256, of 32 with rope
  int rows = 0;                     // quantize_blocks: rows that a CTA holds in registers, 16 to 256
  int lanes = 0;                    // rope, hadamard: threads that share a row, 4 or 8; 0 = as head_dim wants it
  int threads = 0;                  // quantize_blocks with rope or hadamard: of a CTA, 32 to 256; 0 = as the rows want it
  bool packed = false;              // rope and hadamard before 8 bits: in pairs of bf16 all the way, where packs() says so
  bool transposed = false;          // quantize, and quantize_blocks of 128 rows: written as V^T

  std::string name() const;
  static bool parse(const std::string& name, PrepareConfig* out, std::string* error);
  bool has_output() const { return sink != Sink::amax; }
  // Launched right behind amax, from the last row to the first: prepare_rows.cpp says how.
  bool follows_amax() const { return sink == Sink::quantize && !transposed; }
};

// Throws gen::Error for a configuration that there is no kernel for.
EmittedKernel emit_prepare(const PrepareConfig& config, std::string* line_table = nullptr);

// Those that stand in ptx/: one of each kind.
std::vector<PrepareConfig> prepare_catalog();

}  // namespace flashptx
