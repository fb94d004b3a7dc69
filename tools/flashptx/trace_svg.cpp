// The picture: the schedule's table above, what became of it below. Next: svg.h.
#include <algorithm>
#include <cmath>

#include "tools/flashptx/svg.h"
#include "tools/flashptx/trace.h"

namespace flashptx {
namespace {

using svg::Anchor;

constexpr double kWidth = 1240, kLeft = 190, kRight = kWidth - 28;
const char* const kWaitFill = "#dfe2e6";

struct Look {
  const char* name;
  int colour;  // of svg::colour; -1: a wait
  const char* text;
};
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
    case TraceEvent::k_empty_wait:
      return {"K free?", -1, svg::ink};
    case TraceEvent::v_empty_wait:
      return {"V free?", -1, svg::ink};
    default:
      return {is_wait(e) ? "wait" : to_string(e), is_wait(e) ? -1 : 6,
              is_wait(e) ? svg::ink : "#ffffff"};
  }
}
const char* fill_of(const Look& l) { return l.colour < 0 ? kWaitFill : svg::colour(l.colour); }

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

struct Picture {
  svg::Canvas c;
  double from, to, y;
  double x(double clock) const { return kLeft + (clock - from) / (to - from) * (kRight - kLeft); }

  void bar(double start, double stop, double top, double height, const char* fill,
           const std::string& label, const char* ink, const std::string& tip) {
    const double a = std::max(start, from), b = std::min(stop, to);
    if (b <= a) return;
    const double w = std::max(0.6, x(b) - x(a) - 0.6);
    c.tip_rect(
        x(a), top, w, height, fill,
        tip + ": " + svg::short_number(stop - start) + " clocks from " + svg::short_number(start));
    if (w > svg::text_width(label, 11) + 4 && height > 12)
      c.text(x(a) + w / 2, top + height / 2 + 4, label,
             {.size = 11, .anchor = Anchor::middle, .fill = ink});
  }
  void lane(const std::string& name, double top, double height, bool bold = false) {
    c.text(kLeft - 10, top + height / 2 + 4, name,
           {.size = 12.5, .anchor = Anchor::end, .bold = bold});
  }
};

constexpr double kCell = 19;

double draw_table(svg::Canvas& c, const Schedule& s, double y) {
  c.text(24, y + 14, "Planned: schedule \"" + s.name + "\": " + s.about,
         {.size = 13.5, .bold = true});
  y += 24;
  constexpr int trips = 6;
  const double left = kLeft + 40, width = (kRight - left) / trips;
  c.text(kLeft - 10, y + 13, "step", {.size = 12, .anchor = Anchor::end});
  c.text(kLeft + 14, y + 13, "lag", {.size = 12, .anchor = Anchor::middle});
  for (int t = 0; t < trips; ++t)
    c.text(left + width * (t + 0.5), y + 13, "trip " + std::to_string(t),
           {.size = 12, .anchor = Anchor::middle});
  y += kCell;
  for (const Step& step : s.steps) {
    const Look l = look(step.what);
    c.text(kLeft - 10, y + 13, to_string(step.what), {.size = 12, .anchor = Anchor::end});
    c.text(kLeft + 14, y + 13, std::to_string(step.lag), {.size = 12, .anchor = Anchor::middle});
    for (int t = 0; t < trips; ++t) {
      const int block = t - step.lag;
      const bool token = step.what == Do::token_wait || step.what == Do::token_pass;
      if (block < 0 || (token && t == 0) || (step.what == Do::rescale_o && block == 0)) continue;
      c.rect(left + width * t + 1, y + 1.5, width - 2, kCell - 3, fill_of(l));
      c.text(left + width * (t + 0.5), y + 13, "block " + std::to_string(block),
             {.size = 11, .anchor = Anchor::middle, .fill = l.text});
    }
    y += kCell;
  }
  return y + 12;
}

double draw_legend(svg::Canvas& c, double y) {
  const std::pair<const char*, const char*> entries[] = {{"Q K^T", svg::colour(0)},
                                                         {"P V", svg::colour(1)},
                                                         {"mask, max", svg::colour(2)},
                                                         {"exp, sum", svg::colour(4)},
                                                         {"rescale O, pack P", svg::colour(3)},
                                                         {"Q load, O store", svg::colour(5)},
                                                         {"waiting", kWaitFill}};
  double at = kLeft;
  for (const auto& [name, fill] : entries) {
    c.rect(at, y, 14, 14, fill, "#8a9099");
    c.text(at + 20, y + 12, name, {.size = 12.5});
    at += 20 + svg::text_width(name, 12.5) + 20;
  }
  return y + 26;
}

