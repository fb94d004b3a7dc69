// The schedule checker: replays a table for 0, 1, 2, 3 and 7 blocks and proves that no step reads what is not
// written, touches registers of a product in flight, or frees a stage that is still read.
#include <array>

#include "gen/schedule/schedule.h"

namespace flashptx {
namespace {

enum class Product { none, in_flight, done };

// What is known about each block, and about the register sets that blocks share.
struct Replay {
  struct Block {
    Product qk = Product::none, pv = Product::none;
    bool max = false, exp = false, packed = false, k_freed = false, v_freed = false, rescaled = false;
  };
  std::vector<Block> blocks;
  int s_owner = -1;  // block whose scores are in the S registers
  int p_owner = -1;  // block whose probabilities are in the P registers
  std::vector<std::pair<Do, int>> in_flight;

  explicit Replay(int n) : blocks(static_cast<std::size_t>(n)) {}

  bool flying(Do product) const {
    for (auto& g : in_flight)
      if (g.first == product) return true;
    return false;
  }
  void complete_through(Do product, int block) {
    for (std::size_t i = 0; i < in_flight.size(); ++i)
      if (in_flight[i] == std::make_pair(product, block)) {
        for (std::size_t k = 0; k <= i; ++k) {
          Block& b = blocks[static_cast<std::size_t>(in_flight[k].second)];
          (in_flight[k].first == Do::qk ? b.qk : b.pv) = Product::done;
        }
        in_flight.erase(in_flight.begin(), in_flight.begin() + static_cast<long>(i) + 1);
        return;
      }
  }

  std::string products(Do what, int block) {
    Block& b = blocks[static_cast<std::size_t>(block)];
    switch (what) {
      case Do::qk:
        if (flying(Do::qk)) return "S is rewritten while a Q K^T is in flight";
        if (s_owner >= 0 && !blocks[static_cast<std::size_t>(s_owner)].packed)
          return "S is rewritten before block " + std::to_string(s_owner) + " was packed";
        b.qk = Product::in_flight;
        s_owner = block;
        in_flight.push_back({Do::qk, block});
        return "";
      case Do::pv:
        if (!b.packed || p_owner != block) return "P of this block is not packed";
        if (b.pv != Product::none) return "P V is issued twice";
        if (block > 0 && blocks[static_cast<std::size_t>(block) - 1].pv == Product::none)
          return "P V of the block before was never issued";
        b.pv = Product::in_flight;
        in_flight.push_back({Do::pv, block});
        return "";
      case Do::wait_qk:
        if (b.qk == Product::none) return "waits for a Q K^T that was not issued";
        complete_through(Do::qk, block);
        return "";
      case Do::wait_pv:
        if (b.pv == Product::none) return "waits for a P V that was not issued";
        complete_through(Do::pv, block);
        return "";
      default: return "";
    }
  }

  std::string softmax(Do what, int block) {
    Block& b = blocks[static_cast<std::size_t>(block)];
    bool s_ready = b.qk == Product::done && s_owner == block;
    switch (what) {
      case Do::mask_max:
        if (!s_ready) return "reads S before wait_qk of this block";
        if (b.max) return "runs twice on one block";
        b.max = true;
        return "";
      case Do::exp_sum:
        if (!s_ready || !b.max) return "needs mask_max of this block first";
        b.exp = true;
        return "";
      case Do::rescale_o:
        if (!b.max) return "needs mask_max of this block first";
        if (flying(Do::pv)) return "touches O while a P V is in flight; wait_pv must come first";
        if (block > 0 && blocks[static_cast<std::size_t>(block) - 1].pv == Product::none)
          return "comes before P V of the block before: its share would miss the factor";
        if (b.pv != Product::none) return "comes after P V of its own block";
        b.rescaled = true;
        return "";
      case Do::pack_p:
        if (!b.exp || s_owner != block) return "needs exp_sum of this block first";
        if (flying(Do::pv)) return "rewrites P while a P V that reads it is in flight; wait_pv must come first";
        b.packed = true;
        p_owner = block;
        return "";
      default: return "";
    }
  }

