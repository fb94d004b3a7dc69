// `flashptx tune`: finds the fastest kernel of each class and writes the host's table.
// Next: tune.h lists the stages.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <thread>

#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/sass.h"
#include "tools/flashptx/session.h"
#include "tools/flashptx/tune.h"
#include "tools/reference/numeric.h"

namespace flashptx {
namespace {

using namespace tune;

struct TuneCommand {
  std::vector<std::string> dtypes = {"bf16"}, masks = {"full", "causal"},
                           softmaxes = {"guarded", "lazy"};
  std::vector<std::string> stages;
  Grid grid;
  SpaceOptions space;
  TimeOptions time;
  std::string work = "build/tune", table = "host/select_table.inc", ptxas;
  int jobs = 0, ordinal = 0;
  double min_gain_percent = 0.5;
  bool dry_run = false, no_emulator = false, quick = false, from_rules = false;

  bool wants(const char* stage) const {
    return stages.empty() || std::find(stages.begin(), stages.end(), stage) != stages.end();
  }
};
using Spaces = std::vector<std::pair<ProblemClass, Space>>;

void read_options(TuneCommand& o) {
  for (const std::string& text : o.dtypes) {
    DataType t{};
    if (!reference::parse_data_type(text, &t))
      leave(exit_usage, "--dtype " + text + ": wanted f16, bf16, e4m3 or e5m2");
    o.grid.dtypes.push_back(t);
  }
  for (const std::string& text : o.masks)
    o.grid.masks.push_back(text == "causal" ? Mask::causal : Mask::full);
  o.space.softmaxes.clear();
  for (const std::string& text : o.softmaxes)
    for (Softmax s : {Softmax::plain, Softmax::lazy, Softmax::guarded})
      if (text == to_string(s)) o.space.softmaxes.push_back(s);
  if (o.quick) o.space.distance = 1;
  o.space.tokens = o.grid.tokens, o.space.hidden = o.grid.hidden;
  if (o.space.fast && (o.from_rules || std::any_of(o.grid.dtypes.begin(), o.grid.dtypes.end(), [](DataType t) {
                         return t == DataType::f16 || t == DataType::bf16;
                       })))
    leave(exit_usage, "--fast is for --dtype e4m3 or e5m2 alone, and not for --from-rules");
  for (int d : o.grid.head_dims)
    if (d < 16 || d > 256 || d % 16 != 0)
      leave(exit_usage,
            "--head-dim " + std::to_string(d) + ": wanted a multiple of 16 in [16, 256]");
  for (std::int64_t s : o.grid.seqlens)
    if (s < 1) leave(exit_usage, "--seqlen " + std::to_string(s) + ": wanted at least 1");
}

void print_reasons(const char* what, std::vector<Exclusion> list) {
  std::sort(list.begin(), list.end(),
            [](const Exclusion& a, const Exclusion& b) { return a.count > b.count; });
  for (const Exclusion& e : list)
    std::printf("  %-9s %6d  %s\n                    e.g. %s\n", what, e.count, e.reason.c_str(),
                e.example.c_str());
}

Spaces run_enumerate(const TuneCommand& o) {
  Spaces out;
  for (const ProblemClass& c : classes_of(o.grid)) {
    Space space = enumerate(c, o.grid.seqlens, o.space);
    std::printf("%s%s: %d plans looked at, %zu candidates\n", text_of(c).c_str(), space.fast ? " fast" : "",
                space.looked_at, space.candidates.size());
    if (o.dry_run || o.stages.size() == 1) {
      print_reasons("illegal", space.illegal);
      print_reasons("excluded", space.excluded);
    }
    if (o.dry_run)
      for (const Candidate& k : space.candidates)
        std::printf("  %d apart   %s\n", k.distance, k.config.name().c_str());
    out.push_back({c, std::move(space)});
  }
  return out;
}

void run_assemble(const TuneCommand& o, WorkFolder& work, const Spaces& spaces) {
  const std::string ptxas = o.ptxas.empty() ? sass::find_tools().ptxas : o.ptxas;
  if (ptxas.empty()) {
    std::printf(
        "assemble: no ptxas found; nothing assembled (--jit lets the driver do it while timing)\n");
    return;
  }
  const int jobs =
      o.jobs > 0 ? o.jobs : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::size_t all = 0;
  for (const auto& [problem, space] : spaces) all += space.candidates.size();
  std::printf("assemble: ptxas %s, %d at a time, %zu candidates of some tenths of a second each; what is done when it is stopped is kept\n",
              assembler_version(ptxas).c_str(), jobs, all);
  for (const auto& [problem, space] : spaces) {
    const AssembleReport r = assemble_all(work, space.candidates, ptxas, jobs, !o.no_emulator);
    std::printf("%s: %d kept, %d dropped; %d of them known before\n", text_of(problem).c_str(),
                r.kept, r.dropped, r.reused);
    for (const auto& [reason, count] : r.reasons)
      std::printf("  dropped %5d  %s\n", count, reason.c_str());
  }
}

void run_time(const TuneCommand& o, WorkFolder& work, const Spaces& spaces) {
  std::unique_ptr<Device> device;
  Status s = open_cuda_device(o.ordinal, &device);
  if (s.ok()) {
    std::printf("# %s; %s\n", utc_date().c_str(), describe(device->info()).c_str());
    s = time_cells(*device, work, o.grid, spaces, o.time);
    if (!s.ok()) leave(exit_mismatch, s.message);
    return;
  }
  if (s.code != StatusCode::no_device) leave(exit_no_device, s.message);
  if (!o.stages.empty()) leave(exit_no_device, "time: " + s.message);
  std::printf("time: no GPU, nothing timed or verified (%s)\n", s.message.c_str());
}

void print_winner(const Winner& w) {
  std::printf("%-16s s=%-6lld ", (text_of(w.cell.problem) + (w.cell.fast ? " fast" : "")).c_str(),
              static_cast<long long>(w.cell.seqlen));
  if (!w.problem.empty()) {
    std::printf("%s\n", w.problem.c_str());
    return;
  }
  std::printf("%6.1f TFLOP/s  %s\n", w.tflops, w.kernel.c_str());
  if (w.cut_tflops > 0 && w.whole_tflops > 0)
    std::printf("%27stiles of the last wave cut: %.1f, whole: %.1f (%+.1f %%)\n", "", w.cut_tflops, w.whole_tflops,
                100 * (w.cut_tflops / w.whole_tflops - 1));
  if (!w.runner_up.empty())
    std::printf("%27s%6.1f          %s\n", "", w.runner_up_tflops, w.runner_up.c_str());
  if (w.kernel != w.today)
    std::printf("%27s%6.1f  today   %s\n", "", w.today_tflops, w.today.c_str());
}

void run_write(const TuneCommand& o, const WorkFolder& work) {
  std::vector<TableRow> rows = o.from_rules ? rows_of_rules() : rows_of_today();
  std::vector<Winner> winners;
  std::size_t measured = 0;
  if (!o.from_rules)
    for (const ProblemClass& c : classes_of(o.grid))
      for (const Cell& cell : cells_of(o.grid, c, o.space.fast)) {
        winners.push_back(
            winner_of(work.timings(), cell, incumbent(cell).name(), o.min_gain_percent / 100));
        measured += winners.back().kernel.empty() ? 0 : 1;
        print_winner(winners.back());
      }
  if (o.space.fast) {
    std::printf("write: fast mode has no rows, the host takes %d (causal %d) of 16 words of each row's kernel; %s stays as it is\n",
                fast_words, fast_words_causal, o.table.c_str());
    return;
  }
  if (measured == 0 && !o.from_rules) {
    std::printf("write: no winner in %s/timings.csv; %s stays as it is\n", work.path().c_str(),
                o.table.c_str());
    return;
  }
  rows = merge(std::move(rows), winners);
  write_file(o.table, table_text(rows));
  std::printf("write: %zu rows, %zu of them measured now, in %s; build again to use them\n",
              rows.size(), measured, o.table.c_str());
}

void run_tune(TuneCommand& o) {
  read_options(o);
  if (o.dry_run) {
    run_enumerate(o);
    std::printf("dry run: nothing assembled, timed or written\n");
    return;
  }
  const bool needs_space = o.wants("enumerate") || o.wants("assemble") || o.wants("time");
  const Spaces spaces = needs_space && !o.from_rules ? run_enumerate(o) : Spaces{};
  if (!o.wants("assemble") && !o.wants("time") && !o.wants("write")) return;
  WorkFolder work(o.work);
  if (o.wants("assemble") && !o.from_rules) run_assemble(o, work, spaces);
  if (o.wants("time") && !o.from_rules) run_time(o, work, spaces);
  if (o.wants("write")) run_write(o, work);
}

void add_space_options(Command& c, TuneCommand& o) {
  c.add_option("--dtype", o.dtypes, "f16, bf16, e4m3, e5m2")->delimiter(',')->capture_default_str();
  c.add_option("--head-dim", o.grid.head_dims, "Of Q, K and V")
      ->delimiter(',')
      ->capture_default_str();
  c.add_option("--mask", o.masks)
      ->delimiter(',')
      ->check(one_of({"full", "causal"}))
      ->capture_default_str();
  c.add_option("--seqlen", o.grid.seqlens, "Queries and keys")
      ->delimiter(',')
      ->capture_default_str();
  c.add_option("--tokens", o.grid.tokens, "batch = tokens / seqlen")
      ->check(range(1, 1 << 30))
      ->capture_default_str();
  c.add_option("--hidden", o.grid.hidden, "heads = hidden / head_dim")
      ->check(range(1, 1 << 30))
      ->capture_default_str();
  c.add_option("--softmax", o.softmaxes, "plain alone gives the table at equal error")
      ->delimiter(',')
      ->check(one_of({"plain", "lazy", "guarded"}))
      ->capture_default_str();
  c.add_option("--warpgroups", o.space.warpgroups, "Only these")->delimiter(',');
  c.add_option("--tile-kv", o.space.tile_kv, "Only these")->delimiter(',');
  c.add_option("--schedule", o.space.schedules, "Only these")->delimiter(',');
  c.add_option("--distance", o.space.distance,
               "Only plans at most so many fields apart from one of today");
  c.add_flag("--quick", o.quick, "The same as --distance 1");
  c.add_flag("--everything", o.space.everything, "Also what the exclusions leave out");
  c.add_flag("--fast", o.space.fast, "8 bit: the kernels of fast mode (more error) in place of those without; reported, no rows");
}

}  // namespace

void add_tune(Command& app) {
  auto options = std::make_shared<TuneCommand>();
  TuneCommand& o = *options;
  o.grid.head_dims = {64, 128, 256};
  o.grid.seqlens = {512, 1024, 2048, 4096, 8192, 16384};
  Command* c = app.add_subcommand(
      "tune", "Find the fastest kernel of each class and write the host's table");
  add_space_options(*c, o);
  c->add_option("--stages", o.stages,
                "enumerate, assemble, time, write; default: all. The work folder carries over")
      ->delimiter(',')
      ->check(one_of({"enumerate", "assemble", "time", "write"}));
  c->add_option("--work", o.work, "Folder of cubins and logs; a run goes on from what it holds")
      ->capture_default_str();
  c->add_option("--table", o.table, "The file to write")->capture_default_str();
  c->add_option("--budget", o.time.budget_seconds, "Seconds of GPU time, shared by the cells")
      ->capture_default_str();
  c->add_option("--batch-timeout", o.time.batch_timeout_seconds, "A batch that takes longer hangs")
      ->capture_default_str();
  c->add_option("--ptxas", o.ptxas, "Assembler; default: as `sass` finds it");
  c->add_option("--assembler", o.time.assembler,
                "Version of the cubins to time; default: the newest in the folder");
  c->add_flag("--jit", o.time.jit, "Time also what has no cubin, assembled by the driver");
  c->add_option("--jobs", o.jobs, "Assemblers at a time; default: one a core");
  c->add_flag("--no-emulator", o.no_emulator,
              "Do not run what was assembled on the emulator first");
  c->add_option("--min-gain", o.min_gain_percent,
                "Percent; today's choice stays unless the gain is larger")
      ->capture_default_str();
  c->add_option("--ordinal", o.ordinal, "Which CUDA device")->capture_default_str();
  c->add_flag("--dry-run", o.dry_run,
              "List what would be tried and what is left out, with reasons");
  c->add_flag("--from-rules", o.from_rules,
              "Write the table from the plain rules of host/select.cpp, unmeasured");
  c->callback([options] { run_tune(*options); });
}

}  // namespace flashptx
