// A kernel in a few lines of PTX, run on the emulator: buffers in, one launch, buffers and the
// fault out. Next: tests/emulator/instruction_test.cpp.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "host/emulator/emulator.h"
#include "tests/support.h"

namespace flashptx::emulator::test {

// Wraps instructions into an entry `k` with one pointer parameter in %out (64-bit) and common
// registers.
inline std::string kernel(const std::string& body, int threads = 32,
                          const std::string& extra = "") {
  return ".version 8.3\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p_out" +
         extra + ")\n.reqntid " + std::to_string(threads) +
         "\n{\n.reg .b64 %out, %rd<16>;\n.reg .b32 %r<32>, %t, %at32;\n.reg .b16 %h<8>;\n.reg .f32 "
         "%f<32>;\n.reg .f64 %fd<4>;\n"
         ".reg .pred %p<8>;\n.reg .b64 %at;\nld.param.u64 %out, [p_out];\nmov.u32 %t, %tid.x;\n"
         "mul.wide.u32 %at, %t, 8;\nadd.u64 %at, %out, %at;\n" +
         body + "\nret;\n}\n";
}

struct Result {
  Status status;
  std::vector<std::uint64_t> out;  // one per thread, written to [%at]
};

struct Launcher {
  EmulatorOptions options;
  std::unique_ptr<Device> device;
  explicit Launcher(std::uint64_t seed = 0, int level = 1, bool check = true) {
    options.seed = seed;
    options.adversary_level = level;
    options.check_hazards = check;
    options.threads = 1;
    REQUIRE(open_emulator(options, &device).ok());
  }
  std::uint64_t buffer(std::size_t bytes, int fill = 0) {
    std::uint64_t a = 0;
    REQUIRE(device->allocate(bytes, &a).ok());
    REQUIRE(device->fill(a, static_cast<std::uint8_t>(fill), bytes, nullptr).ok());
    return a;
  }
  template <class T>
  std::uint64_t upload(const std::vector<T>& v) {
    std::uint64_t a = buffer(v.size() * sizeof(T));
    REQUIRE(device->copy_to_device(a, v.data(), v.size() * sizeof(T)).ok());
    return a;
  }
  template <class T>
  std::vector<T> download(std::uint64_t a, std::size_t n) {
    std::vector<T> v(n);
    REQUIRE(device->copy_from_device(v.data(), a, n * sizeof(T)).ok());
    return v;
  }
  Status launch(const std::string& text, const std::string& entry, std::vector<void*> params,
                LaunchDims dims) {
    LoadedKernel* k = nullptr;
    Status s = device->load(text, entry, dims.shared_bytes, &k);
    if (!s.ok()) return s;
    return device->launch(k, dims, params.data(), static_cast<int>(params.size()), nullptr);
  }
};

// Runs kernel(body) with one CTA of `threads` and returns what each thread stored to [%at].
inline Result run(const std::string& body, int threads = 32, std::uint64_t seed = 0,
                  int level = 1) {
  Launcher l(seed, level);
  std::uint64_t out = l.buffer(static_cast<std::size_t>(threads) * 8);
  LaunchDims d;
  d.block[0] = static_cast<std::uint32_t>(threads);
  Result r;
  r.status = l.launch(kernel(body, threads), "k", {&out}, d);
  r.out = l.download<std::uint64_t>(out, static_cast<std::size_t>(threads));
  return r;
}

inline bool mentions(const Status& s, const std::string& text) {
  return s.message.find(text) != std::string::npos;
}

}  // namespace flashptx::emulator::test
