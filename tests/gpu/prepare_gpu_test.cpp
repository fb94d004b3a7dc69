// Every preparation that `flashptx prepare --sweep` times, right on the GPU, at head_dim 128 for every kind of input.
// Next: tests/host/prepare_test.cpp (the same kernels on the emulator), tools/flashptx/prepare_run.h.
#include "host/driver/cuda_device.h"
#include "tests/support.h"
#include "tools/flashptx/prepare_run.h"
#include "tools/reference/prepare.h"

using namespace flashptx;

TEST_SUITE("gpu/prepare") {
  TEST_CASE("quantise, Hadamard, RoPE and transposition equal float64 on the GPU") {
    std::unique_ptr<Device> device;
    if (const Status s = open_cuda_device(CudaOptions{}, &device); !s.ok()) FLASHPTX_SKIP(s.message);
    for (int d : {64, 96, 128, 192, 256})
      for (const PrepareJob& job : prepare_sweep(1024, 6 * d, 512, d))
        for (const std::string& inputs : reference::prepare_inputs()) {
          if (d != 128 && inputs != "outliers") continue;
          PrepareRow row{job, "", "", 0, {}};
          check_prepare_job(*device, inputs, 7, &row);
          CHECK_MESSAGE(row.failure.empty(), job.title(), ", head_dim ", d, ", ", inputs, ": ", row.failure);
        }
  }
}
