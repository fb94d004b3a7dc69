// A small SVG writer: a canvas of shapes, and three charts made of it (lines, horizontal bars, a
// timeline of lanes).
//
// Every picture stands on an opaque light card, so it reads the same on light and dark pages, and
// uses no style sheet, so every renderer draws it alike. Colours are Okabe and Ito's, told apart
// under the common colour-vision deficiencies; series differ in dash and marker as well. Next:
// units_print.cpp for use.
#pragma once

#include <string>
#include <vector>

namespace flashptx::svg {

// Colour of series i.
const char* colour(int i);
extern const char* const ink;    // text and axes
extern const char* const faint;  // grid lines
extern const char* const paper;  // the card

enum class Anchor { start, middle, end };

struct TextStyle {
  double size = 13;
  Anchor anchor = Anchor::start;
  bool bold = false;
  const char* fill = nullptr;  // ink
  bool vertical = false;       // turned by 90 degrees, reading upwards
};

class Canvas {
 public:
  Canvas(double width, double height);
  void rect(double x, double y, double w, double h, const std::string& fill,
            const std::string& stroke = "none", double radius = 0, double opacity = 1);
  void line(double x1, double y1, double x2, double y2, const std::string& stroke, double width = 1,
            const std::string& dash = "");
  void polyline(const std::vector<std::pair<double, double>>& points, const std::string& stroke,
                double width, const std::string& dash = "");
  void marker(double x, double y, int shape, const std::string& fill,
              double size = 4);  // circle, square, diamond, triangle
  void text(double x, double y, const std::string& s, const TextStyle& style = {});
  // A rectangle that shows `tip` under the pointer.
  void tip_rect(double x, double y, double w, double h, const std::string& fill,
                const std::string& tip);
  std::string str() const;
  double width() const { return width_; }
  double height() const { return height_; }

 private:
  double width_, height_;
  std::string body_;
};

// Width of a text in pixels, near enough for layout.
double text_width(const std::string& s, double size);
std::string escape(const std::string& s);
// At most `count` round numbers that span lo..hi.
std::vector<double> ticks(double lo, double hi, int count);
std::string short_number(double x);  // "4096", "0.35", "12.1"

struct Tick {
  double at;
  std::string label;
};
struct Axis {
  std::string label;  // with its unit
  double lo = 0, hi = 1;
  bool logarithmic = false;
  std::vector<Tick> ticks;  // empty: chosen
};
struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
  int colour = -1;  // -1: its place in the list
  bool dashed = false;
};
struct Mark {  // a vertical line with a word
  double at;
  std::string label;
};
struct LineChart {
  std::string title, subtitle;
  Axis x, y;
  std::vector<Series> series;
  std::vector<Mark> marks;
  double width = 860, height = 460;
};
std::string draw(const LineChart& chart);

struct Bar {
  std::string label;
  double value = 0;
  double reference = 0;  // a tick across the bar: a ceiling, a published figure; 0: none
  std::string text;      // beside the bar; empty: the value
  int colour = 0;
  double reference_to = 0;  // above `reference`: a range, drawn as a band
  bool heading = false;     // no bar: a line of text between bars
};
struct BarChart {
  std::string title, subtitle, unit, reference_name;
  std::vector<Bar> bars;
  double ceiling = 0;  // a vertical line through all bars; 0: none
  std::string ceiling_name;
  double second_ceiling = 0;
  std::string second_ceiling_name;
  double width = 860;
};
std::string draw(const BarChart& chart);

struct Span {
  int lane = 0;
  double start = 0, stop = 0;
  int colour = 0;
  std::string label;  // drawn when it fits, always under the pointer
};
struct Timeline {
  std::string title, subtitle, x_label;
  std::vector<std::string> lanes;
  std::vector<Span> spans;
  std::vector<std::pair<std::string, int>> legend;  // name, colour
  double width = 1100;
};
std::string draw(const Timeline& timeline);

}  // namespace flashptx::svg
