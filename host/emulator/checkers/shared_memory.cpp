// Shared memory: who may touch a byte when. A happens-before race detector with proxies.
//
// Every warp, every warpgroup's wgmma pipeline, every mbarrier's copies and every warp's bulk
// stores are agents with a clock. A warp knows how far it is ordered after each agent; arrivals
// publish that knowledge, waits join it (vector clocks, as in FastTrack, PLDI 2009). A word
// remembers its last write and the reads since. An access not ordered after a conflicting one is a
// hazard in any schedule, not only in the one that ran. Generic writes are visible to the async
// proxy only after fence.proxy.async by the writer (PTX ISA, "Async proxy").
//
// What one lane does alone is an agent of its own: its arrival is behind it in program order, whatever the warp's other
// lanes have done since the warp last came together, which that arrival does not publish. One such lane a warp between two meetings
// of the warp; what a second lane does alone counts as the warp's. Next: progress.cpp.
#include <algorithm>
#include <cstring>

#include "host/emulator/checkers/checker.h"

namespace flashptx::emulator {
namespace {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

struct Clock {
  std::vector<u32> seen, fenced;  // by agent
  void grow(std::size_t n) {
    if (seen.size() < n) seen.resize(n), fenced.resize(n);
  }
  void join(const Clock& o) {
    grow(o.seen.size());
    for (std::size_t i = 0; i < o.seen.size(); ++i) {
      seen[i] = std::max(seen[i], o.seen[i]);
      fenced[i] = std::max(fenced[i], o.fenced[i]);
    }
  }
};

struct Access {
  u32 clock = 0;  // 0: none
  u16 agent = 0, pc = 0;
};
constexpr int kept_reads = 4;
struct Cell {
  Access write;
  Access reads[kept_reads];
  bool generic = false;  // last write through the generic proxy
  bool barrier = false;  // part of a live mbarrier
};

enum class AgentKind : std::uint8_t { warp, wgmma, bulk, cp_async, mbarrier };
struct Agent {
  AgentKind kind;
  const Warp* warp = nullptr;  // or the first of a warpgroup
  u32 barrier = 0;
  bool needs_fence = false;
};

struct Barrier {
  u16 agent = 0;
  Clock gathering, done;
  const Warp* initialiser = nullptr;
  u32 init_clock = 0;
  bool init_fenced = false;
};

class SharedMemoryChecker : public Checker {
 public:
  SharedMemoryChecker(const History& h, const Program& program) : Checker(h), program_(program) {}

