// The study subcommands (sass, units) as a program of their own; `flashptx` has them too.
// Next: tools/flashptx/sass_command.cpp.
#include <CLI/CLI.hpp>

namespace flashptx {
void add_sass(CLI::App& app);
}

int main(int argc, char** argv) {
  CLI::App app("FlashPTX study tools");
  app.require_subcommand(1);
  flashptx::add_sass(app);
  CLI11_PARSE(app, argc, argv);
}
