// Marks: one lane a warpgroup writes {clock, position and event} as a step begins, so that the kernel that is
// watched stays nearly the kernel that is not.
//
// What marks cost is issue slots, which all warps of a warpgroup pay, and time between a token and the products that
// wait for it. So the marks of a trip share stores: a mark is one read of the clock, a record of three marks adds
// {tag, address, test, count, store}. With Marks::few a steady trip has three or four marks and one store, right
// behind the last mark of its softmax: eight slots a trip (three clocks, a fourth word, test, address, store), where
// every step marked (Marks::all) takes about 30. Measured on an H200 at 8k: few 2.4 to 2.9 % at head_dim 64
// in 16 bits, 0.3 to 0.7 % at 128; in 8 bit with V^T given up to 1.9 %. Where V is transposed in the kernel those warps bind, and
// few leaves them and their registers alone: marked they cost 2 to 3.4 %, at head_dim 256 7.9 %.
// Next: gen/trace_events.h (the buffer).
#include "gen/trace_events.h"
#include "gen/tile/forward_context.h"

namespace flashptx {

const char* to_string(TraceEvent e) {
  static const char* const kNames[] = {
      "none",         "k_full_wait", "token_wait",   "qk",           "v_full_wait",
      "pv",           "wait_qk",     "mask_max",     "exp_sum",      "wait_pv",
      "rescale_o",    "pack_p",      "tile_wait",    "q_full_wait",  "skip_blocks",
      "finish_rows",  "store_o",     "slot_wait",    "k_empty_wait", "k_load",
      "v_empty_wait", "v_load",      "q_empty_wait", "q_load",       "raw_full_wait",
      "transpose",    "done"};
  static_assert(sizeof kNames / sizeof *kNames == static_cast<std::size_t>(TraceEvent::count));
  return e < TraceEvent::count ? kNames[static_cast<int>(e)] : "?";
}

bool is_marked(Marks marks, TraceEvent e) {
  if (marks != Marks::few) return marks == Marks::all;
  switch (e) {
    case TraceEvent::k_full_wait:
    case TraceEvent::token_wait:
    case TraceEvent::v_full_wait:
    case TraceEvent::wait_qk:
    case TraceEvent::wait_pv:
    case TraceEvent::rescale_o:
    case TraceEvent::pack_p:
    case TraceEvent::k_empty_wait:
    case TraceEvent::v_empty_wait:
    case TraceEvent::v_load:
    case TraceEvent::q_empty_wait:
    case TraceEvent::raw_full_wait:
    case TraceEvent::transpose:
      return false;
    default:
      return true;
  }
}

TraceEvent trace_trip_event(const KernelConfig& c, Do step) {
  const bool one = c.plan.softmax == Softmax::guarded;  // most trips take no maximum: its step is a test
  switch (step) {
    case Do::qk: return TraceEvent::qk;
    case Do::pv: return TraceEvent::pv;
    case Do::mask_max: return one ? TraceEvent::exp_sum : TraceEvent::mask_max;
    case Do::exp_sum: return one ? TraceEvent::none : TraceEvent::exp_sum;
    default: return TraceEvent::none;
  }
}

std::vector<TraceEvent> trace_trip_events(const KernelConfig& c) {
  std::vector<TraceEvent> out;
  for (const Step& s : c.plan.table()->steps)
    if (const TraceEvent e = trace_trip_event(c, s.what); e != TraceEvent::none) out.push_back(e);
  return out;
}

int trace_writers(const KernelConfig& c) {
  const bool transposes = c.problem.eight_bit() && !c.problem.v_transposed;
  return 1 + c.plan.warpgroups + (transposes ? 1 : 0);
}

namespace gen {
namespace {

// The writer's header, and whether there is a buffer and this CTA is one of those watched.
void writer_header(ForwardContext& f, const Operand& writer, const Reg& at, const Reg& watched) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg cta = k.b32("trace_cta"), region = k.b32("trace_region"), bytes = k.b32("trips_bytes");
    Reg offset = k.b64("region_offset"), given = k.pred("trace_given");
    k.ld_param_u64(at, "trace");
    k.setp("ne", "u64", given, at, 0);
    k.emit("cvta.to.global.u64", {at, at}, Location::current());
    k.mov_b32(cta, special("ctaid.x"));
    k.setp("lt", "and", "u32", watched, cta, trace_ctas, given);
    k.mov_b32(region, writer);
    k.mad_lo_u32(region, cta, trace_writers(f.config), region);
    k.ld_param_u32(bytes, "trace_capacity");
    k.shl_b32(bytes, bytes, 4);
    k.mul_wide_u32(offset, bytes, 1).note("the trips lie in front of the header");
    k.add_s64(at, at, offset);
    k.shl_b32(bytes, bytes, 1);
    k.add_u32(bytes, bytes, static_cast<int>(trace_header_bytes));
    k.mul_wide_u32(offset, region, bytes);
    k.add_s64(at, at, offset);
  });
}

