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

#include "gen/kernels/schedule_lines.h"
#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/config_options.h"
#include "tools/flashptx/json.h"
#include "tools/flashptx/session.h"
#include "tools/flashptx/trace_run.h"

namespace flashptx {
namespace {

struct DiffOptions {
  std::string a, b, output;
  int trips = 3;
  bool model = false, json = false;
  ConfigOptions base;
};

KernelConfig kernel_of(const std::string& what, const DiffOptions& o) {
  KernelConfig config;
  if (what.ends_with(".ptx"))
    leave(exit_usage, what + ": texts are not compared, kernels and schedules are: give the kernel's name (`flashptx sass` reads texts)");
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

// Rows are collected, for a page or for JSON.
struct Row {
  std::string part, name, a, b;
  bool numbers = false;
};
struct Page {
  std::vector<Row> rows;
  std::string part;

  void row(const std::string& name, const std::string& a, const std::string& b) { rows.push_back({part, name, a, b, false}); }
  void row(const std::string& name, double a, double b, int digits = 0) {
    char x[32], y[32];
    std::snprintf(x, sizeof x, "%.*f", digits, a), std::snprintf(y, sizeof y, "%.*f", digits, b);
    rows.push_back({part, name, x, y, true});
  }

  std::string text() const {
    std::string out, last;
    char line[160];
    for (const Row& r : rows) {
      if (r.part != last) out += "\n" + r.part + "\n";
      last = r.part;
      std::snprintf(line, sizeof line, "%c %-26s %20s %20s\n", r.a == r.b ? ' ' : '*', r.name.c_str(), r.a.c_str(), r.b.c_str());
      out += line;
    }
    return out;
  }
  Json json() const {
    Json j;
    for (const Row& r : rows) {
      const auto value = [&](const std::string& v) { return r.numbers ? Json(std::stod(v)) : Json(v); };
      const std::string name = r.name.substr(std::min(r.name.size(), r.name.find_first_not_of(' ')));
      j[r.part][name] = {{"a", value(r.a)}, {"b", value(r.b)}};
    }
    return j;
  }
};

std::string step_text(const Schedule& s, std::size_t i) {
  if (i >= s.steps.size()) return "";
  return std::string(to_string(s.steps[i].what)) +
         (s.steps[i].lag ? " lag " + std::to_string(s.steps[i].lag) : "");
}

void add_launch(Page& page, const Side& a, const Side& b) {
  page.part = "launch";
  const LaunchFacts &x = a.kernel.facts, &y = b.kernel.facts;
  page.row("tile rows", a.config.tile_q(), b.config.tile_q());
  page.row("tile keys", a.config.plan.tile_kv, b.config.plan.tile_kv);
  page.row("threads", x.block_threads, y.block_threads);
  page.row("shared memory bytes", x.shared_bytes, y.shared_bytes);
  page.row("consumer registers", x.consumer_registers, y.consumer_registers);
  auto lines = [](const Side& s) {
    return static_cast<double>(std::count(s.kernel.text.begin(), s.kernel.text.end(), '\n'));
  };
  page.row("lines of PTX", lines(a), lines(b));
}

StepCost total(const EmittedKernel& k) {
  StepCost t;
  for (const StepCost& s : k.trip) {
    t.wgmma += s.wgmma, t.tensor_clocks += s.tensor_clocks, t.ex2 += s.ex2, t.fma += s.fma;
    t.alu += s.alu, t.cvt += s.cvt, t.issue_slots += s.issue_slots;
  }
  return t;
}

void add_budget(Page& page, const Side& a, const Side& b) {
  const StepCost x = total(a.kernel), y = total(b.kernel);
  page.part = "budget of a usual trip (one warp)";
  page.row("wgmma", x.wgmma, y.wgmma);
  page.row("tensor clocks", x.tensor_clocks, y.tensor_clocks);
  page.row("ex2", x.ex2, y.ex2);
  page.row("fma, add, mul", x.fma, y.fma);
  page.row("alu", x.alu, y.alu);
  page.row("cvt", x.cvt, y.cvt);
  page.row("issue slots", x.issue_slots, y.issue_slots);
}

bool of_loads(TraceEvent e) { return e >= TraceEvent::k_empty_wait && e <= TraceEvent::v_load; }

void add_model(Page& page, const Side& a, const Side& b) {
  page.part = "modelled trip (not measured; `flashptx trace` measures)";
  page.row("cycles a trip, median", a.model.cycles_per_trip, b.model.cycles_per_trip);
  page.row("tensor cores busy, %", 100 * a.model.tensor_busy, 100 * b.model.tensor_busy, 1);
  page.row("softmax under own wgmma, %", 100 * a.model.overlap_own, 100 * b.model.overlap_own, 1);
  page.row("softmax under any wgmma, %", 100 * a.model.overlap_any, 100 * b.model.overlap_any, 1);
  page.row("waiting, mean cycles", a.model.waiting, b.model.waiting);
  for (bool waits : {true, false}) {
    if (!waits) page.row("working, mean cycles", a.model.mean_cycles - a.model.waiting, b.model.mean_cycles - b.model.waiting);
    for (int e = 1; e < static_cast<int>(TraceEvent::done); ++e) {
      const auto event = static_cast<TraceEvent>(e);
      if (is_wait(event) != waits || (event >= TraceEvent::tile_wait && !of_loads(event))) continue;
      if (a.model.event_cycles[e] + b.model.event_cycles[e] > 0)
        page.row(std::string("  ") + to_string(event), a.model.event_cycles[e], b.model.event_cycles[e]);
    }
  }
}

void add_schedule(Page& page, const Side& a, const Side& b) {
  const Schedule x = drawn_schedule(a.config.plan), y = drawn_schedule(b.config.plan);
  page.part = "schedule";
  page.row("name", x.name, y.name);
  for (std::size_t i = 0; i < std::max(x.steps.size(), y.steps.size()); ++i)
    page.row("step " + std::to_string(i + 1), step_text(x, i), step_text(y, i));
}

void add_opcodes(Page& page, const Side& a, const Side& b) {
  page.part = "PTX instructions that differ in number";
  std::map<std::string, int> all = a.opcodes;
  all.insert(b.opcodes.begin(), b.opcodes.end());
  bool none = true;
  for (const auto& [op, unused] : all) {
    const int p = a.opcodes.count(op) ? a.opcodes.at(op) : 0, q = b.opcodes.count(op) ? b.opcodes.at(op) : 0;
    if (p != q) page.row("  " + op, p, q), none = false;
  }
  if (none) page.row("  none", "", "");
}

// Measured where there is a GPU, else (or with --model) the modelled timelines.
void draw(Side& a, Side& b, const DiffOptions& o) {
  std::unique_ptr<Device> device;
  if (!o.model && !open_cuda_device(0, &device).ok()) device.reset();
  for (Side* s : {&a, &b}) {
    if (device == nullptr) break;
    reference::Problem shape;
    shape.dtype = s->config.problem.dtype, shape.dtype_k = s->config.problem.dtype_k, shape.dtype_v = s->config.problem.dtype_v, shape.mask = s->config.problem.mask;
    shape.head_dim = s->config.problem.head_dim, shape.head_dim_v = s->config.problem.head_dim_v;
    shape.batch = 1, shape.heads_q = shape.heads_kv = 16, shape.seqlen_q = shape.seqlen_k = 8192;
    shape.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
    s->timeline = {};
    TraceCost cost;
    const Status status = run_trace(*device, s->config, Marks::all, shape, 4096, &s->timeline, &cost);
    if (!status.ok()) leave(exit_mismatch, s->config.name() + ": " + status.message);
    (o.json ? std::cerr : std::cout) << s->config.name() << " measured: "
                                     << static_cast<long>(summarise(s->timeline).cycles_per_trip) << " clocks a trip\n";
  }
  write_file(o.output, diff_svg(a.timeline, b.timeline, o.trips));
  (o.json ? std::cerr : std::cout) << "written " << o.output << "\n";
}

void run_diff(const DiffOptions& o) {
  Side a = side_of(o.a, o), b = side_of(o.b, o);
  Page page;
  add_launch(page, a, b);
  add_schedule(page, a, b);
  add_budget(page, a, b);
  add_model(page, a, b);
  add_opcodes(page, a, b);
  if (o.json) {
    Json j{{"a", a.config.name()}, {"b", b.config.name()}};
    j.update(page.json());
    std::cout << j.dump(1) << "\n";
  } else {
    std::cout << std::flush;
    std::printf("A  %s\nB  %s\n* marks what differs\n\n%28s %20s %20s\n", a.config.name().c_str(), b.config.name().c_str(), "", "A", "B");
    std::fflush(stdout);
    std::cout << page.text().substr(1);
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
  c->add_option("--dtype", options->base.dtype, "f16, bf16, e4m3 or e5m2")->capture_default_str();
  c->add_option("--head-dim", options->base.head_dim, "Head dimension")->capture_default_str();
  c->add_flag("--causal", options->base.causal, "Causal mask");
  c->add_option("-o,--output", options->output, "Draw both timelines on one scale into this SVG");
  c->add_option("--trips", options->trips, "Trips in the picture")->capture_default_str()->check(range(1, 64));
  c->add_flag("--json", options->json, "The comparison as JSON, all else on standard error");
  c->add_flag("--model", options->model, "Draw the timing model even where there is a GPU");
  c->callback([options] { run_diff(*options); });
}

}  // namespace flashptx
