// What a kernel that was emitted with marks (Plan::trace) leaves in its trace buffer, as its reader
// sees it.
//
// A writer is one thread of a role: the producer's, or lane 0 of a consumer warpgroup. Each has a
// region of trace_header_bytes + 8 * capacity; the writers of CTA 0 come first (producer, warpgroup
// 0, 1, ...), then those of CTA 1; other CTAs write nothing. A mark opens a span that the writer's
// next mark closes. Unused slots stay as they were before the launch: fill the buffer with zeros.
// Next: gen/tile/trace_marks.cpp (emits), tools/flashptx/trace.h.
#pragma once

#include <cstdint>

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
  done,  // the role has nothing left to do
  count
};
const char* to_string(TraceEvent e);

struct TraceMark {
  std::uint32_t clock;  // low half of the SM's clock
  std::uint32_t tag;    // position << 8 | event
  TraceEvent event() const { return static_cast<TraceEvent>(tag & 255); }
  // Blocks (consumer, producer's K and V) or tiles (producer's Q and slots) that the writer had
  // gone through.
  std::uint32_t position() const { return tag >> 8; }
};

struct TraceHeader {
  std::uint64_t start_ns;  // %globaltimer and %clock at one moment, for clocks of different SMs
  std::uint32_t start_clock, sm;
  std::uint64_t end_ns;
  std::uint32_t end_clock;
  std::uint32_t slots_asked;  // more than the capacity: the marks beyond are lost
};
constexpr std::uint32_t trace_header_bytes = sizeof(TraceHeader);
static_assert(sizeof(TraceHeader) == 32 && sizeof(TraceMark) == 8);

constexpr int trace_ctas = 2;
constexpr std::uint64_t trace_buffer_bytes(int warpgroups, std::uint32_t capacity) {
  return std::uint64_t{trace_ctas} * static_cast<std::uint64_t>(1 + warpgroups) *
         (trace_header_bytes + 8ull * capacity);
}

}  // namespace flashptx
