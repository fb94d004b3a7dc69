// The tensor maps of a forward problem: which strided view, which box.
//
// Box, swizzle and the order of dimensions come from the kernel's own list of parameters; extents
// and strides from the problem. Apart from the launch path because everything but the address is
// fixed at planning. Next: host/tensor_map_check.cpp (the rules), host/attention.cpp (the user).
#pragma once

#include "gen/catalog.h"
#include "host/device.h"
#include "host/problem.h"

namespace flashptx {

// Fills descs[0..3] for Q, K, V, O, addresses left 0. `p` has passed check_problem and is not
// empty.
Status describe_maps(const ForwardProblem& p, const LaunchFacts& facts, TensorMapDesc descs[4]);
// The two of a kernel that writes V^T itself: V by rows, of `rows`, and V^T where it is stored, of `p` as the kernel sees it.
Status describe_background_maps(const ForwardProblem& rows, const ForwardProblem& p, const LaunchFacts& facts, TensorMapDesc descs[2]);

}  // namespace flashptx
