// Which kernels are tried for a class: nested loops over the fields of Plan, the generator's own
// check, then exclusions, each with the reason why it saves time without losing a winner. Next:
// tune.h.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "gen/kernels/attention_forward.h"
#include "gen/schedule/schedule.h"
#include "host/split_tail.h"
#include "tools/flashptx/tune.h"

namespace flashptx::tune {
namespace {

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
  n += a.late_store != b.late_store;
  n += a.pin_exp != b.pin_exp;
  n += a.cluster != b.cluster;
  n += a.teams != b.teams;
  n += a.direct_of_16 != b.direct_of_16;
  n += a.chord_of_16 != b.chord_of_16;
  n += a.p_sums != b.p_sums;
  return n;  // split_tail is no choice of the table: the host adds it by a rule
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

// A plan and what can be added to it: direct or chord words of P, a late store, a second CTA, cut tiles, two teams. `use` says whether a plan is legal: what
// is illegal by itself is so with an addition too, which takes registers. Nor can a pair of CTAs cut tiles.
template <class Use>
void with_additions(Plan p, const ProblemClass& problem, const SpaceOptions& o, const Use& use) {
  const auto alone_paired_cut = [&](Plan plan) {
    if (!use(plan)) return false;
    plan.cluster = 2, use(plan);
    plan.cluster = 1, plan.split_tail = true, use(plan);
    plan.split_tail = false, plan.teams = 2, use(plan);
    return true;
  };
  if (!o.fast && problem.eight_bit()) {
    for (const bool sums : {false, true}) {
      p.p_sums = sums, p.guard_blocks = checked_blocks(p.tile_kv, problem.mask == Mask::full, sums);
      for (p.chord_of_16 = 0; p.chord_of_16 <= 10; p.chord_of_16 += 2) alone_paired_cut(p);
    }
    return;
  }
  if (!o.fast) {
    if (alone_paired_cut(p)) p.late_store = true, alone_paired_cut(p);
    return;
  }
  p.p_sums = problem.eight_bit();
  if (!use(p)) p.p_sums = false;
  if (!p.p_sums && !use(p)) return;
  for (p.direct_of_16 = 2; p.direct_of_16 <= 16; p.direct_of_16 += 2) alone_paired_cut(p);
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
        if (problem.eight_bit()) p.guard_blocks = checked_blocks(p.tile_kv, problem.mask == Mask::full);
        for (int stages : {2, 3, 4, 8})
          for (p.q_stages = 1; p.q_stages <= 2; ++p.q_stages)
            for (Softmax softmax : o.softmaxes)
              for (int bits = 0; bits < 16; ++bits) {
                p.softmax = softmax, p.kv_stages = stages;
                p.ping_pong = (bits & 1) != 0, p.dynamic_tiles = (bits & 2) != 0;
                p.o_own_buffer = (bits & 4) != 0, p.pin_exp = (bits & 8) != 0;
                p.v_stages = 0;
                with_additions(p, problem, o, use);
                if (!problem.eight_bit()) continue;
                for (p.v_stages = 2; p.v_stages <= 4; ++p.v_stages)
                  if (p.v_stages != p.kv_stages) with_additions(p, problem, o, use);
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

std::vector<Cell> cells_of(const Grid& grid, const ProblemClass& problem, bool fast) {
  std::vector<Cell> out;
  for (std::int64_t s : grid.seqlens) out.push_back({problem, s, fast});
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
  p.fast = cell.fast;
  Selection s;
  if (!select_forward(p, &s).ok()) s.config = {cell.problem, standard_plan(cell.problem)};
  return s.config;
}

bool host_cuts(const KernelConfig& config, const reference::Problem& shape, int multiprocessors) {
  ForwardProblem p;
  p.dtype = shape.dtype, p.mask = shape.mask, p.batch = shape.batch;
  p.heads_q = shape.heads_q, p.heads_kv = shape.heads_kv;
  p.seqlen_q = shape.seqlen_q, p.seqlen_k = shape.seqlen_k;
  p.head_dim = shape.head_dim, p.head_dim_v = shape.head_dim_v;
  KernelConfig whole = config;
  whole.plan.split_tail = false;
  return let_split_tail(p, multiprocessors, &whole);
}

std::string whole_kernel(const std::string& name) {
  KernelConfig config;
  if (!KernelConfig::parse(name, &config, nullptr) || !config.plan.split_tail) return name;
  config.plan.split_tail = false;
  return config.name();
}

std::string not_worth_trying(const KernelConfig& c) {
  const Plan& p = c.plan;
  if (p.warpgroups == 1)
    return "one warpgroup: nothing else can use the tensor cores during its softmax";
  if (p.tile_kv < 32)
    return "blocks under 32 keys: barriers and waits of a trip are paid for too few keys";
  // tools/bench/results/half_rows_e4m3_h200.csv: 192 x 64 lost 13 to 24 %.
  if (c.problem.eight_bit() && p.tile_kv < 128 && p.warpgroups < 4)
    return "8 bit in blocks of 64 keys with fewer than four warpgroups: what a trip costs is paid for too few elements";
  // Eight stages gained 0.2 to 0.7 % at head_dim 64 and few blocks.
  if (p.kv_stages > 2 && p.tile_kv * p.kv_stages > (c.problem.eight_bit() ? 384 : p.kv_stages == 8 ? 512 : 320))
    return "more than 320 keys in the ring, 384 of 8 bits, 512 in eight stages: the loads already run a whole trip ahead with fewer";
  if (p.pin_exp && !find_forward_schedule(p.schedule)->exps_under_pv())
    return "pin_exp where no P V is in flight during the exponentials: nothing to keep apart";
  if (c.problem.mask == Mask::causal && !p.dynamic_tiles)
    return "causal in fixed order: the last tiles leave multiprocessors idle";
  // tools/bench/results/multicast_h200.csv; at 128 and 256 it was 1 to 4 % slower to 1.5 % faster, by plan and length.
  if (p.cluster > 1 && std::max(c.problem.head_dim, c.problem.head_dim_v) <= 64)
    return "pairs of CTAs at head_dim up to 64: exponentials bind, not loads, and waiting for each other cost 4 to 6 %";
  // tools/bench/results/chord_words_e4m3_h200.csv and chord_forms_e4m3_h200.csv.
  if (p.chord_of_16 == 2) return "2 chord words: not measured, but 4 gained nothing at head_dim 64 and little at 128";
  if (p.chord_of_16 && std::max(c.problem.head_dim, c.problem.head_dim_v) > 128)
    return "chord words at head_dim above 128: no exponential is waited for there";
  // tools/bench/results/fast_in_turns_h200.csv: 4 and 6 words lost to 12 at each head dimension.
  if (p.direct_of_16 != 0 && p.direct_of_16 < 8)
    return "fewer than 8 direct words: exponentials still bind, more words were faster with every plan";
  if (p.direct_of_16 > (c.problem.mask == Mask::causal ? fast_words_causal : fast_words) && !p.chord_of_16)
    return "more direct words than the host takes: its fast mode promises no larger error (fast_words)";
  return "";
}

namespace {

// Cells whose shapes say where cut tiles and pairs can gain.
std::vector<reference::Problem> shapes_of(const ProblemClass& problem, const std::vector<std::int64_t>& seqlens,
                                          const SpaceOptions& o) {
  Grid grid;
  grid.tokens = o.tokens, grid.hidden = o.hidden;
  std::vector<reference::Problem> out;
  for (std::int64_t s : seqlens) out.push_back(shape_of(grid, {problem, s}));
  return out;
}

// "" or why no cell gives the plan's additions anything to gain.
std::string gains_nowhere(const KernelConfig& c, const std::vector<reference::Problem>& shapes, const SpaceOptions& o) {
  if (c.plan.split_tail &&
      std::none_of(shapes.begin(), shapes.end(), [&](const auto& s) { return host_cuts(c, s, o.multiprocessors); }))
    return "cut tiles where no cell has any to cut: the last wave is full, or shorter than what merging the parts costs";
  if (c.plan.cluster > 1 && std::none_of(shapes.begin(), shapes.end(), [&](const auto& s) { return s.seqlen_q > c.tile_q(); }))
    return "pairs of CTAs where a head has one tile of queries: half of each pair would idle";
  return "";
}

}  // namespace

Space enumerate(const ProblemClass& problem, const std::vector<std::int64_t>& seqlens,
                const SpaceOptions& o) {
  std::vector<KernelConfig> today;
  for (std::int64_t s : seqlens) today.push_back(incumbent({problem, s, o.fast}));
  const auto nearest = [&](const Plan& p) {
    int best = 99;
    for (const KernelConfig& t : today) best = std::min(best, distance(p, t.plan));
    return best;
  };
  const std::vector<reference::Problem> shapes = shapes_of(problem, seqlens, o);
  Space out;
  out.fast = o.fast;
  std::set<std::string> names;
  const auto offer = [&](const KernelConfig& c, int far) {
    if (names.insert(c.name()).second) out.candidates.push_back({c, far});
  };
  for (std::size_t i = 0; i < today.size(); ++i) {
    if (o.fast && today[i].plan.direct_of_16 == 0) continue;  // no fast mode for so many keys
    offer(today[i], 0);
    if (!host_cuts(today[i], shapes[i], o.multiprocessors)) continue;
    KernelConfig cut = today[i];
    cut.plan.split_tail = true;
    offer(cut, 0);
  }
  for_each_plan(problem, o, [&](const Plan& plan) {
    ++out.looked_at;
    const KernelConfig c{problem, plan};
    const std::string name = c.name();
    if (names.count(name) != 0) return true;
    if (const std::string bad = gen::check_forward(c); !bad.empty()) {
      count(&out.illegal, without_numbers(bad), name);
      return false;
    }
    const auto exclude = [&](const std::string& why) {
      count(&out.excluded, why, name);
      return true;
    };
    if (o.fast && plan.direct_of_16 == 0) return exclude("no direct words: the class without fast mode has these");
    if (plan.ping_pong && plan.warpgroups == 1) return exclude("a token for one warpgroup: the same text as without");
    std::string why = not_worth_trying(c);
    if (why.empty()) why = gains_nowhere(c, shapes, o);
    if (!o.everything && !why.empty()) return exclude(why);
    const int far = nearest(plan);
    if (o.distance >= 0 && far > o.distance) return exclude("further from today's plans than --distance");
    offer(c, far);
    return true;
  });
  std::sort(out.candidates.begin(), out.candidates.end(),
            [](const Candidate& a, const Candidate& b) {
              return a.distance != b.distance ? a.distance < b.distance
                                              : a.config.name() < b.config.name();
            });
  return out;
}

}  // namespace flashptx::tune
