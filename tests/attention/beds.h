// What the tests of attention run on: a device of each kind, opened once and kept with its loaded kernels.
// Next: grid_test.cpp, adversarial_test.cpp.
#pragma once

#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "tools/flashptx/runner.h"
#include "tools/flashptx/session.h"

namespace flashptx::test {

struct Bed {
  std::unique_ptr<Device> device;
  std::unique_ptr<Attention> attention;
  std::string missing;  // why there is none
};

// `ctas` SMs; seed 0 runs in plain order, others as far out of it as is legal.
inline EmulatorOptions emulated_order(std::uint64_t seed, int ctas) {
  EmulatorOptions o;
  o.seed = seed, o.adversary_level = seed == 0 ? 0 : 2, o.multiprocessors = ctas;
  return o;
}

inline Bed open_bed(DeviceChoice choice, const EmulatorOptions& emulator = {}) {
  Bed bed;
  DeviceRequest request;
  request.choice = choice;
  request.emulator = emulator;
  std::string note;
  const Status s = open_device(request, &bed.device, &note);
  if (s.ok()) bed.attention = std::make_unique<Attention>(*bed.device);
  else bed.missing = s.message;
  return bed;
}
inline Bed& emulator_bed() {
  static Bed bed = open_bed(DeviceChoice::emulator);
  return bed;
}
inline Bed& gpu_bed() {
  static Bed bed = open_bed(DeviceChoice::cuda);
  return bed;
}

// A name that must parse.
inline KernelConfig kernel_named(const std::string& name) {
  KernelConfig c;
  std::string error;
  REQUIRE_MESSAGE(KernelConfig::parse(name, &c, &error), error);
  return c;
}

}  // namespace flashptx::test