  void on_event(const Event& e) override {
    if (agents_.empty()) start(*e.machine);
    switch (e.kind) {
      case EventKind::shared_access:
        shared_access(e);
        break;
      case EventKind::async_load:
        async_load(e);
        break;
      case EventKind::async_store:
        async_store(e);
        break;
      case EventKind::cp_async:
        cp_async(e);
        break;
      case EventKind::wgmma_read:
        wgmma_read(e);
        break;
      case EventKind::warp_sync:
        warp_sync(*e.warp);
        break;
      case EventKind::barrier_arrive:
        warp_sync(*e.warp);
        release(*e.warp, named_[key(e)]);
        break;
      case EventKind::barrier_complete: {
        Barrier& b = named_[key(e)];
        b.done = b.gathering;
        b.gathering = {};
        break;
      }
      case EventKind::barrier_resume:
        clock(*e.warp).join(named_[key(e)].done);
        break;
      case EventKind::cluster_arrive:
        warp_sync(*e.warp);
        release(*e.warp, cluster_);
        break;
      case EventKind::cluster_complete:
        cluster_.done = cluster_.gathering;
        cluster_.gathering = {};
        break;
      case EventKind::cluster_resume:
        clock(*e.warp).join(cluster_.done);
        break;
      case EventKind::mbarrier_init:
        init(e);
        break;
      case EventKind::mbarrier_invalidate:
        mark_barrier(*e.cta, e.barrier, false);
        break;
      case EventKind::mbarrier_arrive:
        if (Barrier* b = known(e)) {
          if (e.instr->text.rfind("cp.async.mbarrier", 0) == 0)
            b->gathering.grow(agents_.size()),
                b->gathering.seen[cp_agent(*e.warp)] = e.warp->cp_async_committed + 1;
          else
            release(*e.warp, *b, unsynced_lanes_[static_cast<std::size_t>(e.warp->id)] & ~e.lanes);
        }
        break;
      case EventKind::mbarrier_phase:
        if (Barrier* b = known(e)) {
          b->done.join(b->gathering);
          b->done.grow(agents_.size());
          b->done.seen[b->agent] = static_cast<u32>(e.value) + 1;
        }
        break;
      case EventKind::mbarrier_waited:
        if (Barrier* b = known(e)) {
          init_ordered(e, *b);
          clock(*e.warp).join(b->done);
        }
        break;
      case EventKind::bulk_waited: {
        // The lane that waited knows; its warp does once it has come together.
        BulkWait& b = bulk_waits_[static_cast<std::size_t>(e.warp->id)];
        b.groups = std::max(b.groups, static_cast<u32>(e.value));
        b.lanes |= 1u << e.lane;
        break;
      }
      case EventKind::cp_async_waited:
        raise(*e.warp, cp_agent(*e.warp), static_cast<u32>(e.value));
        break;
      case EventKind::wgmma_waited:
        raise(*e.warp, wgmma_agent(*e.warp), static_cast<u32>(e.value));
        break;
      case EventKind::fence_proxy_async: {
        Clock& c = clock(*e.warp);
        u16 self = static_cast<u16>(e.warp->id);
        unfenced_lanes_[self] &= ~e.lanes;
        fencing_lanes_[self] |= e.lanes;
        if (!unfenced_lanes_[self]) c.fenced[self] = c.seen[self];
        Alone& a = alone_[self];
        a.fencing |= a.unfenced & e.lanes;
        a.unfenced &= ~e.lanes;
        if (!a.unfenced) c.fenced[alone_agent(*e.warp)] = c.seen[self];
        tick(*e.warp);
        for (auto& [k, b] : barriers_)
          if (b.initialiser == e.warp) b.init_fenced = true;
        break;
      }
      case EventKind::fence_mbarrier_init:
        for (auto& [k, b] : barriers_)
          if (b.initialiser == e.warp) b.init_fenced = true;
        break;
      default:
        break;
    }
  }

 private:
  void start(Machine& m) {
    std::size_t warps = m.warps.size();
    for (auto& w : m.warps) agents_.push_back({AgentKind::warp, w.get(), 0, false});
    for (auto& w : m.warps)
      agents_.push_back({AgentKind::wgmma, w.get(), 0, false});  // one a warp, the first counts
    for (auto& w : m.warps) agents_.push_back({AgentKind::bulk, w.get(), 0, false});
    for (auto& w : m.warps) agents_.push_back({AgentKind::cp_async, w.get(), 0, false});
    for (auto& w : m.warps) agents_.push_back({AgentKind::warp, w.get(), 0, false});  // one lane alone
    warps_ = warps;
    clocks_.resize(warps);
    alone_.resize(warps);
    unfenced_lanes_.assign(warps, 0);
    unsynced_lanes_.assign(warps, 0);
    synced_.assign(warps, 0);
    synced_fence_.assign(warps, 0);
    fencing_lanes_.assign(warps, 0);
    bulk_waits_.resize(warps);
    for (std::size_t i = 0; i < warps; ++i) {
      clocks_[i].grow(agents_.size());
      clocks_[i].seen[i] = clocks_[i].seen[4 * warps + i] = 1;
    }
    cells_.resize(m.ctas.size());
    for (std::size_t i = 0; i < m.ctas.size(); ++i)
      cells_[i].resize(m.ctas[i]->shared.size() / 4 + 4);
  }

