// WHEN a kernel does things: a schedule is a table of steps over the trips of the key-block loop.
//
// Only the steady state is written. A step {what, lag} works on block (trip - lag); the peeled first trip and
// the epilogue follow by dropping every step whose block does not exist, and the wait_group counts by
// replaying the commits. The checker replays the table for small block counts and refuses a wrong one with
// one sentence. A schedule emits nothing: gen/kernels/ does, step by step.
// Next: gen/schedule/forward_schedules.cpp (the tables), checker.cpp (what is proved), text.h (tables from a file).
#pragma once

#include <string>
#include <vector>

namespace flashptx {

enum class Do {
  token_wait,  // until it is this warpgroup's turn to issue (named barrier)
  qk,          // wait for K, issue S = Q K^T, commit
  token_pass,  // the next warpgroup's turn
  wait_qk,     // S is readable
  free_k,      // K's stage may be refilled
  mask_max,    // mask S at the edges, row max, decide on a rescale
  exp_sum,     // P = exp2(S * c - max * c), row sum
  wait_pv,     // O is readable, P's registers may be rewritten
  free_v,      // V's stage may be refilled
  rescale_o,   // O *= alpha where the row max moved
  pack_p,      // P to 16 bit in registers, as the A operand of the next product
  pv,          // wait for V, issue O += P V, commit
};
constexpr int kDoCount = 12;
const char* to_string(Do what);

struct Step {
  Do what;
  int lag = 0;
};

struct Schedule {
  std::string name;
  std::string about;        // one line
  std::vector<Step> steps;  // one trip of the steady state, in program order
  int max_lag() const;
  bool has(Do what) const;
  const Step* step(Do what) const;  // the first of its kind, or the end; what is earlier in the trip compares less
  // P V is over before the next S begins, so that P may live in S's registers.
  bool p_shares_s() const;
  // P V of the block before is in flight while the exponentials are computed: only then can the assembler move them.
  bool exps_under_pv() const;
  // P V of the block before is over when the maximum is taken: O stays as it is until P is packed.
  bool o_is_still() const;
  // ... and when it is scaled by alpha: what is taken out of the accumulators as their product completes is of one reference with O.
  bool o_is_whole_when_scaled() const;
  // P of the block before is still read by its P V, issued or not, when the exponentials begin.
  bool p_outlives_exps() const;
};

// A step with what the derivation found out.
struct PlannedStep {
  Do what;
  int lag = 0;
  int pending = -1;     // wait steps: groups that may stay in flight; -1: already complete, nothing to emit
  bool first = false;   // the block is the tile's first: S max starts, O is not accumulated yet
};

struct Derived {
  std::vector<PlannedStep> peeled;    // trip 0: blocks that exist there
  std::vector<PlannedStep> steady;    // trips 1 .. blocks-1
  std::vector<PlannedStep> epilogue;  // trip `blocks`: what still lags
};

const std::vector<Schedule>& forward_schedules();
const Schedule* find_forward_schedule(const std::string& name);

// "" if the schedule is right for 0, 1, 2, 3 and 7 blocks; else one sentence (where, what, wanted).
std::string check(const Schedule& schedule);

// The same with the step at fault (-1: none in particular).
struct ScheduleFault {
  std::string sentence;
  int step = -1;
};
ScheduleFault find_fault(const Schedule& schedule);

Derived derive(const Schedule& schedule);

// The table drawn: one row a step, one column a trip, the block that each works on.
std::string draw(const Schedule& schedule, int blocks);

}  // namespace flashptx
