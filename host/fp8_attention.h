// 16-bit tensors in, FP8 attention inside: preparation and attention as one plan and one call.
//
//   Q, K -> [RoPE] -> [random-sign Hadamard, the same for both] -> quantised
//   V    -> quantised and transposed in one pass; or [Hadamard] -> quantised
//   attention in e4m3 or e5m2 with the scales found on the way; with a turned V, O is turned back in place
//
// All memory in between is the caller's workspace. run() enqueues and returns: no allocation, no synchronisation, so
// it can be captured into a CUDA graph; calls that overlap in time need a workspace each.
// Next: host/prepare.h and host/attention.h (the parts), tests/host/fp8_attention_test.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "host/attention.h"
#include "host/prepare.h"

namespace flashptx {

struct Fp8Options {
  DataType dtype = DataType::e4m3;  // inside
  std::optional<DataType> dtype_k = {}, dtype_v = {};  // of K and V inside, if not that of Q
  ScaleKind scale_kind = ScaleKind::head;
  std::int64_t block_rows = 0;      // block: rows of Q, K, V that share a scale; 0 = 128 (V^T in one pass)
  bool hadamard = false;            // Q and K
  bool hadamard_v = false;          // V; O is turned back
  bool fast = false;                // attention in fast mode (ForwardProblem::fast)
  std::uint32_t seed = 0;           // of the signs
  Rope rope = Rope::none;           // of Q and K
  DataType table = DataType::f32;   // of cos and sin (table_rows, head_dim / 2)
  std::int64_t position_q = 0, position_k = 0;  // lines of the tables for row 0
  std::int64_t table_rows = 0;

  DataType type_k() const { return dtype_k.value_or(dtype); }
  DataType type_v() const { return dtype_v.value_or(dtype); }
};

struct Fp8Pointers {
  std::uint64_t q = 0, k = 0, v = 0, o = 0;
  std::uint64_t lse = 0;        // 0 = not wanted
  std::uint64_t cos = 0, sin = 0;
  std::uint64_t workspace = 0;  // Fp8Plan::workspace_bytes(), a multiple of 16
};

class Fp8Plan {
 public:
  // Enqueues on `stream`. Thread-safe.
  Status run(const Fp8Pointers& at, Stream stream);

  std::size_t workspace_bytes() const { return workspace_bytes_; }
  const std::string& describe() const { return description_; }
  const std::string& kernel_name() const { return forward_->kernel_name(); }
  // The parts, as they are run: for whoever prints or checks them.
  const ForwardPlan& forward() const { return *forward_; }
  const PrepareProblem& q() const { return q_.problem; }
  const PrepareProblem& k() const { return k_.problem; }
  const PrepareProblem& v() const { return v_.problem; }  // transpose: straight to V^T

 private:
  friend Status plan_fp8_attention(Attention&, const ForwardProblem&, const Fp8Options&, const ForwardChoice&,
                                   std::unique_ptr<Fp8Plan>*);
  // One operand: how it is prepared, and where in the workspace its parts begin.
  struct Operand {
    PrepareProblem problem;
    std::size_t data = 0, scales = 0, amax = 0;
  };
  Status check(const Fp8Pointers& at) const;
  Status prepare_operand(const Operand& operand, const char* name, std::uint64_t x, const Fp8Pointers& at,
                         Stream stream);

  Prepare* prepare_ = nullptr;
  ForwardProblem problem_;  // the caller's, 16 bits
  Operand q_, k_, v_;
  PrepareProblem turn_o_;   // with hadamard_v
  bool turns_o_ = false;
  std::unique_ptr<ForwardPlan> forward_;
  std::size_t forward_workspace_ = 0;  // where in the workspace
  std::size_t workspace_bytes_ = 0;
  std::string description_;
};

// `problem` is the 16-bit one: its dtype, f16 or bf16, is that of Q, K, V and O; its fields for 8 bits keep their
// defaults. `choice` is for the attention kernel. Loads every kernel, so that run() may be captured at once. The plan
// must not outlive `attention`. Each refusal names the argument, its value and the limit.
Status plan_fp8_attention(Attention& attention, const ForwardProblem& problem, const Fp8Options& options,
                          const ForwardChoice& choice, std::unique_ptr<Fp8Plan>* out);

}  // namespace flashptx
