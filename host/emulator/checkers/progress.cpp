// What keeps a kernel from ending well: deadlock, bytes that never sum, misused barriers, divergent
// .aligned instructions, exits with copies in flight. Also gives each of the machine's own faults
// the warp's last events. Next: host/emulator/machine.cpp, describe_stuck().
#include <set>

#include "host/emulator/checkers/checker.h"

namespace flashptx::emulator {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

class ProgressChecker : public Checker {
 public:
  using Checker::Checker;

  void on_event(const Event& e) override {
    switch (e.kind) {
      case EventKind::bad_address:
      case EventKind::mbarrier_misuse:
        report(e, e.lane, e.instr->text + ": " + e.text);
        break;
      case EventKind::wgmma_mismatch:
        report(e, -1, e.text);
        break;
      case EventKind::divergent_aligned:
        report(e, -1,
               e.instr->text + " is executed by a part of the warp only (lanes " + mask(e.lanes) +
                   "); lanes " + mask(static_cast<u32>(e.value)) + " do not execute it with them");
        break;
      case EventKind::mbarrier_expect:
        expect(e);
        break;
      case EventKind::async_load:
        loads_[key(e)] = {e.instr, e.value, e.value2};
        break;
      case EventKind::async_landed:
        landed(e);
        break;
      case EventKind::mbarrier_phase:
        sums_.erase(key(e));
        break;
      case EventKind::mbarrier_waited:
        waited_[key(e)] = std::max(waited_[key(e)], e.value + 1);
        break;
      case EventKind::async_store:
        stores_[{e.warp, e.lane}] = {e.instr, e.value, 0};
        break;
      case EventKind::bulk_waited: {
        auto it = stores_.find({e.warp, e.lane});
        if (it != stores_.end() && it->second.phase < e.value) stores_.erase(it);
        break;
      }
      case EventKind::warp_exit:
        warp_exit(e);
        break;
      case EventKind::cta_exit:
        cta_exit(e);
        break;
      case EventKind::setmaxnreg:
        if (e.warp->index % 4 == 0) registers_.push_back({e.instr, e.value, e.flag});
        break;
      case EventKind::deadlock:
        deadlock(e);
        break;
      case EventKind::livelock:
        report(e, -1, std::string(e.text) + "\n" + e.machine->describe_stuck());
        break;
      default:
        break;
    }
  }

 private:
  struct Copy {
    const Instr* instr;
    u64 phase, bytes;
  };
  struct Sum {
    std::int64_t expected = 0, landed = 0;
    u32 expect_line = 0, copy_line = 0;
  };
  static u64 key(const Event& e) { return u64{e.cta->rank} << 32 | e.barrier; }
  static std::string mask(u32 m) {
    char b[16];
    std::snprintf(b, sizeof b, "0x%08x", m);
    return b;
  }

  void expect(const Event& e) {
    std::int64_t bytes = static_cast<std::int64_t>(e.value2);
    if (bytes <= 0) return;
    Sum& s = sums_[key(e)];
    s.expected += bytes;
    s.expect_line = e.instr->line;
  }
  void landed(const Event& e) {
    Sum& s = sums_[key(e)];
    s.landed += e.bytes;
    s.copy_line = e.instr->line;
    if (e.value != e.value2)
      report(e, e.lane,
             "the " + std::to_string(e.bytes) + " bytes of this copy were issued in phase " +
                 std::to_string(e.value2) + " of mbarrier " +
                 address_name(e.machine->program, e.barrier) + " and land in phase " +
                 std::to_string(e.value) +
                 "; its phase completed without them (expect_tx missing, too small, or after the "
                 "arrival)");
  }

  void warp_exit(const Event& e) {
    for (const auto& [who, copy] : stores_)
      if (who.first == e.warp)
        report(e, who.second,
               "exits while its copy out of shared memory (" + line_of(*copy.instr) +
                   ") may still read it; cp.async.bulk." +
                   (copy.phase < e.warp->bulk_committed[who.second]
                        ? ""
                        : "commit_group and cp.async.bulk.") +
                   "wait_group.read 0 missing");
    if (e.warp->wgmma_retired != e.warp->wgmma_next)
      report(e, -1, "exits while a wgmma is in flight; wgmma.wait_group 0 missing");
  }
  void cta_exit(const Event& e) {
    for (const auto& [k, copy] : loads_) {
      if (k >> 32 != e.cta->rank) continue;
      auto it = waited_.find(k);
      if (it != waited_.end() && it->second > copy.phase) continue;
      throw Fault(e.machine->program.file + ":" + std::to_string(copy.instr->line) + ": CTA " +
                  std::to_string(e.cta->id[0]) +
                  " exits without anybody having waited for this copy, signalled in phase " +
                  std::to_string(copy.phase) + " of mbarrier " +
                  address_name(e.machine->program, static_cast<u32>(k)));
    }
  }

  void deadlock(const Event& e) {
    std::string what = "deadlock; no warp can continue:\n" + e.machine->describe_stuck();
    for (const auto& [k, s] : sums_) {
      if (!s.landed || s.expected == s.landed) continue;
      what += "  the bytes of mbarrier " + address_name(e.machine->program, static_cast<u32>(k)) +
              " never sum up: line " + std::to_string(s.expect_line) + " expects " +
              std::to_string(s.expected) + ", the copies (line " + std::to_string(s.copy_line) +
              ") bring " + std::to_string(s.landed) + "\n";
    }
    int registers = 0;
    bool waits = false;
    for (const Warp* w : e.cta->warps)
      for (const auto& s : w->splits)
        if (w->live && s.wait == Wait::registers)
          waits = true, registers = e.machine->program.code[s.pc].value;
    if (waits) {
      what += "  setmaxnreg.inc " + std::to_string(registers) +
              " can never be met: what the warpgroups ask for exceeds what the CTA got at launch\n";
      for (const Change& c : registers_)
        what += "  line " + std::to_string(c.instr->line) + ": setmaxnreg." + (c.grown ? "inc " : "dec ") + std::to_string(c.count) +
                "\n";
    }
    report(e, -1, what);
  }

  struct Change {  // of a warpgroup's registers
    const Instr* instr;
    u64 count;
    bool grown;
  };
  std::vector<Change> registers_;
  std::map<u64, Copy> loads_;
  std::map<u64, Sum> sums_;
  std::map<u64, u64> waited_;
  std::map<std::pair<const Warp*, int>, Copy> stores_;
};

}  // namespace

std::unique_ptr<Observer> make_progress_checker(const History& h) {
  return std::make_unique<ProgressChecker>(h);
}

}  // namespace flashptx::emulator
