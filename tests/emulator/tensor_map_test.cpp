// TMA boxes against five nested loops over elements, and the rules of encoding against the reports
// of users who met them ("failed to initialize descriptor" with no reason).
//
// Every byte of a tensor has its own value where types allow, so a wrong address gives a wrong
// number. Next: host/emulator/tensor_map.h, host/tensor_map_check.cpp.
#include "host/emulator/tensor_map.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "host/emulator/numeric.h"

using namespace flashptx;
using namespace flashptx::emulator;

namespace {

constexpr std::uint64_t kGlobal = 0x7f0000001000ull;
constexpr std::uint32_t kOrigin = 0x400;  // shared address of shared[0]

struct Memory : GlobalMemory {
  std::vector<std::uint8_t> bytes;
  explicit Memory(std::size_t n) : bytes(n) {
    std::mt19937 rng(3);
    for (auto& b : bytes)
      b = static_cast<std::uint8_t>(rng() | 1);  // never 0: distinct from the fill
  }
  std::uint8_t* at(std::uint64_t address, std::uint64_t n, bool) override {
    if (address < kGlobal || address + n > kGlobal + bytes.size()) return nullptr;
    return &bytes[address - kGlobal];
  }
};

int key(int span, std::uint32_t row) {  // of a packed row in a tile aligned to 8 * span bytes
  return static_cast<int>(span == 128  ? row & 7
                          : span == 64 ? row >> 1 & 3
                          : span == 32 ? row >> 2 & 1
                                       : 0);
}

TiledMap sample_map(MapType type, int rank, int swizzle, std::uint32_t inner_bytes) {
  TiledMap m;
  m.address = kGlobal + 64;
  m.rank = rank;
  m.type = type;
  m.swizzle_bytes = swizzle;
  const std::uint32_t size = static_cast<std::uint32_t>(map_type_bytes(type));
  const std::uint64_t dims[5] = {inner_bytes / size * 2 - 3, 11, 5, 3, 2};
  const std::uint32_t box[5] = {inner_bytes / size, 8, 3, 2, 2};
  std::uint64_t stride = size, extent = 0;
  for (int i = 0; i < rank; ++i) {
    m.dims[i] = dims[i];
    m.box[i] = box[i];
    m.stride_bytes[i] = stride;
    extent = stride * dims[i];
    stride = (extent + 31) / 16 * 16;  // a gap between rows
  }
  return m;
}

// Calls f(shared offset in the box, unswizzled; global address or 0 when out of bounds) per
// element.
template <class F>
void for_each_element(const TiledMap& m, const std::int32_t* c, F&& f) {
  const std::uint64_t size = static_cast<std::uint64_t>(m.element_bytes());
  std::uint32_t offset = 0;
  for (std::int64_t e = 0; e < m.box[4]; e += m.element_strides[4])
    for (std::int64_t d = 0; d < m.box[3]; d += m.element_strides[3])
      for (std::int64_t cc = 0; cc < m.box[2]; cc += m.element_strides[2])
        for (std::int64_t b = 0; b < m.box[1]; b += m.element_strides[1])
          for (std::int64_t a = 0; a < m.box[0]; ++a) {
            const std::int64_t at[5] = {a, b, cc, d, e};
            std::uint64_t address = m.address;
            bool inside = true;
            for (int i = 0; i < m.rank; ++i) {
              const std::int64_t x = c[i] + at[i];
              inside = inside && x >= 0 && x < static_cast<std::int64_t>(m.dims[i]);
              if (inside)
                address += static_cast<std::uint64_t>(x) * (i == 0 ? size : m.stride_bytes[i]);
            }
            f(offset, inside ? address : 0);
            offset += static_cast<std::uint32_t>(size);
          }
}

std::uint32_t swizzled(const TiledMap& m, std::uint32_t offset) {
  if (m.swizzle_bytes == 0) return offset;
  const std::uint32_t span = static_cast<std::uint32_t>(m.swizzle_bytes), row = offset / span;
  return row * span +
         (offset % span / 16 ^ static_cast<std::uint32_t>(key(m.swizzle_bytes, row))) * 16 +
         offset % 16;
}

constexpr std::int32_t kCoordinates[][5] = {
    {0, 0, 0, 0, 0},  {3, 1, 1, 1, 0},          {-5, -2, -1, -1, -1},      {9, 9, 4, 2, 1},
    {0, 11, 0, 0, 0}, {2000000000, 0, 0, 0, 0}, {-2000000000, 0, 0, 0, 0}, {0, 0, 0, -7, 0}};

TensorMapDesc good_desc() {
  TensorMapDesc d;
  d.name.assign(1, 'K');  // = "K" trips a false -Wrestrict of g++ 12
  d.type = ElementType::bf16;
  d.address = 0x7f0000000010ull;
  d.rank = 3;
  d.dims[0] = 128;
  d.dims[1] = 1000;
  d.dims[2] = 8;
  d.stride_bytes[0] = 256;
  d.stride_bytes[1] = 256000;
  d.box[0] = 64;
  d.box[1] = 128;
  d.box[2] = 1;
  return d;
}

// The message must name tensor, field and value.
template <class Change>
void refused(Change&& change, const std::string& field, const std::string& value) {
  TensorMapDesc d = good_desc();
  change(d);
  const Status s = check_tensor_map(d);
  CAPTURE(s.message);
  CHECK(s.code == StatusCode::invalid_argument);
  CHECK(s.message.find("K") != std::string::npos);
  CHECK(s.message.find(field) != std::string::npos);
  CHECK(s.message.find(value) != std::string::npos);
}
template <class Change>
void accepted(Change&& change) {
  TensorMapDesc d = good_desc();
  change(d);
  const Status s = check_tensor_map(d);
  CHECK_MESSAGE(s.ok(), s.message);
}

}  // namespace

