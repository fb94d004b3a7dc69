// `flashptx emit`: one kernel's text. A config that no kernel can have is refused with the generator's sentence.
// Next: config_options.cpp.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "gen/kernels/ladder.h"
#include "gen/kernels/prepare.h"
#include "gen/kernels/schedule_lines.h"
#include "tools/flashptx/args.h"
#include "tools/flashptx/catalog_json.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/config_options.h"

namespace flashptx {
namespace {

struct EmitOptions {
  ConfigOptions config;
  std::string output = "-";
  bool json = false, name_only = false, line_info = false;
};

// Of kernels that have no config: their name says all.
void refuse_options(const EmitOptions& o) {
  if (o.config.shapes_named_kernel() || !o.config.schedule.empty())
    leave(exit_usage, o.config.name + " says all of its kernel: no other option can be given beside it");
}

// What is asked for: a name and a kernel, or its facts. An attention kernel's config is not in `facts` alone.
struct Produced {
  std::string name, json, line_table;
  EmittedKernel kernel;
};

Produced of_name(const EmitOptions& o, EmittedKernel kernel, const std::string& line_table) {
  refuse_options(o);
  return {o.config.name, o.json ? auxiliary_json(o.config.name, kernel) : "", line_table, std::move(kernel)};
}

Produced produce(const EmitOptions& o) {
  std::string table;
  std::string* const lines = o.line_info ? &table : nullptr;
  if (PrepareConfig prepare; PrepareConfig::parse(o.config.name, &prepare, nullptr)) {
    EmittedKernel kernel = emit_prepare(prepare, lines);
    return of_name(o, std::move(kernel), table);
  }
  const auto auxiliary = auxiliary_kernels();
  if (std::find(auxiliary.begin(), auxiliary.end(), o.config.name) != auxiliary.end()) {
    if (o.line_info) leave(exit_usage, o.config.name + " has no steps: --lineinfo is for attention, ladder and preparation kernels");
    return of_name(o, emit_auxiliary(o.config.name), "");
  }
  if (LadderConfig rung; LadderConfig::parse(o.config.name, &rung)) {
    EmittedKernel kernel = emit_ladder(rung, lines);
    return of_name(o, std::move(kernel), table);
  }
  const KernelConfig config = config_from(o.config);
  EmittedKernel kernel = emit_with_lines(config, lines);  // refuses what no kernel can have, for a name too
  return {config.name(), o.json ? kernel_json(config) : "", table, std::move(kernel)};
}

// The table goes beside the PTX, under the name that `.file` gives it: profilers look for it there.
void write_line_table(const EmitOptions& o, const Produced& p) {
  const std::filesystem::path file = std::filesystem::path(o.output).parent_path() / (p.name + ".schedule");
  write_file(file.string(), p.line_table);
  std::cerr << "written " << o.output << " and " << file.string() << ", which its .loc lines point at\n";
}

void run_emit(const EmitOptions& o) {
  if (o.line_info && (o.output == "-" || o.json || o.name_only))
    leave(exit_usage, "--lineinfo writes two files, the PTX and the table that it points at: give -o FILE, without --json or --name");
  const Produced p = produce(o);
  const std::string text = o.name_only ? p.name + "\n" : o.json ? p.json : p.kernel.text;
  if (o.output == "-") {
    std::cout << text;
    return;
  }
  write_file(o.output, text);
  if (o.line_info) write_line_table(o, p);
}

}  // namespace

void add_emit(Command& app) {
  auto options = std::make_shared<EmitOptions>();
  Command* c = app.add_subcommand("emit", "Write one kernel as PTX");
  add_config_options(*c, options->config);
  c->add_option("-o,--output", options->output, "File; - is standard output")->capture_default_str();
  c->add_flag("--json", options->json, "The launch facts in place of the text");
  c->add_flag("--lineinfo", options->line_info,
              "Lines that point at the schedule's table, written beside: a profiler's source page shows steps against machine code");
  c->add_flag("--name", options->name_only, "The kernel's name in place of the text");
  c->callback([options] { run_emit(*options); });
}

}  // namespace flashptx
