// The loop: which warp runs, which of its splits, one instruction after the other; sleeping and
// waking.
//
// Divergence: a warp is a list of splits (pc, lanes). The one with the lowest pc runs, and splits
// that meet at a pc become one again; an instruction that needs its warp together parks its split
// until the others arrive. Next: memory.cpp (addresses), mbarrier.cpp, async.cpp.
#include "host/emulator/machine.h"

#include <algorithm>
#include <bit>

namespace flashptx::emulator {

Machine::Machine(const GridInfo& g, const std::uint32_t (&cluster_id)[3],
                 std::vector<Observer*> observers, Counters* c)
    : grid(g), program(*g.program), counters(c), observers_(std::move(observers)) {
  const LaunchDims& d = g.dims;
  std::uint64_t linear = cluster_id[0] + 65536ull * (cluster_id[1] + 65536ull * cluster_id[2]);
  random.state = g.options.seed * 0x9e3779b97f4a7c15ull + linear;
  level = g.options.seed == 0 ? 0 : g.options.adversary_level;
  next_tick_ = ticks_apart();
  std::uint32_t threads = d.block[0] * d.block[1] * d.block[2],
                cluster = d.cluster[0] * d.cluster[1] * d.cluster[2];
  std::uint32_t shared_bytes = program.static_shared_bytes;
  for (const auto& s : program.shared_symbols)
    if (s.bytes == 0) shared_bytes = s.address - shared_origin;
  shared_bytes += d.shared_bytes;
  for (std::uint32_t rank = 0; rank < cluster; ++rank) {
    auto cta = std::make_unique<Cta>();
    cta->machine = this;
    cta->rank = rank;
    std::uint32_t in[3] = {rank % d.cluster[0], rank / d.cluster[0] % d.cluster[1],
                           rank / d.cluster[0] / d.cluster[1]};
    for (int i = 0; i < 3; ++i) cta->id[i] = cluster_id[i] * d.cluster[i] + in[i];
    cta->shared.assign(shared_bytes, 0xff);
    cta->mbarrier_index.assign(shared_bytes / 8 + 1, 0);
    cta->mbarriers.reserve(64);
    cta->warpgroups.resize((threads + 127) / 128);
    for (std::uint32_t w = 0; w < (threads + 31) / 32; ++w) {
      auto warp = std::make_unique<Warp>();
      warp->machine = this;
      warp->cta = cta.get();
      warp->index = static_cast<int>(w);
      warp->id = static_cast<int>(warps.size());
      std::uint32_t lanes = std::min(32u, threads - w * 32);
      warp->live = lanes == 32 ? ~0u : (1u << lanes) - 1;
      start_warp(*warp);
      cta->warps.push_back(warp.get());
      warps.push_back(std::move(warp));
    }
    cta->live_warps = static_cast<int>(cta->warps.size());
    ctas.push_back(std::move(cta));
  }
  live_warps_ = static_cast<int>(warps.size());
  cluster_state.assign(warps.size(), 0);
  last_ = warps.size() - 1;
}

void Machine::start_warp(Warp& w) {
  w.registers.reset(new std::uint8_t[program.register_bytes + 64]);
  std::memset(w.registers.get(), 0xcd, program.register_bytes + 64);
  w.state.resize(program.registers.size());
  w.state[0].defined = ~0u;
  w.refused.assign(program.code.size(), 0);
  w.bases[0] = w.registers.get();
  w.bases[1] = program.pool.data();
  const LaunchDims& d = grid.dims;
  w.register_count =
      program.entry_registers(static_cast<int>(d.block[0] * d.block[1] * d.block[2]));
  w.splits.push_back({0, w.live, Wait::none, false, 0, 0});
  const Cta& c = *w.cta;
  for (int s = 0; s < static_cast<int>(Special::count); ++s) {
    std::uint16_t reg = program.special[s];
    if (!reg) continue;
    w.state[reg].defined = ~0u;
    for (int lane = 0; lane < 32; ++lane) {
      std::uint32_t t = static_cast<std::uint32_t>(w.index * 32 + lane);
      std::uint32_t l = static_cast<std::uint32_t>(lane);
      std::uint64_t v = 0;
      switch (static_cast<Special>(s)) {
        case Special::tid_x:
          v = t % d.block[0];
          break;
        case Special::tid_y:
          v = t / d.block[0] % d.block[1];
          break;
        case Special::tid_z:
          v = t / d.block[0] / d.block[1];
          break;
        case Special::ntid_x:
          v = d.block[0];
          break;
        case Special::ntid_y:
          v = d.block[1];
          break;
        case Special::ntid_z:
          v = d.block[2];
          break;
        case Special::ctaid_x:
          v = c.id[0];
          break;
        case Special::ctaid_y:
          v = c.id[1];
          break;
        case Special::ctaid_z:
          v = c.id[2];
          break;
        case Special::nctaid_x:
          v = d.grid[0];
          break;
        case Special::nctaid_y:
          v = d.grid[1];
          break;
        case Special::nctaid_z:
          v = d.grid[2];
          break;
        case Special::laneid:
          v = l;
          break;
        case Special::warpid:
          v = static_cast<std::uint64_t>(w.index);
          break;
        case Special::nwarpid:
          v = 64;
          break;
        case Special::smid:
          v = (c.id[0] + static_cast<std::uint64_t>(d.grid[0]) *
                             (c.id[1] + static_cast<std::uint64_t>(d.grid[1]) * c.id[2])) %
              grid.multiprocessors;
          break;
        case Special::nsmid:
          v = grid.multiprocessors;
          break;
        case Special::clusterid_x:
          v = c.id[0] / d.cluster[0];
          break;
        case Special::clusterid_y:
          v = c.id[1] / d.cluster[1];
          break;
        case Special::clusterid_z:
          v = c.id[2] / d.cluster[2];
          break;
        case Special::nclusterid_x:
          v = d.grid[0] / d.cluster[0];
          break;
        case Special::nclusterid_y:
          v = d.grid[1] / d.cluster[1];
          break;
        case Special::nclusterid_z:
          v = d.grid[2] / d.cluster[2];
          break;
        case Special::cluster_ctaid_x:
          v = c.id[0] % d.cluster[0];
          break;
        case Special::cluster_ctaid_y:
          v = c.id[1] % d.cluster[1];
          break;
        case Special::cluster_ctaid_z:
          v = c.id[2] % d.cluster[2];
          break;
        case Special::cluster_nctaid_x:
          v = d.cluster[0];
          break;
        case Special::cluster_nctaid_y:
          v = d.cluster[1];
          break;
        case Special::cluster_nctaid_z:
          v = d.cluster[2];
          break;
        case Special::cluster_ctarank:
          v = c.rank;
          break;
        case Special::cluster_nctarank:
          v = d.cluster[0] * d.cluster[1] * d.cluster[2];
          break;
        case Special::total_smem_size:
          v = c.shared.size();
          break;
        case Special::dynamic_smem_size:
          v = d.shared_bytes;
          break;
        case Special::lanemask_eq:
          v = 1u << l;
          break;
        case Special::lanemask_lt:
          v = (1u << l) - 1;
          break;
        case Special::lanemask_le:
          v = (2ull << l) - 1;
          break;
        case Special::lanemask_ge:
          v = ~((1u << l) - 1);
          break;
        case Special::lanemask_gt:
          v = ~static_cast<std::uint32_t>((2ull << l) - 1);
          break;
        case Special::warp_size:
          v = 32;
          break;
        case Special::is_explicit_cluster:
          v = d.cluster[0] * d.cluster[1] * d.cluster[2] > 1;
          break;
        default:
          break;
      }
      Operand o;
      o.offset = program.registers[reg].offset;
      o.base = 0;
      o.width = type_bytes(program.registers[reg].type) == 8 ? 8 : 4;
      w.set(o, lane, v);
    }
  }
}

std::string Machine::where(const Warp& w, const Instr& in, int lane) const {
  std::string s = program.file + ":" + std::to_string(in.line);
  if (*w.role) s += std::string(" ") + w.role;
  s += " warp " + std::to_string(w.index);
  if (lane >= 0) s += " lane " + std::to_string(lane);
  const std::uint32_t* id = w.cta->id;
  s += " of CTA " + std::to_string(id[0]);
  if (grid.dims.grid[1] * grid.dims.grid[2] > 1)
    s += "," + std::to_string(id[1]) + "," + std::to_string(id[2]);
  return s;
}

void Machine::fault(const Warp& w, const Instr& in, int lane, const std::string& what) {
  Event e{EventKind::bad_address};
  e.warp = const_cast<Warp*>(&w);
  e.cta = w.cta;
  e.instr = &in;
  e.lane = lane;
  e.text = what.c_str();
  publish(e);  // a subscriber may add the warp's last events and throw
  throw Fault(where(w, in, lane) + ": " + in.text + ": " + what);
}

void Machine::publish(EventKind kind, Warp& w, const Instr& in, std::uint32_t barrier,
                      std::uint64_t value) {
  if (observers_.empty()) return;
  Event e{kind};
  e.warp = &w;
  e.cta = w.cta;
  e.instr = &in;
  e.barrier = barrier;
  e.value = value;
  publish(e);
}

// ---- who runs ----

bool Machine::runnable(const Warp& w) const {
  for (const auto& s : w.splits)
    if (s.wait == Wait::none) return true;
  return false;
}

Warp* Machine::pick() {
  std::size_t n = warps.size();
  if (level == 0) {
    for (std::size_t i = 1; i <= n; ++i) {
      std::size_t at = (last_ + i) % n;
      if (warps[at]->live && runnable(*warps[at])) return last_ = at, warps[at].get();
    }
    return nullptr;
  }
  // The adversary: often the same warp again, else any.
  if (random.below(4) && warps[last_]->live && runnable(*warps[last_])) return warps[last_].get();
  std::size_t start = random.below(static_cast<std::uint32_t>(n));
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t at = (start + i) % n;
    if (warps[at]->live && runnable(*warps[at])) return last_ = at, warps[at].get();
  }
  return nullptr;
}

