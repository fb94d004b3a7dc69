// The bodies of host/flashptx.h: structs checked by their size, exceptions turned into status
// codes, sentences kept per thread. Nothing is decided here. Next: host/attention.cpp,
// host/c_api_prepare.cpp (the preparation of FP8 operands).
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "host/c_api_guard.h"
#include "host/context.h"
#include "host/driver/cuda_device.h"

namespace {

using flashptx::Status;
using flashptx::StatusCode;

static_assert(static_cast<int>(StatusCode::invalid_argument) == FLASHPTX_INVALID_ARGUMENT);
static_assert(static_cast<int>(StatusCode::unsupported) == FLASHPTX_UNSUPPORTED);
static_assert(static_cast<int>(StatusCode::no_device) == FLASHPTX_NO_DEVICE);
static_assert(static_cast<int>(StatusCode::driver_too_old) == FLASHPTX_DRIVER_TOO_OLD);
static_assert(static_cast<int>(StatusCode::out_of_memory) == FLASHPTX_OUT_OF_MEMORY);
static_assert(static_cast<int>(StatusCode::bad_ptx) == FLASHPTX_BAD_PTX);
static_assert(static_cast<int>(StatusCode::launch_failed) == FLASHPTX_LAUNCH_FAILED);
static_assert(static_cast<int>(StatusCode::earlier_error) == FLASHPTX_EARLIER_ERROR);
static_assert(static_cast<int>(StatusCode::internal) == FLASHPTX_INTERNAL);
static_assert(static_cast<int>(flashptx::DataType::f16) == FLASHPTX_F16);
static_assert(static_cast<int>(flashptx::DataType::bf16) == FLASHPTX_BF16);
static_assert(static_cast<int>(flashptx::Mask::full) == FLASHPTX_MASK_FULL);
static_assert(static_cast<int>(flashptx::Mask::causal) == FLASHPTX_MASK_CAUSAL);

using flashptx::c_api::address;
using flashptx::c_api::guarded;
using flashptx::c_api::invalid;
using flashptx::c_api::read_struct;
using flashptx::c_api::strides;

thread_local std::string last_error;

Status open_device(const flashptx_options& o, std::unique_ptr<flashptx::Device>* out) {
  flashptx::CudaOptions cuda;
  cuda.ordinal = o.use_ordinal ? o.ordinal : -1;
  cuda.cache = o.cache_off == 0;
  cuda.cache_dir = o.cache_dir == nullptr ? "" : o.cache_dir;
  switch (o.device_kind) {
    case FLASHPTX_DEVICE_CUDA:
      return flashptx::open_cuda_device(cuda, out);
    case FLASHPTX_DEVICE_EMULATOR:
      return flashptx::open_emulator({}, out);
    case FLASHPTX_DEVICE_AUTO:
      break;
    default:
      return invalid("options.device_kind is " + std::to_string(o.device_kind) +
                     ": must be 0, 1 or 2");
  }
  Status no_gpu = flashptx::open_cuda_device(cuda, out);
  if (no_gpu.ok() || no_gpu.code != StatusCode::no_device || o.use_ordinal) return no_gpu;
  return flashptx::open_emulator({}, out).ok() ? Status{} : no_gpu;
}

Status check_options(const flashptx_options& o) {
  if (o.use_ordinal && o.ordinal < 0)
    return invalid("options.ordinal is " + std::to_string(o.ordinal) + ": must be >= 0");
  if (o.sm_margin < 0)
    return invalid("options.sm_margin is " + std::to_string(o.sm_margin) + ": must be >= 0");
  return {};
}

std::string describe(const flashptx::DeviceInfo& i) {
  std::string s = i.name + ", " + std::to_string(i.multiprocessors) + " SMs";
  if (i.driver_version != 0)
    s += ", driver " + (i.driver_text.empty() ? std::string("of unknown number") : i.driver_text) +
         " (CUDA " + std::to_string(i.driver_version / 1000) + "." +
         std::to_string(i.driver_version % 1000 / 10) + ")";
  return s;
}

Status check_fast(int32_t fast, int32_t reserved) {
  if (fast != 0 && fast != 1) return invalid("fast is " + std::to_string(fast) + ": must be 0 or 1");
  if (reserved != 0) return invalid("reserved is " + std::to_string(reserved) + ": must be 0");
  return {};
}

// 0, which would be F16, says: that of Q.
Status read_type(const char* name, int32_t given, std::optional<flashptx::DataType>* out) {
  if (given == 0) return {};
  if (given != FLASHPTX_E4M3 && given != FLASHPTX_E5M2)
    return Status::error(StatusCode::unsupported,
                         std::string(name) + " is " + std::to_string(given) + ": must be 0 (that of Q), 2 (e4m3) or 3 (e5m2)");
  *out = static_cast<flashptx::DataType>(given);
  return {};
}

Status read_problem(const flashptx_forward_problem& c, flashptx::ForwardProblem* p) {
  if (c.dtype < FLASHPTX_F16 || c.dtype > FLASHPTX_E5M2)
    return Status::error(StatusCode::unsupported, "dtype is " + std::to_string(c.dtype) +
                                                      ": must be 0 (f16), 1 (bf16), 2 (e4m3) or 3 (e5m2)");
  if (c.use_dtype_o != 0 && c.dtype_o != FLASHPTX_F16 && c.dtype_o != FLASHPTX_BF16)
    return Status::error(StatusCode::unsupported,
                         "dtype_o is " + std::to_string(c.dtype_o) + ": must be 0 (f16) or 1 (bf16)");
  if (c.mask != FLASHPTX_MASK_FULL && c.mask != FLASHPTX_MASK_CAUSAL)
    return invalid("mask is " + std::to_string(c.mask) + ": must be 0 (full) or 1 (causal)");
  if (c.use_softmax_scale != 0 && c.use_softmax_scale != 1)
    return invalid("use_softmax_scale is " + std::to_string(c.use_softmax_scale) + ": must be 0 or 1");
  if (c.use_softmax_scale != 0 && c.softmax_scale != c.softmax_scale)
    return invalid("softmax_scale is nan: must be finite and >= 0");
  if (Status s = check_fast(c.fast, c.reserved); !s.ok()) return s;
  if (Status s = read_type("dtype_k", c.dtype_k, &p->dtype_k); !s.ok()) return s;
  if (Status s = read_type("dtype_v", c.dtype_v, &p->dtype_v); !s.ok()) return s;
  p->dtype = static_cast<flashptx::DataType>(c.dtype);
  p->mask = static_cast<flashptx::Mask>(c.mask);
  p->batch = c.batch;
  p->heads_q = c.heads_q;
  p->heads_kv = c.heads_kv;
  p->seqlen_q = c.seqlen_q;
  p->seqlen_k = c.seqlen_k;
  p->head_dim = c.head_dim;
  p->head_dim_v = c.head_dim_v;
  if (c.use_softmax_scale != 0) p->softmax_scale = c.softmax_scale;
  p->q = strides(c.q);
  p->k = strides(c.k);
  p->v = strides(c.v);
  p->o = strides(c.o);
  if (c.use_dtype_o != 0) p->dtype_o = static_cast<flashptx::DataType>(c.dtype_o);
  p->v_transposed = c.v_transposed != 0;
  p->allow_workspace = c.allow_workspace != 0;
  p->fast = c.fast != 0;
  p->q_scale = {c.q_scale.batch, c.q_scale.head, c.q_scale.block_rows};
  p->k_scale = {c.k_scale.batch, c.k_scale.head, c.k_scale.block_rows};
  p->v_scale = {c.v_scale.batch, c.v_scale.head, c.v_scale.block_rows};
  p->q_scale_group = c.q_scale_group == 0 ? 1 : c.q_scale_group;
  return {};
}

// What every planning function is given.
Status read_call(const flashptx_context* context, const flashptx_forward_problem* problem,
                 flashptx::ForwardProblem* p, flashptx::ForwardChoice* choice) {
  if (context == nullptr) return invalid("context is a null pointer");
  if (problem == nullptr) return invalid("problem is a null pointer");
  flashptx_forward_problem c;
  // Before FP8 the struct ended with ptx.
  constexpr std::size_t first_version = offsetof(flashptx_forward_problem, dtype_o);
  if (Status s = read_struct(problem, "flashptx_forward_problem", first_version, &c); !s.ok()) return s;
  if (Status s = read_problem(c, p); !s.ok()) return s;
  if ((c.kernel != nullptr && *c.kernel == 0) || (c.ptx != nullptr && *c.ptx == 0))
    return Status::error(c.ptx != nullptr && *c.ptx == 0 ? StatusCode::bad_ptx : StatusCode::invalid_argument,
                         std::string(c.ptx != nullptr && *c.ptx == 0 ? "ptx" : "kernel") +
                             " is an empty text: pass NULL for our own choice");
  if (c.kernel != nullptr) choice->kernel = c.kernel;
  if (c.ptx != nullptr) choice->ptx = c.ptx;
  return {};
}

Status read_fp8_options(const flashptx_fp8_options* options, flashptx::Fp8Options* o) {
  if (options == nullptr) return invalid("options is a null pointer");
  flashptx_fp8_options c;
  constexpr std::size_t first_version = offsetof(flashptx_fp8_options, fast);
  if (Status s = read_struct(options, "flashptx_fp8_options", first_version, &c); !s.ok()) return s;
  if (Status s = check_fast(c.fast, c.reserved); !s.ok()) return s;
  for (const auto& [name, value] : {std::pair{"hadamard", c.hadamard}, std::pair{"hadamard_v", c.hadamard_v}})
    if (value != 0 && value != 1)
      return invalid(std::string(name) + " is " + std::to_string(value) + ": must be 0 or 1");
  if (Status s = read_type("fp8 dtype_k", c.dtype_k, &o->dtype_k); !s.ok()) return s;
  if (Status s = read_type("fp8 dtype_v", c.dtype_v, &o->dtype_v); !s.ok()) return s;
  o->dtype = static_cast<flashptx::DataType>(c.dtype);
  o->scale_kind = static_cast<flashptx::ScaleKind>(c.scale_kind);
  o->block_rows = c.block_rows;
  o->fast = c.fast != 0;
  o->hadamard = c.hadamard != 0, o->hadamard_v = c.hadamard_v != 0, o->seed = c.seed;
  o->rope = static_cast<flashptx::Rope>(c.rope), o->table = static_cast<flashptx::DataType>(c.table_dtype);
  o->position_q = c.position_q, o->position_k = c.position_k, o->table_rows = c.table_rows;
  return {};
}

Status run_fp8(flashptx_plan* plan, const flashptx_forward_args& a, void* stream) {
  for (const auto& [name, scale] :
       {std::pair{"q_scale", a.q_scale}, std::pair{"k_scale", a.k_scale}, std::pair{"v_scale", a.v_scale}})
    if (scale != nullptr) return invalid(std::string(name) + " is given: this plan finds its scales itself");
  flashptx::Fp8Pointers at;
  at.q = address(a.q), at.k = address(a.k), at.v = address(a.v), at.o = address(a.o), at.lse = address(a.lse);
  at.cos = address(a.cos), at.sin = address(a.sin), at.workspace = address(a.workspace);
  return plan->fp8->run(at, stream);
}

}  // namespace

