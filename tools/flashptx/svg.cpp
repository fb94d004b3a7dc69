// The canvas and its helpers. Charts: svg_charts.cpp.
#include "tools/flashptx/svg.h"

#include <cmath>
#include <cstdio>

namespace flashptx::svg {

const char* const ink = "#1b1f24";
const char* const faint = "#d9dce0";
const char* const paper = "#fcfcfb";

namespace {

std::string num(double x) {
  char s[32];
  std::snprintf(s, sizeof s, "%.2f", x);
  std::string t = s;
  while (t.back() == '0') t.pop_back();
  if (t.back() == '.') t.pop_back();
  return t == "-0" ? "0" : t;
}

std::string attribute(const char* name, const std::string& value) {
  return std::string(" ") + name + "=\"" + value + "\"";
}

}  // namespace

const char* colour(int i) {
  static const char* const okabe_ito[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                          "#E69F00", "#56B4E9", "#5b5f66"};
  return okabe_ito[static_cast<unsigned>(i) % 7];
}

std::string escape(const std::string& s) {
  std::string out;
  for (char c : s)
    out += c == '<'   ? "&lt;"
           : c == '>' ? "&gt;"
           : c == '&' ? "&amp;"
           : c == '"' ? "&quot;"
                      : std::string(1, c);
  return out;
}

double text_width(const std::string& s, double size) {
  double w = 0;
  for (char c : s)
    w += c == ' ' || c == '.' || c == ',' || c == 'i' || c == 'l' ? 0.36
         : c >= 'A' && c <= 'Z'                                   ? 0.72
                                                                  : 0.63;
  return w * size;
}

std::vector<double> ticks(double lo, double hi, int count) {
  const double raw = (hi - lo) / std::max(1, count),
               power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (double m : {1.0, 2.0, 2.5, 5.0})
    if (m * power >= raw * 0.999) {
      step = m * power;
      break;
    }
  std::vector<double> out;
  for (double v = std::ceil(lo / step - 1e-9) * step; v <= hi + 1e-9 * step; v += step)
    out.push_back(v + 0.0);  // no -0
  return out;
}

std::string short_number(double x) {
  char s[32];
  const double a = std::fabs(x);
  std::snprintf(s, sizeof s,
                a >= 100 || a == 0 || (a >= 10 && a == std::round(a)) ? "%.0f"
                : a >= 10                                             ? "%.1f"
                : a >= 1                                              ? "%.2f"
                                                                      : "%.3g",
                x);
  return s;
}

Canvas::Canvas(double width, double height) : width_(width), height_(height) {
  rect(0.5, 0.5, width - 1, height - 1, paper, faint, 8);
}

void Canvas::rect(double x, double y, double w, double h, const std::string& fill,
                  const std::string& stroke, double radius, double opacity) {
  body_ += "<rect" + attribute("x", num(x)) + attribute("y", num(y)) + attribute("width", num(w)) +
           attribute("height", num(h)) + attribute("fill", fill) +
           (stroke == "none" ? "" : attribute("stroke", stroke)) +
           (radius > 0 ? attribute("rx", num(radius)) : "") +
           (opacity < 1 ? attribute("opacity", num(opacity)) : "") + "/>\n";
}

void Canvas::tip_rect(double x, double y, double w, double h, const std::string& fill,
                      const std::string& tip) {
  body_ += "<rect" + attribute("x", num(x)) + attribute("y", num(y)) + attribute("width", num(w)) +
           attribute("height", num(h)) + attribute("fill", fill) + "><title>" + escape(tip) +
           "</title></rect>\n";
}

void Canvas::line(double x1, double y1, double x2, double y2, const std::string& stroke,
                  double width, const std::string& dash) {
  body_ += "<line" + attribute("x1", num(x1)) + attribute("y1", num(y1)) +
           attribute("x2", num(x2)) + attribute("y2", num(y2)) + attribute("stroke", stroke) +
           attribute("stroke-width", num(width)) +
           (dash.empty() ? "" : attribute("stroke-dasharray", dash)) + "/>\n";
}

void Canvas::polyline(const std::vector<std::pair<double, double>>& points,
                      const std::string& stroke, double width, const std::string& dash) {
  std::string list;
  for (const auto& [x, y] : points) list += num(x) + "," + num(y) + " ";
  body_ += "<polyline" + attribute("points", list) + attribute("fill", "none") +
           attribute("stroke", stroke) + attribute("stroke-width", num(width)) +
           attribute("stroke-linejoin", "round") +
           (dash.empty() ? "" : attribute("stroke-dasharray", dash)) + "/>\n";
}

void Canvas::marker(double x, double y, int shape, const std::string& fill, double size) {
  const double s = size;
  auto polygon = [&](const std::vector<std::pair<double, double>>& p) {
    std::string list;
    for (const auto& [px, py] : p) list += num(px) + "," + num(py) + " ";
    body_ += "<polygon" + attribute("points", list) + attribute("fill", fill) + "/>\n";
  };
  switch (static_cast<unsigned>(shape) % 4) {
    case 0:
      body_ += "<circle" + attribute("cx", num(x)) + attribute("cy", num(y)) +
               attribute("r", num(s)) + attribute("fill", fill) + "/>\n";
      break;
    case 1:
      polygon({{x - s, y - s}, {x + s, y - s}, {x + s, y + s}, {x - s, y + s}});
      break;
    case 2:
      polygon({{x, y - 1.3 * s}, {x + 1.3 * s, y}, {x, y + 1.3 * s}, {x - 1.3 * s, y}});
      break;
    default:
      polygon({{x, y - 1.2 * s}, {x + 1.2 * s, y + s}, {x - 1.2 * s, y + s}});
  }
}

void Canvas::text(double x, double y, const std::string& s, const TextStyle& style) {
  static const char* const anchors[] = {"start", "middle", "end"};
  body_ +=
      "<text" + attribute("x", num(x)) + attribute("y", num(y)) +
      attribute("font-size", num(style.size)) +
      attribute("text-anchor", anchors[static_cast<int>(style.anchor)]) +
      attribute("fill", style.fill ? style.fill : ink) +
      (style.bold ? attribute("font-weight", "bold") : "") +
      (style.vertical ? attribute("transform", "rotate(-90 " + num(x) + " " + num(y) + ")") : "") +
      ">" + escape(s) + "</text>\n";
}

std::string Canvas::str() const {
  const std::string w = num(width_), h = num(height_);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + w + "\" height=\"" + h +
         "\" viewBox=\"0 0 " + w + " " + h +
         "\" font-family=\"Helvetica, Arial, DejaVu Sans, sans-serif\">\n" + body_ + "</svg>\n";
}

}  // namespace flashptx::svg