TEST_SUITE_BEGIN("emulator/tensor_map");

TEST_CASE(
    "a load brings each element to its swizzled place and fills the rest of the box with zeros") {
  for (int rank = 1; rank <= 5; ++rank) {
    for (int swizzle : {0, 32, 64, 128}) {
      for (MapType type : {MapType::u8, MapType::bf16, MapType::f32, MapType::u64}) {
        for (bool strided : {false, true}) {
          TiledMap m = sample_map(type, rank, swizzle,
                                  swizzle == 0 ? 96 : static_cast<std::uint32_t>(swizzle));
          if (strided) m.element_strides[1] = 3, m.element_strides[2] = 2, m.element_strides[0] = 5;
          Memory memory(1 << 17);
          for (const auto& c : kCoordinates) {
            std::vector<std::uint8_t> shared(m.box_bytes() + 256, 0xee), wanted = shared;
            std::uint32_t elements = 0;
            for_each_element(m, c, [&](std::uint32_t offset, std::uint64_t global) {
              const std::size_t size = static_cast<std::size_t>(m.element_bytes());
              std::uint8_t* to = &wanted[swizzled(m, offset)];
              if (global == 0) std::memset(to, 0, size);
              else std::memcpy(to, &memory.bytes[global - kGlobal], size);
              ++elements;
            });
            const CopyResult r = tma_load(m, c, kOrigin, shared.data(), kOrigin, memory);
            REQUIRE(r.ok);
            REQUIRE(r.bytes == elements * static_cast<std::uint32_t>(m.element_bytes()));
            REQUIRE(shared == wanted);
            std::size_t covered = 0;
            for_each_run(m, c, kOrigin, [&](const BoxRun& run) {
              covered += run.bytes;
              if (run.valid == 0) return;
              REQUIRE(std::memcmp(&shared[run.shared - kOrigin + run.first_valid],
                                  &memory.bytes[run.global - kGlobal], run.valid) == 0);
            });
            REQUIRE(covered == m.box_bytes());
          }
        }
      }
    }
  }
}

