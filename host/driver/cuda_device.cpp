// See host/driver/cuda_device.h. Errors: our sentence first, then the driver's name for it.
//
// Next: host/driver/assemble.cpp (what load() does), host/attention.cpp (who calls launch()).
#include "host/driver/cuda_device.h"

#include <atomic>
#include <fstream>
#include <optional>

#include "host/driver/assemble.h"
#include "host/driver/cubin_cache.h"

namespace flashptx {
namespace {

struct CudaKernel : LoadedKernel {
  driver::Module module = nullptr;
  driver::Function function = nullptr;
};

// Makes `context` current for a call when the calling thread has another one, or none.
class Scope {
 public:
  Scope(const DriverApi& api, driver::Context context) : api_(api) {
    driver::Context current = nullptr;
    error_ = api_.context_get_current(&current);
    if (error_ != driver::success || current == context) return;
    error_ = api_.context_push(context);
    pushed_ = error_ == driver::success;
  }
  ~Scope() {
    driver::Context ignored = nullptr;
    if (pushed_) api_.context_pop(&ignored);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  driver::Result error() const { return error_; }

 private:
  const DriverApi& api_;
  driver::Result error_ = driver::success;
  bool pushed_ = false;
};

// "580.159.04" out of the kernel module's banner; "" in a container that hides it.
std::string read_driver_text() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string word;
  for (int i = 0; i < 20 && file >> word; ++i)
    if (word.find('.') != std::string::npos &&
        word.find_first_not_of("0123456789.") == std::string::npos)
      return word;
  return "";
}

int data_type(ElementType t) {  // CUtensorMapDataType
  switch (t) {
    case ElementType::u8:
      return 0;
    case ElementType::f16:
      return 6;
    case ElementType::f32:
      return 7;
    case ElementType::bf16:
      return 9;
  }
  return 0;
}

int swizzle_mode(int bytes) { return bytes == 128 ? 3 : bytes == 64 ? 2 : bytes == 32 ? 1 : 0; }

class CudaDevice final : public Device {
 public:
  CudaDevice(const DriverApi& api, const CudaTarget& target, const CudaOptions& options)
      : api_(api), device_(target.device), context_(target.context), retained_(target.retained) {
    if (!options.cache || cache_disabled_by_environment()) return;
    const std::string dir = options.cache_dir.empty() ? default_cache_dir() : options.cache_dir;
    if (!dir.empty()) cache_.emplace(dir);
  }
  ~CudaDevice() override {
    if (retained_) api_.primary_context_release(device_);
  }

  Status read_info();
  const DeviceInfo& info() const override { return info_; }
  Status load(const std::string& image, const std::string& entry,
              std::uint32_t dynamic_shared_bytes, LoadedKernel** out) override;
  void unload(LoadedKernel* kernel) override;
  Status allocate(std::size_t bytes, std::uint64_t* address) override;
  void free(std::uint64_t address) override;
  Status copy_to_device(std::uint64_t dst, const void* src, std::size_t bytes) override;
  Status copy_from_device(void* dst, std::uint64_t src, std::size_t bytes) override;
  Status fill(std::uint64_t dst, std::uint8_t byte, std::size_t bytes, Stream stream) override;
  Status encode(const TensorMapDesc& desc, TensorMap* out) override;
  Status launch(LoadedKernel* kernel, const LaunchDims& dims, void** params, int param_count,
                Stream stream) override;
  Status launch_choosing(LoadedKernel* kernel, const LaunchDims& dims, void** params, int param_count,
                         Stream stream, const std::function<void(bool)>& choose) override;
  Status synchronize(Stream stream) override;
  bool capturing(Stream stream) override;
  Status time(const std::function<Status()>& work, int warmup, int repeats, Stream stream,
              std::vector<float>* milliseconds) override;

 private:
  Status fail(driver::Result e, const std::string& doing, bool waited = false);
  Status measure(driver::Event from, driver::Event to, const std::function<Status()>& work,
                 Stream stream, float* milliseconds);
  Status prepare(CudaKernel* kernel, std::uint32_t dynamic_shared_bytes);
  // In a context that is current already.
  Status launch_here(LoadedKernel* kernel, const LaunchDims& dims, void** params, Stream stream);
  bool capturing_here(Stream stream);

