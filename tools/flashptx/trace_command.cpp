// `flashptx trace`: when each step of a kernel happens, as picture, Chrome trace, CSV and summary.
//
// On a GPU the kernel is emitted with marks and run. Without one the timeline comes from a timing
// model, and says so; on the emulator the marks are run and checked as well, but its clock counts
// instructions. Next: trace.h.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>

#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/config_options.h"
#include "tools/flashptx/problem_options.h"
#include "tools/flashptx/trace_run.h"

namespace flashptx {
namespace {

struct TraceOptions {
  ConfigOptions config;
  ProblemOptions device;
  std::int64_t batch = 0, heads = 0, seqlen = 0;
  std::int64_t capacity = 4096;
  int trips = 4;
  std::string marks = "few";
  bool model = false, json = false;
  std::string output = "trace", table, from;
};

reference::Problem shape_of(const TraceOptions& o, const KernelConfig& c, bool emulator) {
  reference::Problem p;
  p.dtype = c.problem.dtype, p.dtype_k = c.problem.dtype_k, p.dtype_v = c.problem.dtype_v, p.mask = c.problem.mask;
  p.head_dim = c.problem.head_dim, p.head_dim_v = c.problem.head_dim_v;
  p.batch = o.batch > 0 ? o.batch : emulator ? 1 : 2;
  p.heads_q = p.heads_kv = o.heads > 0 ? o.heads : emulator ? 1 : 16;
  p.seqlen_q = p.seqlen_k = o.seqlen > 0 ? o.seqlen : emulator ? 8 * c.plan.tile_kv : 8192;
  p.scale = 1 / std::sqrt(static_cast<float>(p.head_dim));
  return p;
}

// A device to run on, or none: then the model alone.
std::unique_ptr<Device> device_of(const TraceOptions& o) {
  std::unique_ptr<Device> device;
  if (o.model) return device;
  if (o.device.device == "auto") {
    if (!open_cuda_device(o.device.ordinal, &device).ok()) device.reset();
    return device;
  }
  return open_or_leave(device_from(o.device));
}

// What was measured has marks: so has what it is compared with.
Trace model_with_marks(KernelConfig config, Marks marks) {
  config.plan.trace = marks;
  const Trace all = model_trace(config, 12);
  return marks == Marks::few ? seen_by_few(all) : all;
}

// A file holds one kernel's marks; which, it says itself.
KernelConfig config_of(const TraceOptions& o, const std::string& csv) {
  ConfigOptions options = o.config;
  const std::string held = kernel_of_trace_csv(csv);
  if (options.name.empty() && !options.shapes_named_kernel()) options.name = held;
  return config_from(options);
}

// Without a device no problem is run: what was said about its size would be passed over in silence.
void say_what_is_unused(const TraceOptions& o) {
  if (o.batch > 0 || o.heads > 0 || o.seqlen > 0)
    std::cerr << "flashptx: nothing runs: --batch, --heads and --seqlen do not change a model of steady trips\n";
  if (!o.table.empty()) std::cerr << "flashptx: " << o.table << " is not written: nothing was measured\n";
}

void run_trace_command(const TraceOptions& o) {
  if (o.config.name.ends_with(".ptx"))
    leave(exit_usage, o.config.name + ": a text cannot be traced, the generator puts the marks in: give the kernel's name, or --schedule FILE");
  const std::string csv = o.from.empty() ? "" : read_or_leave(o.from);
  KernelConfig config = config_of(o, csv);
  config.plan.trace = Marks::off;
  const Marks marks = o.marks == "few" ? Marks::few : Marks::all;
  const int blocks = std::max(12, o.trips + 4);
  Trace model = model_trace(config, blocks);
  std::unique_ptr<Device> device = o.from.empty() ? device_of(o) : nullptr;
  Trace trace = model;
  if (o.from.empty() && device == nullptr) say_what_is_unused(o);
  if (!o.from.empty()) {
    const std::string bad = read_trace_csv(csv, config, &trace);
    if (!bad.empty()) leave(exit_usage, o.from + ": " + bad);
    if (!trace.modelled) model = model_with_marks(config, trace.marked);
    if (!trace.modelled && !o.table.empty()) append_trace_row(o.table, trace, summarise(trace), summarise(model), {});
  } else if (device != nullptr) {
    const bool emulator = device->info().is_emulator;
    Trace measured;
    TraceCost cost;
    const Status s =
        run_trace(*device, config, marks, shape_of(o, config, emulator), static_cast<std::uint32_t>(o.capacity), &measured, &cost);
    if (!s.ok())
      leave(s.code == StatusCode::invalid_argument || s.code == StatusCode::unsupported
                ? exit_usage
                : exit_mismatch,
            s.message);
    if (measured.lost)
      std::cerr << "flashptx: " << measured.lost << " records of marks did not fit; --capacity "
                << o.capacity << "\n";
    std::ostream& out = o.json ? std::cerr : std::cout;
    if (emulator)
      out << "marks          " << measured.marks << " on the emulator, in order, "
                << measured.lost
                << " lost; its clock counts instructions: the timeline is modelled\n";
    else {
      model = model_with_marks(config, marks);
      char text[96];
      std::snprintf(text, sizeof text, "marks cost     %.1f %% of the kernel's time (--marks %s)\n", cost.slow_down_percent(), to_string(marks));
      out << text;
      trace = std::move(measured);
    }
    if (!emulator && !o.table.empty()) append_trace_row(o.table, trace, summarise(trace), summarise(model), cost);
    out << std::flush;
  }
  const TraceSummary summary = summarise(trace), planned = summarise(model);
  const TraceSummary* beside = trace.modelled ? nullptr : &planned;
  std::cout << (o.json ? trace_json(trace, summary, beside) : trace_text(trace, summary, beside));
  write_trace_files(o.output, trace, model, o.trips, o.json ? std::cerr : std::cout);
}

}  // namespace

void add_trace(Command& app) {
  auto options = std::make_shared<TraceOptions>();
  TraceOptions& o = *options;
  Command* c = app.add_subcommand(
      "trace", "When each step of a kernel happens: picture, Chrome trace, CSV, summary");
  add_config_options(*c, o.config);
  add_device_options(*c, o.device);
  c->add_option("--batch", o.batch, "Default: 2; emulator 1")->check(range(1, 1 << 20));
  c->add_option("--heads", o.heads, "Default: 16; emulator 1")->check(range(1, 1 << 20));
  c->add_option("--seqlen", o.seqlen, "Default: 8192; emulator 8 key blocks")->check(range(1, 1 << 30));
  c->add_option("--capacity", o.capacity, "Records of marks, and trips, of one role of one CTA")
      ->capture_default_str()
      ->check(range(16, 1 << 20));
  c->add_option("--marks", o.marks,
                "few: of a trip only Q K^T, P V, max and exp; all: every step and wait, which costs more")
      ->capture_default_str()
      ->check(one_of({"few", "all"}));
  c->add_option("--trips", o.trips, "Trips in the picture")
      ->capture_default_str()
      ->check(range(1, 64));
  c->add_option("--table", o.table, "Append measured against modelled clocks to this CSV (with a GPU or --from)");
  c->add_option("--from", o.from, "Draw and sum up a CSV written before, and run nothing");
  c->add_flag("--json", o.json, "The summary as JSON on standard output, all else on standard error");
  c->add_flag("--model", o.model, "The timing model even where there is a GPU");
  c->add_option("-o,--output", o.output,
                "Writes OUTPUT.svg, OUTPUT.json (Perfetto, chrome://tracing) and OUTPUT.csv")
      ->capture_default_str();
  c->callback([options] { run_trace_command(*options); });
}

}  // namespace flashptx
