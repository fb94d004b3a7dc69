// See ladder_print.h.
#include "tools/flashptx/ladder_print.h"

#include <cmath>
#include <cstdio>
#include <sstream>
#include <stdexcept>

#include "tools/flashptx/json.h"
#include "tools/flashptx/svg.h"
#include "tools/reference/numeric.h"

namespace flashptx {
namespace {

// Dense, H100 and H200 SXM at their boost clock.
constexpr double peak_teraflops = 989, peak_fp8_teraflops = 1978;

double peak_of(const LadderRow& r) { return r.rung.group == RungGroup::fp8 ? peak_fp8_teraflops : peak_teraflops; }

const char* to_string(RungGroup g) {
  switch (g) {
    case RungGroup::before_wgmma: return "before_wgmma";
    case RungGroup::hopper: return "hopper";
    case RungGroup::ours: return "ours";
    case RungGroup::fp8: return "fp8";
    case RungGroup::ablation: return "ablation";
  }
  return "?";
}

int colour_of(const LadderRow& r) {
  const std::string& key = r.rung.key;
  if (key == "ours" || key == "ablation_ours") return 1;
  return r.rung.group == RungGroup::before_wgmma ? 5 : r.rung.group == RungGroup::fp8 ? 3 : 0;
}

}  // namespace

std::string LadderRow::kernel() const {
  if (rung.kernel) return rung.kernel->name();
  LadderConfig c{*rung.mma_sync, shape.dtype, shape.head_dim, shape.mask};
  return c.name();
}

std::string describe(const LadderShape& s) {
  return std::string(flashptx::to_string(s.dtype)) + ", head_dim " + std::to_string(s.head_dim) + ", " +
         flashptx::to_string(s.mask) + ", batch " + std::to_string(s.batch) + ", seqlen " +
         std::to_string(s.seqlen) + ", heads " + std::to_string(s.heads);
}

std::string ladder_line(const LadderRow& r, bool timed) {
  char text[256];
  if (!r.failure.empty()) return "  " + r.rung.name + ": WRONG: " + r.failure + "\n";
  if (timed)
    std::snprintf(text, sizeof text, "  %-31s %8.3f ms %7.1f TFLOP/s %5.1f %%  spread %4.1f %%  error %.1e  published: %s\n",
                  r.rung.name.c_str(), r.milliseconds, r.teraflops, 100 * r.teraflops / peak_of(r),
                  100 * r.relative_spread, r.error, r.rung.published.c_str());
  else
    std::snprintf(text, sizeof text, "  %-31s right: error %.2e, plain attention %.2e\n", r.rung.name.c_str(),
                  r.error, r.plain_error);
  return text;
}

std::string ladder_csv(const std::vector<LadderRow>& rows) {
  std::string out =
      "rung,kernel,group,dtype,head_dim,mask,batch,seqlen,heads,milliseconds,teraflops,relative_spread,max_error,"
      "published_low,published_high\n";
  for (const LadderRow& r : rows) {
    char text[512];
    std::snprintf(text, sizeof text, "%s,%s,%s,%s,%d,%s,%d,%d,%d,%.6f,%.2f,%.5f,%.3e,%.0f,%.0f\n",
                  r.rung.key.c_str(), r.kernel().c_str(), to_string(r.rung.group),
                  flashptx::to_string(r.shape.dtype), r.shape.head_dim, flashptx::to_string(r.shape.mask),
                  r.shape.batch, r.shape.seqlen, r.shape.heads, r.milliseconds, r.teraflops, r.relative_spread,
                  r.error, r.rung.published_low, r.rung.published_high);
    out += text;
  }
  return out;
}

std::vector<LadderRow> read_ladder_csv(const std::string& text) {
  std::vector<LadderRow> rows;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    if (++number == 1 || line.empty()) continue;
    std::vector<std::string> f;
    std::istringstream in(line);
    for (std::string field; std::getline(in, field, ',');) f.push_back(field);
    const std::string where = "line " + std::to_string(number) + ": ";
    LadderRow r;
    if (f.size() != 15 || !reference::parse_data_type(f[3], &r.shape.dtype))
      throw std::runtime_error(where + "no line of `ladder --csv`");
    r.shape.head_dim = std::stoi(f[4]), r.shape.mask = f[5] == "causal" ? Mask::causal : Mask::full;
    r.shape.batch = std::stoi(f[6]), r.shape.seqlen = std::stoi(f[7]), r.shape.heads = std::stoi(f[8]);
    r.milliseconds = std::stod(f[9]), r.teraflops = std::stod(f[10]), r.relative_spread = std::stod(f[11]);
    r.error = std::stod(f[12]);
    for (const auto& list : {ladder_rungs(r.shape), fp8_rungs(r.shape), ablation_rungs()})
      for (const LadderRung& rung : list)
        if (rung.key == f[0]) r.rung = rung;
    if (r.rung.key.empty()) throw std::runtime_error(where + "unknown rung " + f[0]);
    rows.push_back(r);
  }
  if (rows.empty()) throw std::runtime_error("no rungs");
  return rows;
}

