// The emulator behind host/device.h: memory, modules, and grids spread over host threads.
//
// A launch runs at once and to its end. Clusters run in order on as many threads as there are
// cores; a kernel that hands out work by global atomics runs on one, so that a seed repeats
// exactly. Next: machine.h.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "host/emulator/decode.h"
#include "host/emulator/emulator.h"
#include "host/emulator/machine.h"
#include "host/emulator/stats.h"

namespace flashptx {

using namespace emulator;

namespace {

struct EmulatorKernel : LoadedKernel {
  Program program;
  std::uint32_t dynamic_limit = 0;
};

Status check_launch(const Program& p, const LaunchDims& d, std::uint32_t limit) {
  auto error = [&](const std::string& what) {
    return Status::error(StatusCode::invalid_argument, p.entry + ": " + what);
  };
  auto text = [](const std::uint32_t(&v)[3]) {
    return std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]);
  };
  std::uint64_t threads = 1, cluster = 1;
  for (int i = 0; i < 3; ++i) {
    if (!d.grid[i] || !d.block[i] || !d.cluster[i])
      return error("grid, block and cluster dimensions must be at least 1");
    if (i > 0 && d.grid[i] > 65535)
      return error("grid dimension " + std::to_string(d.grid[i]) + " in y or z is above 65535");
    if (d.grid[i] % d.cluster[i])
      return error("the cluster " + text(d.cluster) + " does not divide the grid " + text(d.grid));
    if (p.kernel.reqntid[0] && p.kernel.reqntid[i] != d.block[i])
      return error("block " + text(d.block) + " differs from .reqntid " + text(p.kernel.reqntid));
    if (p.kernel.reqnctapercluster[0] && p.kernel.reqnctapercluster[i] != d.cluster[i])
      return error("cluster " + text(d.cluster) + " differs from .reqnctapercluster " +
                   text(p.kernel.reqnctapercluster));
    threads *= d.block[i];
    cluster *= d.cluster[i];
  }
  if (threads > 1024)
    return error("block of " + std::to_string(threads) + " threads is above 1024");
  if (p.kernel.maxntid[0] && threads > std::uint64_t{p.kernel.maxntid[0]} *
                                           std::max(1u, p.kernel.maxntid[1]) *
                                           std::max(1u, p.kernel.maxntid[2]))
    return error("block of " + std::to_string(threads) + " threads is above .maxntid");
  if (cluster > 8) return error("cluster of " + std::to_string(cluster) + " CTAs is above 8");
  if (d.shared_bytes > limit)
    return error("dynamic shared memory of " + std::to_string(d.shared_bytes) +
                 " bytes is above the " + std::to_string(limit) + " given to load()");
  if (std::uint64_t{p.static_shared_bytes} + d.shared_bytes > shared_limit)
    return error("shared memory of " + std::to_string(p.static_shared_bytes + d.shared_bytes) +
                 " bytes is above " + std::to_string(shared_limit));
  return {};
}

class EmulatorDevice : public Device {
 public:
  explicit EmulatorDevice(const EmulatorOptions& o) : options_(o) {
    info_.name = "emulator";
    info_.is_emulator = true;
    info_.compute_capability = 90;
    info_.multiprocessors = o.multiprocessors > 0 ? o.multiprocessors : 132;
    info_.shared_bytes_per_block = shared_limit;
    info_.memory_bytes = std::size_t{16} << 30;
    info_.l2_bytes = std::size_t{50} << 20;
  }

  const DeviceInfo& info() const override { return info_; }

