// flashptx: one program to list, write, run, time and look into the kernels.
//
// Everything here is plumbing: the subcommands register themselves.
// Next: commands.h; run_command.cpp is the subcommand to read first.
#include <cstdio>
#include <iostream>

#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"

int main(int argc, char** argv) {
  using namespace flashptx;
  Command program("FlashPTX: FlashAttention-3 for Hopper as PTX that we emit", "flashptx");
  for (auto* add : {add_list, add_emit, add_run, add_demo, add_bench, add_probe, add_sass, add_trace, add_diff,
                    add_units, add_ladder, add_tune, add_prepare, add_accuracy, add_golden, add_fuzz})
    add(program);
  program.footer(exit_code_help);
  const int code = program.run(argc, argv);
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) || !std::cout) {
    std::fprintf(stderr, "flashptx: the output could not be written to stdout\n");
    return code == 0 ? 1 : code;
  }
  return code;
}
