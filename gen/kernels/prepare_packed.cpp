// RoPE, random signs, Hadamard and quantisation on pairs: two values a register, from the load to the 8 bits. The frame: which rows and
// heads a CTA does, how they come in, what becomes of them. By default where it was measured faster (packs()).
//
// Four lanes share a row, and a thread holds two rows of the tile as words of 16-bit pairs and nothing else; prepare_packed_steps.cpp says
// what is done to them. Magnitude: of the words that are held; to 8 bits from f32 of them, or from f16x2, which is one instruction for
// two. Rows beyond the last are the last again: a magnitude that is taken twice is the same, and no register is set to zero before a load.
//
// Roundings to bf16, 1.7e-3 in the mean where e4m3 is 2.64e-2: cos and sin, RoPE's product and sum, behind mma, each further stage.
// In all 2.65 to 2.69e-2: 0.4 to 1 % above f32 kernels by blocks, 0.2 % per head.
//
// From the SASS, half, tables f32, blocks of 128; f32 kernels beside them:
//                                  d = 64            d = 128           d = 256
//   registers                     48   ( 64)        64   ( 80)       128   (128)
//   warps an SM                   40   ( 32)        32   ( 24)        16   ( 16)
//   lane instructions a value     10.8 (14.6)       9.2  (15.3)       8.7  (14.7)      interleaved 11.4, 9.9, 9.2
//   and of amax, then quantize    6.5 + 8.8         5.7 + 8.0         5.5 + 7.0
// Measured for 33.5 million values on an H200, share of a copy's speed, 4 heads a CTA
// (tools/bench/results/prepare_packed_h200.csv):
//   blocks, half, tables f32      0.73 (0.72)       0.76 (0.68)       0.76 (0.64)      8 heads 0.76, 0.70, 0.62
//           half, tables bf16     0.76 (0.77)       0.79 (0.70)       0.76 (0.67)
//           interleaved, f32      0.71 (0.70)       0.73 (0.69)       0.65 (0.65)
//   per head, half, f32           0.75 (0.81)       0.80 (0.76)       0.81 (0.75)
// Foretold for blocks: 31 to 33, 31 to 33 and 33 to 36 us, of which a copy's speed takes 28; measured with the better count of heads 37,
// 38 and 38. So it is not the instructions that bind: two thirds of them give 5 to 15 % of the time. Launched as dependents
// (prepare_dependents_h200.csv) 35 to 38 us: half, f32 0.77 0.78 0.76, bf16 0.78 0.78 0.76, interleaved, f32 0.72 0.71 0.65, per head 0.79 0.81
// 0.81. Eight times the values take not eight times as long: 4 to 7 us of a launch go to its beginning and end, a copy's 3; beyond them half
// blocks run at 0.86 of a copy, interleaved ones at 0.76 to 0.85, per head 0.86 to 0.88. With heads one after the other in memory (bhsd) 0.82
// 0.80 0.77: rows of 128 and 256 bytes among others cost memory 3 %. A carve-out of shared memory: the driver's choice is the best or level
// (prepare_carveout_h200.csv). Tried and not taken: the next head's rows to L2 while one is computed (0.71, 0.76, 0.72); four rows a
// thread, 128 threads (spills).
// Next: prepare_packed_steps.cpp, prepare_rows.h (what is shared with the other kernels), prepare_scales.cpp.
#include <memory>

#include "gen/kernels/prepare_packed.h"

namespace flashptx::gen {
namespace {

constexpr int lanes = 4, steps = 2;

class Packed {
 public:
  Packed(Kernel& kernel, const PrepareConfig& config) : k(kernel), c(config), r(kernel, config) {}
  void emit();

 private:
  void coordinates();
  void places();
  void share_places();
  void find_tile();
  void find_places();
  void prefetch(const Reg& at);
  void load_rows();
  void load_row(int step, const Reg& at, const Reg* when = nullptr);
  void next_row(int step, const Reg& more);
  void find_y();
  void next_y();
  void largest();
  void to_8_bits(const Reg& more);
  void one_head(const Reg& more);

