// Bodies of the preparation kernels, for prepare.cpp, which names them and states their parameters.
#pragma once

#include "gen/isa/kernel.h"
#include "gen/kernels/prepare.h"

namespace flashptx::gen {

// ctaid.x = tile * heads + head, ctaid.y = batch: neighbouring CTAs read neighbouring heads, which stand
// beside each other in (batch, seq, head, dim) memory.
// `each` heads a CTA: head is the first of them. `backwards`: the first CTA takes the last tile.
void tile_and_head(Kernel& k, const Reg& tile, const Reg& head, const Reg& batch, const Reg& heads, int each = 1,
                   bool backwards = false);
// Address of row 0 of (batch, head) of tensor `name`, from the parameters name, name_stride_batch and
// name_stride_head.
void tensor_base(Kernel& k, const Reg& to, const std::string& name, const Reg& batch, const Reg& head);

void emit_transpose(Kernel& k, const PrepareConfig& config);
int transpose_heads(const PrepareConfig& config);  // that a CTA does
int transpose_threads(const PrepareConfig& config);

// All the others: rows in, one or several steps, a sink.
void emit_rows(Kernel& k, const PrepareConfig& config);
int rows_threads(const PrepareConfig& config);
bool takes_heads(const PrepareConfig& config);  // several in turn, heads_per_cta at most
bool reads_ahead(const PrepareConfig& config);  // x, cos and sin while amax, launched before it, still runs
int rows_ctas_per_sm(const PrepareConfig& config);  // that registers are left for
int tile_rows(const PrepareConfig& config);  // that a CTA does; of quantize_blocks: that it holds
int rows_to_hold(const PrepareConfig& config, std::int64_t block_rows);  // config.rows for such blocks
void check_block_rows(const PrepareConfig& config);  // refuses a count that no CTA can hold
bool threads_fit(const PrepareConfig& config);       // config.threads, which is not 0
// In pairs of bf16: whether there is such a kernel (config.packed itself apart), and what it needs.
constexpr int packed_rows = 128;  // that a CTA holds at most
bool packs(const PrepareConfig& config);
void emit_packed(Kernel& k, const PrepareConfig& config);
int packed_shared_bytes(const PrepareConfig& config);  // dynamic: cos and sin
inline int log2_of(int n) { return n <= 1 ? 0 : 1 + log2_of(n / 2); }
int hadamard_size(int head_dim);             // the largest power of two that divides head_dim

}  // namespace flashptx::gen
