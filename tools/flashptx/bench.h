// Times kernels over a grid of problems. Three modes, always named, because they answer different questions:
//   burst        one kernel after a rest: the card is cool and clocks high, as in most published figures
//   interleaved  several kernels in turns, round after round: the only fair comparison of two kernels
//   sustained    after seconds of the same work: what is left when the power limit holds
// Buffers are rotated past L2, and the SM clock is read by a kernel that runs right behind the timed ones.
// Next: bench.cpp; bench_command.cpp prints.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "host/attention.h"
#include "host/fp8_attention.h"
#include "tools/flashptx/statistics.h"
#include "tools/reference/attention.h"

namespace flashptx {

enum class BenchMode { burst, interleaved, sustained };
const char* to_string(BenchMode mode);
bool parse_bench_mode(const std::string& text, BenchMode* out);

struct BenchKernel {
  std::string label;      // as printed: the name, "host" for the host's choice, "file:PATH"
  ForwardChoice choice;
  std::optional<Fp8Options> chain = {};  // 16-bit problems: preparation and FP8 attention, all of it timed
  bool fast = false;      // ForwardProblem::fast, of 8-bit problems
};

// Every attn_fwd_*.cubin and .ptx of a folder, by name: the file's is the kernel's, the path its label. Refuses by
// exception a folder without any.
std::vector<BenchKernel> kernels_of_folder(const std::string& folder);

struct BenchGrid {
  std::vector<DataType> dtypes = {DataType::bf16};
  std::vector<int> head_dims = {64, 128, 256};
  std::vector<std::int64_t> seqlens = {512, 1024, 2048, 4096, 8192, 16384};
  std::vector<Mask> masks = {Mask::full, Mask::causal};
  std::int64_t tokens = 16384;  // batch = tokens / seqlen
  std::int64_t hidden = 2048;   // heads = hidden / head_dim
  int head_dim_v = 0;           // of V and O; 0: that of Q
  std::optional<DataType> dtype_k = {}, dtype_v = {};  // of K and V beside an 8-bit Q
};
// Shape, type, mask and scale of every cell; refuses by exception what does not divide.
std::vector<reference::Problem> cells(const BenchGrid& grid);

struct BenchOptions {
  BenchMode mode = BenchMode::burst;
  int repeats = 20;          // timed launches of a kernel, over all rounds
  int rounds = 5;            // interleaved
  double warm_seconds = 2;   // sustained
  std::uint64_t seed = 1;
  std::function<void(const std::string&)> progress;
};

struct BenchRow {
  reference::Problem problem;
  std::string label, kernel;     // kernel: the name that ran
  std::vector<float> milliseconds;
  double clock_mhz = 0;          // right behind the last launch; 0: not available
  std::string note;              // why there is no figure, or why it is doubtful

  Quartiles time() const { return quartiles(milliseconds); }
  bool has_figure() const { return !milliseconds.empty() && note.empty(); }
};

class Bench {
 public:
  Bench(Device& device, BenchOptions options);
  ~Bench();
  // Of the runs that follow.
  void set_samples(int rounds, int repeats) { options_.rounds = rounds, options_.repeats = repeats; }
  // All kernels on one problem: one row a kernel, in order.
  Status run(const reference::Problem& problem, const std::vector<BenchKernel>& kernels,
             std::vector<BenchRow>* rows);

 private:
  struct Set {
    std::uint64_t q, k, v, o;
  };
  struct Contender;
  Status plan(const ForwardProblem& problem, const BenchKernel& kernel, Contender* out);
  Status prepare_buffers(const reference::Problem& problem);
  Status time_once(Contender& contender, int warmup, int repeats);
  void measure(std::vector<Contender>& contenders);
  void burst(std::vector<Contender>& contenders);
  void interleaved(std::vector<Contender>& contenders);
  void sustained(std::vector<Contender>& contenders);
  double clock_mhz();
  void free_buffers();

  Device& device_;
  BenchOptions options_;
  Attention attention_;
  DataType dtypes_[3] = {DataType::f32, DataType::f32, DataType::f32};  // of the data in the buffers: Q, K, V
  std::size_t set_bytes_ = 0;       // of each of the four tensors
  std::vector<Set> sets_;
  std::size_t next_set_ = 0;
  LoadedKernel* clock_ = nullptr;
  std::uint64_t clock_out_ = 0;
};

}  // namespace flashptx
