// `flashptx bench`: the grid of the FlashAttention-3 paper, or a chosen one, as a table, CSV or JSON.
// Next: bench.h explains the modes.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>

#include "tools/flashptx/bench.h"
#include "tools/flashptx/args.h"
#include "tools/flashptx/chain_options.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/config_options.h"
#include "tools/flashptx/json.h"
#include "tools/flashptx/problem_options.h"
#include "tools/flashptx/runner.h"
#include "tools/reference/numeric.h"

namespace flashptx {
namespace {

struct BenchCommand {
  std::string dtype_k, dtype_v;
  std::vector<std::string> kernels, schedules, dtypes = {"bf16"}, masks = {"full", "causal"};
  BenchGrid grid;
  BenchOptions bench;
  ChainOptions chain;
  std::vector<std::string> cubin_dirs;
  std::string mode = "burst", csv;
  bool json = false, fast = false;
  int ordinal = 0;
};

std::string utc_date() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

std::vector<BenchKernel> kernels_of(const BenchCommand& o) {
  std::vector<BenchKernel> out;
  for (const std::string& name : o.kernels)
    out.push_back({name, name == "host" ? ForwardChoice{} : ForwardChoice{name, "", {}}});
  for (const std::string& folder : o.cubin_dirs)
    for (BenchKernel& k : kernels_of_folder(folder)) out.push_back(std::move(k));
  if (out.empty()) out.push_back({"host", {}});
  const std::size_t kernels = o.schedules.empty() ? 0 : out.size();
  for (const std::string& s : o.schedules)
    for (std::size_t i = 0; i < kernels; ++i) {
      BenchKernel k = out[i];
      k.choice.schedule = schedule_or_leave(s);
      k.label += ":" + k.choice.schedule->name;
      out.push_back(k);
    }
  return out;
}

// What the chain's time holds, as its label says.
std::string chain_label(const Fp8Options& f, const char* from) {
  return std::string(from) + " in, everything timed: quantise Q, K, V; " + (f.hadamard_v ? "turn O back; " : "") +
         "attention (" + describe(f) + ")";
}

// With --dtype e4m3 or e5m2 and a recipe: cells of 16-bit tensors, where the 16-bit kernel and the whole chain run in
// turns. Cells of other types stay as they are.
struct ChainCells {
  std::vector<reference::Problem> problems;
  std::vector<std::optional<Fp8Options>> recipes;  // as many
};

ChainCells chain_cells(const BenchCommand& o) {
  ChainCells out;
  for (reference::Problem p : cells(o.grid)) {
    std::optional<Fp8Options> recipe;
    if (o.chain.given() && p.eight_bit()) recipe = fp8_from(o.chain, &p);
    out.problems.push_back(p), out.recipes.push_back(recipe);
  }
  return out;
}

// Of the kernels asked for, those made for this problem: a list of names may cover the whole grid.
std::vector<BenchKernel> fitting(const std::vector<BenchKernel>& kernels, const reference::Problem& p) {
  std::vector<BenchKernel> out;
  for (const BenchKernel& k : kernels) {
    KernelConfig config;
    std::string error;
    if (!k.choice.kernel.empty() && KernelConfig::parse(k.choice.kernel, &config, &error) &&
        (config.problem.dtype != p.dtype || config.problem.type_k() != p.type_k() ||
         config.problem.type_v() != p.type_v() || config.problem.mask != p.mask || config.problem.head_dim < p.head_dim ||
         config.problem.head_dim >= p.head_dim + 16))
      continue;
    out.push_back(k);
  }
  return out;
}

const char* csv_header =
    "date,device,driver,cuda,mode,label,kernel,dtype,mask,head_dim,batch,heads_q,heads_kv,seqlen_q,seqlen_k,"
    "samples,ms_q1,ms_median,ms_q3,tflops,sm_clock_mhz,note\n";

std::string without_commas(std::string s) {
  for (char& c : s)
    if (c == ',' || c == '\n' || c == '"') c = ';';
  return s;
}

std::string csv_row(const BenchRow& r, const DeviceInfo& info, const std::string& date, BenchMode mode) {
  const reference::Problem& p = r.problem;
  const Quartiles t = r.time();
  char text[1024];
  const std::string note = without_commas(r.note);
  std::snprintf(text, sizeof text, "%s,%s,%s,%d,%s,%s,%s,%s,%s,%d,%lld,%lld,%lld,%lld,%lld,%zu,", date.c_str(),
                info.name.c_str(), info.driver_text.c_str(), info.driver_version, to_string(mode), without_commas(r.label).c_str(),
                r.kernel.c_str(), to_string(p.dtype), to_string(p.mask), p.head_dim, static_cast<long long>(p.batch),
                static_cast<long long>(p.heads_q), static_cast<long long>(p.heads_kv),
                static_cast<long long>(p.seqlen_q), static_cast<long long>(p.seqlen_k), r.milliseconds.size());
  std::string row = text;
  if (r.has_figure())
    std::snprintf(text, sizeof text, "%.5f,%.5f,%.5f,%.2f,%.0f,", t.low, t.median, t.high,
                  flops(p) / t.median * 1e-9, r.clock_mhz);
  else
    std::snprintf(text, sizeof text, ",,,,,");
  return row + text + note + "\n";
}

void print_row(const BenchRow& r) {
  const reference::Problem& p = r.problem;
  std::printf("%-4s d%-3d %-6s s=%-6lld ", to_string(p.dtype), p.head_dim, to_string(p.mask),
              static_cast<long long>(p.seqlen_q));
  if (r.has_figure()) {
    const Quartiles t = r.time();
    std::printf("%7.1f TFLOP/s  %9.4f ms (%+.1f%% %+.1f%%)", flops(p) / t.median * 1e-9, t.median,
                100 * (t.low / t.median - 1), 100 * (t.high / t.median - 1));
    if (r.clock_mhz > 0) std::printf("  %4.0f MHz", r.clock_mhz);
  } else {
    std::printf("no figure: %s", r.note.c_str());
  }
  // The kernel's name does not say all of a chain or of a file.
  const bool more = r.label.find(" in, everything timed") != std::string::npos || r.label.rfind("file:", 0) == 0;
  std::printf("  %s\n", r.kernel.empty() ? r.label.c_str() : (r.kernel + (more ? "; " + r.label : "")).c_str());
  std::fflush(stdout);
}

Json json_row(const BenchRow& r, BenchMode mode) {
  const reference::Problem& p = r.problem;
  Json j{{"mode", to_string(mode)}, {"label", r.label}, {"kernel", r.kernel},
                           {"dtype", to_string(p.dtype)}, {"mask", to_string(p.mask)}, {"head_dim", p.head_dim},
                           {"batch", p.batch}, {"heads_q", p.heads_q}, {"heads_kv", p.heads_kv},
                           {"seqlen_q", p.seqlen_q}, {"seqlen_k", p.seqlen_k},
                           {"milliseconds", r.milliseconds}, {"note", r.note}};
  if (r.has_figure()) j["tflops"] = flops(p) / r.time().median * 1e-9;
  if (r.clock_mhz > 0) j["sm_clock_mhz"] = r.clock_mhz;
  return j;
}

void read_grid(BenchCommand& o) {
  o.grid.dtypes.clear(), o.grid.masks.clear();
  for (const std::string& text : o.dtypes) {
    DataType t{};
    if (!reference::parse_data_type(text, &t)) leave(exit_usage, "--dtype " + text + ": wanted f16, bf16, e4m3 or e5m2");
    o.grid.dtypes.push_back(t);
  }
  const auto own = [](const std::string& option, const std::string& text, std::optional<DataType>* type) {
    if (text.empty()) return;
    DataType t{};
    if (!reference::parse_data_type(text, &t) || (t != DataType::e4m3 && t != DataType::e5m2))
      leave(exit_usage, option + " " + text + ": wanted e4m3 or e5m2");
    *type = t;
  };
  own("--dtype-k", o.dtype_k, &o.grid.dtype_k), own("--dtype-v", o.dtype_v, &o.grid.dtype_v);
  for (const std::string& text : o.masks) o.grid.masks.push_back(text == "causal" ? Mask::causal : Mask::full);
  parse_bench_mode(o.mode, &o.bench.mode);
}

void run_bench(BenchCommand& o) {
  read_grid(o);
  if (o.chain.rope != "none") leave(exit_usage, "--rope is for `run`");
  if (o.chain.given() && std::none_of(o.grid.dtypes.begin(), o.grid.dtypes.end(), [](DataType t) {
        return t == DataType::e4m3 || t == DataType::e5m2;
      }))
    leave(exit_usage, "--scales, --block-rows, --hadamard and --hadamard-v are for --dtype e4m3 or e5m2");
  const ChainCells chain = chain_cells(o);
  const std::vector<reference::Problem>& problems = chain.problems;
  const auto kernels = kernels_of(o);
  DeviceRequest request;
  request.choice = DeviceChoice::cuda;  // the emulator keeps no time
  request.ordinal = o.ordinal;
  const auto device = open_or_leave(request);
  const DeviceInfo& info = device->info();
  const std::string date = utc_date();
  std::ofstream csv;
  if (!o.csv.empty()) {
    csv.open(o.csv);
    if (!csv) leave(exit_usage, "cannot write " + o.csv);
    csv << csv_header;
  }
  Bench bench(*device, o.bench);
  if (!o.json)
    std::printf("# %s; %s; mode %s; %d samples; %lld tokens, hidden %lld\n", date.c_str(), describe(info).c_str(),
                to_string(o.bench.mode), o.bench.repeats, static_cast<long long>(o.grid.tokens),
                static_cast<long long>(o.grid.hidden));
  Json all = Json::array();
  std::size_t done = 0;
  bool every_row = true;
  for (const reference::Problem& p : problems) {
    const std::optional<Fp8Options>& recipe = chain.recipes[done];
    if (isatty(STDERR_FILENO)) std::fprintf(stderr, "\r%zu of %zu \r", done, problems.size());
    ++done;
    std::vector<BenchKernel> contenders = fitting(kernels, p);
    if (o.fast && p.eight_bit()) contenders.push_back({"host, fast", {}, {}, true});
    if (recipe) contenders.push_back({chain_label(*recipe, to_string(p.dtype)), {}, recipe});
    if (recipe && o.fast) {
      Fp8Options fast = *recipe;
      fast.fast = true;
      contenders.push_back({chain_label(fast, to_string(p.dtype)), {}, fast});
    }
    std::vector<BenchRow> rows;
    const Status s = bench.run(p, contenders, &rows);
    for (const BenchRow& r : rows) {
      every_row &= r.has_figure();
      if (o.json) all.push_back(json_row(r, o.bench.mode));
      else print_row(r);
      if (csv.is_open()) csv << csv_row(r, info, date, o.bench.mode) << std::flush;
    }
    if (!s.ok()) leave(exit_mismatch, s.message);
  }
  if (o.json)
    std::cout << Json{{"date", date}, {"device", info.name}, {"driver", info.driver_text},
                                        {"cuda", info.driver_version}, {"rows", all}}.dump(1) << "\n";
  if (!every_row) leave(exit_mismatch, "some rows have no figure; their notes say why");
}

}  // namespace

void add_bench(Command& app) {
  auto options = std::make_shared<BenchCommand>();
  BenchCommand& o = *options;
  Command* c = app.add_subcommand("bench", "Time kernels over the FlashAttention-3 paper's grid or a chosen one");
  c->add_option("--kernel", o.kernels, "Kernel names, several in turns; `host` is the host's choice (default)");
  c->add_option("--schedule", o.schedules, "Each kernel also with this schedule, a built-in name or a file; may be repeated");
  c->add_option("--cubin-dir", o.cubin_dirs,
                "Also every attn_fwd_*.cubin (machine code as it is) or .ptx (the driver assembles it) of this folder, named as\n"
                "its kernel; several folders: the same kernels from several assemblers in turns. In 8 bit what a file holds starts\n"
                "behind V's transposition, a --kernel under it")
      ->check(existing_folder());
  c->add_option("--mode", o.mode, "burst (after a rest), interleaved (kernels in turns), sustained (at the power limit)")
      ->check(one_of({"burst", "interleaved", "sustained"}))
      ->capture_default_str();
  c->add_option("--dtype", o.dtypes)->delimiter(',')->capture_default_str();
  c->add_option("--dtype-k", o.dtype_k, "Of K where --dtype is e4m3 or e5m2: the other of them; the kernel's name says it");
  c->add_option("--dtype-v", o.dtype_v, "Of V, the same");
  add_chain_options(*c, o.chain);
  c->add_flag("--fast", o.fast, "e4m3, e5m2: also the host's choice in fast mode (more error), beside what runs without it");
  c->add_option("--head-dim", o.grid.head_dims)->delimiter(',')->capture_default_str();
  c->add_option("--head-dim-v", o.grid.head_dim_v, "Of V and O; default: that of Q and K");
  c->add_option("--seqlen", o.grid.seqlens)->delimiter(',')->capture_default_str();
  c->add_option("--mask", o.masks)->delimiter(',')->check(one_of({"full", "causal"}))->capture_default_str();
  c->add_option("--tokens", o.grid.tokens, "batch * seqlen")->capture_default_str();
  c->add_option("--hidden", o.grid.hidden, "heads * head_dim")->capture_default_str();
  c->add_option("--repeats", o.bench.repeats, "Timed launches of a kernel, over all rounds")->capture_default_str();
  c->add_option("--rounds", o.bench.rounds, "interleaved: rounds")->capture_default_str();
  c->add_option("--warm-seconds", o.bench.warm_seconds, "sustained: work before the samples")->capture_default_str();
  c->add_option("--ordinal", o.ordinal, "Which CUDA device")->capture_default_str();
  c->add_option("--csv", o.csv, "Write this file too");
  c->add_flag("--json", o.json, "JSON in place of the table");
  c->callback([options] { run_bench(*options); });
}

}  // namespace flashptx
