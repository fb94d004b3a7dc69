// Marks to spans, spans to products in flight. Next: gen/trace_events.h, trace.h.
#include <algorithm>
#include <cstring>
#include <map>

#include "gen/tile/forward_context.h"
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
    case TraceEvent::raw_full_wait:
      return true;
    default:
      return false;
  }
}

int product_clocks(const KernelConfig& c, bool pv) {
  const int k = c.problem.eight_bit() ? 32 : 16;
  return pv ? c.plan.tile_kv / k * (c.problem.head_dim_v / 2)
            : (c.problem.head_dim + k - 1) / k * (c.plan.tile_kv / 2);
}

namespace {

struct Mark {
  std::uint32_t clock;
  TraceEvent event;
  std::uint32_t position;
};
struct Writer {
  TraceHeader header{};
  std::vector<Mark> marks;
};

// One role's marks as spans. Clocks are 32 bits and are unwrapped mark by mark.
std::string spans_of(const Writer& w, std::uint32_t origin, const std::string& who,
                     std::vector<TraceSpan>* out) {
  std::uint32_t last = w.header.start_clock;
  double at = static_cast<double>(static_cast<std::int32_t>(last - origin));
  for (const Mark& m : w.marks) {
    if (m.event >= TraceEvent::count)
      return who + ": a mark with the unknown event " + std::to_string(static_cast<int>(m.event));
    if (m.clock - last > 0x80000000u)
      return who + ": the clock runs backwards at " + to_string(m.event);
    at += static_cast<double>(m.clock - last);
    last = m.clock;
    if (!out->empty()) out->back().stop = at;
    out->push_back({m.event, m.position, at, at});
  }
  return "";
}

// The marks of the region at `at`. Those of few's trips are put between the others by their clock, which must
// therefore not have gone round: two seconds.
Writer read_writer(const std::uint8_t* at, std::uint32_t capacity, const std::vector<TraceEvent>& trip, Trace* trace) {
  Writer w;
  const std::uint8_t* header = at + sizeof(TraceTrip) * std::size_t{capacity};
  std::memcpy(&w.header, header, sizeof w.header);
  for (std::uint32_t i = 0; i < std::min(capacity, w.header.records_asked); ++i) {
    TraceRecord r;
    std::memcpy(&r, header + sizeof w.header + sizeof r * std::size_t{i}, sizeof r);
    for (int m = 0; m < trace_record_marks; ++m)
      if (r.event(m) != TraceEvent::none) w.marks.push_back({r.clock[m], r.event(m), r.position()});
  }
  if (w.header.records_asked > capacity) trace->lost += w.header.records_asked - capacity;
  if (trip.empty()) return w;
  for (std::uint32_t i = 0; i < capacity; ++i) {
    TraceTrip t;
    std::memcpy(&t, header - sizeof t * (std::size_t{i} + 1), sizeof t);
    if (t.clock[0] || t.clock[1])
      for (std::size_t m = 0; m < trip.size(); ++m) w.marks.push_back({t.clock[m], trip[m], i});
  }
  if (w.header.trips_asked > capacity) trace->lost += w.header.trips_asked - capacity;
  const std::uint32_t start = w.header.start_clock;
  std::stable_sort(w.marks.begin(), w.marks.end(),
                   [&](const Mark& a, const Mark& b) { return a.clock - start < b.clock - start; });
  return w;
}

}  // namespace

