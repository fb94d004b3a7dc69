// The pictures: one kernel (the schedule's table, below it what became of it), and two kernels on one scale.
// Next: trace_lanes.h.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "gen/kernels/schedule_lines.h"
#include "tools/flashptx/trace.h"
#include "tools/flashptx/trace_lanes.h"

namespace flashptx {
namespace {

using svg::Anchor;

constexpr double kLeft = lanes_left, kRight = lanes_right;
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


double table_height(const Schedule& s) { return 24 + kCell * static_cast<double>(s.steps.size() + 1) + 12; }

std::string figures(const TraceSummary& s, Marks marked) {
  if (s.trips == 0) return "too few trips for figures";
  const auto percent = [](double x) { return svg::short_number(std::round(100 * x)) + " %"; };
  return svg::short_number(std::round(s.cycles_per_trip)) + " clocks a trip (median), tensor cores " + percent(s.tensor_busy) +
         " busy" +
         (marked == Marks::few ? "" : ", " + percent(s.overlap_own) + " of the softmax under own products");
}

std::string source(const Trace& t) {
  return t.modelled ? "MODELLED from the schedule and per-unit rates, not measured"
                    : "Measured on " + t.device + " by " + (t.marked == Marks::few ? "few marks (a bar runs to the next of them)" : "marks") +
                          " in the kernel, CTA 0 on SM " + std::to_string(t.ctas[0].sm);
}

}  // namespace

std::string trace_svg(const Trace& trace, const Trace& model, int trips) {
  const CtaTrace& cta = trace.ctas.front();
  const Schedule schedule = drawn_schedule(trace.config.plan);
  const TraceSummary summary = summarise(trace), planned = summarise(model);
  std::vector<TripBar> bars;
  if (!trace.modelled && planned.trips) bars.push_back({"modelled", &planned, &schedule});
  if (summary.trips) bars.push_back({trace.modelled ? "modelled" : "measured", &summary, &schedule});
  const double height = 74 + table_height(schedule) + 24 + 30 + lanes_height(cta) + 14 +
                        (bars.empty() ? 0 : trip_bars_height(bars.size())) + 8;
  svg::Canvas c(lanes_width, height);
  c.text(24, 32, trace.config.name(), {.size = 17, .bold = true});
  c.text(24, 54, source(trace) + ". " + figures(summary, trace.marked) + ".", {.size = 12.5, .fill = "#4a5058"});
  double y = draw_table(c, schedule, 74);
  c.text(24, y + 14, trace.modelled ? "Modelled timeline" : "Measured timeline", {.size = 13.5, .bold = true});
  y = draw_legend(c, y + 24);
  const auto [from, to] = steady_window(cta, trips);
  y = draw_lanes(c, cta, from, to, y, trace.modelled) + 14;
  if (!bars.empty()) draw_trip_bars(c, bars, y);
  return c.str();
}

std::string diff_svg(const Trace& a, const Trace& b, int trips) {
  const TraceSummary sa = summarise(a), sb = summarise(b);
  const auto [fa, ta] = steady_window(a.ctas.front(), trips);
  const auto [fb, tb] = steady_window(b.ctas.front(), trips);
  const double span = std::max(ta - fa, tb - fb);  // one scale for both
  const double height = 62 + 2 * 50 + lanes_height(a.ctas.front()) + lanes_height(b.ctas.front()) + 20 +
                        trip_bars_height(2) + 8;
  svg::Canvas c(lanes_width, height);
  c.text(24, 32, "Two kernels on one scale of clocks", {.size = 17, .bold = true});
  double y = draw_legend(c, 46);
  for (const auto& [name, trace, summary, from] :
       {std::tuple{"A", &a, &sa, fa}, std::tuple{"B", &b, &sb, fb}}) {
    c.text(24, y + 14, std::string(name) + "  " + trace->config.name(), {.size = 13.5, .bold = true});
    c.text(24, y + 32, source(*trace) + ". " + figures(*summary, trace->marked) + ".", {.size = 12, .fill = "#4a5058"});
    y = draw_lanes(c, trace->ctas.front(), from, from + span, y + 44, trace->modelled) + 6;
  }
  const Schedule xa = drawn_schedule(a.config.plan), xb = drawn_schedule(b.config.plan);
  draw_trip_bars(c, {{"A", &sa, &xa}, {"B", &sb, &xb}}, y);
  return c.str();
}

}  // namespace flashptx
