// Successive halving on the GPU: all candidates in few rounds, the better ones in more, the best in
// many; every figure as a ratio to an anchor that runs in the same rounds, because the card's clock
// drifts between batches. Winners are compared with float64 attention.
// Next: tune.h; bench.h does the timing.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>

#include "tools/flashptx/bench.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/runner.h"
#include "tools/flashptx/tune.h"

namespace flashptx::tune {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

constexpr std::size_t batch_size = 12;
constexpr double first_stage_share = 0.6;  // of a cell's time; the later stages time far fewer
constexpr std::int64_t checked_rows = 32;  // of each head, in the check of a whole cell
constexpr const char* dropped = "dropped: ";
bool is_dropped(const Timing& t) { return t.note.rfind(dropped, 0) == 0; }

struct Stage {
  const char* name;
  int rounds, repeats;
  std::size_t keep;     // at least so many go in
  std::size_t divisor;  // and this part of those before
};
constexpr Stage stages[] = {
    {"1", 2, 4, 0, 1}, {"2", 4, 8, 10, 4}, {"3", 6, 12, 5, 4}, {"final", 11, 22, 3, 4}};

// A kernel that waits for what never comes would hold the GPU for ever: ends the process instead.
// running.txt then names the batch, and the next start runs its kernels one by one.
class Watchdog {
 public:
  explicit Watchdog(double limit) : limit_(limit), thread_([this] { watch(); }) {}
  ~Watchdog() {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void arm(bool on) {
    std::lock_guard lock(mutex_);
    armed_ = on, since_ = Clock::now();
    changed_.notify_all();
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!done_) {
      changed_.wait_for(lock, std::chrono::seconds(1));
      if (!armed_ || seconds_since(since_) < limit_) continue;
      std::fprintf(
          stderr,
          "flashptx: a batch took more than %.0f s: a kernel hangs. Start again: the kernels "
          "of the batch are then run one by one\n",
          limit_);
      std::_Exit(exit_mismatch);
    }
  }
  const double limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool armed_ = false, done_ = false;
  Clock::time_point since_;
  std::thread thread_;
};

struct Contestant {
  KernelConfig config;
  std::string name, hash, assembler, file;  // file: the cubin; "": the driver assembles the text
};

class Timer {
 public:
  Timer(Device& device, WorkFolder& work, const Grid& grid, const TimeOptions& o)
      : device_(device),
        work_(work),
        grid_(grid),
        o_(o),
        attention_(device),
        bench_(device, bench_options()),
        watchdog_(o.batch_timeout_seconds) {
    assembler_ = o.assembler.empty() ? work.newest_assembler() : o.assembler;
    const std::vector<std::string> left = work.left_running();  // text hashes
    if (left.size() == 1) drop(left.front(), "it ended or hung an earlier process");
    else suspects_.insert(left.begin(), left.end());
    for (const Timing& t : work.timings())
      if (is_dropped(t) && t.device == device.info().name) dropped_.insert(t.text_hash);
    work.set_running({});
  }

  std::vector<Contestant> contestants(const Space& space);
  Status run(const Cell& cell, const std::vector<Contestant>& all, double seconds);

 private:
  static BenchOptions bench_options() {
    BenchOptions b;
    b.mode = BenchMode::interleaved;
    return b;
  }
  Timing blank(const Contestant& c, const std::string& stage) const;
  bool same_place(const Timing& a, const Timing& b) const;
  const Timing* logged(const Contestant& c, const std::string& stage) const;
  void drop(const std::string& hash, const std::string& why);
  bool jit_is_clean(const KernelConfig& config, const std::string& text, const std::string& hash);
  BenchKernel kernel_of(const Contestant& c) const;
  const Contestant* choose_anchor(const std::vector<Contestant>& all) const;
  Status batch(const Stage& stage, const std::vector<const Contestant*>& list);
  Status stage(const Stage& stage, std::vector<const Contestant*>* list, double seconds);
  Status verify(const std::vector<const Contestant*>& best);
  std::vector<const Contestant*> as_the_host_would(const std::vector<Contestant>& all) const;
  void add_whole(const std::vector<Contestant>& all, std::vector<const Contestant*>* list) const;
  std::string doubts(const Contestant& c);

