// Runs a kernel with marks on a device and reads its buffer. Next: trace_marks.cpp.
#include "tools/flashptx/trace_run.h"

#include "tools/flashptx/runner.h"
#include "tools/flashptx/statistics.h"

namespace flashptx {
namespace {

struct Buffers {
  GuardedBuffer q, k, v, o, lse, marks, workspace;
  Status allocate(const reference::Tensors& t) {
    Status s = first_error({q.allocate(0), k.allocate(0), v.allocate(0), o.allocate(0),
                            lse.allocate(0), marks.allocate(0), workspace.allocate(0)});
    return s.ok() ? first_error({q.upload(t.q), k.upload(t.k), v.upload(t.v)}) : s;
  }
  ForwardPointers at(std::uint32_t capacity) const {
    ForwardPointers p;
    p.q = q.address(), p.k = k.address(), p.v = v.address(), p.o = o.address(),
    p.lse = lse.address();
    p.trace = marks.address(), p.trace_capacity = capacity, p.workspace = workspace.address();
    return p;
  }
};

ForwardChoice choice_of(KernelConfig config, Marks marks) {
  config.plan.trace = marks;
  ForwardChoice choice;
  choice.kernel = config.name();
  if (config.plan.own_schedule) choice.schedule = config.plan.own_schedule;
  return choice;
}

// What marks cost, by turns: the clock drifts over a run. The ratio is taken turn by turn, each way round in turn.
Status slow_down(Device& device, ForwardPlan& with, ForwardPlan& without, const ForwardPointers& at,
                 TraceCost* cost) {
  constexpr int rounds = 12, repeats = 5;
  std::vector<float> a, b, ratio;
  for (int round = 0; round < rounds; ++round) {
    float median[2] = {};
    for (int i = 0; i < 2; ++i) {
      const bool marked = (round + i) % 2;
      std::vector<float> ms;
      const Status s = device.time([&] { return (marked ? with : without).run(at, nullptr); }, 2, repeats, nullptr, &ms);
      if (!s.ok()) return s;
      median[marked] = quartiles(ms).median;
    }
    a.push_back(median[1]), b.push_back(median[0]), ratio.push_back(median[1] / median[0]);
  }
  cost->with_marks_ms = quartiles(a).median, cost->without_marks_ms = quartiles(b).median;
  cost->ratio = quartiles(ratio).median;
  return {};
}

}  // namespace

Status run_trace(Device& device, const KernelConfig& config, Marks marks, const reference::Problem& shape,
                 std::uint32_t capacity, Trace* out, TraceCost* cost) {
  const Case c = [&] {
    Case made;
    made.tensors =
        reference::make_tensors(shape, reference::Layout::bshd, reference::Inputs::random, 1);
    return made;
  }();
  const reference::Tensors& t = c.tensors;
  Attention attention(device);
  std::unique_ptr<ForwardPlan> with, without;
  Status s =
      first_error({attention.plan_forward(host_problem(c), choice_of(config, marks), &with),
                   attention.plan_forward(host_problem(c), choice_of(config, Marks::off), &without)});
  if (!s.ok()) return s;
  const auto o_bytes = static_cast<std::size_t>(t.o_elements * 2);
  const auto lse_bytes = static_cast<std::size_t>(shape.batch * shape.heads_q * shape.seqlen_q * 4);
  const auto mark_bytes =
      static_cast<std::size_t>(trace_buffer_bytes(trace_writers(config), capacity));
  Buffers b{{device, t.q.size()}, {device, t.k.size()}, {device, t.v.size()},
            {device, o_bytes},    {device, lse_bytes},  {device, mark_bytes}, {device, with->workspace_bytes()}};
  s = b.allocate(t);
  const ForwardPointers at = b.at(capacity);
  if (s.ok() && !device.info().is_emulator) s = slow_down(device, *with, *without, at, cost);
  if (s.ok()) s = device.fill(at.trace, 0, mark_bytes, nullptr);
  if (s.ok()) s = with->run(at, nullptr);
  if (s.ok()) s = device.synchronize(nullptr);
  std::vector<std::uint8_t> bytes;
  bool untouched = true;
  if (s.ok()) s = b.marks.download(&bytes, &untouched);
  if (!s.ok()) return s;
  if (!untouched)
    return Status::error(StatusCode::internal, "marks were written beside their buffer");
  out->config = config, out->marked = marks, out->device = device.info().name;
  const std::string bad = read_marks(bytes, capacity, out);
  return bad.empty() ? Status{} : Status::error(StatusCode::internal, bad);
}

}  // namespace flashptx