  Status load(const std::string& image, const std::string& entry, std::uint32_t dynamic,
              LoadedKernel** out) override {
    *out = nullptr;
    try {
      AstModule module = parse_ptx(image, entry.empty() ? "ptx" : entry + ".ptx");
      std::string name =
          entry.empty() && module.kernels.size() == 1 ? module.kernels[0].name : entry;
      auto kernel = std::make_unique<EmulatorKernel>();
      kernel->program = decode_program(
          module, name,
          [&](const AstVariable&, std::size_t bytes, const std::vector<std::uint8_t>& init) {
            std::uint64_t address = memory_.allocate(bytes);
            if (bytes) std::copy(init.begin(), init.end(), memory_.at(address, bytes, true));
            return address;
          });
      kernel->entry = name;
      kernel->dynamic_limit = dynamic;
      kernel->shared_bytes = kernel->program.static_shared_bytes;
      const auto& k = kernel->program.kernel;
      kernel->registers = k.reqntid[0] ? kernel->program.entry_registers(static_cast<int>(
                                             k.reqntid[0] * k.reqntid[1] * k.reqntid[2]))
                                       : 0;
      if (kernel->program.static_shared_bytes + std::uint64_t{dynamic} > shared_limit)
        return Status::error(
            StatusCode::invalid_argument,
            name + ": static and dynamic shared memory of " +
                std::to_string(kernel->program.static_shared_bytes + std::uint64_t{dynamic}) +
                " bytes is above " + std::to_string(shared_limit));
      *out = kernel.get();
      std::lock_guard lock(mutex_);
      kernels_.push_back(std::move(kernel));
      return {};
    } catch (const PtxError& e) {
      return Status::error(StatusCode::bad_ptx, e.what());
    }
  }
  void unload(LoadedKernel* kernel) override {
    std::lock_guard lock(mutex_);
    std::erase_if(kernels_, [&](auto& k) { return k.get() == kernel; });
  }

  Status allocate(std::size_t bytes, std::uint64_t* address) override {
    std::lock_guard lock(mutex_);
    if (bytes > info_.memory_bytes - memory_.used())
      return Status::error(StatusCode::out_of_memory,
                           "the emulator has no " + std::to_string(bytes) + " bytes left");
    *address = memory_.allocate(bytes);
    return *address ? Status{}
                    : Status::error(StatusCode::out_of_memory,
                                    "the host has no " + std::to_string(bytes) + " bytes left");
  }
  void free(std::uint64_t address) override {
    std::lock_guard lock(mutex_);
    memory_.release(address);
  }
  Status copy_to_device(std::uint64_t dst, const void* src, std::size_t bytes) override {
    std::uint8_t* p = memory_.at(dst, bytes, true);
    if (!p && bytes) return outside(dst, bytes);
    if (bytes) std::memcpy(p, src, bytes);
    return {};
  }
  Status copy_from_device(void* dst, std::uint64_t src, std::size_t bytes) override {
    std::uint8_t* p = memory_.at(src, bytes, false);
    if (!p && bytes) return outside(src, bytes);
    if (bytes) std::memcpy(dst, p, bytes);
    return {};
  }
  Status fill(std::uint64_t dst, std::uint8_t byte, std::size_t bytes, Stream) override {
    std::uint8_t* p = memory_.at(dst, bytes, true);
    if (!p && bytes) return outside(dst, bytes);
    if (bytes) std::memset(p, byte, bytes);
    return {};
  }
  Status encode(const TensorMapDesc& desc, TensorMap* out) override {
    if (Status s = check_tensor_map(desc); !s.ok()) return s;
    encode_map(from_desc(desc), out);
    return {};
  }

  Status launch(LoadedKernel* kernel, const LaunchDims& dims, void** params, int count,
                Stream) override {
    auto* k = static_cast<EmulatorKernel*>(kernel);
    if (Status s = check_launch(k->program, dims, k->dynamic_limit); !s.ok()) return s;
    if (count != static_cast<int>(k->program.params.size()))
      return Status::error(StatusCode::invalid_argument,
                           k->entry + ": has " + std::to_string(k->program.params.size()) +
                               " parameters, got " + std::to_string(count));
    GridInfo grid;
    grid.program = &k->program;
    grid.dims = dims;
    grid.options = options_;
    grid.memory = &memory_;
    grid.multiprocessors = static_cast<std::uint64_t>(info_.multiprocessors);
    grid.params.assign(k->program.param_bytes, 0);
    for (int i = 0; i < count; ++i) {
      const ParamInfo& p = k->program.params[static_cast<std::size_t>(i)];
      std::memcpy(&grid.params[p.offset], params[i], p.bytes);
    }
    return run(grid);
  }
  Status synchronize(Stream) override { return {}; }
  Status time(const std::function<Status()>&, int, int, Stream, std::vector<float>*) override {
    return Status::error(StatusCode::unsupported, "the emulator keeps no time");
  }