  const DriverApi& api_;
  const driver::DeviceId device_;
  const driver::Context context_;
  const bool retained_;
  DeviceInfo info_;
  std::optional<CubinCache> cache_;
  // Whether a kernel of ours may be running: tells our failures from somebody else's.
  std::atomic<bool> launched_{false};
};

// A driver error as a Status. A sticky error comes from a kernel that ran before, never from the
// call that reports it: ours only if the call waited for kernels and one of ours was among them.
Status CudaDevice::fail(driver::Result e, const std::string& doing, bool waited) {
  const std::string name = api_.error_name(e);
  if (is_sticky(e)) {
    if (waited && launched_.exchange(false, std::memory_order_relaxed))
      return Status::error(StatusCode::launch_failed,
                           doing + ": a kernel failed with " + name + "; the CUDA context is lost");
    return Status::error(
        StatusCode::earlier_error,
        doing + ": " + name +
            " was left in the CUDA context by an earlier kernel; the context is lost");
  }
  if (e == driver::out_of_memory)
    return Status::error(StatusCode::out_of_memory, doing + ": " + name);
  return Status::error(StatusCode::launch_failed, doing + ": " + name);
}

Status CudaDevice::read_info() {
  char name[256] = {};
  int major = 0, minor = 0, shared = 0, l2 = 0;
  driver::Result e = api_.device_get_name(name, sizeof name - 1, device_);
  const struct {
    int attribute;
    int* value;
  } attributes[] = {{driver::compute_capability_major, &major},
                    {driver::compute_capability_minor, &minor},
                    {driver::multiprocessor_count, &info_.multiprocessors},
                    {driver::max_shared_memory_per_block_optin, &shared},
                    {driver::l2_cache_size, &l2}};
  for (const auto& a : attributes)
    if (e == driver::success) e = api_.device_get_attribute(a.value, a.attribute, device_);
  if (e == driver::success) e = api_.device_total_mem(&info_.memory_bytes, device_);
  if (e == driver::success) e = api_.driver_get_version(&info_.driver_version);
  if (e != driver::success) return fail(e, "reading the device's attributes");
  info_.name = name;
  info_.compute_capability = 10 * major + minor;
  info_.shared_bytes_per_block = static_cast<std::size_t>(shared);
  info_.l2_bytes = static_cast<std::size_t>(l2);
  info_.driver_text = read_driver_text();
  return {};
}

Status CudaDevice::load(const std::string& image, const std::string& entry,
                        std::uint32_t dynamic_shared_bytes, LoadedKernel** out) {
  Scope scope(api_, context_);
  if (scope.error() != driver::success) return fail(scope.error(), "loading " + entry);
  if (dynamic_shared_bytes > info_.shared_bytes_per_block)
    return Status::error(StatusCode::unsupported,
                         entry + " needs " + std::to_string(dynamic_shared_bytes) +
                             " bytes of dynamic shared memory: the limit of " + info_.name +
                             " is " + std::to_string(info_.shared_bytes_per_block));
  Assembled assembled;
  if (Status s = assemble(api_, image, entry, cache_ ? &*cache_ : nullptr, info_.driver_version,
                          info_.driver_text, &assembled);
      !s.ok())
    return s;
  auto kernel = std::make_unique<CudaKernel>();
  kernel->entry = entry;
  kernel->module = assembled.module;
  kernel->log = std::move(assembled.log);
  kernel->from_cache = assembled.from_cache;
  if (Status s = prepare(kernel.get(), dynamic_shared_bytes); !s.ok()) {
    api_.module_unload(kernel->module);
    return s;
  }
  *out = kernel.release();
  return {};
}

Status CudaDevice::prepare(CudaKernel* kernel, std::uint32_t dynamic_shared_bytes) {
  if (const driver::Result e =
          api_.module_get_function(&kernel->function, kernel->module, kernel->entry.c_str());
      e != driver::success)
    return Status::error(StatusCode::bad_ptx,
                         "the module has no entry '" + kernel->entry + "': " + api_.error_name(e));
  if (const driver::Result e =
          api_.function_set_attribute(kernel->function, driver::max_dynamic_shared_size_bytes,
                                      static_cast<int>(dynamic_shared_bytes));
      e != driver::success)
    return fail(e, kernel->entry + ": " + std::to_string(dynamic_shared_bytes) +
                       " bytes of dynamic shared memory refused");
  int shared = 0;
  driver::Result e =
      api_.function_get_attribute(&kernel->registers, driver::num_regs, kernel->function);
  if (e == driver::success)
    e = api_.function_get_attribute(&kernel->local_bytes, driver::local_size_bytes,
                                    kernel->function);
  if (e == driver::success)
    e = api_.function_get_attribute(&shared, driver::shared_size_bytes, kernel->function);
  if (e != driver::success) return fail(e, "reading the attributes of " + kernel->entry);
  kernel->shared_bytes = static_cast<std::uint32_t>(shared) + dynamic_shared_bytes;
  return {};
}

void CudaDevice::unload(LoadedKernel* kernel) {
  if (kernel == nullptr) return;
  Scope scope(api_, context_);
  auto* cuda = static_cast<CudaKernel*>(kernel);
  api_.module_unload(cuda->module);
  delete cuda;
}

Status CudaDevice::allocate(std::size_t bytes, std::uint64_t* address) {
  Scope scope(api_, context_);
  driver::Result e = scope.error();
  if (e == driver::success) e = api_.mem_alloc(address, bytes == 0 ? 1 : bytes);
  return e == driver::success ? Status{}
                              : fail(e, "allocating " + std::to_string(bytes) + " bytes");
}

void CudaDevice::free(std::uint64_t address) {
  if (address == 0) return;
  Scope scope(api_, context_);
  api_.mem_free(address);
}

Status CudaDevice::copy_to_device(std::uint64_t dst, const void* src, std::size_t bytes) {
  if (bytes == 0) return {};
  Scope scope(api_, context_);
  driver::Result e = scope.error();
  if (e == driver::success) e = api_.memcpy_to_device(dst, src, bytes);
  return e == driver::success
             ? Status{}
             : fail(e, "copying " + std::to_string(bytes) + " bytes to the device");
}

Status CudaDevice::copy_from_device(void* dst, std::uint64_t src, std::size_t bytes) {
  if (bytes == 0) return {};
  Scope scope(api_, context_);
  driver::Result e = scope.error();
  if (e == driver::success) e = api_.memcpy_from_device(dst, src, bytes);
  return e == driver::success
             ? Status{}
             : fail(e, "copying " + std::to_string(bytes) + " bytes from the device", true);
}

Status CudaDevice::fill(std::uint64_t dst, std::uint8_t byte, std::size_t bytes, Stream stream) {
  if (bytes == 0) return {};
  Scope scope(api_, context_);
  driver::Result e = scope.error();
  if (e == driver::success) e = api_.memset_async(dst, byte, bytes, stream);
  return e == driver::success ? Status{} : fail(e, "filling " + std::to_string(bytes) + " bytes");
}

Status CudaDevice::encode(const TensorMapDesc& d, TensorMap* out) {
  if (Status s = check_tensor_map(d); !s.ok()) return s;
  Scope scope(api_, context_);
  constexpr std::uint32_t ones[5] = {1, 1, 1, 1, 1};
  constexpr int l2_promotion_256 = 3;
  driver::Result e = scope.error();
  if (e == driver::success)
    e = api_.tensor_map_encode_tiled(
        out, data_type(d.type), static_cast<std::uint32_t>(d.rank),
        reinterpret_cast<void*>(static_cast<std::uintptr_t>(d.address)), d.dims, d.stride_bytes,
        d.box, ones, 0, swizzle_mode(d.swizzle_bytes), l2_promotion_256, 0);
  return e == driver::success ? Status{}
                              : fail(e, "tensor map " + d.name + ": the driver refuses it");
}

Status CudaDevice::launch(LoadedKernel* kernel, const LaunchDims& d, void** params, int,
                          Stream stream) {
  Scope scope(api_, context_);
  if (scope.error() != driver::success) return fail(scope.error(), "launching " + kernel->entry);
  return launch_here(kernel, d, params, stream);
}

Status CudaDevice::launch_choosing(LoadedKernel* kernel, const LaunchDims& d, void** params, int,
                                   Stream stream, const std::function<void(bool)>& choose) {
  Scope scope(api_, context_);
  if (scope.error() != driver::success) return fail(scope.error(), "launching " + kernel->entry);
  choose(capturing_here(stream));
  return launch_here(kernel, d, params, stream);
}

Status CudaDevice::launch_here(LoadedKernel* kernel, const LaunchDims& d, void** params, Stream stream) {
  driver::LaunchAttribute attributes[2] = {};
  driver::LaunchConfig config{{d.grid[0], d.grid[1], d.grid[2]},
                              {d.block[0], d.block[1], d.block[2]},
                              d.shared_bytes,
                              stream,
                              attributes,
                              0};
  if (d.cluster[0] * d.cluster[1] * d.cluster[2] > 1) {
    driver::LaunchAttribute& a = attributes[config.attribute_count++];
    a.id = driver::cluster_dimension;
    a.value.cluster = {d.cluster[0], d.cluster[1], d.cluster[2]};
  }
  if (d.programmatic_dependent) {
    driver::LaunchAttribute& a = attributes[config.attribute_count++];
    a.id = driver::programmatic_stream_serialization;
    a.value.allowed = 1;
  }
  const driver::Result e = api_.launch_kernel_ex(&config, static_cast<CudaKernel*>(kernel)->function, params, nullptr);
  if (e != driver::success)
    return fail(e, "launching " + kernel->entry + " on a grid of " + std::to_string(d.grid[0]));
  if (!launched_.load(std::memory_order_relaxed)) launched_.store(true, std::memory_order_relaxed);
  return {};
}

Status CudaDevice::synchronize(Stream stream) {
  Scope scope(api_, context_);
  driver::Result e = scope.error();
  if (e == driver::success) e = api_.stream_synchronize(stream);
  if (e != driver::success) return fail(e, "waiting for the stream", true);
  launched_.store(false, std::memory_order_relaxed);
  return {};
}

bool CudaDevice::capturing(Stream stream) {
  Scope scope(api_, context_);
  return scope.error() == driver::success && capturing_here(stream);
}

bool CudaDevice::capturing_here(Stream stream) {
  int status = 0;
  return api_.stream_is_capturing(stream, &status) == driver::success && status != 0;
}

Status CudaDevice::measure(driver::Event from, driver::Event to,
                           const std::function<Status()>& work, Stream stream,
                           float* milliseconds) {
  driver::Result e = api_.event_record(from, stream);
  if (e == driver::success)
    if (Status s = work(); !s.ok()) return s;
  if (e == driver::success) e = api_.event_record(to, stream);
  if (e == driver::success) e = api_.event_synchronize(to);
  if (e == driver::success) e = api_.event_elapsed(milliseconds, from, to);
  return e == driver::success ? Status{} : fail(e, "timing", true);
}

Status CudaDevice::time(const std::function<Status()>& work, int warmup, int repeats, Stream stream,
                        std::vector<float>* milliseconds) {
  Scope scope(api_, context_);
  milliseconds->clear();
  for (int i = 0; i < warmup; ++i)
    if (Status s = work(); !s.ok()) return s;
  driver::Event from = nullptr, to = nullptr;
  driver::Result e = scope.error();
  if (e == driver::success) e = api_.event_create(&from, 0);
  if (e == driver::success) e = api_.event_create(&to, 0);
  Status s = e == driver::success ? Status{} : fail(e, "making events");
  for (int i = 0; s.ok() && i < repeats; ++i) {
    float one = 0;
    s = measure(from, to, work, stream, &one);
    if (s.ok()) milliseconds->push_back(one);
  }
  if (from != nullptr) api_.event_destroy(from);
  if (to != nullptr) api_.event_destroy(to);
  return s;
}

}  // namespace

Status make_cuda_device(const DriverApi& api, const CudaTarget& target, const CudaOptions& options,
                        std::unique_ptr<Device>* out) {
  auto device = std::make_unique<CudaDevice>(api, target, options);
  if (Status s = device->read_info(); !s.ok()) return s;
  *out = std::move(device);
  return {};
}

}  // namespace flashptx
