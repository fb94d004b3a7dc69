/* FlashPTX: exact attention for Hopper GPUs (compute capability 9.0). The whole public C API.
 *
 * C99, no CUDA header needed; link libflashptx and libdl. A stream is a CUstream / cudaStream_t
 * passed as void*; NULL is the default stream. Pointers to tensors are device pointers of the
 * context's device. Every struct begins with `size`: set it to sizeof of that struct and zero the
 * rest, so that a library newer than the header it was compiled with knows which fields exist.
 *
 * Kernels are launched as programmatic dependents (drivers from CUDA 12.3 on): one may begin while the kernel before it on the stream
 * ends, if that one lets it, and waits until it is complete before it reads or writes memory. For callers the stream's order is
 * what it was. Ours let the next one in early too: a kernel of yours may be launched so behind them, and must then wait itself
 * (cudaGridDependencySynchronize, griddepcontrol.wait), in every block before it ends, whatever it reads.
 * Next: host/c_api.cpp (this file's bodies), host/attention.h (the same in C++).
 */
#ifndef FLASHPTX_H
#define FLASHPTX_H

#include <stddef.h>
#include <stdint.h>

#define FLASHPTX_VERSION_MAJOR 0
#define FLASHPTX_VERSION_MINOR 1
#define FLASHPTX_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* Status codes. Every function that can fail returns one; flashptx_last_error() has the sentence.
 */
typedef enum flashptx_status {
  FLASHPTX_OK = 0,
  FLASHPTX_INVALID_ARGUMENT = 1, /* a value, shape, stride or pointer that cannot be right */
  FLASHPTX_UNSUPPORTED = 2,      /* well formed, but outside what this library or device can do */
  FLASHPTX_NO_DEVICE = 3,        /* no driver library, or no GPU of compute capability 9.0 */
  FLASHPTX_DRIVER_TOO_OLD = 4,   /* the driver lacks an entry point or the PTX version */
  FLASHPTX_OUT_OF_MEMORY = 5,
  FLASHPTX_BAD_PTX = 6,       /* text that does not assemble; the sentence carries the log's line */
  FLASHPTX_LAUNCH_FAILED = 7, /* the device reported an error while running */
  FLASHPTX_EARLIER_ERROR = 8, /* an earlier kernel had already broken the CUDA context */
  FLASHPTX_INTERNAL = 9
} flashptx_status;

typedef enum flashptx_dtype {
  FLASHPTX_F16 = 0,
  FLASHPTX_BF16 = 1,
  FLASHPTX_E4M3 = 2, /* 8 bits, finite: largest value 448 */
  FLASHPTX_E5M2 = 3, /* 8 bits, IEEE-like: largest finite value 57344 */
  FLASHPTX_F32 = 4   /* of the tables of RoPE only */
} flashptx_dtype;

/* Causal is aligned bottom right: query i sees key j when j <= i + seqlen_k - seqlen_q. */
typedef enum flashptx_mask { FLASHPTX_MASK_FULL = 0, FLASHPTX_MASK_CAUSAL = 1 } flashptx_mask;

typedef enum flashptx_device_kind {
  FLASHPTX_DEVICE_AUTO = 0, /* a Hopper GPU if there is one, else the emulator */
  FLASHPTX_DEVICE_CUDA = 1,
  FLASHPTX_DEVICE_EMULATOR = 2 /* pointers are then emulated addresses: use flashptx_device_alloc */
} flashptx_device_kind;

typedef struct flashptx_context flashptx_context; /* one device and the kernels loaded on it */
typedef struct flashptx_plan flashptx_plan; /* one checked problem and the kernel chosen for it */

