// How a subcommand ends early. Next: commands.h.
#include <CLI/CLI.hpp>
#include <iostream>

#include "tools/flashptx/commands.h"

namespace flashptx {

void leave(ExitCode code, const std::string& sentence) {
  if (!sentence.empty()) std::cerr << "flashptx: " << sentence << "\n";
  throw CLI::RuntimeError(code);
}

}  // namespace flashptx
