// The words in which the library's checks refuse: a status with its sentence. Next: problem.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "host/device.h"

namespace flashptx {

inline Status invalid(std::string m) { return Status::error(StatusCode::invalid_argument, std::move(m)); }
inline Status unsupported(std::string m) { return Status::error(StatusCode::unsupported, std::move(m)); }
inline std::string text(std::int64_t v) { return std::to_string(v); }

constexpr std::int64_t max_extent = INT32_MAX;  // TMA coordinates are signed 32 bit

}  // namespace flashptx
