// `flashptx list`: the kernels that stand in ptx/. Next: gen/catalog.h.
#include <cstdio>
#include <iostream>
#include <memory>

#include "tools/flashptx/args.h"
#include "tools/flashptx/catalog_json.h"
#include "tools/flashptx/commands.h"

namespace flashptx {
namespace {

void list_text() {
  std::size_t width = 0;
  for (const KernelConfig& config : catalog()) width = std::max(width, config.name().size());
  std::printf("%-*s  threads  shared bytes  registers producer/consumer  driver\n", static_cast<int>(width), "kernel");
  for (const KernelConfig& config : catalog()) {
    const LaunchFacts facts = emit(config).facts;
    std::printf("%-*s  %7d  %12u  %18d/%-8d  %s\n", static_cast<int>(width), config.name().c_str(),
                facts.block_threads, facts.shared_bytes, facts.producer_registers, facts.consumer_registers,
                facts.driver_min.c_str());
  }
  for (const std::string& name : auxiliary_kernels()) std::printf("%s\n", name.c_str());
}

}  // namespace

void add_list(Command& app) {
  auto json = std::make_shared<bool>(false);
  Command* c = app.add_subcommand("list", "The kernels of the catalogue, as committed in ptx/");
  c->add_flag("--json", *json, "Every launch fact, as in ptx/catalog.json");
  c->callback([json] { if (*json) std::cout << kernels_json();
    else list_text(); });
}

}  // namespace flashptx
