// `flashptx demo` (`make demo`): attention computed by a kernel that was written a moment ago, and doubted.
//
// On a GPU a problem of respectable size, else a small one on the emulator. Everything printed is read off the
// kernel, the schedule and the run; nothing is told from memory. Next: run_command.cpp.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>

#include "gen/schedule/schedule.h"
#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/problem_options.h"
#include "tools/flashptx/runner.h"
#include "tools/flashptx/statistics.h"

namespace flashptx {
namespace {

reference::Problem demo_problem(bool small) {
  reference::Problem p;
  p.mask = Mask::causal;
  p.batch = small ? 1 : 2, p.heads_q = small ? 2 : 16, p.heads_kv = small ? 1 : 4;
  // Not multiples of any tile, and more keys than queries.
  p.seqlen_q = small ? 200 : 4001, p.seqlen_k = small ? 300 : 4100;
  p.head_dim = p.head_dim_v = small ? 64 : 128;
  p.scale = 1 / std::sqrt(static_cast<float>(p.head_dim));
  return p;
}

void say(const char* what, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line); what = "") std::printf("%-10s %s\n", what, line.c_str());
}

std::string problem_text(const reference::Problem& p) {
  char text[256];
  std::snprintf(text, sizeof text,
                "%s, %s mask, batch %lld, %lld query heads on %lld key heads, %lld queries, %lld keys, head_dim %d",
                to_string(p.dtype), to_string(p.mask), static_cast<long long>(p.batch),
                static_cast<long long>(p.heads_q), static_cast<long long>(p.heads_kv),
                static_cast<long long>(p.seqlen_q), static_cast<long long>(p.seqlen_k), p.head_dim);
  return text;
}

std::string kernel_text(const KernelConfig& config, const LaunchFacts& facts) {
  char text[640];
  std::snprintf(text, sizeof text,
                "%s\n"
                "one CTA: a producer warp (%d registers a thread) feeds K and V by TMA through %d stages;\n"
                "%d consumer warpgroups (%d registers) each own 64 query rows: S = Q K^T and O += P V on the\n"
                "tensor cores, softmax between them. %d threads, %u bytes of shared memory",
                facts.entry.c_str(), facts.producer_registers, config.plan.kv_stages, config.plan.warpgroups,
                facts.consumer_registers, facts.block_threads, facts.shared_bytes);
  return text;
}

std::string result_text(const Case& c, const Outcome& r) {
  char text[512];
  std::snprintf(text, sizeof text, "largest error of O %.2e, plain %s arithmetic has %.2e, allowed %.2e; of LSE %.1e",
                r.error.max, to_string(c.problem().dtype), r.error.plain_max, r.error.allowed_max, r.error.lse_max);
  std::string out = text;
  if (!c.problem().rows.empty()) out += "\ncompared: " + std::to_string(c.problem().row_count()) + " rows of every head";
  if (!r.milliseconds.empty() && refuse_samples(r.milliseconds).empty()) {
    const double median = quartiles(r.milliseconds).median;
    std::snprintf(text, sizeof text, "\n%.3f ms, %.0f TFLOP/s (`make bench` for figures that mean something)", median,
                  flops(c.problem()) / median * 1e-9);
    out += text;
  }
  return out;
}

std::string write_ptx(const std::string& folder, const EmittedKernel& kernel) {
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/" + kernel.facts.entry + ".ptx";
  write_file(path, kernel.text);
  return path;
}

void run_demo(const ProblemOptions& options, const std::string& folder) {
  DeviceRequest request = device_from(options);
  watch_emulator(request.emulator);
  const auto device = open_or_leave(request);
  const bool small = device->info().is_emulator;
  std::printf("FlashPTX: exact attention on Hopper, in PTX that was generated just now\n\n");
  say("device", describe(device->info()));
  const Case c = make_case(demo_problem(small), reference::Layout::bshd, reference::Inputs::random, 1, true, 0);
  say("problem", problem_text(c.problem()));
  std::fflush(stdout);
  Attention attention(*device);
  const Outcome r = run_case(*device, attention, c, {}, small ? 0 : 20);
  if (interrupted()) leave(exit_interrupted, r.complaint());
  if (r.kernel.empty()) leave(exit_mismatch, r.complaint());
  KernelConfig config;
  std::string error;
  if (!KernelConfig::parse(r.kernel, &config, &error)) leave(exit_mismatch, r.kernel + ": " + error);
  const EmittedKernel kernel = emit(config);
  const std::string path = write_ptx(folder, kernel);
  const auto lines = std::count(kernel.text.begin(), kernel.text.end(), '\n');
  say("kernel", kernel_text(config, kernel.facts));
  if (const Schedule* schedule = find_forward_schedule(config.plan.schedule)) {
    say("schedule", schedule->name + ": " + schedule->about);
    say("", draw(*schedule, 4));
  }
  say("PTX", path + " (" + std::to_string(lines) + " lines; its head says how to launch it and what it costs)");
  if (r.status.ok()) say("result", result_text(c, r));
  if (!r.ok()) leave(exit_mismatch, "WRONG: " + r.complaint());
  say("", "ok: agrees with float64");
  std::printf(
      "\nnext       flashptx=build/flashptx\n"
      "           less %s\n"
      "           $flashptx run --seqlen 333 --head-dim %d --causal --ptx %s   # after you edited it\n"
      "           $flashptx list; $flashptx emit NAME; make test; make help\n",
      path.c_str(), c.problem().head_dim, path.c_str());
}

}  // namespace

void add_demo(Command& app) {
  auto options = std::make_shared<ProblemOptions>();
  auto folder = std::make_shared<std::string>("build/demo");
  Command* c = app.add_subcommand("demo", "Attention by a kernel generated now, checked against float64");
  add_device_options(*c, *options);
  c->add_option("--folder", *folder, "Where the PTX file is written")->capture_default_str();
  c->callback([options, folder] { run_demo(*options, *folder); });
}

}  // namespace flashptx
