// Forward attention with wgmma and TMA but without specialised warps: what FlashAttention-3 is compared with
// in its own ablation (paper, table 2), and a rung of the ladder.
//
// All warpgroups compute; thread 0 also issues every TMA load. It refills a stage at the head of the next trip,
// after every warp has arrived on the stage's `empty` barrier, so warpgroup 0 waits there for the slowest one:
// that wait, and registers that cannot be moved to where they are needed, are what specialisation removes.
// Steps and tile operations are those of attention_forward.cpp. Next: forward_parts.h.
#include "gen/kernels/attention_symmetric.h"

#include "gen/isa/error.h"
#include "gen/kernels/attention_forward.h"
#include "gen/kernels/forward_parts.h"
#include "gen/kernels/schedule_lines.h"

namespace flashptx::gen {
namespace {

// The side of thread 0 that loads. Counters live in every thread, which costs nothing that is scarce here.
struct Loader {
  explicit Loader(ForwardContext& context)
      : f(context), k(f.k), loads(k.pred("is_loader")), some(k.pred("has_more")), k_count(k.b32("k_count")),
        v_count(k.b32("v_loaded")), k_row(k.b32("k_row")), v_row(k.b32("v_row")), k_left(k.b32("k_left")),
        v_left(k.b32("v_left")) {}
  ForwardContext& f;
  Kernel& k;
  Reg loads, some;
  Reg k_count, v_count;  // blocks loaded so far: ring positions
  Reg k_row, v_row;      // first key row of the next block
  Reg k_left, v_left;    // blocks of the tile that are not loaded yet

  void setup() {
    Reg thread = k.b32("loader_thread");
    k.mov_b32(thread, special("tid.x"));
    k.setp("eq", "u32", loads, thread, 0);
    k.mov_b32(k_count, 0);
    k.mov_b32(v_count, 0);
  }

  Reg map(const char* name) {
    Reg at = k.b64(std::string(name) + "_at");
    k.mov_b64(at, symbol(name));
    k.cvta_param_u64(at, at);
    return at;
  }

  void start_tile() {
    k.mov_b32(k_left, f.blocks);
    k.mov_b32(v_left, f.blocks);
    k.sub_u32(k_row, f.blocks, 1);
    k.mul_lo_u32(k_row, k_row, f.n()).note("from the last block to the first");
    k.mov_b32(v_row, k_row);
  }

  // One block, if there is one left, into the stage that was freed first.
  void block(bool is_k) {
    const SharedLayout& m = f.smem;
    const std::string ring = is_k ? "k" : "v";
    const Reg count = is_k ? k_count : v_count, row = is_k ? k_row : v_row, left = is_k ? k_left : v_left;
    const int slabs = is_k ? m.slabs_qk : m.slabs_v, bytes = is_k ? m.k_stage_bytes : m.v_stage_bytes;
    const int full = is_k ? m.k_full : m.v_full, empty = is_k ? m.k_empty : m.v_empty;
    k.setp("ne", "u32", some, left, 0);
    k.if_(some, [&] {
      k.scope([&] {
        RingSlot slot = ring_slot(k, ring, count, f.config.plan.kv_stages);
        Reg bar = ring_barrier(f, ring + "_load_bar", slot.stage, full), parity = k.b32(ring + "_free");
        Reg dst = k.b32(ring + "_dst"), column = k.b32(ring + "_column"), tensor = map(is_k ? "k_map" : "v_map");
        k.xor_b32(parity, slot.phase, 1);
        trace_mark(f, is_k ? TraceEvent::k_empty_wait : TraceEvent::v_empty_wait);
        k.wait(ring + "_empty", address(bar, empty - full), parity);
        trace_mark(f, is_k ? TraceEvent::k_load : TraceEvent::v_load);
        k.mbarrier_arrive_expect_tx(address(bar), bytes).note("the whole box, zero fill included");
        k.mad_lo_u32(dst, slot.stage, bytes, f.base);
        k.add_u32(dst, dst, is_k ? m.k : m.v);
        for (int s = 0; s < slabs; ++s) {
          k.mov_b32(column, 64 * s);
          if (s) k.add_u32(dst, dst, m.slab_bytes_kv);
          k.cp_async_bulk_tensor_load(dst, tensor, {column, row, f.kv_head, f.batch_index}, address(bar));
        }
      });
      k.add_u32(count, count, 1);
      k.sub_u32(row, row, f.n());
      k.sub_u32(left, left, 1);
    });
  }

  void q() {
    const SharedLayout& m = f.smem;
    k.comment("Q: one slice and one barrier a warpgroup");
    k.scope([&] {
      Reg parity = k.b32("q_free"), dst = k.b32("q_dst"), column = k.b32("q_column"), row = k.b32("q_load_row");
      Reg tensor = map("q_map");
      RingSlot slot = ring_slot(k, "q_load", f.q_count, 1);
      k.xor_b32(parity, slot.phase, 1);
      for (int w = 0; w < f.warpgroups(); ++w) {
        k.wait("q_empty", address(f.base, m.q_empty + 8 * w), parity);
        k.mbarrier_arrive_expect_tx(address(f.base, m.q_full + 8 * w), m.q_slice_bytes);
        k.add_u32(row, f.q_row0, 64 * w);
        for (int s = 0; s < m.slabs_qk; ++s) {
          k.mov_b32(column, 64 * s);
          k.add_u32(dst, f.base, m.q + w * m.q_slice_bytes + s * m.slab_bytes_q);
          k.cp_async_bulk_tensor_load(dst, tensor, {column, row, f.head, f.batch_index},
                                      address(f.base, m.q_full + 8 * w));
        }
      }
    });
  }