std::string ladder_json(const std::vector<LadderRow>& rows, const std::string& device) {
  Json j;
  j["device"] = device;
  j["peak_teraflops"] = peak_teraflops, j["peak_fp8_teraflops"] = peak_fp8_teraflops;
  j["rungs"] = Json::array();
  for (const LadderRow& r : rows) {
    Json row;
    row["rung"] = r.rung.key, row["name"] = r.rung.name, row["kernel"] = r.kernel();
    row["group"] = to_string(r.rung.group), row["shape"] = describe(r.shape);
    row["right"] = r.failure.empty();
    if (!r.failure.empty()) row["failure"] = r.failure;
    row["max_error"] = r.error, row["plain_max_error"] = r.plain_error;
    if (r.milliseconds > 0)
      row["milliseconds"] = r.milliseconds, row["teraflops"] = r.teraflops,
      row["relative_spread"] = r.relative_spread;
    row["published"] = r.rung.published;
    if (r.rung.published_low > 0)
      row["published_teraflops"] = {r.rung.published_low, r.rung.published_high};
    j["rungs"].push_back(row);
  }
  return j.dump(1) + "\n";
}

std::string ladder_svg(const std::vector<LadderRow>& rows, const std::string& device) {
  svg::BarChart chart;
  chart.title = "From standard attention to FlashPTX, one technique at a time";
  chart.subtitle = "Forward, " + describe(rows.front().shape) + ", FP8 rungs in e4m3; measured on " + device +
                   ". Ticks and bands: published for an H100 (head_dim 128, full, 8k; ablation: FP16).";
  chart.unit = "TFLOP/s";
  chart.reference_name = "published for an H100";
  chart.ceiling = peak_teraflops, chart.ceiling_name = "16-bit peak 989";
  for (const LadderRow& r : rows)
    if (r.rung.group == RungGroup::fp8) chart.second_ceiling = peak_fp8_teraflops, chart.second_ceiling_name = "8-bit peak 1978";
  bool ablation = false;
  for (const LadderRow& r : rows) {
    if (r.rung.group == RungGroup::ablation && !ablation) {
      ablation = true;
      svg::Bar heading;
      heading.label = "Ablation at the paper's shape: " + describe(r.shape), heading.heading = true;
      chart.bars.push_back(heading);
    }
    char text[96];
    std::snprintf(text, sizeof text, "%.0f", r.teraflops);
    svg::Bar b{r.rung.name, r.teraflops, r.rung.published_low, text, colour_of(r)};
    b.reference_to = r.rung.published_high;
    if (r.rung.published_low > 0) b.text += "  (" + r.rung.published + ")";
    chart.bars.push_back(b);
  }
  chart.width = 980;
  return svg::draw(chart);
}

}  // namespace flashptx
