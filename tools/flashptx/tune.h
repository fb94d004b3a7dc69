// The tuner's parts: which configs there are, assembling them, timing them, and the table of
// winners.
//
// Each stage leaves its results in the work folder and reads those of the one before, so that a run
// can be stopped, taken up again, or moved to another machine between stages.
// Next: tune_space.cpp, tune_assemble.cpp, tune_time.cpp, tune_table.cpp, in this order.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gen/catalog.h"
#include "host/select.h"
#include "tools/flashptx/tune_files.h"
#include "tools/reference/attention.h"

namespace flashptx::tune {

// ---- Which configs

// One problem that is timed: queries and keys are equally many.
struct Cell {
  ProblemClass problem;
  std::int64_t seqlen = 0;
  bool fast = false;  // 8 bit: of fast mode, whose error is larger: such kernels compete only among themselves
};
bool same_class(const ProblemClass& a, const ProblemClass& b);
std::string text_of(const ProblemClass& c);  // "bf16 d128 full", "e4m3 d128 full vt"

struct Grid {
  std::vector<DataType> dtypes;
  std::vector<int> head_dims;
  std::vector<Mask> masks;
  std::vector<std::int64_t> seqlens;
  std::int64_t tokens = 16384, hidden = 2048;  // batch = tokens / seqlen, heads = hidden / head_dim
};
// 8 bit: once with V row by row and once with V^T, written by a pass that is timed with the kernel.
std::vector<ProblemClass> classes_of(const Grid& grid);
std::vector<Cell> cells_of(const Grid& grid, const ProblemClass& problem, bool fast = false);
// Rounded down where it does not divide, at least 1.
reference::Problem shape_of(const Grid& grid, const Cell& cell);

struct SpaceOptions {
  std::vector<Softmax> softmaxes = {Softmax::guarded, Softmax::lazy};
  std::vector<int> warpgroups, tile_kv;  // empty: all
  std::vector<std::string> schedules;    // empty: all
  int distance = -1;        // at most so many fields apart from a plan of today; -1: no limit
  bool everything = false;  // also what the exclusions leave out
  bool fast = false;        // 8 bit: kernels of fast mode (Plan::direct_of_16) in place of those without
  // Where the host would cut tiles (host/split_tail.h) depends on these.
  std::int64_t tokens = Grid{}.tokens, hidden = Grid{}.hidden;
  int multiprocessors = 132;
};

struct Candidate {
  KernelConfig config;
  int distance = 0;  // fields apart from the nearest plan of today
};
// One reason with how many configs it removed, and one of them.
struct Exclusion {
  std::string reason, example;
  int count = 0;
};
struct Space {
  std::vector<Candidate> candidates;  // nearest to today's plans first, then by name
  std::vector<Exclusion> excluded, illegal;
  int looked_at = 0;
  bool fast = false;
};
// Today's choices for `seqlens` are always candidates, whatever the options say.
Space enumerate(const ProblemClass& problem, const std::vector<std::int64_t>& seqlens,
                const SpaceOptions& options);
// What select_forward takes today; whether its tiles are cut is decided later, by the launch.
KernelConfig incumbent(const Cell& cell);
// Whether the host would cut the tiles of the last wave of this kernel (whatever its split_tail says).
bool host_cuts(const KernelConfig& config, const reference::Problem& shape, int multiprocessors);
// The name without _tail: what a row of the table can hold. A row is used without a workspace too.
std::string whole_kernel(const std::string& name);
// "" or why a legal config is not worth its time.
std::string not_worth_trying(const KernelConfig& config);

// ---- Assembling

struct AssembleReport {
  int kept = 0, dropped = 0, reused = 0;
  std::map<std::string, int> reasons;  // of the dropped
};
// Every candidate through ptxas on `jobs` threads; results go into the folder as they come. With
// `emulate` a kernel must also agree with float64 on the emulator: what deadlocks there would hang
// the GPU, and time on a core is the cheaper.
AssembleReport assemble_all(WorkFolder& work, const std::vector<Candidate>& candidates,
                            const std::string& ptxas, int jobs, bool emulate);
// "" or what is wrong with the kernel on a small odd problem, under random legal timing.
std::string emulator_doubts(const KernelConfig& config);
constexpr int emulated_rows = 333;  // of queries, in two heads
int emulated_multiprocessors(const KernelConfig& config);
// "13.0.88"; "" if the program does not say.
std::string assembler_version(const std::string& ptxas);
std::string text_hash(const std::string& ptx);

// ---- Timing

struct TimeOptions {
  double budget_seconds = 300;
  double batch_timeout_seconds = 60;  // a batch that takes longer hangs: the process ends
  std::string assembler;              // of the cubins; "": the newest in the folder
  bool jit = false;                   // what has no cubin goes through the driver's assembler
};
// Times all cells and verifies each winner; the log is the result.
Status time_cells(Device& device, WorkFolder& work, const Grid& grid,
                  const std::vector<std::pair<ProblemClass, Space>>& spaces,
                  const TimeOptions& options);

// ---- The table

struct Winner {
  Cell cell;
  std::string kernel, runner_up, today;                       // none with _tail
  double tflops = 0, runner_up_tflops = 0, today_tflops = 0;  // 0: not in the last round; with cut tiles where the host cuts
  double whole_tflops = 0, cut_tflops = 0;                    // of the kernel; 0: not timed
  std::string source;                                         // device, driver, assembler, date
  std::string problem;                                        // why there is no winner
};
// From the log's last stage: the fastest verified kernel; today's choice stays unless the gain is
// more than `min_gain` (0.005 = half a percent). A kernel whose tiles the host would cut here counts with them cut, for so
// it would run.
Winner winner_of(const std::vector<Timing>& log, const Cell& cell, const std::string& today,
                 double min_gain);

// A row that owns its strings.
struct TableRow {
  DataType dtype = DataType::bf16;
  Mask mask = Mask::full;
  int head_dim_min = 1, head_dim_max = 256;
  std::int64_t seqlen_min = 1, seqlen_max = INT64_MAX;
  std::string kernel, runner_up, source;
  std::int64_t measured_seqlen = 0;
  double tflops = 0, runner_up_tflops = 0;
  bool v_transposed = false;
};
std::vector<TableRow> rows_of_today();  // host/select_table.inc as compiled in
std::vector<TableRow> rows_of_rules();  // host/select.cpp's plain rules, unmeasured
// Winners replace all rows of their class, those of fast mode none: the host takes fast_words of the row's kernel. Ranges are drawn anew: a size between two measured ones
// goes to the nearer by ratio, a head dimension to the next larger one of its bucket.
std::vector<TableRow> merge(std::vector<TableRow> rows, const std::vector<Winner>& winners);
std::string table_text(const std::vector<TableRow>& rows);

}  // namespace flashptx::tune
