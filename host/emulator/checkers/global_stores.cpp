// Two copies out of shared memory to the same place, the second issued while the first may still write.
//
// cp.async.bulk.wait_group.read says that a copy has read its source; only wait_group says that its writes are done
// (PTX ISA, "cp.async.bulk.wait_group"). Which of two stores lands last is then open, and hardware nearly always picks
// the harmless one. Compared are stores of one cluster by the same tensor map and coordinates, or to the same address;
// reductions commute and are left alone. Next: shared_memory.cpp.
#include "host/emulator/checkers/checker.h"

namespace flashptx::emulator {
namespace {

class GlobalStoreChecker : public Checker {
 public:
  using Checker::Checker;

  void on_event(const Event& e) override {
    if (e.kind == EventKind::async_store) store(e);
    else if (e.kind == EventKind::bulk_waited && !e.flag) waited(e);
  }

 private:
  struct Store {
    const Warp* warp;
    int lane;
    std::uint64_t group;
    const Instr* instr;
  };

  static std::string place(const AsyncOp& op) {
    std::string key;
    const auto add = [&](const void* p, std::size_t n) { key.append(static_cast<const char*>(p), n); };
    if (op.kind == AsyncOp::Kind::tensor_store) {
      add(op.map, sizeof op.map);
      add(op.coordinates, op.instr->list.size() * sizeof op.coordinates[0]);
    } else {
      add(&op.global, sizeof op.global);
    }
    return key;
  }

  void store(const Event& e) {
    const AsyncOp& op = *e.copy;
    if (op.kind != AsyncOp::Kind::tensor_store && op.kind != AsyncOp::Kind::bulk_store) return;
    const auto [at, fresh] = in_flight_.try_emplace(place(op), Store{e.warp, e.lane, e.value, e.instr});
    if (fresh) return;
    const Store& s = at->second;
    report(e, e.lane,
           "writes to the global memory that " + line_of(*s.instr) + " (bulk group " + std::to_string(s.group) + " of warp " +
               std::to_string(s.warp->index) + ") may still write; cp.async.bulk.wait_group 0 missing (.read is not enough)");
  }
  void waited(const Event& e) {
    std::erase_if(in_flight_, [&](const auto& x) {
      return x.second.warp == e.warp && x.second.lane == e.lane && x.second.group < e.value;
    });
  }

  std::map<std::string, Store> in_flight_;
};

}  // namespace

std::unique_ptr<Observer> make_global_store_checker(const History& h) {
  return std::make_unique<GlobalStoreChecker>(h);
}

}  // namespace flashptx::emulator
