// A cluster of CTAs at work: warps, shared memory, barriers, asynchronous copies, and who runs
// next.
//
// One Machine runs one cluster on one host thread; a grid is many of them (grid.cpp). The machine
// does what the PTX ISA defines and, where it leaves an order open, what the seed chooses; it
// publishes events and judges only what cannot be executed at all (an address outside memory, a
// misaligned access, a trap). Next: machine.cpp (the loop), ops_*.cpp (the instructions), events.h.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "host/device.h"
#include "host/emulator/events.h"
#include "host/emulator/global_memory.h"
#include "host/emulator/program.h"

namespace flashptx::emulator {

struct Random {
  std::uint64_t state = 1;
  std::uint64_t next() {  // splitmix64
    std::uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  std::uint32_t below(std::uint32_t n) {
    return n ? static_cast<std::uint32_t>(next() >> 33) % n : 0;
  }
};

enum class Wait : std::uint8_t {
  none,
  barrier,
  mbarrier,
  cluster,
  wgmma,
  converge,
  bulk,
  cp_async,
  registers
};

struct Split {
  std::uint32_t pc = 0, mask = 0;
  Wait wait = Wait::none;
  bool timed_out = false;    // a suspended try_wait that must return false
  std::uint32_t key = 0;     // barrier id, mbarrier address, lanes to converge
  std::uint32_t parity = 0;  // or the phase's low bits for a state token
};

struct RegisterState {
  std::uint32_t defined = 0;
  std::uint8_t flags = 0;
  std::uint32_t last_d = 0, last_a = 0;  // sequence number + 1 of the last wgmma that uses it so
};
enum : std::uint8_t { in_flight_d = 1, in_flight_a = 2, touched = 4 };

struct CpAsync {  // one warp's cp.async groups; copies land at the wait or when the adversary likes
  std::uint64_t committed = 0, completed = 0;
};

struct Warp {
  Machine* machine = nullptr;
  Cta* cta = nullptr;
  int index = 0, id = 0;  // in the CTA; in the cluster
  std::uint32_t live = 0;
  std::vector<Split> splits;
  std::size_t current = 0;
  std::unique_ptr<std::uint8_t[]> registers;
  std::vector<RegisterState> state;
  const std::uint8_t* bases[2] = {nullptr, nullptr};
  const char* role = "";
  int role_index = 0;
  int register_count = 0;
  std::uint32_t executing = 0;  // lanes of the instruction that runs now
  bool wgmma_fenced = false;
  std::vector<std::uint32_t> refused;  // by pc: phase and mbarrier for which this wait has answered false already
  // wgmma of this warp's warpgroup: entries of Warpgroup seen so far
  std::uint32_t wgmma_next = 0, wgmma_committed = 0, wgmma_retired = 0;
  bool wgmma_open = false;
  std::uint64_t bulk_committed[32] = {}, bulk_completed[32] = {}, bulk_read[32] = {};
  bool bulk_open[32] = {};
  std::uint32_t cp_async_committed = 0;
  Split& now() { return splits[current]; }

