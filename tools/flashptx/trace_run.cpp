// Runs a kernel with marks on a device and reads its buffer. Next: trace_marks.cpp.
#include "tools/flashptx/trace_run.h"

#include "tools/flashptx/runner.h"
#include "tools/flashptx/statistics.h"

namespace flashptx {
namespace {

struct Buffers {
  GuardedBuffer q, k, v, o, lse, marks;
  Status allocate(const reference::Tensors& t) {
    Status s = first_error({q.allocate(0), k.allocate(0), v.allocate(0), o.allocate(0),
                            lse.allocate(0), marks.allocate(0)});
    return s.ok() ? first_error({q.upload(t.q), k.upload(t.k), v.upload(t.v)}) : s;
  }
  ForwardPointers at(std::uint32_t capacity) const {
    ForwardPointers p;
    p.q = q.address(), p.k = k.address(), p.v = v.address(), p.o = o.address(),
    p.lse = lse.address();
    p.trace = marks.address(), p.trace_capacity = capacity;
    return p;
  }
};

ForwardChoice choice_of(KernelConfig config, bool marks) {
  config.plan.trace = marks;
  ForwardChoice choice;
  choice.kernel = config.name();
  if (config.plan.own_schedule) choice.schedule = config.plan.own_schedule;
  return choice;
}

// What marks cost, by turns: the clock drifts over a run.
Status slow_down(Device& device, ForwardPlan& with, ForwardPlan& without, const ForwardPointers& at,
                 TraceCost* cost) {
  std::vector<float> a, b;
  for (int round = 0; round < 4; ++round) {
    std::vector<float> ms;
    Status s = device.time([&] { return with.run(at, nullptr); }, 2, 10, nullptr, &ms);
    if (!s.ok()) return s;
    a.insert(a.end(), ms.begin(), ms.end());
    s = device.time([&] { return without.run(at, nullptr); }, 2, 10, nullptr, &ms);
    if (!s.ok()) return s;
    b.insert(b.end(), ms.begin(), ms.end());
  }
  cost->with_marks_ms = quartiles(a).median, cost->without_marks_ms = quartiles(b).median;
  return {};
}

}  // namespace

Status run_trace(Device& device, const KernelConfig& config, const reference::Problem& shape,
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
      first_error({attention.plan_forward(host_problem(c), choice_of(config, true), &with),
                   attention.plan_forward(host_problem(c), choice_of(config, false), &without)});
  if (!s.ok()) return s;
  const auto o_bytes = static_cast<std::size_t>(t.o_elements * 2);
  const auto lse_bytes = static_cast<std::size_t>(shape.batch * shape.heads_q * shape.seqlen_q * 4);
  const auto mark_bytes =
      static_cast<std::size_t>(trace_buffer_bytes(config.plan.warpgroups, capacity));
  Buffers b{{device, t.q.size()}, {device, t.k.size()}, {device, t.v.size()},
            {device, o_bytes},    {device, lse_bytes},  {device, mark_bytes}};
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
  out->config = config, out->device = device.info().name;
  const std::string bad = read_marks(bytes, capacity, out);
  return bad.empty() ? Status{} : Status::error(StatusCode::internal, bad);
}

}  // namespace flashptx