void Machine::run() {
  while (live_warps_ > 0) {
    if (level >= 2 && !pending.empty() && random.below(3) == 0) land_one(true, false);
    Warp* w = pick();
    if (w) {
      run_warp(*w,
               level == 0 ? 256 : 1 + static_cast<int>(random.below(random.below(8) ? 64 : 1024)));
      watch();
      continue;
    }
    if (!pending.empty()) {
      land_one(level > 0, true);
      continue;
    }
    if (time_out_waiters()) continue;
    Event e{EventKind::deadlock};
    for (auto& x : warps)
      if (x->live) e.warp = x.get();
    e.cta = e.warp->cta;
    e.instr = &program.code[e.warp->splits[0].pc];
    publish(e);
    throw Fault(where(*e.warp, *e.instr) + ": deadlock:\n" + describe_stuck());
  }
  if (grid.tick) grid.tick(steps - ticked_);
  for (auto& c : ctas) {
    Event e{EventKind::cta_exit};
    e.cta = c.get();
    publish(e);
  }
  while (!pending.empty()) land_one(false, true);
}

// What must happen although some warp can always run: late copies land at last, the host hears of
// the run, and a kernel that spins for ever is ended.
// A limit below the usual distance is looked at as often as it asks.
std::uint64_t Machine::ticks_apart() const {
  std::uint64_t apart = tick_steps;
  for (std::uint64_t limit : {grid.options.instruction_limit, grid.options.idle_instruction_limit})
    if (limit != 0) apart = std::min(apart, limit);
  return apart;
}

