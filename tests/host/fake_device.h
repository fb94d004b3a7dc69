// A Device that runs nothing and records every call, so that the host's decisions can be read.
//
// Addresses are invented; loading accepts anything unless told otherwise. Thread-safe as a real
// device is. Next: tests/host/attention_test.cpp.
#pragma once

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "gen/catalog.h"
#include "host/arguments.h"
#include "host/device.h"

namespace flashptx::test {

struct FakeDevice : Device {
  struct Launch {
    std::string entry;
    LaunchDims dims;
    std::vector<void*> values;  // only the addresses: read the copies below
    int param_count = 0;
    Stream stream = nullptr;
  };
  struct FakeKernel : LoadedKernel {
    std::string image;
  };

  DeviceInfo information;
  std::vector<std::string> loaded_images;
  std::vector<TensorMapDesc> encoded;
  std::vector<Launch> launches;
  std::vector<std::vector<std::uint64_t>> words;  // per launch: the first 8 bytes of each parameter
  int live_kernels = 0, live_allocations = 0, synchronisations = 0;
  bool is_capturing = false;
  Status load_status, launch_status;
  std::mutex mutex;
  std::uint64_t next_address = 0x10000;

  FakeDevice() {
    information.name = "fake H200";
    information.compute_capability = 90;
    information.multiprocessors = 132;
    information.shared_bytes_per_block = 232448;
    information.l2_bytes = 60 << 20;
  }

  const DeviceInfo& info() const override { return information; }
  Status load(const std::string& image, const std::string& entry, std::uint32_t shared,
              LoadedKernel** out) override {
    std::lock_guard lock(mutex);
    if (!load_status.ok()) return load_status;
    loaded_images.push_back(image);
    auto* k = new FakeKernel;
    k->entry = entry;
    k->image = image;
    k->registers = 168;
    k->shared_bytes = shared;
    ++live_kernels;
    *out = k;
    return {};
  }
  void unload(LoadedKernel* kernel) override {
    --live_kernels;
    delete kernel;
  }
  Status allocate(std::size_t bytes, std::uint64_t* address) override {
    std::lock_guard lock(mutex);
    *address = next_address;
    next_address += (bytes + 511) / 256 * 256;
    ++live_allocations;
    return {};
  }
  void free(std::uint64_t) override { --live_allocations; }
  Status copy_to_device(std::uint64_t, const void*, std::size_t) override { return {}; }
  Status copy_from_device(void*, std::uint64_t, std::size_t) override { return {}; }
  Status fill(std::uint64_t, std::uint8_t, std::size_t, Stream) override { return {}; }
  Status encode(const TensorMapDesc& desc, TensorMap* out) override {
    if (Status s = check_tensor_map(desc); !s.ok()) return s;
    std::lock_guard lock(mutex);
    encoded.push_back(desc);
    std::memset(out, 0, sizeof *out);
    std::memcpy(out->bytes, &desc.address, 8);  // so that a launch shows which map it got
    return {};
  }
  Status launch(LoadedKernel* kernel, const LaunchDims& dims, void** params, int count,
                Stream stream) override {
    std::lock_guard lock(mutex);
    if (!launch_status.ok()) return launch_status;
    Launch l{kernel->entry, dims, {params, params + count}, count, stream};
    std::vector<std::uint64_t> first;
    for (int i = 0; i < count; ++i) {
      std::uint64_t w = 0;
      std::memcpy(&w, params[i], is_wide(i) ? 8 : 4);
      first.push_back(w);
    }
    launches.push_back(l);
    words.push_back(first);
    return {};
  }
  Status synchronize(Stream) override {
    ++synchronisations;
    return {};
  }
  bool capturing(Stream) override { return is_capturing; }
  Status time(const std::function<Status()>&, int, int, Stream, std::vector<float>*) override {
    return Status::error(StatusCode::unsupported, "a fake keeps no time");
  }

  // Which parameters are 8 bytes or more; set by the test from the kernel's facts.
  std::vector<bool> wide;
  bool is_wide(int i) const { return i < static_cast<int>(wide.size()) && wide[i]; }
  void expect(const LaunchFacts& facts) {
    wide.clear();
    for (const ParamFact& p : facts.params)
      wide.push_back(p.kind != ParamKind::u32 && p.kind != ParamKind::f32);
  }
};

}  // namespace flashptx::test