TEST_CASE("a store writes the elements that exist and nothing else") {
  for (int swizzle : {0, 64, 128}) {
    const TiledMap m = sample_map(MapType::bf16, 4, swizzle, 64);
    for (const auto& c : kCoordinates) {
      Memory memory(1 << 17);
      std::vector<std::uint8_t> wanted = memory.bytes, shared(m.box_bytes());
      for (std::size_t i = 0; i < shared.size(); ++i)
        shared[i] = static_cast<std::uint8_t>(i * 37 + i / 256);
      std::uint32_t bytes = 0;
      for_each_element(m, c, [&](std::uint32_t offset, std::uint64_t global) {
        if (global == 0) return;
        std::memcpy(&wanted[global - kGlobal], &shared[swizzled(m, offset)], 2);
        bytes += 2;
      });
      const CopyResult r = tma_store(m, c, kOrigin, shared.data(), kOrigin, memory);
      REQUIRE(r.ok);
      REQUIRE(r.bytes == bytes);
      REQUIRE(memory.bytes == wanted);
    }
  }
}

TEST_CASE("a copy that global memory refuses stops and reports the address") {
  TiledMap m = sample_map(MapType::bf16, 2, 128, 128);
  m.dims[1] = 1000000;
  Memory memory(4096);
  std::vector<std::uint8_t> shared(m.box_bytes());
  const std::int32_t c[5] = {0, 500000, 0, 0, 0};
  const CopyResult r = tma_load(m, c, kOrigin, shared.data(), kOrigin, memory);
  CHECK(!r.ok);
  CHECK(r.bad_address == m.address + 500000 * m.stride_bytes[1]);
  CHECK(!tma_store(m, c, kOrigin, shared.data(), kOrigin, memory).ok);
  CHECK(check_shared_address(m, 0x480).empty());
  CHECK(check_shared_address(m, 0x490).find("multiple of 128") != std::string::npos);
}

TEST_CASE("NaN fill marks out-of-bounds elements of float types") {
  TiledMap m = sample_map(MapType::f16, 2, 0, 32);
  m.nan_fill = true;
  Memory memory(4096);
  std::vector<std::uint8_t> shared(m.box_bytes());
  const std::int32_t c[5] = {-1, 0, 0, 0, 0};
  REQUIRE(tma_load(m, c, kOrigin, shared.data(), kOrigin, memory).ok);
  CHECK(shared[0] == 0xff);
  CHECK(shared[1] == 0x7f);
  CHECK(shared[2] == memory.bytes[64]);
}

