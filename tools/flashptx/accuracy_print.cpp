// Lines, CSV, JSON and pictures of `flashptx accuracy`.
#include <algorithm>
#include <cstdio>
#include <map>

#include "tools/flashptx/accuracy.h"
#include "tools/flashptx/json.h"
#include "tools/flashptx/svg.h"
#include "tools/flashptx/text.h"

namespace flashptx {
namespace {

std::string label_of(const AccuracyRow& r) { return r.softmax.empty() ? r.method : r.method + "; " + r.softmax; }

// RMSE of FP8 with one scale a tensor on the CPU at this length (the first such row): what the others are measured by.
double baseline(const AccuracyReport& report, std::int64_t seqlen) {
  for (const AccuracyRow& r : report.rows)
    if (r.test == AccuracyTest::outliers && r.seqlen_k == seqlen && r.softmax.empty() && r.method.rfind("FP8", 0) == 0)
      return r.error;
  return 0;
}

}  // namespace

std::string accuracy_line(const AccuracyRow& r) {
  char text[512];
  const char* what = r.test == AccuracyTest::outliers ? "RMSE" : r.test == AccuracyTest::constant ? "off by" : "worst";
  std::snprintf(text, sizeof text, "%-8s %6lld keys  %-50s %-7s %s %.3e", to_string(r.test),
                static_cast<long long>(r.seqlen_k), r.method.c_str(), r.softmax.c_str(), what, r.error);
  std::string s = text;
  if (r.limit > 0) s += format(" (limit %.1e)", r.limit);
  if (r.claimed > 0) s += "  paper " + format("%.1e", r.claimed);
  if (r.wanted > 0) s += "  found " + std::to_string(r.found) + " of " + std::to_string(r.wanted);
  return s + (r.ok() ? "" : "  WRONG: " + r.note) + "\n";
}

std::string accuracy_csv(const AccuracyReport& report, const std::string& device) {
  std::string s = "device,test,method,softmax,kernel,seqlen_q,seqlen_k,heads,rows,error,limit,paper,found,wanted,note\n";
  for (const AccuracyRow& r : report.rows) {
    char text[256];
    std::snprintf(text, sizeof text, "%lld,%lld,%lld,%lld,%.6e,%.3e,", static_cast<long long>(r.seqlen_q),
                  static_cast<long long>(r.seqlen_k), static_cast<long long>(r.heads), static_cast<long long>(r.rows),
                  r.error, r.limit);
    s += csv_quoted(device) + "," + to_string(r.test) + "," + csv_quoted(r.method) + "," + r.softmax + "," + r.kernel + "," + text +
         (r.claimed > 0 ? format("%.1e", r.claimed) : "") + ",";
    s += (r.wanted > 0 ? std::to_string(r.found) + "," + std::to_string(r.wanted) : ",") + "," + csv_quoted(r.note) + "\n";
  }
  return s;
}

std::string accuracy_json(const AccuracyReport& report, const std::string& device) {
  Json j{{"device", device}, {"rows", Json::array()}};
  for (const AccuracyRow& r : report.rows) {
    Json row{{"test", to_string(r.test)}, {"method", r.method}, {"softmax", r.softmax},
                               {"kernel", r.kernel}, {"seqlen_q", r.seqlen_q}, {"seqlen_k", r.seqlen_k},
                               {"heads", r.heads}, {"rows", r.rows}, {"error", r.error}, {"limit", r.limit},
                               {"ok", r.ok()}, {"note", r.note}};
    if (r.claimed > 0) row["paper"] = r.claimed;
    if (r.wanted > 0) row["found"] = r.found, row["wanted"] = r.wanted;
    j["rows"].push_back(row);
  }
  return j.dump(1) + "\n";
}

std::string accuracy_rmse_svg(const AccuracyReport& report, const std::string& device) {
  svg::BarChart chart;
  chart.title = "RMSE against float64 where one element in a thousand stands out";
  chart.subtitle = "Q, K, V: N(0, 1) and N(0, 100) on 0.1 % of the elements; head dim 128, measured on " + device +
                   ". Ticks: the FlashAttention-3 paper, table 3, whose sequence length is not told. Less: than the first FP8 row.";
  chart.unit = "RMSE x 1000";
  chart.reference_name = "paper";
  chart.width = 1000;
  std::int64_t seqlen = -1;
  for (const AccuracyRow& r : report.rows) {
    if (r.test != AccuracyTest::outliers || !r.ok()) continue;
    if (r.seqlen_k != seqlen) {
      svg::Bar heading;
      heading.label = std::to_string(r.seqlen_k) + " queries and keys", heading.heading = true;
      chart.bars.push_back(heading);
      seqlen = r.seqlen_k;
    }
    svg::Bar b;
    b.label = label_of(r), b.value = 1000 * r.error, b.reference = 1000 * r.claimed;
    b.colour = r.softmax.empty() ? 5 : r.method.rfind("FP8", 0) != 0 ? 0 : r.method.find("Hadamard") != std::string::npos ? 2 : 1;
    b.text = format("%.2e", r.error);
    if (const double base = baseline(report, seqlen); base > 0 && r.method.rfind("FP8", 0) == 0 && !r.softmax.empty())
      b.text += format(", %.2f x less", base / r.error);
    chart.bars.push_back(b);
  }
  return chart.bars.empty() ? "" : svg::draw(chart);
}

std::string accuracy_constant_svg(const AccuracyReport& report, const std::string& device) {
  svg::LineChart chart;
  chart.title = "What accumulation drops: Q = 0 and a constant V";
  chart.subtitle = "Largest error of O relative to the constant, over the number of keys; head dim 128, measured on " + device + ".";
  std::map<std::string, std::size_t> series;
  double most = 0;
  for (const AccuracyRow& r : report.rows) {
    if (r.test != AccuracyTest::constant || (!r.ok() && r.error == 0)) continue;
    const auto [at, fresh] = series.try_emplace(label_of(r), chart.series.size());
    if (fresh) chart.series.push_back({label_of(r), {}, -1, r.softmax == "plain"});
    const double keys = static_cast<double>(r.seqlen_k);
    chart.series[at->second].points.push_back({keys, 100 * r.error});
    if (std::none_of(chart.x.ticks.begin(), chart.x.ticks.end(), [&](const svg::Tick& t) { return t.at == keys; }))
      chart.x.ticks.push_back({keys, std::to_string(r.seqlen_k)});
    most = std::max(most, 100 * r.error);
  }
  if (chart.series.empty()) return "";
  chart.x.label = "keys", chart.x.logarithmic = true;
  chart.x.lo = chart.x.ticks.front().at, chart.x.hi = std::max(chart.x.ticks.back().at, 2 * chart.x.lo);
  chart.y.label = "error, % of the constant", chart.y.hi = most > 0 ? 1.1 * most : 1;
  return svg::draw(chart);
}

}  // namespace flashptx
