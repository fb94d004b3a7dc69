// What the machine tells the world: one Event for each thing that a checker, a counter or a trace
// may care about.
//
// The machine publishes and knows no subscriber. A subscriber that finds a hazard throws Fault; the
// sentence is the launch's error. Next: checkers/ for the subscribers, machine.h for the publisher.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "host/emulator/program.h"

namespace flashptx::emulator {

struct AsyncOp;
struct Cta;
class Machine;

// One sentence, complete with file, line, warp and lane.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class EventKind : std::uint8_t {
  // registers
  read_undefined,   // reg, lanes: read before any write
  touch_in_flight,  // reg, lanes, write; value: 1 accumulator, 2 A operand; value2: sequence number
                    // of the wgmma
  // shared memory; addresses[count] of `bytes` each, in the memory of `cta`
  shared_access,  // generic proxy, by warp: write, atomic
  async_load,     // TMA or bulk copy into cta's memory: barrier, value = phase it must complete,
                  // barrier_cta
  async_store,    // TMA or bulk copy out of it: lane, value = bulk group of that thread, copy
  cp_async,       // cp.async into it: value = cp.async group of the warp
  wgmma_read,     // by a warpgroup (warp = its first): value = group; flag: A, whose rows belong to
                  // one warp each
  // named barriers (barrier = id, count = threads, flag = waits too)
  barrier_arrive,
  barrier_complete,
  barrier_resume,
  cluster_arrive,
  cluster_complete,
  cluster_resume,
  warp_sync,
  // mbarriers (cta owns it, barrier = address, value = phase number)
  mbarrier_init,
  mbarrier_invalidate,
  mbarrier_arrive,
  mbarrier_expect,
  mbarrier_complete_tx,
  mbarrier_phase,
  mbarrier_waited,   // a wait returned true: value = phase that had completed
  mbarrier_blocked,  // a wait went to sleep: value = parity wanted
  mbarrier_misuse,   // text says what
  // asynchronous copies
  async_landed,  // a load's bytes and signal are there: value = phase then, value2 = phase at issue
  bulk_commit,
  bulk_waited,  // lane, value: groups complete; flag: .read
  cp_async_commit,
  cp_async_waited,
  cp_async_arrive,
  // wgmma
  wgmma_fence,
  wgmma_issue,
  wgmma_unfenced,
  wgmma_commit,
  wgmma_waited,
  wgmma_mismatch,
  // fences and the rest
  fence_proxy_async,
  fence_mbarrier_init,
  setmaxnreg,         // value = registers wanted; flag: inc
  divergent_aligned,  // lanes executed it, value = lanes that did not
  warp_exit,
  cta_exit,
  bad_address,  // text says what
  deadlock,
  livelock,  // an instruction limit was passed: text says which
};

struct Event {
  EventKind kind;
  Machine* machine = nullptr;
  Cta* cta = nullptr;
  Warp* warp = nullptr;
  const Instr* instr = nullptr;
  std::uint32_t lanes = 0;
  int lane = 0;
  std::uint16_t reg = 0;
  bool write = false, atomic = false, flag = false;
  Cta* barrier_cta = nullptr;
  const AsyncOp* copy = nullptr;
  std::uint32_t barrier = 0;
  const std::uint32_t* addresses = nullptr;
  std::uint32_t count = 0, bytes = 0;
  std::uint64_t value = 0, value2 = 0;
  const char* text = "";
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_event(const Event& event) = 0;
};

// The standard set, one for each cluster that runs. Implemented in checkers/.
std::vector<std::unique_ptr<Observer>> make_checkers(const Program& program);

}  // namespace flashptx::emulator
