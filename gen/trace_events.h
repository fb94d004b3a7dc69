// What a kernel that was emitted with marks (Plan::trace) leaves in its trace buffer, as its reader
// sees it.
//
// A writer is one thread of a role: the producer's, lane 0 of a consumer warpgroup, and of the first
// transposing warp where V is transposed in the kernel. Each has a region of trace_region_bytes; the
// writers of CTA 0 come first (producer, warpgroup 0, 1, ..., transposer), then those of CTA 1; other
// CTAs write nothing. In a region: `capacity` trips backwards, the header, `capacity` records. A
// record holds up to three marks. With Marks::few a steady trip's marks stand, as clocks alone,
// in the trip of their position; a transposing warp leaves none, and beside it the producer marks its
// loads of K and the first of a tile's Q alone. A mark opens a span that the writer's next mark closes.
// What is not written stays as it was before the launch: fill the buffer with zeros.
// Next: gen/tile/trace_marks.cpp (emits), tools/flashptx/trace.h.
#pragma once

#include <cstdint>
#include <vector>

#include "gen/catalog.h"
#include "gen/schedule/schedule.h"

namespace flashptx {

enum class TraceEvent : std::uint8_t {
  none,  // an unused slot
  // consumer, in a trip
  k_full_wait,
  token_wait,
  qk,
  v_full_wait,
  pv,
  wait_qk,
  mask_max,
  exp_sum,
  wait_pv,
  rescale_o,
  pack_p,
  // consumer, between tiles
  tile_wait,
  q_full_wait,
  skip_blocks,
  finish_rows,
  store_o,
  // producer
  slot_wait,
  k_empty_wait,
  k_load,
  v_empty_wait,
  v_load,
  q_empty_wait,
  q_load,
  // transposer
  raw_full_wait,
  transpose,
  done,  // the role has nothing left to do
  count
};
const char* to_string(TraceEvent e);
bool is_marked(Marks marks, TraceEvent e);
int trace_writers(const KernelConfig& config);
// Marks::few: what the mark of a steady trip's step is called, none without a mark; all of a trip in its schedule's order.
// guarded: exp_sum stands where the step of the maximum begins and is both.
TraceEvent trace_trip_event(const KernelConfig& config, Do step);
std::vector<TraceEvent> trace_trip_events(const KernelConfig& config);

constexpr int trace_event_bits = 5, trace_record_marks = 3;
static_assert(static_cast<int>(TraceEvent::count) <= 1 << trace_event_bits);

struct TraceRecord {
  std::uint32_t tag;  // position << 15 | third event << 10 | second << 5 | first
  std::uint32_t clock[trace_record_marks];  // low half of the SM's clock
  TraceEvent event(int i) const { return static_cast<TraceEvent>(tag >> (trace_event_bits * i) & 31); }
  // Blocks (consumer, transposer, producer's K and V) or tiles (producer's Q and slots) that the writer had
  // gone through.
  std::uint32_t position() const { return tag >> (trace_event_bits * trace_record_marks); }
};
// Marks::few: the clocks of a steady trip's marks (trace_trip_events).
struct TraceTrip {
  std::uint32_t clock[4];
};

struct TraceHeader {
  std::uint64_t start_ns;  // %globaltimer and %clock at one moment, for clocks of different SMs
  std::uint32_t start_clock, sm;
  std::uint64_t end_ns;
  std::uint32_t end_clock;
  std::uint32_t records_asked, trips_asked;  // more than the capacity: those beyond are lost
  std::uint32_t unused[3];
};
constexpr std::uint32_t trace_header_bytes = sizeof(TraceHeader);
static_assert(sizeof(TraceHeader) == 48 && sizeof(TraceRecord) == 16 && sizeof(TraceTrip) == 16);

constexpr int trace_ctas = 2;
constexpr std::uint64_t trace_region_bytes(std::uint32_t capacity) { return trace_header_bytes + 32ull * capacity; }
constexpr std::uint64_t trace_buffer_bytes(int writers, std::uint32_t capacity) {
  return std::uint64_t{trace_ctas} * static_cast<std::uint64_t>(writers) * trace_region_bytes(capacity);
}

}  // namespace flashptx