/* Options of flashptx_create. Zero means the default in every field. */
typedef struct flashptx_options {
  size_t size;         /* sizeof(flashptx_options) */
  int32_t device_kind; /* flashptx_device_kind */
  int32_t use_ordinal; /* 0: the calling thread's current CUDA context, else the first 9.0 GPU's
                          primary context (the one that the CUDA runtime and PyTorch use) */
  int32_t ordinal;     /* with use_ordinal = 1: CUDA device number, as the runtime numbers them */
  int32_t sm_margin;   /* SMs left free for other kernels (NCCL, say); grids shrink by it, and no kernel begins
                          before the one in front of it has ended; >= 0 */
  int32_t cache_off;   /* 1: assembled kernels are not kept on disk */
  /* NULL: $FLASHPTX_CACHE_DIR, $XDG_CACHE_HOME/flashptx or ~/.cache/flashptx. FLASHPTX_CACHE=0 in
   * the environment turns the cache off. */
  const char* cache_dir;
} flashptx_options;

/* Strides in elements. The head dimension is contiguous. stride * element size must be a multiple
 * of 16 bytes and below 2^40; the stride of a dimension of extent 1 (or 0) is ignored. Q, K and V
 * may repeat rows (stride 0); no two rows of O may overlap. */
typedef struct flashptx_strides {
  int64_t batch, seq, head;
} flashptx_strides;

/* Elements; 0: shared by all batches or heads. block_rows: 0: one scale a (batch, head); else rows that share one, and
 * the blocks of a head lie one after the other (as flashptx_quantize writes them). Of K and V: 16, 32, 64 or a
 * multiple of 128. */
typedef struct flashptx_scale_strides {
  int64_t batch, head, block_rows;
} flashptx_scale_strides;

/* O = softmax(scale * Q K^T + mask) V, per batch and head.
 * Q: (batch, seqlen_q, heads_q, head_dim)      K: (batch, seqlen_k, heads_kv, head_dim)
 * O: (batch, seqlen_q, heads_q, head_dim_v)    V: (batch, seqlen_k, heads_kv, head_dim_v)
 * in any memory order that the strides describe. Query head h reads key head h / (heads_q /
 * heads_kv). Rows that see no key give O = 0 and LSE = -inf. */
typedef struct flashptx_forward_problem {
  size_t size;     /* sizeof(flashptx_forward_problem) */
  int32_t dtype;   /* flashptx_dtype of Q, K, V (E4M3 and E5M2: of Q, see dtype_k); O has the same, or dtype_o */
  int32_t mask;    /* flashptx_mask */
  int64_t batch;   /* >= 0; with batch, heads_q or seqlen_q = 0 nothing is launched */
  int64_t heads_q; /* a multiple of heads_kv */
  int64_t heads_kv;
  int64_t seqlen_q;          /* >= 0, need not be a multiple of anything */
  int64_t seqlen_k;          /* >= 0 */
  int64_t head_dim;          /* of Q and K: 8, 16, 24, ... 256 */
  int64_t head_dim_v;        /* of V and O; 0 = head_dim */
  int32_t use_softmax_scale; /* 0: the scale is 1 / sqrt(head_dim); 1: softmax_scale below */
  float softmax_scale;       /* 0 to 1e20: scale * log2(e) * score must not overflow */
  flashptx_strides q, k, v, o;
  const char* kernel; /* NULL: chosen for you; else a kernel name such as
                         attn_fwd_bf16_d128_causal__q128_kv128_s2__overlap_pp_lazy8_dyn */
  const char* ptx;    /* NULL: generated; else PTX text run in place of the named kernel's, behind the end of the kernel before it */

  /* E4M3 and E5M2 only; zero means the default. A tensor is its 8-bit values times its fp32 scale, which is
   * data[batch * scale.batch + head * scale.head + row / scale.block_rows]. */
  int32_t dtype_o;         /* of O: FLASHPTX_F16 or FLASHPTX_BF16 when use_dtype_o = 1; else BF16 */
  int32_t use_dtype_o;
  int32_t v_transposed;    /* 1: V is V^T as flashptx_transpose_v writes it; v.seq is the stride of its
                              head_dim_v rows, v.head and v.batch those of heads and batches */
  int32_t allow_workspace; /* 1: each call may be given memory (flashptx_plan_workspace) into which V is transposed first,
                              and in which parts of O are kept where the last wave of tiles is cut along the
                              keys: faster for large head_dim, for long sequences and for few tiles */
  flashptx_scale_strides q_scale, k_scale, v_scale;
  int64_t q_scale_group;   /* query heads that share a scale: head / q_scale_group picks it; 0 = 1 */
  int32_t fast;            /* 1: where there is one, a faster kernel that builds part of P without exponentials. RMS error
                              of O up to 1.25 times that of plain FP8 attention on normal data, LSE off by up to 0.08 */
  int32_t reserved;        /* 0 */
  int32_t dtype_k;         /* of K and of V: FLASHPTX_E4M3 or FLASHPTX_E5M2; 0: dtype. P is E4M3 whatever V is */
  int32_t dtype_v;
} flashptx_forward_problem;

