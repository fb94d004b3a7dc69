// From the log to host/select_table.inc: winners, ranges, text. Next: host/select.h reads the rows.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <tuple>

#include "tools/flashptx/runner.h"
#include "tools/flashptx/tune.h"

namespace flashptx::tune {
namespace {

bool of_cell(const Timing& t, const Cell& c) {
  return t.dtype == to_string(c.problem.dtype) && t.mask == to_string(c.problem.mask) &&
         t.v_transposed == c.problem.v_transposed &&
         t.head_dim == c.problem.head_dim && t.seqlen == c.seqlen && has_direct_p(t.kernel) == c.fast;
}

bool same_software(const Timing& a, const Timing& b) {
  return a.device == b.device && a.driver == b.driver && a.assembler == b.assembler &&
         a.anchor == b.anchor;
}

// Agreed with float64 here, and ended no process since.
bool verified(const std::vector<Timing>& log, const Timing& row) {
  bool ok = false;
  for (const Timing& t : log)
    if (t.text_hash == row.text_hash && t.device == row.device && t.note.rfind("dropped: ", 0) == 0)
      return false;
  for (const Timing& t : log)
    if (t.stage == "verify" && t.text_hash == row.text_hash && t.seqlen == row.seqlen &&
        t.device == row.device && t.driver == row.driver && t.assembler == row.assembler)
      ok = t.note == "ok";
  return ok;
}

// Last rounds of the cell under the software of its newest line; a later line of a kernel replaces
// an earlier.
std::vector<Timing> last_rounds(const std::vector<Timing>& log, const Cell& cell) {
  std::vector<Timing> out;
  const Timing* newest = nullptr;
  for (const Timing& t : log)
    if (t.stage == "final" && t.ratio > 0 && t.note.empty() && of_cell(t, cell)) newest = &t;
  for (const Timing& t : log) {
    if (newest == nullptr || t.stage != "final" || t.ratio <= 0 || !t.note.empty() ||
        !of_cell(t, cell) || !same_software(t, *newest))
      continue;
    std::erase_if(out, [&](const Timing& o) { return o.kernel == t.kernel; });
    out.push_back(t);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Timing& a, const Timing& b) { return a.ratio < b.ratio; });
  return out;
}

// A kernel as the host would run it: with its tiles cut where that was timed, which was where the host cuts.
struct Contender {
  std::string kernel;  // as a row names it
  const Timing *whole = nullptr, *cut = nullptr;
  const Timing& counts() const { return cut != nullptr ? *cut : *whole; }
};
std::vector<Contender> contenders_of(const std::vector<Timing>& rounds) {
  std::vector<Contender> out;
  for (const Timing& t : rounds) {
    const std::string kernel = whole_kernel(t.kernel);
    auto at = std::find_if(out.begin(), out.end(), [&](const Contender& c) { return c.kernel == kernel; });
    if (at == out.end()) at = out.insert(out.end(), {kernel});
    (kernel == t.kernel ? at->whole : at->cut) = &t;
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Contender& a, const Contender& b) { return a.counts().ratio < b.counts().ratio; });
  return out;
}

auto class_key(const TableRow& r) { return std::tuple(r.dtype, r.head_dim_max, r.mask, r.v_transposed); }
bool of_class(const TableRow& r, const ProblemClass& c) {
  return r.dtype == c.dtype && r.mask == c.mask && r.v_transposed == c.v_transposed &&
         r.head_dim_max == std::max(c.head_dim, c.head_dim_v);
}

// Of measured neighbours the nearer by ratio: the boundary is their geometric mean.
std::int64_t between(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(std::sqrt(static_cast<double>(a) * static_cast<double>(b)));
}