std::uint32_t tag_of(TraceEvent e, int place) { return static_cast<std::uint32_t>(e) << (trace_event_bits * place); }

// What all writers' headers begin and end with.
void start_header(Kernel& k, const Reg& at, const Reg& clock, const Reg& sm) {
  Reg now = k.b64("start_ns");
  k.globaltimer(now);
  k.clock(clock);
  k.smid(sm);
  k.st_global_u64(address(at), now);
  k.st_global_v2_b32(address(at, 8), std::vector<Reg>{clock, sm});
}
void end_header(Kernel& k, const Reg& at, const Reg& clock) {
  Reg now = k.b64("end_ns");
  k.globaltimer(now);
  k.clock(clock);
  k.st_global_u64(address(at, 16), now);
  k.st_global_u32(address(at, 24), clock);
}

// Where the role has no register to keep them in (the producer of kernels that transpose V, which has 24).
void find_region_anew(ForwardContext& f) {
  Kernel& k = f.k;
  TraceRegs& t = f.trace;
  if (!t.anew) return;
  t.at = k.b64("trace_at"), t.writes = k.pred("trace_writes");
  writer_header(f, 0, t.at, t.writes);
}
void count_anew(ForwardContext& f) {
  Kernel& k = f.k;
  TraceRegs& t = f.trace;
  if (!t.anew) return;
  t.used = k.b32("trace_used");
  k.mov_b32(t.used, 0);
  for (const Reg& c : t.counts) k.add_u32(t.used, t.used, c);
}

// t.fits: this thread writes, and place `index` is inside the region.
void find_if_fits(ForwardContext& f, const Reg& index) {
  Kernel& k = f.k;
  TraceRegs& t = f.trace;
  if (t.room.valid()) {
    k.setp("lt", "u32", t.fits, index, t.room);
    return;
  }
  k.scope([&] {
    Reg capacity = k.b32("capacity");
    k.ld_param_u32(capacity, "trace_capacity");
    k.setp("lt", "and", "u32", t.fits, index, capacity, t.writes);
  });
}

// The record in `line` to its place, if there is room for it. Slots not written stay zero, as the buffer is.
void write_record(ForwardContext& f) {
  Kernel& k = f.k;
  TraceRegs& t = f.trace;
  k.scope([&] {
    Reg to = k.b64("record_at");
    find_region_anew(f);
    count_anew(f);
    find_if_fits(f, t.used);
    k.mad_wide_u32(to, t.used, static_cast<int>(sizeof(TraceRecord)), t.at);
    k.mad_lo_u32(t.line[0], t.position, 1 << (trace_event_bits * trace_record_marks), t.events);
    const int at = static_cast<int>(trace_header_bytes);
    if (t.filled == 1 && f.config.plan.trace == Marks::few) {  // with all, ptxas 13.0 spills more so
      k.st_global_v2_b32(address(to, at), std::vector<Reg>{t.line[0], t.line[1]}).when(t.fits);
    } else {
      for (int i = t.filled; i < trace_record_marks; ++i) k.mov_b32(t.line[1 + i], 0);
      k.st_global_v4_b32(address(to, at), t.line.all()).when(t.fits);
    }
    if (!t.anew) k.add_u32(t.used, t.used, 1);
  });
  t.filled = t.events = 0;
}

