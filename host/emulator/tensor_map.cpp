// TMA on the emulator's tensor map: the record, the walk over a box, load, store and reduce.
//
// Rows are contiguous in global memory, so each costs one look-up of global memory and one copy per
// run. Next: tensor_map_reduce.cpp.
#include "host/emulator/tensor_map.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace flashptx::emulator {
namespace {

constexpr std::uint64_t kMagic = 0x3130564b4c4d4546ull;  // "FEMLKV01"

// Fixed layout, 128 bytes. dims are stored less one, so that 2^32 fits.
struct Record {
  std::uint64_t magic;
  std::uint64_t address;
  std::uint64_t stride_bytes[4];
  std::uint32_t dims_less_one[5];
  std::uint16_t box[5];
  std::uint8_t element_strides[5];
  std::uint8_t rank;
  std::uint8_t type;
  std::uint8_t swizzle_bytes;
  std::uint8_t nan_fill;
  std::uint8_t zero[33];
  std::uint32_t checksum;
};
static_assert(sizeof(Record) == 128);

std::uint32_t checksum(const Record& r) {  // FNV-1a over everything before the field
  const std::uint8_t* bytes = reinterpret_cast<const std::uint8_t*>(&r);
  std::uint32_t h = 2166136261u;
  for (std::size_t i = 0; i < offsetof(Record, checksum); ++i) h = (h ^ bytes[i]) * 16777619u;
  return h;
}

// NaN of out-of-bounds elements under NaN fill.
void fill_outside(const TiledMap& map, std::uint8_t* to, std::uint32_t bytes) {
  std::memset(to, 0, bytes);
  if (!map.nan_fill) return;
  if (map.type == MapType::f32 || map.type == MapType::f64) {
    const std::uint64_t nan = map.type == MapType::f32 ? 0x7fffffffull : 0x7fffffffffffffffull;
    const std::uint32_t size = static_cast<std::uint32_t>(map.element_bytes());
    for (std::uint32_t i = 0; i + size <= bytes; i += size) std::memcpy(to + i, &nan, size);
  } else if (map.type == MapType::f16 || map.type == MapType::bf16) {
    const std::uint16_t nan = 0x7fff;
    for (std::uint32_t i = 0; i + 2 <= bytes; i += 2) std::memcpy(to + i, &nan, 2);
  }
}

struct Piece {
  std::uint32_t shared;  // swizzled address
  std::uint32_t row_at;  // byte within the row
  std::uint32_t bytes;
};

// Calls visit(Piece) for bytes [from, to) of a row that starts at unswizzled address `row`.
template <class Visit>
void for_each_piece(int swizzle_bytes, std::uint32_t row, std::uint32_t from, std::uint32_t to,
                    Visit&& visit) {
  if (swizzle_bytes == 0) {
    if (from < to) visit(Piece{row + from, from, to - from});
    return;
  }
  const std::uint32_t mask = static_cast<std::uint32_t>(swizzle_bytes) / 16 - 1;
  while (from < to) {
    const std::uint32_t address = row + from;
    const std::uint32_t bytes = std::min(16 - address % 16, to - from);
    visit(Piece{address ^ ((address >> 7 & mask) << 4), from, bytes});
    from += bytes;
  }
}

}  // namespace

TiledMap from_desc(const TensorMapDesc& desc) {
  static constexpr MapType kTypes[] = {MapType::u8, MapType::f16, MapType::bf16, MapType::f32};
  TiledMap map;
  map.address = desc.address;
  map.rank = desc.rank;
  map.type = kTypes[static_cast<int>(desc.type)];
  map.swizzle_bytes = desc.swizzle_bytes;
  map.stride_bytes[0] = static_cast<std::uint64_t>(map.element_bytes());
  for (int i = 0; i < desc.rank && i < 5; ++i) {
    map.dims[i] = desc.dims[i];
    map.box[i] = desc.box[i];
    if (i > 0) map.stride_bytes[i] = desc.stride_bytes[i - 1];
  }
  return map;
}

