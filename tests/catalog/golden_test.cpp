// The committed kernels are the goldens: ptx/ must be what the generator writes today, byte for byte, and
// catalog.json must be true of the texts. Next: tests/catalog/ptxas_test.cpp.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "gen/catalog.h"
#include "tests/support.h"
#include "tools/flashptx/catalog_json.h"

using namespace flashptx;
using nlohmann::ordered_json;

namespace {

std::string first_difference(const std::string& a, const std::string& b) {
  std::size_t line = 1, start = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] != b[i]) {
      const auto rest = [&](const std::string& s) { return s.substr(start, s.find('\n', start) - start); };
      return "line " + std::to_string(line) + "\n  committed: " + rest(a) + "\n  emitted:   " + rest(b);
    }
    if (a[i] == '\n') ++line, start = i + 1;
  }
  return "one text is longer than the other";
}

// Parameters of the text's entry, in order, without comments: {".u32", "seqlen_q"}.
std::vector<std::pair<std::string, std::string>> entry_parameters(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> out;
  std::size_t at = text.find(".entry ");
  const std::size_t end = text.find("\n)", at);
  while ((at = text.find(".param ", at)) < end) {
    std::string line = text.substr(at, text.find_first_of(",\n", at) - at);
    line = line.substr(0, line.find("//"));
    line.erase(line.find_last_not_of(" \t") + 1);
    const std::size_t space = line.rfind(' ');
    const std::string type = line.substr(7, space - 7);
    out.emplace_back(type, line.substr(space + 1));
    at += 7;
  }
  return out;
}

}  // namespace

TEST_SUITE("catalog/golden") {
  TEST_CASE("ptx/ holds exactly what the generator writes") {
    std::set<std::string> wanted;
    for (const auto& [file, text] : catalog_files()) {
      const std::string path = "ptx/" + file;
      wanted.insert(file);
      CHECK_MESSAGE(std::filesystem::exists(path), path, " is missing: run `make golden`");
      if (!std::filesystem::exists(path)) continue;
      const std::string committed = test::read_file(path);
      CHECK_MESSAGE(committed == text, path, " differs: `make golden NAME=", file, "`\n",
                    first_difference(committed, text));
    }
    for (const auto& entry : std::filesystem::directory_iterator("ptx")) {
      const std::string name = entry.path().filename();
      if (name.rfind("attn_", 0) == 0 || name.rfind("prep_", 0) == 0)
        CHECK_MESSAGE(wanted.count(name), name, " is in ptx/ but not in the catalogue");
    }
  }

  TEST_CASE("emission is deterministic and names parse back") {
    for (const KernelConfig& config : catalog()) {
      KernelConfig parsed;
      std::string error;
      REQUIRE_MESSAGE(KernelConfig::parse(config.name(), &parsed, &error), error);
      CHECK(parsed.name() == config.name());
      CHECK(emit(parsed).text == emit(config).text);
    }
  }

  TEST_CASE("the catalogue covers both 16-bit types, three head dims and both masks") {
    std::set<std::string> classes;
    for (const KernelConfig& c : catalog())
      classes.insert(std::string(to_string(c.problem.dtype)) + " " + std::to_string(c.problem.head_dim) + " " +
                     to_string(c.problem.mask));
    for (const char* dtype : {"bf16", "f16"})
      for (const char* dim : {"64", "128", "256"})
        for (const char* mask : {"full", "causal"})
          CHECK(classes.count(std::string(dtype) + " " + dim + " " + mask) == 1);
  }

  TEST_CASE("catalog.json lists the parameters that the text has, in its order and sizes") {
    const auto files = catalog_files();
    const auto root = ordered_json::parse(files.back().second);
    CHECK(files.back().first == "catalog.json");
    CHECK(root["schema_version"] == catalog_schema_version);
    CHECK(root["kernels"].size() == files.size() - 1);
    for (std::size_t i = 0; i + 1 < files.size(); ++i) {
      const auto& kernel = root["kernels"][i];
      const std::string& text = files[i].second;
      CHECK(kernel["file"] == files[i].first);
      CHECK(text.find(".visible .entry " + kernel["entry"].get<std::string>() + "(") != std::string::npos);
      const auto parameters = entry_parameters(text);
      REQUIRE(kernel["parameters"].size() == parameters.size());
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        const auto& fact = kernel["parameters"][p];
        CHECK(parameters[p].second.substr(0, parameters[p].second.find('[')) == fact["name"]);
        const std::string type = parameters[p].first;
        const std::string kind = fact["kind"];
        if (kind == "tensor_map") CHECK(type == ".align 64 .b8");
        else if (kind == "pointer" || kind == "u64") CHECK(type == ".u64");
        else if (kind == "i64") CHECK(type == ".s64");
        else CHECK(type == "." + kind);
      }
      CHECK(text.find(".reqntid " + std::to_string(kernel["block"][0].get<int>())) != std::string::npos);
    }
  }

  TEST_CASE("the digest in catalog.json is the file's SHA-256") {
    const auto sum = test::shell("sha256sum ptx/*.ptx");
    if (sum.exit_code == 127) FLASHPTX_SKIP("no sha256sum here");
    REQUIRE(sum.exit_code == 0);
    const auto root = ordered_json::parse(test::read_file("ptx/catalog.json"));
    for (const auto& kernel : root["kernels"])
      CHECK(sum.output.find(kernel["sha256"].get<std::string>() + "  ptx/" + kernel["file"].get<std::string>()) !=
            std::string::npos);
  }

  TEST_CASE("attention kernels need no more than PTX 8.0") {
    for (const KernelConfig& config : catalog()) {
      const std::string version = emit(config).facts.ptx_version;
      CHECK(std::stod(version) <= 8.0);
      CHECK(emit(config).text.find(".version " + version + "\n") != std::string::npos);
    }
  }
}