TEST_CASE("reductions combine element by element as the types say") {
  const auto reduce = [](ReduceOp op, MapType type, auto old, auto value) {
    alignas(8) auto cell = old;
    reduce_elements(op, type, reinterpret_cast<std::uint8_t*>(&cell),
                    reinterpret_cast<std::uint8_t*>(&value), sizeof cell);
    return cell;
  };
  using U = std::uint32_t;
  using S = std::int32_t;
  using U64 = std::uint64_t;
  using S64 = std::int64_t;
  using H = std::uint16_t;
  CHECK(reduce(ReduceOp::add, MapType::u32, U{0xffffffff}, U{2}) == 1u);
  CHECK(reduce(ReduceOp::min, MapType::u32, U{0xffffffff}, U{2}) == 2u);
  CHECK(reduce(ReduceOp::min, MapType::s32, S{-1}, S{2}) == -1);
  CHECK(reduce(ReduceOp::max, MapType::s32, S{-1}, S{2}) == 2);
  CHECK(reduce(ReduceOp::inc, MapType::u32, U{5}, U{5}) == 0u);
  CHECK(reduce(ReduceOp::inc, MapType::u32, U{4}, U{5}) == 5u);
  CHECK(reduce(ReduceOp::dec, MapType::u32, U{0}, U{5}) == 5u);
  CHECK(reduce(ReduceOp::dec, MapType::u32, U{9}, U{5}) == 5u);
  CHECK(reduce(ReduceOp::dec, MapType::u32, U{3}, U{5}) == 2u);
  CHECK(reduce(ReduceOp::and_, MapType::u32, U{0xc}, U{0xa}) == 8u);
  CHECK(reduce(ReduceOp::or_, MapType::u64, U64{0xc}, U64{0xa}) == 0xeu);
  CHECK(reduce(ReduceOp::xor_, MapType::u32, U{0xc}, U{0xa}) == 6u);
  CHECK(reduce(ReduceOp::add, MapType::u64, U64{1} << 63, U64{5}) == (U64{1} << 63) + 5);
  CHECK(reduce(ReduceOp::max, MapType::s64, S64{-9}, S64{-8}) == -8);
  CHECK(reduce(ReduceOp::max, MapType::u64, U64{1} << 63, U64{5}) == U64{1} << 63);
  CHECK(reduce(ReduceOp::add, MapType::f32, 1.5f, 2.25f) == 3.75f);
  CHECK(reduce(ReduceOp::add, MapType::f32, float_of(1), 0.0f) == 0.0f);  // subnormals are flushed
  CHECK(reduce(ReduceOp::add, MapType::f16, H{0x3c00}, H{0x4000}) == 0x4200);
  CHECK(reduce(ReduceOp::add, MapType::bf16, H{0x3f80}, H{0x4000}) == 0x4040);
  CHECK(reduce(ReduceOp::add, MapType::bf16, H{0x4380}, H{0x3f80}) ==
        0x4380);  // 257 is a tie: even
  CHECK(reduce(ReduceOp::max, MapType::bf16, H{0xbf80}, H{0x3f80}) == 0x3f80);
  CHECK(reduce(ReduceOp::min, MapType::f16, H{0xbc00}, H{0x7e00}) == 0xbc00);
  CHECK(reduce_supported(ReduceOp::add, MapType::bf16));
  CHECK(!reduce_supported(ReduceOp::min, MapType::f32));
  CHECK(!reduce_supported(ReduceOp::add, MapType::u8));
  CHECK(!reduce_supported(ReduceOp::add, MapType::s64));
  CHECK(!reduce_supported(ReduceOp::xor_, MapType::f16));
}

TEST_CASE("a reduced box is clipped, swizzled, and loses nothing when threads share the tensor") {
  TiledMap m = sample_map(MapType::f32, 3, 128, 128);
  Memory memory(1 << 16);
  std::memset(memory.bytes.data(), 0, memory.bytes.size());
  std::vector<float> box(m.box_bytes() / 4);
  for (std::size_t i = 0; i < box.size(); ++i) box[i] = static_cast<float>(i);
  const std::int32_t c[5] = {-2, 5, 3, 0, 0};
  const auto work = [&] {
    for (int i = 0; i < 50; ++i) {
      tma_reduce(ReduceOp::add, m, c, kOrigin, reinterpret_cast<const std::uint8_t*>(box.data()),
                 kOrigin, memory);
    }
  };
  std::thread other(work);
  work();
  other.join();
  std::vector<float> wanted(memory.bytes.size() / 4, 0.0f);
  for_each_element(m, c, [&](std::uint32_t offset, std::uint64_t global) {
    if (global != 0) wanted[(global - kGlobal) / 4] = 100.0f * box[swizzled(m, offset) / 4];
  });
  CHECK(std::memcmp(wanted.data(), memory.bytes.data(), memory.bytes.size()) == 0);
}

TEST_CASE("box_chunks lists each 16-byte chunk of the box once") {
  const TiledMap m = sample_map(MapType::bf16, 3, 128, 128);
  std::vector<std::uint32_t> chunk(m.box_bytes() / 16);
  CHECK(box_chunks(m, 0x800, chunk.data()) == chunk.size());
  const std::set<std::uint32_t> distinct(chunk.begin(), chunk.end());
  CHECK(distinct.size() == chunk.size());
  CHECK(*distinct.begin() == 0x800);
  CHECK(*distinct.rbegin() == 0x800 + m.box_bytes() - 16);
  CHECK(chunk[8] == 0x800 + 128 + 16);  // row 1, chunk 0
}