void encode_map(const TiledMap& map, TensorMap* out) {
  Record r{};
  r.magic = kMagic;
  r.address = map.address;
  for (int i = 0; i < 5; ++i) {
    r.dims_less_one[i] = static_cast<std::uint32_t>(map.dims[i] - 1);
    r.box[i] = static_cast<std::uint16_t>(map.box[i]);
    r.element_strides[i] = static_cast<std::uint8_t>(map.element_strides[i]);
    if (i > 0) r.stride_bytes[i - 1] = map.stride_bytes[i];
  }
  r.rank = static_cast<std::uint8_t>(map.rank);
  r.type = static_cast<std::uint8_t>(map.type);
  r.swizzle_bytes = static_cast<std::uint8_t>(map.swizzle_bytes);
  r.nan_fill = map.nan_fill;
  r.checksum = checksum(r);
  std::memcpy(out->bytes, &r, sizeof r);
}

bool decode_map(const void* bytes128, TiledMap* out, std::string* why) {
  Record r;
  std::memcpy(&r, bytes128, sizeof r);
  const char* wrong = nullptr;
  if (r.magic != kMagic)
    wrong = "these 128 bytes are no tensor map of the emulator (magic number differs)";
  else if (r.checksum != checksum(r))
    wrong = "the tensor map was overwritten (its checksum differs)";
  else if (r.rank < 1 || r.rank > 5) wrong = "the tensor map's rank is not in 1..5";
  else if (r.type > static_cast<std::uint8_t>(MapType::bf16))
    wrong = "the tensor map's type is unknown";
  if (wrong != nullptr) {
    if (why != nullptr) *why = wrong;
    return false;
  }
  *out = TiledMap{};
  out->address = r.address;
  out->rank = r.rank;
  out->type = static_cast<MapType>(r.type);
  out->swizzle_bytes = r.swizzle_bytes;
  out->nan_fill = r.nan_fill != 0;
  out->stride_bytes[0] = static_cast<std::uint64_t>(out->element_bytes());
  for (int i = 0; i < 5; ++i) {
    out->dims[i] = std::uint64_t{r.dims_less_one[i]} + 1;
    out->box[i] = r.box[i];
    out->element_strides[i] = r.element_strides[i];
    if (i > 0) out->stride_bytes[i] = r.stride_bytes[i - 1];
  }
  return true;
}

BoxRow box_row(const TiledMap& map, const std::int32_t* coordinates, std::uint32_t shared_base,
               std::uint32_t row) {
  BoxRow r;
  r.shared = shared_base + row * map.row_bytes();
  std::uint64_t global = map.address;
  std::uint32_t rest = row;
  for (int i = 1; i < map.rank; ++i) {
    const std::uint32_t count = map.count(i), index = rest % count;
    rest /= count;
    const std::int64_t at =
        std::int64_t{coordinates[i]} + std::int64_t{index} * std::int64_t{map.element_strides[i]};
    if (static_cast<std::uint64_t>(at) >= map.dims[i]) return r;  // negative wraps: nothing exists
    global += static_cast<std::uint64_t>(at) * map.stride_bytes[i];
  }
  const std::int64_t first = std::max<std::int64_t>(0, -std::int64_t{coordinates[0]});
  const std::int64_t last = std::min<std::int64_t>(
      map.box[0], static_cast<std::int64_t>(map.dims[0]) - std::int64_t{coordinates[0]});
  if (first >= last) return r;
  const std::uint32_t bytes = static_cast<std::uint32_t>(map.element_bytes());
  r.first_valid = static_cast<std::uint32_t>(first) * bytes;
  r.valid = static_cast<std::uint32_t>(last - first) * bytes;
  r.global = global + static_cast<std::uint64_t>(coordinates[0] + first) * bytes;
  return r;
}

std::string check_shared_address(const TiledMap&, std::uint32_t shared_base) {
  if (shared_base % 128 == 0) return {};
  return "shared address " + std::to_string(shared_base) +
         " of a tensor copy must be a multiple of 128 (PTX ISA, cp.async.bulk.tensor)";
}

