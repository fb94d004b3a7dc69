// See ladder_run.h.
#include "tools/flashptx/ladder_run.h"

#include <cmath>
#include <map>

#include "tools/reference/numeric.h"

namespace flashptx {
namespace {

// Every value that a kernel of the ladder may take, by the name of its parameter.
struct Arguments {
  std::map<std::string, std::uint64_t> pointers;
  std::map<std::string, std::uint32_t> sizes;
  float scale_log2 = 0;
  void* of(const std::string& name) {
    if (name == "softmax_scale_log2") return &scale_log2;
    const auto p = pointers.find(name);
    return p != pointers.end() ? static_cast<void*>(&p->second) : &sizes.at(name);
  }
};

// A rung on a device; frees what it took.
class Rungs {
 public:
  Rungs(Device& device, const reference::Problem& problem) : device_(device), p_(problem) {}
  ~Rungs() {
    for (const Stage& s : stages_) device_.unload(s.kernel);
    for (const auto& [name, address] : arguments_.pointers) device_.free(address);
  }
  Rungs(const Rungs&) = delete;
  Rungs& operator=(const Rungs&) = delete;

  Status allocate(const std::string& name, std::size_t bytes) {
    return device_.allocate(bytes, &arguments_.pointers[name]);
  }
  Status upload(const std::string& name, const std::vector<std::uint8_t>& bytes) {
    if (Status s = allocate(name, bytes.size()); !s.ok()) return s;
    return device_.copy_to_device(arguments_.pointers[name], bytes.data(), bytes.size());
  }
  Status download(const std::string& name, void* to, std::size_t bytes) {
    return device_.copy_from_device(to, arguments_.pointers[name], bytes);
  }
  Status load(const LadderConfig& config) {
    const EmittedKernel emitted = emit_ladder(config);
    Stage stage;
    stage.config = config;
    stage.facts = emitted.facts;
    const Status s =
        device_.load(emitted.text, config.name(), emitted.facts.shared_bytes, &stage.kernel);
    if (s.ok()) stages_.push_back(stage);
    return s;
  }
  void set_sizes() {
    arguments_.sizes = {{"seqlen_q", static_cast<std::uint32_t>(p_.seqlen_q)},
                        {"seqlen_k", static_cast<std::uint32_t>(p_.seqlen_k)},
                        {"heads_q", static_cast<std::uint32_t>(p_.heads_q)},
                        {"heads_kv", static_cast<std::uint32_t>(p_.heads_kv)}};
    arguments_.scale_log2 = static_cast<float>(p_.scale / std::log(2.0));
  }
  Status launch() {
    for (Stage& s : stages_) {
      LaunchDims dims;
      if (!grid_of(s.config, &dims)) continue;  // nothing to do: no keys
      dims.block[0] = static_cast<std::uint32_t>(s.facts.block_threads);
      dims.shared_bytes = s.facts.shared_bytes;
      std::vector<void*> params;
      for (const ParamFact& f : s.facts.params) params.push_back(arguments_.of(f.name));
      const Status status =
          device_.launch(s.kernel, dims, params.data(), static_cast<int>(params.size()), nullptr);
      if (!status.ok()) return status;
    }
    return {};
  }

 private:
  struct Stage {
    LadderConfig config;
    LaunchFacts facts;
    LoadedKernel* kernel = nullptr;
  };
  // The formulas of LaunchFacts::grid.
  bool grid_of(const LadderConfig& c, LaunchDims* d) const {
    const auto tiles = [](std::int64_t n, int tile) {
      return static_cast<std::uint32_t>((n + tile - 1) / tile);
    };
    const std::uint32_t q_tiles = tiles(p_.seqlen_q, c.tile_q()),
                        matrices = static_cast<std::uint32_t>(p_.batch * p_.heads_q);
    switch (c.rung) {
      case Rung::unfused_scores:
        d->grid[0] = tiles(p_.seqlen_k, c.tile_kv()), d->grid[1] = q_tiles, d->grid[2] = matrices;
        break;
      case Rung::unfused_softmax:
        d->grid[0] = static_cast<std::uint32_t>(p_.seqlen_q), d->grid[1] = matrices;
        break;
      case Rung::unfused_output:
        d->grid[0] = q_tiles, d->grid[1] = matrices;
        break;
      default:
        d->grid[0] = q_tiles, d->grid[1] = static_cast<std::uint32_t>(p_.heads_q),
        d->grid[2] = static_cast<std::uint32_t>(p_.batch);
    }
    return d->grid[0] > 0 && d->grid[1] > 0 && d->grid[2] > 0;
  }

  Device& device_;
  const reference::Problem& p_;
  Arguments arguments_;
  std::vector<Stage> stages_;
};

}  // namespace

std::vector<LadderConfig> kernels_of_rung(Rung rung, DataType dtype, int head_dim, Mask mask) {
  if (rung == Rung::fa1 || rung == Rung::fa2) return {{rung, dtype, head_dim, mask}};
  return {{Rung::unfused_scores, dtype, head_dim, mask},
          {Rung::unfused_softmax, dtype, head_dim, mask},
          {Rung::unfused_output, dtype, head_dim, mask}};
}

Status run_rung(Device& device, Rung rung, const reference::Tensors& tensors, int repeats,
                LadderResult* out) {
  const reference::Problem& p = tensors.problem;
  const auto rows = static_cast<std::size_t>(p.batch * p.seqlen_q * p.heads_q),
             elements = rows * static_cast<std::size_t>(p.head_dim);
  Rungs r(device, p);
  r.set_sizes();
  for (Status s : {r.upload("q", tensors.q), r.upload("k", tensors.k), r.upload("v", tensors.v),
                   r.allocate("o", 2 * elements), r.allocate("lse", 4 * rows)})
    if (!s.ok()) return s;
  const std::vector<LadderConfig> kernels = kernels_of_rung(rung, p.dtype, p.head_dim, p.mask);
  if (kernels.size() > 1) {
    const std::size_t pitch = static_cast<std::size_t>((p.seqlen_k + 7) / 8 * 8);
    if (Status s = r.allocate("s", 2 * rows * pitch); !s.ok()) return s;
  }
  for (const LadderConfig& c : kernels)
    if (Status s = r.load(c); !s.ok()) return s;
  if (Status s = r.launch(); !s.ok()) return s;
  if (Status s = device.synchronize(nullptr); !s.ok()) return s;
  std::vector<std::uint16_t> o16(elements);
  out->lse.resize(rows);
  if (Status s = r.download("o", o16.data(), 2 * elements); !s.ok()) return s;
  if (Status s = r.download("lse", out->lse.data(), 4 * rows); !s.ok()) return s;
  out->o.resize(elements);
  for (std::size_t i = 0; i < elements; ++i)
    out->o[i] = static_cast<float>(reference::decode(p.dtype, o16[i]));
  return repeats > 0
             ? device.time([&] { return r.launch(); }, 5, repeats, nullptr, &out->milliseconds)
             : Status{};
}

}  // namespace flashptx
