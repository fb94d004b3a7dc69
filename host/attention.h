// Attention on one device: a problem in -> checked -> KernelConfig -> PTX -> loaded kernel ->
// launch.
//
// Attention owns what plans share: loaded kernels and the ring of tile counters. A ForwardPlan owns
// what one problem needs: parameter offsets, grid, tensor maps of the last pointers. run() neither
// allocates nor synchronises. Packed lengths and the backward pass become further problems and
// plans beside this one. Next: host/problem.h (checks), host/select.h (choice), host/arguments.h
// (parameters).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "gen/catalog.h"
#include "host/arguments.h"
#include "host/device.h"
#include "host/prepare.h"
#include "host/problem.h"
#include "host/split_tail.h"

namespace flashptx {

// A loaded kernel and what is needed to launch it; shared by all plans of the same text.
struct KernelEntry {
  KernelConfig config;
  LaunchFacts facts;
  Binding binding;
  LoadedKernel* loaded = nullptr;
  std::string source;  // "generated" or "text given by the caller"
};

class Attention;

class ForwardPlan {
 public:
  // Enqueues on `stream`. Thread-safe. A generated kernel starts while the kernel before it on the stream ends, if that one lets it: launch
  // and prologue are hidden. It waits for that one's end before it touches memory, as each kernel of ours does in every CTA, so that all
  // launches before are over by then: counters, flags and workspaces of consecutive launches never meet.
  Status run(const ForwardPointers& at, Stream stream);

  const std::string& describe() const { return description_; }
  const std::string& kernel_name() const { return name_; }  // "" for an empty problem
  const KernelEntry* kernel() const { return kernel_; }     // null for an empty problem
  const LaunchDims& dims() const { return dims_; }
  const ForwardProblem& problem() const { return problem_; }
  // 0: none. Else V is transposed into it, by a launch of its own or by the kernel's idle warps, or parts of O are kept in it (then a run may go
  // without: slower); runs that overlap in time need one each.
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  bool transposes_v() const { return transposed_bytes_ != 0 && !in_background(); }  // by a launch of its own
  bool in_background() const { return flag_words_ != 0; }
  const SplitTail& tail() const { return tail_; }  // what a run with a workspace cuts

 private:
  friend class Attention;
  static constexpr int maps = 6;  // Q, K, V, O; of a kernel that writes V^T itself also V by rows and V^T where it is stored
  Status encode(const ForwardPointers& at);

  Attention* owner_ = nullptr;
  ForwardProblem problem_;
  KernelEntry* kernel_ = nullptr;
  LaunchDims dims_;
  std::string name_, description_;
  std::size_t workspace_bytes_ = 0;
  std::size_t transposed_bytes_ = 0;  // of it, at its beginning: V^T
  std::uint32_t flag_words_ = 0;      // of a kernel that writes V^T itself: what a launch needs of Attention's
  std::uint32_t tiles_ = 0;  // of a kernel that can cut some
  SplitTail tail_;               // which of them are, where a run has the workspace for it
  std::size_t tail_offset_ = 0;  // of their parts in the workspace
  TransposeProblem transpose_;  // with transposed_bytes_

  std::mutex mutex_;  // guards the four below
  TensorMapDesc descs_[maps];
  std::uint64_t encoded_for_[maps] = {};
  ForwardArguments arguments_;  // scalars fixed at planning; maps of the last pointers
};

// What a caller may insist on. Empty = decide for me.
struct ForwardChoice {
  std::string kernel;  // name of a KernelConfig
  std::string ptx;     // text run in place of that kernel's, with the same entry and parameters
  std::optional<Schedule> schedule = {};  // an own table, in place of the chosen kernel's
};

class Attention {
 public:
  explicit Attention(Device& device, int sm_margin = 0);
  ~Attention();
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  // Plans must not outlive this object. Thread-safe.
  Status plan_forward(const ForwardProblem& problem, const ForwardChoice& choice,
                      std::unique_ptr<ForwardPlan>* out);
  Device& device() { return device_; }
  Prepare& prepare() { return prepare_; }  // its kernels are loaded once, whoever asks

 private:
  friend class ForwardPlan;
  Status choose(const ForwardProblem& p, const ForwardChoice& choice, KernelConfig* config,
                std::string* reason) const;
  Status kernel_for(const KernelConfig& config, const std::string& ptx, KernelEntry** out);
  Status make_kernel(const KernelConfig& config, const std::string& ptx, KernelEntry* entry);
  Status set_grid(ForwardPlan& plan) const;
  Status make_counters();
  Status make_arrivals();
  void set_tail(ForwardPlan& plan, bool always) const;
  Status make_flags();
  Status plan_transposition(ForwardPlan& plan);
  std::uint64_t next_counter(bool captured);
  std::uint64_t next_arrivals(bool captured);
  std::uint64_t next_flags(bool captured, std::uint32_t words);

  Device& device_;
  Prepare prepare_;
  const int sm_margin_;
  std::mutex mutex_;  // guards kernels_ and the making of counters_
  std::map<std::string, std::unique_ptr<KernelEntry>> kernels_;
  std::uint64_t counters_ = 0, arrivals_ = 0, flags_ = 0;
  std::atomic<std::uint32_t> next_eager_{0}, next_captured_{0}, next_eager_arrivals_{0}, next_captured_arrivals_{0};
  std::atomic<std::uint32_t> next_eager_flags_{0}, next_captured_flags_{0};  // words
};

}  // namespace flashptx
