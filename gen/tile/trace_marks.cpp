// Marks: one lane a warpgroup writes {clock, position and event} as a step begins. Three
// instructions a mark, no branch, so that the kernel that is watched stays nearly the kernel that
// is not.
//
// Room is asked for once a run of marks: the writer's slots advance by the run's size whether it
// fits or not, and the stores of a run that does not fit are predicated off. Threads that do not
// write start beyond any capacity. Next: gen/trace_events.h (the buffer).
#include "gen/tile/forward_context.h"
#include "gen/trace_events.h"

namespace flashptx {

const char* to_string(TraceEvent e) {
  static const char* const kNames[] = {
      "none",         "k_full_wait", "token_wait",   "qk",           "v_full_wait",
      "pv",           "wait_qk",     "mask_max",     "exp_sum",      "wait_pv",
      "rescale_o",    "pack_p",      "tile_wait",    "q_full_wait",  "skip_blocks",
      "finish_rows",  "store_o",     "slot_wait",    "k_empty_wait", "k_load",
      "v_empty_wait", "v_load",      "q_empty_wait", "q_load",       "done"};
  static_assert(sizeof kNames / sizeof *kNames == static_cast<std::size_t>(TraceEvent::count));
  return e < TraceEvent::count ? kNames[static_cast<int>(e)] : "?";
}

namespace gen {
namespace {

constexpr std::uint32_t kNotAWriter = 0x40000000;  // more slots than any buffer has

// Address of the writer's header, and whether there is a buffer and this CTA is one of those
// watched.
void writer_region(ForwardContext& f, const Operand& writer, const Reg& at, const Reg& watched) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg cta = k.b32("trace_cta"), region = k.b32("trace_region"), bytes = k.b32("region_bytes");
    Reg offset = k.b64("region_offset"), given = k.pred("trace_given");
    k.ld_param_u64(at, "trace");
    k.setp("ne", "u64", given, at, 0);
    k.emit("cvta.to.global.u64", {at, at}, Location::current());
    k.mov_b32(cta, special("ctaid.x"));
    k.setp("lt", "u32", watched, cta, trace_ctas);
    k.and_pred(watched, watched, given);
    k.mov_b32(region, writer);
    k.mad_lo_u32(region, cta, 1 + f.warpgroups(), region);
    k.ld_param_u32(bytes, "trace_capacity");
    k.shl_b32(bytes, bytes, 3);
    k.add_u32(bytes, bytes, static_cast<int>(trace_header_bytes));
    k.mul_wide_u32(offset, region, bytes);
    k.add_s64(at, at, offset);
  });
}

}  // namespace

void trace_start(ForwardContext& f, const Operand& writer, bool one_thread) {
  if (!f.config.plan.trace) return;
  Kernel& k = f.k;
  TraceRegs& t = f.trace;
  t = {k.b64("trace_at"),
       k.b32("trace_used"),
       k.pred("trace_fits"),
       k.b32("mark_clock"),
       k.b32("mark_tag"),
       {},
       0};
  k.section("marks: the writer's region");
  k.mov_b32(t.used, hex(kNotAWriter));
  k.scope([&] {
    Reg watched = k.pred("is_watched"), now = k.b64("start_ns");
    writer_region(f, writer, t.at, watched);
    if (!one_thread) {
      Reg thread = k.b32("trace_thread"), leads = k.pred("leads");
      k.mov_b32(thread, special("tid.x"));
      k.and_b32(thread, thread, 127);
      k.setp("eq", "u32", leads, thread, 0);
      k.and_pred(watched, watched, leads);
    }
    k.if_(watched, [&] {
      k.mov_b32(t.used, 0);
      k.globaltimer(now);
      k.clock(t.clock);
      k.smid(t.tag);
      k.st_global_u64(address(t.at), now);
      k.st_global_v2_b32(address(t.at, 8), std::vector<Reg>{t.clock, t.tag});
    });
  });
  k.add_s64(t.at, t.at, static_cast<int>(trace_header_bytes));
}

void trace_run(ForwardContext& f, int marks, const Reg& position) {
  if (!f.config.plan.trace) return;
  Kernel& k = f.k;
  TraceRegs& t = f.trace;
  t.slot = -marks;
  t.position = position;
  k.add_s64(t.at, t.at, 8 * marks).note("marks: room for " + std::to_string(marks));
  k.add_u32(t.used, t.used, marks);
  k.ld_param_u32(t.tag, "trace_capacity");
  k.setp("le", "u32", t.fits, t.used, t.tag);
}

void trace_mark(ForwardContext& f, TraceEvent e) {
  if (!f.config.plan.trace) return;
  Kernel& k = f.k;
  TraceRegs& t = f.trace;
  if (t.slot >= 0)
    throw Error(std::string("trace mark ") + to_string(e) + ": its run has no slot left");
  k.clock(t.clock).note(std::string("mark: ") + to_string(e));
  k.mad_lo_u32(t.tag, t.position, 256, static_cast<int>(e));
  k.st_global_v2_b32(address(t.at, 8 * t.slot), std::vector<Reg>{t.clock, t.tag}).when(t.fits);
  ++t.slot;
}

void trace_finish(ForwardContext& f, const Operand& writer) {
  if (!f.config.plan.trace) return;
  Kernel& k = f.k;
  TraceRegs& t = f.trace;
  k.section("marks: how many");
  k.scope([&] {
    Reg writes = k.pred("is_writer"), watched = k.pred("is_watched_still"), now = k.b64("end_ns");
    k.setp("lt", "u32", writes, t.used, hex(kNotAWriter));
    k.if_(writes, [&] {
      writer_region(f, writer, t.at, watched);
      k.globaltimer(now);
      k.clock(t.clock);
      k.st_global_u64(address(t.at, 16), now);
      k.st_global_v2_b32(address(t.at, 24), std::vector<Reg>{t.clock, t.used});
    });
  });
}

}  // namespace gen
}  // namespace flashptx
