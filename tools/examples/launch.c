/* Launches a committed attention kernel with nothing but libcuda, and checks the result. No CUDA header needed.
 *
 *   cc -std=c99 -O2 tools/examples/launch.c -o launch -ldl -lm
 *   ./launch ptx/attn_fwd_bf16_d128_full__*.ptx
 *
 * Read main() from the top: load, tensor maps, parameters by name, launch, compare. Next: ptx/catalog.json.
 */
#include <dlfcn.h>

#include "kernel_file.h"

typedef uint64_t device_pointer;
typedef struct { uint64_t words[16]; } tensor_map; /* CUtensorMap: 128 bytes, encoded at a multiple of 64 */

/* Names of cuda.h, whose types these are: handles are pointers, enums are ints, 0 is success. */
#define DRIVER(X)                                                                                             \
  X(cuInit, (unsigned))                                                                                       \
  X(cuDeviceGet, (int*, int))                                                                                 \
  X(cuDeviceGetAttribute, (int*, int, int))                                                                   \
  X(cuDevicePrimaryCtxRetain, (void**, int))                                                                  \
  X(cuCtxSetCurrent, (void*))                                                                                 \
  X(cuModuleLoad, (void**, const char*))                                                                      \
  X(cuModuleGetFunction, (void**, void*, const char*))                                                        \
  X(cuFuncSetAttribute, (void*, int, int))                                                                    \
  X(cuMemAlloc_v2, (device_pointer*, size_t))                                                                 \
  X(cuMemcpyHtoD_v2, (device_pointer, const void*, size_t))                                                   \
  X(cuMemcpyDtoH_v2, (void*, device_pointer, size_t))                                                         \
  X(cuTensorMapEncodeTiled, (tensor_map*, int, unsigned, void*, const uint64_t*, const uint64_t*,             \
                             const uint32_t*, const uint32_t*, int, int, int, int))                           \
  X(cuLaunchKernel, (void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,      \
                     void**, void**))                                                                         \
  X(cuCtxSynchronize, (void))
#define DECLARE(name, arguments) static int(*name) arguments;
DRIVER(DECLARE)

static void check(int result, const char* what) {
  if (result == 0) return;
  fprintf(stderr, "%s: CUDA error %d\n", what, result);
  exit(1);
}
#define CHECK(call) check(call, #call)

static int load_driver(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return 0;
#define LOAD(name, arguments) *(void**)&name = dlsym(library, #name); if (!name) return 0;
  DRIVER(LOAD)
  return 1;
}

/* (1, seqlen, HEADS, DIM) in memory; dimensions innermost first: head_dim, seqlen, heads, batch. */
static tensor_map* make_map(device_pointer address, int seqlen, int box_rows) {
  uint64_t dims[4] = {DIM, (uint64_t)seqlen, HEADS, 1};
  uint64_t strides[3] = {2 * HEADS * DIM, 2 * DIM, 2ull * HEADS * DIM * (uint64_t)seqlen}; /* bytes */
  uint32_t box[4] = {64, (uint32_t)box_rows, 1, 1}, element_strides[4] = {1, 1, 1, 1};
  char* room = (char*)malloc(sizeof(tensor_map) + 63); /* the encoder wants 64-byte alignment */
  tensor_map* map = (tensor_map*)(room + (64 - (uintptr_t)room % 64) % 64); /* kept until the program ends */
  CHECK(cuTensorMapEncodeTiled(map, 9 /* bf16 */, 4, (void*)(uintptr_t)address, dims, strides, box, element_strides,
                               0 /* no interleave */, 3 /* 128-byte swizzle */, 2 /* L2 promotion 128 B */,
                               0 /* zeros out of bounds */));
  return map;
}

static device_pointer upload(const void* data, size_t bytes) {
  device_pointer address;
  CHECK(cuMemAlloc_v2(&address, bytes));
  CHECK(cuMemcpyHtoD_v2(address, data, bytes));
  return address;
}