  const std::string& stats() const { return stats_; }
  const std::vector<std::uint64_t>& line_counts() const { return line_counts_; }

 private:
  static Status outside(std::uint64_t address, std::size_t bytes) {
    return Status::error(StatusCode::invalid_argument,
                         std::string("[") + std::to_string(address) + ", +" +
                             std::to_string(bytes) +
                             ") is not inside one allocation of this device");
  }

  // What the threads of one launch share.
  struct Launch {
    GridInfo& grid;
    std::uint32_t clusters[3];
    std::uint64_t total;
    std::atomic<std::uint64_t> next{0}, done{0}, instructions{0};
    // The first cluster in order that has a fault. Those before it run to their end, so that the
    // fault reported does not depend on how fast the threads are.
    std::atomic<std::uint64_t> fault_at{~std::uint64_t{0}};
    std::atomic<bool> cancelled{false};
    std::mutex mutex;
    std::condition_variable ended;
    unsigned running = 0;  // threads but the caller's
    std::string fault;
    Counters sum;
    std::chrono::steady_clock::time_point told = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    std::thread::id main = std::this_thread::get_id();

    explicit Launch(GridInfo& g) : grid(g), sum(empty_counters(g)) {
      for (int i = 0; i < 3; ++i) clusters[i] = g.dims.grid[i] / g.dims.cluster[i];
      total = std::uint64_t{clusters[0]} * clusters[1] * clusters[2];
    }
  };
  static Counters empty_counters(const GridInfo& grid) {
    Counters c;
    for (auto& e : c.executed) e.assign(grid.program->code.size(), 0);
    for (auto& e : c.conflicts) e.assign(grid.program->code.size(), 0);
    return c;
  }

  // Called by each thread within long clusters and after each; true: cluster `at` is of no use any
  // more. Only the caller's thread speaks to the caller.
  bool tick(Launch& l, std::uint64_t at, std::uint64_t instructions) const {
    l.instructions += instructions;
    if (std::this_thread::get_id() != l.main) return l.cancelled || at > l.fault_at;
    if (options_.cancelled && options_.cancelled()) l.cancelled = true;
    const auto now = std::chrono::steady_clock::now();
    if (options_.progress && now - l.told > std::chrono::seconds(1)) {
      l.told = now;
      options_.progress(l.grid.program->entry + ": " + std::to_string(l.done.load()) + " of " +
                        std::to_string(l.total) + " clusters, " +
                        std::to_string(l.instructions.load() / 1'000'000) + " million warp instructions");
    }
    return l.cancelled || at > l.fault_at;
  }

  void run_clusters(Launch& l) const {
    Counters counters = empty_counters(l.grid);
    GridInfo grid = l.grid;
    for (;;) {
      const std::uint64_t at = l.next++;
      if (at >= l.total || tick(l, at, 0)) break;
      grid.tick = [&](std::uint64_t instructions) { return tick(l, at, instructions); };
      const std::uint32_t id[3] = {static_cast<std::uint32_t>(at % l.clusters[0]),
                                   static_cast<std::uint32_t>(at / l.clusters[0] % l.clusters[1]),
                                   static_cast<std::uint32_t>(at / l.clusters[0] / l.clusters[1])};
      std::vector<std::unique_ptr<Observer>> checkers;
      if (options_.check_hazards) checkers = make_checkers(*l.grid.program);
      std::vector<Observer*> observers;
      for (auto& c : checkers) observers.push_back(c.get());
      try {
        Machine machine(grid, id, observers, &counters);
        machine.run();
      } catch (const Fault& f) {
        std::lock_guard lock(l.mutex);
        if (at < l.fault_at) l.fault_at = at, l.fault = f.what();
      } catch (const Cancelled&) {
        break;
      }
      ++l.done;
    }
    std::lock_guard lock(l.mutex);
    for (int r = 0; r < 3; ++r)
      for (std::size_t i = 0; i < l.sum.executed[r].size(); ++i) {
        l.sum.executed[r][i] += counters.executed[r][i];
        l.sum.conflicts[r][i] += counters.conflicts[r][i];
      }
  }

