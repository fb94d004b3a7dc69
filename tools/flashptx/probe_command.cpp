// `flashptx probe`: sends one of each parameter kind through this launcher and compares what came back.
//
// Proves the device interface on a new machine or driver; authors of other launchers load ptx/probe.ptx themselves.
// Next: gen/kernels/probe.cpp.
#include <cstdio>
#include <cstring>
#include <memory>

#include "gen/catalog.h"
#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/problem_options.h"

namespace flashptx {
namespace {

struct Sent {
  TensorMap map;
  std::uint64_t out = 0, null = 0;
  std::uint32_t word = 0x89abcdef;
  std::uint64_t wide = 0xfedcba9876543210u;
  std::int64_t signed_wide = -0x123456789abcdef;
  float real = -1.5f;
};

void check(const Status& s) {
  if (!s.ok()) leave(exit_mismatch, s.message);
}

std::vector<std::uint64_t> expected(const Sent& sent, const LaunchDims& dims) {
  std::vector<std::uint64_t> out(24);
  std::memcpy(out.data(), sent.map.bytes, sizeof sent.map.bytes);
  std::uint32_t real_bits = 0;
  std::memcpy(&real_bits, &sent.real, 4);
  out[16] = sent.out, out[17] = sent.null, out[18] = sent.word, out[19] = sent.wide;
  out[20] = static_cast<std::uint64_t>(sent.signed_wide), out[21] = real_bits;
  out[22] = dims.grid[0], out[23] = dims.block[0];
  return out;
}

int compare(const std::vector<std::uint64_t>& wanted, const std::vector<std::uint64_t>& got) {
  static const char* names[] = {"out", "null", "word", "wide", "signed_wide", "real", "grid size", "block size"};
  int wrong = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == got[i]) continue;
    ++wrong;
    std::printf("out[%zu] (%s): sent %016llx, came back %016llx\n", i, i < 16 ? "map" : names[i - 16],
                static_cast<unsigned long long>(wanted[i]), static_cast<unsigned long long>(got[i]));
  }
  return wrong;
}

void run_probe(const ProblemOptions& options, const std::string& file) {
  const auto device = open_or_leave(device_from(options));
  const EmittedKernel kernel = emit_auxiliary("probe");
  LoadedKernel* loaded = nullptr;
  check(device->load(file.empty() ? kernel.text : kernel_file_or_leave(file).text, "probe", 0, &loaded));
  Sent sent;
  for (std::size_t i = 0; i < sizeof sent.map.bytes; ++i) sent.map.bytes[i] = static_cast<std::uint8_t>(3 * i + 1);
  std::vector<std::uint64_t> got(24);
  check(device->allocate(got.size() * 8, &sent.out));
  check(device->fill(sent.out, 0xff, got.size() * 8, nullptr));
  LaunchDims dims;
  dims.block[0] = static_cast<std::uint32_t>(kernel.facts.block_threads);
  void* params[] = {&sent.map, &sent.out, &sent.null, &sent.word, &sent.wide, &sent.signed_wide, &sent.real};
  check(device->launch(loaded, dims, params, 7, nullptr));
  check(device->synchronize(nullptr));
  check(device->copy_from_device(got.data(), sent.out, got.size() * 8));
  const int wrong = compare(expected(sent, dims), got);
  device->free(sent.out);
  device->unload(loaded);
  std::printf("probe on %s: %s\n", describe(device->info()).c_str(),
              wrong == 0 ? "every parameter arrived as it was sent" : "parameters arrived changed");
  if (wrong > 0) leave(exit_mismatch, "");
}

}  // namespace

void add_probe(Command& app) {
  auto options = std::make_shared<ProblemOptions>();
  auto file = std::make_shared<std::string>();
  Command* c = app.add_subcommand("probe", "Send one parameter of each kind to a kernel that writes back what it got");
  add_device_options(*c, *options);
  c->add_option("--ptx", *file, "This file in place of the generated text")->check(existing_file());
  c->callback([options, file] { run_probe(*options, *file); });
}

}  // namespace flashptx