TEST_CASE("a tensor map survives encoding, and damage is noticed") {
  TiledMap m = from_desc(good_desc());
  CHECK(m.stride_bytes[2] == 256000);
  CHECK(m.box_bytes() == 64 * 128 * 2);
  m.dims[1] = std::uint64_t{1} << 32;
  m.element_strides[1] = 8;
  m.nan_fill = true;
  TensorMap bytes;
  encode_map(m, &bytes);
  TiledMap back;
  std::string why;
  REQUIRE(decode_map(bytes.bytes, &back, &why));
  CHECK(back.address == m.address);
  CHECK(back.rank == 3);
  CHECK(back.type == MapType::bf16);
  CHECK(back.swizzle_bytes == 128);
  CHECK(back.nan_fill);
  for (int i = 0; i < 5; ++i) {
    CHECK(back.dims[i] == m.dims[i]);
    CHECK(back.box[i] == m.box[i]);
    CHECK(back.stride_bytes[i] == m.stride_bytes[i]);
    CHECK(back.element_strides[i] == m.element_strides[i]);
  }
  bytes.bytes[9] ^= 1;
  CHECK(!decode_map(bytes.bytes, &back, &why));
  CHECK(why.find("checksum") != std::string::npos);
  bytes.bytes[0] ^= 1;
  CHECK(!decode_map(bytes.bytes, &back, &why));
  CHECK(why.find("magic") != std::string::npos);
}

TEST_CASE("check_tensor_map refuses each broken rule by name and accepts the limits themselves") {
  accepted([](TensorMapDesc&) {});
  refused([](TensorMapDesc& d) { d.box[1] = 384; }, "box[1]", "384");
  refused([](TensorMapDesc& d) { d.box[1] = 0; }, "box[1]", "0");
  accepted([](TensorMapDesc& d) { d.box[1] = 256; });
  refused([](TensorMapDesc& d) { d.address += 2; }, "address",
          std::to_string(good_desc().address + 2));
  refused([](TensorMapDesc& d) { d.address += 8; }, "address", "16");
  accepted([](TensorMapDesc& d) { d.address += 16; });
  refused([](TensorMapDesc& d) { d.address = 0; }, "address", "0");
  refused([](TensorMapDesc& d) { d.stride_bytes[0] = 136; }, "stride_bytes[0]", "136");
  accepted([](TensorMapDesc& d) { d.stride_bytes[0] = 144; });
  refused([](TensorMapDesc& d) { d.stride_bytes[1] = std::uint64_t{1} << 40; }, "stride_bytes[1]",
          "1099511627776");
  accepted([](TensorMapDesc& d) { d.stride_bytes[1] = (std::uint64_t{1} << 40) - 16; });
  refused([](TensorMapDesc& d) { d.box[0] = 128; }, "box[0]", "128");
  accepted([](TensorMapDesc& d) { d.box[0] = 128, d.swizzle_bytes = 0; });
  refused([](TensorMapDesc& d) { d.box[0] = 36; }, "box[0]", "16");
  refused([](TensorMapDesc& d) { d.swizzle_bytes = 96; }, "swizzle_bytes", "96");
  refused([](TensorMapDesc& d) { d.swizzle_bytes = 64; }, "box[0]", "64");
  refused([](TensorMapDesc& d) { d.rank = 0; }, "rank", "0");
  refused([](TensorMapDesc& d) { d.rank = 6; }, "rank", "6");
  refused([](TensorMapDesc& d) { d.dims[2] = 0; }, "dims[2]", "0");
  refused([](TensorMapDesc& d) { d.dims[0] = (std::uint64_t{1} << 32) + 1; }, "dims[0]",
          "4294967297");
  accepted([](TensorMapDesc& d) { d.dims[1] = std::uint64_t{1} << 32, d.stride_bytes[0] = 256; });
  accepted([](TensorMapDesc& d) { d.stride_bytes[0] = 0; });
}

TEST_SUITE_END();
