// The standard set of subscribers, the history that ends each fault, and names.
// Next: registers.cpp.
#include <cstdio>

#include "host/emulator/checkers/checker.h"

namespace flashptx::emulator {

void History::on_event(const Event& e) {
  if (!e.warp || !e.instr) return;
  switch (e.kind) {
    case EventKind::barrier_arrive:
    case EventKind::barrier_resume:
    case EventKind::cluster_arrive:
    case EventKind::cluster_resume:
    case EventKind::mbarrier_init:
    case EventKind::mbarrier_arrive:
    case EventKind::mbarrier_expect:
    case EventKind::mbarrier_waited:
    case EventKind::mbarrier_blocked:
    case EventKind::async_load:
    case EventKind::async_store:
    case EventKind::bulk_commit:
    case EventKind::bulk_waited:
    case EventKind::wgmma_fence:
    case EventKind::wgmma_issue:
    case EventKind::wgmma_commit:
    case EventKind::wgmma_waited:
    case EventKind::fence_proxy_async:
    case EventKind::fence_mbarrier_init:
    case EventKind::setmaxnreg:
      break;
    default:
      return;
  }
  auto& list = entries_[e.warp];
  if (!list.empty() && list.back().kind == e.kind && list.back().instr == e.instr &&
      e.kind == EventKind::mbarrier_blocked)
    return;
  list.push_back({e.kind, e.instr, e.barrier, e.count,
                  e.kind == EventKind::mbarrier_expect ? e.value2 : e.value, e.flag});
  if (list.size() > kept) list.pop_front();
}

std::string History::last_events(const Warp* w) const {
  auto it = entries_.find(w);
  if (it == entries_.end() || it->second.empty()) return "";
  std::string out = "\n  last events of this warp:";
  for (const Entry& e : it->second) {
    out += "\n    line " + std::to_string(e.instr->line) + ": ";
    std::string barrier = std::to_string(e.barrier), value = std::to_string(e.value);
    switch (e.kind) {
      case EventKind::barrier_arrive:
        out += "arrives at barrier " + barrier + " of " + std::to_string(e.count) + " threads";
        break;
      case EventKind::barrier_resume:
        out += "leaves barrier " + barrier;
        break;
      case EventKind::cluster_arrive:
        out += "arrives at the cluster barrier";
        break;
      case EventKind::cluster_resume:
        out += "leaves the cluster barrier";
        break;
      case EventKind::mbarrier_init:
        out += "initialises mbarrier " + barrier + " for " + value + " arrivals";
        break;
      case EventKind::mbarrier_arrive:
        out += "arrives on mbarrier " + barrier + " in phase " + value;
        break;
      case EventKind::mbarrier_expect:
        out += "expects " + std::to_string(static_cast<std::int64_t>(e.value)) +
               " bytes on mbarrier " + barrier;
        break;
      case EventKind::mbarrier_waited:
        out += "has waited for phase " + std::to_string(static_cast<std::int64_t>(e.value)) +
               " of mbarrier " + barrier;
        break;
      case EventKind::mbarrier_blocked:
        out += "sleeps on mbarrier " + barrier + " for parity " + value;
        break;
      case EventKind::async_load:
        out += "issues a copy into shared memory, signalled on mbarrier " + barrier;
        break;
      case EventKind::async_store:
        out += "issues a copy out of shared memory, bulk group " + value;
        break;
      case EventKind::bulk_commit:
        out += "commits bulk group " + value;
        break;
      case EventKind::bulk_waited:
        out += "has waited for the bulk groups below " + value;
        break;
      case EventKind::wgmma_fence:
        out += "wgmma.fence";
        break;
      case EventKind::wgmma_issue:
        out += "issues wgmma group " + value;
        break;
      case EventKind::wgmma_commit:
        out += "commits wgmma group " + value;
        break;
      case EventKind::wgmma_waited:
        out += "has waited for the wgmma groups below " + value;
        break;
      case EventKind::fence_proxy_async:
        out += "fence.proxy.async";
        break;
      case EventKind::fence_mbarrier_init:
        out += "fence.mbarrier_init";
        break;
      case EventKind::setmaxnreg:
        out += std::string("setmaxnreg.") + (e.flag ? "inc " : "dec ") + value;
        break;
      default:
        break;
    }
  }
  return out;
}

void Checker::report(const Event& e, int lane, const std::string& what) const {
  throw Fault(e.machine->where(*e.warp, *e.instr, lane) + ": " + what +
              history_.last_events(e.warp));
}

std::string address_name(const Program& program, std::uint32_t address) {
  char hex[24];
  std::snprintf(hex, sizeof hex, "0x%x", address);
  for (const auto& s : program.shared_symbols) {
    if (address < s.address || (s.bytes && address >= s.address + s.bytes)) continue;
    std::uint32_t offset = address - s.address;
    std::string name = s.name;
    if (offset) name.append("+").append(std::to_string(offset));
    return name.append(" (").append(hex).append(")");
  }
  return hex;
}

std::string line_of(const Instr& in) {
  return "line " + std::to_string(in.line) + " (" + in.text + ")";
}

std::vector<std::unique_ptr<Observer>> make_checkers(const Program& program) {
  auto history = std::make_unique<History>();
  const History& h = *history;
  std::vector<std::unique_ptr<Observer>> out;
  out.push_back(std::move(history));
  out.push_back(make_register_checker(h));
  out.push_back(make_shared_memory_checker(h, program));
  out.push_back(make_progress_checker(h));
  out.push_back(make_global_store_checker(h));
  return out;
}

}  // namespace flashptx::emulator