  std::string step(Do what, int block) {
    Block& b = blocks[static_cast<std::size_t>(block)];
    switch (what) {
      case Do::free_k:
        if (b.qk != Product::done) return "frees K before wait_qk of this block";
        if (b.k_freed) return "frees K twice";
        b.k_freed = true;
        return "";
      case Do::free_v:
        if (b.pv != Product::done) return "frees V before wait_pv of this block";
        if (b.v_freed) return "frees V twice";
        b.v_freed = true;
        return "";
      case Do::qk:
      case Do::pv:
      case Do::wait_qk:
      case Do::wait_pv: return products(what, block);
      case Do::token_wait:
      case Do::token_pass: return "";
      default: return softmax(what, block);
    }
  }
};

ScheduleFault replay(const Schedule& s, int n) {
  Replay r(n);
  for (int trip = 0; trip < n + s.max_lag(); ++trip)
    for (std::size_t i = 0; i < s.steps.size(); ++i) {
      const Step& st = s.steps[i];
      int block = trip - st.lag;
      if (block < 0 || block >= n || (st.what == Do::rescale_o && block == 0)) continue;
      std::string bad = r.step(st.what, block);
      if (!bad.empty())
        return {"schedule " + s.name + ", step " + std::to_string(i + 1) + " {" + to_string(st.what) +
                    ", " + std::to_string(st.lag) + "}, trip " + std::to_string(trip) + " of " +
                    std::to_string(n) + " blocks: " + bad,
                static_cast<int>(i)};
    }
  for (int b = 0; b < n; ++b) {
    const Replay::Block& k = r.blocks[static_cast<std::size_t>(b)];
    std::string at = "schedule " + s.name + ": with " + std::to_string(n) + " blocks, block " +
                     std::to_string(b) + " ends ";
    if (k.pv != Product::done) return {at + "without a completed P V"};
    if (!k.k_freed) return {at + "with its K stage never freed"};
    if (!k.v_freed) return {at + "with its V stage never freed"};
    if (b > 0 && !k.rescaled) return {at + "without rescale_o"};
  }
  return {};
}

// Steps that may work on the block of the trip before. The others stand on this trip's own coordinates (the mask's
// columns, the first block's maximum, the turn), or would need a second register set.
bool may_lag(Do what) {
  switch (what) {
    case Do::pv:
    case Do::wait_pv:
    case Do::free_v: return true;
    default: return false;
  }
}

ScheduleFault check_shape(const Schedule& s) {
  std::array<int, kDoCount> count{}, last{};
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    const Step& st = s.steps[i];
    if (st.lag < 0 || st.lag > 1)
      return {"schedule " + s.name + ": lag " + std::to_string(st.lag) + " of " + to_string(st.what) +
                  " must be 0 or 1 (one S and one P register set)",
              static_cast<int>(i)};
    if (st.lag && !may_lag(st.what))
      return {"schedule " + s.name + ": " + to_string(st.what) + " cannot lag; only pv, wait_pv and free_v can",
              static_cast<int>(i)};
    ++count[static_cast<std::size_t>(st.what)];
    last[static_cast<std::size_t>(st.what)] = static_cast<int>(i);
  }
  const int wait = static_cast<int>(Do::token_wait), pass = static_cast<int>(Do::token_pass);
  bool tokens = count[wait] != 0 || count[pass] != 0;
  for (int i = 0; i < kDoCount; ++i) {
    int wanted = (i == wait || i == pass) && !tokens ? 0 : 1;
    if (count[static_cast<std::size_t>(i)] != wanted)
      return {"schedule " + s.name + ": step " + to_string(static_cast<Do>(i)) + " stands " +
                  std::to_string(count[static_cast<std::size_t>(i)]) + " times, wanted once",
              count[static_cast<std::size_t>(i)] ? last[static_cast<std::size_t>(i)] : -1};
  }
  if (tokens && last[pass] < last[wait])
    return {"schedule " + s.name + ": token_pass stands before token_wait: the ring would hand out two turns", last[pass]};
  return {};
}

}  // namespace

ScheduleFault find_fault(const Schedule& schedule) {
  ScheduleFault fault = check_shape(schedule);
  for (int n : {0, 1, 2, 3, 7})
    if (fault.sentence.empty()) fault = replay(schedule, n);
  return fault;
}

std::string check(const Schedule& schedule) { return find_fault(schedule).sentence; }

}  // namespace flashptx
