// Which kernels are tried for a class: nested loops over the fields of Plan, the generator's own
// check, then exclusions, each with the reason why it saves time without losing a winner. Next:
// tune.h.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "gen/kernels/attention_forward.h"
#include "gen/schedule/schedule.h"
#include "tools/flashptx/tune.h"

namespace flashptx::tune {
namespace {

// P V is in flight while the exponentials are computed: only then can the assembler move them.
bool exps_under_pv(const Schedule& s) {
  const auto at = [&](Do what) {
    return std::find_if(s.steps.begin(), s.steps.end(),
                        [&](const Step& x) { return x.what == what; });
  };
  return at(Do::pv)->lag > 0 && at(Do::pv) < at(Do::exp_sum) && at(Do::exp_sum) < at(Do::wait_pv);
}

// Fields that differ; the number of keys counts once for each doubling.
int distance(const Plan& a, const Plan& b) {
  int n = 0;
  n += a.warpgroups != b.warpgroups;
  n +=
      static_cast<int>(std::ceil(std::fabs(std::log2(static_cast<double>(a.tile_kv) / b.tile_kv))));
  n += a.kv_stages != b.kv_stages;
  n += a.v_stages != b.v_stages;
  n += a.q_stages != b.q_stages;
  n += a.schedule != b.schedule;
  n += a.ping_pong != b.ping_pong;
  n += a.softmax != b.softmax;
  n += a.dynamic_tiles != b.dynamic_tiles;
  n += a.o_own_buffer != b.o_own_buffer;
  n += a.pin_exp != b.pin_exp;
  return n;
}

// "tile_kv 96 must be ..." and "tile_kv 112 must be ..." are one reason.
std::string without_numbers(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '\n') break;
    if (!std::isdigit(static_cast<unsigned char>(c))) out += c;
    else if (out.empty() || out.back() != '#') out += '#';
  }
  return out;
}

void count(std::vector<Exclusion>* list, const std::string& reason, const std::string& example) {
  for (Exclusion& e : *list)
    if (e.reason == reason) {
      ++e.count;
      return;
    }
  list->push_back({reason, example, 1});
}

template <class T>
bool wanted(const std::vector<T>& only, const T& value) {
  return only.empty() || std::find(only.begin(), only.end(), value) != only.end();
}

// Every plan there is, legal or not. A new field of Plan gets its loop here.
template <class Use>
void for_each_plan(const ProblemClass& problem, const SpaceOptions& o, const Use& use) {
  Plan p;
  p.guard_blocks = standard_plan(problem).guard_blocks;  // settled by its error, not by speed
  for (const Schedule& schedule : forward_schedules())
    for (p.warpgroups = 1; p.warpgroups <= 4; ++p.warpgroups)
      for (p.tile_kv = 16; p.tile_kv <= 256; p.tile_kv += 16) {
        p.schedule = schedule.name;
        if (!wanted(o.schedules, p.schedule) || !wanted(o.warpgroups, p.warpgroups) ||
            !wanted(o.tile_kv, p.tile_kv))
          continue;
        for (int stages : {2, 3, 4, 8})
          for (p.q_stages = 1; p.q_stages <= 2; ++p.q_stages)
            for (Softmax softmax : o.softmaxes)
              for (int bits = 0; bits < 16; ++bits) {
                p.softmax = softmax, p.kv_stages = stages;
                p.ping_pong = (bits & 1) != 0, p.dynamic_tiles = (bits & 2) != 0;
                p.o_own_buffer = (bits & 4) != 0, p.pin_exp = (bits & 8) != 0;
                p.v_stages = 0;
                use(p);
                if (!problem.eight_bit()) continue;
                for (p.v_stages = 2; p.v_stages <= 4; ++p.v_stages)
                  if (p.v_stages != p.kv_stages) use(p);
              }
      }
}

}  // namespace

bool same_class(const ProblemClass& a, const ProblemClass& b) {
  return a.dtype == b.dtype && a.head_dim == b.head_dim && a.head_dim_v == b.head_dim_v &&
         a.mask == b.mask && a.v_transposed == b.v_transposed;
}

std::string text_of(const ProblemClass& c) {
  return std::string(to_string(c.dtype)) + " d" + std::to_string(c.head_dim) + " " +
         to_string(c.mask) + (c.v_transposed ? " vt" : "");
}

