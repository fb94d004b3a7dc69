// A device that passes everything on to another: what a test replaces it overrides.
// Next: tests/tools/timed_emulator.h, tests/tools/tune_test.cpp, tests/tools/accuracy_test.cpp.
#pragma once

#include <memory>
#include <utility>

#include "host/device.h"
#include "tests/support.h"

namespace flashptx::test {

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<Device> device) : inner(std::move(device)) {}
  explicit ForwardingDevice(const EmulatorOptions& options) {
    const Status s = open_emulator(options, &inner);
    REQUIRE_MESSAGE(s.ok(), s.message);
  }
  const DeviceInfo& info() const override { return inner->info(); }
  Status load(const std::string& image, const std::string& entry, std::uint32_t shared, LoadedKernel** out) override {
    return inner->load(image, entry, shared, out);
  }
  void unload(LoadedKernel* kernel) override { inner->unload(kernel); }
  Status allocate(std::size_t bytes, std::uint64_t* address) override { return inner->allocate(bytes, address); }
  void free(std::uint64_t address) override { inner->free(address); }
  Status copy_to_device(std::uint64_t dst, const void* src, std::size_t bytes) override {
    return inner->copy_to_device(dst, src, bytes);
  }
  Status copy_from_device(void* dst, std::uint64_t src, std::size_t bytes) override {
    return inner->copy_from_device(dst, src, bytes);
  }
  Status fill(std::uint64_t dst, std::uint8_t byte, std::size_t bytes, Stream stream) override {
    return inner->fill(dst, byte, bytes, stream);
  }
  Status encode(const TensorMapDesc& desc, TensorMap* out) override { return inner->encode(desc, out); }
  Status launch(LoadedKernel* kernel, const LaunchDims& dims, void** params, int count, Stream stream) override {
    return inner->launch(kernel, dims, params, count, stream);
  }
  Status synchronize(Stream stream) override { return inner->synchronize(stream); }
  Status time(const std::function<Status()>& work, int warmup, int repeats, Stream stream,
              std::vector<float>* milliseconds) override {
    return inner->time(work, warmup, repeats, stream, milliseconds);
  }

 protected:
  std::unique_ptr<Device> inner;
};

}  // namespace flashptx::test