  std::uint8_t* reg(const Operand& o) { return registers.get() + o.offset; }
  const std::uint8_t* in(const Operand& o) const { return bases[o.base] + o.offset; }
  std::uint32_t* u32(const Operand& o) { return reinterpret_cast<std::uint32_t*>(reg(o)); }
  const std::uint32_t* u32_in(const Operand& o) const {
    return reinterpret_cast<const std::uint32_t*>(in(o));
  }
  std::uint64_t get(const Operand& o, int lane) const {
    if (o.width == 8) return reinterpret_cast<const std::uint64_t*>(in(o))[lane];
    return u32_in(o)[lane];
  }
  std::uint32_t pred(const Operand& o) const { return o.negated ? ~*u32_in(o) : *u32_in(o); }
  void set(const Operand& o, int lane, std::uint64_t v) {
    if (o.width == 8) reinterpret_cast<std::uint64_t*>(reg(o))[lane] = v;
    else u32(o)[lane] = static_cast<std::uint32_t>(v);
  }
  void set_pred(const Operand& o, std::uint32_t mask, std::uint32_t v) {
    std::uint32_t& p = *u32(o);
    p = (p & ~mask) | (v & mask);
  }
};

struct Mbarrier {
  std::uint32_t address = 0;
  bool live = false;
  std::uint32_t expected = 0, pending = 0;
  std::int64_t tx = 0;
  std::uint64_t phase = 0;
};

struct NamedBarrier {
  std::uint32_t expected = 0, arrived = 0;  // threads; expected 0: idle
  std::uint32_t voted = 0;                  // bar.red: of them, those whose predicate is true
  std::uint8_t reduces = 0;                 // 1 + which reduction its users ask for, 1: none
};

struct WgmmaEntry {
  const Instr* instr = nullptr;
  std::uint64_t a_descriptor = 0, b_descriptor = 0;
  bool scale_d = false;
  std::uint8_t issued = 0;  // warps
  bool executed = false;
  std::uint32_t group = 0;
};

struct Warpgroup {
  std::deque<WgmmaEntry> entries;
  std::uint32_t first = 0;     // sequence number of entries[0]
  std::uint32_t executed = 0;  // sequence number of the first entry not executed
};

struct Cta {
  Machine* machine = nullptr;
  std::uint32_t rank = 0, id[3] = {};
  std::vector<std::uint8_t> shared;
  std::vector<Mbarrier> mbarriers;
  std::vector<std::uint16_t> mbarrier_index;  // by (address - origin) / 8: index + 1
  NamedBarrier barriers[16];
  std::vector<Warpgroup> warpgroups;
  std::vector<Warp*> warps;
  int live_warps = 0;
  int free_registers = 0;  // per-thread units of a warpgroup, returned by setmaxnreg.dec
  Mbarrier* mbarrier(std::uint32_t address) {
    std::uint32_t slot = (address - shared_origin) / 8;
    if (address < shared_origin || slot >= mbarrier_index.size() || !mbarrier_index[slot])
      return nullptr;
    return &mbarriers[mbarrier_index[slot] - 1u];
  }
};

// An asynchronous copy that has been issued and has not landed.
struct AsyncOp {
  enum class Kind : std::uint8_t {
    tensor_load,
    tensor_store,
    tensor_reduce,
    bulk_load,
    bulk_store,
    bulk_reduce,
    dsmem_copy,
    cp_async,
    cp_async_arrive
  };
  Kind kind = Kind::tensor_load;
  Warp* warp = nullptr;
  const Instr* instr = nullptr;
  int lane = 0;
  std::uint8_t map[128] = {};
  std::int32_t coordinates[5] = {};
  std::uint64_t global = 0;
  std::uint32_t shared = 0, bytes = 0, barrier = 0, cta_mask = 0, group = 0;
  std::uint32_t valid_bytes = 0;
  std::uint64_t phase_at_issue = 0;
  std::uint64_t order = 0;
  bool parted = false;     // land_part has had its say
  bool lazy = false;       // its writes to global memory come after all that need not wait for them
  bool read_done = false;  // out of shared memory: `source` was read, the writes are to come
  std::vector<std::uint8_t> source = {};
  std::uint32_t source_origin = 0;
  std::uint32_t landed_bytes = 0;  // into shared memory: there and signalled
};

struct GridInfo {
  const Program* program = nullptr;
  LaunchDims dims;
  std::vector<std::uint8_t> params;
  EmulatorOptions options;
  GlobalSpace* memory = nullptr;
  std::uint64_t multiprocessors = 132;
  // Called every tick_steps instructions of a cluster; true: stop, for the launch is over already.
  std::function<bool(std::uint64_t instructions)> tick;
};
constexpr std::uint64_t tick_steps = 1 << 18;
// Leaves Machine::run when tick says so.
struct Cancelled {};


// Executions, and bank passes beyond the ideal, by role (none, producer, consumer) and instruction.
struct Counters {
  std::vector<std::uint64_t> executed[3];
  std::vector<std::uint64_t> conflicts[3];
};

class Machine {
 public:
  Machine(const GridInfo& grid, const std::uint32_t (&cluster_id)[3],
          std::vector<Observer*> observers, Counters* counters);
  void run();  // throws Fault

