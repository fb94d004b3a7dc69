// A timing model of one tile's trips: what the schedule alone would take on units with the rates
// below.
//
// Each warpgroup has one warp on each of the SM's four schedulers, so one scheduler with a warp of
// every warpgroup is the whole SM. A clock at a time: an issue slot, the special function unit, the
// tensor cores as one queue, a token ring, K and V arriving through a ring of stages. What a step
// issues is counted from the emitted kernel. Left out: dependencies inside a warp, register-bank
// conflicts, L2 misses, other CTAs.
// The rates are the units' (tools/bench/results/units_h200.csv) where `units` measures them; the latencies were fitted to
// twelve 16-bit kernels measured with marks on an H200, the transposing warps' to three 8-bit ones
// (tools/bench/results/trace_h200.csv): clocks a trip are within 15 % of all those. Next: trace.h.
#include <algorithm>
#include <cmath>
#include <deque>
#include <map>

#include "gen/tile/forward_context.h"
#include "tools/flashptx/trace.h"

namespace flashptx {
namespace {

constexpr double kMufuClocks = 8;          // ex2 of a warp: 4 lanes a clock and scheduler
constexpr double kMufuBesideWgmma = 11.3;  // while the tensor cores are busy: 11.34 results a clock and SM (units, softmax)
constexpr double kAluClocks = 2;           // max, logic, integer: 16 lanes a clock and scheduler
constexpr double kAluBesideWgmma = 1.9;    // of these, beside wgmma, what the exponentials lose: 9.69 results (units, softmax_max)
constexpr double kConvertClocks = 2;      // F2FP at half rate
constexpr double kWarpGap = 1.2;           // between two instructions of one warp
constexpr double kStepLatency = 15;        // a step's last results
constexpr double kBarrierLatency = 20;     // mbarrier or named barrier, seen by the waiter
constexpr double kTryWait = 100;           // a wait for an mbarrier whose phase has completed: stage, phase, try_wait
constexpr double kToken = 35;              // a turn that is there
constexpr double kWaitGroup = 33;          // a wait for products that are complete
constexpr double kWgmmaLatency = 137;      // from the last m64nNk16's turn to readable registers
constexpr int kQueued = 4;                 // wgmma instructions that stand issued before the tensor cores take them
constexpr double kTransposeGap = 10;       // between two instructions of a transposing warp: its chains are latency
constexpr int kTransposeSlots = 45;        // of one group of 16 columns and 128 keys: 4 x (ldmatrix, 4 prmt, 2, stmatrix), addresses
constexpr int kTransposeAlu = 24;           // of those: 16 prmt, 4 xor, the group's addresses
constexpr int kIssueLoad = 30;          // of the producer, for one block
constexpr int kLoadLatency = 700;       // TMA from L2
constexpr int kLoadBytesPerClock = 48;  // of one SM with all of them loading
constexpr double kNominalMhz = 1755;    // for microseconds only

struct Op {
  TraceEvent event;
  std::uint32_t position;
  int block;                               // that the step works on, as a trip number
  int slots = 0, ex2 = 0, alu = 0;
  int free_after = 0;  // 1 K, 2 V of `block` is freed when it ends
  bool pass_token = false;
};

struct Unit {
  std::vector<Op> ops;
  std::size_t at = 0;
  int slots = 0, ex2 = 0, alu = 0;
  double begun = 0, ready = -1, next_issue = 0, gap = kWarpGap;
  std::vector<TraceSpan> spans;
};

TraceEvent event_of(Do what) {
  switch (what) {
    case Do::token_wait:
      return TraceEvent::token_wait;
    case Do::qk:
      return TraceEvent::qk;
    case Do::pv:
      return TraceEvent::pv;
    case Do::wait_qk:
      return TraceEvent::wait_qk;
    case Do::wait_pv:
      return TraceEvent::wait_pv;
    case Do::mask_max:
      return TraceEvent::mask_max;
    case Do::exp_sum:
      return TraceEvent::exp_sum;
    case Do::rescale_o:
      return TraceEvent::rescale_o;
    case Do::pack_p:
      return TraceEvent::pack_p;
    default:
      return TraceEvent::none;  // token_pass, free_k, free_v have no mark: part of the step before
  }
}

// Groups of 16 columns that one of three transposing warps takes of a slab of 128.
int groups_a_warp(const KernelConfig& c, int slab) {
  return (std::min(8, c.problem.head_dim_v / 16 - 8 * slab) + c.plan.transposers - 1) / c.plan.transposers;
}

class Model {
 public:
  Model(const KernelConfig& c, int blocks)
      : config_(c), blocks_(blocks), wgs_(static_cast<std::size_t>(c.plan.warpgroups)), kernel_(emit(c)) {
    for (const StepCost& s : kernel_.trip) cost_[s.what] = s;
    if (mixes_softmax()) mix_softmax();
    const int wgs = c.plan.warpgroups;
    transposes_ = c.problem.eight_bit() && !c.problem.v_transposed;
    units_.resize(wgs_ + (transposes_ ? 1 : 0));
    token_.assign(static_cast<std::size_t>(wgs), 0);
    token_[0] = 1;
    done_.resize(static_cast<std::size_t>(wgs));
    freed_k_.assign(static_cast<std::size_t>(blocks), 0), freed_v_ = freed_k_;
    k_ready_.assign(static_cast<std::size_t>(blocks), -1), v_ready_ = k_ready_;
    if (c.plan.symmetric) {
      for (int b = 0; b < std::min(blocks, c.plan.kv_stages); ++b) first_fetch(false, b);
      for (int b = 0; b < std::min(blocks, c.plan.kv_stages - v_lag()); ++b) first_fetch(true, b);
    }
    raw_ready_.assign(static_cast<std::size_t>(blocks * slabs()), -1), freed_raw_.assign(raw_ready_.size(), 0);
    for (std::size_t w = 0; w < wgs_; ++w) program(units_[w]);
    if (transposes_) program_transposer(units_.back());
  }

