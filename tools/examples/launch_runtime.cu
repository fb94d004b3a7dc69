// Launches a committed attention kernel from CUDA runtime code (CUDA 12.8 or newer), and checks the result.
//
//   nvcc -std=c++17 -O2 tools/examples/launch_runtime.cu -o launch_runtime
//   ./launch_runtime ptx/attn_fwd_bf16_d128_causal__*.ptx
//
// The same as launch.c; what differs: cudaLibraryLoadFromFile loads the PTX into the runtime's own context, a
// cudaKernel_t goes where a __global__ function would, and the map encoder comes from cudaGetDriverEntryPoint.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "kernel_file.h"

static void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
  std::exit(1);
}
#define CHECK(call) check(call, #call)

static CUtensorMap make_map(void* address, int seqlen, int box_rows) {
  static auto encode = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  }();
  CUtensorMap map;
  const cuuint64_t rows = static_cast<cuuint64_t>(seqlen);
  const cuuint64_t dims[4] = {DIM, rows, HEADS, 1}, strides[3] = {2 * HEADS * DIM, 2 * DIM, 2 * HEADS * DIM * rows};
  const cuuint32_t box[4] = {64, static_cast<cuuint32_t>(box_rows), 1, 1}, steps[4] = {1, 1, 1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, address, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) std::fprintf(stderr, "cuTensorMapEncodeTiled: CUDA error %d\n", result), std::exit(1);
  return map;
}

template <class T>
static T* upload(const std::vector<T>& host) {
  T* device = nullptr;
  CHECK(cudaMalloc(&device, host.size() * sizeof(T)));
  CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}

int main(int argc, char** argv) {
  kernel_file file;
  if (argc < 2 || !read_kernel(argv[1], &file))
    return std::fprintf(stderr, "usage: %s ptx/attn_fwd_bf16_d128_...ptx\n", argv[0]), 2;
  int devices = 0;
  cudaDeviceProp device;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return std::fprintf(stderr, "no GPU here\n"), 3;
  CHECK(cudaGetDeviceProperties(&device, 0));
  if (device.major != 9) return std::fprintf(stderr, "the first GPU is no Hopper\n"), 3;

  cudaLibrary_t library;
  cudaKernel_t kernel;
  CHECK(cudaLibraryLoadFromFile(&library, argv[1], nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK(cudaLibraryGetKernel(&kernel, library, file.entry));
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(file.shared_bytes)));

  std::vector<uint16_t> q(QUERIES * HEADS * DIM), k(KEYS * HEADS * DIM), v(k.size()), o(q.size(), 0xffff);
  std::vector<float> lse(HEADS * QUERIES, NAN);
  fill_random(q.data(), q.size(), 1), fill_random(k.data(), k.size(), 2), fill_random(v.data(), v.size(), 3);
  uint16_t *q_at = upload(q), *k_at = upload(k), *v_at = upload(v), *o_at = upload(o);
  float* lse_at = upload(lse);
  uint32_t* counter = upload(std::vector<uint32_t>{0, 0});

  CUtensorMap q_map = make_map(q_at, QUERIES, box_rows(&file, "q_map"));
  CUtensorMap k_map = make_map(k_at, KEYS, box_rows(&file, "k_map"));
  CUtensorMap v_map = make_map(v_at, KEYS, box_rows(&file, "v_map"));
  CUtensorMap o_map = make_map(o_at, QUERIES, box_rows(&file, "o_map"));
  uint32_t seqlen_q = QUERIES, seqlen_k = KEYS, heads = HEADS, batch = 1, head_group = HEADS;
  float softmax_scale_log2 = 1.44269504f / std::sqrt(static_cast<float>(DIM));
  const std::map<std::string, void*> values = {
      {"q_map", &q_map}, {"k_map", &k_map}, {"v_map", &v_map}, {"o_map", &o_map}, {"lse", &lse_at},
      {"tile_counter", &counter}, {"seqlen_q", &seqlen_q}, {"seqlen_k", &seqlen_k}, {"heads_q", &heads},
      {"heads_kv", &heads}, {"batch", &batch}, {"head_group", &head_group}, {"softmax_scale_log2", &softmax_scale_log2}};
  std::vector<void*> params;
  const char* at = strstr(file.text, ".entry ");
  for (char name[64]; next_parameter(&at, name);) {
    if (!values.count(name)) return std::fprintf(stderr, "this program does not know the parameter %s\n", name), 1;
    params.push_back(values.at(name));
  }

  const int tiles = (QUERIES + file.tile_q - 1) / file.tile_q * HEADS;
  const int grid = std::min(tiles, device.multiProcessorCount);
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaLaunchKernel(kernel, dim3(grid), dim3(file.threads), params.data(), file.shared_bytes, stream));
  CHECK(cudaStreamSynchronize(stream));

  CHECK(cudaMemcpy(o.data(), o_at, o.size() * 2, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(lse.data(), lse_at, lse.size() * 4, cudaMemcpyDeviceToHost));
  double lse_error;
  const double error = check_attention(q.data(), k.data(), v.data(), o.data(), lse.data(), file.causal, &lse_error);
  const bool good = error < 0.01 && lse_error < 1e-4;
  std::printf("%s: largest error of O %.2e, of LSE %.2e: %s\n", file.entry, error, lse_error, good ? "ok" : "WRONG");
  return good ? 0 : 1;
}
