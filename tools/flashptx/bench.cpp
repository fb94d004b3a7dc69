// The three modes, the rotation of buffers and the clock. Next: bench.h says why.
#include "tools/flashptx/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "tools/reference/numeric.h"

namespace flashptx {
namespace {

// Counts SM clocks against the global timer for about 100 us in one thread; out = {clocks, nanoseconds}.
constexpr const char* clock_ptx = R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry flashptx_clock(.param .u64 out)
{
  .reg .u64 %address, %c0, %c1, %t0, %t1;
  .reg .pred %again;
  ld.param.u64 %address, [out];
  mov.u64 %t0, %globaltimer;
  mov.u64 %c0, %clock64;
$SPIN:
  mov.u64 %c1, %clock64;
  sub.u64 %c1, %c1, %c0;
  setp.lt.u64 %again, %c1, 200000;
  @%again bra $SPIN;
  mov.u64 %t1, %globaltimer;
  mov.u64 %c1, %clock64;
  sub.u64 %c1, %c1, %c0;
  sub.u64 %t1, %t1, %t0;
  st.global.v2.u64 [%address], {%c1, %t1};
  ret;
}
)";

constexpr std::size_t most_sets = 16;

void append(const std::vector<float>& from, std::vector<float>* to) { to->insert(to->end(), from.begin(), from.end()); }

}  // namespace

const char* to_string(BenchMode mode) {
  return mode == BenchMode::burst ? "burst" : mode == BenchMode::interleaved ? "interleaved" : "sustained";
}

bool parse_bench_mode(const std::string& text, BenchMode* out) {
  for (BenchMode m : {BenchMode::burst, BenchMode::interleaved, BenchMode::sustained})
    if (text == to_string(m)) {
      *out = m;
      return true;
    }
  return false;
}

std::vector<BenchKernel> kernels_of_folder(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string extension = entry.path().extension();
    if ((extension == ".cubin" || extension == ".ptx") && entry.path().stem().string().rfind("attn_fwd_", 0) == 0)
      files.push_back(entry.path());
  }
  if (files.empty()) throw std::invalid_argument(folder + " holds no attn_fwd_*.cubin or .ptx");
  std::sort(files.begin(), files.end());
  std::vector<BenchKernel> out;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    std::string image{std::istreambuf_iterator<char>(in), {}};
    // An empty image would stand for the kernel as generated.
    if (image.empty()) throw std::invalid_argument(file.string() + " is empty or cannot be read");
    out.push_back({"file:" + file.string(), {file.stem().string(), std::move(image), {}}});
  }
  return out;
}

std::vector<reference::Problem> cells(const BenchGrid& grid) {
  std::vector<reference::Problem> out;
  for (DataType dtype : grid.dtypes)
    for (int dim : grid.head_dims)
      for (Mask mask : grid.masks)
        for (std::int64_t seqlen : grid.seqlens) {
          if (dim < 1 || grid.hidden % dim != 0)
            throw std::invalid_argument("hidden size " + std::to_string(grid.hidden) + " is not a multiple of head_dim " +
                                        std::to_string(dim));
          if (seqlen < 1 || grid.tokens % seqlen != 0)
            throw std::invalid_argument("tokens " + std::to_string(grid.tokens) + " is not a multiple of seqlen " +
                                        std::to_string(seqlen));
          reference::Problem p;
          p.dtype = dtype, p.mask = mask;
          if (p.eight_bit()) p.dtype_k = grid.dtype_k, p.dtype_v = grid.dtype_v;
          p.batch = grid.tokens / seqlen, p.heads_q = p.heads_kv = grid.hidden / dim;
          p.seqlen_q = p.seqlen_k = seqlen;
          p.head_dim = dim, p.head_dim_v = grid.head_dim_v ? grid.head_dim_v : dim;
          p.scale = 1 / std::sqrt(static_cast<float>(dim));
          out.push_back(p);
        }
  return out;
}

struct Bench::Contender {
  BenchRow* row = nullptr;
  std::unique_ptr<ForwardPlan> plan;
  std::unique_ptr<Fp8Plan> chain;  // in place of plan
  std::uint64_t workspace = 0;  // where V is transposed by a pass of its own, whose time counts; of the chain

  std::size_t workspace_bytes() const { return chain ? chain->workspace_bytes() : plan->workspace_bytes(); }
  const std::string& kernel() const { return chain ? chain->kernel_name() : plan->kernel_name(); }
};

