// The one interface to something that runs PTX: a GPU through the CUDA driver, the emulator, or a fake.
//
// Everything above this line of the product (attention.cpp, the tools, the tests) talks to a Device and
// cannot tell which kind it has. Nothing here allocates on the launch path.
// Next: host/driver/ (CUDA driver API through dlopen), host/emulator/ (a Hopper SM in software).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace flashptx {

// Values equal flashptx_status of flashptx.h.
enum class StatusCode : int {
  ok = 0,
  invalid_argument = 1,   // a value, shape, stride, alignment or null pointer that cannot be right
  unsupported = 2,        // well formed, but outside what this library or device can do
  no_device = 3,          // no driver library, or no GPU of compute capability 9.0
  driver_too_old = 4,     // the driver lacks an entry point or the PTX version
  out_of_memory = 5,
  bad_ptx = 6,            // text that does not assemble or parse; the message carries the log's line
  launch_failed = 7,      // the device reported an error while running, or the emulator found a fault
  earlier_error = 8,      // the context was already poisoned by somebody's earlier kernel
  internal = 9,
};

// A code and one sentence. The sentence names the argument, its value and the limit.
struct [[nodiscard]] Status {
  StatusCode code = StatusCode::ok;
  std::string message;
  bool ok() const { return code == StatusCode::ok; }
  static Status error(StatusCode c, std::string m) { return Status{c, std::move(m)}; }
};

// 128 opaque bytes that a kernel receives by value as `.param .align 64 .b8 map[128]`.
// On a GPU a CUtensorMap; the emulator stores its own record here.
struct alignas(128) TensorMap {
  std::uint8_t bytes[128];
};

enum class ElementType : int { u8, f16, bf16, f32 };
constexpr int element_bytes(ElementType t) {
  return t == ElementType::u8 ? 1 : t == ElementType::f32 ? 4 : 2;
}

// A strided view and a box of it, innermost dimension first (PTX ISA, tensor section; cuTensorMapEncodeTiled).
// stride_bytes[0] belongs to dimension 1: dimension 0 is contiguous.
struct TensorMapDesc {
  std::string name;                  // for messages: "K"
  ElementType type = ElementType::bf16;
  std::uint64_t address = 0;         // device address, multiple of 16
  int rank = 0;                      // 1..5
  std::uint64_t dims[5] = {};        // elements, 1 .. 2^32
  std::uint64_t stride_bytes[4] = {};  // multiples of 16, below 2^40
  std::uint32_t box[5] = {};         // elements, 1..256 each
  int swizzle_bytes = 128;           // 0, 32, 64 or 128; box[0] * element_bytes <= swizzle_bytes unless 0
};

// Checks every rule of cuTensorMapEncodeTiled; the message names tensor, field, value and rule.
Status check_tensor_map(const TensorMapDesc& desc);

struct DeviceInfo {
  std::string name;                // "NVIDIA H200", "emulator"
  bool is_emulator = false;
  int compute_capability = 0;      // 90
  int multiprocessors = 0;
  std::size_t shared_bytes_per_block = 0;  // opt-in maximum, 232448
  std::size_t memory_bytes = 0;
  std::size_t l2_bytes = 0;
  int driver_version = 0;          // 13000 for CUDA 13.0; 0 for the emulator
  std::string driver_text;         // "580.159.04" where it can be read
  // Whether LaunchDims::programmatic_dependent may be asked for: CUDA graphs can hold such launches from 12.3 on.
  bool launches_dependents() const { return driver_version >= 12030; }
};

struct LaunchDims {
  std::uint32_t grid[3] = {1, 1, 1};
  std::uint32_t block[3] = {1, 1, 1};
  std::uint32_t cluster[3] = {1, 1, 1};  // equal to .reqnctapercluster, or 1
  std::uint32_t shared_bytes = 0;        // dynamic shared memory
  // May start before the previous kernel of the stream has ended, if that one lets it: only for a kernel that waits (griddepcontrol) before
  // it touches global memory. Behind anything else than a kernel, a fill or a copy, it means nothing.
  bool programmatic_dependent = false;
};

