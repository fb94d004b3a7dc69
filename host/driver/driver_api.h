// The part of the CUDA driver API that we call, declared here so that no CUDA header is needed to
// build.
//
// A table of functions filled by dlopen("libcuda.so.1"): opaque handles, integers where the driver
// has enums. Names, signatures and values: CUDA driver API reference; the layouts of CUlaunchConfig
// and CUlaunchAttribute are those of CUDA 11.8 and later. Exported names carry version suffixes
// that the reference leaves out. Next: host/driver/cuda_device.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "host/device.h"

namespace flashptx {
namespace driver {

using Result = int;    // CUresult
using DeviceId = int;  // CUdevice
using Pointer = std::uint64_t;
struct ContextTag;
struct ModuleTag;
struct FunctionTag;
struct EventTag;
struct LinkTag;
using Context = ContextTag*;
using Module = ModuleTag*;
using Function = FunctionTag*;
using Event = EventTag*;
using Link = LinkTag*;

enum : Result {
  success = 0,
  out_of_memory = 2,
  no_device = 100,
  invalid_image = 200,
  no_binary_for_gpu = 209,
  ecc_uncorrectable = 214,
  invalid_ptx = 218,
  nvlink_uncorrectable = 220,
  jit_compiler_not_found = 221,
  unsupported_ptx_version = 222,
};

enum DeviceAttribute : int {
  multiprocessor_count = 16,
  l2_cache_size = 38,
  compute_capability_major = 75,
  compute_capability_minor = 76,
  max_shared_memory_per_block_optin = 97,
};

enum FunctionAttribute : int {
  shared_size_bytes = 1,
  local_size_bytes = 3,
  num_regs = 4,
  max_dynamic_shared_size_bytes = 8,
};

enum JitOption : int {
  info_log_buffer = 3,
  info_log_buffer_size_bytes = 4,
  error_log_buffer = 5,
  error_log_buffer_size_bytes = 6,
  log_verbose = 12,
};
constexpr int jit_input_ptx = 1;

enum LaunchAttributeId : int { cluster_dimension = 4, programmatic_stream_serialization = 6 };

struct LaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int allowed;
  } value;
};

struct LaunchConfig {
  unsigned grid[3], block[3];
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

}  // namespace driver

