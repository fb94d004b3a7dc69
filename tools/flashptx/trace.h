// The timeline of a kernel's trips: measured by marks in the kernel, or modelled from its schedule.
//
// Both give the same Trace: what each role does when, which products are in flight, when the tensor
// cores are busy; in clocks from the CTA's first mark. The pictures and the summary are made from
// that alone. Next: trace_marks.cpp (marks to Trace), trace_model.cpp (schedule to Trace),
// trace_print.cpp, trace_svg.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gen/catalog.h"
#include "gen/trace_events.h"

namespace flashptx {

struct TraceSpan {
  TraceEvent event = TraceEvent::none;
  std::uint32_t position = 0;  // of a consumer: blocks gone through, so one number a trip
  double start = 0, stop = 0;  // clocks
};

// A product from the start of its issue to the end of the wait that says that it is complete.
struct Flight {
  int warpgroup = 0;
  bool pv = false;
  std::uint32_t position = 0;
  double start = 0, stop = 0;
};

struct CtaTrace {
  int cta = 0, sm = 0;
  double origin_us = 0;                       // against the first CTA
  std::vector<std::vector<TraceSpan>> roles;  // producer, then the warpgroups
  std::vector<TraceSpan> transposer;          // where V is transposed in the kernel
  std::vector<Flight> in_flight;
  std::vector<Flight> tensor;  // busy with one product after the other, in order of issue
  std::vector<Flight> loads;   // TMA loads: warpgroup is the stage, pv: V; from issue until a warpgroup has seen it
};

struct Trace {
  KernelConfig config;
  bool modelled = false;
  Marks marked = Marks::all;  // few: a span of a trip runs to the next of four marks
  std::string device;
  double clock_mhz = 0;
  std::vector<CtaTrace> ctas;
  std::size_t marks = 0, lost = 0;  // records and trips beyond the capacity
};

bool is_wait(TraceEvent e);
// Tensor-core clocks of one product of a warpgroup: N/2 a m64nNk16, in 8 bit a m64nNk32.
int product_clocks(const KernelConfig& config, bool pv);

// Buffer of gen/trace_events.h to a Trace; "" or what is wrong with the marks.
std::string read_marks(const std::vector<std::uint8_t>& buffer, std::uint32_t capacity,
                       Trace* trace);
// Fills in_flight, tensor and loads from the roles' spans.
void find_products(const KernelConfig& config, Marks marked, CtaTrace* cta);
// The trace as few marks would show it: for a comparison like with like.
Trace seen_by_few(Trace trace);

// `blocks` trips of one tile. Rates and latencies: trace_model.cpp.
Trace model_trace(const KernelConfig& config, int blocks);
// Clocks that a transposing warp is at work for one block, by the model; 0 where V is not transposed in the kernel.
double transposing_clocks(const KernelConfig& config);

// Per-trip figures of CTA 0's steady trips, averaged over warpgroups.
struct TraceSummary {
  int trips = 0;
  double cycles_per_trip = 0;                                     // median; 0: too few trips
  double mean_cycles = 0;                                         // the sum of event_cycles: of trips that differ
  double event_cycles[static_cast<int>(TraceEvent::count)] = {};  // a trip and warpgroup
  double waiting = 0;                                             // of those, in waits
  double overlap_own = 0, overlap_any = 0;  // share of softmax time under own products, under any
  double tensor_busy = 0;                   // wgmma clocks of all warpgroups / cycles
  std::string critical;                     // the unit with most work a trip, and its share
};
TraceSummary summarise(const Trace& trace);

std::string trace_text(const Trace& trace, const TraceSummary& summary,
                       const TraceSummary* planned);
// The same for programs; planned is null where the trace is modelled itself.
std::string trace_json(const Trace& trace, const TraceSummary& summary, const TraceSummary* planned);
std::string trace_csv(const Trace& trace);
// The kernel that a CSV says it holds; "" for one without.
std::string kernel_of_trace_csv(const std::string& text);
// The spans of a CSV that trace_csv wrote; lost marks are not in it. "" or what is wrong.
std::string read_trace_csv(const std::string& text, const KernelConfig& config, Trace* out);
std::string trace_chrome_json(const Trace& trace);
// The schedule's table, the modelled timeline, and below it what was measured (if `trace` is).
std::string trace_svg(const Trace& trace, const Trace& model, int trips);
// Two timelines on one scale.
std::string diff_svg(const Trace& a, const Trace& b, int trips);

}  // namespace flashptx
