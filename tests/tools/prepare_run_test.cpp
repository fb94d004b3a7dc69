// `flashptx prepare` without a GPU: every job of the sweep is launched as the timing does it, on an emulator that
// pretends to keep time. Next: tests/gpu/prepare_gpu_test.cpp.
#include "tools/flashptx/prepare_run.h"

#include "tests/support.h"

using namespace flashptx;

namespace {

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

}  // namespace

TEST_SUITE("tools/prepare_run") {
  TEST_CASE("every job of the sweep can be timed, and frees what it took") {
    TimedEmulator device;
    for (const PrepareJob& job : prepare_sweep(64, 128, 32, 64)) {
      CAPTURE(job.title());
      PrepareRow row{job, "", "", 0, {}};
      device.launched = 0;
      time_prepare_job(device, 5, &row);
      CHECK(row.failure == "");
      CHECK(row.microseconds.size() == 5);
      CHECK(row.microseconds[0] == doctest::Approx(125));  // eight calls a sample
      CHECK(device.launched == (job.kernels().find('+') == std::string::npos ? 8 : 16));
      CHECK(device.allocated == 0);
    }
  }

  TEST_CASE("bytes count what must move") {
    const std::vector<PrepareJob> jobs = prepare_sweep(256, 256, 128, 128);
    const double n = 256 * 256;
    for (const PrepareJob& job : jobs) {
      CAPTURE(job.title());
      if (job.title() == "copy") CHECK(job.bytes() == 4 * n);
      if (job.title() == "transpose V") CHECK(job.bytes() == 2 * n);
      if (job.title() == "bf16 to e4m3, per head") CHECK(job.bytes() == 5 * n);
      if (job.title() == "bf16 to e4m3, blocks of 64") CHECK(job.bytes() == 3 * n);
      if (job.title() == "hadamard bf16") CHECK(job.bytes() == 4 * n);
      if (job.title() == "rope half f32 bf16") CHECK(job.bytes() == 4 * n + 128 * 128 * 4);
    }
  }
}
