// `flashptx sass`: assemble, disassemble, annotate.
// Next: sass.h.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>

#include "gen/catalog.h"
#include "gen/kernels/ladder.h"
#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/sass.h"

namespace flashptx {

namespace {

struct SassOptions {
  std::string input, entry;
  bool listing = false, json = false;
};

bool read_file(const std::string& path, std::string* text) {
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path)) return false;
  text->assign(std::istreambuf_iterator<char>(in), {});
  return true;
}

// A file, else a kernel that stands in ptx/ or ptx/units/, else the name of any kernel that the
// generator can emit.
std::string find_ptx(const std::string& input) {
  std::string text, error;
  for (const std::string& path : {input, "ptx/" + input + ".ptx", "ptx/units/" + input + ".ptx"})
    if (read_file(path, &text)) return text;
  if (LadderConfig rung; LadderConfig::parse(input, &rung)) return emit_ladder(rung).text;
  KernelConfig config;
  if (!KernelConfig::parse(input, &config, &error))
    throw std::runtime_error("no such file, and no kernel name: " + input + " (" + error + ")");
  return emit(config).text;
}

void run_sass(const SassOptions& o) {
  const std::string text = find_ptx(o.input);
  const sass::Tools tools = sass::find_tools();
  const bool cubin = text.rfind(
                         "\x7f"
                         "ELF",
                         0) == 0;
  sass::Assembled a;
  if (cubin) a.disassembly = sass::disassemble_file(tools, o.input);
  else a = sass::assemble(tools, text);
  const sass::PtxText ptx = sass::read_ptx(cubin ? "" : text);
  if (!tools.has_lines)
    std::cerr << "cuobjdump gives no PTX lines: "
              << "with nvdisasm they would be shown\n";
  for (sass::Function& f : sass::parse_disassembly(a.disassembly)) {
    if (!o.entry.empty() && f.name != o.entry) continue;
    const sass::Report r = sass::analyse(f, ptx, sass::parse_assembler_log(a.log, f.name));
    if (o.json) std::cout << sass::report_json(f, r);
    else
      std::cout << (o.listing ? sass::listing_text(f, r, ptx) + "\n" : "") << sass::report_text(r);
  }
}

}  // namespace

void add_sass(Command& app) {
  auto options = std::make_shared<SassOptions>();
  Command* c = app.add_subcommand(
      "sass", "Machine code of a kernel: control bits, counts a loop, what lies under each wgmma");
  c->add_option("kernel", options->input, "A .ptx file, a .cubin, or a kernel's name")->required();
  c->add_option("--entry", options->entry, "Only this entry point");
  c->add_flag("--listing", options->listing, "Every instruction with control bits and PTX line");
  c->add_flag("--json", options->json, "Everything, for programs");
  c->callback([options] {
    try {
      run_sass(*options);
    } catch (const std::exception& e) {
      leave(exit_usage, e.what());
    }
  });
}

}  // namespace flashptx