std::string read_marks(const std::vector<std::uint8_t>& buffer, std::uint32_t capacity,
                       Trace* trace) {
  const int writers = trace_writers(trace->config), roles = 1 + trace->config.plan.warpgroups;
  if (buffer.size() < trace_buffer_bytes(writers, capacity)) return "the buffer of marks is too short";
  const std::vector<TraceEvent> trip =
      trace->marked == Marks::few ? trace_trip_events(trace->config) : std::vector<TraceEvent>{};
  double first_ns = 0;
  for (int cta = 0; cta < trace_ctas; ++cta) {
    std::vector<Writer> all;
    for (int r = 0; r < writers; ++r) {
      all.push_back(read_writer(buffer.data() + trace_region_bytes(capacity) * static_cast<std::size_t>(cta * writers + r),
                                capacity, r > 0 && r < roles ? trip : std::vector<TraceEvent>{}, trace));
      trace->marks += all.back().marks.size();
    }
    // A symmetric kernel has no producer: thread 0 of the first warpgroup is its first writer.
    const int first = trace->config.plan.symmetric ? 1 : 0;
    const TraceHeader& h = all[static_cast<std::size_t>(first)].header;
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
    c.roles.resize(static_cast<std::size_t>(roles));
    for (int r = 0; r < writers; ++r) {
      if (r == roles && !is_marked(trace->marked, TraceEvent::transpose)) continue;
      const std::string who = "CTA " + std::to_string(cta) + (r == 0       ? " producer"
                                                              : r == roles ? " transposer"
                                                                           : " warpgroup " + std::to_string(r - 1));
      std::vector<TraceSpan>& spans = r == roles ? c.transposer : c.roles[static_cast<std::size_t>(r)];
      std::string bad = spans_of(all[static_cast<std::size_t>(r)], h.start_clock, who, &spans);
      if (!bad.empty()) return bad;
      if (spans.empty() && r >= first) return who + " left no mark";
    }
    find_products(trace->config, trace->marked, &c);
    trace->ctas.push_back(std::move(c));
  }
  return trace->ctas.empty() ? "no CTA left a mark" : "";
}

Trace seen_by_few(Trace t) {
  t.marked = Marks::few;
  for (CtaTrace& c : t.ctas)
    for (std::vector<TraceSpan>& role : c.roles) {
      std::vector<TraceSpan> kept;
      for (TraceSpan s : role) {
        const bool max = s.event == TraceEvent::mask_max, exp = s.event == TraceEvent::exp_sum;
        if (max || exp) s.event = trace_trip_event(t.config, max ? Do::mask_max : Do::exp_sum);
        if (s.event != TraceEvent::none && is_marked(Marks::few, s.event)) kept.push_back(s);
        else if (!kept.empty()) kept.back().stop = s.stop;
      }
      role = std::move(kept);
    }
  return t;
}

