// See ladder_run.h.
#include "tools/flashptx/ladder_run.h"

#include <cmath>
#include <memory>

#include "tools/reference/numeric.h"

namespace flashptx {
namespace {

struct Memory {
  Device& device;
  std::vector<std::uint64_t> owned;
  explicit Memory(Device& d) : device(d) {}
  ~Memory() {
    for (std::uint64_t a : owned) device.free(a);
  }
  Status allocate(std::size_t bytes, std::uint64_t* address) {
    const Status s = device.allocate(bytes, address);
    if (s.ok()) owned.push_back(*address);
    return s;
  }
  Status upload(const std::vector<std::uint8_t>& bytes, std::uint64_t* address) {
    if (Status s = allocate(bytes.size(), address); !s.ok()) return s;
    return device.copy_to_device(*address, bytes.data(), bytes.size());
  }
};

struct Fused {
  std::uint64_t q = 0, k = 0, v = 0, o = 0, lse = 0;
  std::uint32_t seqlen_q = 0, seqlen_k = 0, heads_q = 0, heads_kv = 0;
  float scale_log2 = 0;
};

Status launch_fused(Device& device, LoadedKernel* kernel, const LadderConfig& c, const LaunchFacts& facts, std::uint32_t batch, Fused& a) {
  void* params[] = {&a.q, &a.k, &a.v, &a.o, &a.lse, &a.seqlen_q, &a.seqlen_k, &a.heads_q, &a.heads_kv, &a.scale_log2};
  LaunchDims dims;
  dims.grid[0] = (a.seqlen_q + static_cast<std::uint32_t>(c.tile_q()) - 1) / static_cast<std::uint32_t>(c.tile_q());
  dims.grid[1] = a.heads_q;
  dims.grid[2] = batch;
  dims.block[0] = static_cast<std::uint32_t>(facts.block_threads);
  dims.shared_bytes = facts.shared_bytes;
  return device.launch(kernel, dims, params, 10, nullptr);
}

}  // namespace

Status run_rung(Device& device, Rung rung, const reference::Tensors& tensors, int repeats, LadderResult* out) {
  const reference::Problem& p = tensors.problem;
  const LadderConfig config{rung, p.dtype, p.head_dim, p.mask};
  const EmittedKernel emitted = emit_ladder(config);
  Memory memory(device);
  Fused a;
  const auto rows = static_cast<std::size_t>(p.batch * p.seqlen_q * p.heads_q), elements = rows * static_cast<std::size_t>(p.head_dim);
  for (Status s : {memory.upload(tensors.q, &a.q), memory.upload(tensors.k, &a.k), memory.upload(tensors.v, &a.v), memory.allocate(2 * elements, &a.o),
                   memory.allocate(4 * rows, &a.lse)})
    if (!s.ok()) return s;
  a.seqlen_q = static_cast<std::uint32_t>(p.seqlen_q), a.seqlen_k = static_cast<std::uint32_t>(p.seqlen_k);
  a.heads_q = static_cast<std::uint32_t>(p.heads_q), a.heads_kv = static_cast<std::uint32_t>(p.heads_kv);
  a.scale_log2 = static_cast<float>(p.scale / std::log(2.0));
  LoadedKernel* kernel = nullptr;
  if (Status s = device.load(emitted.text, config.name(), emitted.facts.shared_bytes, &kernel); !s.ok()) return s;
  const auto unload = [&](LoadedKernel* l) { device.unload(l); };
  const std::unique_ptr<LoadedKernel, decltype(unload)> loaded(kernel, unload);
  const auto launch = [&] { return launch_fused(device, kernel, config, emitted.facts, static_cast<std::uint32_t>(p.batch), a); };
  if (Status s = launch(); !s.ok()) return s;
  if (Status s = device.synchronize(nullptr); !s.ok()) return s;
  std::vector<std::uint16_t> o16(elements);
  out->lse.resize(rows);
  if (Status s = device.copy_from_device(o16.data(), a.o, 2 * elements); !s.ok()) return s;
  if (Status s = device.copy_from_device(out->lse.data(), a.lse, 4 * rows); !s.ok()) return s;
  out->o.resize(elements);
  for (std::size_t i = 0; i < elements; ++i) out->o[i] = static_cast<float>(reference::decode(p.dtype, o16[i]));
  return repeats > 0 ? device.time(launch, 5, repeats, nullptr, &out->milliseconds) : Status{};
}

}  // namespace flashptx