  u64 key(const Event& e) const { return u64{e.cta->rank} << 32 | e.barrier; }
  Clock& clock(const Warp& w) {
    Clock& c = clocks_[static_cast<std::size_t>(w.id)];
    c.grow(agents_.size());
    return c;
  }
  u16 wgmma_agent(const Warp& w) const {
    return static_cast<u16>(warps_ + static_cast<std::size_t>(w.id - w.index % 4));
  }
  u16 bulk_agent(const Warp& w) const {
    return static_cast<u16>(2 * warps_ + static_cast<std::size_t>(w.id));
  }
  u16 cp_agent(const Warp& w) const {
    return static_cast<u16>(3 * warps_ + static_cast<std::size_t>(w.id));
  }
  u16 alone_agent(const Warp& w) const {
    return static_cast<u16>(4 * warps_ + static_cast<std::size_t>(w.id));
  }
  // A warp and the lane that acts alone have one clock.
  void tick(const Warp& w) {
    Clock& c = clock(w);
    c.seen[alone_agent(w)] = ++c.seen[static_cast<std::size_t>(w.id)];
  }
  // Of what a warp did alone, the part that `lanes` know to lie behind them: into `k`.
  void know_alone(const Warp& w, u32 lanes, Clock& k) const {
    const std::size_t self = static_cast<std::size_t>(w.id);
    const Alone& a = alone_[self];
    if (a.lanes & ~lanes) k.seen[alone_agent(w)] = synced_[self];
    if (a.fencing & ~lanes) k.fenced[alone_agent(w)] = a.synced_fence;
  }
  void raise(const Warp& w, u16 agent, u32 to) {
    u32& c = clock(w).seen[agent];
    c = std::max(c, to);
  }
  // An arrival by some lanes says nothing of what the others did since the warp last came together.
  void release(const Warp& w, Barrier& b, u32 lanes_left_out = 0) {
    Clock& c = clock(w);
    std::size_t self = static_cast<std::size_t>(w.id);
    const u16 alone = alone_agent(w);
    u32 fenced = c.fenced[self], now = c.seen[self], fenced_alone = c.fenced[alone];
    if (lanes_left_out) c.seen[self] = synced_[self];
    know_alone(w, w.executing, c);
    if (fencing_lanes_[self] & ~w.executing) c.fenced[self] = synced_fence_[self];
    b.gathering.join(c);
    // The lane that waited for its bulk copies may be the one that arrives.
    if (const BulkWait& waited = bulk_waits_[self]; waited.lanes && !(w.executing & ~waited.lanes)) {
      u32& known = b.gathering.seen[bulk_agent(w)];
      known = std::max(known, waited.groups);
    }
    c.seen[self] = now, c.fenced[self] = fenced, c.fenced[alone] = fenced_alone;
    tick(w);
  }
  void warp_sync(const Warp& w) {
    std::size_t self = static_cast<std::size_t>(w.id);
    synced_[self] = clock(w).seen[self];
    tick(w);
    synced_fence_[self] = clock(w).fenced[self];
    unsynced_lanes_[self] = fencing_lanes_[self] = 0;
    Alone& a = alone_[self];
    a.lanes = a.fencing = 0;
    a.synced_fence = clock(w).fenced[alone_agent(w)];
    know_bulk_wait(w, ~0u);
  }
  // What lanes that waited for bulk copies know is known to an access by some of them alone, and to
  // all after a barrier of the warp.
  void know_bulk_wait(const Warp& w, u32 lanes_after_sync) {
    BulkWait& b = bulk_waits_[static_cast<std::size_t>(w.id)];
    if (!b.lanes || (lanes_after_sync != ~0u && (lanes_after_sync & ~b.lanes))) return;
    raise(w, bulk_agent(w), b.groups);
    b = {};
  }
  Barrier* known(const Event& e) {
    auto it = barriers_.find(key(e));
    return it == barriers_.end() ? nullptr : &it->second;
  }
  Cell* cell(const Cta& cta, u32 address) {
    return &cells_[cta.rank][(address - shared_origin) / 4];
  }