CopyResult tma_load(const TiledMap& map, const std::int32_t* coordinates, std::uint32_t shared_base,
                    std::uint8_t* shared, std::uint32_t shared_origin, GlobalMemory& global) {
  CopyResult result;
  result.bytes = map.box_bytes();
  const std::uint32_t row_bytes = map.row_bytes();
  for (std::uint32_t i = 0, rows = map.rows(); i < rows; ++i) {
    const BoxRow row = box_row(map, coordinates, shared_base, i);
    const std::uint32_t end = row.first_valid + row.valid;
    const auto outside = [&](const Piece& p) {
      fill_outside(map, shared + (p.shared - shared_origin), p.bytes);
    };
    if (row.valid == 0) {
      for_each_piece(map.swizzle_bytes, row.shared, 0, row_bytes, outside);
      continue;
    }
    const std::uint8_t* from = global.at(row.global, row.valid, false);
    if (from == nullptr) {
      result.ok = false;
      result.bad_address = row.global;
      return result;
    }
    for_each_piece(map.swizzle_bytes, row.shared, 0, row.first_valid, outside);
    for_each_piece(map.swizzle_bytes, row.shared, row.first_valid, end, [&](const Piece& p) {
      std::uint8_t* to = shared + (p.shared - shared_origin);
      const std::uint8_t* source = from + (p.row_at - row.first_valid);
      if (p.bytes == 16) std::memcpy(to, source, 16);  // the common chunk, without a call
      else std::memcpy(to, source, p.bytes);
    });
    for_each_piece(map.swizzle_bytes, row.shared, end, row_bytes, outside);
  }
  return result;
}

namespace {

// Visits the existing bytes of the box as (global host pointer, shared host pointer, bytes).
template <class Visit>
CopyResult write_out(const TiledMap& map, const std::int32_t* coordinates,
                     std::uint32_t shared_base, const std::uint8_t* shared,
                     std::uint32_t shared_origin, GlobalMemory& global, Visit&& visit) {
  CopyResult result;
  for (std::uint32_t i = 0, rows = map.rows(); i < rows; ++i) {
    const BoxRow row = box_row(map, coordinates, shared_base, i);
    if (row.valid == 0) continue;
    std::uint8_t* to = global.at(row.global, row.valid, true);
    if (to == nullptr) {
      result.ok = false;
      result.bad_address = row.global;
      return result;
    }
    for_each_piece(map.swizzle_bytes, row.shared, row.first_valid, row.first_valid + row.valid,
                   [&](const Piece& p) {
                     visit(to + (p.row_at - row.first_valid), shared + (p.shared - shared_origin),
                           p.bytes);
                   });
    result.bytes += row.valid;
  }
  return result;
}

}  // namespace

CopyResult tma_store(const TiledMap& map, const std::int32_t* coordinates,
                     std::uint32_t shared_base, const std::uint8_t* shared,
                     std::uint32_t shared_origin, GlobalMemory& global) {
  return write_out(map, coordinates, shared_base, shared, shared_origin, global,
                   [](std::uint8_t* to, const std::uint8_t* from, std::uint32_t bytes) {
                     std::memcpy(to, from, bytes);
                   });
}

CopyResult tma_reduce(ReduceOp op, const TiledMap& map, const std::int32_t* coordinates,
                      std::uint32_t shared_base, const std::uint8_t* shared,
                      std::uint32_t shared_origin, GlobalMemory& global) {
  return write_out(map, coordinates, shared_base, shared, shared_origin, global,
                   [&](std::uint8_t* to, const std::uint8_t* from, std::uint32_t bytes) {
                     reduce_elements(op, map.type, to, from, bytes);
                   });
}

std::uint32_t box_chunks(const TiledMap& map, std::uint32_t shared_base, std::uint32_t* out) {
  std::uint32_t count = 0;
  for (std::uint32_t at = 0; at < map.box_bytes(); at += 16) {
    const std::uint32_t address = shared_base + at;
    const std::uint32_t mask =
        map.swizzle_bytes == 0 ? 0 : static_cast<std::uint32_t>(map.swizzle_bytes) / 16 - 1;
    out[count++] = address ^ ((address >> 7 & mask) << 4);
  }
  return count;
}

}  // namespace flashptx::emulator