namespace {

// With few marks: the waits that follow a mark's step before the next marked one, in the order of the schedule.
std::vector<TraceEvent> waits_after(const KernelConfig& config, TraceEvent e) {
  const std::vector<Step>& steps = config.plan.table()->steps;
  const std::vector<TraceEvent> marked = trace_trip_events(config);
  std::vector<TraceEvent> out;
  std::size_t seen = 0;
  for (std::size_t i = 0; i < 2 * steps.size(); ++i) {  // twice: what follows the last step comes first
    const Do what = steps[i % steps.size()].what;
    if (trace_trip_event(config, what) != TraceEvent::none) ++seen;
    if (seen == 0 || (i >= steps.size() && seen > marked.size())) continue;
    if (marked[(seen - 1) % marked.size()] != e) continue;
    if (what == Do::wait_qk) out.push_back(TraceEvent::wait_qk);
    if (what == Do::wait_pv) out.push_back(TraceEvent::wait_pv);
  }
  return out;
}

// Products of one warpgroup. wgmma groups complete in order, so a wait covers what was issued
// before its own.
void flights_of(const KernelConfig& config, Marks marked, const std::vector<TraceSpan>& spans, int warpgroup,
                std::vector<Flight>* out) {
  std::vector<Flight> open;
  auto close = [&](std::size_t count, double at) {
    for (std::size_t i = 0; i < count; ++i) {
      open[i].stop = at;
      out->push_back(open[i]);
    }
    open.erase(open.begin(), open.begin() + static_cast<long>(count));
  };
  auto last_of = [&](bool pv) {  // how many of `open` are complete when the next product of that kind is
    for (std::size_t k = 0; k < open.size(); ++k)
      if (open[k].pv == pv) return k + 1;
    return std::size_t{0};
  };
  std::map<TraceEvent, std::vector<TraceEvent>> unmarked;
  if (marked == Marks::few)
    for (TraceEvent e : trace_trip_events(config)) unmarked[e] = waits_after(config, e);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const TraceSpan& s = spans[i];
    if (marked == Marks::few) {
      if (s.event == TraceEvent::store_o) close(last_of(true), s.start);
      if (s.event == TraceEvent::qk || s.event == TraceEvent::pv)
        open.push_back({warpgroup, s.event == TraceEvent::pv, s.position, s.start, s.stop});
      for (TraceEvent wait : unmarked[s.event]) close(last_of(wait == TraceEvent::wait_pv), s.stop);
      continue;
    }
    if (s.event == TraceEvent::qk || s.event == TraceEvent::pv) {
      open.push_back({warpgroup, s.event == TraceEvent::pv, s.position, s.start, s.stop});
    } else if (s.event == TraceEvent::wait_qk || s.event == TraceEvent::wait_pv) {
      bool between_tiles = i + 1 < spans.size() &&
                           spans[i + 1].event == TraceEvent::store_o;  // waits for everything
      close(between_tiles ? open.size() : last_of(s.event == TraceEvent::wait_pv), s.stop);
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

// When each block of K or V was first seen by a warpgroup: the end of the first wait for it, or the product's issue.
std::map<std::uint32_t, double> first_seen(const KernelConfig& config, Marks marked, const CtaTrace& c, bool v) {
  std::map<std::uint32_t, double> out;
  const auto lag = static_cast<std::uint32_t>(v ? lag_of(config, Do::pv) : 0);
  for (std::size_t r = 1; r < c.roles.size(); ++r)
    for (const TraceSpan& s : c.roles[r]) {
      const bool few = marked == Marks::few;
      const TraceEvent wanted = few ? (v ? TraceEvent::pv : TraceEvent::qk)
                                    : (v ? TraceEvent::v_full_wait : TraceEvent::k_full_wait);
      if (s.event != wanted) continue;
      const double seen = few ? s.start : s.stop;
      const auto [at, fresh] = out.try_emplace(s.position - lag, seen);
      if (!fresh) at->second = std::min(at->second, seen);
    }
  return out;
}

// A load runs from its issue until a warpgroup has seen it: later than it arrived, if nobody was waiting. The
// n-th load of K is block n, whoever issues.
void find_loads(const KernelConfig& config, Marks marked, CtaTrace* c) {
  c->loads.clear();
  const std::size_t issuer = c->roles[0].empty() ? 1 : 0;
  if (c->roles.size() <= issuer) return;
  for (bool v : {false, true}) {
    // Transposed in the kernel, V comes by slabs, and the first to see one is the transposing warp.
    const bool raw = v && !c->transposer.empty();
    std::map<std::uint32_t, double> seen = raw ? std::map<std::uint32_t, double>{} : first_seen(config, marked, *c, v);
    if (raw)
      for (const TraceSpan& s : c->transposer)
        if (s.event == TraceEvent::raw_full_wait) seen.emplace(static_cast<std::uint32_t>(seen.size()), s.stop);
    const int stages = raw ? gen::SharedLayout(config).raw_stages : v ? config.plan.v_ring() : config.plan.kv_stages;
    std::uint32_t count = 0;
    for (const TraceSpan& s : c->roles[issuer]) {
      if (s.event != (v ? TraceEvent::v_load : TraceEvent::k_load)) continue;
      const std::uint32_t block = count++;
      const auto at = seen.find(block);
      if (at != seen.end() && at->second > s.start)
        c->loads.push_back({static_cast<int>(block) % stages, v, block, s.start, at->second});
    }
  }
}

}  // namespace

void find_products(const KernelConfig& config, Marks marked, CtaTrace* c) {
  find_loads(config, marked, c);
  c->in_flight.clear(), c->tensor.clear();
  for (std::size_t r = 1; r < c->roles.size(); ++r)
    flights_of(config, marked, c->roles[r], static_cast<int>(r) - 1, &c->in_flight);
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