/* "0.1.0". */
const char* flashptx_version(void);

/* "invalid_argument" for FLASHPTX_INVALID_ARGUMENT and so on; "unknown" for anything else. */
const char* flashptx_status_name(flashptx_status status);

/* The sentence of the last failure on the calling thread: names the argument, its value and the
 * limit.
 * "" if there was none. `context` may be NULL (after a failed flashptx_create). Valid until the
 * calling thread's next failing call; calls that succeed leave it alone. */
const char* flashptx_last_error(const flashptx_context* context);

/* Opens a device. `options` may be NULL. Loads libcuda.so.1 by dlopen; needs a driver of the 525
 * branch (CUDA 12.0) or newer. Errors: no_device, driver_too_old, invalid_argument. */
flashptx_status flashptx_create(const flashptx_options* options, flashptx_context** context);

/* Waits for nothing: synchronise your streams first. Plans of the context must have been destroyed.
 * NULL is allowed. CUDA graphs captured from its plans must not run afterwards. */
void flashptx_destroy(flashptx_context* context);

/* One line: device name, SMs, driver. Valid as long as the context. */
const char* flashptx_describe_device(const flashptx_context* context);

/* Strides of contiguous memory of order (batch, seq, head, dim) and (batch, head, seq, dim). */
flashptx_strides flashptx_strides_bshd(int64_t seqlen, int64_t heads, int64_t head_dim);
flashptx_strides flashptx_strides_bhsd(int64_t seqlen, int64_t heads, int64_t head_dim);

/* Checks the problem, chooses a kernel, generates and assembles it (or finds it in memory or on
 * disk). Milliseconds to seconds the first time: plan once per shape, outside any stream capture.
 * Errors: invalid_argument, unsupported, bad_ptx, driver_too_old, out_of_memory. */
flashptx_status flashptx_plan_forward(flashptx_context* context,
                                      const flashptx_forward_problem* problem,
                                      flashptx_plan** plan);

/* Which kernel, and why; grid, shared memory, registers, where the code came from. Lines of text,
 * valid as long as the plan. */
const char* flashptx_plan_describe(const flashptx_plan* plan);

/* The kernel's name ("" when nothing needs to be launched). Valid as long as the plan. */
const char* flashptx_plan_kernel(const flashptx_plan* plan);

/* Enqueues the kernel on `stream` and returns: no synchronisation, no allocation, capturable in a
 * CUDA graph. q, k, v, o: device pointers, multiples of 16 bytes (k and v may be NULL when seqlen_k
 * is 0); o must not overlap them. lse: NULL, or fp32 (batch, heads_q, seqlen_q) contiguous: natural logarithm of the sum of
 * exp(scale * q.k); -inf for a row without keys. Several threads may use one plan at once. The
 * stream must belong to the context's CUDA context. A failure inside the kernel shows at your next
 * synchronisation. Errors: invalid_argument, launch_failed, earlier_error. */
