// The frame of the preparation kernels: which rows a CTA does, how they come in, what becomes of them.
//
// Streaming sinks (store, amax, quantize) take a tile of rows once. quantize_blocks holds the rows of a block in
// registers until their common magnitude is known; a block that does not fit is read a second time, from L2.
// With RoPE a CTA does the same rows of several heads in turn: cos and sin of a row are twice the bytes of x (f32), and read
// anew for each head they are more bytes from L2 than all the rest (the kernels took 42 to 52 us on an H200, by which SMs got 5 to
// 6 TB/s). Streaming sinks hold
// them in registers, blocks find them in L1. The next head's rows are asked for as soon as there are registers for them.
// Without RoPE a CTA does one head: in turn they were slower (73 to 80 % of a copy against 90), for rounds of few CTAs end unevenly.
//
// Every kernel may be launched before the one in front of it has ended (griddepcontrol, PTX ISA 9.7.13.13): coordinates, signs and H_16 are
// done under that one's tail. griddepcontrol.wait returns when it is complete and its memory visible: it stands in front of the first
// access to global memory, in every thread, so that who waits for this grid has waited for those before it too, and behind it the grid
// that follows is let in. What is read behind it is no ld.global.nc: that is for memory that nobody writes while the kernel runs,
// and ptxas moves it across the wait.
//
// Quantisation with amax's magnitudes goes from the last tile to the first, as L2 still holds the last that amax read, and reads ahead: its
// first rows, cos and sin are on their way while amax's last CTAs run. Amax lets it in behind its own wait, when all before amax is
// complete; so x, cos and sin are. With a fixed scale no amax has waited, and it waits itself before it reads them. What amax and the
// fill before it write is read, and anything at all is written, only behind a second wait. Per head, RoPE half, Hadamard, 16k tokens
// on an H200, where amax itself was not let in early: 61.6 us became 59.7 (d = 64), 67.4 became 64.0 (256), and by the early start alone
// 64.9 became 62.6 (128; by the order alone 64.5). Not measured: early launches of the others, loads that were .nc before, rows read ahead
// without RoPE and Hadamard.
//
// Tried and not taken (tools/bench/results/prepare_ring_h200.csv): x, cos and sin through shared memory by cp.async, a ring of rows for
// each thread, and four lanes a row at d = 128. Foretold for blocks with RoPE half and Hadamard: 31 to 36 us, as rows in flight would no
// longer cost registers. Measured: 39 against 42 (d = 128), 38 against 40 (64; interleaved 34 against 41), 40 against 45 (256), and that
// only with most or all heads in one CTA: with 16, 8 and 4 of them 39, 42 and 45 us (d = 128), with four lanes and 8 of them 40. So it
// is the tables' loads that bind, which each CTA makes anew, and not rows in flight; for few shapes that is too little for the code.
// Next: prepare_steps.cpp, prepare_scales.cpp.
#include "gen/kernels/prepare_rows.h"

#include <algorithm>
#include <memory>

#include "gen/tile/key_order.h"

