// Finds the functions of host/driver/driver_api.h in libcuda.so.1. The only global state of the
// library.
#include "host/driver/driver_api.h"

#include <dlfcn.h>

namespace flashptx {
namespace {

struct Loaded {
  DriverApi api;
  Status status;
};

template <typename Function>
bool find(void* library, const char* name, Function** out) {
  *out = reinterpret_cast<Function*>(dlsym(library, name));
  return *out != nullptr;
}

Status fill(void* library, DriverApi* api) {
  const auto missing = [](const char* name) {
    return Status::error(StatusCode::driver_too_old,
                         std::string("libcuda.so.1 has no ") + name +
                             ": install an NVIDIA driver of the 525 branch (CUDA 12.0) or newer");
  };
#define FLASHPTX_REQUIRED(member, name, signature) \
  if (!find(library, name, &api->member)) return missing(name);
#define FLASHPTX_OPTIONAL(member, name, signature) find(library, name, &api->member);
  FLASHPTX_DRIVER_TABLE(FLASHPTX_REQUIRED, FLASHPTX_OPTIONAL)
#undef FLASHPTX_REQUIRED
#undef FLASHPTX_OPTIONAL
  return {};
}

Loaded load() {
  Loaded l;
  // Never closed: the driver keeps threads and atexit handlers of its own.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    l.status = Status::error(StatusCode::no_device, std::string("no NVIDIA driver: ") +
                                                        (why ? why : "libcuda.so.1 not found"));
    return l;
  }
  l.status = fill(library, &l.api);
  if (!l.status.ok()) return l;
  if (const driver::Result e = l.api.init(0); e != driver::success)
    l.status =
        Status::error(StatusCode::no_device,
                      "the NVIDIA driver does not start: cuInit gives " + l.api.error_name(e));
  return l;
}

}  // namespace

std::string DriverApi::error_name(driver::Result e) const {
  const char* name = nullptr;
  if (get_error_name != nullptr && get_error_name(e, &name) == driver::success && name != nullptr)
    return std::string(name) + " (" + std::to_string(e) + ")";
  return "CUDA error " + std::to_string(e);
}

Status load_driver(const DriverApi** out) {
  static const Loaded loaded = load();
  *out = &loaded.api;
  return loaded.status;
}

bool is_sticky(driver::Result e) {
  if (e == driver::ecc_uncorrectable || e == driver::nvlink_uncorrectable) return true;
  // 700 ILLEGAL_ADDRESS, 702 LAUNCH_TIMEOUT, 709 CONTEXT_IS_DESTROYED, 710 ASSERT, 714
  // HARDWARE_STACK_ERROR to 719 LAUNCH_FAILED. 701 LAUNCH_OUT_OF_RESOURCES and the peer-access
  // codes leave the context whole.
  return e == 700 || e == 702 || e == 709 || e == 710 || (e >= 714 && e <= 719);
}

}  // namespace flashptx
