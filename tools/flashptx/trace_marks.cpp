// Marks to spans, spans to products in flight. Next: gen/trace_events.h, trace.h.
#include <algorithm>
#include <cstring>
#include <map>

#include "tools/flashptx/trace.h"

namespace flashptx {

bool is_wait(TraceEvent e) {
  switch (e) {
    case TraceEvent::k_full_wait:
    case TraceEvent::token_wait:
    case TraceEvent::v_full_wait:
    case TraceEvent::wait_qk:
    case TraceEvent::wait_pv:
    case TraceEvent::tile_wait:
    case TraceEvent::q_full_wait:
    case TraceEvent::slot_wait:
    case TraceEvent::k_empty_wait:
    case TraceEvent::v_empty_wait:
    case TraceEvent::q_empty_wait:
      return true;
    default:
      return false;
  }
}

int product_clocks(const KernelConfig& c, bool pv) {
  return pv ? c.plan.tile_kv / 16 * (c.problem.head_dim_v / 2)
            : (c.problem.head_dim + 15) / 16 * (c.plan.tile_kv / 2);
}

namespace {

struct Writer {
  TraceHeader header{};
  std::vector<TraceMark> marks;
};

// One role's marks as spans. Clocks are 32 bits and are unwrapped mark by mark.
std::string spans_of(const Writer& w, std::uint32_t origin, const std::string& who,
                     std::vector<TraceSpan>* out) {
  std::uint32_t last = w.header.start_clock;
  double at = static_cast<double>(static_cast<std::int32_t>(last - origin));
  for (const TraceMark& m : w.marks) {
    if (m.event() >= TraceEvent::count)
      return who + ": a mark with the unknown event " + std::to_string(m.tag & 255);
    if (m.clock - last > 0x80000000u)
      return who + ": the clock runs backwards at " + to_string(m.event());
    at += static_cast<double>(m.clock - last);
    last = m.clock;
    if (!out->empty()) out->back().stop = at;
    out->push_back({m.event(), m.position(), at, at});
  }
  return "";
}

}  // namespace

std::string read_marks(const std::vector<std::uint8_t>& buffer, std::uint32_t capacity,
                       Trace* trace) {
  const int roles = 1 + trace->config.plan.warpgroups;
  if (buffer.size() < trace_buffer_bytes(trace->config.plan.warpgroups, capacity))
    return "the buffer of marks is too short";
  double first_ns = 0;
  for (int cta = 0; cta < trace_ctas; ++cta) {
    std::vector<Writer> writers(static_cast<std::size_t>(roles));
    for (int r = 0; r < roles; ++r) {
      Writer& w = writers[static_cast<std::size_t>(r)];
      const std::uint8_t* at = buffer.data() + static_cast<std::size_t>(cta * roles + r) *
                                                   (trace_header_bytes + 8ull * capacity);
      std::memcpy(&w.header, at, sizeof w.header);
      for (std::uint32_t i = 0; i < std::min(capacity, w.header.slots_asked); ++i) {
        TraceMark m;
        std::memcpy(&m, at + trace_header_bytes + 8ull * i, sizeof m);
        if (m.event() != TraceEvent::none) w.marks.push_back(m);
      }
      if (w.header.slots_asked > capacity) trace->lost += w.header.slots_asked - capacity;
      trace->marks += w.marks.size();
    }
    // A symmetric kernel has no producer: thread 0 of the first warpgroup is its first writer.
    const int first = trace->config.plan.symmetric ? 1 : 0;
    const TraceHeader& h = writers[static_cast<std::size_t>(first)].header;
    if (h.end_ns == 0) continue;  // a grid of one CTA
    CtaTrace c;
    c.cta = cta, c.sm = static_cast<int>(h.sm);
    if (trace->ctas.empty()) {
      first_ns = static_cast<double>(h.start_ns);
      const double ns = static_cast<double>(h.end_ns - h.start_ns);
      trace->clock_mhz =
          ns > 0 ? 1000.0 * static_cast<double>(h.end_clock - h.start_clock) / ns : 0;
    }
    c.origin_us = (static_cast<double>(h.start_ns) - first_ns) / 1000;
    for (int r = 0; r < roles; ++r) {
      const std::string who =
          "CTA " + std::to_string(cta) + (r ? " warpgroup " + std::to_string(r - 1) : " producer");
      c.roles.emplace_back();
      std::string bad =
          spans_of(writers[static_cast<std::size_t>(r)], h.start_clock, who, &c.roles.back());
      if (!bad.empty()) return bad;
      if (c.roles.back().empty() && r >= first) return who + " left no mark";
    }
    find_products(trace->config, &c);
    trace->ctas.push_back(std::move(c));
  }
  return trace->ctas.empty() ? "no CTA left a mark" : "";
}

namespace {

// Products of one warpgroup. wgmma groups complete in order, so a wait covers what was issued
// before its own.
void flights_of(const std::vector<TraceSpan>& spans, int warpgroup, std::vector<Flight>* out) {
  std::vector<Flight> open;
  auto close = [&](std::size_t count, double at) {
    for (std::size_t i = 0; i < count; ++i) {
      open[i].stop = at;
      out->push_back(open[i]);
    }
    open.erase(open.begin(), open.begin() + static_cast<long>(count));
  };
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const TraceSpan& s = spans[i];
    if (s.event == TraceEvent::qk || s.event == TraceEvent::pv) {
      open.push_back({warpgroup, s.event == TraceEvent::pv, s.position, s.start, s.stop});
    } else if (s.event == TraceEvent::wait_qk || s.event == TraceEvent::wait_pv) {
      bool between_tiles = i + 1 < spans.size() &&
                           spans[i + 1].event == TraceEvent::store_o;  // waits for everything
      std::size_t covered = between_tiles ? open.size() : 0;
      for (std::size_t k = 0; k < open.size() && !covered; ++k)
        if (open[k].pv == (s.event == TraceEvent::wait_pv)) covered = k + 1;
      close(covered, s.stop);
    }
  }
  close(open.size(), spans.empty() ? 0 : spans.back().stop);
}

}  // namespace

