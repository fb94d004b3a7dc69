// Runs one attention problem on a device and doubts the answer.
//
// O and LSE lie between guard bytes and start as NaN, so that a missing or stray store shows. Used by `run`,
// `demo`, `fuzz` and by the tests' grid. Next: runner.cpp; tools/reference/error.h judges.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "host/attention.h"
#include "tools/reference/error.h"
#include "tools/reference/inputs.h"

namespace flashptx {

Status first_error(std::initializer_list<Status> all);

// A problem with its tensors and the two references, made once and run on any number of devices and kernels.
struct Case {
  reference::Tensors tensors;
  reference::Layout layout = reference::Layout::bshd;
  reference::Result exact, plain;
  bool lse = true, fast = false;                       // fast: ForwardProblem::fast
  std::int64_t q_block = 0, k_block = 0, v_block = 0;  // rows that share a scale; 0: all of a head
  std::vector<float> q_scale, k_scale, v_scale;  // 8 bit: (batch, heads) and twice (batch, heads_kv); empty: all 1. The references
                                                 // know nothing of them.

  const reference::Problem& problem() const { return tensors.problem; }
};

// `check_rows`: at most that many query rows per head are compared (0: chosen so that the float64 reference
// stays below some seconds; all of them for small problems). First, last and evenly spread rows are taken.
Case make_case(const reference::Problem& shape, reference::Layout layout, reference::Inputs inputs,
               std::uint64_t seed, bool lse, std::int64_t check_rows);
// The same of tensors that exist: inputs of one's own.
Case make_case(reference::Tensors tensors, reference::Layout layout, bool lse, std::int64_t check_rows);

// Evenly spread rows, the first and last among them; empty: all.
std::vector<std::int64_t> choose_rows(const reference::Problem& p, std::int64_t check_rows);

ForwardProblem host_problem(const Case& c);
// From a device's O and LSE what is compared: (batch, row, head, dim) and (batch, head, row) of the rows chosen.
std::vector<float> gather_o(const Case& c, const std::vector<std::uint8_t>& bytes);
std::vector<float> gather_lse(const Case& c, const std::vector<std::uint8_t>& bytes);
double flops(const reference::Problem& p);  // 4 s s d h b, halved when causal, as the papers count

bool has_direct_p(const std::string& kernel);  // a name: the kernel is one of fast mode
double lse_slack(const std::string& kernel);   // reference::lse_slack_of its plan

struct Outcome {
  Status status;                 // of planning and running; a fault's sentence
  std::string kernel, plan;      // name; the host's description
  reference::Error error;        // meaningful if status.ok()
  bool guards_untouched = true;
  std::vector<std::uint8_t> o_bytes, lse_bytes;  // as the device left them
  std::vector<float> milliseconds;               // empty unless timed

  bool ok() const { return status.ok() && error.ok && guards_untouched; }
  // One sentence for the first thing that is wrong; empty if ok.
  std::string complaint() const;
};

// `repeats` > 0 times the kernel too (on a GPU).
Outcome run_case(Device& device, Attention& attention, const Case& c, const ForwardChoice& choice,
                 int repeats = 0);

// A device allocation with guard bytes on both sides.
class GuardedBuffer {
 public:
  GuardedBuffer(Device& device, std::size_t bytes) : device_(device), bytes_(bytes) {}
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;
  Status allocate(std::uint8_t fill);  // contents: `fill`; guards: a pattern
  Status upload(const std::vector<std::uint8_t>& bytes);
  // Reads the contents and says whether the guards are as they were.
  Status download(std::vector<std::uint8_t>* bytes, bool* guards_untouched);
  std::uint64_t address() const { return base_ + guard_bytes; }

 private:
  static constexpr std::size_t guard_bytes = 4096;
  Device& device_;
  std::size_t bytes_;
  std::uint64_t base_ = 0;
};

}  // namespace flashptx
