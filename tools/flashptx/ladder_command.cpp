// `flashptx ladder`: the earlier rungs, checked on a small problem and timed on the one asked for,
// beside what was published. Next: ladder_run.h.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>

#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/ladder_run.h"
#include "tools/flashptx/session.h"
#include "tools/flashptx/statistics.h"
#include "tools/flashptx/svg.h"
#include "tools/reference/error.h"
#include "tools/reference/numeric.h"

namespace flashptx {
namespace {

struct LadderOptions {
  std::string device = "auto", dtype = "bf16", csv, svg;
  int seqlen = 16384, tokens = 16384, hidden = 2048, head_dim = 128, repeats = 20;
  bool causal = false;
};

struct Row {
  std::string name, published;
  Rung rung;
  double teraflops = 0, milliseconds = 0, relative_spread = 0, error = 0, plain_error = 0;
  std::string failure;
};

std::vector<Row> rungs() {
  return {{"standard attention, 3 kernels", "-", Rung::unfused_scores, 0, 0, 0, 0, 0, ""},
          {"FlashAttention-1", "about 25 % of peak", Rung::fa1, 0, 0, 0, 0, 0, ""},
          {"FlashAttention-2", "350 TFLOP/s, about 35 % of peak", Rung::fa2, 0, 0, 0, 0, 0, ""}};
}

reference::Problem shape_of(const LadderOptions& o, int batch, int seqlen, int heads) {
  reference::Problem p;
  if (!reference::parse_data_type(o.dtype, &p.dtype) ||
      (p.dtype != DataType::bf16 && p.dtype != DataType::f16))
    leave(exit_usage, "--dtype: bf16 or f16");
  if (o.head_dim != 64 && o.head_dim != 128) leave(exit_usage, "--head-dim: 64 or 128");
  p.batch = batch, p.heads_q = p.heads_kv = heads, p.seqlen_q = p.seqlen_k = seqlen;
  p.head_dim = p.head_dim_v = o.head_dim;
  p.mask = o.causal ? Mask::causal : Mask::full;
  p.scale = 1.0f / std::sqrt(static_cast<float>(o.head_dim));
  return p;
}

// On a problem that the host can follow in float64.
void check(Device& device, const LadderOptions& o, Row* row) {
  const reference::Tensors t = reference::make_tensors(
      shape_of(o, 1, 200, 2), reference::Layout::bshd, reference::Inputs::random, 5);
  LadderResult r;
  if (const Status s = run_rung(device, row->rung, t, 0, &r); !s.ok()) {
    row->failure = s.message;
    return;
  }
  const reference::Error e =
      compare(t.problem, attention_float64(t.problem), attention_plain(t.problem), r.o, r.lse);
  row->error = e.max;
  row->plain_error = e.plain_max;
  // Standard attention rounds S to 16 bits, which the rule does not foresee: four times the
  // allowance.
  if (row->rung != Rung::unfused_scores) row->failure = e.first_failure;
  else if (!(e.max <= 4 * e.allowed_max)) row->failure = "off by " + std::to_string(e.max);
}

void measure(Device& device, const LadderOptions& o, Row* row) {
  const int heads = o.hidden / o.head_dim, batch = std::max(1, o.tokens / o.seqlen);
  const reference::Problem shape = shape_of(o, batch, o.seqlen, heads);
  const reference::Tensors t =
      reference::make_tensors(shape, reference::Layout::bshd, reference::Inputs::random, 6);
  LadderResult r;
  if (const Status s = run_rung(device, row->rung, t, o.repeats, &r); !s.ok()) {
    row->failure = s.message;
    return;
  }
  if (const std::string why = refuse_samples(r.milliseconds); !why.empty()) {
    row->failure = why;
    return;
  }
  const Quartiles q = quartiles(r.milliseconds);
  const double flop = 4.0 * batch * heads * static_cast<double>(o.seqlen) * o.seqlen * o.head_dim *
                      (o.causal ? 0.5 : 1);
  row->milliseconds = q.median;
  row->relative_spread = q.relative_spread();
  row->teraflops = flop / q.median * 1e-9;
}

void print(const Row& r, bool timed) {
  if (!r.failure.empty()) std::printf("  %-32s WRONG: %s\n", r.name.c_str(), r.failure.c_str());
  else if (!timed)
    std::printf("  %-32s right: error %.2e, plain 16-bit attention %.2e\n", r.name.c_str(), r.error,
                r.plain_error);
  else
    std::printf("  %-32s %8.3f ms  %7.1f TFLOP/s  spread %4.1f %%   error %.1e   published: %s\n",
                r.name.c_str(), r.milliseconds, r.teraflops, 100 * r.relative_spread, r.error,
                r.published.c_str());
}

void write(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  if (!(out << text)) leave(exit_usage, "cannot write " + path);
}

void run_ladder(const LadderOptions& o) {
  DeviceRequest request;
  std::unique_ptr<Device> device;
  std::string note;
  if (!parse_device_choice(o.device, &request.choice))
    leave(exit_usage, "--device: auto, cuda or emulator");
  if (const Status s = open_device(request, &device, &note); !s.ok())
    leave(exit_no_device, s.message);
  if (!note.empty()) std::cerr << note << "\n";
  const bool timed = !device->info().is_emulator;
  std::printf("%s\n%s, head_dim %d, %s, seqlen %d, %d tokens, hidden size %d%s\n",
              describe(device->info()).c_str(), o.dtype.c_str(), o.head_dim,
              o.causal ? "causal" : "full", o.seqlen, o.tokens, o.hidden,
              timed ? "" : " (not timed: timing needs a GPU)");
  std::vector<Row> rows = rungs();
  bool right = true;
  svg::BarChart chart;
  chart.title = "The ladder before wgmma";
  chart.subtitle = describe(device->info());
  chart.unit = "TFLOP/s";
  std::string csv = "rung,milliseconds,teraflops,relative_spread,max_error\n";
  for (Row& r : rows) {
    check(*device, o, &r);
    if (timed && r.failure.empty()) measure(*device, o, &r);
    print(r, timed);
    right = right && r.failure.empty();
    chart.bars.push_back({r.name, r.teraflops, 0, "", static_cast<int>(chart.bars.size())});
    csv += r.name + "," + std::to_string(r.milliseconds) + "," + std::to_string(r.teraflops) + "," +
           std::to_string(r.relative_spread) + "," + std::to_string(r.error) + "\n";
  }
  if (!o.csv.empty()) write(o.csv, csv);
  if (!o.svg.empty() && timed) write(o.svg, svg::draw(chart));
  if (!right) leave(exit_mismatch, "a rung did not give the right result");
}

}  // namespace

void add_ladder(Command& app) {
  auto o = std::make_shared<LadderOptions>();
  Command* c = app.add_subcommand(
      "ladder", "Standard attention, FlashAttention-1 and -2 on this card, checked and timed");
  c->add_option("--device", o->device, "auto, cuda or emulator")->capture_default_str();
  c->add_option("--dtype", o->dtype, "bf16 or f16")->capture_default_str();
  c->add_option("--head-dim", o->head_dim, "64 or 128")->capture_default_str();
  c->add_option("--seqlen", o->seqlen, "Queries and keys")
      ->capture_default_str()
      ->check(range(1, 1 << 20));
  c->add_option("--tokens", o->tokens, "batch = tokens / seqlen")
      ->capture_default_str()
      ->check(range(1, 1 << 24));
  c->add_option("--hidden", o->hidden, "heads = hidden / head-dim")
      ->capture_default_str()
      ->check(range(128, 1 << 16));
  c->add_option("--repeats", o->repeats, "Timed launches")
      ->capture_default_str()
      ->check(range(3, 1000));
  c->add_option("--csv", o->csv, "Write CSV to this file");
  c->add_option("--svg", o->svg, "Write a bar chart to this file (with a GPU)");
  c->add_flag("--causal", o->causal, "Causal mask");
  c->callback([o] { run_ladder(*o); });
}

}  // namespace flashptx
