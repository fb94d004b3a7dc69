// The rules of cuTensorMapEncodeTiled, checked before any device sees a map, so that a wrong shape
// gives one sentence with tensor, field, value and rule instead of CUDA_ERROR_INVALID_VALUE. Rules:
// CUDA driver API, cuTensorMapEncodeTiled, interleave NONE, element strides 1.
#include <string>

#include "host/device.h"

namespace flashptx {
namespace {

constexpr std::uint64_t kMaxDim = std::uint64_t{1} << 32;
constexpr std::uint64_t kMaxStride = std::uint64_t{1} << 40;
constexpr std::uint64_t kAlignment = 16;

// "tensor map K: box[1] is 384, must be in 1..256"
Status refuse(const TensorMapDesc& desc, const std::string& field, std::uint64_t value,
              const std::string& rule) {
  return Status::error(StatusCode::invalid_argument,
                       "tensor map " + (desc.name.empty() ? "(unnamed)" : desc.name) + ": " +
                           field + " is " + std::to_string(value) + ", must be " + rule);
}

std::string indexed(const char* field, int i) {
  return std::string(field) + "[" + std::to_string(i) + "]";
}

Status check_strides(const TensorMapDesc& desc) {
  const std::uint64_t size = static_cast<std::uint64_t>(element_bytes(desc.type));
  // The first byte past the tensor, so that a wrapping extent is refused here and not by a fault
  // later.
  unsigned __int128 extent = static_cast<unsigned __int128>(desc.dims[0]) * size;
  for (int i = 0; i + 1 < desc.rank; ++i) {
    const std::uint64_t stride = desc.stride_bytes[i];
    const std::string field = indexed("stride_bytes", i);
    if (stride % kAlignment != 0) return refuse(desc, field, stride, "a multiple of 16");
    if (stride >= kMaxStride) return refuse(desc, field, stride, "below 2^40");
    extent += static_cast<unsigned __int128>(desc.dims[i + 1] - 1) * stride;
  }
  if (extent + desc.address > ~std::uint64_t{0}) {
    return Status::error(
        StatusCode::invalid_argument,
        "tensor map " + desc.name +
            ": dims and stride_bytes reach past the end of the 64-bit address space");
  }
  return {};
}

Status check_box(const TensorMapDesc& desc) {
  for (int i = 0; i < desc.rank; ++i) {
    if (desc.box[i] < 1 || desc.box[i] > 256) {
      return refuse(desc, indexed("box", i), desc.box[i], "in 1..256");
    }
  }
  const std::uint64_t inner =
      std::uint64_t{desc.box[0]} * static_cast<std::uint64_t>(element_bytes(desc.type));
  if (inner % kAlignment != 0) {
    return refuse(desc, "box[0] in bytes", inner, "a multiple of 16");
  }
  if (desc.swizzle_bytes != 0 && inner > static_cast<std::uint64_t>(desc.swizzle_bytes)) {
    return refuse(desc, "box[0] in bytes", inner,
                  "at most the swizzle span of " + std::to_string(desc.swizzle_bytes));
  }
  return {};
}

}  // namespace

Status check_tensor_map(const TensorMapDesc& desc) {
  if (desc.type < ElementType::u8 || desc.type > ElementType::f32) {
    return Status::error(StatusCode::invalid_argument,
                         "tensor map " + desc.name + ": type is " +
                             std::to_string(static_cast<int>(desc.type)) +
                             ", must be u8, f16, bf16 or f32");
  }
  if (desc.rank < 1 || desc.rank > 5) {
    return Status::error(
        StatusCode::invalid_argument,
        "tensor map " + desc.name + ": rank is " + std::to_string(desc.rank) + ", must be in 1..5");
  }
  if (desc.address == 0) return refuse(desc, "address", 0, "a device address, not null");
  if (desc.address % kAlignment != 0)
    return refuse(desc, "address", desc.address, "a multiple of 16");
  if (desc.swizzle_bytes != 0 && desc.swizzle_bytes != 32 && desc.swizzle_bytes != 64 &&
      desc.swizzle_bytes != 128) {
    return Status::error(StatusCode::invalid_argument,
                         "tensor map " + desc.name + ": swizzle_bytes is " +
                             std::to_string(desc.swizzle_bytes) + ", must be 0, 32, 64 or 128");
  }
  for (int i = 0; i < desc.rank; ++i) {
    if (desc.dims[i] < 1 || desc.dims[i] > kMaxDim) {
      return refuse(desc, indexed("dims", i), desc.dims[i], "in 1..2^32");
    }
  }
  if (Status s = check_strides(desc); !s.ok()) return s;
  return check_box(desc);
}

}  // namespace flashptx
