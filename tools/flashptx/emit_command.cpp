// `flashptx emit`: one kernel's text. A config that no kernel can have is refused with the generator's sentence.
// Next: config_options.cpp.
#include <algorithm>
#include <iostream>
#include <memory>

#include "gen/kernels/ladder.h"
#include "gen/kernels/prepare.h"
#include "tools/flashptx/args.h"
#include "tools/flashptx/catalog_json.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/config_options.h"

namespace flashptx {
namespace {

struct EmitOptions {
  ConfigOptions config;
  std::string output = "-";
  bool json = false, name_only = false;
};

// Of kernels that have no config: their name says all.
void refuse_options(const EmitOptions& o) {
  if (o.config.shapes_named_kernel() || !o.config.schedule.empty())
    leave(exit_usage, o.config.name + " says all of its kernel: no other option can be given beside it");
}

std::string produce(const EmitOptions& o) {
  if (PrepareConfig prepare; PrepareConfig::parse(o.config.name, &prepare, nullptr)) {
    refuse_options(o);
    if (o.name_only) return o.config.name + "\n";
    const EmittedKernel kernel = emit_prepare(prepare);
    return o.json ? auxiliary_json(o.config.name, kernel) : kernel.text;
  }
  const auto auxiliary = auxiliary_kernels();
  if (std::find(auxiliary.begin(), auxiliary.end(), o.config.name) != auxiliary.end()) {
    refuse_options(o);
    if (o.name_only) return o.config.name + "\n";
    const EmittedKernel kernel = emit_auxiliary(o.config.name);
    return o.json ? auxiliary_json(o.config.name, kernel) : kernel.text;
  }
  if (LadderConfig rung; LadderConfig::parse(o.config.name, &rung)) {
    refuse_options(o);
    if (o.name_only) return o.config.name + "\n";
    const EmittedKernel kernel = emit_ladder(rung);
    return o.json ? auxiliary_json(o.config.name, kernel) : kernel.text;
  }
  const KernelConfig config = config_from(o.config);
  const EmittedKernel kernel = emit(config);  // refuses what no kernel can have, for a name too
  if (o.name_only) return config.name() + "\n";
  return o.json ? kernel_json(config) : kernel.text;
}

void run_emit(const EmitOptions& o) {
  const std::string text = produce(o);
  if (o.output == "-") {
    std::cout << text;
    return;
  }
  write_file(o.output, text);
}

}  // namespace

void add_emit(Command& app) {
  auto options = std::make_shared<EmitOptions>();
  Command* c = app.add_subcommand("emit", "Write one kernel as PTX");
  add_config_options(*c, options->config);
  c->add_option("-o,--output", options->output, "File; - is standard output")->capture_default_str();
  c->add_flag("--json", options->json, "The launch facts in place of the text");
  c->add_flag("--name", options->name_only, "The kernel's name in place of the text");
  c->callback([options] { run_emit(*options); });
}

}  // namespace flashptx