void Machine::watch() {
  if (progress != last_progress_) last_progress_ = progress, progress_steps_ = steps;
  const std::uint64_t idle = steps - progress_steps_;
  // A warp that polls (mbarrier.test_wait, a flag in memory) never sleeps; the copy that it waits
  // for lands once everybody has had a long time.
  if (idle > 4096 * warps.size() && !pending.empty()) land_one(level > 0, true);
  if (steps < next_tick_) return;
  next_tick_ = steps + ticks_apart();
  if (grid.tick && grid.tick(steps - ticked_)) throw Cancelled();
  ticked_ = steps;
  const EmulatorOptions& o = grid.options;
  const std::uint64_t all = o.instruction_limit ? o.instruction_limit : 10'000'000'000ull,
                      quiet = o.idle_instruction_limit ? o.idle_instruction_limit : 100'000'000ull;
  if (idle > quiet)
    livelock("livelock: for " + std::to_string(idle) +
             " warp instructions no barrier, copy or exit that another warp could wait for (the limit is " +
             std::to_string(quiet) +
             "); a warp that polls for a CTA outside its cluster waits in vain, for those run one after the other");
  if (steps > all)
    livelock("livelock: this cluster has executed " + std::to_string(steps) +
             " warp instructions (the limit is " + std::to_string(all) + ")");
}

void Machine::livelock(const std::string& what) {
  Warp* at = warps[last_].get();
  for (auto& x : warps)
    if (!at->live && x->live) at = x.get();
  const Instr& in = program.code[at->splits[0].pc];
  Event e{EventKind::livelock};
  e.warp = at, e.cta = at->cta, e.instr = &in, e.text = what.c_str();
  publish(e);
  throw Fault(where(*at, in) + ": " + what + "\n" + describe_stuck());
}

