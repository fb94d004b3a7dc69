// `flashptx golden`: rewrites ptx/ from the generator (`make golden`). With a name: that file and catalog.json, and
// prints what changed, so that a golden is never updated unseen. Next: catalog_json.cpp.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <set>

#include "tools/flashptx/args.h"
#include "tools/flashptx/catalog_json.h"
#include "tools/flashptx/commands.h"

namespace flashptx {
namespace {

struct GoldenOptions {
  std::string name, folder = "ptx";
  bool check = false;
};

std::string read_or_empty(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void print_diff(const std::string& path, const std::string& text) {
  const std::string fresh = std::filesystem::temp_directory_path().string() + "/flashptx-golden-" +
                            std::to_string(std::hash<std::string>{}(text)) + ".tmp";
  write_file(fresh, text);
  const std::string old = std::filesystem::exists(path) ? path : "/dev/null";
  std::cout.flush();
  const int status = std::system(("diff -u '" + old + "' '" + fresh + "' | sed -e '1,2d'").c_str());
  std::filesystem::remove(fresh);
  if (status == -1) std::cerr << "diff could not be run\n";
}

// Files of the folder that the catalogue no longer has. Only those that say that we generated them are ours to
// remove: hand-written kernels stay.
std::vector<std::string> leftovers(const std::string& folder, const std::set<std::string>& wanted) {
  std::vector<std::string> out;
  if (!std::filesystem::exists(folder)) return out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (entry.path().extension() == ".ptx" && (name.rfind("attn_", 0) == 0 || name.rfind("prep_", 0) == 0) && !wanted.count(name))
      out.push_back(entry.path());
  }
  return out;
}

void run_golden(const GoldenOptions& o) {
  if (!o.check) std::filesystem::create_directories(o.folder);
  else if (std::error_code ignored; !std::filesystem::is_directory(o.folder, ignored))
    leave(exit_usage, "--folder " + o.folder + ": no such folder");
  std::set<std::string> wanted;
  int changed = 0, matched = 0;
  for (const auto& [file, text] : catalog_files()) {
    wanted.insert(file);
    const bool named = file == o.name || file == o.name + ".ptx";
    if (!o.name.empty() && !named && file != "catalog.json") continue;
    matched += named;
    const std::string path = o.folder + "/" + file;
    if (read_or_empty(path) == text) continue;
    ++changed;
    std::cout << (o.check ? "differs: " : "written: ") << path << "\n";
    if (!o.name.empty() || o.check) print_diff(path, text);
    if (!o.check) write_file(path, text);
  }
  if (!o.name.empty() && matched == 0) leave(exit_usage, "no kernel of the catalogue is called " + o.name);
  if (o.name.empty())
    for (const std::string& path : leftovers(o.folder, wanted)) {
      ++changed;
      std::cout << (o.check ? "not in the catalogue: " : "removed: ") << path << "\n";
      if (!o.check) std::filesystem::remove(path);
    }
  if (changed == 0) std::cout << o.folder << " is up to date\n";
  if (o.check && changed > 0) leave(exit_mismatch, std::to_string(changed) + " files differ; `make golden` writes them");
}

}  // namespace

void add_golden(Command& app) {
  auto options = std::make_shared<GoldenOptions>();
  Command* c = app.add_subcommand("golden", "Write ptx/ and ptx/catalog.json anew from the generator");
  c->add_option("name", options->name, "Only this kernel; prints its diff");
  c->add_option("--folder", options->folder, "Where the files stand")->capture_default_str();
  c->add_flag("--check", options->check, "Write nothing; exit 1 and print the diff if a file differs");
  c->callback([options] { run_golden(*options); });
}

}  // namespace flashptx
