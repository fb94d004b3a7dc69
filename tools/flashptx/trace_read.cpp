// A Trace from the CSV that `trace` wrote, so that what was measured can be drawn where there is no GPU.
// Next: trace_print.cpp, which wrote it.
#include <cstdlib>
#include <sstream>
#include <vector>

#include "tools/flashptx/trace.h"

namespace flashptx {
namespace {

TraceEvent event_named(const std::string& name) {
  for (int e = 0; e < static_cast<int>(TraceEvent::count); ++e)
    if (name == to_string(static_cast<TraceEvent>(e))) return static_cast<TraceEvent>(e);
  return TraceEvent::count;
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> out;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, ',');) out.push_back(field);
  return out;
}

// "" or what is wrong with the line.
std::string add_line(const std::vector<std::string>& f, Trace* t) {
  if (f.size() < 8 || f.size() > 11) return "wanted 8 to 11 fields";
  if (f[0] != "model" && f[0] != "marks" && f[0] != "few_marks")
    return "source is \"" + f[0] + "\", wanted model, marks or few_marks";
  const TraceEvent event = event_named(f[4]);
  if (event == TraceEvent::count) return "unknown event \"" + f[4] + "\"";
  std::size_t role = 0;
  if (f[3].rfind("warpgroup", 0) == 0) role = 1 + static_cast<std::size_t>(std::atoi(f[3].c_str() + 9));
  if (role > static_cast<std::size_t>(t->config.plan.warpgroups))
    return f[3] + ": the kernel has " + std::to_string(t->config.plan.warpgroups) + " warpgroups";
  t->modelled = f[0] == "model", t->marked = f[0] == "few_marks" ? Marks::few : Marks::all;
  t->device = f.size() > 8 ? f[8] : "a GPU";
  t->clock_mhz = f.size() > 9 ? std::strtod(f[9].c_str(), nullptr) : 0;
  if (f.size() > 10 && f[10] != t->config.name()) return "holds " + f[10] + ", not " + t->config.name();
  const int cta = std::atoi(f[1].c_str());
  if (t->ctas.empty() || t->ctas.back().cta != cta) {
    t->ctas.emplace_back();
    t->ctas.back().cta = cta, t->ctas.back().sm = std::atoi(f[2].c_str());
    t->ctas.back().roles.resize(static_cast<std::size_t>(1 + t->config.plan.warpgroups));
  }
  (f[3] == "transposer" ? t->ctas.back().transposer : t->ctas.back().roles[role]).push_back({event, static_cast<std::uint32_t>(std::strtoul(f[5].c_str(), nullptr, 10)),
                                        std::strtod(f[6].c_str(), nullptr), std::strtod(f[7].c_str(), nullptr)});
  ++t->marks;
  return "";
}

}  // namespace

std::string kernel_of_trace_csv(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  for (int n = 0; n < 2; ++n)
    if (!std::getline(lines, line)) return "";
  const std::vector<std::string> f = fields_of(line);
  return f.size() == 11 ? f[10] : "";
}

std::string read_trace_csv(const std::string& text, const KernelConfig& config, Trace* out) {
  *out = {};
  out->config = config;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    if (++number == 1 || line.empty()) continue;
    const std::string bad = add_line(fields_of(line), out);
    if (!bad.empty()) return "line " + std::to_string(number) + ": " + bad;
  }
  if (out->ctas.empty()) return "no marks";
  for (CtaTrace& c : out->ctas) {
    if (c.roles[1].empty()) return "no marks of warpgroup 0";
    find_products(config, out->marked, &c);
  }
  return "";
}

}  // namespace flashptx
