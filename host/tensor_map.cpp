// Every rule of cuTensorMapEncodeTiled, checked before any device sees the description.
//
// The driver answers INVALID_VALUE and no more; a user needs the tensor, the field, the value and the rule.
// Rules: CUDA driver API, section Tensor Map Object Management, and PTX ISA, section Tensors.
// Next: host/attention.cpp (makes the descriptions), host/driver/cuda_device.cpp (encodes them).
#include <string>

#include "host/device.h"

namespace flashptx {
namespace {

std::string field(const TensorMapDesc& d, const char* name, int index = -1) {
  std::string s = "tensor map " + (d.name.empty() ? std::string("(unnamed)") : d.name) + ": " + name;
  return index < 0 ? s : s + "[" + std::to_string(index) + "]";
}

Status refuse(const std::string& what, std::uint64_t value, const char* rule) {
  return Status::error(StatusCode::invalid_argument,
                       what + " is " + std::to_string(value) + ": " + rule);
}

Status check_box(const TensorMapDesc& d) {
  const std::uint64_t size = element_bytes(d.type);
  for (int i = 0; i < d.rank; ++i)
    if (d.box[i] < 1 || d.box[i] > 256)
      return refuse(field(d, "box", i), d.box[i], "must be 1 to 256 elements");
  const std::uint64_t inner_bytes = d.box[0] * size;
  if (inner_bytes % 16 != 0)
    return refuse(field(d, "box", 0), d.box[0], "its bytes must be a multiple of 16");
  const int s = d.swizzle_bytes;
  if (s != 0 && s != 32 && s != 64 && s != 128)
    return refuse(field(d, "swizzle_bytes"), static_cast<std::uint64_t>(s), "must be 0, 32, 64 or 128");
  if (s != 0 && inner_bytes > static_cast<std::uint64_t>(s))
    return Status::error(StatusCode::invalid_argument,
                         field(d, "box", 0) + " is " + std::to_string(d.box[0]) + " elements = " +
                             std::to_string(inner_bytes) + " bytes: must not exceed the swizzle span of " +
                             std::to_string(s) + " bytes");
  return {};
}

}  // namespace

Status check_tensor_map(const TensorMapDesc& d) {
  if (d.rank < 1 || d.rank > 5)
    return Status::error(StatusCode::invalid_argument,
                         field(d, "rank") + " is " + std::to_string(d.rank) + ": must be 1 to 5");
  if (d.address == 0 || d.address % 16 != 0)
    return refuse(field(d, "address"), d.address, "must be a non-null multiple of 16 bytes");
  for (int i = 0; i < d.rank; ++i)
    if (d.dims[i] < 1 || d.dims[i] > (std::uint64_t{1} << 32))
      return refuse(field(d, "dims", i), d.dims[i], "must be 1 to 2^32 elements");
  for (int i = 0; i + 1 < d.rank; ++i) {
    if (d.stride_bytes[i] % 16 != 0)
      return refuse(field(d, "stride_bytes", i), d.stride_bytes[i], "must be a multiple of 16 bytes");
    if (d.stride_bytes[i] >= (std::uint64_t{1} << 40))
      return refuse(field(d, "stride_bytes", i), d.stride_bytes[i], "must be below 2^40 bytes");
  }
  return check_box(d);
}

}  // namespace flashptx