  Trace run() {
    double limit = 200000.0 * (blocks_ + 1);
    for (now_ = 0; !finished() && now_ < limit; ++now_) {
      load();
      for (std::size_t w = 0; w < units_.size(); ++w) advance(w);
      issue();
    }
    Trace t;
    t.config = config_, t.modelled = true, t.device = "timing model", t.clock_mhz = kNominalMhz;
    CtaTrace c;
    c.roles.push_back(producer_);
    for (std::size_t w = 0; w < wgs_; ++w) c.roles.push_back(units_[w].spans), t.marks += units_[w].spans.size();
    if (transposes_) c.transposer = units_.back().spans;
    find_products(config_, Marks::all, &c);
    c.tensor = tensor_;
    t.ctas.push_back(std::move(c));
    return t;
  }

 private:
  int plain_slots(const StepCost& n) const {
    return n.issue_slots + static_cast<int>(std::lround((kConvertClocks - 1) * n.cvt)) - n.ex2 - n.alu;
  }

  // Whether ptxas lays exponentials, rescaling and packing into one stream (seen in the machine code): not where every step
  // is marked, nor in 8 bit where the check of a block's sums stands between (not with p_sums); guarded and lazy branch around the rescaling,
  // and what waits for P V behind it stays there.
  bool mixes_softmax() const {
    if (config_.plan.trace == Marks::all) return false;
    const bool folds = config_.plan.fold_blocks && config_.problem.head_dim_v > 64;  // O's scaling has a branch of its own
    if (config_.problem.eight_bit() && config_.plan.softmax == Softmax::guarded && (!config_.plan.p_sums || folds)) return false;
    bool behind_exp = false;
    for (const Step& s : config_.plan.table()->steps) {
      if (s.what == Do::pack_p) break;
      behind_exp |= s.what == Do::exp_sum;
      if (behind_exp && s.what == Do::wait_pv && config_.plan.softmax != Softmax::plain) return false;
    }
    return behind_exp;
  }
  // The exponentials, spread evenly over the stream's other instructions.
  void mix_softmax() {
    const bool rescales = config_.plan.softmax == Softmax::plain;
    StepCost* const steps[] = {&cost_[Do::exp_sum], &cost_[Do::pack_p], rescales ? &cost_[Do::rescale_o] : nullptr};
    int slots = 0;
    for (const StepCost* s : steps) slots += s ? plain_slots(*s) : 0;
    int left = cost_[Do::exp_sum].ex2;
    const int all = left;
    for (StepCost* s : {steps[2], steps[1], steps[0]}) {
      if (!s) continue;
      const int before = s->ex2, share = s == steps[0] ? left : all * plain_slots(*s) / slots;
      s->ex2 = share, s->issue_slots += share - before, left -= share;
    }
  }

