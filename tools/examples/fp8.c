/* 16-bit tensors in, FP8 attention inside, through the C library; checked against float64. No CUDA header.
 *
 *     make && gcc -std=c99 -I. tools/examples/fp8.c -o fp8 build/libflashptx.a -ldl -lm -lpthread -lstdc++ && ./fp8
 *
 * Runs on a Hopper GPU, else on the emulator. Exit codes: 0 ok, 1 wrong, 3 cannot run here. Next: host/flashptx.h.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/flashptx.h"

enum { BATCH = 1, HEADS = 2, KEYS = 300, DIM = 128, N = BATCH * KEYS * HEADS * DIM };

static flashptx_context* context;

static void check(flashptx_status s) {
  if (s == FLASHPTX_OK) return;
  fprintf(stderr, "%s: %s\n", flashptx_status_name(s), flashptx_last_error(context));
  exit(s == FLASHPTX_NO_DEVICE ? 3 : 1);
}

static float from_bf16(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

/* Sums of twelve: near enough normal; one value in a thousand stands out. */
static uint16_t random_bf16(void) {
  float x = -6;
  uint32_t bits;
  for (int i = 0; i < 12; ++i) x += (float)rand() / (float)RAND_MAX;
  if (rand() % 1000 == 0) x *= 10;
  memcpy(&bits, &x, 4);
  return (uint16_t)(bits >> 16);
}

static void* upload(const void* data, size_t bytes) {
  void* p;
  check(flashptx_device_alloc(context, bytes, &p));
  if (data != NULL) check(flashptx_copy_to_device(context, p, data, bytes));
  return p;
}

/* O of one query row, in double. */
static void exact_row(const uint16_t* q, const uint16_t* k, const uint16_t* v, int row, int head, double* o) {
  double sum = 0;
  memset(o, 0, DIM * sizeof *o);
  for (int j = 0; j <= row; ++j) {
    double s = 0;
    for (int d = 0; d < DIM; ++d)
      s += (double)from_bf16(q[(row * HEADS + head) * DIM + d]) * from_bf16(k[(j * HEADS + head) * DIM + d]);
    const double p = exp(s / sqrt(DIM));
    sum += p;
    for (int d = 0; d < DIM; ++d) o[d] += p * from_bf16(v[(j * HEADS + head) * DIM + d]);
  }
  for (int d = 0; d < DIM; ++d) o[d] /= sum;
}

int main(void) {
  static uint16_t tensors[3][N], o[N];
  for (int i = 0; i < 3 * N; ++i) tensors[i / N][i % N] = random_bf16();
  check(flashptx_create(NULL, &context));

  flashptx_forward_problem problem = {.size = sizeof problem};
  problem.dtype = FLASHPTX_BF16, problem.mask = FLASHPTX_MASK_CAUSAL;
  problem.batch = BATCH, problem.heads_q = problem.heads_kv = HEADS;
  problem.seqlen_q = problem.seqlen_k = KEYS, problem.head_dim = DIM;
  problem.q = problem.k = problem.v = problem.o = flashptx_strides_bshd(KEYS, HEADS, DIM);
  flashptx_fp8_options options = {.size = sizeof options};
  options.dtype = FLASHPTX_E4M3, options.scale_kind = FLASHPTX_SCALE_BLOCK, options.hadamard = 1, options.seed = 1;
  flashptx_plan* plan;
  check(flashptx_plan_fp8_attention(context, &problem, &options, &plan));

  flashptx_forward_args args = {.size = sizeof args};
  void* device[5] = {upload(tensors[0], sizeof o), upload(tensors[1], sizeof o), upload(tensors[2], sizeof o),
                     upload(NULL, sizeof o), upload(NULL, flashptx_plan_workspace(plan))};
  args.q = device[0], args.k = device[1], args.v = device[2], args.o = device[3], args.workspace = device[4];
  check(flashptx_forward_with(plan, &args, NULL));
  check(flashptx_synchronize(context, NULL));
  check(flashptx_copy_from_device(context, o, device[3], sizeof o));

  double squares = 0, size = 0, exact[DIM];
  for (int row = 0; row < KEYS; ++row)
    for (int head = 0; head < HEADS; ++head) {
      exact_row(tensors[0], tensors[1], tensors[2], row, head, exact);
      for (int d = 0; d < DIM; ++d) {
        const double off = from_bf16(o[(row * HEADS + head) * DIM + d]) - exact[d];
        squares += off * off, size += exact[d] * exact[d];
      }
    }
  printf("%s\n%srelative RMS error %.3f\n", flashptx_describe_device(context), flashptx_plan_describe(plan),
         sqrt(squares / size));
  for (int i = 0; i < 5; ++i) flashptx_device_free(context, device[i]);
  flashptx_plan_destroy(plan);
  flashptx_destroy(context);
  return squares < 0.01 * size ? 0 : 1; /* NaN is wrong too */
}
