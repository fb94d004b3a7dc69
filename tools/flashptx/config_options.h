// A KernelConfig on the command line: by name, or class and plan piece by piece. Next: emit_command.cpp.
#pragma once

#include <memory>
#include <string>

#include "gen/catalog.h"
#include "tools/flashptx/problem_options.h"

namespace flashptx {

class Command;

// What was typed; unset fields keep what the host would choose for a long sequence.
struct ConfigOptions : TypeOptions {
  std::string name;
  int head_dim = 128, head_dim_v = 0;
  bool causal = false;
  int warpgroups = 0, teams = 0, tile_kv = 0, stages = 0, q_stages = 0, lazy_threshold_log2 = 0;
  std::string schedule, softmax;
  std::string ping_pong, dynamic_tiles, o_own_buffer, late_store, p_sums, pin_exp;  // "", "on" or "off"

  // Whether anything was typed that a kernel's name already says.
  bool shapes_named_kernel() const {
    return given() || head_dim != 128 || head_dim_v != 0 || causal || warpgroups || teams || tile_kv || stages ||
           q_stages || lazy_threshold_log2 || !(softmax + ping_pong + dynamic_tiles + o_own_buffer + late_store + p_sums + pin_exp).empty();
  }
};

void add_config_options(Command& app, ConfigOptions& options);

// `--schedule`: a built-in name or a file of one's own (gen/schedule/text.h). Leaves with exit_usage and the file's
// line when it cannot be.
constexpr const char* schedule_help = "Schedule: a built-in name, or a file in the table's words (tools/TUTORIAL.md)";
Schedule schedule_or_leave(const std::string& name_or_file);

// Leaves with exit_usage and a sentence when the name or a value cannot be read.
KernelConfig config_from(const ConfigOptions& options);

}  // namespace flashptx
