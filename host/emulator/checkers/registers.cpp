// Registers: read before written; accumulators and A operands of a wgmma in flight; a missing
// wgmma.fence.
//
// PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions", register
// fragments and wgmma.fence. Next: shared_memory.cpp.
#include "host/emulator/checkers/checker.h"

namespace flashptx::emulator {
namespace {

class RegisterChecker : public Checker {
 public:
  using Checker::Checker;

  void on_event(const Event& e) override {
    if (e.kind == EventKind::read_undefined) undefined(e);
    else if (e.kind == EventKind::touch_in_flight) in_flight(e);
    else if (e.kind == EventKind::wgmma_unfenced) unfenced(e);
  }

 private:
  static const std::string& name(const Event& e) {
    return e.machine->program.registers[e.reg].name;
  }

  void undefined(const Event& e) const {
    std::string what = e.instr->text + " reads " + name(e) + ", which has no value";
    if (*e.text) what += std::string(" (") + e.text + ")";
    report(e, e.lane, what);
  }

  void in_flight(const Event& e) const {
    const Warp& w = *e.warp;
    const Warpgroup& g = w.cta->warpgroups[static_cast<std::size_t>(w.index / 4)];
    std::uint32_t sequence = static_cast<std::uint32_t>(e.value2);
    std::string what = std::string(e.write ? "writes " : "reads ") + name(e) +
                       " while the wgmma that " +
                       (e.value == 1 ? "accumulates into it" : "reads it as A operand");
    if (sequence - g.first < g.entries.size()) {
      const WgmmaEntry& entry = g.entries[sequence - g.first];
      what += " (" + line_of(*entry.instr) + ", group " + std::to_string(entry.group) +
              ") is in flight; ";
      if (entry.group == w.wgmma_committed) what += "wgmma.commit_group and wait_group 0 missing";
      else what += "wait_group " + std::to_string(w.wgmma_committed - entry.group - 1) + " missing";
    } else {
      what += " is in flight; wgmma.wait_group missing";
    }
    report(e, e.lanes == ~0u ? -1 : e.lane, what);
  }

  void unfenced(const Event& e) const {
    if (e.reg == 0) report(e, -1, "issues its first wgmma without a wgmma.fence before it");
    report(e, -1,
           "issues a wgmma that " + std::string(e.value == 1 ? "accumulates into " : "reads ") +
               name(e) +
               ", which ordinary instructions touched since the last wgmma.fence; wgmma.fence "
               "missing");
  }
};

}  // namespace

std::unique_ptr<Observer> make_register_checker(const History& h) {
  return std::make_unique<RegisterChecker>(h);
}

}  // namespace flashptx::emulator
