// `flashptx run`: one problem, one kernel, one verdict.
//
// On the emulator --seeds N runs N legal orders and wants the same bits from all. --ptx runs a text that was
// edited by hand in place of the generated one. Next: runner.cpp.
#include <cstdio>
#include <iostream>
#include <memory>

#include "host/emulator/emulator.h"
#include "tools/flashptx/args.h"
#include "tools/flashptx/chain_options.h"
#include "tools/flashptx/chain_run.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/config_options.h"
#include "tools/flashptx/json.h"
#include "tools/flashptx/problem_options.h"
#include "tools/flashptx/runner.h"
#include "tools/flashptx/statistics.h"

namespace flashptx {
namespace {

struct RunOptions {
  ProblemOptions problem;
  ChainOptions chain;
  std::string kernel, ptx_file, schedule;
  bool no_lse = false, json = false, stats = false;
  int seeds = 1, repeats = 20, adversary_level = 1, emulator_multiprocessors = 0;
  std::uint64_t emulator_seed = 0, emulator_limit = 0;
  std::int64_t check_rows = 0;
};

struct Verdict {
  Outcome outcome;  // of the last run
  std::string complaint;
  std::string stats;  // of the emulator, if asked for
};

// `chain`: null, or what c is the base of.
Json to_json(const Case& c, const ChainCase* chain, const DeviceInfo& info, const Verdict& v) {
  const reference::Problem& p = c.problem();
  const Outcome& r = v.outcome;
  Json j{
      {"device", info.name}, {"kernel", r.kernel}, {"ok", v.complaint.empty()}, {"complaint", v.complaint},
      {"status", static_cast<int>(r.status.code)}, {"dtype", to_string(p.dtype)}, {"batch", p.batch},
      {"heads_q", p.heads_q}, {"heads_kv", p.heads_kv}, {"seqlen_q", p.seqlen_q}, {"seqlen_k", p.seqlen_k},
      {"head_dim", p.head_dim}, {"head_dim_v", p.head_dim_v}, {"mask", to_string(p.mask)}, {"scale", p.scale},
      {"rows_checked", p.row_count()}};
  if (p.dtype_k || p.dtype_v) j["dtype_k"] = to_string(p.type_k()), j["dtype_v"] = to_string(p.type_v());
  if (r.status.ok())
    j["error"] = {{"max", r.error.max}, {"rms", r.error.rms}, {"plain_max", r.error.plain_max},
                  {"plain_rms", r.error.plain_rms}, {"allowed_max", r.error.allowed_max},
                  {"lse_max", c.lse ? Json(r.error.lse_max) : Json()}};
  if (chain != nullptr)
    j["fp8"] = {{"inside", to_string(chain->options.dtype, chain->options.type_k(), chain->options.type_v())}, {"recipe", describe(chain->options)},
                {"baseline_max", chain->baseline_max}, {"baseline_rms", chain->baseline_rms}};
  if (!r.milliseconds.empty()) {
    const Quartiles q = quartiles(r.milliseconds);
    j["milliseconds"] = {{"low", q.low}, {"median", q.median}, {"high", q.high}};
    j["tflops"] = flops(p) / q.median * 1e-9;
  }
  return j;
}

void print_text(const Case& c, const ChainCase* chain, const Verdict& v) {
  const reference::Problem& p = c.problem();
  const Outcome& r = v.outcome;
  if (!r.plan.empty()) std::cout << r.plan << (r.plan.back() == '\n' ? "" : "\n");
  const std::string plain = chain ? "same recipe, unfused" : "plain " + to_string(p.dtype, p.type_k(), p.type_v());
  if (r.status.ok() && !c.exact.o.empty()) {
    std::printf("error of O     max %.3e  rms %.3e   (%s: max %.3e  rms %.3e; allowed max %.3e)\n",
                r.error.max, r.error.rms, plain.c_str(), r.error.plain_max, r.error.plain_rms,
                r.error.allowed_max);
    if (chain)
      std::printf("plain %s     max %.3e  rms %.3e   (one scale a tensor, no Hadamard, unfused): %.2f x ours\n",
                  to_string(chain->options.dtype, chain->options.type_k(), chain->options.type_v()).c_str(), chain->baseline_max, chain->baseline_rms,
                  chain->baseline_rms / r.error.rms);
    if (c.lse) std::printf("error of LSE   max %.3e   (allowed %.3e)\n", r.error.lse_max, r.error.lse_allowed);
    if (!p.rows.empty())
      std::printf("compared       %lld of %lld query rows of every head\n", static_cast<long long>(p.row_count()),
                  static_cast<long long>(p.seqlen_q));
  }
  if (!v.stats.empty()) std::printf("%s\n", v.stats.c_str());
  if (!r.milliseconds.empty()) {
    const Quartiles q = quartiles(r.milliseconds);
    const std::string refused = refuse_samples(r.milliseconds);
    if (refused.empty())
      std::printf("time           median %.4f ms (quartiles %.4f, %.4f)   %.1f TFLOP/s\n", q.median, q.low, q.high,
                  flops(p) / q.median * 1e-9);
    else
      std::printf("time           not reported: %s\n", refused.c_str());
  }
  // Only a result that was computed can mismatch.
  const char* what = interrupted() ? "INTERRUPTED: " : v.outcome.status.ok() ? "MISMATCH: "
                     : v.outcome.status.code == StatusCode::launch_failed ? "FAULT: " : "REFUSED: ";
  std::printf("%s\n", v.complaint.empty() ? "ok: agrees with float64" : (what + v.complaint).c_str());
}

using RunOnce = std::function<Outcome(Device&, Attention&, int repeats)>;

Verdict run_seeds(const RunOptions& o, DeviceRequest request, const RunOnce& run_once, const ForwardChoice& choice,
                  DeviceInfo* info) {
  Verdict v;
  std::vector<std::uint8_t> first_o, first_lse;
  const int runs = std::max(1, o.seeds);
  for (int i = 0; i < runs && v.complaint.empty(); ++i) {
    // Seed 0 is the friendly order; every other is an adversary.
    request.emulator.seed = o.emulator_seed + static_cast<std::uint64_t>(i);
    request.emulator.adversary_level = request.emulator.seed == 0 ? 0 : o.adversary_level;
    std::unique_ptr<Device> device = open_or_leave(request);
    *info = device->info();
    const int repeats = info->is_emulator || i > 0 ? 0 : o.repeats;
    Attention attention(*device);
    v.outcome = run_once(*device, attention, repeats);
    v.complaint = v.outcome.complaint();
    // The emulator names a text after its entry; the file is the user's.
    if (const std::string own = v.outcome.kernel.empty() ? choice.kernel + ".ptx" : v.outcome.kernel + ".ptx";
        !o.ptx_file.empty())
      for (std::size_t at = v.complaint.find(own); at != std::string::npos; at = v.complaint.find(own, at + 1))
        v.complaint.replace(at, own.size(), o.ptx_file), at += o.ptx_file.size();
    if (o.stats) v.stats = emulator_stats(*device);
    if (i == 0) first_o = v.outcome.o_bytes, first_lse = v.outcome.lse_bytes;
    else if (v.complaint.empty() && (v.outcome.o_bytes != first_o || v.outcome.lse_bytes != first_lse))
      v.complaint = "the result differs in its bits from the first run's";
    if (!v.complaint.empty() && info->is_emulator && runs > 1)
      v.complaint += " (emulator seed " + std::to_string(request.emulator.seed) + ")";
  }
  return v;
}

ExitCode exit_code(const Verdict& v) {
  if (v.complaint.empty()) return exit_ok;
  if (interrupted()) return exit_interrupted;
  switch (v.outcome.status.code) {
    case StatusCode::invalid_argument:
    case StatusCode::unsupported: return exit_usage;
    case StatusCode::no_device:
    case StatusCode::driver_too_old: return exit_no_device;
    default: return exit_mismatch;
  }
}

void run_run(const RunOptions& o) {
  reference::Problem shape = problem_from(o.problem);
  const bool chained = o.chain.given();
  Fp8Options fp8;
  if (chained) fp8 = fp8_from(o.chain, &shape), fp8.fast = o.problem.fast;
  ForwardChoice choice;
  choice.kernel = o.kernel;
  if (!o.schedule.empty()) choice.schedule = schedule_or_leave(o.schedule);
  if (!o.ptx_file.empty()) {
    KernelFile file = kernel_file_or_leave(o.ptx_file);
    choice.ptx = std::move(file.text);
    // An edited file still says in its entry which kernel it was.
    if (choice.kernel.empty()) choice.kernel = file.entry;
  }
  DeviceRequest request = device_from(o.problem);
  request.emulator.multiprocessors = o.emulator_multiprocessors;
  request.emulator.instruction_limit = request.emulator.idle_instruction_limit = o.emulator_limit;
  open_or_leave(request);  // before the reference is computed: a missing device should not cost seconds
  ChainCase chain;
  Case plain;
  if (chained)
    chain = make_chain_case(shape, layout_from(o.problem), inputs_from(o.problem), o.problem.seed, !o.no_lse,
                            o.check_rows, fp8);
  else
    plain = make_case(shape, layout_from(o.problem), inputs_from(o.problem), o.problem.seed, !o.no_lse, o.check_rows);
  plain.fast = o.problem.fast;
  const Case& c = chained ? chain.base : plain;
  const RunOnce run_once = [&](Device& device, Attention& attention, int repeats) {
    if (!chained) return run_case(device, attention, c, choice, repeats);
    return run_chain(device, attention, chain, choice, repeats);
  };
  watch_emulator(request.emulator);  // not before: Ctrl-C shall end the reference too
  DeviceInfo info;
  const Verdict v = run_seeds(o, request, run_once, choice, &info);
  const ChainCase* const of = chained ? &chain : nullptr;
  if (o.json) {
    std::cout << to_json(c, of, info, v).dump(1) << "\n";
  } else {
    std::cout << "device         " << describe(info) << "\n";
    print_text(c, of, v);
    if (o.seeds > 1 && v.complaint.empty()) std::printf("orders         %d, the same bits from each\n", o.seeds);
  }
  const ExitCode code = exit_code(v);
  if (code != exit_ok) leave(code, "");
}

}  // namespace

void add_run(Command& app) {
  auto options = std::make_shared<RunOptions>();
  RunOptions& o = *options;
  Command* c = app.add_subcommand("run", "Run one attention problem and compare it with float64");
  add_problem_options(*c, o.problem);
  add_device_options(*c, o.problem);
  add_chain_options(*c, o.chain);
  c->add_flag("--fast", o.problem.fast, "e4m3, e5m2: the faster kernel whose RMS error is up to 1.25 times plain FP8's");
  c->add_option("--kernel", o.kernel, "Name of the kernel to use; default: the host's choice");
  c->add_option("--schedule", o.schedule, schedule_help);
  c->add_option("--ptx", o.ptx_file, "Run this PTX file in place of the generated text (entry and parameters kept)")
      ->check(existing_file());
  c->add_flag("--no-lse,!--lse", o.no_lse, "Do not ask for LSE (--lse, the default, does)");
  c->add_option("--seeds", o.seeds, "Emulator: number of legal orders to run; all must give the same bits")
      ->capture_default_str()
      ->check(range(1, 1000000));
  c->add_option("--emulator-seed", o.emulator_seed, "Emulator: first order; 0 is the friendly one")
      ->capture_default_str();
  c->add_option("--adversary", o.adversary_level, "Emulator: 1 late completions, 2 any legal order")
      ->capture_default_str()
      ->check(range(0, 2));
  c->add_option("--emulator-multiprocessors", o.emulator_multiprocessors,
                "Emulator: multiprocessors that it claims, 0: 132; few make persistent kernels walk many tiles")
      ->check(range(0, 100000));
  c->add_option("--emulator-limit", o.emulator_limit,
                "Emulator: warp instructions of a cluster, and of a cluster in which nothing moves, before it is\n"
                "taken to loop for ever; 0: 1e10 and 1e8");
  c->add_flag("--stats", o.stats, "Emulator: instructions by role and loop, a trip's worth, bank conflicts");
  c->add_option("--repeats", o.repeats, "GPU: timed launches; 0: none")
      ->capture_default_str()
      ->check(range(0, 100000));
  c->add_option("--check-rows", o.check_rows, "Query rows of each head to compare; 0: as many as take some seconds")
      ->check(range(0, 2147483647));
  c->add_flag("--json", o.json, "The verdict as JSON");
  c->footer("What the emulator does not model:\n" + emulator_limits());
  c->callback([options] { run_run(*options); });
}

}  // namespace flashptx
