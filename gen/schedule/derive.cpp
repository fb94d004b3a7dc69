// Derivation of the peeled trip, the steady state and the epilogue from a table, and the drawn table.
#include <algorithm>
#include <cstdio>
#include <deque>

#include "gen/schedule/schedule.h"

namespace flashptx {

const char* to_string(Do what) {
  switch (what) {
    case Do::token_wait: return "token_wait";
    case Do::qk: return "qk";
    case Do::token_pass: return "token_pass";
    case Do::wait_qk: return "wait_qk";
    case Do::free_k: return "free_k";
    case Do::mask_max: return "mask_max";
    case Do::exp_sum: return "exp_sum";
    case Do::wait_pv: return "wait_pv";
    case Do::free_v: return "free_v";
    case Do::rescale_o: return "rescale_o";
    case Do::pack_p: return "pack_p";
    case Do::pv: return "pv";
  }
  return "?";
}

int Schedule::max_lag() const {
  int lag = 0;
  for (const Step& s : steps) lag = std::max(lag, s.lag);
  return lag;
}

const Step* Schedule::step(Do what) const {
  return std::find_if(steps.data(), steps.data() + steps.size(), [&](const Step& s) { return s.what == what; });
}

bool Schedule::has(Do what) const { return step(what) != steps.data() + steps.size(); }

bool Schedule::p_shares_s() const {
  return std::none_of(steps.begin(), steps.end(),
                      [](const Step& s) { return (s.what == Do::pv || s.what == Do::wait_pv) && s.lag > 0; });
}

bool Schedule::exps_under_pv() const { return p_outlives_exps() && step(Do::pv) < step(Do::exp_sum); }

bool Schedule::o_is_still() const { return step(Do::wait_pv)->lag == 0 || step(Do::wait_pv) < step(Do::mask_max); }

bool Schedule::o_is_whole_when_scaled() const { return step(Do::wait_pv)->lag == 0 || step(Do::wait_pv) < step(Do::rescale_o); }

bool Schedule::p_outlives_exps() const { return step(Do::pv)->lag > 0 && step(Do::exp_sum) < step(Do::wait_pv); }

namespace {

// Replays commits and waits: wgmma groups complete in commit order (PTX ISA, wgmma.wait_group).
class Groups {
 public:
  void commit(Do product, int block) { in_flight_.push_back({product, block}); }
  // How many newer groups may stay pending so that `product` of `block` is complete; -1 if it already is.
  int wait(Do product, int block) {
    for (std::size_t i = 0; i < in_flight_.size(); ++i)
      if (in_flight_[i].product == product && in_flight_[i].block == block) {
        int pending = static_cast<int>(in_flight_.size() - i) - 1;
        in_flight_.erase(in_flight_.begin(), in_flight_.begin() + static_cast<long>(i) + 1);
        return pending;
      }
    return -1;
  }

 private:
  struct Group {
    Do product;
    int block;
  };
  std::deque<Group> in_flight_;
};

std::vector<PlannedStep> trip_steps(const Schedule& s, int trip, int blocks, Groups* groups) {
  std::vector<PlannedStep> out;
  for (const Step& step : s.steps) {
    int block = trip - step.lag;
    if (block < 0 || block >= blocks) continue;
    // Tokens pair up over the steady trips only: the first Q K^T of a tile needs no turn.
    if (trip == 0 && (step.what == Do::token_wait || step.what == Do::token_pass)) continue;
    PlannedStep p{step.what, step.lag, -1, block == 0};
    if (step.what == Do::rescale_o && block == 0) continue;  // nothing is accumulated yet
    if (step.what == Do::qk || step.what == Do::pv) groups->commit(step.what, block);
    if (step.what == Do::wait_qk) p.pending = groups->wait(Do::qk, block);
    if (step.what == Do::wait_pv) p.pending = groups->wait(Do::pv, block);
    out.push_back(p);
  }
  return out;
}

}  // namespace

Derived derive(const Schedule& s) {
  // Seven blocks reach the steady state: with lags of 0 and 1 every trip from 1 on has all its blocks, and check()
  // has proved that nothing but P V's own steps lags where the emitted code would differ in trip 1.
  constexpr int kBlocks = 7;
  Derived d;
  Groups groups;
  d.peeled = trip_steps(s, 0, kBlocks, &groups);
  for (int trip = 1; trip < kBlocks; ++trip) d.steady = trip_steps(s, trip, kBlocks, &groups);
  for (PlannedStep& p : d.steady) p.first = false;
  d.epilogue = trip_steps(s, kBlocks, kBlocks, &groups);
  // What the table leaves in flight at the end of a tile (a schedule whose pv has no later wait).
  return d;
}

std::string draw(const Schedule& s, int blocks) {
  std::string out = "step         lag |";
  char cell[32];
  int trips = blocks + s.max_lag();
  for (int t = 0; t < trips; ++t) {
    std::snprintf(cell, sizeof cell, " trip %-2d", t);
    out += cell;
  }
  out += "\n";
  for (const Step& step : s.steps) {
    std::snprintf(cell, sizeof cell, "%-12s %3d |", to_string(step.what), step.lag);
    out += cell;
    for (int t = 0; t < trips; ++t) {
      int block = t - step.lag;
      bool token = step.what == Do::token_wait || step.what == Do::token_pass;
      bool none = block < 0 || block >= blocks || (token && t == 0) ||
                  (step.what == Do::rescale_o && block == 0);
      std::snprintf(cell, sizeof cell, none ? "    .   " : "   %3d  ", block);
      out += cell;
    }
    out += "\n";
  }
  return out;
}

}  // namespace flashptx
