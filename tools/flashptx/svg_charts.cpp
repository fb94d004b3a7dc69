// Line chart, horizontal bars, timeline.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "tools/flashptx/svg.h"

namespace flashptx::svg {

namespace {

// Title and subtitle; returns the y below them.
double heading(Canvas& c, const std::string& title, const std::string& subtitle) {
  c.text(24, 32, title, {.size = 17, .bold = true});
  double y = 52;
  std::string line;
  auto flush = [&] {
    if (!line.empty()) c.text(24, y, line, {.size = 12.5, .fill = "#4a5058"});
    y += line.empty() ? 0 : 16;
    line.clear();
  };
  std::istringstream words(subtitle);
  for (std::string w; words >> w; line += (line.empty() ? "" : " ") + w)
    if (text_width(line + " " + w, 12.5) > c.width() - 48) flush();
  flush();
  return y;
}

// Height that heading() will take, for charts whose height follows from their content.
double heading_height(const std::string& subtitle, double width) {
  return 52 + 16 * std::ceil(text_width(subtitle, 12.5) * 1.1 / (width - 48));
}

struct Scale {
  double lo, hi, from, to;
  bool logarithmic;
  double operator()(double v) const {
    const double t = logarithmic ? std::log(v / lo) / std::log(hi / lo) : (v - lo) / (hi - lo);
    return from + t * (to - from);
  }
};

std::vector<Tick> ticks_of(const Axis& a, int count) {
  if (!a.ticks.empty()) return a.ticks;
  std::vector<Tick> out;
  for (double v : ticks(a.lo, a.hi, count)) out.push_back({v, short_number(v)});
  return out;
}

void axes(Canvas& c, const LineChart& chart, const Scale& x, const Scale& y) {
  for (const Tick& t : ticks_of(chart.y, 6)) {
    c.line(x.from, y(t.at), x.to, y(t.at), faint);
    c.text(x.from - 8, y(t.at) + 4.5, t.label, {.size = 12.5, .anchor = Anchor::end});
  }
  for (const Tick& t : ticks_of(chart.x, 8)) {
    c.line(x(t.at), y.from, x(t.at), y.from + 5, ink);
    c.text(x(t.at), y.from + 20, t.label, {.size = 12.5, .anchor = Anchor::middle});
  }
  c.line(x.from, y.from, x.to, y.from, ink, 1.2);
  c.text((x.from + x.to) / 2, y.from + 42, chart.x.label, {.size = 13, .anchor = Anchor::middle});
  c.text(24, (y.from + y.to) / 2, chart.y.label,
         {.size = 13, .anchor = Anchor::middle, .vertical = true});
}

// Rows of name with a sample of line and marker; returns their height.
double legend(Canvas& c, const std::vector<Series>& series, double left, double right, double top) {
  double x = left, y = top + 10;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const double width = 46 + text_width(series[i].name, 12.5) + 20;
    if (x + width > right && x > left) x = left, y += 20;
    const int k = series[i].colour < 0 ? static_cast<int>(i) : series[i].colour;
    c.line(x, y, x + 30, y, colour(k), 2.4, series[i].dashed ? "6 4" : "");
    c.marker(x + 15, y, static_cast<int>(i), colour(k));
    c.text(x + 38, y + 4.5, series[i].name, {.size = 12.5});
    x += width;
  }
  return y + 14 - top;
}

}  // namespace

std::string draw(const LineChart& chart) {
  Canvas c(chart.width, chart.height);
  double top = heading(c, chart.title, chart.subtitle);
  top += legend(c, chart.series, 84, chart.width - 20, top);
  if (!chart.marks.empty()) top += 20;
  const Scale x{chart.x.lo, chart.x.hi, 84, chart.width - 28, chart.x.logarithmic};
  const Scale y{chart.y.lo, chart.y.hi, chart.height - 62, top + 6, chart.y.logarithmic};
  axes(c, chart, x, y);
  for (const Mark& m : chart.marks) {
    c.line(x(m.at), y.from, x(m.at), y.to, "#5b5f66", 1.2, "3 3");
    c.text(x(m.at), y.to - 6, m.label, {.size = 12, .anchor = Anchor::middle, .fill = "#4a5058"});
  }
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& s = chart.series[i];
    const char* stroke = colour(s.colour < 0 ? static_cast<int>(i) : s.colour);
    std::vector<std::pair<double, double>> points;
    for (const auto& [px, py] : s.points) points.push_back({x(px), y(py)});
    c.polyline(points, stroke, 2.4, s.dashed ? "6 4" : "");
    for (const auto& [px, py] : points) c.marker(px, py, static_cast<int>(i), stroke, 3.6);
  }
  return c.str();
}

