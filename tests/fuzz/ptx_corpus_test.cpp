// Replays the fuzzer's corpus in the ordinary test runner, and cuts and bends its files in simple ways.
//
// File names say what is expected: ok_*.ptx decodes, bad_*.ptx is refused. Next: tests/fuzz/ptx_check.h.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <vector>

#include "tests/fuzz/ptx_check.h"
#include "tests/support.h"

using flashptx::emulator::test::check_ptx;

namespace {

std::vector<std::filesystem::path> corpus() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator("tests/fuzz/corpus")) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_SUITE_BEGIN("fuzz/ptx");

TEST_CASE("each file of the corpus is decoded or refused as its name says") {
  int files = 0;
  for (const auto& path : corpus()) {
    CAPTURE(path.string());
    const auto outcome = check_ptx(flashptx::test::read_file(path.string()));
    CHECK(outcome.complaint == "");
    const bool ok = outcome.decoded > 0 && outcome.refusal.empty();
    CAPTURE(outcome.refusal);
    CHECK(ok == (path.filename().string().rfind("ok_", 0) == 0));
    ++files;
  }
  CHECK(files >= 8);
}

TEST_CASE("the corpus cut anywhere, or with bytes bent, is refused with a place and never crashes") {
  std::mt19937 rng(1);
  for (const auto& path : corpus()) {
    const std::string text = flashptx::test::read_file(path.string());
    for (std::size_t cut = 0; cut < text.size(); cut += 1 + text.size() / 150) {
      CHECK(check_ptx(text.substr(0, cut)).complaint == "");
    }
    for (int i = 0; i < 150 && !text.empty(); ++i) {
      std::string bent = text;
      for (int k = 0; k < 3; ++k) {
        const std::size_t at = rng() % bent.size(), from = rng() % bent.size();
        if (rng() % 2) bent[at] = "{}[](),;.%@|-+0xf_ \n"[rng() % 20];
        else bent.insert(at, bent.substr(from, 1 + rng() % 12));
      }
      CAPTURE(bent);
      CHECK(check_ptx(bent).complaint == "");
    }
  }
}

TEST_SUITE_END();