  // ---- sentences ----
  std::string actor(const Access& a, const Event& e) const {
    const Agent& g = agents_[a.agent];
    const Instr& in = program_.code[a.pc];
    std::string who = "warp " + std::to_string(g.warp ? g.warp->index : 0);
    switch (g.kind) {
      case AgentKind::warp:
        return in.text + " of " + who + " at line " + std::to_string(in.line);
      case AgentKind::wgmma:
        return "the wgmma at line " + std::to_string(in.line) + " (group " +
               std::to_string(a.clock - 1) + " of warps " + std::to_string(g.warp->index) + " to " +
               std::to_string(g.warp->index + 3) + ")";
      case AgentKind::bulk:
        return "the copy out of shared memory at line " + std::to_string(in.line) +
               " (bulk group " + std::to_string(a.clock - 1) + " of " + who + ")";
      case AgentKind::cp_async:
        return "the cp.async at line " + std::to_string(in.line) + " (group " +
               std::to_string(a.clock - 1) + " of " + who + ")";
      default:
        return "the copy at line " + std::to_string(in.line) + " signalled in phase " +
               std::to_string(a.clock - 1) + " of mbarrier " +
               address_name(e.machine->program, g.barrier);
    }
  }
  static u64 bulk_committed(const Warp& w) { return *std::max_element(w.bulk_committed, w.bulk_committed + 32); }
  std::string missing(const Access& a) const {
    switch (agents_[a.agent].kind) {
      case AgentKind::warp:
        return "; no barrier orders the two (bar.warp.sync, if it is between lanes of one warp)";
      case AgentKind::wgmma:
        if (a.clock > agents_[a.agent].warp->wgmma_committed) return "; its wgmma.commit_group is missing, or comes too late";
        return "; its wgmma.wait_group, or a barrier after it, is missing";
      case AgentKind::bulk:
        if (a.clock > bulk_committed(*agents_[a.agent].warp))
          return "; its cp.async.bulk.commit_group is missing, and cp.async.bulk.wait_group.read after it";
        return "; cp.async.bulk.wait_group.read is missing, or bar.warp.sync after it";
      case AgentKind::cp_async:
        return "; its cp.async.wait_group, or a barrier after it, is missing";
      default:
        return "; this warp has not waited for that phase";
    }
  }
  [[noreturn]] void hazard(const Event& e, u32 address, const std::string& what, const Access& a,
                           bool wrote) const {
    report(e, e.kind == EventKind::shared_access || e.kind == EventKind::wgmma_read ? -1 : e.lane,
           what + " shared memory at " + address_name(program_, address) + ", which " +
               actor(a, e) + (wrote ? " writes" : " reads") + missing(a));
  }

  // ---- the rules ----
  // Knowledge of the lane that issues a copy: of its own warp only up to the last time the warp
  // came together.
  const Clock& lane_clock(const Event& e) {
    Clock& c = clock(*e.warp);
    std::size_t self = static_cast<std::size_t>(e.warp->id);
    const u32 others = ~(1u << e.lane);
    know_bulk_wait(*e.warp, 1u << e.lane);
    if (!((unsynced_lanes_[self] | fencing_lanes_[self]) & others)) return c;
    lane_.seen = c.seen, lane_.fenced = c.fenced;
    if (unsynced_lanes_[self] & others) lane_.seen[self] = synced_[self];
    if (fencing_lanes_[self] & others) lane_.fenced[self] = synced_fence_[self];
    know_alone(*e.warp, 1u << e.lane, lane_);
    return lane_;
  }
  void check_write_before(const Event& e, u32 address, const Cell& c, const Clock& k,
                          const char* what, bool async) const {
    if (!c.write.clock) return;
    if (k.seen[c.write.agent] < c.write.clock) hazard(e, address, what, c.write, true);
    if (async && c.generic && k.fenced[c.write.agent] < c.write.clock)
      report(e, -1,
             std::string(what) + " shared memory at " + address_name(program_, address) +
                 " through the async proxy, which " + actor(c.write, e) +
                 " writes through the generic proxy; fence.proxy.async by the writer is missing, or a barrier after it");
  }
  void check_reads_before(const Event& e, u32 address, const Cell& c, const Clock& k,
                          const char* what) const {
    for (const Access& r : c.reads)
      if (r.clock && k.seen[r.agent] < r.clock) hazard(e, address, what, r, false);
  }
  void set_write(const Event& e, Cell& c, u16 agent, u32 clock, bool generic) {
    c.write = {clock, agent, static_cast<u16>(e.instr->pc)};
    c.generic = generic;
    for (Access& r : c.reads) r = {};
  }
  // Reads that the new one is ordered after are implied by it and may go (FastTrack).
  void add_read(const Event& e, Cell& c, const Clock& k, u16 agent, u32 clock) {
    int slot = -1;
    for (int i = 0; i < kept_reads; ++i) {
      Access& r = c.reads[i];
      if (r.clock && (r.agent == agent || k.seen[r.agent] >= r.clock)) r.clock = 0;
      if (!r.clock && slot < 0) slot = i;
    }
    if (slot < 0) slot = static_cast<int>(clock % kept_reads);
    c.reads[slot] = {clock, agent, static_cast<u16>(e.instr->pc)};
  }
  [[noreturn]] void unwritten(const Event& e, u32 address) const {
    report(e, -1,
           "reads shared memory at " + address_name(program_, address) +
               ", which nothing has written");
  }
  [[noreturn]] void hits_barrier(const Event& e, u32 address) const {
    report(e, -1,
           "writes over the live mbarrier at " + address_name(program_, address) +
               "; mbarrier.inval is missing");
  }

