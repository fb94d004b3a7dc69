// See trace_lanes.h.
#include "tools/flashptx/trace_lanes.h"

#include <algorithm>
#include <cmath>

namespace flashptx {
namespace {

using svg::Anchor;

const char* const wait_fill = "#dfe2e6";
constexpr double lane_row = 24, lane_thin = 9, lane_thinner = 6;

struct Picture {
  svg::Canvas& c;
  double from, to, y;
  double x(double clock) const {
    return lanes_left + (clock - from) / (to - from) * (lanes_right - lanes_left);
  }
  void bar(double start, double stop, double top, double height, const char* fill,
           const std::string& label, const char* ink, const std::string& tip) {
    const double a = std::max(start, from), b = std::min(stop, to);
    if (b <= a) return;
    const double w = std::max(0.6, x(b) - x(a) - 0.6);
    c.tip_rect(x(a), top, w, height, fill,
               tip + ": " + svg::short_number(stop - start) + " clocks from " + svg::short_number(start));
    if (w > svg::text_width(label, 11) + 4 && height > 12)
      c.text(x(a) + w / 2, top + height / 2 + 4, label, {.size = 11, .anchor = Anchor::middle, .fill = ink});
  }
  void lane(const std::string& name, double top, double height, bool bold = false) {
    c.text(lanes_left - 10, top + height / 2 + 4, name,
           {.size = bold ? 12.5 : 11.5, .anchor = Anchor::end, .bold = bold});
  }
  void rule() {
    y += 6;
    c.line(lanes_left, y - 3, lanes_right, y - 3, svg::faint);
  }

