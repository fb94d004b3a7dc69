// The preparation of FP8 operands behind host/flashptx.h. Nothing is decided here. Next: host/prepare.cpp.
#include "gen/hadamard_signs.h"
#include "host/c_api_guard.h"
#include "host/context.h"

namespace {

using flashptx::Status;
using namespace flashptx::c_api;

static_assert(static_cast<int>(flashptx::DataType::e4m3) == FLASHPTX_E4M3);
static_assert(static_cast<int>(flashptx::DataType::e5m2) == FLASHPTX_E5M2);
static_assert(static_cast<int>(flashptx::DataType::f32) == FLASHPTX_F32);

static_assert(static_cast<int>(flashptx::ScaleKind::tensor) == FLASHPTX_SCALE_TENSOR);
static_assert(static_cast<int>(flashptx::ScaleKind::head) == FLASHPTX_SCALE_HEAD);
static_assert(static_cast<int>(flashptx::ScaleKind::block) == FLASHPTX_SCALE_BLOCK);
static_assert(static_cast<int>(flashptx::Hadamard::forward) == FLASHPTX_HADAMARD_FORWARD);
static_assert(static_cast<int>(flashptx::Hadamard::inverse) == FLASHPTX_HADAMARD_INVERSE);
static_assert(static_cast<int>(flashptx::Rope::interleaved) == FLASHPTX_ROPE_INTERLEAVED);
static_assert(static_cast<int>(flashptx::Rope::half) == FLASHPTX_ROPE_HALF);

Status read_prepare(const flashptx_prepare_problem* problem, flashptx::PrepareProblem* p) {
  if (problem == nullptr) return invalid("problem is a null pointer");
  flashptx_prepare_problem c;
  if (Status s = read_struct(problem, "flashptx_prepare_problem", sizeof c, &c); !s.ok()) return s;
  p->in = static_cast<flashptx::DataType>(c.input_dtype);
  p->out = static_cast<flashptx::DataType>(c.output_dtype);
  p->batch = c.batch, p->seqlen = c.seqlen, p->heads = c.heads, p->head_dim = c.head_dim;
  p->x = strides(c.x), p->y = strides(c.y);
  p->scale_kind = static_cast<flashptx::ScaleKind>(c.scale_kind);
  p->fixed_scale = c.fixed_scale, p->block_rows = c.block_rows;
  p->hadamard = static_cast<flashptx::Hadamard>(c.hadamard), p->seed = c.seed;
  p->rope = static_cast<flashptx::Rope>(c.rope), p->table = static_cast<flashptx::DataType>(c.table_dtype);
  p->position = c.position, p->table_rows = c.table_rows;
  return {};
}

// Reads the problem, refuses what the function is not for, runs.
template <typename Refuse>
flashptx_status prepare(flashptx_context* context, const flashptx_prepare_problem* problem,
                        const flashptx::PreparePointers& at, void* stream, Refuse refuse,
                        bool transpose = false) {
  return guarded([&]() -> Status {
    if (context == nullptr) return invalid("context is a null pointer");
    flashptx::PrepareProblem p;
    if (Status s = read_prepare(problem, &p); !s.ok()) return s;
    p.transpose = transpose;
    if (const char* why = refuse(p)) return invalid(why);
    return context->attention.prepare().run(p, at, stream);
  });
}

}  // namespace

extern "C" {

void flashptx_hadamard_signs(uint32_t seed, uint32_t words[8]) {
  if (words != nullptr) flashptx::hadamard_signs(seed, words);
}

int64_t flashptx_scale_count(const flashptx_prepare_problem* problem) {
  flashptx::PrepareProblem p;
  if (!read_prepare(problem, &p).ok() || !flashptx::check_prepare(p).ok()) return 0;
  return p.scale_count();
}

flashptx_status flashptx_quantize(flashptx_context* context, const flashptx_prepare_problem* problem,
                                  const void* x, void* y, float* scales, float* amax, void* stream) {
  return prepare(context, problem, {address(x), address(y), address(scales), address(amax), 0, 0},
                 stream, [](const flashptx::PrepareProblem& p) -> const char* {
                   if (p.rope != flashptx::Rope::none)
                     return "rope is not 0: call flashptx_rope_hadamard_quantize";
                   return p.quantizes() ? nullptr : "output_dtype equals input_dtype: must be e4m3 or e5m2";
                 });
}

flashptx_status flashptx_quantize_transpose_v(flashptx_context* context,
                                              const flashptx_prepare_problem* problem, const void* v,
                                              void* vt, float* scales, float* amax, void* stream) {
  return prepare(context, problem, {address(v), address(vt), address(scales), address(amax), 0, 0},
                 stream, [](const flashptx::PrepareProblem&) -> const char* { return nullptr; }, true);
}

flashptx_status flashptx_hadamard(flashptx_context* context, const flashptx_prepare_problem* problem,
                                  const void* x, void* y, void* stream) {
  return prepare(context, problem, {address(x), address(y), 0, 0, 0, 0}, stream,
                 [](const flashptx::PrepareProblem& p) -> const char* {
                   if (p.rope != flashptx::Rope::none)
                     return "rope is not 0: call flashptx_rope_hadamard_quantize";
                   if (p.hadamard == flashptx::Hadamard::none) return "hadamard is 0: must be 1 (forward) or 2 (inverse)";
                   return p.quantizes() ? "output_dtype is not input_dtype: call flashptx_quantize" : nullptr;
                 });
}

flashptx_status flashptx_rope_hadamard_quantize(flashptx_context* context,
                                                const flashptx_prepare_problem* problem,
                                                const void* x, const void* cos, const void* sin,
                                                void* y, float* scales, float* amax, void* stream) {
  return prepare(context, problem,
                 {address(x), address(y), address(scales), address(amax), address(cos), address(sin)},
                 stream, [](const flashptx::PrepareProblem& p) -> const char* {
                   return p.rope == flashptx::Rope::none ? "rope is 0: must be 1 (interleaved) or 2 (half)" : nullptr;
                 });
}

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
    return context->attention.prepare().transpose_v(p, address(v), address(vt), stream);
  });
}

}  // extern "C"
