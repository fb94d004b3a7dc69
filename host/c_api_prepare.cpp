// The preparation of FP8 operands behind host/flashptx.h. Nothing is decided here. Next: host/prepare.cpp.
#include "host/c_api_guard.h"
#include "host/context.h"

namespace {

using flashptx::Status;
using namespace flashptx::c_api;

static_assert(static_cast<int>(flashptx::DataType::e4m3) == FLASHPTX_E4M3);
static_assert(static_cast<int>(flashptx::DataType::e5m2) == FLASHPTX_E5M2);
static_assert(static_cast<int>(flashptx::DataType::f32) == FLASHPTX_F32);

std::uint64_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }
flashptx::Strides strides(const flashptx_strides& s) { return {s.batch, s.seq, s.head}; }

}  // namespace

extern "C" {

int64_t flashptx_transposed_seqlen(int64_t seqlen) { return flashptx::transposed_seqlen(seqlen); }

flashptx_status flashptx_transpose_v(flashptx_context* context,
                                     const flashptx_transpose_problem* problem, const void* v,
                                     void* vt, void* stream) {
  return guarded([&]() -> Status {
    if (context == nullptr) return invalid("context is a null pointer");
    if (problem == nullptr) return invalid("problem is a null pointer");
    flashptx_transpose_problem c;
    if (Status s = read_struct(problem, "flashptx_transpose_problem", sizeof c, &c); !s.ok())
      return s;
    flashptx::TransposeProblem p;
    p.dtype = static_cast<flashptx::DataType>(c.dtype);
    p.batch = c.batch, p.seqlen = c.seqlen, p.heads = c.heads, p.head_dim = c.head_dim;
    p.v = strides(c.v);
    return context->prepare.transpose_v(p, address(v), address(vt), stream);
  });
}

}  // extern "C"