  template <class F>
  void each_cell(const Event& e, F f) {
    for (u32 i = 0; i < e.count; ++i) {
      u32 from = e.addresses[i], cells = (e.bytes + 3) / 4;
      Cell* c = cell(*e.cta, from);
      for (u32 k = 0; k < cells; ++k) f(c[k], from + 4 * k, i);
    }
  }

  // One lane, and the first to act alone since the warp came together.
  bool acts_alone(const Event& e) {
    Alone& a = alone_[static_cast<std::size_t>(e.warp->id)];
    if ((e.lanes & (e.lanes - 1)) || (a.lanes & ~e.lanes)) return false;
    a.lanes = e.lanes;
    if (e.write) a.unfenced |= e.lanes;
    return true;
  }
  // What takes the place of an access that other lanes of the warp made since is to be released like that one.
  bool touched_by_others(const Cell& c, u16 self) const {
    const u32 then = synced_[self];
    if (c.write.agent == self && c.write.clock > then) return true;
    return std::any_of(c.reads, c.reads + kept_reads, [&](const Access& r) { return r.agent == self && r.clock > then; });
  }

  void shared_access(const Event& e) {
    Clock& k = clock(*e.warp);
    u16 self = static_cast<u16>(e.warp->id);
    u32 now = k.seen[self];
    if (e.write) unfenced_lanes_[self] |= e.lanes;
    unsynced_lanes_[self] |= e.lanes;
    know_bulk_wait(*e.warp, e.lanes);
    const bool alone = acts_alone(e);
    u32 index = ~0u,
        empty =
            0;  // of one lane's access: a vector may hold words that nobody wrote and nobody uses
    each_cell(e, [&](Cell& c, u32 address, u32 i) {
      const u16 agent = alone && !touched_by_others(c, self) ? alone_agent(*e.warp) : self;
      if (e.atomic && c.write.clock &&
          agents_[c.write.agent].kind == AgentKind::warp) {  // atomics order themselves
        set_write(e, c, agent, now, true);
        return;
      }
      check_write_before(e, address, c, k, e.write ? "writes" : "reads", false);
      if (e.write) {
        if (c.barrier) hits_barrier(e, address);
        check_reads_before(e, address, c, k, "writes");
        set_write(e, c, agent, now, true);
      } else {
        if (i != index) index = i, empty = 0;
        empty += !c.write.clock && !c.barrier;
        if (empty * 4 >= e.bytes && empty) unwritten(e, address);
        add_read(e, c, k, agent, now);
      }
    });
  }

  void async_load(const Event& e) {
    Barrier* b = known(e);
    const Clock& k = lane_clock(e);
    if (b) {
      init_ordered(e, *b);
      if (!b->init_fenced)
        report(e, e.lane,
               "names the mbarrier at " + address_name(program_, e.barrier) +
                   ", whose initialisation no fence.mbarrier_init has made visible to the async "
                   "proxy");
    }
    each_cell(e, [&](Cell& c, u32 address, u32) {
      if (c.barrier) hits_barrier(e, address);
      check_write_before(e, address, c, k, "overwrites", true);
      check_reads_before(e, address, c, k, "overwrites");
      set_write(e, c, b ? b->agent : 0, static_cast<u32>(e.value) + 1, false);
    });
  }
  void async_store(const Event& e) {
    const Clock& k = lane_clock(e);
    u16 agent = bulk_agent(*e.warp);
    each_cell(e, [&](Cell& c, u32 address, u32) {
      check_write_before(e, address, c, k, "copies out", true);
      add_read(e, c, k, agent, static_cast<u32>(e.value) + 1);
    });
  }
  void cp_async(const Event& e) {
    Clock& k = clock(*e.warp);
    each_cell(e, [&](Cell& c, u32 address, u32) {
      if (c.barrier) hits_barrier(e, address);
      check_write_before(e, address, c, k, "overwrites", false);
      check_reads_before(e, address, c, k, "overwrites");
      set_write(e, c, cp_agent(*e.warp), static_cast<u32>(e.value) + 1, false);
    });
  }