  const GridInfo& grid;
  const Program& program;
  std::vector<std::unique_ptr<Cta>> ctas;
  std::vector<std::unique_ptr<Warp>> warps;
  std::deque<AsyncOp> pending;
  Random random;
  int level = 0;               // 0: early and round-robin
  std::uint64_t steps = 0;     // instructions so far, the machine's clock
  std::uint64_t progress = 0;  // counts things that can free a waiter
  Counters* counters = nullptr;
  std::uint32_t cluster_arrived = 0, cluster_phase = 0;
  std::vector<std::uint8_t> cluster_state;  // per warp: 0 idle, 1 arrived, 2 phase done

  // events
  void publish(Event& e) {
    e.machine = this;
    for (Observer* o : observers_) o->on_event(e);
  }
  void publish(EventKind kind, Warp& w, const Instr& in, std::uint32_t barrier = 0,
               std::uint64_t value = 0);
  bool observed() const { return !observers_.empty(); }
  [[noreturn]] void fault(const Warp& w, const Instr& in, int lane, const std::string& what);
  std::string where(const Warp& w, const Instr& in, int lane = -1) const;

  // memory
  std::uint8_t* shared_pointer(Warp& w, const Instr& in, int lane, std::uint32_t address,
                               std::uint32_t bytes, Cta** owner);
  std::uint8_t* pointer(Warp& w, const Instr& in, int lane, Space space, std::uint64_t address,
                        std::uint32_t bytes, bool write);
  Cta* cluster_cta(Warp& w, const Instr& in, int lane, std::uint32_t address, std::uint32_t* local);
  bool shared_window(std::uint64_t generic) const { return generic >> 40 == generic_shared >> 40; }

  // control
  bool converge(Warp& w, std::uint32_t required);  // false: the caller returns Step::blocked
  void exit_lanes(Warp& w, std::uint32_t mask, const Instr& in);
  void wake(Cta* cta, Wait kind, std::uint32_t key);
  void wake_warp(Warp& w, Wait kind);

  // mbarriers
  Mbarrier& mbarrier_at(Warp& w, const Instr& in, int lane, Cta& owner, std::uint32_t address);
  void mbarrier_arrive(Warp& w, const Instr& in, int lane, Cta& owner, Mbarrier& b,
                       std::uint32_t count);
  void mbarrier_expect(Warp& w, const Instr& in, int lane, Cta& owner, Mbarrier& b,
                       std::int64_t bytes);
  void mbarrier_check(Cta& owner, Mbarrier& b, Warp* w, const Instr* in);

  // asynchronous work
  void issue(AsyncOp op);
  bool land_part(AsyncOp& op);
  void land(AsyncOp& op);
  bool land_one(bool random_choice, bool forced);
  void execute_wgmma(Cta& cta, int warpgroup, std::uint32_t through);
  void complete_bulk(AsyncOp& op);
  std::string describe_stuck() const;

 private:
  void start_warp(Warp& w);
  bool runnable(const Warp& w) const;
  Warp* pick();
  void run_warp(Warp& w, int quantum);
  bool choose_split(Warp& w);
  void check_registers(Warp& w, const Instr& in, std::uint32_t mask);
  bool time_out_waiters();
  void watch();
  [[noreturn]] void livelock(const std::string& what);
  void merge(Warp& w);

  std::vector<Observer*> observers_;
  std::size_t last_ = 0;
  int idle_rounds_ = 0;
  std::uint64_t idle_progress_ = 0;
  std::uint64_t ticks_apart() const;
  std::uint64_t next_tick_ = tick_steps, ticked_ = 0;
  std::uint64_t last_progress_ = 0, progress_steps_ = 0;  // when `progress` last moved
  std::uint64_t async_order_ = 0;
  int live_warps_ = 0;
};

}  // namespace flashptx::emulator
