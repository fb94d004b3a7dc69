// An emulator that pretends to keep time, so that what is timed on a GPU can be launched without one.
// Next: tests/tools/prepare_run_test.cpp, tests/tools/bench_test.cpp.
#pragma once

#include "host/device.h"
#include "tests/support.h"

namespace flashptx::test {

// Runs what is timed once and calls it a millisecond.
class TimedEmulator : public Device {
 public:
  TimedEmulator() {
    const Status s = open_emulator({}, &inner_);
    REQUIRE_MESSAGE(s.ok(), s.message);
  }
  const DeviceInfo& info() const override { return inner_->info(); }
  Status load(const std::string& image, const std::string& entry, std::uint32_t shared, LoadedKernel** out) override {
    return inner_->load(image, entry, shared, out);
  }
  void unload(LoadedKernel* kernel) override { inner_->unload(kernel); }
  Status allocate(std::size_t bytes, std::uint64_t* address) override {
    ++allocated;
    return inner_->allocate(bytes, address);
  }
  void free(std::uint64_t address) override {
    --allocated;
    inner_->free(address);
  }
  Status copy_to_device(std::uint64_t dst, const void* src, std::size_t bytes) override {
    return inner_->copy_to_device(dst, src, bytes);
  }
  Status copy_from_device(void* dst, std::uint64_t src, std::size_t bytes) override {
    return inner_->copy_from_device(dst, src, bytes);
  }
  Status fill(std::uint64_t dst, std::uint8_t byte, std::size_t bytes, Stream stream) override {
    return inner_->fill(dst, byte, bytes, stream);
  }
  Status encode(const TensorMapDesc& desc, TensorMap* out) override { return inner_->encode(desc, out); }
  Status launch(LoadedKernel* kernel, const LaunchDims& dims, void** params, int count, Stream stream) override {
    ++launched;
    return inner_->launch(kernel, dims, params, count, stream);
  }
  Status synchronize(Stream stream) override { return inner_->synchronize(stream); }
  Status time(const std::function<Status()>& work, int, int repeats, Stream, std::vector<float>* milliseconds) override {
    milliseconds->assign(static_cast<std::size_t>(repeats), 1.0f);
    return work();
  }
  int allocated = 0, launched = 0;

 private:
  std::unique_ptr<Device> inner_;
};

}  // namespace flashptx::test
