// From a kernel's list of parameters, by name, to the array that a launch wants.
//
// The generator may add, drop or reorder parameters of a kernel; nothing here knows their order.
// Every value that a forward kernel can ask for is a field of ForwardArguments; bind() turns the
// names of LaunchFacts into offsets once, at planning, so that a launch only adds a base address.
// Next: host/attention.cpp (fills the fields).
#pragma once

#include <cstdint>

#include "gen/catalog.h"
#include "host/device.h"

namespace flashptx {

struct ForwardArguments {
  TensorMap q_map, k_map, v_map, o_map;
  TensorMap v_rows_map, vt_store_map;  // V by rows, and V^T as the kernel writes it (gen/tile/tile_background.cpp)
  std::uint64_t lse = 0;           // 0 = not wanted
  std::uint64_t tile_counter = 0;  // two u32 that the kernel finds zero and leaves zero
  std::uint64_t v_flags = 0;       // so are these, 2 + batch * heads_kv
  std::uint32_t seqlen_q = 0, seqlen_k = 0, heads_q = 0, heads_kv = 0, batch = 0;
  std::uint32_t tail_first = 0, tail_parts = 0, tail_blocks = 0;  // tiles cut along the keys (gen/tile/split_tail.cpp)
  std::uint64_t tail_partials = 0, tail_arrivals = 0;
  std::uint32_t head_group = 1;  // heads scheduled together, so that their K and V stay in L2
  std::uint64_t trace = 0;       // marks (gen/trace_events.h); 0 = none
  std::uint32_t trace_capacity = 0;
  float softmax_scale_log2 = 0;  // scale * log2(e)
  // 8 bit: fp32 scales; 0 = 1
  std::uint64_t q_scale = 0, k_scale = 0, v_scale = 0;
  std::uint32_t q_scale_batch = 0, q_scale_head = 0, k_scale_batch = 0, k_scale_head = 0, v_scale_batch = 0,
                v_scale_head = 0, q_scale_group = 1, q_scale_rows = 1, k_scale_rows = 1, v_scale_rows = 1;
};

struct Binding {
  static constexpr int max_params = 40;
  int count = 0;
  std::uint16_t offset[max_params] = {};
  bool tile_counter = false, tail = false, v_flags = false;

  // `params` has room for max_params pointers into `arguments`.
  void point(ForwardArguments& arguments, void** params) const {
    for (int i = 0; i < count; ++i) params[i] = reinterpret_cast<char*>(&arguments) + offset[i];
  }
};

// internal, with the parameter's name, when a kernel asks for something that the host does not
// have.
Status bind(const LaunchFacts& facts, Binding* out);

}  // namespace flashptx