  void add(Unit& u, const std::vector<PlannedStep>& steps, int trip) {
    const bool ring = config_.plan.ping_pong && config_.plan.warpgroups > 1;
    bool k_waited = false;
    const auto position = static_cast<std::uint32_t>(trip);
    for (const PlannedStep& s : steps) {
      const int block = trip - s.lag;
      const StepCost& n = cost_[s.what];
      if ((s.what == Do::token_wait || s.what == Do::qk) && !k_waited) {
        u.ops.push_back({TraceEvent::k_full_wait, position, block, 6});
        k_waited = true;
      }
      if (s.what == Do::token_pass) {
        if (ring) u.ops.back().pass_token = true;
        continue;
      }
      if (s.what == Do::free_k || s.what == Do::free_v) {
        u.ops.back().free_after |= s.what == Do::free_k ? 1 : 2;
        continue;
      }
      if (s.what == Do::token_wait && !ring) continue;
      if (s.what == Do::pv) u.ops.push_back({TraceEvent::v_full_wait, position, block, 6});
      u.ops.push_back({event_of(s.what), position, block, plain_slots(n), n.ex2, n.alu});
    }
  }

  // A symmetric kernel: thread 0, and with it the first warpgroup, waits for what the trip before has freed.
  void add_refill(Unit& u, int trip, bool v, int block) {
    if (block < 0 || block >= blocks_) return;
    const auto position = static_cast<std::uint32_t>(trip);
    u.ops.push_back({v ? TraceEvent::v_empty_wait : TraceEvent::k_empty_wait, position, block, 8});
    u.ops.push_back({v ? TraceEvent::v_load : TraceEvent::k_load, position, block, 16});
  }

  int v_lag() const {
    for (const Step& s : config_.plan.table()->steps)
      if (s.what == Do::free_v) return s.lag;
    return 0;
  }

  void program(Unit& u) {
    Derived d = derive(*config_.plan.table());
    const bool loads = config_.plan.symmetric && &u == &units_.front();
    add(u, d.peeled, 0);
    for (int trip = 1; trip < blocks_; ++trip) {
      if (loads) {
        add_refill(u, trip, false, trip - 1 + config_.plan.kv_stages);
        add_refill(u, trip, true, trip - 1 - v_lag() + config_.plan.kv_stages);
      }
      add(u, d.steady, trip);
    }
    add(u, d.epilogue, blocks_);
    u.ops.push_back({TraceEvent::done, static_cast<std::uint32_t>(blocks_), 0});
    begin(u);
  }

  // Raw V comes by slabs of 128 columns, each with a stage of its own.
  int slabs() const { return transposes_ ? (config_.problem.head_dim_v + 127) / 128 : 1; }

