// What the checkers share: a fault's sentence with place and the warp's last events, and names for
// things.
//
// A checker is an Observer that throws Fault. Next: registers.cpp, shared_memory.cpp, progress.cpp.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "host/emulator/machine.h"

namespace flashptx::emulator {

// The last notable events of each warp, formatted only when a fault needs them.
class History : public Observer {
 public:
  void on_event(const Event& e) override;
  std::string last_events(const Warp* w) const;

 private:
  struct Entry {
    EventKind kind;
    const Instr* instr;
    std::uint32_t barrier, count;
    std::uint64_t value;
    bool flag;
  };
  static constexpr std::size_t kept = 10;
  std::map<const Warp*, std::deque<Entry>> entries_;
};

class Checker : public Observer {
 public:
  explicit Checker(const History& history) : history_(history) {}

 protected:
  [[noreturn]] void report(const Event& e, int lane, const std::string& what) const;
  const History& history_;
};

std::string address_name(const Program& program,
                         std::uint32_t shared_address);  // "full+8 (0x4008)"
std::string line_of(const Instr& in);                    // "line 12 (st.shared.u32)"

std::unique_ptr<Observer> make_register_checker(const History& h);
std::unique_ptr<Observer> make_shared_memory_checker(const History& h, const Program& program);
std::unique_ptr<Observer> make_progress_checker(const History& h);
std::unique_ptr<Observer> make_global_store_checker(const History& h);

}  // namespace flashptx::emulator
