// `flashptx list`: the kernels that stand in ptx/. Next: gen/catalog.h.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/flashptx/catalog_json.h"
#include "tools/flashptx/commands.h"

namespace flashptx {
namespace {

void list_json() {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const KernelConfig& config : catalog()) all.push_back(kernel_json(config, emit(config)));
  for (const std::string& name : auxiliary_kernels()) all.push_back(auxiliary_json(name, emit_auxiliary(name)));
  std::cout << all.dump(1) << "\n";
}

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

void add_list(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* c = app.add_subcommand("list", "The kernels of the catalogue, as committed in ptx/");
  c->add_flag("--json", *json, "Every launch fact, as in ptx/catalog.json");
  c->callback([json] { *json ? list_json() : list_text(); });
}

}  // namespace flashptx