  // One warp of three, each on a scheduler of its own: a slab's groups of 16 columns go round among them. `block` of
  // what concerns raw V is a slab's number.
  void program_transposer(Unit& u) {
    u.gap = kTransposeGap;
    for (int b = 0; b < blocks_; ++b)
      for (int s = 0; s < slabs(); ++s) {
        const auto position = static_cast<std::uint32_t>(b);
        const int groups = groups_a_warp(config_, s);
        u.ops.push_back({TraceEvent::raw_full_wait, position, b * slabs() + s, 8});
        if (s == 0) u.ops.push_back({TraceEvent::v_empty_wait, position, b, 8});
        const int slots = groups * kTransposeSlots * config_.plan.tile_kv / 128, alu = groups * kTransposeAlu * config_.plan.tile_kv / 128;
        u.ops.push_back({TraceEvent::transpose, position, b * slabs() + s, slots - alu + 20, 0, alu});
      }
    u.ops.push_back({TraceEvent::done, static_cast<std::uint32_t>(blocks_), 0});
    begin(u);
  }

  void begin(Unit& u) {
    const Op& op = u.ops[u.at];
    u.slots = op.slots, u.ex2 = op.ex2, u.alu = op.alu, u.begun = now_, u.ready = -1;
    u.spans.push_back({op.event, op.position, now_, now_});
  }

  bool finished() const {
    return std::all_of(units_.begin(), units_.end(),
                       [](const Unit& u) { return u.at + 1 >= u.ops.size(); });
  }

  // The producer: K(0), then K(j), V(j-1) as their stages come free; a load's bytes follow the ones
  // before.
  void load() {
    if (config_.plan.symmetric) return;
    const int wgs = config_.plan.warpgroups, a_block = 1 + slabs();
    if (next_load_ >= a_block * blocks_ || now_ < producer_free_) return;
    // V to be transposed goes in front of its K, slab by slab.
    const bool is_v = transposes_ ? next_load_ % a_block != slabs()
                                  : next_load_ == 2 * blocks_ - 1 || (next_load_ > 0 && next_load_ % 2 == 0);
    const int turn = next_load_ / a_block;
    const int block = transposes_                     ? (is_v ? turn * slabs() + next_load_ % a_block : turn)
                      : next_load_ == 0               ? 0
                      : next_load_ == 2 * blocks_ - 1 ? blocks_ - 1
                      : is_v                          ? next_load_ / 2 - 1
                                                      : (next_load_ + 1) / 2;
    const bool raw = is_v && transposes_;
    const auto position = static_cast<std::uint32_t>(raw ? block / slabs() : block);
    const int stages = raw ? gen::SharedLayout(config_).raw_stages : is_v ? config_.plan.v_ring() : config_.plan.kv_stages;
    const auto& freed = raw ? freed_raw_ : is_v ? freed_v_ : freed_k_;
    if (load_begun_ < 0) {
      load_begun_ = now_;
      producer_.push_back({is_v ? TraceEvent::v_empty_wait : TraceEvent::k_empty_wait, position, now_, now_});
    }
    if (block >= stages && freed[static_cast<std::size_t>(block - stages)] < (raw ? 1 : wgs)) return;
    if (now_ < load_begun_ + kBarrierLatency) return;
    fetch(is_v, block);
    producer_.back().stop = now_;
    producer_.push_back({is_v ? TraceEvent::v_load : TraceEvent::k_load, position, now_, producer_free_ = now_ + kIssueLoad});
    load_begun_ = -1;
    ++next_load_;
  }

  // Issues one load.
  void fetch(bool is_v, int block) {
    const int dim = !is_v ? config_.problem.head_dim : transposes_ ? 128 : config_.problem.head_dim_v;
    bytes_at_ = std::max(bytes_at_, now_) + config_.plan.tile_kv * dim * (config_.problem.eight_bit() ? 1.0 : 2.0) / kLoadBytesPerClock;
    (is_v ? transposes_ ? raw_ready_ : v_ready_ : k_ready_)[static_cast<std::size_t>(block)] = bytes_at_ + kLoadLatency;
  }