namespace flashptx::gen {
namespace {

constexpr int most_threads = 256;
constexpr int held_words = 64;  // that a thread of quantize_blocks can hold beside its working set

int power_of_two_in(int n) { return n & -n; }

// Lanes and vectors that share a row.
void share_row(const PrepareConfig& c, RowLayout* at) {
  const int pieces = c.head_dim / 8;
  // 64-byte reads at least where the row allows it, and few lanes: fewer shuffles.
  at->lanes = std::min(power_of_two_in(pieces), c.head_dim <= 128 ? 4 : 8);
  // RoPE: 16 values a thread, which leaves registers for cos and sin and for the next head's rows, and lines of cos and sin asked for
  // 128 bytes at a time: interleaved pairs by four lanes ask for 64 (H200, d = 128, blocks: 52 us against 42).
  if (c.rope != Rope::none && c.head_dim == 128) at->lanes = 8;
  if (c.rope != Rope::none && c.head_dim == 256 && c.hadamard == Hadamard::none) at->lanes = 16;
  if (c.lanes != 0) at->lanes = c.lanes;
  at->vectors = pieces / at->lanes;
  // RoPE pairs a vector with the one half a row away, in the same thread.
  if (c.rope == Rope::half && at->vectors % 2) at->lanes /= 2, at->vectors *= 2;
}

int most_rows(const PrepareConfig& c) {
  if (c.packed) return packed_rows;
  RowLayout at;
  share_row(c, &at);
  const int steps = std::max(1, held_words / (4 * at.vectors));
  int rows = most_threads / at.lanes;
  while (2 * rows * at.lanes <= most_threads * steps && rows < 256) rows *= 2;
  return rows;
}

class Frame {
 public:
  Frame(Kernel& kernel, const PrepareConfig& config) : k(kernel), c(config), r(kernel, config) {}
  void emit();

 private:
  void coordinates();
  void first_chunk();
  void find(const char* tensor, const Reg& at);
  void for_heads(const std::function<void()>& body);
  void next_head(const Reg& more);
  void load_row(int step, const std::vector<Reg>& words, const Reg& when);
  void meet();
  void stream_heads(Steps* steps, Scales* scales);
  void stream_head(int place, Steps* steps, Scales* scales);
  void load_next_head(int place);
  void read_again();
  void add_stride(const Reg& at, const char* stride);
  void held_blocks(Steps* steps, Scales* scales);
  Reg next_chunk(const Reg& more);
  void load(Steps* steps);
  void transform(int step, Steps* steps, const std::function<void(int v)>& take);
  void next_step(const Reg& at, const char* stride);
  void stream(Steps* steps, Scales* scales);
  void sink_values(int step, int v, Steps* steps, Scales* scales);
  void sink_words(int step, Scales* scales);
  void blocks(Steps* steps, Scales* scales);
  void long_block(Steps* steps, Scales* scales);
  void take(Scales* scales);
  void quantize(Scales* scales);
  void hold(Steps* steps);
  void hold_loaded(Steps* steps);