  // B is read for all four warps; of A in shared memory each warp's rows are read for that warp.
  void wgmma_read(const Event& e) {
    const Clock* clocks[4];
    for (int j = 0; j < 4; ++j)
      clocks[j] = &clock(*e.cta->warps[static_cast<std::size_t>(e.warp->index + j)]);
    u16 agent = wgmma_agent(*e.warp);
    u32 now = static_cast<u32>(e.value) + 1;
    if (!e.flag) {
      weakest_.seen = clocks[0]->seen, weakest_.fenced = clocks[0]->fenced;
      for (int j = 1; j < 4; ++j)
        for (std::size_t i = 0; i < weakest_.seen.size(); ++i) {
          weakest_.seen[i] = std::min(weakest_.seen[i], clocks[j]->seen[i]);
          weakest_.fenced[i] = std::min(weakest_.fenced[i], clocks[j]->fenced[i]);
        }
    }
    for (u32 i = 0; i < e.count; ++i) {
      const Clock& k = !e.flag ? weakest_ : *clocks[e.value2 ? i % 8 / 2 : i / 32];
      Cell* c = cell(*e.cta, e.addresses[i]);
      for (u32 n = 0; n < 4; ++n) {
        u32 address = e.addresses[i] + 4 * n;
        if (!c[n].write.clock) unwritten(e, address);
        check_write_before(e, address, c[n], k, e.flag ? "wgmma reads A in" : "wgmma reads B in",
                           true);
        add_read(e, c[n], k, agent, now);
      }
    }
  }

  void mark_barrier(const Cta& cta, u32 address, bool live) {
    Cell* c = cell(cta, address);
    for (int i = 0; i < 2; ++i) {
      c[i] = {};
      c[i].barrier = live;
    }
  }
  void init(const Event& e) {
    Barrier& b = barriers_[key(e)];
    b = {};
    b.agent = static_cast<u16>(agents_.size());
    agents_.push_back({AgentKind::mbarrier, nullptr, e.barrier, false});
    b.initialiser = e.warp;
    b.init_clock = clock(*e.warp).seen[static_cast<std::size_t>(e.warp->id)];
    mark_barrier(*e.cta, e.barrier, true);
  }
  void init_ordered(const Event& e, const Barrier& b) {
    if (clock(*e.warp).seen[static_cast<std::size_t>(b.initialiser->id)] < b.init_clock)
      report(e, e.lane,
             "uses the mbarrier at " + address_name(program_, e.barrier) +
                 ", whose initialisation by warp " + std::to_string(b.initialiser->index) +
                 " is not ordered before; a barrier after mbarrier.init is missing");
  }

  const Program& program_;
  std::size_t warps_ = 0;
  std::vector<Agent> agents_;
  std::vector<Clock> clocks_;
  std::vector<u32>
      unfenced_lanes_;  // wrote through the generic proxy since the last fence.proxy.async
  std::vector<u32> unsynced_lanes_,
      synced_;  // touched shared memory since the warp came together; clock then
  struct Alone {
    u32 lanes = 0;         // the lane that acted alone since the warp came together
    u32 unfenced = 0;      // lanes that wrote alone since their last fence.proxy.async
    u32 fencing = 0;       // of them, those that executed one since the warp came together;
    u32 synced_fence = 0;  // what was fenced then
  };
  std::vector<Alone> alone_;  // by warp
  struct BulkWait {
    u32 groups = 0, lanes = 0;
  };
  std::vector<BulkWait> bulk_waits_;  // not yet known to the whole warp
  // Executed fence.proxy.async since the warp came together; what was fenced then.
  std::vector<u32> fencing_lanes_, synced_fence_;
  std::vector<std::vector<Cell>> cells_;
  std::map<u64, Barrier> named_, barriers_;
  Barrier cluster_;
  Clock weakest_, lane_;
};

}  // namespace

std::unique_ptr<Observer> make_shared_memory_checker(const History& h, const Program& program) {
  return std::make_unique<SharedMemoryChecker>(h, program);
}

}  // namespace flashptx::emulator