flashptx_status flashptx_forward(flashptx_plan* plan, const void* q, const void* k, const void* v,
                                 void* o, float* lse, void* stream);

/* Bytes that flashptx_forward_with wants in args.workspace, whatever they hold; 0: none. Calls that may run at the same
 * time need one each. F16 and BF16, and V given transposed: a call may go without (NULL, or flashptx_forward); it is then slower. */
size_t flashptx_plan_workspace(const flashptx_plan* plan);

/* flashptx_forward with all that an FP8 problem can take; zero means "not given". */
typedef struct flashptx_forward_args {
  size_t size; /* sizeof(flashptx_forward_args) */
  const void *q, *k, *v;
  void* o;
  float* lse;
  const float *q_scale, *k_scale, *v_scale; /* NULL: all 1; finite and > 0 (not checked: device memory) */
  void* workspace;                          /* a multiple of 16 bytes */
  const void *cos, *sin;                    /* flashptx_plan_fp8_attention with RoPE: the tables */
} flashptx_forward_args;
flashptx_status flashptx_forward_with(flashptx_plan* plan, const flashptx_forward_args* args, void* stream);

/* NULL is allowed. The kernel itself stays loaded until flashptx_destroy. */
void flashptx_plan_destroy(flashptx_plan* plan);

/* ---- Preparation of FP8 operands. Each call enqueues one or two kernels on `stream` and returns.
 * The first call of a kind generates and assembles its kernels (milliseconds to seconds): make it once
 * outside any stream capture; later ones neither allocate nor synchronise. Addresses of tensors and tables
 * are multiples of 16 bytes. Errors: invalid_argument, unsupported, launch_failed, earlier_error. */

/* V (batch, seqlen, heads, head_dim) of 8 bits -> V^T (batch, heads, head_dim, padded) contiguous,
 * padded = flashptx_transposed_seqlen(seqlen); zeros beyond seqlen. The keys of a row are permuted within
 * each 16: position 4t + i holds key 8 (i / 2) + 2t + i % 2, as FP8 attention reads them. */
typedef struct flashptx_transpose_problem {
  size_t size;   /* sizeof(flashptx_transpose_problem) */
  int32_t dtype; /* FLASHPTX_E4M3 or FLASHPTX_E5M2: the bytes are not looked at */
  int64_t batch, seqlen, heads;
  int64_t head_dim; /* 16, 32, ... 256 */
  flashptx_strides v;
} flashptx_transpose_problem;

int64_t flashptx_transposed_seqlen(int64_t seqlen); /* the next multiple of 128 */
flashptx_status flashptx_transpose_v(flashptx_context* context,
                                     const flashptx_transpose_problem* problem, const void* v,
                                     void* vt, void* stream);

typedef enum flashptx_scale_kind {
  FLASHPTX_SCALE_TENSOR = 0, /* one scale */
  FLASHPTX_SCALE_HEAD = 1,   /* (batch, heads) */
  FLASHPTX_SCALE_BLOCK = 2   /* (batch, heads, ceil(seqlen / block_rows)) */
} flashptx_scale_kind;

typedef enum flashptx_hadamard_kind {
  FLASHPTX_HADAMARD_NONE = 0,
  FLASHPTX_HADAMARD_FORWARD = 1, /* y = H D x / sqrt(n) */
  FLASHPTX_HADAMARD_INVERSE = 2  /* y = D H x / sqrt(n), undoes it: for O when V was turned */
} flashptx_hadamard_kind;

typedef enum flashptx_rope_kind {
  FLASHPTX_ROPE_NONE = 0,
  FLASHPTX_ROPE_INTERLEAVED = 1, /* pairs (2i, 2i + 1) */
  FLASHPTX_ROPE_HALF = 2         /* pairs (i, i + head_dim / 2) */
} flashptx_rope_kind;