Bench::Bench(Device& device, BenchOptions options)
    : device_(device), options_(std::move(options)), attention_(device) {
  // Without the clock the figures still stand; the column is then empty.
  if (!device_.load(clock_ptx, "flashptx_clock", 0, &clock_).ok()) clock_ = nullptr;
  if (clock_ != nullptr && !device_.allocate(16, &clock_out_).ok()) clock_out_ = 0;
}

Bench::~Bench() {
  free_buffers();
  if (clock_out_ != 0) device_.free(clock_out_);
  if (clock_ != nullptr) device_.unload(clock_);
}

void Bench::free_buffers() {
  for (const Set& s : sets_)
    for (std::uint64_t address : {s.q, s.k, s.v, s.o})
      if (address != 0) device_.free(address);
  sets_.clear();
}

// Enough copies of the tensors that a round of launches does not find its data in L2.
Status Bench::prepare_buffers(const reference::Problem& p) {
  const std::int64_t elements = std::max(p.batch * p.seqlen_q * p.heads_q * std::max(p.head_dim, p.head_dim_v),
                                         p.batch * p.seqlen_k * p.heads_kv * std::max(p.head_dim, p.head_dim_v));
  const auto bytes = static_cast<std::size_t>(elements * reference::bytes_of(p.dtype));
  const DataType types[] = {p.dtype, p.type_k(), p.type_v()};
  if (std::equal(types, types + 3, dtypes_) && bytes <= set_bytes_ && !sets_.empty()) return {};
  free_buffers();
  std::copy(types, types + 3, dtypes_);
  set_bytes_ = bytes;
  const std::size_t count = std::clamp<std::size_t>(2 * device_.info().l2_bytes / (4 * bytes) + 1, 1, most_sets);
  std::vector<std::uint8_t> data(bytes);
  for (int tensor = 0; tensor < 3; ++tensor) {
    constexpr std::int64_t chunk = 1 << 16;
    reference::parallel_for((elements + chunk - 1) / chunk, 0, [&](std::int64_t c) {
      for (std::int64_t i = c * chunk; i < std::min((c + 1) * chunk, elements); ++i)
        reference::store(types[tensor], data.data(), i,
                         reference::normal(3 * options_.seed + static_cast<std::uint64_t>(tensor),
                                           static_cast<std::uint64_t>(i)));
    });
    if (sets_.empty()) sets_.resize(count, Set{0, 0, 0, 0});
    for (Set& set : sets_) {
      std::uint64_t* address = tensor == 0 ? &set.q : tensor == 1 ? &set.k : &set.v;
      if (Status s = device_.allocate(bytes, address); !s.ok()) return s;
      if (Status s = device_.copy_to_device(*address, data.data(), bytes); !s.ok()) return s;
    }
  }
  for (Set& set : sets_)
    if (Status s = device_.allocate(p.eight_bit() ? 2 * bytes : bytes, &set.o); !s.ok()) return s;
  return {};
}

Status Bench::time_once(Contender& c, int warmup, int repeats) {
  std::vector<float> samples;
  const auto launch = [&] {
    const Set& set = sets_[next_set_++ % sets_.size()];
    if (c.chain) {
      Fp8Pointers at;
      at.q = set.q, at.k = set.k, at.v = set.v, at.o = set.o, at.workspace = c.workspace;
      return c.chain->run(at, nullptr);
    }
    ForwardPointers at;
    at.q = set.q, at.k = set.k, at.v = set.v, at.o = set.o, at.workspace = c.workspace;
    return c.plan->run(at, nullptr);
  };
  const Status s = device_.time(launch, warmup, repeats, nullptr, &samples);
  if (!s.ok()) c.row->note = s.message;
  append(samples, &c.row->milliseconds);
  return s;
}

double Bench::clock_mhz() {
  if (clock_ == nullptr || clock_out_ == 0) return 0;
  void* params[] = {&clock_out_};
  if (!device_.launch(clock_, LaunchDims{}, params, 1, nullptr).ok()) return 0;
  std::uint64_t counted[2] = {0, 0};
  if (!device_.synchronize(nullptr).ok()) return 0;
  if (!device_.copy_from_device(counted, clock_out_, sizeof counted).ok() || counted[1] == 0) return 0;
  return 1000.0 * static_cast<double>(counted[0]) / static_cast<double>(counted[1]);
}

