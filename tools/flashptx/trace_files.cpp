// See trace_files.h.
#include "tools/flashptx/trace_files.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"

namespace flashptx {
namespace {

void write_and_say(const std::string& path, const std::string& text, std::ostream& say) {
  write_file(path, text);
  say << "written        " << path << "\n";
}

std::string number(const char* form, double x) {
  char text[32];
  std::snprintf(text, sizeof text, form, x);
  return text;
}

}  // namespace

void write_trace_files(const std::string& prefix, const Trace& trace, const Trace& model, int trips,
                       std::ostream& say) {
  write_and_say(prefix + ".svg", trace_svg(trace, model, trips), say);
  write_and_say(prefix + ".json", trace_chrome_json(trace), say);
  write_and_say(prefix + ".csv", trace_csv(trace), say);
}

void append_trace_row(const std::string& path, const Trace& measured, const TraceSummary& summary,
                      const TraceSummary& model, const TraceCost& cost) {
  std::error_code ignored;
  const bool fresh = !std::filesystem::exists(path, ignored);
  std::string text;
  const int last = static_cast<int>(TraceEvent::tile_wait);
  if (fresh) {
    text = "kernel,marks,device,without_marks_ms,with_marks_ms,slow_down_percent,clock_mhz,trips,measured_cycles,"
           "modelled_cycles,model_error_percent,measured_tensor_busy,measured_overlap_own";
    for (int e = 1; e < last; ++e)
      for (const char* source : {"measured_", "modelled_"})
        text += std::string(",") + source + to_string(static_cast<TraceEvent>(e));
    text += "\n";
  }
  const double error = summary.cycles_per_trip > 0 ? 100 * (model.cycles_per_trip / summary.cycles_per_trip - 1) : 0;
  text += measured.config.name() + "," + to_string(measured.marked) + "," + measured.device + "," + number("%.5f", cost.without_marks_ms) + "," +
          number("%.5f", cost.with_marks_ms) + "," + number("%.2f", cost.slow_down_percent()) + "," +
          number("%.0f", measured.clock_mhz) + "," + std::to_string(summary.trips) + "," +
          number("%.0f", summary.cycles_per_trip) + "," + number("%.0f", model.cycles_per_trip) + "," +
          number("%.1f", error) + "," + number("%.3f", summary.tensor_busy) + "," + number("%.3f", summary.overlap_own);
  for (int e = 1; e < last; ++e)
    for (const TraceSummary* s : {&summary, &model}) text += "," + number("%.0f", s->event_cycles[e]);
  std::ofstream out(path, std::ios::binary | std::ios::app);
  if (!(out << text << "\n") || !out.flush()) leave(exit_usage, "cannot write " + path);
}

}  // namespace flashptx