/* x (batch, seqlen, heads, head_dim), f16 or bf16 -> RoPE -> Hadamard -> y, the same shape.
 *
 * Scales. x is about scale * y, with scale = amax / 448 (E4M3) or / 57344 (E5M2), amax the largest
 * magnitude of what shares it. Values that are not finite are left out of amax: an infinity becomes the
 * largest value of the type, NaN stays NaN. amax = 0 gives scale 1; an amax below 2^-100 counts as 2^-100.
 *
 * Hadamard. n is the largest power of two that divides head_dim (64, 128, 256: all of it; 96: blocks of 32).
 * D are random signs by `seed`: prepare Q and K with the same seed. Blocks are rounded to bf16 between
 * Hadamard or RoPE and the quantisation; RoPE that Hadamard and quantisation follow, to bf16 too. Then bf16 input may also be
 * computed in bf16 between the two, with cos and sin rounded to it (head_dim 64, 128, 256): at most 2 % more error than e4m3 has anyway.
 * f16 output may overflow where a row's norm exceeds 65504.
 *
 * RoPE. cos and sin: (table_rows, head_dim / 2), contiguous; row i uses line position + i. */
typedef struct flashptx_prepare_problem {
  size_t size;          /* sizeof(flashptx_prepare_problem) */
  int32_t input_dtype;  /* FLASHPTX_F16 or FLASHPTX_BF16 */
  int32_t output_dtype; /* FLASHPTX_E4M3, FLASHPTX_E5M2; or input_dtype: not quantised */
  int64_t batch;        /* 0 to 65535 */
  int64_t seqlen, heads;
  int64_t head_dim; /* 16, 32, ... 256; with RoPE a multiple of 32 */
  flashptx_strides x, y;
  int32_t scale_kind;  /* flashptx_scale_kind */
  float fixed_scale;   /* with FLASHPTX_SCALE_TENSOR: this scale; 0: it follows from the data */
  int64_t block_rows;  /* with FLASHPTX_SCALE_BLOCK: >= 1; best 64 to 128, few waste threads; else 0 */
  int32_t hadamard;    /* flashptx_hadamard_kind */
  uint32_t seed;       /* of its signs */
  int32_t rope;        /* flashptx_rope_kind */
  int32_t table_dtype; /* with RoPE: FLASHPTX_F32 or FLASHPTX_BF16 */
  int64_t position;    /* with RoPE: line of the tables for row 0 */
  int64_t table_rows;  /* with RoPE: lines that the tables have, >= position + seqlen */
} flashptx_prepare_problem;

/* fp32 values in `scales` (and in `amax`) for this problem; 0 if it is not quantised. */
int64_t flashptx_scale_count(const flashptx_prepare_problem* problem);

/* Quantisation, behind Hadamard if asked for; rope must be 0. y: another address than x. scales: written.
 * amax: written, as many values as scales; NULL with FLASHPTX_SCALE_BLOCK or a fixed_scale, which need none. */
flashptx_status flashptx_quantize(flashptx_context* context, const flashptx_prepare_problem* problem,
                                  const void* x, void* y, float* scales, float* amax, void* stream);

/* V for FP8 attention: quantisation and flashptx_transpose_v in one pass. problem->y is not looked at; neither
 * rope nor hadamard; blocks have 128 rows. vt: as of flashptx_transpose_v. */
flashptx_status flashptx_quantize_transpose_v(flashptx_context* context,
                                              const flashptx_prepare_problem* problem, const void* v,
                                              void* vt, float* scales, float* amax, void* stream);

/* Hadamard or its inverse alone: output_dtype equals input_dtype, rope is 0. In place where y = x. */
flashptx_status flashptx_hadamard(flashptx_context* context, const flashptx_prepare_problem* problem,
                                  const void* x, void* y, void* stream);

/* RoPE, then Hadamard if asked for, then quantisation unless output_dtype equals input_dtype (scales and
 * amax are then not looked at): in one pass over memory with FLASHPTX_SCALE_BLOCK. */