void draw_seqlen_ranges(std::vector<TableRow>* rows) {
  for (std::size_t i = 0; i < rows->size(); ++i) {
    TableRow& r = (*rows)[i];
    if (r.measured_seqlen == 0) continue;
    const bool first = i == 0 || class_key((*rows)[i - 1]) != class_key(r);
    const bool last = i + 1 == rows->size() || class_key((*rows)[i + 1]) != class_key(r);
    r.seqlen_min = first ? 1 : (*rows)[i - 1].seqlen_max + 1;
    r.seqlen_max = last ? INT64_MAX : between(r.measured_seqlen, (*rows)[i + 1].measured_seqlen);
  }
}

// A row reaches down to the next smaller dimension that has rows, but not past its bucket.
void draw_head_dim_ranges(std::vector<TableRow>* rows) {
  for (TableRow& r : *rows) {
    int below = 0;
    for (int edge : {64, 128, 192})
      if (edge < r.head_dim_max) below = edge;
    for (const TableRow& other : *rows)
      if (other.dtype == r.dtype && other.mask == r.mask && other.v_transposed == r.v_transposed &&
          other.head_dim_max < r.head_dim_max)
        below = std::max(below, other.head_dim_max);
    r.head_dim_min = below + 1;
  }
}

std::string number(std::int64_t v) { return v == INT64_MAX ? "INT64_MAX" : std::to_string(v); }
std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (char c : s)
    if (c != '"' && c != '\\' && c != '\n') out += c;
  return out + "\"";
}

}  // namespace

Winner winner_of(const std::vector<Timing>& log, const Cell& cell, const std::string& today,
                 double min_gain) {
  Winner w;
  w.cell = cell, w.today = today;
  const std::vector<Timing> rounds = last_rounds(log, cell);
  const std::vector<Contender> all = contenders_of(rounds);
  const Contender *best = nullptr, *second = nullptr, *stays = nullptr;
  for (const Contender& c : all) {
    if (c.kernel == today) stays = &c;
    if (best == nullptr && verified(log, c.counts())) best = &c;
  }
  if (all.empty()) w.problem = "not timed to the last stage";
  else if (best == nullptr) w.problem = "no kernel of the last stage agreed with float64";
  if (!w.problem.empty()) return w;
  if (stays != nullptr && verified(log, stays->counts()) &&
      best->counts().ratio > stays->counts().ratio * (1 - min_gain))
    best = stays;
  for (const Contender& c : all)
    if (second == nullptr && &c != best) second = &c;
  const Timing& t = best->counts();
  w.kernel = best->kernel, w.tflops = t.tflops;
  if (best->whole != nullptr) w.whole_tflops = best->whole->tflops;
  if (best->cut != nullptr) w.cut_tflops = best->cut->tflops;
  if (second != nullptr) w.runner_up = second->kernel, w.runner_up_tflops = second->counts().tflops;
  if (stays != nullptr) w.today_tflops = stays->counts().tflops;
  w.source = t.device + ", driver " + t.driver + (t.assembler == "driver" ? "" : ", ptxas " + t.assembler) + ", " +
             t.date.substr(0, 10) + (best->cut != nullptr ? ", tiles of the last wave cut" : "");
  return w;
}

std::vector<TableRow> rows_of_today() {
  std::vector<TableRow> out;
  for (const MeasuredRow& m : measured_rows())
    out.push_back({m.dtype, m.mask, m.head_dim_min, m.head_dim_max, m.seqlen_q_min, m.seqlen_q_max,
                   m.kernel, m.runner_up, m.source, m.measured_seqlen, m.tflops,
                   m.runner_up_tflops, m.v_transposed()});
  return out;
}