  // Takes its place in the tensor cores' queue; the issuing warps go on when all but the last few instructions
  // have been taken. The tensor cores stay with a warpgroup while it has something to issue: what another one queued
  // meanwhile, and has not begun, moves back.
  double start_product(std::size_t w, const Op& op) {
    const bool pv = op.event == TraceEvent::pv;
    const double clocks = product_clocks(config_, pv);
    std::size_t at = tensor_.size();
    while (at > 0 && tensor_[at - 1].start > now_) --at;
    const bool stays = at > 0 && at < tensor_.size() && tensor_[at - 1].warpgroup == static_cast<int>(w) && tensor_[at - 1].stop > now_;
    if (!stays) at = tensor_.size();
    const double from = std::max(now_, at > 0 ? tensor_[at - 1].stop : 0);
    for (std::size_t i = at; i < tensor_.size(); ++i) {
      Flight& f = tensor_[i];
      f.start += clocks, f.stop += clocks;
      auto& done = done_[static_cast<std::size_t>(f.warpgroup)];
      done[{f.pv, queued_block_[i]}] += clocks;
      Unit& u = units_[static_cast<std::size_t>(f.warpgroup)];
      const TraceEvent e = u.ops[u.at].event;
      if (u.ready >= 0 && e == (f.pv ? TraceEvent::pv : TraceEvent::qk) && u.ops[u.at].block == queued_block_[i]) u.ready += clocks;
    }
    tensor_.insert(tensor_.begin() + static_cast<long>(at), {static_cast<int>(w), pv, op.position, from, from + clocks});
    queued_block_.insert(queued_block_.begin() + static_cast<long>(at), op.block);
    tensor_free_ = tensor_.back().stop;
    done_[w][{pv, op.block}] = from + clocks + kWgmmaLatency;
    return from + clocks - kQueued * (pv ? config_.problem.head_dim_v : config_.plan.tile_kv) / 2.0;
  }

  void first_fetch(bool is_v, int block) {
    units_.front().spans.push_back({is_v ? TraceEvent::v_load : TraceEvent::k_load, 0, now_, now_});
    fetch(is_v, block);
  }

  // When what the operation waits for is there: a time, or -1 while nobody knows.
  double available(std::size_t w, const Op& op) {
    auto arrived = [&](const std::vector<double>& ready) {
      const double t = ready[static_cast<std::size_t>(op.block)];
      return t < 0 ? -1 : t + kBarrierLatency;
    };
    const auto at_least = [&](double t, double clocks) {
      return t < 0 ? t : std::max(t, units_[w].begun + clocks);
    };
    switch (op.event) {
      case TraceEvent::k_full_wait:
        return at_least(arrived(k_ready_), kTryWait);
      case TraceEvent::v_full_wait:
        return at_least(arrived(v_ready_), kTryWait);
      case TraceEvent::raw_full_wait:
        return at_least(arrived(raw_ready_), kTryWait);
      case TraceEvent::k_empty_wait:
      case TraceEvent::v_empty_wait: {
        const auto& freed = op.event == TraceEvent::v_empty_wait ? freed_v_ : freed_k_;
        const int before = op.block - (op.event == TraceEvent::v_empty_wait ? config_.plan.v_ring() : config_.plan.kv_stages);
        const bool free = before < 0 || freed[static_cast<std::size_t>(before)] >= config_.plan.warpgroups;
        return free ? now_ + kBarrierLatency : -1;
      }
      case TraceEvent::token_wait:
        return token_[w] > 0 ? std::max(units_[w].begun + kToken, token_at_ + kBarrierLatency) : -1;
      case TraceEvent::wait_qk:
        return at_least(done_[w][{false, op.block}], kWaitGroup);
      case TraceEvent::wait_pv:
        return at_least(done_[w][{true, op.block}], kWaitGroup);
      case TraceEvent::qk:
      case TraceEvent::pv:
        return start_product(w, op);
      default:
        return units_[w].begun;
    }
  }

