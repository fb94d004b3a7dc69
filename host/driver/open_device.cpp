// Which GPU and which CUDA context: the caller's current one, else a primary context, compute
// capability 9.0 only.
//
// Next: host/driver/cuda_device.cpp.
#include <string>

#include "host/driver/cuda_device.h"

namespace flashptx {
namespace {

bool is_hopper(const DriverApi& api, driver::DeviceId device, std::string* what) {
  int major = 0, minor = 0;
  char name[256] = {};
  api.device_get_attribute(&major, driver::compute_capability_major, device);
  api.device_get_attribute(&minor, driver::compute_capability_minor, device);
  api.device_get_name(name, sizeof name - 1, device);
  *what = std::string(name) + " of compute capability " + std::to_string(major) + "." +
          std::to_string(minor);
  return major == 9 && minor == 0;
}

Status not_hopper(const std::string& which, const std::string& what) {
  return Status::error(
      StatusCode::no_device,
      which + " is " + what + ": the kernels are sm_90a code and run on 9.0 (Hopper) only");
}

Status first_hopper(const DriverApi& api, CudaTarget* t) {
  int count = 0;
  const driver::Result e = api.device_get_count(&count);
  if (e != driver::success || count == 0)
    return Status::error(StatusCode::no_device,
                         "the driver sees no GPU" + (e ? ": " + api.error_name(e) : std::string()));
  std::string what;
  for (int i = 0; i < count; ++i)
    if (api.device_get(&t->device, i) == driver::success && is_hopper(api, t->device, &what))
      return {};
  return not_hopper(count == 1 ? "the only GPU" : "the last of " + std::to_string(count) + " GPUs",
                    what);
}

Status find_target(const DriverApi& api, int ordinal, CudaTarget* t) {
  std::string what;
  driver::Context current = nullptr;
  driver::DeviceId current_device = -1;
  if (api.context_get_current(&current) != driver::success) current = nullptr;
  if (current != nullptr && api.context_get_device(&current_device) != driver::success)
    current = nullptr;
  if (ordinal < 0 && current == nullptr) return first_hopper(api, t);
  if (ordinal < 0) {
    *t = {current_device, current, false};
    return is_hopper(api, t->device, &what) ? Status{}
                                            : not_hopper("the current CUDA context's GPU", what);
  }
  if (const driver::Result e = api.device_get(&t->device, ordinal); e != driver::success) {
    int count = 0;
    api.device_get_count(&count);
    return Status::error(StatusCode::no_device, "ordinal is " + std::to_string(ordinal) +
                                                    ": the driver sees " + std::to_string(count) +
                                                    " GPUs (" + api.error_name(e) + ")");
  }
  if (!is_hopper(api, t->device, &what)) return not_hopper("GPU " + std::to_string(ordinal), what);
  if (current != nullptr && current_device == t->device) t->context = current;
  return {};
}

// Holds the primary context open for as long as we use it; a context of the caller's own making is
// the caller's.
Status retain(const DriverApi& api, CudaTarget* t) {
  unsigned flags = 0;
  int active = 0;
  if (t->context != nullptr) {
    if (api.primary_context_get_state(t->device, &flags, &active) != driver::success || !active)
      return {};
  }
  driver::Context primary = nullptr;
  const driver::Result e = api.primary_context_retain(&primary, t->device);
  if (e != driver::success)
    return Status::error(
        e == driver::out_of_memory ? StatusCode::out_of_memory : StatusCode::no_device,
        "the GPU's primary context cannot be had: " + api.error_name(e));
  if (t->context == nullptr) t->context = primary;
  t->retained = t->context == primary;
  if (!t->retained) api.primary_context_release(t->device);
  return {};
}

}  // namespace

Status open_cuda_device(const DriverApi& api, const CudaOptions& options,
                        std::unique_ptr<Device>* out) {
  CudaTarget target;
  if (Status s = find_target(api, options.ordinal, &target); !s.ok()) return s;
  if (Status s = retain(api, &target); !s.ok()) return s;
  return make_cuda_device(api, target, options, out);
}

Status open_cuda_device(const CudaOptions& options, std::unique_ptr<Device>* out) {
  const DriverApi* api = nullptr;
  if (Status s = load_driver(&api); !s.ok()) return s;
  return open_cuda_device(*api, options, out);
}

Status open_cuda_device(int ordinal, std::unique_ptr<Device>* out) {
  CudaOptions options;
  options.ordinal = ordinal;
  return open_cuda_device(options, out);
}

}  // namespace flashptx