void write_trip(ForwardContext& f) {
  Kernel& k = f.k;
  TraceRegs& t = f.trace;
  if (t.filled != t.trip_marks)
    throw Error("trace marks: a steady trip left " + std::to_string(t.filled) + " marks of " + std::to_string(t.trip_marks));
  find_if_fits(f, t.position);
  const int size = static_cast<int>(sizeof(TraceTrip));
  if (t.trip_at.valid()) {
    k.add_s64(t.trip_at, t.trip_at, -size);
    k.st_global_v4_b32(address(t.trip_at), t.line.all()).when(t.fits);
  } else {
    k.scope([&] {
      Reg to = k.b64("trip_at");
      k.mad_wide_s32(to, t.position, -size, t.at).note("trips lie backwards from the header");
      k.st_global_v4_b32(address(to, -size), t.line.all()).when(t.fits);
    });
  }
  t.filled = t.trip_marks = 0;
}

// Where each register counts (ptxas 13.0 would spill), a mark computes what it needs.
bool spares_registers(const ForwardContext& f, bool one_thread) { return one_thread || f.folds(); }

}  // namespace

bool trace_counts_anew(const ForwardContext& f) {
  return f.transposes() && f.config.plan.trace == Marks::few;
}

void trace_start(ForwardContext& f, const Operand& writer, bool one_thread, const std::vector<Reg>& counts) {
  if (!f.config.plan.traced()) return;
  Kernel& k = f.k;
  TraceRegs& t = f.trace;
  t = {};
  t.fits = k.pred("trace_fits"), t.line = k.b32("marks", 4);
  t.anew = !counts.empty() && trace_counts_anew(f), t.counts = counts;
  if (!t.anew) t.at = k.b64("trace_at"), t.used = k.b32("trace_used"), t.writes = k.pred("trace_writes");
  if (!spares_registers(f, one_thread)) t.room = k.b32("trace_room");
  k.section("marks: the writer's region");
  if (!t.anew) k.mov_b32(t.used, 0);
  k.scope([&] {
    if (t.anew) find_region_anew(f);
    else writer_header(f, writer, t.at, t.writes);
    if (!one_thread) {
      Reg thread = k.b32("trace_thread");
      k.mov_b32(thread, special("tid.x"));
      k.and_b32(thread, thread, 127);
      k.setp("eq", "and", "u32", t.writes, thread, 0, t.writes);
    }
    if (t.room.valid()) {
      k.ld_param_u32(t.room, "trace_capacity");
      k.selp_b32(t.room, t.room, 0, t.writes);
    }
    k.if_(t.writes, [&] { start_header(k, t.at, t.line[0], t.line[1]); });
  });
}

void trace_position(ForwardContext& f, const Reg& position) { f.trace.position = position; }

void trace_trips(ForwardContext& f, const Reg& position) {
  if (f.config.plan.trace != Marks::few) return;
  Kernel& k = f.k;
  TraceRegs& t = f.trace;
  for (std::size_t i = trace_trip_events(f.config).size(); i < 4; ++i)
    k.mov_b32(t.line[static_cast<int>(i)], 0).note("the store is of four");
  if (!t.room.valid()) return;
  if (!t.trip_at.valid()) t.trip_at = k.b64("trips_at");
  const int size = static_cast<int>(sizeof(TraceTrip));
  k.scope([&] {
    Reg lane = k.b32("trip_lane");
    k.mov_b32(lane, special("laneid"));
    k.mad_wide_s32(t.trip_at, position, -size, t.at).note("trips lie backwards from the header");
    k.mad_wide_u32(t.trip_at, lane, size, t.trip_at).note("lane 0 writes; an address by lane is no uniform one to copy each trip");
  });
}

void trace_batch(ForwardContext& f, const Reg& position, bool steady_trip) {
  TraceRegs& t = f.trace;
  t.position = position;
  t.shared = true, t.trip = steady_trip && f.config.plan.trace == Marks::few;
  if (t.trip) t.trip_marks = static_cast<int>(trace_trip_events(f.config).size());
}

void trace_batch_end(ForwardContext& f) {
  TraceRegs& t = f.trace;
  if (t.trip && t.trip_marks) write_trip(f);
  if (f.config.plan.traced() && t.filled) write_record(f);
  t.shared = t.trip = false;
}