flashptx_status flashptx_rope_hadamard_quantize(flashptx_context* context,
                                                const flashptx_prepare_problem* problem,
                                                const void* x, const void* cos, const void* sin,
                                                void* y, float* scales, float* amax, void* stream);

/* Bit j % 32 of word j / 32: whether column j < 256 is negated by D. */
void flashptx_hadamard_signs(uint32_t seed, uint32_t words[8]);

/* ---- 16-bit tensors in, FP8 attention inside: preparation and attention as one plan and one call. */

typedef struct flashptx_fp8_options {
  size_t size;         /* sizeof(flashptx_fp8_options) */
  int32_t dtype;       /* inside: FLASHPTX_E4M3 or FLASHPTX_E5M2 */
  int32_t scale_kind;  /* flashptx_scale_kind: what shares a scale, in each of Q, K, V */
  int64_t block_rows;  /* with FLASHPTX_SCALE_BLOCK: rows that share one: 16, 32, 64 or a multiple of 128;
                          0: 128, the fastest. Else 0 */
  int32_t hadamard;    /* 1: random signs and Hadamard on Q and K, the same for both; LSE and O do not change */
  int32_t hadamard_v;  /* 1: on V as well; O is turned back in place. V is then not transposed on the way */
  uint32_t seed;       /* of the signs */
  int32_t rope;        /* flashptx_rope_kind, of Q and K, in front of everything */
  int32_t table_dtype; /* with RoPE: FLASHPTX_F32 or FLASHPTX_BF16 */
  int64_t position_q;  /* with RoPE: line of the tables for row 0 of Q, and of K */
  int64_t position_k;
  int64_t table_rows;  /* with RoPE: lines that the tables have */
  int32_t fast;        /* 1: as flashptx_forward_problem.fast, whose own stays 0 here */
  int32_t reserved;    /* 0 */
  int32_t dtype_k;     /* inside, of K and of V: FLASHPTX_E4M3 or FLASHPTX_E5M2; 0: dtype */
  int32_t dtype_v;
} flashptx_fp8_options;

/* A plan for `problem`, whose dtype is FLASHPTX_F16 or FLASHPTX_BF16 and whose fields for E4M3 and E5M2 are 0.
 * head_dim and head_dim_v must be multiples of 16 (with RoPE: 32). Run it by flashptx_forward_with: args.q,
 * k, v, o in 16 bits, args.workspace of flashptx_plan_workspace bytes, args.cos and sin with RoPE, no scales.
 * That enqueues three to eight kernels and neither allocates nor synchronises, from the first call on: capturable.
 * Calls that may run at the same time need a workspace each. See flashptx_prepare_problem for what scales,
 * Hadamard and RoPE are exactly. Errors: invalid_argument, unsupported, bad_ptx, driver_too_old, out_of_memory. */
flashptx_status flashptx_plan_fp8_attention(flashptx_context* context,
                                            const flashptx_forward_problem* problem,
                                            const flashptx_fp8_options* options, flashptx_plan** plan);

/* Memory of the context's device, for programs that have no other allocator (and for the emulator,
 * whose addresses only it can give). Copies are synchronous; addresses are 256-byte aligned. */
flashptx_status flashptx_device_alloc(flashptx_context* context, size_t bytes, void** address);
void flashptx_device_free(flashptx_context* context, void* address);
flashptx_status flashptx_copy_to_device(flashptx_context* context, void* dst, const void* src,
                                        size_t bytes);
flashptx_status flashptx_copy_from_device(flashptx_context* context, void* dst, const void* src,
                                          size_t bytes);

/* Waits for `stream`. Errors: launch_failed when one of our kernels broke the context,
 * earlier_error when somebody else's did. */
flashptx_status flashptx_synchronize(flashptx_context* context, void* stream);

#ifdef __cplusplus
}
#endif

#endif
