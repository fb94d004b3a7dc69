// Findings from the CSV that `units` wrote, so that charts can be drawn where there is no GPU.
// Next: units_print.cpp, which wrote it.
#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "tools/flashptx/units.h"

namespace flashptx::units {
namespace {

// Fields of a line; a quoted one keeps its commas.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> out(1);
  bool quoted = false;
  for (char c : line) {
    if (c == '"') quoted = !quoted;
    else if (c == ',' && !quoted) out.emplace_back();
    else if (c != '\r') out.back() += c;
  }
  return out;
}

double number(const std::string& text, int line) {
  char* end = nullptr;
  const double x = std::strtod(text.c_str(), &end);
  if (text.empty() || *end) throw std::runtime_error("line " + std::to_string(line) + ": \"" + text + "\" is no number");
  return x;
}

void read_result(const std::vector<std::string>& f, int line, Findings* out) {
  Result r;
  r.group = f[1], r.name = f[2], r.unit = f[3].substr(0, f[3].find('/'));
  r.is_latency = f[3] == "clocks", r.checked = f[4] == "1", r.timed = f[5] == "1";
  r.median = number(f[6], line), r.quartile_low = number(f[7], line), r.quartile_high = number(f[8], line);
  r.megahertz = number(f[9], line), r.per_second = number(f[10], line), r.expected = number(f[11], line);
  r.error = f[12];
  out->results.push_back(r);
}

void read_point(const std::vector<std::string>& f, int line, Findings* out) {
  if (out->sweeps.empty() || out->sweeps.back().type != f[1] || out->sweeps.back().work != f[2]) {
    BesideSweep sweep;
    sweep.type = f[1], sweep.work = f[2];
    out->sweeps.push_back(sweep);
  }
  BesidePoint p;
  p.exp_per_mac = number(f[3], line), p.tensor_per_clock = number(f[4], line);
  p.work_per_clock = number(f[5], line), p.clocks = number(f[6], line);
  p.tensor_alone = number(f[7], line), p.work_alone = number(f[8], line), p.overlap = number(f[9], line);
  out->sweeps.back().points.push_back(p);
}

}  // namespace

Findings read_csv(const std::string& text) {
  Findings out;
  std::istringstream lines(text);
  int number_of_line = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number_of_line;
    const std::vector<std::string> f = fields_of(line);
    if (line.empty() || f[0] == "device") continue;
    if (f.size() != 13 && f.size() != 10)
      throw std::runtime_error("line " + std::to_string(number_of_line) + ": no line of `units --csv`");
    out.device.name = f[0];
    if (f.size() == 13) read_result(f, number_of_line, &out);
    else read_point(f, number_of_line, &out);
  }
  return out;
}

}  // namespace flashptx::units