namespace {

int lag_of(const KernelConfig& config, Do what) {
  const Schedule* s = config.plan.table();
  for (const Step& step : s ? s->steps : std::vector<Step>{})
    if (step.what == what) return step.lag;
  return 0;
}

// When each block of K or V was first seen by a warpgroup: the end of the first wait for it.
std::map<std::uint32_t, double> first_seen(const KernelConfig& config, const CtaTrace& c, bool v) {
  std::map<std::uint32_t, double> out;
  const auto lag = static_cast<std::uint32_t>(v ? lag_of(config, Do::pv) : 0);
  for (std::size_t r = 1; r < c.roles.size(); ++r)
    for (const TraceSpan& s : c.roles[r]) {
      if (s.event != (v ? TraceEvent::v_full_wait : TraceEvent::k_full_wait)) continue;
      const auto [at, fresh] = out.try_emplace(s.position - lag, s.stop);
      if (!fresh) at->second = std::min(at->second, s.stop);
    }
  return out;
}

// A load runs from its issue until a warpgroup has seen it: later than it arrived, if nobody was waiting. The
// n-th load of K is block n, whoever issues.
void find_loads(const KernelConfig& config, CtaTrace* c) {
  c->loads.clear();
  const std::size_t issuer = c->roles[0].empty() ? 1 : 0;
  if (c->roles.size() <= issuer) return;
  for (bool v : {false, true}) {
    const std::map<std::uint32_t, double> seen = first_seen(config, *c, v);
    std::uint32_t count = 0;
    for (const TraceSpan& s : c->roles[issuer]) {
      if (s.event != (v ? TraceEvent::v_load : TraceEvent::k_load)) continue;
      const std::uint32_t block = count++;
      const auto at = seen.find(block);
      if (at != seen.end() && at->second > s.start)
        c->loads.push_back({static_cast<int>(block) % config.plan.kv_stages, v, block, s.start, at->second});
    }
  }
}

}  // namespace

void find_products(const KernelConfig& config, CtaTrace* c) {
  find_loads(config, c);
  c->in_flight.clear(), c->tensor.clear();
  for (std::size_t r = 1; r < c->roles.size(); ++r)
    flights_of(c->roles[r], static_cast<int>(r) - 1, &c->in_flight);
  std::vector<Flight> queue = c->in_flight;
  std::sort(queue.begin(), queue.end(),
            [](const Flight& a, const Flight& b) { return a.start < b.start; });
  double free_at = 0;
  for (Flight f : queue) {
    double from = std::max(f.start, free_at);
    double to = std::min(from + product_clocks(config, f.pv), f.stop);
    if (to <= from) continue;
    f.start = from, f.stop = free_at = to;
    c->tensor.push_back(f);
  }
}

}  // namespace flashptx