  void only_loader(const std::function<void()>& body) {
    k.if_(loads, body, "one thread loads");
    k.bar_warp_sync().note("its warp goes on together: wgmma wants all lanes");
  }
};

void emit_tile_registers(ForwardContext& f) {
  Kernel& k = f.k;
  f.tile = k.b32("tile"), f.q_block = k.b32("q_block"), f.kv_head = k.b32("kv_head");
  emit_tile_counts(f);
  k.mov_b32(f.tile, special("ctaid.x"));
}

// V's stage of the block before is freed `lag` trips later than K's: that many fewer are filled ahead.
int v_lag(const Schedule& s) {
  for (const Step& step : s.steps)
    if (step.what == Do::free_v) return step.lag;
  return 0;
}

Budget emit_tile_blocks_loop(ForwardContext& f, Loader& loader, const Derived& trips) {
  Kernel& k = f.k;
  Reg more = k.pred("more_blocks");
  k.section("trip 0: the steps whose block exists");
  k.mov_pred(f.o_keep, 0).note("the first P V starts O afresh");
  k.sub_u32(f.block, f.own_blocks, 1).note("from the last block to the first");
  emit_trip(f, trips.peeled, Trip::peeled);
  Budget budget = emit_kv_loop(f, trips.steady, more, [&] {
    trace_position(f, f.kv_count);
    k.section("thread 0 refills what the trip before has freed");
    loader.only_loader([&] {
      loader.block(true);
      loader.block(false);
    });
  });
  k.section("epilogue trip: what still lags");
  emit_trip(f, trips.epilogue, Trip::epilogue);
  return budget;
}

Budget emit_one_tile(ForwardContext& f, Loader& loader, const Schedule& schedule) {
  Kernel& k = f.k;
  Budget budget;
  const Plan& plan = f.config.plan;
  emit_decode_tile(f);
  emit_warpgroup_range(f);
  k.mov_b32(f.own_blocks, f.blocks).note("warpgroups walk the tile's blocks together: the mask hides what is beyond");
  k.section("thread 0 fills the rings");
  loader.start_tile();
  trace_position(f, f.kv_count);
  loader.only_loader([&] {
    loader.block(true);
    loader.q();
    for (int i = 1; i < plan.kv_stages; ++i) loader.block(true);
    for (int i = v_lag(schedule); i < plan.kv_stages; ++i) loader.block(false);
  });
  emit_wait_q(f);
  Reg sees = k.pred("sees_keys");
  k.setp("ne", "u32", sees, f.own_blocks, 0);
  k.if_else(sees, [&] { budget = emit_tile_blocks_loop(f, loader, derive(schedule)); }, [&] { emit_empty_rows(f); });
  trace_position(f, f.kv_count);
  trace_mark(f, TraceEvent::finish_rows);
  emit_finish_rows(f);
  k.mov_b32(f.out_row0, f.own_q_row0);
  k.mov_b32(f.out_head, f.head);
  k.mov_b32(f.out_batch, f.batch_index);
  k.add_u32(f.q_count, f.q_count, 1);
  trace_mark(f, TraceEvent::store_o);
  emit_epilogue(f);
  return budget;
}

}  // namespace

EmittedKernel emit_attention_symmetric(const KernelConfig& config, std::string* line_table) {
  const std::string bad = check_forward(config);
  if (!bad.empty()) throw Error(config.name() + ": " + bad);
  const Schedule& schedule = *config.plan.table();
  Kernel k(config.name());
  ForwardContext f(k, config);
  if (line_table) point_at_schedule(k, config);
  k.threads(128 * config.plan.warpgroups);
  k.min_ctas_per_sm(1);
  k.dynamic_shared("smem", 1024);
  emit_params(k, config);
  emit_barrier_init(f);
  emit_problem_sizes(f);
  f.warpgroup = k.b32("warpgroup");
  k.mov_b32(f.warpgroup, special("tid.x"));
  k.shr_u32(f.warpgroup, f.warpgroup, 7);
  emit_consumer_setup(f);
  emit_tile_registers(f);
  Loader loader(f);
  loader.setup();
  Reg writer;
  if (config.plan.traced()) {
    writer = k.b32("trace_writer");
    k.add_u32(writer, f.warpgroup, 1);
  }
  emit_let_next_grid(f);
  emit_wait_for_grids(f);
  trace_start(f, writer.valid() ? Operand(writer) : Operand(0), false);
  Budget budget;
  Reg again = k.pred("more_tiles");
  k.loop("tile", [&] {
    budget = emit_one_tile(f, loader, schedule);
    k.scope([&] {
      Reg ctas = k.b32("ctas");
      k.mov_b32(ctas, special("nctaid.x"));
      k.add_u32(f.tile, f.tile, ctas);
    });
    k.setp("lt", "u32", again, f.tile, f.tiles);
    return again;
  });
  trace_position(f, f.kv_count);
  trace_mark(f, TraceEvent::done);
  trace_finish(f);
  EmittedKernel out;
  out.facts = launch_facts(config, k, f.smem);
  emit_header(k, config, out.facts, f.smem, drawn_schedule(config.plan), budget);
  k.ret();
  out.text = k.text();
  if (line_table) *line_table = k.line_table();
  out.trip = budget.steps;
  return out;
}

}  // namespace flashptx::gen