void Bench::burst(std::vector<Contender>& contenders) {
  for (Contender& c : contenders) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    if (time_once(c, 5, options_.repeats).ok()) c.row->clock_mhz = clock_mhz();
  }
}

void Bench::interleaved(std::vector<Contender>& contenders) {
  const int rounds = std::max(1, options_.rounds);
  const int per_round = std::max(1, (options_.repeats + rounds - 1) / rounds);
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      // Odd rounds run backwards, so that no kernel always has the same neighbour in front of it.
      Contender& c = contenders[round % 2 == 0 ? i : contenders.size() - 1 - i];
      if (c.row->note.empty() && time_once(c, 2, per_round).ok()) c.row->clock_mhz = clock_mhz();
    }
}

void Bench::sustained(std::vector<Contender>& contenders) {
  using Clock = std::chrono::steady_clock;
  for (Contender& c : contenders) {
    const auto end = Clock::now() + std::chrono::duration<double>(options_.warm_seconds);
    Status s;
    while (s.ok() && Clock::now() < end) {
      s = time_once(c, 0, options_.repeats);
      c.row->milliseconds.clear();
    }
    if (s.ok() && time_once(c, 0, options_.repeats).ok()) c.row->clock_mhz = clock_mhz();
  }
}

void Bench::measure(std::vector<Contender>& contenders) {
  switch (options_.mode) {
    case BenchMode::burst: return burst(contenders);
    case BenchMode::interleaved: return interleaved(contenders);
    case BenchMode::sustained: return sustained(contenders);
  }
}

Status Bench::plan(const ForwardProblem& problem, const BenchKernel& kernel, Contender* out) {
  if (!kernel.chain) {
    ForwardProblem own = problem;
    own.fast = kernel.fast;
    return attention_.plan_forward(own, kernel.choice, &out->plan);
  }
  ForwardProblem sixteen_bit = problem;
  sixteen_bit.allow_workspace = false;  // the chain decides
  return plan_fp8_attention(attention_, sixteen_bit, *kernel.chain, kernel.choice, &out->chain);
}

Status Bench::run(const reference::Problem& p, const std::vector<BenchKernel>& kernels, std::vector<BenchRow>* rows) {
  if (Status s = prepare_buffers(p); !s.ok()) return s;
  ForwardProblem problem;
  problem.dtype = p.dtype, problem.dtype_k = p.dtype_k, problem.dtype_v = p.dtype_v, problem.mask = p.mask;
  problem.batch = p.batch, problem.heads_q = p.heads_q, problem.heads_kv = p.heads_kv;
  problem.seqlen_q = p.seqlen_q, problem.seqlen_k = p.seqlen_k;
  problem.head_dim = p.head_dim, problem.head_dim_v = p.head_dim_v;
  problem.softmax_scale = p.scale;
  problem.allow_workspace = true;
  problem.q = strides_bshd(p.seqlen_q, p.heads_q, p.head_dim);
  problem.k = strides_bshd(p.seqlen_k, p.heads_kv, p.head_dim);
  problem.v = strides_bshd(p.seqlen_k, p.heads_kv, p.head_dim_v);
  problem.o = strides_bshd(p.seqlen_q, p.heads_q, p.head_dim_v);
  std::vector<BenchRow> fresh(kernels.size());
  std::vector<Contender> contenders;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    fresh[i].problem = p;
    fresh[i].label = kernels[i].label;
    Contender c;
    c.row = &fresh[i];
    const Status s = plan(problem, kernels[i], &c);
    if (!s.ok()) {
      fresh[i].note = s.message;
      continue;
    }
    fresh[i].kernel = c.kernel();
    if (c.workspace_bytes() != 0)
      if (Status s2 = device_.allocate(c.workspace_bytes(), &c.workspace); !s2.ok()) return s2;
    contenders.push_back(std::move(c));
  }
  measure(contenders);
  const Status done = device_.synchronize(nullptr);
  for (const Contender& c : contenders)
    if (c.workspace != 0) device_.free(c.workspace);
  for (BenchRow& row : fresh)
    if (row.note.empty()) row.note = refuse_samples(row.milliseconds);
  rows->insert(rows->end(), fresh.begin(), fresh.end());
  return done;
}

}  // namespace flashptx
