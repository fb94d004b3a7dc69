// The emulator's tensor map and what TMA does with it: load, store and reduce of a box.
//
// A TensorMap of the emulator is a record of 128 bytes with a magic number; it travels through
// kernel parameters and memory as a CUtensorMap does. A box is walked row by row; each row yields
// runs that are contiguous in shared memory after the swizzle on the absolute address. Functions
// without state: time, barriers and byte counts are the machine's; box_bytes() is what it counts.
// Next: host/tensor_map_check.cpp (rules of encoding).
#pragma once

#include <cstdint>
#include <string>

#include "host/device.h"

namespace flashptx::emulator {

// Element types that TMA knows (CUtensorMapDataType). Loads and stores care for the size alone.
enum class MapType : std::uint8_t { u8, u16, u32, s32, u64, s64, f16, f32, f64, bf16 };
constexpr int map_type_bytes(MapType t) {
  switch (t) {
    case MapType::u8:
      return 1;
    case MapType::u16:
    case MapType::f16:
    case MapType::bf16:
      return 2;
    case MapType::u32:
    case MapType::s32:
    case MapType::f32:
      return 4;
    default:
      return 8;
  }
}

// The decoded record. Innermost dimension first.
struct TiledMap {
  std::uint64_t address = 0;
  std::uint64_t dims[5] = {1, 1, 1, 1, 1};
  std::uint64_t stride_bytes[5] = {};  // [0] = element bytes; [i] steps dimension i
  std::uint32_t box[5] = {1, 1, 1, 1, 1};
  std::uint32_t element_strides[5] = {1, 1, 1, 1,
                                      1};  // [0] is ignored, as without interleave on the GPU
  int rank = 0;
  MapType type = MapType::bf16;
  int swizzle_bytes = 0;
  bool nan_fill = false;  // CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA

  int element_bytes() const { return map_type_bytes(type); }
  // Elements of the box in shared memory along dimension i: ceil(box / element stride).
  std::uint32_t count(int i) const {
    return i == 0 ? box[0] : (box[i] + element_strides[i] - 1) / element_strides[i];
  }
  std::uint32_t row_bytes() const { return box[0] * static_cast<std::uint32_t>(element_bytes()); }
  std::uint32_t rows() const { return count(1) * count(2) * count(3) * count(4); }
  // Bytes in shared memory and on the mbarrier: always the whole box, out-of-bounds parts included.
  std::uint32_t box_bytes() const { return row_bytes() * rows(); }
};

// No checks: check_tensor_map(desc) comes first.
TiledMap from_desc(const TensorMapDesc& desc);
void encode_map(const TiledMap& map, TensorMap* out);
// False, with one sentence in *why, when the bytes are no record of ours or have been damaged.
bool decode_map(const void* bytes128, TiledMap* out, std::string* why);

// Where global bytes are: returns a host pointer to `bytes` bytes at `address`, or null, which
// makes the copy stop and report that address. `write` is true for stores and reductions.
struct GlobalMemory {
  virtual ~GlobalMemory() = default;
  virtual std::uint8_t* at(std::uint64_t address, std::uint64_t bytes, bool write) = 0;
};

// A run of the box: `bytes` contiguous in shared memory (one 16-byte chunk, or a whole row without
// swizzle). Bytes [first_valid, first_valid + valid) exist in the tensor, `global` is the address
// of byte first_valid (0 when valid == 0); the rest is out of bounds.
struct BoxRun {
  std::uint32_t shared = 0;
  std::uint32_t bytes = 0;
  std::uint32_t first_valid = 0;
  std::uint32_t valid = 0;
  std::uint64_t global = 0;
};

// One row of the box: row_bytes() at the unswizzled shared address `shared`, of which bytes
// [first_valid, first_valid + valid) exist, starting at `global`. Rows are in shared-memory order.
struct BoxRow {
  std::uint32_t shared = 0;
  std::uint32_t first_valid = 0;
  std::uint32_t valid = 0;
  std::uint64_t global = 0;
};

// Row number `row` (0 .. rows() - 1) of the box at `coordinates` (rank of them, signed elements).
BoxRow box_row(const TiledMap& map, const std::int32_t* coordinates, std::uint32_t shared_base,
               std::uint32_t row);

// Calls visit(const BoxRun&) for each run of the box in shared-memory order of the unswizzled rows.
template <class Visit>
void for_each_run(const TiledMap& map, const std::int32_t* coordinates, std::uint32_t shared_base,
                  Visit&& visit);

// What is wrong with the shared address of a copy ("" if nothing): 128-byte alignment (PTX ISA),
// and with a swizzle, a base that is not a multiple of 8 * swizzle_bytes is legal but moves the
// pattern: not reported.
std::string check_shared_address(const TiledMap& map, std::uint32_t shared_base);

struct CopyResult {
  bool ok = true;
  std::uint64_t bad_address = 0;  // first global byte that GlobalMemory refused
  std::uint32_t bytes = 0;  // loads: box_bytes(); stores and reductions: bytes that were in bounds
};

// `shared` points at shared address `shared_origin`; the caller has checked that the box fits.
CopyResult tma_load(const TiledMap& map, const std::int32_t* coordinates, std::uint32_t shared_base,
                    std::uint8_t* shared, std::uint32_t shared_origin, GlobalMemory& global);
CopyResult tma_store(const TiledMap& map, const std::int32_t* coordinates,
                     std::uint32_t shared_base, const std::uint8_t* shared,
                     std::uint32_t shared_origin, GlobalMemory& global);

enum class ReduceOp { add, min, max, inc, dec, and_, or_, xor_ };
// Whether cp.reduce.async.bulk.tensor knows op for the map's type.
bool reduce_supported(ReduceOp op, MapType type);
// Each element is one atomic update, relaxed, so that CTAs on several host threads may reduce into
// one tensor. f32 add flushes subnormals; f16 and bf16 round to nearest even.
CopyResult tma_reduce(ReduceOp op, const TiledMap& map, const std::int32_t* coordinates,
                      std::uint32_t shared_base, const std::uint8_t* shared,
                      std::uint32_t shared_origin, GlobalMemory& global);
// The same for untiled cp.reduce.async.bulk: `bytes` at `destination` (host) from `source`.
void reduce_elements(ReduceOp op, MapType type, std::uint8_t* destination,
                     const std::uint8_t* source, std::uint32_t bytes);

// Shared addresses (16-byte chunks, swizzled) that the box covers, in order; room for box_bytes()
// / 16.
std::uint32_t box_chunks(const TiledMap& map, std::uint32_t shared_base, std::uint32_t* out);

template <class Visit>
void for_each_run(const TiledMap& map, const std::int32_t* coordinates, std::uint32_t shared_base,
                  Visit&& visit) {
  const std::uint32_t row_bytes = map.row_bytes();
  const std::uint32_t span = map.swizzle_bytes == 0 ? row_bytes : 16;
  const std::uint32_t mask =
      map.swizzle_bytes == 0 ? 0 : static_cast<std::uint32_t>(map.swizzle_bytes) / 16 - 1;
  for (std::uint32_t r = 0, rows = map.rows(); r < rows; ++r) {
    const BoxRow row = box_row(map, coordinates, shared_base, r);
    const std::uint32_t end = row.first_valid + row.valid;
    for (std::uint32_t at = 0; at < row_bytes; at += span) {
      BoxRun run;
      const std::uint32_t address = row.shared + at;
      run.shared = address ^ ((address >> 7 & mask) << 4);
      run.bytes = span;
      const std::uint32_t from = row.first_valid > at ? row.first_valid : at;
      const std::uint32_t to = end < at + span ? end : at + span;
      if (from < to) {
        run.first_valid = from - at;
        run.valid = to - from;
        run.global = row.global + (from - row.first_valid);
      }
      visit(run);
    }
  }
}

}  // namespace flashptx::emulator
