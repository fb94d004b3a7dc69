// What the tests of attention run on: a device of each kind, opened once and kept with its loaded kernels.
// Next: grid_test.cpp, adversarial_test.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "gen/kernels/attention_forward.h"
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

// A name that parses and is refused by one sentence with these words.
inline void check_refused(const std::string& name, const std::vector<std::string>& words) {
  const std::string said = gen::check_forward(kernel_named(name));
  for (const std::string& word : words) CHECK_MESSAGE(said.find(word) != std::string::npos, name, ": ", said);
  CHECK_MESSAGE(said.find('\n') == std::string::npos, name, ": ", said);
}

}  // namespace flashptx::test
