// `flashptx prepare` without a GPU: every job of the sweep is launched as the timing does it, on an emulator that
// pretends to keep time. Next: tests/gpu/prepare_gpu_test.cpp.
#include "tools/flashptx/prepare_run.h"

#include "tests/support.h"
#include "tests/tools/timed_emulator.h"

using namespace flashptx;

using test::TimedEmulator;

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