std::vector<ProblemClass> classes_of(const Grid& grid) {
  std::vector<ProblemClass> out;
  for (DataType dtype : grid.dtypes)
    for (int dim : grid.head_dims)
      for (Mask mask : grid.masks) {
        out.push_back({dtype, dim, dim, mask});
        if (!out.back().eight_bit()) continue;
        out.push_back(out.back());
        out.back().v_transposed = true;
      }
  return out;
}

std::vector<Cell> cells_of(const Grid& grid, const ProblemClass& problem) {
  std::vector<Cell> out;
  for (std::int64_t s : grid.seqlens) out.push_back({problem, s});
  return out;
}

reference::Problem shape_of(const Grid& grid, const Cell& cell) {
  reference::Problem p;
  p.dtype = cell.problem.dtype, p.mask = cell.problem.mask;
  p.batch = std::max<std::int64_t>(1, grid.tokens / cell.seqlen);
  p.heads_q = p.heads_kv = std::max<std::int64_t>(1, grid.hidden / cell.problem.head_dim);
  p.seqlen_q = p.seqlen_k = cell.seqlen;
  p.head_dim = cell.problem.head_dim, p.head_dim_v = cell.problem.head_dim_v;
  p.scale = 1 / std::sqrt(static_cast<float>(p.head_dim));
  return p;
}

KernelConfig incumbent(const Cell& cell) {
  ForwardProblem p;
  p.dtype = cell.problem.dtype, p.mask = cell.problem.mask;
  p.v_transposed = cell.problem.v_transposed;
  p.batch = 1, p.heads_q = p.heads_kv = 16, p.seqlen_q = p.seqlen_k = cell.seqlen;
  p.head_dim = cell.problem.head_dim, p.head_dim_v = cell.problem.head_dim_v;
  Selection s;
  if (!select_forward(p, &s).ok()) s.config = {cell.problem, standard_plan(cell.problem)};
  return s.config;
}

std::string not_worth_trying(const KernelConfig& c) {
  const Plan& p = c.plan;
  if (p.warpgroups == 1)
    return "one warpgroup: nothing else can use the tensor cores during its softmax";
  if (p.tile_kv < 32)
    return "blocks under 32 keys: barriers and waits of a trip are paid for too few keys";
  // Eight stages gained 0.2 to 0.7 % at head_dim 64 and few blocks.
  if (p.kv_stages > 2 && p.tile_kv * p.kv_stages > (c.problem.eight_bit() ? 384 : p.kv_stages == 8 ? 512 : 320))
    return "more than 320 keys in the ring, 384 of 8 bits, 512 in eight stages: the loads already run a whole trip ahead with fewer";
  if (p.pin_exp && !exps_under_pv(*find_forward_schedule(p.schedule)))
    return "pin_exp where no P V is in flight during the exponentials: nothing to keep apart";
  if (c.problem.mask == Mask::causal && !p.dynamic_tiles)
    return "causal in fixed order: the last tiles leave multiprocessors idle";
  return "";
}

Space enumerate(const ProblemClass& problem, const std::vector<std::int64_t>& seqlens,
                const SpaceOptions& o) {
  std::vector<KernelConfig> today;
  for (std::int64_t s : seqlens) today.push_back(incumbent({problem, s}));
  const auto nearest = [&](const Plan& p) {
    int best = 99;
    for (const KernelConfig& t : today) best = std::min(best, distance(p, t.plan));
    return best;
  };
  Space out;
  std::set<std::string> names;
  for (const KernelConfig& t : today)
    if (names.insert(t.name()).second) out.candidates.push_back({t, 0});
  for_each_plan(problem, o, [&](const Plan& plan) {
    ++out.looked_at;
    const KernelConfig c{problem, plan};
    const std::string name = c.name();
    if (names.count(name) != 0) return;
    if (const std::string bad = gen::check_forward(c); !bad.empty())
      return count(&out.illegal, without_numbers(bad), name);
    if (plan.ping_pong && plan.warpgroups == 1)
      return count(&out.excluded, "a token for one warpgroup: the same text as without", name);
    if (const std::string why = not_worth_trying(c); !o.everything && !why.empty())
      return count(&out.excluded, why, name);
    const int far = nearest(plan);
    if (o.distance >= 0 && far > o.distance)
      return count(&out.excluded, "further from today's plans than --distance", name);
    names.insert(name);
    out.candidates.push_back({c, far});
  });
  std::sort(out.candidates.begin(), out.candidates.end(),
            [](const Candidate& a, const Candidate& b) {
              return a.distance != b.distance ? a.distance < b.distance
                                              : a.config.name() < b.config.name();
            });
  return out;
}

}  // namespace flashptx::tune