flashptx_status flashptx::c_api::report(Status&& s) {
  if (!s.ok())
    last_error = std::move(s.message);  // calls that succeed leave the last sentence alone
  return static_cast<flashptx_status>(s.code);
}

flashptx_context::flashptx_context(std::unique_ptr<flashptx::Device> given, int sm_margin)
    : device(std::move(given)),
      attention(*device, sm_margin),
      description(describe(device->info())) {}

extern "C" {

const char* flashptx_version(void) { return "0.1.0"; }

const char* flashptx_status_name(flashptx_status status) {
  switch (status) {
    case FLASHPTX_OK:
      return "ok";
    case FLASHPTX_INVALID_ARGUMENT:
      return "invalid_argument";
    case FLASHPTX_UNSUPPORTED:
      return "unsupported";
    case FLASHPTX_NO_DEVICE:
      return "no_device";
    case FLASHPTX_DRIVER_TOO_OLD:
      return "driver_too_old";
    case FLASHPTX_OUT_OF_MEMORY:
      return "out_of_memory";
    case FLASHPTX_BAD_PTX:
      return "bad_ptx";
    case FLASHPTX_LAUNCH_FAILED:
      return "launch_failed";
    case FLASHPTX_EARLIER_ERROR:
      return "earlier_error";
    case FLASHPTX_INTERNAL:
      return "internal";
  }
  return "unknown";
}

const char* flashptx_last_error(const flashptx_context*) { return last_error.c_str(); }

flashptx_status flashptx_create(const flashptx_options* options, flashptx_context** context) {
  return guarded([&]() -> Status {
    if (context == nullptr) return invalid("context is a null pointer");
    *context = nullptr;
    flashptx_options o{};
    if (options != nullptr)
      if (Status s = read_struct(options, "flashptx_options", sizeof(flashptx_options), &o);
          !s.ok())
        return s;
    if (Status s = check_options(o); !s.ok()) return s;
    std::unique_ptr<flashptx::Device> device;
    if (Status s = open_device(o, &device); !s.ok()) return s;
    const flashptx::DeviceInfo& info = device->info();
    if (o.sm_margin >= info.multiprocessors)
      return invalid("options.sm_margin is " + std::to_string(o.sm_margin) +
                     ": must be below the " + std::to_string(info.multiprocessors) +
                     " multiprocessors of " + info.name);
    *context = new flashptx_context(std::move(device), o.sm_margin);
    return {};
  });
}

void flashptx_destroy(flashptx_context* context) { delete context; }

const char* flashptx_describe_device(const flashptx_context* context) {
  return context == nullptr ? "" : context->description.c_str();
}

flashptx_strides flashptx_strides_bshd(int64_t seqlen, int64_t heads, int64_t head_dim) {
  const flashptx::Strides s = flashptx::strides_bshd(seqlen, heads, head_dim);
  return {s.batch, s.seq, s.head};
}

flashptx_strides flashptx_strides_bhsd(int64_t seqlen, int64_t heads, int64_t head_dim) {
  const flashptx::Strides s = flashptx::strides_bhsd(seqlen, heads, head_dim);
  return {s.batch, s.seq, s.head};
}

flashptx_status flashptx_plan_forward(flashptx_context* context,
                                      const flashptx_forward_problem* problem,
                                      flashptx_plan** plan) {
  return guarded([&]() -> Status {
    if (plan == nullptr) return invalid("plan is a null pointer");
    *plan = nullptr;
    flashptx::ForwardProblem p;
    flashptx::ForwardChoice choice;
    if (Status s = read_call(context, problem, &p, &choice); !s.ok()) return s;
    auto made = std::make_unique<flashptx_plan>();
    if (Status s = context->attention.plan_forward(p, choice, &made->forward); !s.ok()) return s;
    *plan = made.release();
    return {};
  });
}

flashptx_status flashptx_plan_fp8_attention(flashptx_context* context,
                                            const flashptx_forward_problem* problem,
                                            const flashptx_fp8_options* options, flashptx_plan** plan) {
  return guarded([&]() -> Status {
    if (plan == nullptr) return invalid("plan is a null pointer");
    *plan = nullptr;
    flashptx::ForwardProblem p;
    flashptx::ForwardChoice choice;
    if (Status s = read_call(context, problem, &p, &choice); !s.ok()) return s;
    flashptx::Fp8Options o;
    if (Status s = read_fp8_options(options, &o); !s.ok()) return s;
    auto made = std::make_unique<flashptx_plan>();
    if (Status s = plan_fp8_attention(context->attention, p, o, choice, &made->fp8); !s.ok())
      return s;
    *plan = made.release();
    return {};
  });
}

const char* flashptx_plan_describe(const flashptx_plan* plan) {
  return plan == nullptr ? "" : plan->describe().c_str();
}

const char* flashptx_plan_kernel(const flashptx_plan* plan) {
  return plan == nullptr ? "" : plan->kernel_name().c_str();
}

flashptx_status flashptx_forward(flashptx_plan* plan, const void* q, const void* k, const void* v,
                                 void* o, float* lse, void* stream) {
  return guarded([&]() -> Status {
    if (plan == nullptr) return invalid("plan is a null pointer");
    if (plan->fp8) return invalid("the plan needs a workspace: call flashptx_forward_with");
    flashptx::ForwardPointers at;
    at.q = address(q), at.k = address(k), at.v = address(v), at.o = address(o), at.lse = address(lse);
    return plan->forward->run(at, stream);
  });
}

size_t flashptx_plan_workspace(const flashptx_plan* plan) {
  return plan == nullptr ? 0 : plan->workspace_bytes();
}

flashptx_status flashptx_forward_with(flashptx_plan* plan, const flashptx_forward_args* args, void* stream) {
  return guarded([&]() -> Status {
    if (plan == nullptr) return invalid("plan is a null pointer");
    if (args == nullptr) return invalid("args is a null pointer");
    flashptx_forward_args a;
    constexpr std::size_t first_version = offsetof(flashptx_forward_args, cos);
    if (Status s = read_struct(args, "flashptx_forward_args", first_version, &a); !s.ok()) return s;
    if (plan->fp8) return run_fp8(plan, a, stream);
    for (const auto& [name, table] : {std::pair{"cos", a.cos}, std::pair{"sin", a.sin}})
      if (table != nullptr) return invalid(std::string(name) + " is given: the plan has no rope");
    flashptx::ForwardPointers at;
    at.q = address(a.q), at.k = address(a.k), at.v = address(a.v), at.o = address(a.o), at.lse = address(a.lse);
    at.q_scale = address(a.q_scale), at.k_scale = address(a.k_scale), at.v_scale = address(a.v_scale);
    at.workspace = address(a.workspace);
    return plan->forward->run(at, stream);
  });
}

void flashptx_plan_destroy(flashptx_plan* plan) { delete plan; }

flashptx_status flashptx_device_alloc(flashptx_context* context, size_t bytes, void** result) {
  return guarded([&]() -> Status {
    if (context == nullptr) return invalid("context is a null pointer");
    if (result == nullptr) return invalid("address is a null pointer");
    *result = nullptr;
    std::uint64_t a = 0;
    if (Status s = context->device->allocate(bytes, &a); !s.ok()) return s;
    *result = reinterpret_cast<void*>(static_cast<std::uintptr_t>(a));
    return {};
  });
}

void flashptx_device_free(flashptx_context* context, void* p) {
  if (context != nullptr && p != nullptr) context->device->free(address(p));
}

flashptx_status flashptx_copy_to_device(flashptx_context* context, void* dst, const void* src,
                                        size_t bytes) {
  return guarded([&]() -> Status {
    if (context == nullptr) return invalid("context is a null pointer");
    if (bytes != 0 && (dst == nullptr || src == nullptr))
      return invalid("dst or src is a null pointer");
    return context->device->copy_to_device(address(dst), src, bytes);
  });
}

flashptx_status flashptx_copy_from_device(flashptx_context* context, void* dst, const void* src,
                                          size_t bytes) {
  return guarded([&]() -> Status {
    if (context == nullptr) return invalid("context is a null pointer");
    if (bytes != 0 && (dst == nullptr || src == nullptr))
      return invalid("dst or src is a null pointer");
    return context->device->copy_from_device(dst, address(src), bytes);
  });
}

flashptx_status flashptx_synchronize(flashptx_context* context, void* stream) {
  return guarded([&]() -> Status {
    if (context == nullptr) return invalid("context is a null pointer");
    return context->device->synchronize(stream);
  });
}

}  // extern "C"
