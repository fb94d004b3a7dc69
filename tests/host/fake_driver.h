// A CUDA driver in a few lines: a table of functions over one global state, so that the CUDA device
// can be tested where there is no GPU: contexts per thread, modules, the assembler's log and errors
// on demand.
//
// It says what the driver's documentation promises, not what a driver does: tests/gpu/ asks the
// real one. Next: tests/host/cuda_device_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "host/driver/driver_api.h"

namespace flashptx::test {

struct FakeGpu {
  std::string name = "NVIDIA H200";
  int major = 9, minor = 0;
};

struct FakeDriver {
  std::vector<FakeGpu> gpus{FakeGpu{}};
  int version = 13000;

  // What the assembler answers.
  driver::Result assemble_result = driver::success;
  std::string error_log, info_log = "ptxas info    : Used 168 registers";
  int linked_usetmaxreg = 0;                      // instructions in the linked cubin
  driver::Result cubin_result = driver::success;  // for loading a cubin

  driver::Result next_error =
      driver::success;  // answered by every call that can meet a broken context

  // What happened.
  int primary_retained = 0, modules = 0, links = 0, text_loads = 0, cubin_loads = 0, events = 0,
      pushes = 0;
  std::vector<driver::LaunchConfig> launches;
  std::vector<driver::LaunchAttribute> attributes;  // of the last launch
  int last_swizzle = -1, last_type = -1;
  driver::Context launch_context = nullptr;
  int context_reads = 0, capture_reads = 0;
  std::vector<std::uint64_t> encoded;  // addresses of tensor maps
};

FakeDriver& fake_driver();  // the state
void reset_fake_driver();   // as new, nothing current on this thread
const DriverApi& fake_driver_api();
driver::Context fake_primary(int device);
driver::Context fake_own_context(int device);  // as if by cuCtxCreate
void make_current(driver::Context context);    // on this thread
driver::Context current_context();

// An ELF file with one executable section of `instructions` 16-byte instructions, the first
// `usetmaxreg` of them USETMAXREG.
std::string fake_cubin(int usetmaxreg, int instructions = 8);

}  // namespace flashptx::test