// A loaded entry point. Owned by the Device that made it; valid until unload() or the device's end.
struct LoadedKernel {
  std::string entry;
  int registers = 0;             // at entry
  int local_bytes = 0;           // spills or stack: 0 for every catalogued kernel
  std::uint32_t shared_bytes = 0;
  std::string log;               // what the assembler said, C75xx remarks included
  bool from_cache = false;       // machine code found on disk, not assembled now
  virtual ~LoadedKernel() = default;
};

using Stream = void*;  // a CUstream / cudaStream_t; the emulator accepts any value and runs at once

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;

  // Loads PTX text (a cubin too, on a GPU) and finds `entry`; raises the dynamic shared memory limit to
  // `dynamic_shared_bytes`. An unreadable text gives bad_ptx with line and reason.
  virtual Status load(const std::string& image, const std::string& entry,
                      std::uint32_t dynamic_shared_bytes, LoadedKernel** out) = 0;
  virtual void unload(LoadedKernel* kernel) = 0;

  virtual Status allocate(std::size_t bytes, std::uint64_t* address) = 0;  // 256-byte aligned; 0 bytes is legal
  virtual void free(std::uint64_t address) = 0;
  virtual Status copy_to_device(std::uint64_t dst, const void* src, std::size_t bytes) = 0;
  virtual Status copy_from_device(void* dst, std::uint64_t src, std::size_t bytes) = 0;
  virtual Status fill(std::uint64_t dst, std::uint8_t byte, std::size_t bytes, Stream stream) = 0;

  virtual Status encode(const TensorMapDesc& desc, TensorMap* out) = 0;

  // `params[i]` points to the i-th parameter's value, as in cuLaunchKernel. Asynchronous on a GPU.
  virtual Status launch(LoadedKernel* kernel, const LaunchDims& dims, void** params, int param_count,
                        Stream stream) = 0;
  virtual Status synchronize(Stream stream) = 0;

  // Whether launches on `stream` are being captured into a graph, to be replayed later with the same
  // arguments. A device without graphs keeps the default.
  virtual bool capturing(Stream stream) {
    (void)stream;
    return false;
  }

  // launch(), for parameters that depend on whether the launch is captured: `choose` is told so and fills them.
  // One look at the context for both.
  virtual Status launch_choosing(LoadedKernel* kernel, const LaunchDims& dims, void** params, int param_count,
                                 Stream stream, const std::function<void(bool captured)>& choose) {
    choose(capturing(stream));
    return launch(kernel, dims, params, param_count, stream);
  }

  // Milliseconds of each of `repeats` calls of `work` (which must only enqueue on `stream`), by device
  // events after `warmup` calls. unsupported on the emulator: it keeps no time.
  virtual Status time(const std::function<Status()>& work, int warmup, int repeats, Stream stream,
                      std::vector<float>* milliseconds) = 0;
};

// First CUDA device of compute capability 9.0 in the caller's current context (or the primary context).
Status open_cuda_device(int ordinal, std::unique_ptr<Device>* out);

struct EmulatorOptions {
  std::uint64_t seed = 0;         // 0: round-robin, everything early; else an adversary
  int adversary_level = 1;        // 0 none, 1 late completions, 2 random legal order everywhere
  int threads = 0;                // 0: all cores
  bool check_hazards = true;      // checkers subscribed
  int multiprocessors = 0;        // that info() claims, 0: 132; few make persistent kernels walk many tiles
  bool fp8_narrow_accumulator = false;
  std::function<void(const std::string&)> progress;  // from two seconds on, about once a second
  std::function<bool()> cancelled;  // asked now and then; true ends the launch with launch_failed
  // A cluster that executes more warp instructions than this ends with a fault that lists its warps; 0: the
  // default, 1e10 in all and 1e8 during which nothing happens that another warp could wait for.
  std::uint64_t instruction_limit = 0, idle_instruction_limit = 0;
};
Status open_emulator(const EmulatorOptions& options, std::unique_ptr<Device>* out);

}  // namespace flashptx
