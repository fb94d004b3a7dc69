// flashptx: one program to list, write, run, time and look into the kernels.
//
// Everything here is plumbing: the subcommands register themselves, errors become exit codes.
// Next: commands.h; run_command.cpp is the subcommand to read first.
#include <CLI/CLI.hpp>
#include <iostream>

#include "tools/flashptx/commands.h"

int main(int argc, char** argv) {
  using namespace flashptx;
  CLI::App app("FlashPTX: FlashAttention-3 for Hopper as PTX that we emit", "flashptx");
  app.require_subcommand(1);
  app.footer(exit_code_help);
  add_list(app);
  add_emit(app);
  add_run(app);
  add_demo(app);
  add_bench(app);
  add_probe(app);
  add_sass(app);
  add_units(app);
  add_ladder(app);
  add_golden(app);
  add_fuzz(app);
  for (CLI::App* sub : app.get_subcommands({})) sub->footer(exit_code_help);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& e) {  // leave()
    return e.get_exit_code();
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? exit_ok : exit_usage;
  } catch (const std::exception& e) {  // gen::Error and the like: one sentence that says where
    std::cerr << "flashptx: " << e.what() << "\n";
    return exit_usage;
  }
  return exit_ok;
}