  Kernel& k;
  const PrepareConfig& c;
  Rows r;
  std::unique_ptr<Scales> scales_;
  std::unique_ptr<PackedSteps> steps_;
  Vec inside_;
  Reg first_, places_at_;
};

void Packed::coordinates() {
  r.declare_coordinates();
  if (c.has_output()) r.y_at = k.b64("y_at");
  first_ = k.b32("first_row");
  inside_ = k.pred("is_inside", r.at.steps);
  r.find_coordinates();
  r.first_head();
  k.scope([&] {
    const Reg rows = k.b32("tile_rows");
    if (c.sink == Sink::quantize_blocks) k.ld_param_u32(rows, "block_rows");
    else k.mov_b32(rows, tile_rows(c));
    k.mul_lo_u32(first_, r.tile, rows);
    k.add_u32(r.end, first_, rows);
  });
  k.min_u32(r.end, r.end, r.seqlen);
  k.shr_u32(r.row, r.thread, log2_of(r.at.lanes));
  k.add_u32(r.row, r.row, first_);
}

// Where this thread's rows stand is kept in shared memory, each thread's own: two registers for each row would be some of the few. And
// first only L2 is asked for the words, so that cos and sin find registers to be loaded to at once.
void Packed::places() {
  k.section("the first head's rows");
  share_places();
  k.scope([&] {
    const Reg base = k.b64("x_base"), stride = k.b64("x_row_stride"), at = k.b64("x_at"), row = k.b32("x_row_index"), last = k.b32("x_last_row");
    tensor_base(k, base, "x", r.batch, r.head);
    k.mad_wide_u32(base, r.piece, 16, base);
    k.ld_param_u64(stride, "x_stride_seq");
    k.sub_u32(last, r.end, 1);
    r.meet_other_grids();
    for (int s = 0; s < steps; ++s) {
      k.add_u32(row, r.row, s * r.at.rows_per_step());
      k.setp("lt", "u32", inside_[s], row, r.end);
      k.min_u32(row, row, last);
      k.cvt_u64_u32(at, row);
      k.mad_lo_u64(at, at, stride, base);
      prefetch(at);
      k.st_shared("b64", address(places_at_, 8 * r.at.threads * s), at);
    }
  });
  if (!c.has_output()) return;
  find_y();
  k.st_shared("b64", address(places_at_, 8 * r.at.threads * steps), r.y_at);
}

void Packed::share_places() {
  k.static_shared("places", 8 * r.at.threads * (r.at.steps + c.has_output()), 16);
  places_at_ = k.b32("places_at");
  find_places();
}

// Of a tile read() asks only whether it is the first, whose CTAs are the last (follows_amax).
void Packed::find_tile() {
  k.scope([&] {
    const Reg cta = k.b32("ctas_behind"), groups = k.b32("first_tile_ctas"), later = k.pred("is_later_tile"), one = k.b32("one");
    k.mov_b32(cta, special("nctaid.x"));
    k.mov_b32(one, special("ctaid.x"));
    k.sub_u32(cta, cta, one);
    k.ld_param_u32(groups, "head_groups");
    k.setp("gt", "u32", later, cta, groups);
    k.mov_b32(one, 1);
    k.mov_b32(groups, 0);
    k.selp_b32(r.tile, one, groups, later);
  });
}

// Anew for each head: held, it would be one register too many (d = 128, quantize).
void Packed::find_places() {
  k.mov_b32(r.thread, special("tid.x"));
  k.mov_b32(places_at_, symbol("places"));
  k.mad_lo_u32(places_at_, r.thread, 8, places_at_);
}

// Four lanes ask for all lines of a row.
void Packed::prefetch(const Reg& at) {
  k.scope([&] {
    const Reg line = k.b64("line_at");
    k.mad_wide_u32(line, r.piece, c.head_dim / 2 - 16, at);
    k.prefetch_global_L2(address(line));
  });
}

void Packed::load_row(int step, const Reg& at, const Reg* when) {
  for (int v = 0; v < r.at.vectors; ++v) {
    Instr& load = k.ld_global("L1::no_allocate.v4.b32", r.vector(step, v), address(at, 16 * v * lanes));
    if (when != nullptr) load.when(*when);
  }
}

void Packed::load_rows() {
  k.scope([&] {
    const Reg at = k.b64("x_at");
    for (int s = 0; s < steps; ++s) {
      k.ld_shared("b64", at, address(places_at_, 8 * r.at.threads * s));
      load_row(s, at);
    }
  });
}

// Row `step` of the next head, where there is one.
void Packed::next_row(int step, const Reg& more) {
  k.scope([&] {
    const Reg at = k.b64("x_at"), stride = k.b64("head_stride");
    k.ld_shared("b64", at, address(places_at_, 8 * r.at.threads * step));
    k.ld_param_u64(stride, "x_stride_head");
    k.add_u64(at, at, stride);
    k.st_shared("b64", address(places_at_, 8 * r.at.threads * step), at);
    load_row(step, at, &more);
  });
}

void Packed::find_y() {
  k.scope([&] {
    const Reg wide = k.b64("y_row"), stride = k.b64("y_row_stride");
    k.ld_param_u64(stride, "y_stride_seq");
    tensor_base(k, r.y_at, "y", r.batch, r.head);
    k.cvt_u64_u32(wide, r.row);
    k.mad_lo_u64(r.y_at, wide, stride, r.y_at);
    k.mad_wide_u32(r.y_at, r.piece, 8, r.y_at);
  });
}

void Packed::next_y() {
  k.scope([&] {
    const Reg stride = k.b64("head_stride"), at = k.b64("next_y_at");
    const int offset = 8 * r.at.threads * r.at.steps;
    k.ld_shared("b64", r.y_at, address(places_at_, offset));
    k.ld_param_u64(stride, "y_stride_head");
    k.add_u64(at, r.y_at, stride);
    k.st_shared("b64", address(places_at_, offset), at);
  });
}

void Packed::largest() {
  k.section("the largest magnitude");
  k.mov_b32(r.thread, special("tid.x"));  // what a register need not hold while words fill them
  k.mov_b32(r.batch, special("ctaid.y"));
  scales_->clear();
  for (int s = 0; s < steps; ++s) scales_->take_words(s);
}

void Packed::to_8_bits(const Reg& more) {
  k.section("to 8 bits, and the next head's rows");
  next_y();
  for (int s = 0; s < steps; ++s) {
    if (c.sink == Sink::quantize) scales_->quantize_halves(s, inside_[s]);
    else scales_->quantize_words(s, inside_[s]);
    if (s + 1 < steps) {
      k.scope([&] {
        const Reg bytes = k.b64("step_bytes");
        k.ld_param_u64(bytes, "y_stride_seq");
        k.mad_lo_u64(r.y_at, bytes, r.at.rows_per_step(), r.y_at);
      });
    }
    next_row(s, more);
  }
}

// From words that are no longer needed to those of the next head, `more` where there is one.
void Packed::one_head(const Reg& more) {
  if (c.sink == Sink::quantize) {
    find_tile();
    scales_->read();
    steps_->rescale(scales_->inverse);
  }
  steps_->transform();
  if (c.sink != Sink::quantize) largest();
  k.scope([&] {
    const Reg next = k.b32("next_head");
    k.add_u32(next, r.head, 1);
    r.has_head(more, next);
  });
  find_places();
  if (c.sink == Sink::quantize) return to_8_bits(more);
  if (c.sink == Sink::amax)
    for (int s = 0; s < steps; ++s) next_row(s, more);
  scales_->reduce();
  steps_->rescale(scales_->largest);
  if (c.sink == Sink::amax) return scales_->add_to_amax();
  scales_->write_block();
  steps_->rescale(scales_->inverse);
  to_8_bits(more);
}

void Packed::emit() {
  k.min_ctas_per_sm(rows_ctas_per_sm(c));
  coordinates();
  r.declare();
  scales_ = std::make_unique<Scales>(r);
  steps_ = std::make_unique<PackedSteps>(r, *scales_);
  steps_->share_fragments();
  places();
  steps_->share_tables();
  load_rows();
  k.bar_sync_all(0).note("fragments, written before the grid in front was waited for");
  const Reg more = k.pred("has_more_heads");
  k.loop("heads", [&] {
    one_head(more);
    k.add_u32(r.head, r.head, 1);
    return more;
  });
}

}  // namespace

// Where they were measured faster than those of prepare_rows.cpp.
bool packs(const PrepareConfig& c) {
  if (c.in != DataType::bf16 || c.rope == Rope::none || c.hadamard != Hadamard::forward || c.lanes != 0 || c.threads != 0) return false;
  const bool wide = c.head_dim == 128 || c.head_dim == 256;
  if (c.sink == Sink::amax || c.sink == Sink::quantize) return wide && c.rope == Rope::half;
  return c.sink == Sink::quantize_blocks && c.rows >= 16 && c.rows <= packed_rows && (wide || (c.head_dim == 64 && c.table == DataType::f32));
}

RowLayout packed_layout(const PrepareConfig& c) {
  const int rows = c.sink == Sink::quantize_blocks ? c.rows : packed_rows;
  return {lanes, c.head_dim / 8 / lanes, rows * lanes / steps, steps, 1};
}

int packed_shared_bytes(const PrepareConfig& c) { return tile_rows(c) * c.head_dim * 2; }

void emit_packed(Kernel& k, const PrepareConfig& c) { Packed(k, c).emit(); }

}  // namespace flashptx::gen
