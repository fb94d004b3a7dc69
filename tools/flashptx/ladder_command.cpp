// `flashptx ladder`: every rung from standard attention to this repository's kernel, checked on a small problem and
// timed on the one asked for, beside what was published. Next: ladder_rungs.cpp for the list.
#include <algorithm>
#include <iostream>
#include <memory>

#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/ladder_print.h"
#include "tools/flashptx/ladder_run.h"
#include "tools/flashptx/problem_options.h"
#include "tools/flashptx/runner.h"
#include "tools/flashptx/session.h"
#include "tools/flashptx/statistics.h"
#include "tools/flashptx/trace_files.h"
#include "tools/flashptx/trace_run.h"
#include "tools/reference/error.h"
#include "tools/reference/numeric.h"

namespace flashptx {
namespace {

struct LadderOptions {
  std::string device = "auto", dtype = "bf16", csv, json, svg, timelines, from, card = "a GPU";
  std::vector<std::string> only;
  int seqlen = 16384, tokens = 16384, hidden = 2048, head_dim = 128, repeats = 21;
  bool causal = false, ablation = false;
};

LadderShape shape_of(const LadderOptions& o) {
  LadderShape s;
  if (!reference::parse_data_type(o.dtype, &s.dtype) || (s.dtype != DataType::bf16 && s.dtype != DataType::f16))
    leave(exit_usage, "--dtype: bf16 or f16");
  if (o.head_dim != 64 && o.head_dim != 128) leave(exit_usage, "--head-dim: 64 or 128");
  if (o.tokens % o.seqlen != 0)
    leave(exit_usage, "--tokens " + std::to_string(o.tokens) + " is not a multiple of --seqlen " + std::to_string(o.seqlen));
  if (o.hidden % o.head_dim != 0)
    leave(exit_usage, "--hidden " + std::to_string(o.hidden) + " is not a multiple of --head-dim " + std::to_string(o.head_dim));
  s.head_dim = o.head_dim, s.mask = o.causal ? Mask::causal : Mask::full;
  s.batch = std::max(1, o.tokens / o.seqlen), s.seqlen = o.seqlen, s.heads = o.hidden / o.head_dim;
  return s;
}

std::string all_rungs(const LadderOptions& o) {
  std::string names;
  for (const auto& list : {ladder_rungs(shape_of(o)), fp8_rungs(shape_of(o)), ablation_rungs()})
    for (const LadderRung& r : list) names += (names.empty() ? "" : ", ") + r.key;
  return names;
}

std::vector<LadderRow> rows_of(const LadderOptions& o) {
  std::vector<LadderRow> rows;
  auto add = [&](const LadderRung& rung, const LadderShape& shape) {
    if (!o.only.empty() && std::find(o.only.begin(), o.only.end(), rung.key) == o.only.end()) return;
    LadderRow r;
    r.rung = rung, r.shape = shape;
    rows.push_back(r);
  };
  for (const LadderRung& r : ladder_rungs(shape_of(o))) add(r, shape_of(o));
  for (const LadderRung& r : fp8_rungs(shape_of(o))) add(r, fp8_shape(shape_of(o)));
  if (o.ablation)
    for (const LadderRung& r : ablation_rungs()) add(r, ablation_shape());
  for (const std::string& name : o.only)
    if (std::none_of(rows.begin(), rows.end(), [&](const LadderRow& r) { return r.rung.key == name; }))
      leave(exit_usage, "--only " + name + ": no such rung; there are " + all_rungs(o) + " (ablation_*: with --ablation)");
  return rows;
}

// Rows of the timed problem that are compared: float64 takes seconds for all.
constexpr std::int64_t timed_rows = 48;
constexpr int rounds = 3;

Case case_of(const LadderShape& shape, std::uint64_t seed, std::int64_t rows) {
  return make_case(problem_of(shape), reference::Layout::bshd, reference::Inputs::random, seed, true, rows);
}

// Runs a rung; `milliseconds` of each repeat. Returns what is wrong.
std::string run(Device& device, const LadderRung& rung, const Case& c, int repeats, LadderRow* row,
                std::vector<float>* milliseconds) {
  if (rung.kernel) {
    Attention attention(device);
    const Outcome out = run_case(device, attention, c, {rung.kernel->name(), "", {}}, repeats);
    row->error = out.error.max, row->plain_error = out.error.plain_max;
    *milliseconds = out.milliseconds;
    return out.complaint();
  }
  LadderResult r;
  if (const Status s = run_rung(device, *rung.mma_sync, c.tensors, repeats, &r); !s.ok()) return s.message;
  *milliseconds = r.milliseconds;
  if (!c.problem().rows.empty()) return "";  // timed: checked before, on the small problem
  const reference::Error e = compare(c.problem(), c.exact, c.plain, r.o, r.lse);
  row->error = e.max, row->plain_error = e.plain_max;
  // Standard attention rounds S to 16 bits, which the rule does not foresee: four times the allowance.
  if (rung.mma_sync != Rung::unfused_scores) return e.first_failure;
  return e.max <= 4 * e.allowed_max ? "" : "off by " + std::to_string(e.max);
}

// On a problem that the host can follow in float64.
void check(Device& device, LadderRow* row) {
  LadderShape small = row->shape;
  small.batch = 1, small.seqlen = device.info().is_emulator ? 200 : 600, small.heads = 2;
  std::vector<float> unused;
  row->failure = run(device, row->rung, case_of(small, 5, small.seqlen), 0, row, &unused);
}

// One round of one rung: a few launches, so that no rung heats the card for the next.
void measure(Device& device, const Case& c, int repeats, LadderRow* row) {
  LadderRow timed = *row;  // the error that is shown is the small problem's
  std::vector<float> milliseconds;
  row->failure = run(device, row->rung, c, repeats, &timed, &milliseconds);
  row->samples.insert(row->samples.end(), milliseconds.begin(), milliseconds.end());
}

void finish(LadderRow* row) {
  if (row->failure.empty()) row->failure = refuse_samples(row->samples);
  if (!row->failure.empty()) return;
  const Quartiles q = quartiles(row->samples);
  row->milliseconds = q.median, row->relative_spread = q.relative_spread();
  row->teraflops = flops(problem_of(row->shape)) / q.median * 1e-9;
}

// All rungs of one shape by turns, so that the clock's drift meets all alike.
void measure_all(Device& device, int repeats, std::vector<LadderRow>* rows) {
  for (std::size_t from = 0; from < rows->size();) {
    std::size_t to = from;
    while (to < rows->size() && describe((*rows)[to].shape) == describe((*rows)[from].shape)) ++to;
    const Case c = case_of((*rows)[from].shape, 6, timed_rows);
    for (int round = 0; round < rounds; ++round)
      for (std::size_t i = from; i < to; ++i)
        if ((*rows)[i].failure.empty()) measure(device, c, (repeats + rounds - 1) / rounds, &(*rows)[i]);
    for (; from < to; ++from) finish(&(*rows)[from]);
  }
}

void write_if_named(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  write_file(path, text);
  std::cout << "written        " << path << "\n";
}

// The kernels that carry marks, each as a timeline: measured on a GPU, modelled without one.
void draw_timelines(Device& device, const LadderOptions& o, const std::vector<LadderRow>& rows) {
  for (const LadderRow& r : rows) {
    if (!r.rung.kernel || r.rung.group == RungGroup::ablation) continue;
    const Trace model = model_trace(*r.rung.kernel, 12);
    Trace trace = model;
    TraceCost cost;
    if (!device.info().is_emulator) {
      trace = {};
      const Status s = run_trace(device, *r.rung.kernel, Marks::all, problem_of(r.shape), 4096, &trace, &cost);
      if (!s.ok()) leave(exit_mismatch, r.rung.name + ": " + s.message);
    }
    write_trace_files(o.timelines + r.rung.key, trace, model, 4);
  }
}

// The chart of a CSV written before.
void draw_from(const LadderOptions& o) {
  if (o.svg.empty()) leave(exit_usage, "--from draws: it wants --svg FILE");
  try {
    write_if_named(o.svg, ladder_svg(read_ladder_csv(read_or_leave(o.from)), o.card));
  } catch (const std::exception& e) {
    leave(exit_usage, o.from + ": " + e.what());
  }
}

void run_ladder(const LadderOptions& o) {
  if (!o.from.empty()) return draw_from(o);
  DeviceRequest request;
  std::unique_ptr<Device> device;
  std::string note;
  std::vector<LadderRow> rows = rows_of(o);
  if (!parse_device_choice(o.device, &request.choice)) leave(exit_usage, "--device: auto, cuda or emulator");
  if (const Status s = open_device(request, &device, &note); !s.ok()) leave(exit_no_device, s.message);
  if (!note.empty()) std::cerr << note << "\n";
  const bool timed = !device->info().is_emulator;
  std::cout << describe(device->info()) << "\n" << (timed ? "" : "not timed: timing needs a GPU; each rung is checked on batch 1, seqlen 200, 2 heads\n");
  for (LadderRow& r : rows) check(*device, &r);
  if (timed) measure_all(*device, o.repeats, &rows);
  bool right = true;
  std::string shape;
  for (const LadderRow& r : rows) {
    if (describe(r.shape) != shape) std::cout << (shape = describe(r.shape)) << "\n";
    std::cout << ladder_line(r, timed) << std::flush;
    right = right && r.failure.empty();
  }
  write_if_named(o.csv, ladder_csv(rows));
  write_if_named(o.json, ladder_json(rows, describe(device->info())));
  if (timed) write_if_named(o.svg, ladder_svg(rows, device->info().name));
  else if (!o.svg.empty()) std::cerr << "flashptx: " << o.svg << " is not written: the chart needs timings, and timing needs a GPU\n";
  if (!o.timelines.empty()) draw_timelines(*device, o, rows);
  if (!right) leave(exit_mismatch, "a rung did not give the right result");
}

}  // namespace

void add_ladder(Command& app) {
  auto o = std::make_shared<LadderOptions>();
  Command* c = app.add_subcommand(
      "ladder", "From standard attention to FlashPTX, one technique at a time: checked, timed, drawn");
  c->add_option("--device", o->device, "auto, cuda or emulator")->capture_default_str();
  c->add_option("--dtype", o->dtype, "bf16 or f16")->capture_default_str();
  c->add_option("--head-dim", o->head_dim, "64 or 128")->capture_default_str();
  c->add_option("--seqlen", o->seqlen, "Queries and keys")->capture_default_str()->check(range(1, 1 << 20));
  c->add_option("--tokens", o->tokens, "batch = tokens / seqlen")->capture_default_str()->check(range(1, 1 << 24));
  c->add_option("--hidden", o->hidden, "heads = hidden / head-dim")->capture_default_str()->check(range(128, 1 << 16));
  c->add_option("--repeats", o->repeats, "Timed launches")->capture_default_str()->check(range(3, 1000));
  c->add_option("--only", o->only, "These rungs only, by the names in the CSV");
  c->add_flag("--ablation", o->ablation,
              "Also each technique taken away, in f16 at the shape of the FlashAttention-3 paper's table 2");
  c->add_option("--csv", o->csv, "Write CSV to this file");
  c->add_option("--json", o->json, "Write JSON to this file");
  c->add_option("--svg", o->svg, "Write a bar chart to this file (with a GPU)");
  c->add_option("--from", o->from, "Draw --svg from a CSV written before, and run nothing");
  c->add_option("--card", o->card, "With --from: the card's name, for the chart");
  c->add_option("--timelines", o->timelines,
                "Write PREFIX<rung>.svg, .json and .csv: timelines of the rungs that have marks");
  c->add_flag("--causal", o->causal, "Causal mask");
  c->callback([o] { run_ladder(*o); });
}

}  // namespace flashptx
