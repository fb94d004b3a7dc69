// A Device that is a Hopper GPU, reached through the CUDA driver API.
//
// Bound to one CUDA context for its life: the caller's current one, or the primary context that the
// CUDA runtime uses. Every call works on any thread: if another context is current there, ours is
// pushed for the call. So modules, attributes and the SM count belong to a context by construction.
// Next: host/driver/driver_api.h (the entry points), host/driver/assemble.h (PTX to cubin),
// cubin_cache.h.
#pragma once

#include <memory>
#include <string>

#include "host/device.h"
#include "host/driver/driver_api.h"

namespace flashptx {

struct CudaOptions {
  int ordinal =
      -1;  // -1: the current context's device, else the first GPU of compute capability 9.0
  bool cache = true;      // keep cubins on disk; FLASHPTX_CACHE=0 in the environment wins
  std::string cache_dir;  // "": see default_cache_dir()
};

Status open_cuda_device(const CudaOptions& options, std::unique_ptr<Device>* out);

struct CudaTarget {
  driver::DeviceId device = 0;
  driver::Context context = nullptr;
  bool retained = false;  // the context is the primary one, held by us until the device's end
};

// The device itself, once open_cuda_device has decided.
Status make_cuda_device(const DriverApi& api, const CudaTarget& target, const CudaOptions& options,
                        std::unique_ptr<Device>* out);

// The same on a given table of driver functions; the tests pass a table of their own.
Status open_cuda_device(const DriverApi& api, const CudaOptions& options,
                        std::unique_ptr<Device>* out);

}  // namespace flashptx