// try_wait may return false after a while: let every sleeper try again, a few times without any
// progress.
bool Machine::time_out_waiters() {
  if (progress != idle_progress_) idle_rounds_ = 0;
  idle_progress_ = progress;
  if (++idle_rounds_ > 3) return false;
  bool any = false;
  for (auto& w : warps) {
    if (!w->live) continue;
    for (auto& s : w->splits)
      if (s.wait == Wait::mbarrier) s.wait = Wait::none, s.timed_out = true, any = true;
  }
  return any;
}

void Machine::wake(Cta* cta, Wait kind, std::uint32_t key) {
  ++progress;
  for (Warp* w : cta->warps)
    for (auto& s : w->splits)
      if (s.wait == kind && s.key == key) s.wait = Wait::none;
}

void Machine::wake_warp(Warp& w, Wait kind) {
  ++progress;
  for (auto& s : w.splits)
    if (s.wait == kind) s.wait = Wait::none;
}

// ---- splits ----

bool Machine::choose_split(Warp& w) {
  std::size_t best = w.splits.size();
  for (std::size_t i = 0; i < w.splits.size(); ++i)
    if (w.splits[i].wait == Wait::none &&
        (best == w.splits.size() || w.splits[i].pc < w.splits[best].pc))
      best = i;
  if (best == w.splits.size()) return false;
  w.current = best;
  return true;
}

void Machine::merge(Warp& w) {
  for (std::size_t i = 0; i < w.splits.size();) {
    Split& s = w.splits[i];
    Split& now = w.now();
    bool meets = i != w.current && s.pc == now.pc &&
                 (s.wait == Wait::none || s.wait == Wait::converge) && !s.timed_out &&
                 !now.timed_out && now.wait == Wait::none;
    if (!meets) {
      ++i;
      continue;
    }
    now.mask |= s.mask;
    w.splits.erase(w.splits.begin() + static_cast<std::ptrdiff_t>(i));
    if (w.current > i) --w.current;
  }
}

bool Machine::converge(Warp& w, std::uint32_t required) {
  Split& s = w.now();
  if ((required & w.live & ~s.mask) == 0) return true;
  s.wait = Wait::converge;
  s.key = required;
  return false;
}

void Machine::exit_lanes(Warp& w, std::uint32_t mask, const Instr& in) {
  w.live &= ~mask;
  Split& s = w.now();
  s.mask &= ~mask;
  ++progress;
  for (auto& other : w.splits) {
    if (other.wait != Wait::converge) continue;
    other.wait = Wait::none;
    if (!program.code[other.pc].aligned || !observed()) continue;
    Event e{EventKind::divergent_aligned};
    e.warp = &w, e.cta = w.cta, e.instr = &program.code[other.pc];
    e.lanes = other.mask, e.value = mask;
    publish(e);
  }
  if (!w.live) {
    Event e{EventKind::warp_exit};
    e.warp = &w, e.cta = w.cta, e.instr = &in;
    publish(e);
    --live_warps_;
    --w.cta->live_warps;
    // An exited warp no longer counts for the cluster barrier.
    std::uint32_t waiting = 0, live = 0;
    for (auto& x : warps)
      live += x->live != 0,
          waiting += x->live && cluster_state[static_cast<std::size_t>(x->id)] == 1;
    if (live && waiting == live) {
      for (auto& x : warps) {
        if (!x->live) continue;
        cluster_state[static_cast<std::size_t>(x->id)] = 2;
        wake_warp(*x, Wait::cluster);
      }
    }
  }
}

// ---- one warp ----

void Machine::check_registers(Warp& w, const Instr& in, std::uint32_t mask) {
  for (std::uint16_t r : in.reads) {
    RegisterState& st = w.state[r];
    if ((mask & ~st.defined) | (st.flags & in_flight_d)) [[unlikely]] {
      if (!observed()) continue;
      Event e{st.flags & in_flight_d ? EventKind::touch_in_flight : EventKind::read_undefined};
      e.warp = &w, e.cta = w.cta, e.instr = &in, e.reg = r;
      e.lanes = st.flags & in_flight_d ? mask : mask & ~st.defined;
      e.lane = std::countr_zero(e.lanes);
      e.value = 1, e.value2 = st.last_d - 1;
      publish(e);
    }
    st.flags |= touched;
  }
  for (std::uint16_t r : in.writes) {
    RegisterState& st = w.state[r];
    if (st.flags & (in_flight_d | in_flight_a)) [[unlikely]] {
      if (!observed()) continue;
      Event e{EventKind::touch_in_flight};
      e.warp = &w, e.cta = w.cta, e.instr = &in, e.reg = r, e.write = true;
      e.lanes = mask, e.lane = std::countr_zero(mask);
      e.value = st.flags & in_flight_d ? 1 : 2;
      e.value2 = (st.flags & in_flight_d ? st.last_d : st.last_a) - 1;
      publish(e);
    }
    st.flags |= touched;
  }
}

