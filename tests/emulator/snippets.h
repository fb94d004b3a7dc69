// The texts of tests/emulator/ptx and what their launches need. Next: snippet_test.cpp, snippet_result_test.cpp.
#pragma once

#include <random>

#include "host/emulator/numeric.h"
#include "tests/emulator/machine.h"

namespace flashptx::emulator::test {

inline std::string snippet(const std::string& name) {
  return flashptx::test::read_file("tests/emulator/ptx/" + name + ".ptx");
}

// An order of the emulator's adversary.
struct Seed {
  std::uint64_t seed;
  int level;
};

inline LaunchDims dims(std::uint32_t grid, std::uint32_t block, std::uint32_t shared = 0, std::uint32_t cluster = 1) {
  LaunchDims d;
  d.grid[0] = grid, d.block[0] = block, d.cluster[0] = cluster, d.shared_bytes = shared;
  return d;
}

inline std::vector<std::uint16_t> random_bf16(std::size_t n, unsigned seed) {
  std::mt19937 g(seed);
  std::normal_distribution<float> d;
  std::vector<std::uint16_t> v(n);
  for (auto& x : v) x = f32_to_bf16(d(g));
  return v;
}

}  // namespace flashptx::emulator::test