  Device& device_;
  WorkFolder& work_;
  const Grid& grid_;
  const TimeOptions& o_;
  Attention attention_;
  Bench bench_;
  Watchdog watchdog_;
  std::string assembler_;
  std::set<std::string> suspects_, dropped_;
  Cell cell_;
  reference::Problem shape_;
  const Contestant* anchor_ = nullptr;
  std::unique_ptr<Case> whole_;  // of the cell, made when first needed
};

Timing Timer::blank(const Contestant& c, const std::string& stage) const {
  Timing t;
  t.date = utc_date(), t.device = device_.info().name, t.assembler = c.assembler;
  t.driver = device_.info().driver_text.empty() ? std::to_string(device_.info().driver_version)
                                                : device_.info().driver_text;
  t.dtype = to_string(shape_.dtype), t.mask = to_string(shape_.mask);
  t.v_transposed = cell_.problem.v_transposed;
  t.head_dim = shape_.head_dim, t.seqlen = shape_.seqlen_q, t.batch = shape_.batch,
  t.heads = shape_.heads_q;
  t.kernel = c.name, t.text_hash = c.hash, t.stage = stage;
  if (anchor_ != nullptr) t.anchor = anchor_->name;
  return t;
}

// The same card, software, cell, text and stage.
bool Timer::same_place(const Timing& a, const Timing& b) const {
  return a.device == b.device && a.driver == b.driver && a.assembler == b.assembler &&
         a.dtype == b.dtype && a.mask == b.mask && a.v_transposed == b.v_transposed && a.head_dim == b.head_dim &&
         a.seqlen == b.seqlen && a.batch == b.batch && a.heads == b.heads;
}

const Timing* Timer::logged(const Contestant& c, const std::string& stage) const {
  const Timing wanted = blank(c, stage);
  const Timing* found = nullptr;
  for (const Timing& t : work_.timings())
    if (t.text_hash == c.hash && t.stage == stage && same_place(t, wanted) &&
        (stage == "verify" || (t.anchor == wanted.anchor && t.ratio > 0 && t.note.empty())))
      found = &t;
  return found;
}

void Timer::drop(const std::string& hash, const std::string& why) {
  Contestant c;
  c.hash = hash, c.assembler = assembler_;
  Timing t = blank(c, "1");
  t.note = dropped + why;
  work_.append(t);
  dropped_.insert(hash);
  std::printf("  dropped %s: %s\n", hash.c_str(), why.c_str());
}

// What ptxas would have said, asked of the driver.
bool Timer::jit_is_clean(const KernelConfig& config, const std::string& text,
                         const std::string& hash) {
  LoadedKernel* loaded = nullptr;
  const LaunchFacts facts = emit(config).facts;
  const Status s = device_.load(text, facts.entry, facts.shared_bytes, &loaded);
  std::string why = s.message;
  if (s.ok() && loaded->local_bytes > 0) why = "local memory";
  if (s.ok() && loaded->log.find("(C75") != std::string::npos)
    why = "remark: " + loaded->log.substr(0, 300);
  if (s.ok()) device_.unload(loaded);
  if (!why.empty()) drop(hash, why);
  return why.empty();
}

std::vector<Contestant> Timer::contestants(const Space& space) {
  std::vector<Contestant> out;
  std::size_t missing = 0;
  for (const Candidate& c : space.candidates) {
    const std::string text = emit(c.config).text, hash = text_hash(text);
    if (dropped_.count(hash) != 0) {
      std::printf("  left out, dropped earlier: %s\n", c.config.name().c_str());
      continue;
    }
    Assembly a;
    if (!assembler_.empty() && work_.find(hash, assembler_, &a)) {
      if (a.ok())
        out.push_back({c.config, c.config.name(), hash, assembler_, work_.cubin_path(hash, assembler_)});
    } else if (!o_.jit) {
      ++missing;
    } else if (jit_is_clean(c.config, text, hash)) {
      out.push_back({c.config, c.config.name(), hash, "driver", ""});
    }
  }
  if (missing > 0)
    std::printf(
        "  %zu candidates have no cubin in the work folder and are left out (--stages assemble, or "
        "--jit)\n",
        missing);
  return out;
}

BenchKernel Timer::kernel_of(const Contestant& c) const {
  BenchKernel k{c.name, {c.name, ""}};
  if (c.file.empty()) return k;
  std::ifstream in(c.file, std::ios::binary);
  k.choice.ptx.assign(std::istreambuf_iterator<char>(in), {});
  return k;
}

// The anchor of an earlier run of this cell, so that its ratios stay comparable; else today's
// choice.
const Contestant* Timer::choose_anchor(const std::vector<Contestant>& all) const {
  const auto by_name = [&](const std::string& name) -> const Contestant* {
    for (const Contestant& c : all)
      if (c.name == name && dropped_.count(c.hash) == 0) return &c;
    return nullptr;
  };
  const Timing here = blank(all.front(), "1");
  for (const Timing& t : work_.timings())
    if (same_place(t, here) && t.ratio > 0)
      if (const Contestant* c = by_name(t.anchor)) return c;
  if (const Contestant* c = by_name(incumbent(cell_).name())) return c;
  return by_name(all.front().name);
}

// One call of the bench: the anchor and a few others in turns.
Status Timer::batch(const Stage& stage, const std::vector<const Contestant*>& list) {
  std::vector<BenchKernel> kernels = {kernel_of(*anchor_)};
  std::vector<const Contestant*> who = {anchor_};
  std::vector<std::string> running;
  for (const Contestant* c : list) {
    running.push_back(c->hash);
    if (c != anchor_) kernels.push_back(kernel_of(*c)), who.push_back(c);
  }
  work_.set_running(running);
  watchdog_.arm(true);
  bench_.set_samples(stage.rounds, stage.repeats);
  std::vector<BenchRow> rows;
  const Status s = bench_.run(shape_, kernels, &rows);
  watchdog_.arm(false);
  for (const BenchRow& r : rows)  // a launch that failed takes the context with it
    if (!r.kernel.empty() && r.milliseconds.empty())
      return Status::error(StatusCode::launch_failed,
                           r.kernel + ": " + r.note + "; start again to go on without it");
  if (!s.ok()) return s;
  const double anchor_ms = rows.front().time().median;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Timing t = blank(*who[i], stage.name);
    const BenchRow& r = rows[i];
    t.note = r.note.empty() ? rows.front().note : r.note;
    if (r.milliseconds.empty()) {
      t.note = dropped + r.note;
      dropped_.insert(who[i]->hash);
    } else {
      const Quartiles q = r.time();
      t.samples = static_cast<int>(r.milliseconds.size());
      t.ms_q1 = q.low, t.ms_median = q.median, t.ms_q3 = q.high, t.clock_mhz = r.clock_mhz;
      t.tflops = flops(shape_) / q.median * 1e-9;
      t.ratio = anchor_ms > 0 ? q.median / anchor_ms : 0;
    }
    work_.append(t);
  }
  work_.set_running({});
  return {};
}

