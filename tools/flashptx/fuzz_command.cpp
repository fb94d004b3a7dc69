// `flashptx fuzz` (`make fuzz`): random legal problems, kernels and emulator orders against float64 until the time
// is up. A failure prints the `flashptx run` line that shows it again. Next: runner.cpp.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <sstream>

#include "gen/kernels/attention_forward.h"
#include "host/select.h"
#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/problem_options.h"
#include "tools/flashptx/runner.h"
#include "tools/reference/numeric.h"

namespace flashptx {
namespace {

struct FuzzOptions {
  ProblemOptions device;
  double seconds = 60;
  std::int64_t cases = 0;
  std::uint64_t seed = 1;
};

// Draws from `choices`, or from a range, by a counter-based generator: case N is the same in every run.
class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t index) : seed_(seed * 0x10001 + index) {}
  std::int64_t range(std::int64_t low, std::int64_t high) {
    const double u = reference::uniform(seed_, next_++);
    return low + static_cast<std::int64_t>(u * static_cast<double>(high - low + 1));
  }
  template <class T>
  T of(std::initializer_list<T> choices) {
    return choices.begin()[range(0, static_cast<std::int64_t>(choices.size()) - 1)];
  }

 private:
  std::uint64_t seed_, next_ = 0;
};

struct Drawn {
  ProblemOptions problem;
  std::uint64_t emulator_seed;
  int multiprocessors = 0;  // other than 0: by a kernel that cuts the last wave's tiles, where the host's choice can
};

Drawn draw_case(std::uint64_t seed, std::uint64_t index, const ProblemOptions& device) {
  Draw d(seed, index);
  Drawn out{device, static_cast<std::uint64_t>(d.range(0, 1000))};
  ProblemOptions& p = out.problem;
  p.dtype = d.of<const char*>({"bf16", "f16", "e4m3"});
  const bool eight_bit = p.dtype == "e4m3";
  if (eight_bit)
    for (std::string* type : {&p.dtype_q, &p.dtype_k, &p.dtype_v}) *type = d.of<const char*>({"e4m3", "e5m2"});
  p.head_dim = static_cast<int>(d.of<std::int64_t>({64, 128, 256, 8 * d.range(1, 32)}));
  p.heads_kv = d.range(1, 2);
  p.heads = p.heads_kv * d.of<std::int64_t>({1, 2, 3, 7});
  p.batch = d.range(1, 2);
  const auto length = [&] { return d.of<std::int64_t>({1, 63, 64, 65, 127, 128, 129, d.range(1, 400)}); };
  p.seqlen_q = length();
  p.seqlen_k = d.range(0, 9) == 0 ? 0 : length();
  p.causal = d.range(0, 1) == 1;
  p.layout = d.of<const char*>({"bshd", "bhsd", "qkv"});
  if (p.layout == "qkv") p.seqlen_k = p.seqlen_q;
  p.inputs = d.of<const char*>({"random", "random", "random", "outliers", "v_ramp", "one_hot", "identity_qk"});
  if (eight_bit) {  // rows of 16 bytes; what the other inputs promise is for 16 bits
    p.head_dim = (p.head_dim + 15) / 16 * 16;
    p.inputs = "random";
  }
  p.seed = index;
  if (d.range(0, 2) == 0) out.multiprocessors = static_cast<int>(d.range(2, 9));
  return out;
}

// The host's choice, for so few keys never one that cuts tiles, as one that does, or (`late`) that stores O late or, in 8 bit,
// writes V^T in the background or has its sums elsewhere, or several of these; "" where it can be neither.
std::string altered_kernel(const Case& c, bool late) {
  Selection s;
  if (!select_forward(host_problem(c), &s).ok()) return "";
  std::string name;
  if (KernelConfig own = s.config; late && own.problem.eight_bit()) {
    own.problem.v_transposed = own.plan.v_background = true, own.plan.transposers = 3;
    if (gen::check_forward(own).empty()) s.config = own, name = own.name();
  }
  if (KernelConfig sums = s.config; late && sums.problem.eight_bit()) {
    sums.plan.p_sums = !sums.plan.p_sums;
    if (gen::check_forward(sums).empty()) s.config = sums, name = sums.name();
  }
  for (bool Plan::*addition : {&Plan::split_tail, &Plan::late_store}) {
    KernelConfig with = s.config;
    with.plan.*addition = true;
    if ((addition != &Plan::split_tail && !late) || !gen::check_forward(with).empty()) continue;
    s.config = with, name = with.name();
  }
  if (KernelConfig two = s.config; late) {
    two.plan.teams = 2, two.plan.warpgroups = 2, two.plan.split_tail = false;
    if (gen::check_forward(two).empty()) name = two.name();
  }
  return name;
}