std::string draw(const BarChart& chart) {
  constexpr double row = 24;
  const double height = heading_height(chart.subtitle, chart.width) +
                        (chart.reference_name.empty() ? 8 : 28) +
                        row * static_cast<double>(chart.bars.size()) + 52;
  Canvas c(chart.width, height);
  double top = heading(c, chart.title, chart.subtitle);
  double label_width = 40, most = 0;
  for (const Bar& b : chart.bars) {
    if (!b.heading) label_width = std::max(label_width, text_width(b.label, 12.5));
    most = std::max({most, b.value, b.reference, b.reference_to, chart.ceiling, chart.second_ceiling});
  }
  const double left = 24 + label_width + 12, right = chart.width - 150;
  const std::vector<double> at = ticks(0, most > 0 ? most : 1, 5);
  const Scale x{0, most > 0 ? most : 1, left, right, false};
  if (!chart.reference_name.empty()) {
    c.line(left + 1, top + 2, left + 1, top + 16, ink, 2.5);
    c.text(left + 10, top + 14, chart.reference_name, {.size = 12.5});
    top += 26;
  }
  const double bottom = top + row * static_cast<double>(chart.bars.size());
  for (double t : at) {
    c.line(x(t), top, x(t), bottom, faint);
    c.text(x(t), bottom + 16, short_number(t), {.size = 12, .anchor = Anchor::middle});
  }
  c.line(left, top, left, bottom, ink, 1.2);
  for (const auto& [at, name] : {std::pair{chart.ceiling, chart.ceiling_name},
                                 std::pair{chart.second_ceiling, chart.second_ceiling_name}}) {
    if (at <= 0) continue;
    c.line(x(at), top, x(at), bottom, "#4a5058", 1.2, "5 4");
    c.text(x(at), top - 6, name, {.size = 12.5, .anchor = Anchor::middle});
  }
  for (std::size_t i = 0; i < chart.bars.size(); ++i) {
    const Bar& b = chart.bars[i];
    const double y = top + row * static_cast<double>(i);
    if (b.heading) {
      c.rect(20, y + 2, chart.width - 40, row - 3, paper);
      c.text(24, y + 17, b.label, {.size = 13, .bold = true});
      continue;
    }
    c.text(left - 8, y + 16, b.label, {.size = 12.5, .anchor = Anchor::end});
    const std::string text = b.text.empty() ? short_number(b.value) : b.text;
    c.tip_rect(left, y + 4, std::max(1.0, x(b.value) - left), row - 8, colour(b.colour),
               b.label + ": " + text);
    const double last = std::max({b.value, b.reference, b.reference_to});
    if (b.reference_to > b.reference)
      c.rect(x(b.reference), y + 2, x(b.reference_to) - x(b.reference), row - 4, "#6b7280", ink, 0, 0.55);
    else if (b.reference > 0) c.line(x(b.reference), y + 1, x(b.reference), y + row - 1, ink, 2.5);
    c.rect(x(last) + 5, y + 3, text_width(text, 12.5) + 4, row - 6, paper);  // no line through the text
    c.text(x(last) + 8, y + 16, text, {.size = 12.5});
  }
  c.text((left + right) / 2, bottom + 36, chart.unit, {.size = 13, .anchor = Anchor::middle});
  return c.str();
}

std::string draw(const Timeline& t) {
  constexpr double row = 34;
  double label_width = 40, lo = 0, hi = 1;
  bool first = true;
  for (const std::string& l : t.lanes) label_width = std::max(label_width, text_width(l, 13));
  for (const Span& s : t.spans) {
    lo = first ? s.start : std::min(lo, s.start);
    hi = first ? s.stop : std::max(hi, s.stop);
    first = false;
  }
  const double height =
      heading_height(t.subtitle, t.width) + 30 + row * static_cast<double>(t.lanes.size()) + 52;
  Canvas c(t.width, height);
  double top = heading(c, t.title, t.subtitle);
  const double left = 24 + label_width + 12, right = t.width - 28;
  double at = left;
  for (const auto& [name, k] : t.legend) {
    c.rect(at, top + 2, 14, 14, colour(k));
    c.text(at + 20, top + 14, name, {.size = 12.5});
    at += 20 + text_width(name, 12.5) + 22;
  }
  top += t.legend.empty() ? 4 : 28;
  const Scale x{lo, hi > lo ? hi : lo + 1, left, right, false};
  const double bottom = top + row * static_cast<double>(t.lanes.size());
  for (double v : ticks(lo, hi, 10)) {
    c.line(x(v), top, x(v), bottom, faint);
    c.text(x(v), bottom + 16, short_number(v), {.size = 12, .anchor = Anchor::middle});
  }
  for (std::size_t i = 0; i < t.lanes.size(); ++i) {
    const double y = top + row * static_cast<double>(i);
    c.text(left - 10, y + 21, t.lanes[i], {.size = 13, .anchor = Anchor::end});
    c.line(left, y + row, right, y + row, faint);
  }
  for (const Span& s : t.spans) {
    const double x0 = x(s.start), w = std::max(0.6, x(s.stop) - x0 - 0.5), y = top + row * s.lane;
    c.tip_rect(x0, y + 5, w, row - 10, colour(s.colour),
               s.label + ": " + short_number(s.stop - s.start) + " from " + short_number(s.start));
    if (w > text_width(s.label, 11.5) + 8)
      c.text(x0 + w / 2, y + row / 2 + 4, s.label,
             {.size = 11.5,
              .anchor = Anchor::middle,
              .fill = s.colour % 7 == 4 || s.colour % 7 == 5 ? ink : "#ffffff"});
  }
  c.line(left, bottom, right, bottom, ink, 1.2);
  c.text((left + right) / 2, bottom + 38, t.x_label, {.size = 13, .anchor = Anchor::middle});
  return c.str();
}

}  // namespace flashptx::svg