// Times what the log does not have yet, within `seconds`; leaves the list with figures, best first.
Status Timer::stage(const Stage& stage, std::vector<const Contestant*>* list, double seconds) {
  const Clock::time_point start = Clock::now();
  std::vector<const Contestant*> todo;
  for (const Contestant* c : *list)
    if (dropped_.count(c->hash) == 0 && logged(*c, stage.name) == nullptr) todo.push_back(c);
  std::size_t at = 0;
  while (at < todo.size() && seconds_since(start) < seconds) {
    std::vector<const Contestant*> some;
    while (at < todo.size() && some.size() < batch_size) {
      const bool suspect = suspects_.count(todo[at]->hash) != 0;
      if (suspect && !some.empty()) break;
      some.push_back(todo[at++]);
      if (suspect) break;
    }
    if (Status s = batch(stage, some); !s.ok()) return s;
  }
  std::vector<std::pair<double, const Contestant*>> timed;
  for (const Contestant* c : *list)
    if (const Timing* t = logged(*c, stage.name)) timed.push_back({t->ratio, c});
  std::sort(timed.begin(), timed.end());
  list->clear();
  for (const auto& [ratio, c] : timed) list->push_back(c);
  std::printf(
      "  stage %-5s %zu timed now, %zu from the log, %zu left for another run; best %.3f of the "
      "anchor's time: %s\n",
      stage.name, at, timed.size() >= at ? timed.size() - at : 0, todo.size() - at,
      timed.empty() ? 0 : timed.front().first,
      timed.empty() ? "none" : timed.front().second->name.c_str());
  std::fflush(stdout);
  return {};
}

// Each kernel with its tiles cut where the host would cut them in this cell, else whole: the rule of host/split_tail.cpp does
// not ask which is faster. Today's choice also whole: it is the anchor.
std::vector<const Contestant*> Timer::as_the_host_would(const std::vector<Contestant>& all) const {
  const auto cuts = [&](const Contestant& c) { return host_cuts(c.config, shape_, device_.info().multiprocessors); };
  std::set<std::string> cut;
  for (const Contestant& c : all)
    if (c.config.plan.split_tail && cuts(c)) cut.insert(whole_kernel(c.name));
  const std::string today = incumbent(cell_).name();
  std::vector<const Contestant*> out;
  for (const Contestant& c : all)
    if ((cut.count(whole_kernel(c.name)) != 0) == c.config.plan.split_tail || c.name == today) out.push_back(&c);
  return out;
}

// Of the kernels with cut tiles the whole ones too: what cutting gains is said beside the winner.
void Timer::add_whole(const std::vector<Contestant>& all, std::vector<const Contestant*>* list) const {
  std::set<std::string> names;
  for (const Contestant* c : *list) names.insert(whole_kernel(c->name));
  for (const Contestant& c : all)
    if (names.count(c.name) != 0 && std::find(list->begin(), list->end(), &c) == list->end()) list->push_back(&c);
}