void trace_mark(ForwardContext& f, TraceEvent e) {
  if (!is_marked(f.config.plan.trace, e)) return;
  Kernel& k = f.k;
  TraceRegs& t = f.trace;
  if (t.trip) {
    if (e == TraceEvent::mask_max || e == TraceEvent::exp_sum)
      e = trace_trip_event(f.config, e == TraceEvent::mask_max ? Do::mask_max : Do::exp_sum);
    if (e == TraceEvent::none) return;
    if (t.filled == t.trip_marks)
      throw Error(std::string("trace mark ") + to_string(e) + ": a steady trip has room for no more marks");
    k.clock(t.line[t.filled++]).note(std::string("mark: ") + to_string(e));
    if (e == TraceEvent::exp_sum && t.filled == t.trip_marks) write_trip(f);
    return;
  }
  k.clock(t.line[1 + t.filled]).note(std::string("mark: ") + to_string(e));
  t.events |= static_cast<int>(tag_of(e, t.filled));
  ++t.filled;
  if (!t.shared || t.filled == trace_record_marks) write_record(f);
}

void trace_finish(ForwardContext& f) {
  if (!f.config.plan.traced()) return;
  Kernel& k = f.k;
  TraceRegs& t = f.trace;
  k.section("marks: how many");
  k.scope([&] {
    find_region_anew(f);
    count_anew(f);
    if (t.anew) k.add_u32(t.used, t.used, 1).note("the last mark's own");
    k.if_(t.writes, [&] {
      end_header(k, t.at, t.line[0]);
      k.st_global_u32(address(t.at, 28), t.used);
      if (f.config.plan.trace == Marks::few && t.position.valid())
        k.st_global_u32(address(t.at, 32), t.position).note("blocks gone through: trips asked for");
    });
  });
}

// ---- The transposing warps: the first of them writes, and computes its place each time. Marks::all only: where these warps
// bind, a record of theirs costs what it takes, and registers that the consumers then lack.

namespace {

void as_transposer(ForwardContext& f, const std::function<void(const Reg& at)>& write) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg at = k.b64("region_at"), writes = k.pred("writes_marks"), thread = k.b32("own_thread");
    writer_header(f, 1 + f.warpgroups(), at, writes);
    k.mov_b32(thread, special("tid.x"));
    k.setp("eq", "and", "u32", writes, thread, 32, writes);
    k.if_(writes, [&] { write(at); });
  });
}

}  // namespace

bool trace_marks_transposer(const ForwardContext& f) { return is_marked(f.config.plan.trace, TraceEvent::transpose); }

void trace_transposer_start(ForwardContext& f) {
  if (!trace_marks_transposer(f)) return;
  as_transposer(f, [&](const Reg& at) {
    Reg clock = f.k.b32("start_clock"), sm = f.k.b32("sm");
    start_header(f.k, at, clock, sm);
  });
}

void trace_clock(ForwardContext& f, const Reg& clock, TraceEvent e) {
  if (is_marked(f.config.plan.trace, e)) f.k.clock(clock).note(std::string("mark: ") + to_string(e));
}

void trace_transposer(ForwardContext& f, const Reg& position, const Operand& record, const std::vector<Reg>& clocks,
                      const std::vector<TraceEvent>& events) {
  if (!trace_marks_transposer(f)) return;
  Kernel& k = f.k;
  as_transposer(f, [&](const Reg& at) {
    Reg capacity = k.b32("capacity"), index = k.b32("record"), tag = k.b32("tag"), fits = k.pred("record_fits");
    std::uint32_t names = 0;
    for (std::size_t i = 0; i < events.size(); ++i) names |= tag_of(events[i], static_cast<int>(i));
    k.mov_b32(index, record);
    k.ld_param_u32(capacity, "trace_capacity");
    k.setp("lt", "u32", fits, index, capacity);
    k.mad_wide_u32(at, index, static_cast<int>(sizeof(TraceRecord)), at);
    k.mad_lo_u32(tag, position, 1 << (trace_event_bits * trace_record_marks), static_cast<int>(names));
    const int to = static_cast<int>(trace_header_bytes);
    k.st_global_u32(address(at, to), tag).when(fits).note("one by one: a vector would want four registers in a row");
    for (std::size_t i = 0; i < clocks.size(); ++i)
      k.st_global_u32(address(at, to + 4 * static_cast<int>(i + 1)), clocks[i]).when(fits);
  });
}

void trace_transposer_finish(ForwardContext& f, const Operand& records) {
  if (!trace_marks_transposer(f)) return;
  as_transposer(f, [&](const Reg& at) {
    Reg clock = f.k.b32("end_clock"), count = f.k.b32("records");
    f.k.mov_b32(count, records);
    end_header(f.k, at, clock);
    f.k.st_global_u32(address(at, 28), count);
  });
}

}  // namespace gen
}  // namespace flashptx