// One row a function: member, exported names tried in order, signature. An absent required one
// makes the driver too old. Rows in X are required, rows in Y optional.
#define FLASHPTX_DRIVER_TABLE(X, Y)                                                                \
  X(init, "cuInit", (unsigned flags))                                                              \
  X(driver_get_version, "cuDriverGetVersion", (int* version))                                      \
  X(get_error_name, "cuGetErrorName", (driver::Result e, const char** name))                       \
  X(device_get_count, "cuDeviceGetCount", (int* count))                                            \
  X(device_get, "cuDeviceGet", (driver::DeviceId * device, int ordinal))                           \
  X(device_get_name, "cuDeviceGetName", (char* name, int length, driver::DeviceId device))         \
  X(device_get_attribute, "cuDeviceGetAttribute",                                                  \
    (int* value, int attribute, driver::DeviceId device))                                          \
  X(device_total_mem, "cuDeviceTotalMem_v2", (std::size_t * bytes, driver::DeviceId device))       \
  X(primary_context_retain, "cuDevicePrimaryCtxRetain",                                            \
    (driver::Context * context, driver::DeviceId device))                                          \
  X(primary_context_release, "cuDevicePrimaryCtxRelease_v2", (driver::DeviceId device))            \
  X(primary_context_get_state, "cuDevicePrimaryCtxGetState",                                       \
    (driver::DeviceId device, unsigned* flags, int* active))                                       \
  X(context_get_current, "cuCtxGetCurrent", (driver::Context * context))                           \
  X(context_get_device, "cuCtxGetDevice", (driver::DeviceId * device))                             \
  X(context_push, "cuCtxPushCurrent_v2", (driver::Context context))                                \
  X(context_pop, "cuCtxPopCurrent_v2", (driver::Context * context))                                \
  X(module_load_data_ex, "cuModuleLoadDataEx",                                                     \
    (driver::Module * module, const void* image, unsigned options, int* option, void** value))     \
  X(module_unload, "cuModuleUnload", (driver::Module module))                                      \
  X(module_get_function, "cuModuleGetFunction",                                                    \
    (driver::Function * function, driver::Module module, const char* name))                        \
  X(function_get_attribute, "cuFuncGetAttribute",                                                  \
    (int* value, int attribute, driver::Function function))                                        \
  X(function_set_attribute, "cuFuncSetAttribute",                                                  \
    (driver::Function function, int attribute, int value))                                         \
  X(link_create, "cuLinkCreate_v2",                                                                \
    (unsigned options, int* option, void** value, driver::Link* link))                             \
  X(link_add_data, "cuLinkAddData_v2",                                                             \
    (driver::Link link, int type, void* data, std::size_t bytes, const char* name,                 \
     unsigned options, int* option, void** value))                                                 \
  X(link_complete, "cuLinkComplete", (driver::Link link, void** cubin, std::size_t* bytes))        \
  X(link_destroy, "cuLinkDestroy", (driver::Link link))                                            \
  X(mem_alloc, "cuMemAlloc_v2", (driver::Pointer * address, std::size_t bytes))                    \
  X(mem_free, "cuMemFree_v2", (driver::Pointer address))                                           \
  X(mem_get_info, "cuMemGetInfo_v2", (std::size_t * free_bytes, std::size_t * total_bytes))        \
  X(memcpy_to_device, "cuMemcpyHtoD_v2",                                                           \
    (driver::Pointer dst, const void* src, std::size_t bytes))                                     \
  X(memcpy_from_device, "cuMemcpyDtoH_v2", (void* dst, driver::Pointer src, std::size_t bytes))    \
  X(memset_async, "cuMemsetD8Async",                                                               \
    (driver::Pointer dst, unsigned char byte, std::size_t bytes, Stream stream))                   \
  X(launch_kernel_ex, "cuLaunchKernelEx",                                                          \
    (const driver::LaunchConfig* config, driver::Function function, void** params, void** extra))  \
  X(stream_synchronize, "cuStreamSynchronize", (Stream stream))                                    \
  X(stream_is_capturing, "cuStreamIsCapturing", (Stream stream, int* status))                      \
  X(event_create, "cuEventCreate", (driver::Event * event, unsigned flags))                        \
  X(event_destroy, "cuEventDestroy_v2", (driver::Event event))                                     \
  X(event_record, "cuEventRecord", (driver::Event event, Stream stream))                           \
  X(event_synchronize, "cuEventSynchronize", (driver::Event event))                                \
  X(event_elapsed, "cuEventElapsedTime",                                                           \
    (float* milliseconds, driver::Event from, driver::Event to))                                   \
  X(tensor_map_encode_tiled, "cuTensorMapEncodeTiled",                                             \
    (void* map, int type, std::uint32_t rank, void* address, const std::uint64_t* dims,            \
     const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* element_strides, \
     int interleave, int swizzle, int l2_promotion, int out_of_bounds_fill))                       \
  Y(launch_kernel, "cuLaunchKernel",                                                               \
    (driver::Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,                 \
     unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream,   \
     void** params, void** extra))                                                                 \
  Y(stream_create, "cuStreamCreate", (Stream * stream, unsigned flags))                            \
  Y(stream_destroy, "cuStreamDestroy_v2", (Stream stream))                                         \
  Y(stream_begin_capture, "cuStreamBeginCapture_v2", (Stream stream, int mode))                    \
  Y(stream_end_capture, "cuStreamEndCapture", (Stream stream, void** graph))                       \
  Y(graph_instantiate, "cuGraphInstantiateWithFlags",                                              \
    (void** exec, void* graph, unsigned long long flags))                                          \
  Y(graph_launch, "cuGraphLaunch", (void* exec, Stream stream))                                    \
  Y(graph_exec_destroy, "cuGraphExecDestroy", (void* exec))                                        \
  Y(graph_destroy, "cuGraphDestroy", (void* graph))                                                \
  Y(context_create, "cuCtxCreate_v2",                                                              \
    (driver::Context * context, unsigned flags, driver::DeviceId device))                          \
  Y(context_destroy, "cuCtxDestroy_v2", (driver::Context context))

struct DriverApi {
#define FLASHPTX_DRIVER_MEMBER(member, name, signature) driver::Result(*member) signature = nullptr;
  FLASHPTX_DRIVER_TABLE(FLASHPTX_DRIVER_MEMBER, FLASHPTX_DRIVER_MEMBER)
#undef FLASHPTX_DRIVER_MEMBER

  // "CUDA_ERROR_ILLEGAL_ADDRESS (700)"
  std::string error_name(driver::Result e) const;
};

// The process's table, loaded once. no_device without libcuda.so.1 or with cuInit failing,
// driver_too_old with the name of the first function that is missing.
Status load_driver(const DriverApi** out);

// Whether an error of this kind has ended the context: every later call in it fails too.
bool is_sticky(driver::Result e);

}  // namespace flashptx