// "" or what is wrong: odd sizes, two kinds of input, and a sample of rows of the cell itself.
std::string Timer::doubts(const Contestant& c) {
  const ForwardChoice choice = kernel_of(c).choice;
  reference::Problem odd = shape_;
  odd.batch = 2, odd.heads_q = 4, odd.heads_kv = 2, odd.seqlen_q = 333, odd.seqlen_k = 517;
  for (reference::Inputs inputs : {reference::Inputs::random, reference::Inputs::outliers}) {
    const Case small = make_case(odd, reference::Layout::bshd, inputs, 7, true, 0);
    const Outcome out = run_case(device_, attention_, small, choice);
    if (!out.ok()) return "333 x 517: " + out.complaint();
  }
  if (whole_ == nullptr)
    whole_ = std::make_unique<Case>(make_case(shape_, reference::Layout::bshd,
                                              reference::Inputs::random, 8, true, checked_rows));
  const Outcome out = run_case(device_, attention_, *whole_, choice);
  return out.ok() ? "" : "the cell itself: " + out.complaint();
}

// From the fastest on, until one agrees with float64; today's choice too, because it may stay. Either with its tiles whole
// and cut: the host runs both, as there is a workspace or not.
Status Timer::verify(const std::vector<const Contestant*>& best) {
  const std::string today = incumbent(cell_).name();
  std::string found;  // without _tail
  for (const Contestant* c : best) {
    const std::string whole = whole_kernel(c->name);
    if (!found.empty() && whole != today && whole != found) continue;
    const Timing* known = logged(*c, "verify");
    std::string note = known != nullptr ? known->note : "";
    if (known == nullptr) {
      work_.set_running({c->hash});
      watchdog_.arm(true);
      const std::string wrong = doubts(*c);
      watchdog_.arm(false);
      Timing t = blank(*c, "verify");
      t.note = note = wrong.empty() ? "ok" : "wrong: " + wrong;
      work_.append(t);
      work_.set_running({});
    }
    std::printf("  verify %s: %s\n", c->name.c_str(), note.c_str());
    if (found.empty() && note == "ok") found = whole;
  }
  return device_.synchronize(nullptr);
}

Status Timer::run(const Cell& cell, const std::vector<Contestant>& all, double seconds) {
  cell_ = cell, shape_ = shape_of(grid_, cell);
  anchor_ = nullptr;
  whole_.reset();
  std::vector<const Contestant*> list = as_the_host_would(all);
  std::printf("%s%s, %lld queries and keys: %zu candidates, %.0f s\n", text_of(cell.problem).c_str(), cell.fast ? " fast" : "",
              static_cast<long long>(cell.seqlen), list.size(), seconds);
  if (list.empty() || (anchor_ = choose_anchor(all)) == nullptr) return {};
  const Clock::time_point start = Clock::now();
  if (logged(*anchor_, "1") == nullptr)  // alone first: it must not make others suspect
    if (Status s = batch(stages[0], {anchor_}); !s.ok()) return s;
  const std::string today = incumbent(cell).name();
  for (const Stage& st : stages) {
    const std::size_t keep =
        st.divisor == 1 ? list.size() : std::max(st.keep, list.size() / st.divisor);
    std::vector<const Contestant*> in(
        list.begin(), list.begin() + static_cast<std::ptrdiff_t>(std::min(keep, list.size())));
    if (std::find(in.begin(), in.end(), anchor_) == in.end()) in.push_back(anchor_);
    for (const Contestant* c : list)  // today's choice stays in to the end, to be compared
      if (whole_kernel(c->name) == today && std::find(in.begin(), in.end(), c) == in.end()) in.push_back(c);
    if (&st == std::end(stages) - 1) add_whole(all, &in);
    const double left = seconds - seconds_since(start);
    if (Status s =
            stage(st, &in, st.divisor == 1 ? first_stage_share * seconds : std::max(left, 1.0));
        !s.ok())
      return s;
    list = in;
  }
  return verify(list);
}

}  // namespace

Status time_cells(Device& device, WorkFolder& work, const Grid& grid,
                  const std::vector<std::pair<ProblemClass, Space>>& spaces, const TimeOptions& o) {
  Timer timer(device, work, grid, o);
  const Clock::time_point start = Clock::now();
  std::size_t left = spaces.size() * grid.seqlens.size();
  for (const auto& [problem, space] : spaces) {
    const std::vector<Contestant> all = timer.contestants(space);
    for (const Cell& cell : cells_of(grid, problem, space.fast)) {
      const double share = (o.budget_seconds - seconds_since(start)) / static_cast<double>(left--);
      if (share <= 0) {
        std::printf("%s, %lld: no time left of --budget; run again to go on\n",
                    text_of(problem).c_str(), static_cast<long long>(cell.seqlen));
        continue;
      }
      if (Status s = timer.run(cell, all, share); !s.ok()) return s;
    }
  }
  return {};
}

}  // namespace flashptx::tune