int main(int argc, char** argv) {
  static uint16_t q[QUERIES * HEADS * DIM], k[KEYS * HEADS * DIM], v[KEYS * HEADS * DIM], o[QUERIES * HEADS * DIM];
  static float lse[HEADS * QUERIES];
  kernel_file file;
  void *context, *module, *function, *params[32];
  int device, major, multiprocessors;
  if (argc < 2 || !read_kernel(argv[1], &file))
    return fprintf(stderr, "usage: %s ptx/attn_fwd_bf16_d128_...ptx\n", argv[0]), 2;
  if (!load_driver() || cuInit(0) != 0) return fprintf(stderr, "no CUDA driver here\n"), 3;
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDeviceGetAttribute(&major, 75, device));
  if (major != 9) return fprintf(stderr, "the first GPU is no Hopper\n"), 3;
  CHECK(cuDeviceGetAttribute(&multiprocessors, 16, device));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));

  CHECK(cuModuleLoad(&module, argv[1]));
  CHECK(cuModuleGetFunction(&function, module, file.entry));
  CHECK(cuFuncSetAttribute(function, 8 /* MAX_DYNAMIC_SHARED_SIZE_BYTES */, (int)file.shared_bytes));

  fill_random(q, QUERIES * HEADS * DIM, 1), fill_random(k, KEYS * HEADS * DIM, 2), fill_random(v, KEYS * HEADS * DIM, 3);
  memset(o, 0xff, sizeof o), memset(lse, 0xff, sizeof lse); /* NaN: an unwritten element shows */
  uint32_t zeros[2] = {0, 0}, seqlen_q = QUERIES, seqlen_k = KEYS, heads = HEADS, batch = 1, head_group = HEADS;
  float softmax_scale_log2 = 1.44269504f / sqrtf(DIM);
  device_pointer q_at = upload(q, sizeof q), k_at = upload(k, sizeof k), v_at = upload(v, sizeof v);
  device_pointer o_at = upload(o, sizeof o), lse_at = upload(lse, sizeof lse), counter = upload(zeros, sizeof zeros);

  const struct { const char* name; void* value; } values[] = {
      {"q_map", make_map(q_at, QUERIES, box_rows(&file, "q_map"))},
      {"k_map", make_map(k_at, KEYS, box_rows(&file, "k_map"))},
      {"v_map", make_map(v_at, KEYS, box_rows(&file, "v_map"))},
      {"o_map", make_map(o_at, QUERIES, box_rows(&file, "o_map"))},
      {"lse", &lse_at}, {"tile_counter", &counter}, {"seqlen_q", &seqlen_q}, {"seqlen_k", &seqlen_k},
      {"heads_q", &heads}, {"heads_kv", &heads}, {"batch", &batch}, {"head_group", &head_group},
      {"softmax_scale_log2", &softmax_scale_log2}};
  const char* at = strstr(file.text, ".entry ");
  char name[64];
  for (int count = 0; next_parameter(&at, name); ++count) {
    params[count] = NULL;
    for (size_t i = 0; i < sizeof values / sizeof *values; ++i)
      if (!strcmp(values[i].name, name)) params[count] = values[i].value;
    if (!params[count]) return fprintf(stderr, "this program does not know the parameter %s\n", name), 1;
  }

  unsigned tiles = (unsigned)((QUERIES + file.tile_q - 1) / file.tile_q) * HEADS;
  unsigned grid = tiles < (unsigned)multiprocessors ? tiles : (unsigned)multiprocessors;
  CHECK(cuLaunchKernel(function, grid, 1, 1, (unsigned)file.threads, 1, 1, file.shared_bytes, NULL, params, NULL));
  CHECK(cuCtxSynchronize());

  CHECK(cuMemcpyDtoH_v2(o, o_at, sizeof o));
  CHECK(cuMemcpyDtoH_v2(lse, lse_at, sizeof lse));
  double lse_error, error = check_attention(q, k, v, o, lse, file.causal, &lse_error);
  int good = error < 0.01 && lse_error < 1e-4;
  printf("%s: largest error of O %.2e, of LSE %.2e: %s\n", file.entry, error, lse_error, good ? "ok" : "WRONG");
  return good ? 0 : 1;
}
