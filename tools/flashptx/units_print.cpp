// The findings as a table, against the published claims, as CSV, JSON in nvbench's shape, and
// charts. Next: units_command.cpp.
#include <algorithm>
#include <cmath>

#include "tools/flashptx/json.h"
#include "tools/flashptx/svg.h"
#include "tools/flashptx/text.h"
#include "tools/flashptx/units.h"

namespace flashptx::units {

namespace {

const Result* find(const Findings& f, const std::string& name) {
  for (const Result& r : f.results)
    if (r.name == name && r.timed) return &r;
  return nullptr;
}

const BesideSweep* find_sweep(const Findings& f, const std::string& type, const std::string& work) {
  for (const BesideSweep& s : f.sweeps)
    if (s.type == type && s.work == work && !s.points.empty()) return &s;
  return nullptr;
}

// "4096 FLOP" -> "0.93 TFLOP/s", "128 bytes" -> "29.1 TB/s"
std::string per_second_text(const Result& r) {
  if (r.is_latency) return format("%.0f ns", r.megahertz > 0 ? r.median / r.megahertz * 1e3 : 0);
  if (r.unit == "FLOP") return format("%.0f TFLOP/s", r.per_second / 1e12);
  if (r.unit == "bytes") return format("%.2f TB/s", r.per_second / 1e12);
  return format("%.2f T/s", r.per_second / 1e12);
}

std::string row_text(const Result& r) {
  if (!r.error.empty()) return format("  %-26s WRONG: %s\n", r.name.c_str(), r.error.c_str());
  if (!r.timed) return format("  %-26s result checked\n", r.name.c_str());
  return format("  %-26s %9s %s  %8s  %10s  %15s  %5.0f MHz  %4.1f %%  %s\n", r.name.c_str(),
                svg::short_number(r.median).c_str(),
                r.is_latency ? "clk       " : format("%-8s/c", r.unit.substr(0, 8).c_str()).c_str(),
                r.expected > 0 ? svg::short_number(r.expected).c_str() : "-",
                format("+-%.2f %%", 50 * (r.quartile_high - r.quartile_low) / r.median).c_str(),
                per_second_text(r).c_str(), r.megahertz,
                r.expected > 0 ? 100 * r.median / r.expected : 0.0, r.what.c_str());
}

std::string sweep_text(const BesideSweep& s) {
  std::string out = format("\nbeside wgmma m64n128 %s: %s\n", s.type.c_str(), s.work.c_str());
  if (!s.error.empty()) return out + "  WRONG: " + s.error + "\n";
  if (s.points.empty()) return out + "  result checked\n";
  out +=
      "  elements/MAC   head_dim   tensor FLOP/clk   elements/clk   total/tensor alone   overlap\n";
  for (const BesidePoint& p : s.points)
    out += format("  1/%-10.0f   %-8.0f   %15.0f   %12.2f   %18.3f   %6.0f %%\n", 1 / p.exp_per_mac,
                  0.5 / p.exp_per_mac, p.tensor_per_clock, p.work_per_clock,
                  p.clocks / p.tensor_alone, 100 * p.overlap);
  if (s.knee > 0)
    out += format(
        "  the work binds from 1/%.0f exponentials a multiply-add, that is below head_dim %.0f\n",
        1 / s.knee, 0.5 / s.knee);
  return out;
}

double rate_at(const BesideSweep& s, double head_dim, double BesidePoint::*field) {
  const BesidePoint* best = &s.points[0];
  for (const BesidePoint& p : s.points)
    if (std::fabs(std::log(p.exp_per_mac * 2 * head_dim)) <
        std::fabs(std::log(best->exp_per_mac * 2 * head_dim)))
      best = &p;
  return best->*field;
}

// Share of the bars' own group in its ceiling, for the chart.
double share(const Result& r) { return r.expected > 0 ? 100 * r.median / r.expected : 0; }

Json summary(const std::string& tag, const std::string& name, double value) {
  return {{"tag", tag},
          {"name", name},
          {"data", {{{"name", "value"}, {"type", "float64"}, {"value", format("%.17g", value)}}}}};
}

Json state_json(const Result& r) {
  Json s = {{"name", "Device=0 unit=" + r.name},
                      {"device", 0},
                      {"type_config_index", 0},
                      {"min_samples", 1},
                      {"axis_values", {{{"name", "unit"}, {"type", "string"}, {"value", r.name}}}},
                      {"is_skipped", !r.timed}};
  s["summaries"] = Json::array();
  if (!r.timed) {
    s["skip_reason"] = r.error.empty() ? "timing needs a GPU; the result was checked" : r.error;
    return s;
  }
  s["summaries"].push_back(summary("flashptx/rate/median",
                                   r.is_latency ? "clocks" : r.unit + " a clock and SM", r.median));
  s["summaries"].push_back(summary("flashptx/rate/q1", "lower quartile", r.quartile_low));
  s["summaries"].push_back(summary("flashptx/rate/q3", "upper quartile", r.quartile_high));
  s["summaries"].push_back(summary("flashptx/clock/mhz", "MHz", r.megahertz));
  s["summaries"].push_back(summary("flashptx/rate/per_second", r.unit + " a second", r.per_second));
  s["summaries"].push_back(summary("nv/cold/sample_size", "samples", r.samples));
  return s;
}

Json point_json(const BesideSweep& s, const BesidePoint& p) {
  Json j = {{"name", format("Device=0 type=%s work=%s exp_per_mac=%.6g", s.type.c_str(),
                                      s.work.c_str(), p.exp_per_mac)},
                      {"device", 0},
                      {"type_config_index", 0},
                      {"min_samples", 1},
                      {"is_skipped", false},
                      {"axis_values",
                       {{{"name", "type"}, {"type", "string"}, {"value", s.type}},
                        {{"name", "work"}, {"type", "string"}, {"value", s.work}},
                        {{"name", "exp_per_mac"},
                         {"type", "float64"},
                         {"value", format("%.17g", p.exp_per_mac)}}}}};
  j["summaries"] = {
      summary("flashptx/beside/tensor", "tensor FLOP a clock and SM", p.tensor_per_clock),
      summary("flashptx/beside/work", "elements a clock and SM", p.work_per_clock),
      summary("flashptx/beside/clocks", "clocks", p.clocks),
      summary("flashptx/beside/tensor_alone", "clocks of the tensor work alone", p.tensor_alone),
      summary("flashptx/beside/work_alone", "clocks of the other work alone", p.work_alone),
      summary("flashptx/beside/overlap", "share of the shorter that was hidden", p.overlap)};
  return j;
}

Json axis(const char* name, const char* type, const std::vector<std::string>& values) {
  Json v = Json::array();
  for (const std::string& s : values)
    v.push_back({{"input_string", s}, {"description", ""}, {"is_active", true}, {"value", s}});
  return {{"name", name}, {"type", type}, {"flags", ""}, {"values", v}};
}

}  // namespace

std::string table_text(const Findings& f) {
  std::string s =
      format("%s, %d SMs%s\n", f.device.name.c_str(), f.device.multiprocessors,
             f.device.driver_text.empty() ? "" : (", driver " + f.device.driver_text).c_str());
  if (f.device.is_emulator)
    s += "Timing needs a GPU: here the kernels' results are checked and nothing is measured.\n";
  else
    s += "Rates a clock and SM from clock64; MHz is clock64 over globaltimer; spread is half the "
         "interquartile range.\n";
  std::string group;
  for (const Result& r : f.results) {
    if (r.group != group) {
      s += "\n" + (group = r.group) + "\n";
      if (r.timed)
        s += "  unit                            seen             expected      spread       all "
             "SMs          clock     share\n";
    }
    s += row_text(r);
  }
  for (const BesideSweep& b : f.sweeps) s += sweep_text(b);
  return s;
}

std::string claims_text(const Findings& f) {
  const Result *f16 = find(f, "wgmma_f16_ss_n128_wg1"), *fp8 = find(f, "wgmma_e4m3_ss_n128_wg1"),
               *ex2 = find(f, "ex2_f32"), *mma = find(f, "mma_sync_f16_warps16");
  if (!f16 || !fp8 || !ex2) return "";
  const double sms = f.device.multiprocessors,
               boost = 1830e6;  // the clock behind the published peaks
  std::string s =
      "\nPublished claims beside what was seen (at the published 1830 MHz; then at the clock of "
      "this run)\n";
  s += format("  FP16 tensor peak            989 TFLOP/s   %.0f; %.0f at %.0f MHz\n",
              f16->median * sms * boost / 1e12, f16->per_second / 1e12, f16->megahertz);
  s += format("  FP8 tensor peak            1978 TFLOP/s   %.0f; %.0f at %.0f MHz\n",
              fp8->median * sms * boost / 1e12, fp8->per_second / 1e12, fp8->megahertz);
  s += format("  special functions           3.9 TFLOP/s   %.2f; %.2f at %.0f MHz\n",
              ex2->median * sms * boost / 1e12, ex2->per_second / 1e12, ex2->megahertz);
  s += format("  FP16 matmul over exp           256 x      %.0f x\n", f16->median / ex2->median);
  s += format(
      "  exp at d=128, of matmul time    50 %%      %.0f %% (512 FLOP an exp: %.1f clocks of "
      "tensor core for 16 exps, %.1f of MUFU)\n",
      100 * (1 / ex2->median) / (512 / f16->median), 16 * 512 / f16->median, 16 / ex2->median);
  if (mma)
    s += format("  mma.sync of wgmma             2/3         %.2f\n", mma->median / f16->median);
  for (const char* type : {"f16", "e4m3"})
    for (const char* work : {"ex2", "softmax_max"}) {
      const BesideSweep* b = find_sweep(f, type, work);
      if (!b) continue;
      s += format("  %s beside %s: ", work, type);
      for (double d : {64.0, 128.0, 256.0})
        s += format("d=%.0f %.0f %% of the tensor rate%s", d,
                    100 * b->points[0].tensor_alone / rate_at(*b, d, &BesidePoint::clocks),
                    d < 256 ? ", " : "\n");
    }
  return s;
}

std::string csv_text(const Findings& f) {
  std::string s =
      "device,group,name,unit,checked,timed,median,q1,q3,mhz,per_second,expected,error\n";
  for (const Result& r : f.results)
    s += format("\"%s\",%s,%s,%s,%d,%d,%.9g,%.9g,%.9g,%.6g,%.9g,%.9g,\"%s\"\n",
                f.device.name.c_str(), r.group.c_str(), r.name.c_str(),
                r.is_latency ? "clocks" : (r.unit + "/clock/SM").c_str(), r.checked, r.timed,
                r.median, r.quartile_low, r.quartile_high, r.megahertz, r.per_second, r.expected,
                r.error.c_str());
  if (f.sweeps.empty()) return s;
  s += "\ndevice,type,work,exp_per_mac,tensor_flop_per_clock,elements_per_clock,clocks,tensor_"
       "alone,work_alone,overlap\n";
  for (const BesideSweep& b : f.sweeps)
    for (const BesidePoint& p : b.points)
      s += format("\"%s\",%s,%s,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.6g\n", f.device.name.c_str(),
                  b.type.c_str(), b.work.c_str(), p.exp_per_mac, p.tensor_per_clock,
                  p.work_per_clock, p.clocks, p.tensor_alone, p.work_alone, p.overlap);
  return s;
}

// nvbench's file: meta, devices, benchmarks[axes, states[axis_values, summaries[tag, data]]].
std::string json_text(const Findings& f) {
  Json states = Json::array(), points = Json::array();
  std::vector<std::string> names, types, works;
  for (const Result& r : f.results) {
    names.push_back(r.name);
    states.push_back(state_json(r));
  }
  for (const BesideSweep& b : f.sweeps) {
    if (std::find(types.begin(), types.end(), b.type) == types.end()) types.push_back(b.type);
    if (std::find(works.begin(), works.end(), b.work) == works.end()) works.push_back(b.work);
    for (const BesidePoint& p : b.points) points.push_back(point_json(b, p));
  }
  Json j;
  j["meta"] = {
      {"argv", {"flashptx", "units"}},
      {"version", {{"json", {{"major", 1}, {"minor", 21}, {"patch", 0}, {"string", "1.21.0"}}}}}};
  j["devices"] = {{{"id", 0},
                   {"name", f.device.name},
                   {"sm_version", f.device.compute_capability * 10},
                   {"number_of_sms", f.device.multiprocessors},
                   {"global_memory_size", f.device.memory_bytes},
                   {"l2_cache_size", f.device.l2_bytes}}};
  j["benchmarks"] = {{{"name", "units"},
                      {"index", 0},
                      {"devices", {0}},
                      {"axes", {axis("unit", "string", names)}},
                      {"states", states}},
                     {{"name", "beside_wgmma"},
                      {"index", 1},
                      {"devices", {0}},
                      {"axes", {axis("type", "string", types), axis("work", "string", works)}},
                      {"states", points}}};
  return j.dump(1) + "\n";
}

std::string rates_svg(const Findings& f) {
  svg::BarChart c;
  c.title = "What each unit of an SM delivers";
  c.subtitle = f.device.name + ": share of the ceiling; beside each bar the rate a clock and SM";
  c.unit = "percent of the ceiling";
  c.reference_name = "100 %: the ceiling";
  static const char* const groups[] = {"tensor", "special", "arithmetic",     "convert",
                                       "shared", "tma",     "synchronisation"};
  for (const Result& r : f.results) {
    if (!r.timed || r.expected <= 0) continue;
    const auto group =
        std::find(std::begin(groups), std::end(groups), r.group) - std::begin(groups);
    c.bars.push_back({r.name, share(r), 100, svg::short_number(r.median) + " " + r.unit,
                      static_cast<int>(group)});
  }
  return svg::draw(c);
}

std::string beside_svg(const Findings& f) {
  svg::LineChart c;
  c.title = "What the tensor cores keep while exponentials run beside them";
  c.subtitle = f.device.name +
               ": one warpgroup streams wgmma m64n128, two others compute; share of the tensor "
               "rate that remains when both shares of "
               "work have to be done";
  c.x = {
      "elements of S (one exponential each) for each multiply-add; attention has 1 / (2 head_dim)", 1.0 / 2048, 1.0 / 32, true, {}};
  for (int per : {2048, 1024, 512, 256, 128, 64, 32})
    c.x.ticks.push_back({1.0 / per, "1/" + std::to_string(per)});
  for (const BesideSweep& b : f.sweeps) {
    if (b.points.empty() || b.work == "ldmatrix") continue;
    svg::Series s;
    s.name = b.type + ", " +
             (b.work == "ex2"       ? "exp alone"
              : b.work == "softmax" ? "softmax without max"
                                    : "softmax with max");
    s.dashed = b.type != "f16";
    for (const BesidePoint& p : b.points)
      s.points.push_back({p.exp_per_mac, 100 * p.tensor_alone / p.clocks});
    c.series.push_back(s);
  }
  c.y = {"percent of the tensor rate alone", 0, 105, false, {}};
  for (int percent = 0; percent <= 100; percent += 20)
    c.y.ticks.push_back({static_cast<double>(percent), std::to_string(percent)});
  c.marks = {{1.0 / 512, "head_dim 256"}, {1.0 / 256, "head_dim 128"}, {1.0 / 128, "head_dim 64"}};
  return svg::draw(c);
}

}  // namespace flashptx::units
