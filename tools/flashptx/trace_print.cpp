// A Trace as text, CSV and Chrome's trace JSON. Next: trace_svg.cpp for the picture.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "tools/flashptx/json.h"
#include "tools/flashptx/statistics.h"
#include "tools/flashptx/text.h"
#include "tools/flashptx/trace.h"

namespace flashptx {
namespace {

// A symmetric kernel loads inside its trips.
bool is_load(TraceEvent e) {
  return e == TraceEvent::k_empty_wait || e == TraceEvent::k_load || e == TraceEvent::v_empty_wait ||
         e == TraceEvent::v_load;
}

bool is_softmax(TraceEvent e) {
  return e == TraceEvent::mask_max || e == TraceEvent::exp_sum || e == TraceEvent::rescale_o ||
         e == TraceEvent::pack_p;
}

// What a wait is for, in words.
const char* cause_of(TraceEvent e) {
  switch (e) {
    case TraceEvent::k_full_wait: return "K has not arrived";
    case TraceEvent::v_full_wait: return "V has not arrived";
    case TraceEvent::token_wait: return "another warpgroup's turn";
    case TraceEvent::wait_qk: return "S = Q K^T is not complete";
    case TraceEvent::wait_pv: return "O += P V is not complete";
    case TraceEvent::k_empty_wait: return "a warpgroup still reads the stage for K";
    case TraceEvent::v_empty_wait: return "a warpgroup still reads the stage for V";
    default: return "";
  }
}

// Trips whose first step and whose successor's are known, without the tile's first two and its
// last.
struct Trip {
  double start, stop;
  std::size_t from, to;  // spans
};
std::vector<Trip> steady_trips(const std::vector<TraceSpan>& spans, Marks marked) {
  std::vector<Trip> all, out;
  std::vector<std::size_t> heads;
  for (std::size_t i = 0; i < spans.size(); ++i)
    if (i == 0 || spans[i].position != spans[i - 1].position) heads.push_back(i);
  for (std::size_t h = 0; h + 1 < heads.size(); ++h) {
    Trip t{spans[heads[h]].start, spans[heads[h + 1]].start, heads[h], heads[h + 1]};
    bool steady = true, has_exp = false, has_rescale = false;
    for (std::size_t i = t.from; i < t.to; ++i) {
      const TraceEvent e = spans[i].event;
      steady &= e < TraceEvent::tile_wait || is_load(e);
      has_exp |= e == TraceEvent::exp_sum, has_rescale |= e == TraceEvent::rescale_o;
    }
    if (steady && has_exp && (has_rescale || marked == Marks::few)) all.push_back(t);
  }
  for (std::size_t i = 1; i + 1 < all.size(); ++i) out.push_back(all[i]);
  return out;
}

double covered(double from, double to, const std::vector<Flight>& flights, int warpgroup) {
  // Flights of one warpgroup may overlap each other: count the union.
  std::vector<std::pair<double, double>> parts;
  for (const Flight& f : flights)
    if ((warpgroup < 0 || f.warpgroup == warpgroup) && f.stop > from && f.start < to)
      parts.push_back({std::max(from, f.start), std::min(to, f.stop)});
  std::sort(parts.begin(), parts.end());
  double sum = 0, end = from;
  for (const auto& [a, b] : parts) {
    sum += std::max(0.0, b - std::max(a, end));
    end = std::max(end, b);
  }
  return sum;
}

std::string critical_unit(const KernelConfig& c) {
  double tensor = 0, mufu = 0, slots = 0;
  for (const StepCost& s : emit(c).trip) {
    tensor += s.tensor_clocks * c.plan.warpgroups;
    mufu += 8.0 * s.ex2 * c.plan.warpgroups;
    slots += static_cast<double>(s.issue_slots) * c.plan.warpgroups;
  }
  const double transposing = transposing_clocks(c), most = std::max({tensor, mufu, slots, transposing});
  return std::string(most == tensor ? "tensor cores"
                     : most == mufu ? "special functions"
                     : most == slots ? "issue slots"
                                     : "transposing warps") +
         format(" (clocks a trip of all warpgroups: tensor %.0f, special functions %.0f,", tensor,
                mufu) +
         format(" issue slots %.0f", slots) + (transposing > 0 ? format("; a transposing warp about %.0f)", transposing) : ")");
}

}  // namespace

TraceSummary summarise(const Trace& trace) {
  TraceSummary s;
  s.critical = critical_unit(trace.config);
  const CtaTrace& c = trace.ctas.front();
  std::vector<float> cycles;
  double softmax = 0, own = 0, any = 0;
  for (std::size_t r = 1; r < c.roles.size(); ++r)
    for (const Trip& t : steady_trips(c.roles[r], trace.marked)) {
      cycles.push_back(static_cast<float>(t.stop - t.start));
      for (std::size_t i = t.from; i < t.to; ++i) {
        const TraceSpan& span = c.roles[r][i];
        s.event_cycles[static_cast<int>(span.event)] += span.stop - span.start;
        if (!is_softmax(span.event)) continue;
        softmax += span.stop - span.start;
        own += covered(span.start, span.stop, c.in_flight, static_cast<int>(r) - 1);
        any += covered(span.start, span.stop, c.tensor, -1);
      }
    }
  s.trips = static_cast<int>(cycles.size());
  if (s.trips == 0) return s;
  s.cycles_per_trip = quartiles(cycles).median;
  for (int e = 0; e < static_cast<int>(TraceEvent::count); ++e) {
    s.event_cycles[e] /= s.trips;
    s.mean_cycles += s.event_cycles[e];
    if (is_wait(static_cast<TraceEvent>(e))) s.waiting += s.event_cycles[e];
  }
  s.overlap_own = softmax > 0 ? own / softmax : 0, s.overlap_any = softmax > 0 ? any / softmax : 0;
  s.tensor_busy = trace.config.plan.warpgroups *
                  (product_clocks(trace.config, false) + product_clocks(trace.config, true)) /
                  s.cycles_per_trip;
  return s;
}

namespace {

// Blocks of keys that warpgroup 0 went through.
std::size_t blocks_of(const Trace& trace) {
  std::uint32_t last = 0;
  for (const TraceSpan& s : trace.ctas.front().roles[1])
    if (s.event == TraceEvent::exp_sum) last = std::max(last, s.position);
  return last + 1;
}

Json summary_json(const TraceSummary& s) {
  Json j{{"steady_trips", s.trips}, {"cycles_a_trip_median", s.cycles_per_trip}, {"cycles_a_trip_mean", s.mean_cycles},
                           {"tensor_cores_busy", s.tensor_busy}, {"softmax_under_own_wgmma", s.overlap_own},
                           {"softmax_under_any_wgmma", s.overlap_any}, {"waiting_cycles", s.waiting}};
  for (int e = 1; e < static_cast<int>(TraceEvent::done); ++e)
    if (s.event_cycles[e] > 0) j["event_cycles"][to_string(static_cast<TraceEvent>(e))] = s.event_cycles[e];
  return j;
}

}  // namespace

std::string trace_json(const Trace& trace, const TraceSummary& s, const TraceSummary* planned) {
  Json j{{"kernel", trace.config.name()}, {"source", trace.modelled ? "model" : "measured"},
                           {"device", trace.device}, {"critical_unit", s.critical}};
  if (!trace.modelled)
    j["marks"] = {{"set", to_string(trace.marked)}, {"count", trace.marks}, {"lost", trace.lost}}, j["sm_clock_mhz"] = trace.clock_mhz;
  j["trip"] = summary_json(s);
  if (planned) j["modelled_trip"] = summary_json(*planned);
  return j.dump(1) + "\n";
}

std::string trace_text(const Trace& trace, const TraceSummary& s, const TraceSummary* planned) {
  std::string out =
      (trace.modelled ? "MODELLED, not measured: " : "measured on ") + trace.device +
      (trace.modelled ? ", a tile of " + std::to_string(blocks_of(trace)) + " blocks of keys in the midst of many, no mask\n" : "\n");
  out += "kernel         " + trace.config.name() + "\n";
  if (!trace.modelled)
    out += "marks          " + std::to_string(trace.marks) + ", lost " +
           std::to_string(trace.lost) + format("; SM clock %.0f MHz\n", trace.clock_mhz);
  if (s.trips == 0)
    return out + "too few trips for a summary: a tile needs at least 4 key blocks\n";
  out += "steady trips   " + std::to_string(s.trips) + " of " +
         std::to_string(trace.config.plan.warpgroups) + " warpgroups\n";
  auto line = [&](const char* name, double value, double plan, const char* form, const char* words = "") {
    char text[160];
    std::snprintf(text, sizeof text, "%-14s ", name);
    out += text + format(form, value) + (planned ? "   (model " + format(form, plan) + ")" : "") +
           (*words ? std::string("   ") + words : "") + "\n";
  };
  line("cycles a trip", s.cycles_per_trip, planned ? planned->cycles_per_trip : 0, "%7.0f", "median; below: means of all steady trips");
  line("tensor cores", 100 * s.tensor_busy, planned ? 100 * planned->tensor_busy : 0, "%7.1f %%");
  const bool few = trace.marked == Marks::few;  // then the end of a product is not known to a fraction of a step
  if (!few) line("softmax under", 100 * s.overlap_own, planned ? 100 * planned->overlap_own : 0,
       "%7.1f %% own wgmma in flight");
  if (!few) line("", 100 * s.overlap_any, planned ? 100 * planned->overlap_any : 0,
       "%7.1f %% any wgmma running");
  if (!few)
    line("waiting", 100 * s.waiting / s.mean_cycles, planned ? 100 * planned->waiting / planned->mean_cycles : 0,
         "%7.1f %% of a warpgroup's time:");
  for (int pass = few ? 1 : 0; pass < 2; ++pass) {
    if (pass) out += "working on:\n";
    for (int e = 1; e < static_cast<int>(TraceEvent::done); ++e)
      if (is_wait(static_cast<TraceEvent>(e)) == (pass == 0) && s.event_cycles[e] > 0)
        line((std::string("  ") + to_string(static_cast<TraceEvent>(e))).c_str(), s.event_cycles[e],
             planned ? planned->event_cycles[e] : 0, "%7.0f cycles", cause_of(static_cast<TraceEvent>(e)));
  }
  if (trace.marked == Marks::few)
    out += std::string("few marks: a step's clocks run to the next of qk, pv") +
           (trace.config.plan.softmax == Softmax::guarded ? " and exp_sum (which begins with the step of the maximum)"
                                                          : ", mask_max and exp_sum") +
           ", waits and packing included; --marks all parts them\n";
  return out + "critical unit  " + s.critical + "\n";
}

std::string trace_csv(const Trace& trace) {
  std::string out = "source,cta,sm,role,event,position,start_clocks,stop_clocks,device,clock_mhz,kernel\n";
  char clock[32];
  std::snprintf(clock, sizeof clock, ",%.0f,", trace.clock_mhz);
  const std::string of_all = trace.device + clock + trace.config.name() + "\n";
  const char* source = trace.modelled ? "model" : trace.marked == Marks::few ? "few_marks" : "marks";
  auto line = [&](const CtaTrace& c, const std::string& role, const TraceSpan& s) {
    char text[200];
    std::snprintf(text, sizeof text, "%s,%d,%d,%s,%s,%u,%.0f,%.0f,", source, c.cta, c.sm, role.c_str(),
                  to_string(s.event), s.position, s.start, s.stop);
    return text + of_all;
  };
  for (const CtaTrace& c : trace.ctas) {
    for (std::size_t r = 0; r < c.roles.size(); ++r)
      for (const TraceSpan& s : c.roles[r]) out += line(c, r ? "warpgroup" + std::to_string(r - 1) : "producer", s);
    for (const TraceSpan& s : c.transposer) out += line(c, "transposer", s);
  }
  return out;
}

namespace {

std::string json_quoted(const std::string& s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// The events of one CTA: a process; a track for each role and one for each unit that works beside it.
struct ChromeWriter {
  const CtaTrace& c;
  double mhz, first_us;  // what is drawn at 0
  std::string* out;

  std::string head(const char* phase, int tid) const {
    return std::string(out->empty() ? "" : ",\n") + "{\"ph\":\"" + phase +
           "\",\"pid\":" + std::to_string(c.cta) + ",\"tid\":" + std::to_string(tid) + ",\"name\":";
  }
  void process(const std::string& name) {
    *out += head("M", 0) + "\"process_name\",\"args\":{\"name\":" + json_quoted(name) + "}}";
  }
  void track(int tid, const std::string& name) {
    *out += head("M", tid) + "\"thread_name\",\"args\":{\"name\":" + json_quoted(name) + "}}";
    *out += head("M", tid) + "\"thread_sort_index\",\"args\":{\"sort_index\":" +
            std::to_string(tid) + "}}";
  }
  // Perfetto keeps whole nanoseconds, int64(us * 1000), and drops a slice that begins before its neighbour has ended. So
  // both ends are rounded, not the duration; 0.2 ns more keep the product of a binary fraction above the number meant.
  void slice(int tid, const std::string& what, double from, double to, std::uint32_t position) {
    auto ns = [&](double clocks) { return std::llround(1000 * (c.origin_us - first_us + clocks / mhz)); };
    const long long start = ns(from), length = ns(to) - start;
    if (length <= 0) return;
    char text[200];
    std::snprintf(text, sizeof text,
                  ",\"ts\":%lld.%03lld2,\"dur\":%lld.%03lld,\"args\":{\"position\":%u,\"clocks\":%.0f}}",
                  start / 1000, start % 1000, length / 1000, length % 1000, position, to - from);
    *out += head("X", tid) + json_quoted(what) + text;
  }
  // A product in flight is no slice of its warpgroup, which works on meanwhile.
  void products(int tid, int warpgroup, bool pv) {
    track(tid, "warpgroup " + std::to_string(warpgroup) +
                   (pv ? ": P V in flight" : ": Q K^T in flight"));
    double end = 0;
    for (const Flight& f : c.in_flight)
      if (f.warpgroup == warpgroup && f.pv == pv) {
        slice(tid, pv ? "P V" : "Q K^T", std::max(end, f.start), f.stop, f.position);
        end = std::max(end, f.stop);
      }
  }
  // A track for each stage of a ring, since several loads are in flight at a time.
  void loads() {
    std::map<int, double> ends;
    for (const Flight& f : c.loads) {
      const int tid = 900 + (f.pv ? 50 : 0) + f.warpgroup;
      if (ends.find(tid) == ends.end())
        track(tid, std::string("TMA ") + (f.pv ? "V" : "K") + " stage " + std::to_string(f.warpgroup) +
                       ": from issue until seen");
      const double from = std::max(ends[tid], f.start);
      slice(tid, f.pv ? "V" : "K", from, f.stop, f.position);
      ends[tid] = std::max(from, f.stop);
    }
  }
  void all(bool modelled) {
    process("CTA " + std::to_string(c.cta) +
            (modelled ? " (modelled)" : " on SM " + std::to_string(c.sm)));
    for (std::size_t r = 0; r < c.roles.size(); ++r) {
      const int tid = 1 + 10 * static_cast<int>(r), warpgroup = static_cast<int>(r) - 1;
      track(tid, r ? "warpgroup " + std::to_string(warpgroup) : "producer");
      for (const TraceSpan& s : c.roles[r])
        slice(tid, to_string(s.event), s.start, s.stop, s.position);
      if (r) products(tid + 1, warpgroup, false), products(tid + 2, warpgroup, true);
    }
    if (!c.transposer.empty()) {
      track(890, "transposing warp");
      for (const TraceSpan& s : c.transposer) slice(890, to_string(s.event), s.start, s.stop, s.position);
    }
    loads();
    track(1000, modelled ? "tensor cores" : "tensor cores (from issue order and rate)");
    for (const Flight& f : c.tensor)
      slice(1000,
            std::string(f.pv ? "P V" : "Q K^T") + " of warpgroup " + std::to_string(f.warpgroup),
            f.start, f.stop, f.position);
  }
};

// A CTA may have begun before the one whose clock is the origin, and a role before its CTA's first mark.
double first_us(const Trace& trace, double mhz) {
  double first = 0;
  for (const CtaTrace& c : trace.ctas) {
    auto look_at = [&](const std::vector<TraceSpan>& spans) {
      for (const TraceSpan& s : spans) first = std::min(first, c.origin_us + s.start / mhz);
    };
    for (const std::vector<TraceSpan>& role : c.roles) look_at(role);
    look_at(c.transposer);
  }
  return first;
}

}  // namespace

std::string trace_chrome_json(const Trace& trace) {
  const double mhz = trace.clock_mhz > 0 ? trace.clock_mhz : 1;
  std::string events;
  const double first = first_us(trace, mhz);
  for (const CtaTrace& c : trace.ctas) ChromeWriter{c, mhz, first, &events}.all(trace.modelled);
  char numbers[96];
  // Without the rate of the clock a clock is drawn as a microsecond, and 0 says so.
  std::snprintf(numbers, sizeof numbers, "\"sm_clock_mhz\":%.1f,\"marks_lost\":%zu", trace.clock_mhz, trace.lost);
  return "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"kernel\":" + json_quoted(trace.config.name()) +
         ",\"source\":" + json_quoted(trace.modelled ? "timing model, not measured" : trace.device) +
         "," + numbers + "},\"traceEvents\":[\n" + events + "\n]}\n";
}

}  // namespace flashptx