  void advance(std::size_t w) {
    Unit& u = units_[w];
    if (u.at + 1 >= u.ops.size()) return;
    const Op& op = u.ops[u.at];
    if (u.slots > 0 || u.ex2 > 0 || u.alu > 0) return;
    if (u.ready < 0) {
      double t = available(w, op);
      if (t < 0) return;
      bool computes =
          !is_wait(op.event) && op.event != TraceEvent::qk && op.event != TraceEvent::pv;
      u.ready = std::max(t, now_ + (computes ? kStepLatency : 0));
    }
    if (now_ < u.ready) return;
    finish(w, op);
    u.spans.back().stop = now_;
    ++u.at;
    begin(u);
  }

  void finish(std::size_t w, const Op& op) {
    if (op.event == TraceEvent::transpose) {
      freed_raw_[static_cast<std::size_t>(op.block)] = 1;
      if (op.block % slabs() == slabs() - 1) v_ready_[op.position] = now_;
    }
    if (op.event == TraceEvent::token_wait) --token_[w];
    if (op.event == TraceEvent::k_load || op.event == TraceEvent::v_load)
      fetch(op.event == TraceEvent::v_load, op.block);
    if (op.pass_token) {
      ++token_[(w + 1) % wgs_];
      token_at_ = now_;
    }
    if (op.free_after & 1) ++freed_k_[op.position];  // free_k never lags
    if (op.free_after & 2) ++freed_v_[static_cast<std::size_t>(freed_v_by_[w]++)];
  }

  // One issue slot a clock, in turns; an ex2 also takes the special function unit, a max the ALU.
  void issue() {
    for (std::size_t i = 0; i < units_.size(); ++i) {
      Unit& u = units_[(turn_ + i) % units_.size()];
      const bool ex2 = u.ex2 > 0 && now_ >= mufu_free_, alu = u.alu > 0 && now_ >= alu_free_;
      if (now_ < u.next_issue || (!ex2 && !alu && u.slots <= 0)) continue;
      if (ex2) --u.ex2, mufu_free_ = now_ + (now_ < tensor_free_ ? kMufuBesideWgmma : kMufuClocks);
      else if (alu) {
        --u.alu, alu_free_ = now_ + kAluClocks;
        if (now_ < tensor_free_) mufu_free_ = std::max(mufu_free_, now_) + kAluBesideWgmma;
      }
      else --u.slots;
      u.next_issue = now_ + u.gap;
      turn_ = (turn_ + i + 1) % units_.size();
      return;
    }
  }

  KernelConfig config_;
  int blocks_;
  std::size_t wgs_;
  bool transposes_ = false;
  EmittedKernel kernel_;
  std::map<Do, StepCost> cost_;
  std::vector<Unit> units_;
  std::vector<int> token_;
  double token_at_ = 0, now_ = 0, tensor_free_ = 0, mufu_free_ = 0, alu_free_ = 0, bytes_at_ = 0, load_begun_ = -1,
         producer_free_ = 0;
  std::size_t turn_ = 0;
  int next_load_ = 0;
  std::map<std::size_t, int> freed_v_by_;
  std::vector<std::map<std::pair<bool, int>, double>> done_;
  std::vector<int> freed_k_, freed_v_, freed_raw_;
  std::vector<double> k_ready_, v_ready_, raw_ready_;
  std::vector<Flight> tensor_;
  std::vector<int> queued_block_;  // of each in tensor_
  std::vector<TraceSpan> producer_;
};

}  // namespace

double transposing_clocks(const KernelConfig& config) {
  if (!config.problem.eight_bit() || config.problem.v_transposed) return 0;
  int groups = 0;
  for (int slab = 0; slab < (config.problem.head_dim_v + 127) / 128; ++slab) groups += groups_a_warp(config, slab);
  return kTransposeGap * groups * kTransposeSlots * config.plan.tile_kv / 128;
}

Trace model_trace(const KernelConfig& config, int blocks) {
  return Model(config, std::max(blocks, 3)).run();
}

}  // namespace flashptx