  void role(const CtaTrace& cta, std::size_t r) {
    role(cta.roles[r], r ? "warpgroup " + std::to_string(r - 1) : "producer");
  }
  void role(const std::vector<TraceSpan>& spans, const std::string& who) {
    lane(who, y + 3, lane_row, true);
    for (const TraceSpan& s : spans) {
      const Look l = look(s.event);
      bar(s.start, s.stop, y + 3, lane_row, fill_of(l), l.name, l.text,
          who + " " + to_string(s.event) + " at " + std::to_string(s.position));
    }
    y += lane_row + 6;
  }
  // A lane_thin line a stage: loads overlap.
  void loads(const CtaTrace& cta) {
    for (bool v : {false, true}) {
      int stages = 0;
      for (const Flight& f : cta.loads)
        if (f.pv == v) stages = std::max(stages, f.warpgroup + 1);
      if (stages == 0) continue;
      lane(!v ? "K by TMA, by stage" : cta.transposer.empty() ? "V by TMA, by stage" : "raw V by TMA, by stage", y, (lane_thinner + 2) * stages);
      for (const Flight& f : cta.loads)
        if (f.pv == v)
          bar(f.start, f.stop, y + 1 + (lane_thinner + 2) * f.warpgroup, lane_thinner, svg::colour(v), "", svg::ink,
              std::string(v ? "V" : "K") + " block " + std::to_string(f.position) + " from issue until seen");
      y += (lane_thinner + 2) * stages + 5;
    }
  }
  void products(const CtaTrace& cta, int warpgroup) {
    for (bool pv : {false, true}) {
      lane(pv ? "P V in flight" : "Q K^T in flight", y, lane_thin);
      for (const Flight& f : cta.in_flight)
        if (f.warpgroup == warpgroup && f.pv == pv)
          bar(f.start, f.stop, y + 1, lane_thin, svg::colour(pv), "", svg::ink,
              "warpgroup " + std::to_string(warpgroup) + (pv ? " P V" : " Q K^T"));
      y += lane_thin + 4;
    }
  }
  void axis(const std::string& words) {
    for (double v : svg::ticks(0, to - from, 10)) {
      c.line(x(from + v), y, x(from + v), y + 5, svg::ink);
      c.text(x(from + v), y + 19, svg::short_number(v), {.size = 12, .anchor = Anchor::middle});
    }
    c.line(lanes_left, y, lanes_right, y, svg::ink, 1.2);
    c.text((lanes_left + lanes_right) / 2, y + 37, words, {.size = 13, .anchor = Anchor::middle});
    y += 46;
  }
};

int load_stages(const CtaTrace& cta) {
  int stages[2] = {0, 0};
  for (const Flight& f : cta.loads) stages[f.pv] = std::max(stages[f.pv], f.warpgroup + 1);
  return stages[0] + stages[1];
}
int load_lanes(const CtaTrace& cta) {
  bool any[2] = {false, false};
  for (const Flight& f : cta.loads) any[f.pv] = true;
  return any[0] + any[1];
}

}  // namespace

Look look(TraceEvent e) {
  switch (e) {
    case TraceEvent::qk:
      return {"issue QK", 0, "#ffffff"};
    case TraceEvent::pv:
      return {"issue PV", 1, "#ffffff"};
    case TraceEvent::mask_max:
      return {"max", 2, "#ffffff"};
    case TraceEvent::exp_sum:
      return {"exp, sum", 4, svg::ink};
    case TraceEvent::rescale_o:
      return {"rescale O", 3, svg::ink};
    case TraceEvent::pack_p:
      return {"pack P", 3, svg::ink};
    case TraceEvent::k_load:
      return {"K load", 0, "#ffffff"};
    case TraceEvent::v_load:
      return {"V load", 1, "#ffffff"};
    case TraceEvent::q_load:
      return {"Q load", 5, svg::ink};
    case TraceEvent::store_o:
    case TraceEvent::finish_rows:
      return {"store O", 5, svg::ink};
    case TraceEvent::token_wait:
      return {"token", -1, svg::ink};
    case TraceEvent::k_full_wait:
      return {"K", -1, svg::ink};
    case TraceEvent::v_full_wait:
      return {"V", -1, svg::ink};
    case TraceEvent::wait_qk:
      return {"wait S", -1, svg::ink};
    case TraceEvent::wait_pv:
      return {"wait PV", -1, svg::ink};
    case TraceEvent::raw_full_wait:
      return {"raw V", -1, svg::ink};
    case TraceEvent::transpose:
      return {"V to V^T", 1, "#ffffff"};
    case TraceEvent::k_empty_wait:
      return {"K stage busy", -1, svg::ink};
    case TraceEvent::v_empty_wait:
      return {"V stage busy", -1, svg::ink};
    default:
      return {is_wait(e) ? "wait" : to_string(e), is_wait(e) ? -1 : 6,
              is_wait(e) ? svg::ink : "#ffffff"};
  }
}
Look look(Do d) {
  switch (d) {
    case Do::qk:
      return look(TraceEvent::qk);
    case Do::pv:
      return look(TraceEvent::pv);
    case Do::mask_max:
      return look(TraceEvent::mask_max);
    case Do::exp_sum:
      return look(TraceEvent::exp_sum);
    case Do::rescale_o:
    case Do::pack_p:
      return look(TraceEvent::pack_p);
    default:
      return {"", -1, svg::ink};
  }
}

const char* fill_of(const Look& l) { return l.colour < 0 ? wait_fill : svg::colour(l.colour); }

std::pair<double, double> steady_window(const CtaTrace& c, int trips) {
  const std::vector<TraceSpan>& spans = c.roles[1];
  std::vector<std::size_t> heads;
  for (std::size_t i = 0; i < spans.size(); ++i)
    if (i == 0 || spans[i].position != spans[i - 1].position) heads.push_back(i);
  if (heads.size() < 2) return {spans.front().start, std::max(spans.back().stop, spans.front().start + 1)};
  const std::size_t wanted = std::min(heads.size() - 1, static_cast<std::size_t>(std::max(1, trips)));
  std::vector<std::pair<double, std::size_t>> steady;  // duration, first head
  for (std::size_t h = 1; h + wanted < heads.size(); ++h) {
    bool ok = true;
    for (std::size_t i = heads[h]; i < heads[h + wanted]; ++i)
      ok &= spans[i].event < TraceEvent::tile_wait ||
            (spans[i].event >= TraceEvent::k_empty_wait && spans[i].event <= TraceEvent::v_load);
    if (ok) steady.push_back({spans[heads[h + wanted]].start - spans[heads[h]].start, h});
  }
  std::size_t first = std::min((heads.size() - wanted) / 2, heads.size() - 1 - wanted);
  if (!steady.empty()) {
    auto middle = steady.begin() + static_cast<long>(steady.size() / 2);
    std::nth_element(steady.begin(), middle, steady.end());
    first = middle->second;
  }
  return {spans[heads[first]].start, spans[heads[first + wanted]].start};
}

double draw_legend(svg::Canvas& c, double y) {
  const std::pair<const char*, const char*> entries[] = {
      {"Q K^T, K", svg::colour(0)},         {"P V, V", svg::colour(1)},
      {"mask, max", svg::colour(2)},        {"exp, sum", svg::colour(4)},
      {"rescale O, pack P", svg::colour(3)}, {"Q load, O store", svg::colour(5)},
      {"waiting: K, V to arrive; S, PV to be complete; token: its turn", wait_fill}};
  double at = lanes_left;
  for (const auto& [name, fill] : entries) {
    c.rect(at, y, 14, 14, fill, "#8a9099");
    c.text(at + 20, y + 12, name, {.size = 12.5});
    at += 20 + svg::text_width(name, 12.5) + 12;
  }
  return y + 26;
}

double lanes_height(const CtaTrace& cta) {
  double h = lane_row + 10 + 46 + (lane_thinner + 2) * load_stages(cta) + 5 * load_lanes(cta);
  for (std::size_t r = 0; r < cta.roles.size(); ++r)
    if (!cta.roles[r].empty()) h += lane_row + 12 + (r ? 2 * (lane_thin + 4) : 0);
  if (!cta.transposer.empty()) h += lane_row + 6;
  if (cta.roles[0].empty()) h += 6;
  return h;
}

double draw_lanes(svg::Canvas& c, const CtaTrace& cta, double from, double to, double y, bool modelled) {
  Picture p{c, from, to, y};
  const double bottom = y + lanes_height(cta) - 46;
  for (double v : svg::ticks(0, to - from, 10)) c.line(p.x(from + v), y, p.x(from + v), bottom, svg::faint, 0.8);
  if (!cta.roles[0].empty()) p.role(cta, 0);
  p.loads(cta);
  if (!cta.transposer.empty()) p.role(cta.transposer, "transposing warp");
  p.rule();
  for (std::size_t r = 1; r < cta.roles.size(); ++r) {
    p.role(cta, r);
    p.products(cta, static_cast<int>(r) - 1);
    p.rule();
  }
  p.lane(modelled ? "tensor cores" : "tensor cores *", p.y + 3, lane_row, true);
  for (const Flight& f : cta.tensor)
    p.bar(f.start, f.stop, p.y + 3, lane_row, svg::colour(f.pv), (f.pv ? "PV " : "QK ") + std::to_string(f.warpgroup),
          "#ffffff", (f.pv ? "P V of warpgroup " : "Q K^T of warpgroup ") + std::to_string(f.warpgroup));
  p.y += lane_row + 10;
  p.axis(modelled ? "SM clocks (modelled)"
                  : "SM clocks (measured; * tensor cores: from the order of issue and the rate of wgmma)");
  return p.y;
}

namespace {

TraceEvent trip_event(Do what) {
  switch (what) {
    case Do::token_wait: return TraceEvent::token_wait;
    case Do::qk: return TraceEvent::qk;
    case Do::pv: return TraceEvent::pv;
    case Do::wait_qk: return TraceEvent::wait_qk;
    case Do::wait_pv: return TraceEvent::wait_pv;
    case Do::mask_max: return TraceEvent::mask_max;
    case Do::exp_sum: return TraceEvent::exp_sum;
    case Do::rescale_o: return TraceEvent::rescale_o;
    case Do::pack_p: return TraceEvent::pack_p;
    default: return TraceEvent::none;
  }
}

// A trip's events in the order of its schedule; one that loads does so first.
std::vector<TraceEvent> trip_order(const Schedule& schedule) {
  std::vector<TraceEvent> order = {TraceEvent::k_empty_wait, TraceEvent::k_load, TraceEvent::v_empty_wait,
                                   TraceEvent::v_load, TraceEvent::k_full_wait};
  for (const Step& s : schedule.steps) {
    if (s.what == Do::pv) order.push_back(TraceEvent::v_full_wait);
    if (trip_event(s.what) != TraceEvent::none) order.push_back(trip_event(s.what));
  }
  return order;
}

}  // namespace

double trip_bars_height(std::size_t bars) { return 22 + static_cast<double>(bars) * (lane_row + 8) + 46; }

double draw_trip_bars(svg::Canvas& c, const std::vector<TripBar>& bars, double y) {
  double most = 1;
  for (const TripBar& b : bars) {
    double sum = 0;
    for (double e : b.summary->event_cycles) sum += e;
    most = std::max({most, sum, b.summary->cycles_per_trip});
  }
  c.text(24, y + 14, "One trip of a warpgroup, step by step (mean of the steady trips)", {.size = 13.5, .bold = true});
  Picture p{c, 0, most * 1.08, y + 24};
  const double bottom = p.y + static_cast<double>(bars.size()) * (lane_row + 8);
  for (double v : svg::ticks(0, p.to, 10)) c.line(p.x(v), p.y, p.x(v), bottom, svg::faint, 0.8);
  for (const TripBar& b : bars) {
    p.lane(b.name, p.y, lane_row, true);
    double at = 0;
    for (TraceEvent e : trip_order(*b.schedule)) {
      const double length = b.summary->event_cycles[static_cast<int>(e)];
      const Look l = look(e);
      p.bar(at, at + length, p.y, lane_row, fill_of(l), l.name, l.text, to_string(e));
      at += length;
    }
    c.text(p.x(at) + 6, p.y + lane_row / 2 + 4, svg::short_number(std::round(at)),
           {.size = 12, .bold = true});
    p.y += lane_row + 8;
  }
  p.axis("SM clocks");
  return p.y;
}

}  // namespace flashptx
