// Runs a kernel with marks and reads them back. Next: trace_run.cpp.
#pragma once

#include "host/device.h"
#include "tools/flashptx/trace.h"
#include "tools/reference/attention.h"

namespace flashptx {

// `capacity`: marks of one role. On a GPU also times the kernel with and without marks:
// `slow_down_percent`.
Status run_trace(Device& device, const KernelConfig& config, const reference::Problem& shape,
                 std::uint32_t capacity, Trace* out, double* slow_down_percent);

}  // namespace flashptx