void Machine::run_warp(Warp& w, int quantum) {
  if (!choose_split(w)) return;
  const Instr* code = program.code.data();
  for (; quantum > 0; --quantum) {
    if (w.splits.size() > 1) {
      merge(w);
      if (!choose_split(w)) return;
    }
    Split& s = w.now();
    const Instr& in = code[s.pc];
    std::uint32_t mask = s.mask;
    if (in.guard) {
      std::uint32_t p = *reinterpret_cast<const std::uint32_t*>(w.registers.get() +
                                                                program.registers[in.guard].offset);
      RegisterState& st = w.state[in.guard];
      if ((mask & ~st.defined) && observed()) {
        Event e{EventKind::read_undefined};
        e.warp = &w, e.cta = w.cta, e.instr = &in, e.reg = in.guard, e.lanes = mask & ~st.defined;
        e.lane = std::countr_zero(e.lanes);
        publish(e);
      }
      mask &= in.guard_negated ? ~p : p;
      if (in.aligned && mask && mask != s.mask && observed()) {
        Event e{EventKind::divergent_aligned};
        e.warp = &w, e.cta = w.cta, e.instr = &in, e.lanes = mask, e.value = s.mask & ~mask;
        publish(e);
      }
      if (!mask) {
        ++s.pc;
        continue;
      }
    }
    if (in.aligned && !converge(w, ~0u)) {
      if (!choose_split(w)) return;
      continue;
    }
    check_registers(w, in, mask);
    ++steps;
    w.executing = mask;
    Step step = in.exec(w, in, mask);
    if (step == Step::blocked) {
      if (!w.live || !choose_split(w)) return;
      continue;
    }
    for (std::uint16_t r : in.writes) w.state[r].defined |= mask;
    if (counters) ++counters->executed[w.role_index][in.pc];
    if (step == Step::next) ++w.now().pc;
    if (w.now().mask == 0) {
      w.splits.erase(w.splits.begin() + static_cast<std::ptrdiff_t>(w.current));
      w.current = 0;
      if (!w.live || !choose_split(w)) return;
    }
  }
}

std::string Machine::describe_stuck() const {
  std::string out;
  for (const auto& w : warps) {
    if (!w->live) continue;
    for (const auto& s : w->splits) {
      const Instr& in = program.code[s.pc];
      out.append("  ").append(where(*w, in)).append(": ");
      switch (s.wait) {
        case Wait::none:
          out += "runs, at " + in.text;
          break;
        case Wait::mbarrier: {
          Mbarrier* b = w->cta->mbarrier(s.key);
          out += "waits on mbarrier " + std::to_string(s.key) + " for parity " +
                 std::to_string(s.parity);
          if (b)
            out += "; it is in phase " + std::to_string(b->phase) + " (parity " +
                   std::to_string(b->phase & 1) + ") with " + std::to_string(b->pending) + " of " +
                   std::to_string(b->expected) + " arrivals and " + std::to_string(b->tx) +
                   " bytes missing";
          break;
        }
        case Wait::barrier: {
          const NamedBarrier& b = w->cta->barriers[s.key];
          out += "waits at barrier " + std::to_string(s.key) + "; " + std::to_string(b.arrived) +
                 " of " + std::to_string(b.expected) + " threads have arrived";
          break;
        }
        case Wait::cluster:
          out += "waits at the cluster barrier";
          break;
        case Wait::wgmma:
          out += "waits for a wgmma that not all four warps of its warpgroup have issued";
          break;
        case Wait::converge: {
          out += in.text + " waits for the other lanes of its warp (has " +
                 std::to_string(std::popcount(s.mask)) + " of " +
                 std::to_string(std::popcount(w->live & s.key)) + ")";
          break;
        }
        case Wait::bulk:
          out += "waits for its bulk copies";
          break;
        case Wait::cp_async:
          out += "waits for its cp.async copies";
          break;
        case Wait::registers:
          out += "setmaxnreg.inc " + std::to_string(in.value) +
                 " waits for registers: the pool has " + std::to_string(w->cta->free_registers) +
                 " per thread of a warpgroup left";
          break;
      }
      out += "\n";
    }
  }
  return out;
}

}  // namespace flashptx::emulator
