// Lanes of a timeline as a drawing: what each role does, what is in flight, when the tensor cores are busy.
// Used by the picture of one kernel and by that of two side by side. Next: trace_lanes.cpp, trace_svg.cpp.
#pragma once

#include <string>
#include <utility>

#include "tools/flashptx/svg.h"
#include "tools/flashptx/trace.h"

namespace flashptx {

constexpr double lanes_width = 1240, lanes_left = 190, lanes_right = lanes_width - 28;

struct Look {
  const char* name;
  int colour;  // of svg::colour; -1: a wait
  const char* text;
};
Look look(TraceEvent e);
Look look(Do d);
const char* fill_of(const Look& l);

// `trips` steady trips of CTA 0's first warpgroup that last as long as most do: from, to.
std::pair<double, double> steady_window(const CtaTrace& c, int trips);

// Both return the y below what they drew.
double draw_legend(svg::Canvas& c, double y);
// The window [from, to] of a CTA over the width of the picture, with a clock axis.
double draw_lanes(svg::Canvas& c, const CtaTrace& cta, double from, double to, double y, bool modelled);
double lanes_height(const CtaTrace& cta);

// One trip's steps end to end, as clocks of a warpgroup: planned above measured, on one scale.
struct TripBar {
  std::string name;
  const TraceSummary* summary;
  const Schedule* schedule;  // the order of its steps
};
double draw_trip_bars(svg::Canvas& c, const std::vector<TripBar>& bars, double y);
double trip_bars_height(std::size_t bars);

}  // namespace flashptx
