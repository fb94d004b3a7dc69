// `flashptx diff A B`: two kernels side by side: launch, schedule, budget of a trip by step,
// modelled trip; with -o a picture of both timelines.
//
// A and B are kernel names, or built-in schedules or schedule files, which then go into the kernel
// of --kernel or the host's choice. Next: trace_model.cpp for the model.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>

#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/config_options.h"
#include "tools/flashptx/session.h"
#include "tools/flashptx/trace_run.h"

namespace flashptx {
namespace {

struct DiffOptions {
  std::string a, b, output;
  int trips = 3;
  bool model = false;
  ConfigOptions base;
};

KernelConfig kernel_of(const std::string& what, const DiffOptions& o) {
  KernelConfig config;
  if (what.rfind("attn_", 0) == 0) {
    std::string error;
    if (!KernelConfig::parse(what, &config, &error)) leave(exit_usage, error);
    return config;
  }
  config = config_from(o.base);
  config.plan.follow(schedule_or_leave(what));
  return config;
}

struct Side {
  KernelConfig config;
  EmittedKernel kernel;
  Trace timeline;  // modelled
  TraceSummary model;
  std::map<std::string, int> opcodes;  // of the whole text, up to the first type or modifier
};

std::map<std::string, int> count_opcodes(const std::string& text) {
  std::map<std::string, int> out;
  std::istringstream lines(text);
  for (std::string line, word; std::getline(lines, line);) {
    std::istringstream words(line);
    if (!(words >> word)) continue;
    if (word[0] == '@' && !(words >> word)) continue;
    if (word[0] < 'a' || word[0] > 'z' || line.find(';') == std::string::npos) continue;
    ++out[word.substr(0, word.find_first_of(".;"))];
  }
  return out;
}

Side side_of(const std::string& what, const DiffOptions& o) {
  Side s;
  s.config = kernel_of(what, o);
  s.kernel = emit(s.config);
  s.timeline = model_trace(s.config, 12);
  s.model = summarise(s.timeline);
  s.opcodes = count_opcodes(s.kernel.text);
  return s;
}

void print_row(const std::string& name, const std::string& a, const std::string& b) {
  std::printf("%c %-26s %20s %20s\n", a == b ? ' ' : '*', name.c_str(), a.c_str(), b.c_str());
}
void print_row(const std::string& name, double a, double b, int digits = 0) {
  char x[32], y[32];
  std::snprintf(x, sizeof x, "%.*f", digits, a), std::snprintf(y, sizeof y, "%.*f", digits, b);
  print_row(name, std::string(x), std::string(y));
}

std::string step_text(const Schedule& s, std::size_t i) {
  if (i >= s.steps.size()) return "";
  return std::string(to_string(s.steps[i].what)) +
         (s.steps[i].lag ? " lag " + std::to_string(s.steps[i].lag) : "");
}

void print_launch(const Side& a, const Side& b) {
  const LaunchFacts &x = a.kernel.facts, &y = b.kernel.facts;
  print_row("tile rows", a.config.tile_q(), b.config.tile_q());
  print_row("tile keys", a.config.plan.tile_kv, b.config.plan.tile_kv);
  print_row("threads", x.block_threads, y.block_threads);
  print_row("shared memory bytes", x.shared_bytes, y.shared_bytes);
  print_row("consumer registers", x.consumer_registers, y.consumer_registers);
  auto lines = [](const Side& s) {
    return static_cast<double>(std::count(s.kernel.text.begin(), s.kernel.text.end(), '\n'));
  };
  print_row("lines of PTX", lines(a), lines(b));
}

StepCost total(const EmittedKernel& k) {
  StepCost t;
  for (const StepCost& s : k.trip) {
    t.wgmma += s.wgmma, t.tensor_clocks += s.tensor_clocks, t.ex2 += s.ex2, t.fma += s.fma;
    t.alu += s.alu, t.cvt += s.cvt, t.issue_slots += s.issue_slots;
  }
  return t;
}

void print_budget(const Side& a, const Side& b) {
  const StepCost x = total(a.kernel), y = total(b.kernel);
  std::printf("\nbudget of a usual trip (one warp)\n");
  print_row("wgmma", x.wgmma, y.wgmma);
  print_row("tensor clocks", x.tensor_clocks, y.tensor_clocks);
  print_row("ex2", x.ex2, y.ex2);
  print_row("fma, add, mul", x.fma, y.fma);
  print_row("alu", x.alu, y.alu);
  print_row("cvt", x.cvt, y.cvt);
  print_row("issue slots", x.issue_slots, y.issue_slots);
}

void print_model(const Side& a, const Side& b) {
  std::printf("\nmodelled trip (not measured; `flashptx trace` measures)\n");
  print_row("cycles a trip", a.model.cycles_per_trip, b.model.cycles_per_trip);
  print_row("tensor cores busy, %", 100 * a.model.tensor_busy, 100 * b.model.tensor_busy, 1);
  print_row("softmax under own wgmma, %", 100 * a.model.overlap_own, 100 * b.model.overlap_own, 1);
  print_row("waiting, cycles", a.model.waiting, b.model.waiting);
  for (int e = 1; e < static_cast<int>(TraceEvent::tile_wait); ++e)
    if (a.model.event_cycles[e] + b.model.event_cycles[e] > 0)
      print_row(std::string("  ") + to_string(static_cast<TraceEvent>(e)), a.model.event_cycles[e],
          b.model.event_cycles[e]);
}

// Measured where there is a GPU, else (or with --model) the modelled timelines.
void draw(Side& a, Side& b, const DiffOptions& o) {
  std::unique_ptr<Device> device;
  if (!o.model && !open_cuda_device(0, &device).ok()) device.reset();
  for (Side* s : {&a, &b}) {
    if (device == nullptr) break;
    reference::Problem shape;
    shape.dtype = s->config.problem.dtype, shape.mask = s->config.problem.mask;
    shape.head_dim = s->config.problem.head_dim, shape.head_dim_v = s->config.problem.head_dim_v;
    shape.batch = 1, shape.heads_q = shape.heads_kv = 16, shape.seqlen_q = shape.seqlen_k = 8192;
    shape.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
    s->timeline = {};
    TraceCost cost;
    const Status status = run_trace(*device, s->config, Marks::all, shape, 4096, &s->timeline, &cost);
    if (!status.ok()) leave(exit_mismatch, s->config.name() + ": " + status.message);
    std::printf("%s measured: %.0f clocks a trip\n", s->config.name().c_str(),
                summarise(s->timeline).cycles_per_trip);
  }
  write_file(o.output, diff_svg(a.timeline, b.timeline, o.trips));
  std::cout << "written " << o.output << "\n";
}

void run_diff(const DiffOptions& o) {
  Side a = side_of(o.a, o), b = side_of(o.b, o);
  std::printf("A  %s\nB  %s\n* marks what differs\n\n", a.config.name().c_str(),
              b.config.name().c_str());
  print_row("", "A", "B");
  print_launch(a, b);
  const Schedule &x = *a.config.plan.table(), &y = *b.config.plan.table();
  std::printf("\nschedule\n");
  print_row("name", x.name, y.name);
  for (std::size_t i = 0; i < std::max(x.steps.size(), y.steps.size()); ++i)
    print_row("step " + std::to_string(i + 1), step_text(x, i), step_text(y, i));
  print_budget(a, b);
  print_model(a, b);
  std::printf("\nPTX instructions that differ in number\n");
  std::map<std::string, int> all = a.opcodes;
  all.insert(b.opcodes.begin(), b.opcodes.end());
  for (const auto& [op, unused] : all) {
    const int p = a.opcodes.count(op) ? a.opcodes.at(op) : 0,
              q = b.opcodes.count(op) ? b.opcodes.at(op) : 0;
    if (p != q) print_row("  " + op, p, q);
  }
  if (!o.output.empty()) {
    std::fflush(stdout);
    draw(a, b, o);
  }
}

}  // namespace

void add_diff(Command& app) {
  auto options = std::make_shared<DiffOptions>();
  Command* c = app.add_subcommand("diff", "Two kernels or two schedules side by side");
  c->add_option("A", options->a, "Kernel name, built-in schedule, or schedule file")->required();
  c->add_option("B", options->b, "The same")->required();
  c->add_option("--kernel", options->base.name,
                "The kernel that schedules go into; default: the options below");
  c->add_option("--dtype", options->base.dtype, "f16 or bf16")->capture_default_str();
  c->add_option("--head-dim", options->base.head_dim, "Head dimension")->capture_default_str();
  c->add_flag("--causal", options->base.causal, "Causal mask");
  c->add_option("-o,--output", options->output, "Draw both timelines on one scale into this SVG");
  c->add_option("--trips", options->trips, "Trips in the picture")->capture_default_str()->check(range(1, 64));
  c->add_flag("--model", options->model, "Draw the timing model even where there is a GPU");
  c->callback([options] { run_diff(*options); });
}

}  // namespace flashptx