  Status run(GridInfo& grid) {
    Launch l(grid);
    unsigned threads = options_.threads > 0 ? static_cast<unsigned>(options_.threads)
                                            : std::max(1u, std::thread::hardware_concurrency());
    threads = static_cast<unsigned>(std::min<std::uint64_t>(threads, l.total));
    if (grid.program->uses_global_atomics) threads = 1;
    std::vector<std::thread> pool;
    l.running = threads - 1;
    for (unsigned t = 1; t < threads; ++t)
      pool.emplace_back([&] {
        run_clusters(l);
        std::lock_guard lock(l.mutex);
        --l.running;
        l.ended.notify_one();
      });
    run_clusters(l);
    for (std::unique_lock lock(l.mutex); l.running > 0;) {
      l.ended.wait_for(lock, std::chrono::milliseconds(100));
      lock.unlock();  // the caller's functions may take their time
      tick(l, l.total, 0);
      lock.lock();
    }
    for (auto& t : pool) t.join();
    stats_ = describe_counters(*grid.program, l.sum);
    line_counts_ = counts_by_line(*grid.program, l.sum);
    if (!l.fault.empty())
      return Status::error(
          StatusCode::launch_failed,
          l.fault + (options_.seed
                         ? "\n(seed " + std::to_string(options_.seed) + ", adversary level " +
                               std::to_string(options_.adversary_level) + ")"
                         : ""));
    if (l.cancelled)
      return Status::error(StatusCode::launch_failed,
                           grid.program->entry + ": interrupted after " + std::to_string(l.done.load()) +
                               " of " + std::to_string(l.total) + " clusters");
    return {};
  }

  EmulatorOptions options_;
  DeviceInfo info_;
  GlobalSpace memory_;
  std::vector<std::unique_ptr<EmulatorKernel>> kernels_;
  std::mutex mutex_;
  std::string stats_;
  std::vector<std::uint64_t> line_counts_;
};

}  // namespace

Status open_emulator(const EmulatorOptions& options, std::unique_ptr<Device>* out) {
  *out = std::make_unique<EmulatorDevice>(options);
  return {};
}

std::string emulator_stats(const Device& device) {
  auto* e = dynamic_cast<const EmulatorDevice*>(&device);
  return e ? e->stats() : "";
}

std::vector<std::uint64_t> emulator_line_counts(const Device& device) {
  auto* e = dynamic_cast<const EmulatorDevice*>(&device);
  return e ? e->line_counts() : std::vector<std::uint64_t>();
}

std::string emulator_limits() {
  return "no time, caches, clocks or occupancy: %clock64 and %globaltimer count instructions\n"
         "grids run one after the other; the clusters of one host thread too, so CTAs cannot wait "
         "for later CTAs; griddepcontrol finds the grid before it ended and orders nothing\n"
         "global memory is not checked for races, but for two bulk stores of a cluster to the same box; fences of global memory order nothing that "
         "is not ordered already\n"
         "of each four bytes of shared memory the last write and four reads are remembered: a fifth reader that nothing "
         "orders may replace one, and two warps that write different bytes of a word count as a race; between the "
         "lanes of one warp only arrivals and copies are checked\n"
         "an arrival by one lane tells what it did alone; of what it did together with others since their warp last came "
         "together it tells nothing: a false alarm then, which a bar.warp.sync ahead of it ends\n"
         "a wgmma is checked for its whole warpgroup when the last of its four warps has issued "
         "it, and one warp's wgmma.wait_group is taken to say that the products of all four have "
         "read their shared memory\n"
         "inside one instruction products are summed in float64; an FP8 accumulator is narrow only "
         "on request; approximate functions (ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh, div) are rounded from exacter "
         "values, not the hardware's bits\n"
         "registers are counted for setmaxnreg only; .pragma, line information, cache hints and prefetches change nothing\n"
         "wgmma.fence repeated after a branch (ptxas C7519) and other limits of ptxas are not "
         "asked for\n"
         "refused by name, with whatever else has no meaning here: .func calls, .local memory, textures, im2col copies, add.cc chains, st.async, "
         "red.async, mma.sync of integers below 8 bits, sparse matrices\n";
}

Status emulator_reprint(const std::string& text, const std::string& file, std::string* out) {
  try {
    *out = print_ptx(parse_ptx(text, file));
    return {};
  } catch (const PtxError& e) {
    return Status::error(StatusCode::bad_ptx, e.what());
  }
}

}  // namespace flashptx
