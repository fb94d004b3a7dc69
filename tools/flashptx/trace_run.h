// Runs a kernel with marks and reads them back. Next: trace_run.cpp.
#pragma once

#include "host/device.h"
#include "tools/flashptx/trace.h"
#include "tools/flashptx/trace_files.h"
#include "tools/reference/attention.h"

namespace flashptx {

// `capacity`: records, and trips, of one role. On a GPU also times the kernel with and without marks.
Status run_trace(Device& device, const KernelConfig& config, Marks marks, const reference::Problem& shape,
                 std::uint32_t capacity, Trace* out, TraceCost* cost);

}  // namespace flashptx