// The middle of CTA 0's trips: from one trip's start of warpgroup 0 to a later one's.
std::pair<double, double> window(const CtaTrace& c, int trips) {
  std::vector<double> starts;
  for (std::size_t i = 0; i < c.roles[1].size(); ++i)
    if (i == 0 || c.roles[1][i].position != c.roles[1][i - 1].position)
      starts.push_back(c.roles[1][i].start);
  if (starts.size() < 2)
    return {c.roles[1].front().start,
            std::max(c.roles[1].back().stop, c.roles[1].front().start + 1)};
  const std::size_t wanted =
      std::min(starts.size() - 1, static_cast<std::size_t>(std::max(1, trips)));
  const std::size_t first = std::min((starts.size() - wanted) / 2, starts.size() - 1 - wanted);
  return {starts[first], starts[first + wanted]};
}

std::string subtitle(const Trace& t, const TraceSummary& s) {
  std::string out = t.modelled
                        ? "MODELLED from the schedule and per-unit rates, not measured"
                        : "measured on " + t.device + " by marks in the kernel, CTA 0 on SM " +
                              std::to_string(t.ctas[0].sm);
  if (s.trips)
    out += ". " + svg::short_number(std::round(s.cycles_per_trip)) +
           " clocks a trip, tensor cores " + svg::short_number(std::round(100 * s.tensor_busy)) +
           " % busy, " + svg::short_number(std::round(100 * s.overlap_own)) +
           " % of the softmax under own products";
  return out + ".";
}

void draw_lanes(Picture& p, const CtaTrace& c, bool modelled) {
  constexpr double row = 24, thin = 9;
  const double bottom = p.y + 36 + 62 * static_cast<double>(c.roles.size() - 1) + row + 10;
  for (double v : svg::ticks(0, p.to - p.from, 10))
    p.c.line(p.x(p.from + v), p.y, p.x(p.from + v), bottom, svg::faint, 0.8);
  for (std::size_t r = 0; r < c.roles.size(); ++r) {
    const std::string who = r ? "warpgroup " + std::to_string(r - 1) : "producer";
    p.lane(who, p.y + 3, row, true);
    for (const TraceSpan& s : c.roles[r]) {
      const Look l = look(s.event);
      p.bar(s.start, s.stop, p.y + 3, row, fill_of(l), l.name, l.text,
            who + " " + to_string(s.event) + " at " + std::to_string(s.position));
    }
    p.y += row + 6;
    for (int pv = 0; r && pv < 2; ++pv) {
      p.lane(pv ? "P V in flight" : "Q K^T in flight", p.y, thin);
      for (const Flight& f : c.in_flight)
        if (f.warpgroup == static_cast<int>(r) - 1 && f.pv == (pv == 1))
          p.bar(f.start, f.stop, p.y + 1, thin, svg::colour(pv), "", svg::ink,
                who + (pv ? " P V" : " Q K^T"));
      p.y += thin + 4;
    }
    p.y += 6;
    p.c.line(kLeft, p.y - 3, kRight, p.y - 3, svg::faint);
  }
  p.lane("tensor cores", p.y + 3, row, true);
  for (const Flight& f : c.tensor)
    p.bar(f.start, f.stop, p.y + 3, row, svg::colour(f.pv),
          (f.pv ? "PV " : "QK ") + std::to_string(f.warpgroup), "#ffffff",
          (f.pv ? "P V of warpgroup " : "Q K^T of warpgroup ") + std::to_string(f.warpgroup));
  p.y += row + 10;
  for (double v : svg::ticks(0, p.to - p.from, 10)) {
    p.c.line(p.x(p.from + v), p.y, p.x(p.from + v), p.y + 5, svg::ink);
    p.c.text(p.x(p.from + v), p.y + 19, svg::short_number(v),
             {.size = 12, .anchor = Anchor::middle});
  }
  p.c.line(kLeft, p.y, kRight, p.y, svg::ink, 1.2);
  p.c.text((kLeft + kRight) / 2, p.y + 39,
           std::string("SM clocks from the start of a trip of warpgroup 0") +
               (modelled ? " (modelled)" : ""),
           {.size = 13, .anchor = Anchor::middle});
}

}  // namespace

std::string trace_svg(const Trace& trace, const Trace& model, int trips) {
  (void)model;
  const CtaTrace& cta = trace.ctas.front();
  const Schedule& schedule = *trace.config.plan.table();
  const double height = 74 + 24 + kCell * static_cast<double>(schedule.steps.size() + 1) + 12 + 24 +
                        30 + 56 * static_cast<double>(cta.roles.size()) + 34 + 58;
  const auto [from, to] = window(cta, trips);
  Picture p{svg::Canvas(kWidth, height), from, to, 74};
  p.c.text(24, 32, trace.config.name(), {.size = 17, .bold = true});
  p.c.text(24, 54, subtitle(trace, summarise(trace)), {.size = 12.5, .fill = "#4a5058"});
  p.y = draw_table(p.c, schedule, p.y);
  p.c.text(24, p.y + 14, trace.modelled ? "Modelled timeline" : "Measured",
           {.size = 13.5, .bold = true});
  p.y = draw_legend(p.c, p.y + 24);
  draw_lanes(p, cta, trace.modelled);
  return p.c.str();
}

}  // namespace flashptx