  Kernel& k;
  const PrepareConfig& c;
  Rows r;
  Vec inside_;
  Reg first_, chunk_, block_rows_;
};

void Frame::coordinates() {
  r.declare_coordinates();
  r.x_at = k.b64("x_at");
  if (c.has_output()) r.y_at = k.b64("y_at");
  first_ = k.b32("first_row"), chunk_ = k.b32("chunk_row");
  inside_ = k.pred("is_inside", r.at.steps);
  r.find_coordinates();
  if (takes_heads(c)) r.first_head();
  if (c.sink == Sink::quantize_blocks) {
    block_rows_ = k.b32("block_rows");
    k.ld_param_u32(block_rows_, "block_rows");
    k.mul_lo_u32(first_, r.tile, block_rows_);
    k.add_u32(r.end, first_, block_rows_);
  } else {
    k.mul_lo_u32(first_, r.tile, tile_rows(c));
    k.add_u32(r.end, first_, tile_rows(c));
  }
  k.min_u32(r.end, r.end, r.seqlen);
}

// From the parameter, which is no register that is held.
void Frame::next_step(const Reg& at, const char* stride) {
  k.scope([&] {
    const Reg bytes = k.b64("step_bytes");
    k.ld_param_u64(bytes, stride);
    k.mad_lo_u64(at, bytes, r.at.rows_per_step(), at);
  });
}

void Frame::first_chunk() {
  k.mov_b32(chunk_, first_);
  k.shr_u32(r.row, r.thread, log2_of(r.at.lanes));
  k.add_u32(r.row, r.row, first_);
}

// Where this thread's first row of the chunk stands in tensor x or y.
void Frame::find(const char* tensor, const Reg& at) {
  if (tensor[0] == 'y' && !c.has_output()) return;
  const int piece_bytes = tensor[0] == 'x' || c.sink == Sink::store ? 16 : 8;
  k.scope([&] {
    const Reg wide = k.b64("wide"), stride = k.b64("row_stride");
    k.ld_param_u64(stride, std::string(tensor) + "_stride_seq");
    tensor_base(k, at, tensor, r.batch, r.head);
    k.cvt_u64_u32(wide, r.row);
    k.mad_lo_u64(at, wide, stride, at);
    k.mad_wide_u32(at, r.piece, piece_bytes, at);
  });
}

Reg Frame::next_chunk(const Reg& more) {
  k.add_u32(chunk_, chunk_, r.at.rows());
  k.add_u32(r.row, r.row, r.at.rows());
  k.setp("lt", "u32", more, chunk_, r.end);
  return more;
}

// `body` for each of this CTA's heads.
void Frame::for_heads(const std::function<void()>& body) {
  if (!takes_heads(c)) return body();
  k.scope([&] {
    const Reg more = k.pred("has_more_heads");
    k.loop("heads", [&] {
      body();
      next_head(more);
      return more;
    });
  });
}

void Frame::next_head(const Reg& more) {
  k.add_u32(r.head, r.head, 1);
  r.has_head(more, r.head);
}

// The pieces of one row of this thread; zeros for a row that is not there.
void Frame::load_row(int step, const std::vector<Reg>& words, const Reg& when) {
  for (int v = 0; v < r.at.vectors; ++v) {
    const std::vector<Reg> piece(words.begin() + 4 * v, words.begin() + 4 * v + 4);
    for (const Reg& word : piece) k.mov_b32(word, 0);
    k.ld_global("L1::no_allocate.v4.b32", piece, address(r.x_at, 16 * v * r.at.lanes)).when(when).note(v ? "" : "read once");
  }
  if (step + 1 < r.at.steps || r.at.trips > 1) next_step(r.x_at, "x_stride_seq");
}

// All pieces of this thread's rows, in flight at once; zeros for rows beyond the end.
void Frame::load(Steps* steps) {
  k.scope([&] {
    const Reg row = k.b32("loaded_row");
    for (int step = 0; step < r.at.steps; ++step) {
      k.add_u32(row, r.row, step * r.at.rows_per_step());
      k.setp("lt", "u32", inside_[step], row, r.end);
      load_row(step, r.row_words(step), inside_[step]);
    }
  });
  if (c.rope != Rope::none && !holds_table(c, r.at)) steps->prefetch_tables();
}

void Frame::meet() {
  if (c.hadamard != Hadamard::none) k.bar_sync_all(0).note("signs and H_16, written while these rows are on their way");
}

// One row of each thread through its steps, unless no thread has one. The branch also keeps ptxas from
// working on several rows at once, for which there are no registers.
void Frame::transform(int step, Steps* steps, const std::function<void(int v)>& take) {
  k.section(step == 0 ? "RoPE, Hadamard" : "the next row");
  k.scope([&] {
    const Reg first = k.b32("step_row"), exists = k.pred("step_exists");
    k.add_u32(first, chunk_, step * r.at.rows_per_step());
    k.setp("lt", "u32", exists, first, r.end);
    k.if_(exists, [&] { steps->apply(step, take); });
  });
}

void Frame::emit() {
  k.min_ctas_per_sm(rows_ctas_per_sm(c));
  coordinates();
  r.declare();
  std::unique_ptr<Steps> steps;
  std::unique_ptr<Scales> scales;
  if (r.transforms()) steps = std::make_unique<Steps>(r);
  if (c.sink != Sink::store) scales = std::make_unique<Scales>(r);
  if (c.sink == Sink::quantize_blocks) return blocks(steps.get(), scales.get());
  if (takes_heads(c)) return stream_heads(steps.get(), scales.get());
  stream(steps.get(), scales.get());
}

// ---- A tile of rows, once

void Frame::stream(Steps* steps, Scales* scales) {
  k.section("the rows");
  first_chunk();
  find("x", r.x_at);
  find("y", r.y_at);
  r.meet_other_grids();
  if (c.sink == Sink::amax) scales->clear();
  const bool ahead = reads_ahead(c);
  if (c.sink == Sink::quantize && !ahead) scales->read();
  const auto trip = [&] {
    load(steps);
    if (c.sink == Sink::quantize && ahead) scales->read();
    meet();
    for (int step = 0; step < r.at.steps; ++step) {
      if (steps != nullptr) transform(step, steps, [&](int v) { sink_values(step, v, steps, scales); });
      else sink_words(step, scales);
      if (c.has_output()) next_step(r.y_at, "y_stride_seq");
    }
  };
  if (r.at.trips == 1) {
    trip();
  } else {
    const Reg more = k.pred("has_more_rows");
    k.loop("rows", [&] {
      trip();
      return next_chunk(more);
    });
  }
  if (c.sink != Sink::amax) return;
  k.section("the head's largest");
  scales->reduce();
  scales->add_to_amax();
}

// One row of a thread, of each head in turn: cos and sin loaded once, the next head's row asked for before this one's is computed.
// Its words have two places, which change parts, as copies would wait for what is on its way.
void Frame::stream_heads(Steps* steps, Scales* scales) {
  k.section("the first head's rows");
  first_chunk();
  find("x", r.x_at);
  find("y", r.y_at);
  r.meet_other_grids();
  load(steps);
  if (holds_table(c, r.at)) steps->hold_table();
  meet();
  const Reg more = k.pred("has_more_heads");
  k.loop("heads", [&] {
    stream_head(0, steps, scales);
    next_head(more);
    if (loads_ahead(c, r.at)) {
      k.if_(more, [&] {
        stream_head(1, steps, scales);
        next_head(more);
      });
    }
    return more;
  });
}

// What a register need not hold while values fill them.
void Frame::read_again() {
  k.mov_b32(r.thread, special("tid.x"));
  k.mov_b32(r.batch, special("ctaid.y"));
}

// The head whose words stand in `place`.
void Frame::stream_head(int place, Steps* steps, Scales* scales) {
  const bool ahead = loads_ahead(c, r.at);
  if (ahead) load_next_head(1 - place);
  if (c.sink == Sink::amax) scales->clear();
  if (c.sink == Sink::quantize) scales->read();
  k.section("RoPE, Hadamard");
  steps->apply(place, [&](int v) { sink_values(place, v, steps, scales); });
  if (!ahead) load_next_head(place);
  if (c.sink == Sink::amax) {
    read_again();
    scales->reduce();
    scales->add_to_amax();
  }
  if (c.has_output()) add_stride(r.y_at, "y_stride_head");
}

void Frame::load_next_head(int place) {
  k.scope([&] {
    const Reg head = k.b32("next_head"), loads = k.pred("loads_next");
    add_stride(r.x_at, "x_stride_head");
    k.add_u32(head, r.head, 1);
    r.has_head(loads, head);
    k.and_pred(loads, loads, inside_[0]);
    load_row(0, r.row_words(place), loads);
  });
}

void Frame::add_stride(const Reg& at, const char* stride) {
  k.scope([&] {
    const Reg bytes = k.b64("head_stride");
    k.ld_param_u64(bytes, stride);
    k.add_u64(at, at, bytes);
  });
}

void Frame::sink_values(int step, int v, Steps* steps, Scales* scales) {
  const Reg inside = inside_[std::min(step, r.at.steps - 1)];  // of a second place too
  if (c.sink == Sink::amax) return scales->take_values(v);
  if (c.sink == Sink::quantize) return scales->quantize_values(v, inside);
  steps->pack(c.in, step, v);
  k.st_global_v4_b32(address(r.y_at, 16 * v * r.at.lanes), r.vector(step, v)).when(inside);
}

void Frame::sink_words(int step, Scales* scales) {
  if (c.sink == Sink::amax) scales->take_words(step);
  else scales->quantize_words(step, inside_[step]);
}

// ---- Blocks of rows, each with its own scale

// The rows of a chunk: loaded, through their steps, held as pairs.
void Frame::hold(Steps* steps) {
  find("x", r.x_at);
  load(steps);
  meet();
  hold_loaded(steps);
}

void Frame::hold_loaded(Steps* steps) {
  if (steps == nullptr) return;
  for (int step = 0; step < r.at.steps; ++step) transform(step, steps, [&](int v) { steps->pack(r.held(), step, v); });
}

void Frame::take(Scales* scales) {
  for (int step = 0; step < r.at.steps; ++step) scales->take_words(step);
}

void Frame::quantize(Scales* scales) {
  k.section("to 8 bits");
  find("y", r.y_at);
  for (int step = 0; step < r.at.steps; ++step) {
    scales->quantize_words(step, inside_[step]);
    if (step + 1 < r.at.steps) next_step(r.y_at, "y_stride_seq");
  }
}

void Frame::blocks(Steps* steps, Scales* scales) {
  const Reg fits = k.pred("fits"), count = k.b32("row_count");
  k.section("the block's largest");
  first_chunk();
  k.sub_u32(count, r.end, first_);
  k.setp("le", "u32", fits, count, r.at.rows());
  k.if_else(fits, [&] { held_blocks(steps, scales); }, [&] {
    r.meet_other_grids();
    for_heads([&] {
      first_chunk();
      long_block(steps, scales);
    });
  }, "a block that registers hold");
}

// Of each head in turn; a row's registers take the next head's as soon as it is stored.
void Frame::held_blocks(Steps* steps, Scales* scales) {
  const bool turns = takes_heads(c);
  const auto block = [&] {
    hold_loaded(steps);
    if (turns) read_again();
    scales->clear();
    take(scales);
    scales->reduce();
    scales->write_block();
  };
  find("x", r.x_at);
  r.meet_other_grids();
  load(steps);
  meet();
  if (!turns) {
    block();
    return quantize(scales);
  }
  k.scope([&] {
    const Reg more = k.pred("has_more_heads"), loads = k.pred("loads_next");
    k.loop("heads", [&] {
      block();
      find("y", r.y_at);
      next_head(more);
      find("x", r.x_at);
      k.section("to 8 bits, and the next head's rows");
      for (int step = 0; step < r.at.steps; ++step) {
        scales->quantize_words(step, inside_[step]);
        if (step + 1 < r.at.steps) next_step(r.y_at, "y_stride_seq");
        k.and_pred(loads, inside_[step], more);
        load_row(step, r.row_words(step), loads);
      }
      return more;
    });
  });
}

// In chunks, and all of them again when the scale is known.
void Frame::long_block(Steps* steps, Scales* scales) {
  const Reg more = k.pred("has_more_rows");
  k.section("a block of several chunks");
  scales->clear();
  k.loop("rows", [&] {
    hold(steps);
    take(scales);
    return next_chunk(more);
  });
  scales->reduce();
  scales->write_block();
  first_chunk();
  k.loop("rows again", [&] {
    hold(steps);
    quantize(scales);
    return next_chunk(more);
  });
}

}  // namespace

Rows::Rows(Kernel& kernel, const PrepareConfig& config) : k(kernel), c(config), at(row_layout(config)) {}

void Rows::declare_coordinates() {
  k.section("coordinates");
  thread = k.b32("thread"), piece = k.b32("piece"), batch = k.b32("batch"), head = k.b32("head");
  heads = k.b32("heads"), tile = k.b32("tile"), seqlen = k.b32("seqlen"), row = k.b32("row"), end = k.b32("row_end");
}

void Rows::find_coordinates() {
  k.mov_b32(thread, special("tid.x"));
  k.and_b32(piece, thread, at.lanes - 1);
  k.ld_param_u32(seqlen, "seqlen");
  tile_and_head(k, tile, head, batch, heads, 1, c.follows_amax());
}

void Rows::meet_other_grids() {
  if (reads_ahead(c)) {
    k.scope([&] {
      const Reg fixed = k.f32("fixed_scale"), alone = k.pred("no_amax_before");
      k.ld_param_f32(fixed, "fixed_scale");
      k.setp("ne", "f32", alone, fixed, f32_imm(0));
      k.griddepcontrol_wait().when(alone).note("else amax has waited for all of x, before it let this grid in");
    });
  } else {
    k.griddepcontrol_wait().note("the grid before is complete: up to here only parameters and shared memory");
  }
  k.griddepcontrol_launch_dependents().note("the grid behind this one may take its place on an SM as soon as one is free");
}

void Rows::first_head() {
  k.scope([&] {
    const Reg each = k.b32("heads_per_cta");
    k.ld_param_u32(each, "heads_per_cta");
    k.mul_lo_u32(head, head, each).note("the first of this CTA's heads");
  });
}

void Rows::has_head(const Reg& is, const Reg& which) {
  k.scope([&] {
    const Reg each = k.b32("heads_per_cta"), left = k.pred("is_same_group");
    k.ld_param_u32(each, "heads_per_cta");
    k.sub_u32(each, each, 1);
    k.and_b32(each, each, which);
    k.setp("ne", "u32", left, each, 0);
    k.setp("lt", "u32", is, which, heads);
    k.and_pred(is, is, left);
  });
}

void Rows::declare() {
  half = k.b16("half", 2), bits = k.b32("bits");
  words = k.b32("pair", 4 * at.vectors * (loads_ahead(c, at) ? 2 : at.steps));
  if (transforms() && !c.packed) value = k.f32("value", 8 * at.vectors);
}

RowLayout row_layout(const PrepareConfig& c) {
  RowLayout at;
  if (c.transposed) return {1, 8, transpose_threads(c), 1, 1};  // four keys, two pieces of each
  if (c.packed) return packed_layout(c);
  share_row(c, &at);
  if (c.sink == Sink::quantize_blocks) {
    const bool transforms = c.rope != Rope::none || c.hadamard != Hadamard::none;
    // A narrow row takes few registers beside: more threads rather than more rows in each. With RoPE always (H200, d = 128: 42 us
    // with 256 threads, 50 with 128).
    int most_steps = 1;
    while (transforms && 2 * most_steps * 4 * at.vectors <= (at.vectors <= 2 && at.lanes == 4 ? held_words / 2 : held_words)) most_steps *= 2;
    if (c.rope != Rope::none) most_steps = 1;
    at.threads = std::min(most_threads, std::max(32, c.rows * at.lanes / most_steps));
    if (c.threads != 0) at.threads = c.threads;
    at.steps = c.rows * at.lanes / at.threads;
    return at;
  }
  if (takes_heads(c)) {
    at.threads = most_threads / 2;
    return at;
  }
  at.threads = most_threads;
  // A tile of 16 to 32 KB: butterflies leave registers for one row at a time.
  const int steps = at.vectors <= 2 ? 4 : 2;
  const bool spills = c.sink == Sink::quantize && at.vectors > 8;  // 144, 176, 208 and 240 columns, 52 to 412 bytes
  at.steps = spills || (!mixes_by_mma(c, at) && c.hadamard != Hadamard::none) ? 1 : steps;
  at.trips = steps / at.steps;
  return at;
}

// Blocks of wide pieces of a row leave no register for it.
bool takes_heads(const PrepareConfig& c) {
  if (c.packed) return true;
  RowLayout at;
  share_row(c, &at);
  return c.rope != Rope::none && (c.sink != Sink::quantize_blocks || at.vectors <= 4);
}

bool reads_ahead(const PrepareConfig& c) { return c.follows_amax() && row_layout(c).trips == 1; }

bool holds_table(const PrepareConfig& c, const RowLayout& at) {
  return !c.packed && takes_heads(c) && c.sink != Sink::quantize_blocks && at.vectors <= (c.hadamard == Hadamard::none ? 4 : 2);
}

bool loads_ahead(const PrepareConfig& c, const RowLayout& at) {
  return !c.packed && takes_heads(c) && c.sink != Sink::quantize_blocks && at.vectors <= 4;
}

// What ptxas is to leave room for: it would take all registers that one CTA can have, or too few and spill.
int rows_ctas_per_sm(const PrepareConfig& c) {
  const RowLayout at = row_layout(c);
  const int words = 4 * at.vectors * at.steps;
  int warps = 24;
  if (c.packed) return std::max(1, std::min(32, (words <= 16 ? 40 : words <= 32 ? 32 : 16) * 32 / at.threads));
  if (takes_heads(c) && c.sink != Sink::quantize_blocks) {
    const bool mixes = c.hadamard != Hadamard::none;
    const bool wide = at.vectors > 4 || (at.vectors == 4 && mixes && c.sink == Sink::amax);
    warps = at.vectors > 7 ? 8 : wide ? 12 : at.vectors > 2 ? 16 : mixes ? 24 : 32;
  } else if (c.rope == Rope::none && c.hadamard == Hadamard::none) {
    warps = words > 32 ? 24 : c.sink == Sink::quantize && at.vectors > 2 ? 40 : 32;
  } else if (mixes_by_mma(c, at) && at.vectors <= 4) {
    const bool rope = c.rope != Rope::none;
    if (words > 32 || (rope && at.lanes == 8 && at.vectors == 4)) warps = 16;
    else if (at.lanes == 4 && (c.sink == Sink::quantize_blocks || c.sink == Sink::amax) && (at.vectors <= 2 || (!rope && c.sink == Sink::amax))) warps = 32;
  } else if (at.vectors > 7) {
    warps = 8;
  } else if (words > 32 || at.vectors > 4 || (words == 32 && at.vectors == 4 && c.rope != Rope::none)) {
    warps = 16;
  } else if (at.vectors <= 2) {
    warps = words <= 16 ? 32 : c.rope == Rope::none ? 28 : 24;
  }
  return std::max(1, std::min(32, warps * 32 / at.threads));
}

int rows_threads(const PrepareConfig& c) { return row_layout(c).threads; }
int tile_rows(const PrepareConfig& c) { return c.transposed ? key_order_padding : row_layout(c).rows() * row_layout(c).trips; }
int hadamard_size(int head_dim) { return power_of_two_in(head_dim); }

int rows_to_hold(const PrepareConfig& c, std::int64_t block_rows) {
  int rows = 16;
  while (rows < block_rows && rows < most_rows(c)) rows *= 2;
  return rows;
}

void check_block_rows(const PrepareConfig& c) {
  const int most = most_rows(c);
  if (c.rows < 16 || c.rows > most || power_of_two_in(c.rows) != c.rows)
    throw Error(c.name() + ": rows " + std::to_string(c.rows) + " must be a power of two in [16, " + std::to_string(most) + "]");
}

bool threads_fit(const PrepareConfig& c) {
  RowLayout at;
  share_row(c, &at);
  const bool transforms = c.rope != Rope::none || c.hadamard != Hadamard::none;
  const int all = c.rows * at.lanes, most = std::min(most_threads, all);
  return c.sink == Sink::quantize_blocks && !c.transposed && transforms && power_of_two_in(c.threads) == c.threads &&
         c.threads >= 32 && c.threads <= most && 4 * at.vectors * all / c.threads <= held_words;
}

void emit_rows(Kernel& k, const PrepareConfig& c) { Frame(k, c).emit(); }

}  // namespace flashptx::gen
