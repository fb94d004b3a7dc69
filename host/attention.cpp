// Planning and launching, in the order in which they happen. See host/attention.h.
//
// Next: gen/kernels/attention_forward.cpp for the other side of every parameter set here.
#include "host/attention.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <exception>

#include "gen/schedule/text.h"
#include "host/maps.h"
#include "host/select.h"
#include "host/sha256.h"
#include "host/split_tail.h"

namespace flashptx {
namespace {

// Counter slots. A launch that is captured into a graph keeps its slot for ever, because the graph
// may run at any time beside fresh launches; the others take turns in a ring far longer than any
// device's queue.
constexpr std::uint32_t eager_slots = 16384;
constexpr std::uint32_t captured_slots = 49152;
constexpr std::uint32_t slot_bytes = 16;  // two u32, padded
constexpr std::size_t counter_bytes = std::size_t{slot_bytes} * (eager_slots + captured_slots);

// The same for cut tiles: a u32 each, fewer than there are multiprocessors.
constexpr std::uint32_t eager_arrivals = 4096;
constexpr std::uint32_t captured_arrivals = 12288;
constexpr std::size_t arrivals_bytes = std::size_t{4} * most_cut_tiles * (eager_arrivals + captured_arrivals);

// The same for kernels that write V^T themselves: two words and one a head of V. A launch begins where the one before
// ends; one that would begin close to the end of its ring runs past it. At the most heads 251 launches may be in flight, at
// 256 heads 3263; those of one stream never run at once and may be more.
constexpr std::uint32_t flags_margin = most_flagged_heads + 64;
constexpr std::uint32_t eager_flags = 1 << 20, captured_flags = 1 << 22;  // words, powers of two: counts wrap
constexpr std::size_t flags_bytes = std::size_t{4} * (eager_flags + captured_flags + 2 * flags_margin);

constexpr std::int64_t l2_budget_bytes =
    32 << 20;  // of 50 to 60 MB; the rest for Q, O and what else runs

// Heads whose K and V fit in L2 together: the tile order goes through them before it moves on.
std::uint32_t head_group(const ForwardProblem& p) {
  const std::int64_t kv_bytes = p.seqlen_k * (p.head_dim + p.value_dim()) * element_bytes(p.dtype);
  const std::int64_t all = p.heads_q * p.batch;
  if (kv_bytes == 0) return static_cast<std::uint32_t>(std::min<std::int64_t>(all, UINT32_MAX));
  const std::int64_t fit = l2_budget_bytes / kv_bytes * (p.heads_q / p.heads_kv);
  return static_cast<std::uint32_t>(std::max<std::int64_t>(1, std::min(all, fit)));
}

// 0 becomes the smallest normal float: the kernel multiplies -inf (a masked score) by it, and -inf
// * 0 is NaN.
float scale_log2(float scale) {
  return std::max(FLT_MIN, static_cast<float>(static_cast<double>(scale) * 1.4426950408889634));
}

ForwardArguments scalars(const ForwardProblem& p) {
  ForwardArguments a{};
  a.seqlen_q = static_cast<std::uint32_t>(p.seqlen_q);
  a.seqlen_k = static_cast<std::uint32_t>(p.seqlen_k);
  a.heads_q = static_cast<std::uint32_t>(p.heads_q);
  a.heads_kv = static_cast<std::uint32_t>(p.heads_kv);
  a.batch = static_cast<std::uint32_t>(p.batch);
  a.head_group = head_group(p);
  a.softmax_scale_log2 = scale_log2(p.scale());
  const auto u32 = [](std::int64_t v) { return static_cast<std::uint32_t>(v); };
  a.q_scale_batch = u32(p.q_scale.batch), a.q_scale_head = u32(p.q_scale.head);
  a.k_scale_batch = u32(p.k_scale.batch), a.k_scale_head = u32(p.k_scale.head);
  a.v_scale_batch = u32(p.v_scale.batch), a.v_scale_head = u32(p.v_scale.head);
  a.q_scale_group = u32(p.q_scale_group);
  // More rows than there are: the whole head is one block.
  const auto rows = [&](const ScaleStrides& s) { return s.block_rows ? u32(s.block_rows) : std::uint32_t{1} << 31; };
  a.q_scale_rows = rows(p.q_scale), a.k_scale_rows = rows(p.k_scale), a.v_scale_rows = rows(p.v_scale);
  return a;
}

std::string problem_text(const ForwardProblem& p) {
  return to_string(p.dtype, p.type_k(), p.type_v()) + " " + to_string(p.mask) + ", batch " +
         std::to_string(p.batch) + ", heads " + std::to_string(p.heads_q) + "/" +
         std::to_string(p.heads_kv) + ", seqlen " + std::to_string(p.seqlen_q) + " x " +
         std::to_string(p.seqlen_k) + ", head_dim " + std::to_string(p.head_dim) + "/" +
         std::to_string(p.value_dim()) + ", softmax_scale " + std::to_string(p.scale());
}

std::string describe_tail(const ForwardPlan& plan) {
  const SplitTail& t = plan.tail();
  if (t.parts == 0) return "";
  return "tail:    with a workspace of " + std::to_string(plan.workspace_bytes()) + " bytes grid " + std::to_string(t.grid) +
         ", tiles from " + std::to_string(t.first) + " on in two parts, the first of " + std::to_string(t.blocks) +
         " key blocks\n";
}

std::string describe(const ForwardPlan& plan, const std::string& reason) {
  const KernelEntry& k = *plan.kernel();
  return "problem: " + problem_text(plan.problem()) + "\nkernel:  " + plan.kernel_name() + " (" +
         k.source + (k.loaded->from_cache ? ", code from the disk cache" : ", code assembled now") +
         ")\nwhy:     " + reason + "\nlaunch:  grid " + std::to_string(plan.dims().grid[0]) +
         " of " + std::to_string(k.facts.block_threads) + " threads, " +
         std::to_string(k.facts.shared_bytes) + " bytes of shared memory, " +
         std::to_string(k.loaded->registers) + " registers at entry, " +
         std::to_string(k.loaded->local_bytes) + " bytes of local memory\n" +
         (plan.in_background() ? "V^T:     written by the kernel's idle warps, into a workspace of " + std::to_string(plan.workspace_bytes()) + " bytes\n" : "") +
         describe_tail(plan);
}

}  // namespace

// ---- Planning

Attention::Attention(Device& device, int sm_margin) : device_(device), prepare_(device, sm_margin == 0), sm_margin_(sm_margin) {}

Attention::~Attention() {
  for (auto& [name, entry] : kernels_)
    if (entry != nullptr) device_.unload(entry->loaded);
  if (counters_ != 0) device_.free(counters_);
  if (arrivals_ != 0) device_.free(arrivals_);
  if (flags_ != 0) device_.free(flags_);
}

Status Attention::choose(const ForwardProblem& p, const ForwardChoice& choice, KernelConfig* config,
                         std::string* reason) const {
  if (choice.kernel.empty()) {
    Selection s;
    if (Status status = select_forward(p, &s); !status.ok()) return status;
    *config = s.config;
    *reason = s.reason;
    if (p.allow_workspace && let_split_tail(p, device_.info().multiprocessors - sm_margin_, config))
      *reason += "; tiles of the last wave cut along the keys";
  } else {
    std::string error;
    if (!KernelConfig::parse(choice.kernel, config, &error))
      return Status::error(StatusCode::invalid_argument,
                           "kernel is '" + choice.kernel + "': not a kernel name (" + error + ")");
    *reason = "asked for by name";
    if (Status status = check_forced(p, *config); !status.ok()) return status;
  }
  if (choice.schedule) {
    config->plan.follow(*choice.schedule);
    *reason += "; schedule given by the caller";
  }
  return {};
}

Status Attention::make_kernel(const KernelConfig& config, const std::string& ptx,
                              KernelEntry* entry) {
  entry->config = config;
  EmittedKernel emitted;
  try {
    emitted = emit(config);
  } catch (const std::exception& e) {
    return Status::error(StatusCode::unsupported,
                         "kernel " + config.name() + " cannot be generated: " + e.what());
  }
  entry->facts = emitted.facts;
  entry->source = ptx.empty() ? "generated" : "text given by the caller";
  if (Status s = bind(entry->facts, &entry->binding); !s.ok()) return s;
  const DeviceInfo& info = device_.info();
  if (entry->facts.shared_bytes > info.shared_bytes_per_block)
    return Status::error(StatusCode::unsupported, "kernel " + config.name() + " needs " +
                                                      std::to_string(entry->facts.shared_bytes) +
                                                      " bytes of shared memory: " + info.name +
                                                      " has " +
                                                      std::to_string(info.shared_bytes_per_block));
  return device_.load(ptx.empty() ? emitted.text : ptx, entry->facts.entry,
                      entry->facts.shared_bytes, &entry->loaded);
}

Status Attention::kernel_for(const KernelConfig& config, const std::string& ptx,
                             KernelEntry** out) {
  const std::string own =
      config.plan.own_schedule ? "#" + print_schedule(*config.plan.own_schedule) : "";
  const std::string key = config.name() + own + (ptx.empty() ? "" : "#" + to_hex(sha256(ptx)));
  std::lock_guard lock(mutex_);
  std::unique_ptr<KernelEntry>& slot = kernels_[key];
  if (slot == nullptr) {
    auto entry = std::make_unique<KernelEntry>();
    if (Status s = make_kernel(config, ptx, entry.get()); !s.ok()) return s;
    slot = std::move(entry);
  }
  *out = slot.get();
  return slot->binding.tile_counter ? make_counters() : Status{};
}

namespace {

Status make_zeros(Device& device, std::size_t bytes, std::uint64_t* out) {
  if (*out != 0) return {};
  std::uint64_t address = 0;
  if (Status s = device.allocate(bytes, &address); !s.ok()) return s;
  Status s = device.fill(address, 0, bytes, nullptr);
  if (s.ok()) s = device.synchronize(nullptr);
  if (!s.ok()) {
    device.free(address);
    return s;
  }
  *out = address;
  return {};
}

}  // namespace

Status Attention::make_counters() { return make_zeros(device_, counter_bytes, &counters_); }

Status Attention::make_arrivals() {
  std::lock_guard lock(mutex_);
  return make_zeros(device_, arrivals_bytes, &arrivals_);
}

Status Attention::make_flags() {
  std::lock_guard lock(mutex_);
  return make_zeros(device_, flags_bytes, &flags_);
}

std::uint64_t Attention::next_counter(bool captured) {
  const std::uint32_t slot =
      captured
          ? eager_slots + next_captured_.fetch_add(1, std::memory_order_relaxed) % captured_slots
          : next_eager_.fetch_add(1, std::memory_order_relaxed) % eager_slots;
  return counters_ + std::uint64_t{slot_bytes} * slot;
}

std::uint64_t Attention::next_arrivals(bool captured) {
  const std::uint32_t slot =
      captured ? eager_arrivals + next_captured_arrivals_.fetch_add(1, std::memory_order_relaxed) % captured_arrivals
               : next_eager_arrivals_.fetch_add(1, std::memory_order_relaxed) % eager_arrivals;
  return arrivals_ + std::uint64_t{4} * most_cut_tiles * slot;
}

std::uint64_t Attention::next_flags(bool captured, std::uint32_t words) {
  const std::uint32_t at =
      captured ? eager_flags + flags_margin + next_captured_flags_.fetch_add(words, std::memory_order_relaxed) % captured_flags
               : next_eager_flags_.fetch_add(words, std::memory_order_relaxed) % eager_flags;
  return flags_ + std::uint64_t{4} * at;
}

// Which tiles are cut, and where their parts stay in the workspace: behind V^T.
void Attention::set_tail(ForwardPlan& plan, bool always) const {
  const KernelConfig& c = plan.kernel_->config;
  if (!plan.kernel_->binding.tail) return;
  plan.tiles_ = static_cast<std::uint32_t>(forward_tiles(plan.problem_, c));
  if (!plan.problem_.allow_workspace) return;
  const int ctas = device_.info().multiprocessors - sm_margin_;
  plan.tail_ = split_tail(plan.problem_, c, ctas);  // a kernel asked for by name cuts as the host's choice would
  if (plan.tail_.parts == 0 && always) plan.tail_ = split_tail(plan.problem_, c, ctas, true);
  if (plan.tail_.parts == 0) return;
  plan.tail_offset_ = (plan.workspace_bytes_ + 255) / 256 * 256;
  plan.workspace_bytes_ = plan.tail_offset_ + plan.tail_.workspace_bytes;
}

Status Attention::set_grid(ForwardPlan& plan) const {
  const ForwardProblem& p = plan.problem_;
  const KernelEntry& k = *plan.kernel_;
  const std::int64_t rows = k.config.cluster_rows(), cluster = k.facts.cluster;
  const __int128 tiles =  // of a cluster
      static_cast<__int128>((p.seqlen_q + rows - 1) / rows) * p.heads_q * p.batch;
  if (tiles > INT32_MAX)
    return Status::error(StatusCode::unsupported,
                         "ceil(seqlen_q / " + std::to_string(rows) +
                             ") * heads_q * batch is above 2^31 - 1 tiles: split the batch");
  const std::int64_t free_sms = device_.info().multiprocessors - sm_margin_;
  if (free_sms < cluster)
    return Status::error(StatusCode::invalid_argument,
                         "sm_margin is " + std::to_string(sm_margin_) + ": must leave at least " +
                             std::to_string(cluster) + " of the device's " +
                             std::to_string(device_.info().multiprocessors) + " multiprocessors");
  // Every GPC of a Hopper GPU has an even number of multiprocessors, so that pairs of CTAs fill them all. Where one
  // did not, its last pair would wait for another's end: later, not wrong.
  const std::int64_t teams = k.facts.teams;
  const std::int64_t grid = std::min((static_cast<std::int64_t>(tiles) + teams - 1) / teams, free_sms / cluster) * cluster;
  plan.dims_.grid[0] = static_cast<std::uint32_t>(grid);
  plan.dims_.block[0] = static_cast<std::uint32_t>(k.facts.block_threads);
  plan.dims_.cluster[0] = static_cast<std::uint32_t>(cluster);
  plan.dims_.shared_bytes = k.facts.shared_bytes;
  return {};
}

// V^T of the whole tensor in the caller's workspace, before the kernel that reads it or by its own idle warps.
Status Attention::plan_transposition(ForwardPlan& plan) {
  const ForwardProblem& p = plan.problem_;
  plan.transpose_ = {p.type_v(), p.batch, p.seqlen_k, p.heads_kv, p.value_dim(), p.v};
  plan.transposed_bytes_ = plan.workspace_bytes_ =
      static_cast<std::size_t>(p.batch * p.heads_kv * p.value_dim() * std::max<std::int64_t>(p.keys_padded(), 128));
  if (plan.kernel_->binding.v_flags) {
    if (p.batch * p.heads_kv > most_flagged_heads)
      return Status::error(StatusCode::unsupported, "batch * heads_kv is " + std::to_string(p.batch * p.heads_kv) + ": kernel " +
                                                        plan.name_ + " keeps track of at most " + std::to_string(most_flagged_heads));
    plan.flag_words_ = static_cast<std::uint32_t>((2 + p.batch * p.heads_kv + 63) / 64 * 64);  // lines of L2 of its own
    return make_flags();
  }
  return p.seqlen_k == 0 ? Status{} : prepare_.load_transpose(plan.transpose_);
}

namespace {

bool gains_as_dependent(const ProblemClass& p) {
  return p.mask == Mask::causal || std::max(p.head_dim, p.head_dim_v) <= 128 || p.v_transposed;
}

}  // namespace

Status Attention::plan_forward(const ForwardProblem& problem, const ForwardChoice& choice,
                               std::unique_ptr<ForwardPlan>* out) {
  if (Status s = check_problem(problem); !s.ok()) return s;
  auto plan = std::make_unique<ForwardPlan>();
  plan->owner_ = this;
  plan->problem_ = problem;
  KernelConfig config;
  std::string reason;
  if (Status s = choose(problem, choice, &config, &reason); !s.ok()) return s;
  if (problem.empty()) {
    plan->description_ = "problem: " + problem_text(problem) + "\nkernel:  none, O is empty\n";
    *out = std::move(plan);
    return {};
  }
  if (Status s = kernel_for(config, choice.ptx, &plan->kernel_); !s.ok()) return s;
  plan->name_ = config.name();
  // In turns of four launches + 0.3 to 1 % full and 0.3 to 2 % causal up to 2k keys, but full at head dimension 256 - 1 to - 2.6 % at 512, - 0.6 to 0
  // beyond, where power binds and no gap lets the clock rise (tools/bench/results/dependents_h200.csv): not there, unless V comes from a pass.
  // A text of the caller's may not wait for the kernel before it; marks are written before ours do. And a grid that waits would stand on the
  // multiprocessors that are to be left free.
  plan->dims_.programmatic_dependent = choice.ptx.empty() && !config.plan.traced() && sm_margin_ == 0 &&
                                            gains_as_dependent(config.problem) && device_.info().launches_dependents();
  if (Status s = set_grid(*plan); !s.ok()) return s;
  plan->arguments_ = scalars(problem);
  ForwardProblem seen = problem;  // by the kernel
  if (config.problem.v_transposed && !problem.v_transposed) {
    if (Status s = plan_transposition(*plan); !s.ok()) return s;
    seen.v_transposed = true;
    seen.v = strides_bhsd(problem.value_dim(), problem.heads_kv, problem.keys_padded());
  }
  set_tail(*plan, !choice.kernel.empty());
  if (plan->tail_.parts != 0)
    if (Status s = make_arrivals(); !s.ok()) return s;
  if (Status s = describe_maps(seen, plan->kernel_->facts, plan->descs_); !s.ok()) return s;
  if (plan->in_background())
    if (Status s = describe_background_maps(problem, seen, plan->kernel_->facts, plan->descs_ + 4); !s.ok()) return s;
  plan->description_ = flashptx::describe(*plan, reason);
  *out = std::move(plan);
  return {};
}

// ---- Launching

// Encodes the maps whose pointer changed since the last call.
Status ForwardPlan::encode(const ForwardPointers& at) {
  const bool no_keys =
      problem_.seqlen_k == 0;  // K and V are then never read, but their maps must be legal
  const std::uint64_t v = transposed_bytes_ != 0 ? at.workspace : at.v;
  const std::uint64_t address[maps] = {at.q, no_keys ? at.o : at.k, no_keys ? at.o : v, at.o, no_keys ? at.o : at.v, no_keys ? at.o : v};
  TensorMap* const target[maps] = {&arguments_.q_map, &arguments_.k_map, &arguments_.v_map,
                                   &arguments_.o_map, &arguments_.v_rows_map, &arguments_.vt_store_map};
  for (int i = 0; i < (in_background() ? maps : 4); ++i) {
    if (encoded_for_[i] == address[i]) continue;
    descs_[i].address = address[i];
    encoded_for_[i] = 0;
    if (Status s = owner_->device_.encode(descs_[i], target[i]); !s.ok()) return s;
    encoded_for_[i] = address[i];
  }
  return {};
}

Status ForwardPlan::run(const ForwardPointers& at, Stream stream) {
  if (problem_.empty()) return {};
  if (Status s = check_pointers(problem_, at); !s.ok()) return s;
  const bool transposes = transposed_bytes_ != 0 && problem_.seqlen_k > 0;
  if (transposes || (workspace_bytes_ != 0 && at.workspace != 0)) {
    if (at.workspace == 0 || at.workspace % 16 != 0)
      return Status::error(StatusCode::invalid_argument,
                           "workspace is address " + std::to_string(at.workspace) + ": the plan wants " +
                               std::to_string(workspace_bytes_) + " bytes at a multiple of 16");
  }
  if (transposes && !in_background())
    if (Status s = owner_->prepare_.transpose_v(transpose_, at.v, at.workspace, stream); !s.ok()) return s;
  ForwardArguments arguments;
  {
    std::lock_guard lock(mutex_);
    if (Status s = encode(at); !s.ok()) return s;
    arguments = arguments_;
  }
  arguments.lse = at.lse;
  arguments.q_scale = at.q_scale, arguments.k_scale = at.k_scale, arguments.v_scale = at.v_scale;
  arguments.trace = at.trace;
  arguments.trace_capacity = at.trace_capacity;
  void* params[Binding::max_params];
  const Binding& binding = kernel_->binding;
  binding.point(arguments, params);
  Device& device = owner_->device_;
  LaunchDims dims = dims_;
  const bool cuts = tail_.parts != 0 && at.workspace != 0;
  if (cuts) {
    arguments.tail_first = tail_.first;
    arguments.tail_parts = tail_.parts, arguments.tail_blocks = tail_.blocks;
    arguments.tail_partials = at.workspace + tail_offset_;
    dims.grid[0] = tail_.grid;
  } else if (binding.tail) {
    arguments.tail_first = tiles_;
  }
  if (!binding.tile_counter && !binding.v_flags && !cuts) return device.launch(kernel_->loaded, dims, params, binding.count, stream);
  return device.launch_choosing(kernel_->loaded, dims, params, binding.count, stream, [&](bool captured) {
    if (binding.tile_counter) arguments.tile_counter = owner_->next_counter(captured);
    if (binding.v_flags) arguments.v_flags = owner_->next_flags(captured, flag_words_);
    if (cuts) arguments.tail_arrivals = owner_->next_arrivals(captured);
  });
}

}  // namespace flashptx
