// `flashptx prepare`: FP8 operands from bf16 or f16, checked against float64 and timed; one job or all of them.
// Next: prepare_run.h.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>

#include "gen/kernels/prepare_kernels.h"
#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/json.h"
#include "tools/flashptx/prepare_run.h"
#include "tools/flashptx/session.h"
#include "tools/flashptx/text.h"
#include "tools/reference/numeric.h"
#include "tools/reference/prepare.h"

namespace flashptx {
namespace {

struct PrepareOptions {
  std::string what = "quantize", device = "auto", in = "bf16", out = "e4m3", scales = "block", rope = "none", table = "f32",
              layout = "bshd", inputs = "random", packed = "on", csv;
  std::vector<int> head_dims = {128};
  std::vector<std::int64_t> seqlens = {4096};
  std::int64_t tokens = 16384, hidden = 2048;
  int block_rows = 128, repeats = 20, position = 0, lanes = 0, threads = 0, heads_per_cta = 0;
  std::uint64_t seed = 1, emulator_seed = 0;
  double fixed_scale = 0;
  bool table_prefetch = false, hadamard = false, transpose = false, sweep = false, json = false;
};

DataType type_or_leave(const std::string& option, const std::string& text) {
  DataType t{};
  if (text == "f32") return DataType::f32;
  if (!reference::parse_data_type(text, &t)) leave(exit_usage, option + " " + text + ": no such type");
  return t;
}

PrepareJob job_of(const PrepareOptions& o, std::int64_t seqlen, int head_dim) {
  PrepareJob job;
  PrepareProblem& p = job.problem;
  if (o.what == "transpose") job.kind = PrepareKind::transpose;
  p.in = type_or_leave("--in", o.in), p.out = type_or_leave("--out", o.out);
  p.seqlen = seqlen, p.batch = o.tokens / seqlen, p.heads = o.hidden / head_dim, p.head_dim = head_dim;
  p.x = p.y = o.layout == "bshd" ? strides_bshd(seqlen, p.heads, head_dim) : strides_bhsd(seqlen, p.heads, head_dim);
  p.scale_kind = o.scales == "tensor" ? ScaleKind::tensor : o.scales == "head" ? ScaleKind::head : ScaleKind::block;
  p.block_rows = p.scale_kind == ScaleKind::block ? o.block_rows : 0;
  p.fixed_scale = static_cast<float>(o.fixed_scale);
  p.hadamard = o.what == "unhadamard" ? Hadamard::inverse : o.what == "hadamard" || o.hadamard ? Hadamard::forward : Hadamard::none;
  p.seed = static_cast<std::uint32_t>(o.seed);
  p.rope = o.rope == "half" ? Rope::half : o.rope == "interleaved" ? Rope::interleaved : Rope::none;
  p.table = type_or_leave("--table", o.table);
  p.transpose = o.transpose;
  p.lanes = o.lanes, p.threads = o.threads, p.packed = o.packed == "on";
  p.prefetch_tables = o.table_prefetch, p.heads_per_cta = o.heads_per_cta;
  p.position = o.position, p.table_rows = p.position + seqlen;
  if (o.what != "quantize" && o.what != "transpose") p.out = p.in;
  const Status s = job.kind == PrepareKind::transpose ? Status{} : check_prepare(p);
  if (!s.ok()) leave(exit_usage, s.message);
  return job;
}

std::vector<PrepareJob> jobs_of(const PrepareOptions& o) {
  std::vector<PrepareJob> all;
  for (int d : o.head_dims)
    for (std::int64_t s : o.seqlens) {
      if (d < 1 || o.hidden % d != 0) leave(exit_usage, "--hidden is not a multiple of --head-dim " + std::to_string(d));
      if (s < 1 || o.tokens % s != 0) leave(exit_usage, "--tokens is not a multiple of --seqlen " + std::to_string(s));
      if (!o.sweep) {
        all.push_back({PrepareKind::copy, job_of(o, s, d).problem});
        all.push_back(job_of(o, s, d));
        continue;
      }
      for (PrepareJob job : prepare_sweep(o.tokens, o.hidden, s, d)) {
        job.problem.packed = o.packed == "on", job.problem.prefetch_tables = o.table_prefetch;
        job.problem.heads_per_cta = o.heads_per_cta;
        const int vectors = d / 8 / std::max(1, o.lanes);  // lanes that a job cannot have are left to the host
        if (vectors > 0 && !(job.problem.rope == Rope::half && vectors % 2)) job.problem.lanes = o.lanes;
        job.problem.threads = o.threads;
        for (const PrepareConfig& c : Prepare::kernels_of(job.problem))
          if (job.kind != PrepareKind::prepare || o.threads == 0 || !gen::threads_fit(c)) job.problem.threads = 0;
        all.push_back(job);
      }
    }
  return all;
}

std::string csv_head() {
  return "device,job,kernels,head_dim,batch,seqlen,heads,bytes,samples,us_q1,us_median,us_q3,tb_per_s,of_copy,rms_error,"
         "checked,failure\n";
}

std::string csv_row(const PrepareRow& r, const DeviceInfo& info, double copy) {
  const PrepareProblem& p = r.job.problem;
  char text[512] = "";
  if (!r.microseconds.empty()) {
    const Quartiles q = quartiles(r.microseconds);
    std::snprintf(text, sizeof text, "%zu,%.3f,%.3f,%.3f,%.4f,%.4f", r.microseconds.size(), q.low, q.median, q.high, r.terabytes(),
                  copy > 0 ? r.terabytes() / copy : 0);
  }
  char error[64];
  std::snprintf(error, sizeof error, "%.4e", r.rms);
  return info.name + "," + csv_quoted(r.job.title()) + "," + r.job.kernels() + "," + std::to_string(p.head_dim) + "," +
         std::to_string(p.batch) + "," + std::to_string(p.seqlen) + "," + std::to_string(p.heads) + "," +
         std::to_string(static_cast<long long>(r.job.bytes())) + "," + (*text ? text : "0,,,,,") + "," + error + "," +
         csv_quoted(r.checked) + "," + csv_quoted(r.failure) + "\n";
}

std::string line_of(const PrepareRow& r, double copy) {
  char text[512];
  const PrepareProblem& p = r.job.problem;
  std::snprintf(text, sizeof text, "d%-3lld s=%-6lld %-52s", static_cast<long long>(p.head_dim), static_cast<long long>(p.seqlen),
                r.job.title().c_str());
  std::string s = text;
  if (!r.microseconds.empty()) {
    const Quartiles q = quartiles(r.microseconds);
    std::snprintf(text, sizeof text, " %8.2f us (%+.1f%% %+.1f%%)  %5.2f TB/s", q.median, 100 * (q.low / q.median - 1),
                  100 * (q.high / q.median - 1), r.terabytes());
    s += text;
    if (copy > 0) std::snprintf(text, sizeof text, "  %3.0f %% of copy", 100 * r.terabytes() / copy), s += text;
  }
  if (!r.failure.empty()) return s + "  WRONG: " + r.failure + "\n";
  if (r.checked.empty()) return s + "\n";
  std::snprintf(text, sizeof text, "  right on %s, error %.2e\n", r.checked.c_str(), r.rms);
  return s + text;
}

Json json_row(const PrepareRow& r, double copy) {
  const PrepareProblem& p = r.job.problem;
  Json j{{"job", r.job.title()}, {"kernels", r.job.kernels()}, {"head_dim", p.head_dim}, {"batch", p.batch},
                           {"seqlen", p.seqlen}, {"heads", p.heads}, {"bytes", r.job.bytes()}, {"microseconds", r.microseconds},
                           {"rms_error", r.rms}, {"checked", r.checked}, {"failure", r.failure}};
  if (!r.microseconds.empty()) j["tb_per_s"] = r.terabytes();
  if (copy > 0 && !r.microseconds.empty()) j["of_copy"] = r.terabytes() / copy;
  return j;
}

void run_prepare(const PrepareOptions& o) {
  DeviceRequest request;
  std::unique_ptr<Device> device;
  std::string note;
  const std::vector<PrepareJob> jobs = jobs_of(o);
  if (!parse_device_choice(o.device, &request.choice)) leave(exit_usage, "--device: auto, cuda or emulator");
  request.emulator.seed = o.emulator_seed;
  request.emulator.adversary_level = o.emulator_seed ? 2 : 1;
  watch_emulator(request.emulator);
  if (const Status s = open_device(request, &device, &note); !s.ok()) leave(exit_no_device, s.message);
  if (!note.empty()) std::cerr << note << "\n";
  const DeviceInfo& info = device->info();
  std::ofstream csv;
  if (!o.csv.empty()) {
    csv.open(o.csv);
    if (!csv) leave(exit_usage, "cannot write " + o.csv);
    csv << csv_head();
  }
  if (!o.json) std::cout << describe(info) << (info.is_emulator ? "; not timed: timing needs a GPU\n" : "\n");
  Json all = Json::array();
  double copy = 0;
  int wrong = 0;
  for (const PrepareJob& job : jobs) {
    PrepareRow row{job, "", "", 0, {}};
    if (info.is_emulator && job.kind == PrepareKind::copy) continue;
    check_prepare_job(*device, o.inputs, o.seed, &row);
    if (interrupted()) break;
    if (row.failure.empty() && !info.is_emulator) time_prepare_job(*device, o.repeats, &row);
    if (job.kind == PrepareKind::copy) copy = row.failure.empty() ? row.terabytes() : 0;
    wrong += !row.failure.empty();
    if (o.json) all.push_back(json_row(row, copy));
    else std::cout << line_of(row, copy) << std::flush;
    if (csv.is_open()) csv << csv_row(row, info, copy) << std::flush;
  }
  if (o.json) std::cout << Json{{"device", info.name}, {"driver", info.driver_text}, {"rows", all}}.dump(1) << "\n";
  if (interrupted()) leave(exit_interrupted, "");
  if (wrong > 0) leave(exit_mismatch, std::to_string(wrong) + " of " + std::to_string(jobs.size()) + " jobs gave no right result");
}

}  // namespace

void add_prepare(Command& app) {
  auto o = std::make_shared<PrepareOptions>();
  Command* c = app.add_subcommand("prepare", "FP8 operands: quantise, Hadamard, RoPE, transpose V; checked and timed");
  c->add_option("what", o->what, "quantize (behind --rope and --hadamard), hadamard, unhadamard, rope, transpose")
      ->check(one_of({"quantize", "hadamard", "unhadamard", "rope", "transpose"}))
      ->capture_default_str();
  c->add_flag("--sweep", o->sweep, "Every kind in place of `what`, for each head dim and seqlen");
  c->add_option("--device", o->device, "auto, cuda or emulator")->capture_default_str();
  c->add_option("--in", o->in, "bf16 or f16")->capture_default_str();
  c->add_option("--out", o->out, "e4m3 or e5m2")->capture_default_str();
  c->add_option("--scales", o->scales, "What shares a scale")->check(one_of({"tensor", "head", "block"}))->capture_default_str();
  c->add_option("--block-rows", o->block_rows, "Rows of a block")->check(range(1, 1 << 30))->capture_default_str();
  c->add_option("--fixed-scale", o->fixed_scale, "With --scales tensor: this scale; 0: from the data")->capture_default_str();
  c->add_flag("--hadamard", o->hadamard, "Random signs and Hadamard in front");
  c->add_flag("--transpose", o->transpose, "quantize: written as V^T (blocks of 128 rows)");
  c->add_option("--rope", o->rope)->check(one_of({"none", "interleaved", "half"}))->capture_default_str();
  c->add_option("--table", o->table, "Type of cos and sin")->check(one_of({"f32", "bf16"}))->capture_default_str();
  c->add_option("--position", o->position, "Line of cos and sin for row 0")->check(range(0, 1 << 30))->capture_default_str();
  c->add_flag("--table-prefetch", o->table_prefetch, "Blocks with rope: cos and sin are asked for together with x");
  c->add_option("--packed", o->packed, "rope and hadamard, then quantize: in pairs of bf16 where that was measured faster")
      ->check(one_of({"on", "off"}))
      ->capture_default_str();
  c->add_option("--heads-per-cta", o->heads_per_cta, "With rope: heads that a CTA does in turn; 0: the host's choice");
  c->add_option("--lanes", o->lanes, "With rope or hadamard: threads that share a row, 4 or 8; 0: as head_dim wants it")
      ->check(range(0, 8))
      ->capture_default_str();
  c->add_option("--threads", o->threads, "Blocks with them: threads of a CTA; 0: as the rows want it")
      ->check(range(0, 256))
      ->capture_default_str();
  c->add_option("--layout", o->layout)->check(one_of({"bshd", "bhsd"}))->capture_default_str();
  c->add_option("--head-dim", o->head_dims)->delimiter(',')->capture_default_str();
  c->add_option("--seqlen", o->seqlens)->delimiter(',')->capture_default_str();
  c->add_option("--tokens", o->tokens, "batch * seqlen")->capture_default_str();
  c->add_option("--hidden", o->hidden, "heads * head_dim")->capture_default_str();
  c->add_option("--inputs", o->inputs, "Of the check")->check(one_of(reference::prepare_inputs()))->capture_default_str();
  c->add_option("--seed", o->seed, "Of the inputs and the signs")->capture_default_str();
  c->add_option("--emulator-seed", o->emulator_seed, "0: round robin, else an adversary")->capture_default_str();
  c->add_option("--repeats", o->repeats, "Timed samples")->check(range(3, 1000))->capture_default_str();
  c->add_option("--csv", o->csv, "Write this file too");
  c->add_flag("--json", o->json, "JSON in place of the table");
  c->callback([o] { run_prepare(*o); });
}

}  // namespace flashptx