std::vector<TableRow> rows_of_rules() {
  std::vector<TableRow> out;
  for (DataType dtype : {DataType::f16, DataType::bf16})
    for (const SelectRow& r : select_table())
      for (Mask mask : {Mask::full, Mask::causal}) {
        if ((r.dtypes >> static_cast<int>(dtype) & 1) == 0 ||
            (r.masks >> static_cast<int>(mask) & 1) == 0)
          continue;
        const ProblemClass c{dtype, r.head_dim_max, r.head_dim_max, mask};
        TableRow t;
        t.dtype = dtype, t.mask = mask, t.head_dim_max = r.head_dim_max;
        t.seqlen_max = r.seqlen_q_max;
        t.kernel = KernelConfig{c, standard_plan(c, r.short_rows)}.name(), t.source = r.reason;
        if (!out.empty() && class_key(out.back()) == class_key(t))
          t.seqlen_min = out.back().seqlen_max + 1;
        out.push_back(t);
      }
  return merge(out, {});
}

std::vector<TableRow> merge(std::vector<TableRow> rows, const std::vector<Winner>& winners) {
  for (const Winner& w : winners) {
    if (w.kernel.empty() || w.cell.fast) continue;
    std::erase_if(rows, [&](const TableRow& r) {
      return of_class(r, w.cell.problem) &&
             (r.measured_seqlen == 0 || r.measured_seqlen == w.cell.seqlen);
    });
    TableRow t;
    t.dtype = w.cell.problem.dtype, t.mask = w.cell.problem.mask;
    t.v_transposed = w.cell.problem.v_transposed;
    t.head_dim_max = std::max(w.cell.problem.head_dim, w.cell.problem.head_dim_v);
    t.kernel = w.kernel, t.runner_up = w.runner_up, t.source = w.source;
    t.measured_seqlen = w.cell.seqlen, t.tflops = w.tflops, t.runner_up_tflops = w.runner_up_tflops;
    rows.push_back(t);
  }
  // A plain rule would hide what was measured of the sibling type (host/select.h).
  std::erase_if(rows, [measured = rows](const TableRow& r) {
    return r.measured_seqlen == 0 && std::any_of(measured.begin(), measured.end(), [&](const TableRow& other) {
      return other.measured_seqlen != 0 && other.dtype == sibling(r.dtype) && other.mask == r.mask &&
             other.head_dim_max == r.head_dim_max;
    });
  });
  std::stable_sort(rows.begin(), rows.end(), [](const TableRow& a, const TableRow& b) {
    if (class_key(a) != class_key(b)) return class_key(a) < class_key(b);
    return a.measured_seqlen != b.measured_seqlen ? a.measured_seqlen < b.measured_seqlen
                                                  : a.seqlen_min < b.seqlen_min;
  });
  draw_seqlen_ranges(&rows);
  draw_head_dim_ranges(&rows);
  return rows;
}

std::string table_text(const std::vector<TableRow>& rows) {
  std::string out =
      "// Written by `flashptx tune`; host/select.h states how rows are read. Fields: type, mask, "
      "head dimensions,\n"
      "// query counts, kernel, measured at so many queries and keys, its TFLOP/s, runner-up, its "
      "TFLOP/s, source.\n"
      "// 0 TFLOP/s: a row that was not measured; its source is the reason. A source without a ptxas: not of `tune`,\n"
      "// but of tools/compare or `flashptx bench` since (tools/bench/results).\n";
  for (const TableRow& r : rows) {
    char figures[2][32];
    std::snprintf(figures[0], sizeof figures[0], "%.1f", r.tflops);
    std::snprintf(figures[1], sizeof figures[1], "%.1f", r.runner_up_tflops);
    out += std::string("{DataType::") + to_string(r.dtype) + ", Mask::" + to_string(r.mask) + ", " +
           std::to_string(r.head_dim_min) + ", " + std::to_string(r.head_dim_max) + ", " +
           number(r.seqlen_min) + ", " + number(r.seqlen_max) + ",\n " + quoted(r.kernel) + ", " +
           number(r.measured_seqlen) + ", " + figures[0] + ",\n " + quoted(r.runner_up) + ", " +
           figures[1] + ",\n " + quoted(r.source) + "},\n";
  }
  return out;
}

}  // namespace flashptx::tune
