// What the bodies of host/flashptx.h share: exceptions and statuses turned into codes, structs checked by
// their size. Next: host/c_api.cpp, host/c_api_prepare.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "host/device.h"
#include "host/flashptx.h"
#include "host/problem.h"

namespace flashptx::c_api {

// Keeps the sentence for flashptx_last_error of this thread.
flashptx_status report(Status&& s);

inline Status invalid(std::string message) {
  return Status::error(StatusCode::invalid_argument, std::move(message));
}

// Runs `body` (which returns Status) and lets no exception through to C.
template <typename Body>
flashptx_status guarded(Body&& body) {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report(Status::error(StatusCode::out_of_memory, "out of host memory"));
  } catch (const std::exception& e) {
    return report(Status::error(StatusCode::internal, e.what()));
  }
}

// Copies a caller's struct of an older, equal or newer header; fields that we do not know must be
// zero.
template <typename T>
Status read_struct(const T* given, const char* name, std::size_t least, T* out) {
  if (given->size < least)
    return invalid(std::string(name) + ".size is " + std::to_string(given->size) +
                   ": must be sizeof(" + name + ") = " + std::to_string(sizeof(T)));
  const char* bytes = reinterpret_cast<const char*>(given);
  for (std::size_t i = sizeof(T); i < given->size; ++i)
    if (bytes[i] != 0)
      return Status::error(StatusCode::unsupported,
                           std::string(name) + " has a field at byte " + std::to_string(i) +
                               " that is newer than this library (" + flashptx_version() + ")");
  *out = T{};
  std::memcpy(out, given, std::min(sizeof(T), given->size));
  return {};
}

inline std::uint64_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }
inline Strides strides(const flashptx_strides& s) { return {s.batch, s.seq, s.head}; }

}  // namespace flashptx::c_api
