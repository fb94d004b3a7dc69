// An attention problem on the command line; shared by `run` and `fuzz`. Next: run_command.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/flashptx/session.h"
#include "tools/reference/inputs.h"

namespace flashptx {

class Command;

constexpr double unset_scale = -1e300;  // --scale not given: 1 / sqrt(head_dim)

struct TypeOptions {
  std::string dtype = "bf16", dtype_q, dtype_k, dtype_v;
  bool given() const { return dtype != "bf16" || !(dtype_q + dtype_k + dtype_v).empty(); }
};
void add_type_options(Command& app, TypeOptions& options);
struct Types {
  DataType q = DataType::bf16;
  std::optional<DataType> k, v;  // where they differ from Q's
};
Types types_from(const TypeOptions& options);

struct ProblemOptions : TypeOptions {
  std::string layout = "bshd", inputs = "random", device = "auto";
  std::int64_t batch = 1, heads = 2, heads_kv = 0, seqlen_q = 256, seqlen_k = -1;
  int head_dim = 128, head_dim_v = 0, ordinal = 0;
  bool causal = false, fast = false;
  double scale = unset_scale;
  std::uint64_t seed = 1;
};

void add_problem_options(Command& app, ProblemOptions& options);
void add_device_options(Command& app, ProblemOptions& options);

// Leave with exit_usage and a sentence where a value cannot be.
reference::Problem problem_from(const ProblemOptions& options);
reference::Layout layout_from(const ProblemOptions& options);
reference::Inputs inputs_from(const ProblemOptions& options);
DeviceRequest device_from(const ProblemOptions& options);

// Opens the device that was asked for; leaves with exit_no_device, and prints the note of `auto` to stderr.
std::unique_ptr<Device> open_or_leave(const DeviceRequest& request);

// Reads a file whole; leaves with exit_usage.
std::string read_or_leave(const std::string& path);

struct KernelFile {
  std::string text, entry;  // entry: the name behind the first .entry; empty for a cubin
};
// Reads the file of --ptx; leaves with exit_usage where it is empty, or neither PTX with an entry nor a cubin.
KernelFile kernel_file_or_leave(const std::string& path);

}  // namespace flashptx
