// `flashptx sass`: assemble, disassemble, annotate.
// Next: sass.h.
#include <filesystem>
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
  else a = sass::assemble(tools, text, o.input);
  const sass::PtxText ptx = sass::read_ptx(cubin ? "" : text);
  if (!tools.has_lines)
    std::cerr << "cuobjdump gives no PTX lines: "
              << "with nvdisasm they would be shown\n";
  std::vector<sass::Function> functions = sass::parse_disassembly(a.disassembly);
  std::string names;
  for (const sass::Function& f : functions) names += (names.empty() ? "" : ", ") + f.name;
  if (!o.entry.empty()) std::erase_if(functions, [&](const sass::Function& f) { return f.name != o.entry; });
  if (functions.empty()) throw std::runtime_error("--entry " + o.entry + ": " + o.input + " has " + names);
  // One entry is one object; several are a list, so that the whole stays one document.
  const bool list = o.json && functions.size() > 1;
  for (std::size_t n = 0; n < functions.size(); ++n) {
    sass::Function& f = functions[n];
    const sass::Report r = sass::analyse(f, ptx, sass::parse_assembler_log(a.log, f.name));
    if (list) std::cout << (n ? "," : "[");
    if (o.json) std::cout << sass::report_json(f, r);
    else
      std::cout << (o.listing ? sass::listing_text(f, r, ptx) + "\n" : "") << sass::report_text(r);
  }
  if (list) std::cout << "]\n";
}

}  // namespace

void add_sass(Command& app) {
  auto options = std::make_shared<SassOptions>();
  Command* c = app.add_subcommand(
      "sass", "Machine code of a kernel: control bits, counts a loop, what lies under each wgmma");
  c->add_option("kernel", options->input, "A .ptx file, a .cubin, or a kernel's name")->required();
  c->add_option("--entry", options->entry, "Only this entry point");
  c->add_flag("--listing", options->listing, "Every instruction with control bits and PTX line");
  c->add_flag("--json", options->json, "Everything, for programs: an object, or a list of them where there are several entries");
  c->callback([options] {
    try {
      run_sass(*options);
    } catch (const std::exception& e) {
      leave(exit_usage, e.what());
    }
  });
}

}  // namespace flashptx
