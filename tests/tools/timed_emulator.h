// An emulator that pretends to keep time, so that what is timed on a GPU can be launched without one.
// Next: tests/tools/prepare_run_test.cpp, tests/tools/bench_test.cpp.
#pragma once

#include "tests/forwarding_device.h"

namespace flashptx::test {

// Runs what is timed once and calls it a millisecond.
class TimedEmulator : public ForwardingDevice {
 public:
  TimedEmulator() : ForwardingDevice(EmulatorOptions{}) {}
  Status allocate(std::size_t bytes, std::uint64_t* address) override {
    ++allocated;
    return inner->allocate(bytes, address);
  }
  void free(std::uint64_t address) override {
    --allocated;
    inner->free(address);
  }
  Status launch(LoadedKernel* kernel, const LaunchDims& dims, void** params, int count, Stream stream) override {
    ++launched;
    return inner->launch(kernel, dims, params, count, stream);
  }
  Status time(const std::function<Status()>& work, int, int repeats, Stream, std::vector<float>* milliseconds) override {
    milliseconds->assign(static_cast<std::size_t>(repeats), 1.0f);
    return work();
  }
  int allocated = 0, launched = 0;
};

}  // namespace flashptx::test