std::string command_line(const Drawn& drawn, const std::string& kernel) {
  const ProblemOptions& p = drawn.problem;
  std::ostringstream out;
  out << "flashptx run --device " << p.device << " --dtype " << p.dtype << (p.dtype_q.empty() ? "" : " --dtype-q " + p.dtype_q + " --dtype-k " + p.dtype_k + " --dtype-v " + p.dtype_v) << " --batch " << p.batch << " --heads "
      << p.heads << " --heads-kv " << p.heads_kv << " --seqlen-q " << p.seqlen_q << " --seqlen-k " << p.seqlen_k
      << " --head-dim " << p.head_dim << (p.causal ? " --causal" : "") << " --layout " << p.layout << " --inputs "
      << p.inputs << " --seed " << p.seed << " --emulator-seed " << drawn.emulator_seed;
  if (!kernel.empty()) out << " --kernel " << kernel << " --emulator-multiprocessors " << drawn.multiprocessors;
  return out.str();
}

void run_fuzz(const FuzzOptions& o) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(o.seconds);
  std::uint64_t index = 0, failed = 0;
  // Cases by what is rare in kernels: that a run without failures says what it ran.
  struct Met {
    const char *part, *what;
    std::uint64_t cases = 0;
  } met[] = {{"_late", "stored O late"}, {"_vb_", "wrote V^T in the background"}, {"_x2", "worked in two teams"}, {"_psum", "summed P on the tensor cores"}, {"_tail", "could cut tiles"}};
  EmulatorOptions watched;
  watch_emulator(watched);
  for (; !interrupted() && (o.cases > 0 ? index < static_cast<std::uint64_t>(o.cases) : Clock::now() < end); ++index) {
    const Drawn drawn = draw_case(o.seed, index, o.device);
    DeviceRequest request = device_from(drawn.problem);
    request.emulator.cancelled = watched.cancelled;
    request.emulator.seed = drawn.emulator_seed, request.emulator.multiprocessors = drawn.multiprocessors;
    request.emulator.adversary_level = drawn.emulator_seed == 0 ? 0 : 2;
    const auto device = open_or_leave(request);
    const Case c = make_case(problem_from(drawn.problem), layout_from(drawn.problem), inputs_from(drawn.problem),
                             drawn.problem.seed, index % 3 != 0, 0);
    Attention attention(*device);
    ForwardChoice choice;
    if (drawn.multiprocessors) choice.kernel = altered_kernel(c, index % 2 == 1);
    const Outcome r = run_case(*device, attention, c, choice);
    for (Met& m : met) m.cases += r.kernel.find(m.part) != std::string::npos;
    if (r.ok()) continue;
    if (interrupted()) break;
    ++failed;
    std::printf("%s\n  %s\n", command_line(drawn, choice.kernel).c_str(), r.complaint().c_str());
    std::fflush(stdout);
  }
  std::printf("fuzz: %llu cases, %llu failed\n", static_cast<unsigned long long>(index),
              static_cast<unsigned long long>(failed));
  for (const Met& m : met) std::printf("  %llu %s\n", static_cast<unsigned long long>(m.cases), m.what);
  if (failed > 0) leave(exit_mismatch, "");
  if (interrupted()) leave(exit_interrupted, "");
}

}  // namespace

void add_fuzz(Command& app) {
  auto options = std::make_shared<FuzzOptions>();
  FuzzOptions& o = *options;
  o.device.device = "emulator";
  Command* c = app.add_subcommand("fuzz", "Random problems and emulator orders against float64");
  add_device_options(*c, o.device);
  c->add_option("--seconds", o.seconds, "How long")->capture_default_str()->check(range(0.001, 1e7));
  c->add_option("--cases", o.cases, "How many, in place of --seconds")->check(range(1, 1e12));
  c->add_option("--seed", o.seed, "Of the whole run")->capture_default_str();
  c->callback([options] { run_fuzz(*options); });
}

}  // namespace flashptx
