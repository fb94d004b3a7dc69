// FP8 operands on one device: a preparation as a caller states it -> checked -> kernels -> launches.
//
// Quantisation, Hadamard, RoPE and the transposition of V, alone or fused. The first call of a kind generates and
// assembles its kernels; later ones only look them up: nothing is allocated or synchronised, so that they can be
// captured into a CUDA graph. Next: gen/kernels/prepare.h (the kernels), host/attention.h (what they are for).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "gen/kernels/prepare.h"
#include "host/device.h"
#include "host/problem.h"

namespace flashptx {

enum class ScaleKind { tensor, head, block };

// x (batch, seqlen, heads, head_dim) of 16 bits -> [rope] -> [hadamard] -> y of the same shape.
struct PrepareProblem {
  DataType in = DataType::bf16;
  DataType out = DataType::e4m3;     // e4m3 or e5m2: quantised; equal to `in`: not
  std::int64_t batch = 0, seqlen = 0, heads = 0, head_dim = 0;
  Strides x, y;                      // in elements of their types
  ScaleKind scale_kind = ScaleKind::head;
  std::int64_t block_rows = 0;       // block: rows that share a scale
  float fixed_scale = 0;             // tensor: used instead of one that follows from the data; 0 = none
  Hadamard hadamard = Hadamard::none;
  std::uint32_t seed = 0;            // of the signs
  Rope rope = Rope::none;
  DataType table = DataType::f32;    // of cos and sin (positions, head_dim / 2)
  std::int64_t position = 0;         // of row 0
  std::int64_t table_rows = 0;       // positions that the tables have
  int lanes = 0;                     // rope, hadamard: threads that share a row, 4 or 8; 0 = decide for me
  int threads = 0;                   // blocks with rope or hadamard: of a CTA, a power of two; 0 = decide for me
  int heads_per_cta = 0;             // rope: heads that a CTA does in turn, a power of two; 0 = decide for me
  bool prefetch_tables = false;      // blocks with rope: lines of cos and sin are asked for together with x
  bool packed = true;                // rope and hadamard, quantised: in pairs of bf16 where there are such kernels; they have neither
                                     // lanes, threads, prefetch_tables nor fixed_scale
  bool transpose = false;            // y is V^T (TransposeProblem), contiguous: quantised, without rope or hadamard

  bool quantizes() const { return out != in; }
  bool empty() const { return batch == 0 || seqlen == 0 || heads == 0; }
  std::int64_t scale_count() const;  // floats in `scales` (and `amax`)
};
Status check_prepare(const PrepareProblem& p);

struct PreparePointers {
  std::uint64_t x = 0, y = 0;
  std::uint64_t scales = 0;  // written; fp32 (batch, heads, ceil(seqlen / block_rows)), (batch, heads) or 1
  std::uint64_t amax = 0;    // written; of tensor and head without fixed_scale: as many floats as scales
  std::uint64_t cos = 0, sin = 0;
};

// V (batch, seqlen, heads, head_dim) of 8 bits -> (batch, heads, head_dim, transposed_seqlen(seqlen)).
struct TransposeProblem {
  DataType dtype = DataType::e4m3;
  std::int64_t batch = 0, seqlen = 0, heads = 0, head_dim = 0;
  Strides v;
  bool empty() const { return batch == 0 || seqlen == 0 || heads == 0; }
};
std::int64_t transposed_seqlen(std::int64_t seqlen);
Status check_transpose(const TransposeProblem& p);

struct PrepareArguments;

class Prepare {
 public:
  // `early`: kernels may start while the one before them on the stream ends, if that one lets them and the device can; they then wait for its
  // end before they touch memory (LaunchDims::programmatic_dependent).
  explicit Prepare(Device& device, bool early = true) : device_(device), early_(early) {}
  ~Prepare();
  Prepare(const Prepare&) = delete;
  Prepare& operator=(const Prepare&) = delete;

  // Enqueue on `stream`. Thread-safe.
  Status run(const PrepareProblem& problem, const PreparePointers& at, Stream stream);
  Status transpose_v(const TransposeProblem& problem, std::uint64_t v, std::uint64_t vt, Stream stream);
  // Generate and assemble what run and transpose_v will want, so that they can be captured.
  Status load(const PrepareProblem& problem);
  Status load_transpose(const TransposeProblem& problem);

  // The kernels that run() launches, in order. With `block_rows` that none holds, the largest.
  static std::vector<PrepareConfig> kernels_of(const PrepareProblem& problem);

 private:
  struct Entry {
    LaunchFacts facts;
    LoadedKernel* loaded = nullptr;
    int rows = 0;                // of x that a CTA does
    std::vector<std::size_t> offsets;  // of its parameters in PrepareArguments
  };
  Status entry_for(const PrepareConfig& config, Entry** out);
  Status launch(const Entry& e, PrepareArguments& arguments, std::int64_t tiles, std::int64_t batch, Stream stream);

  Device& device_;
  const bool early_;
  std::mutex mutex_;  // guards entries_
  std::map<std::string, Entry> entries_;
};

}  // namespace flashptx
