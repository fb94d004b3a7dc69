// SHA-256 (FIPS 180-4), for naming cached kernels by their content. Small and plain: texts are
// about 100 KB.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace flashptx {

using Sha256 = std::array<std::uint8_t, 32>;
Sha256 sha256(std::string_view data);
std::string to_hex(const Sha256& digest);

}  // namespace flashptx
