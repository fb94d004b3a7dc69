// Statistics of samples, the paper's grid, and the choice of rows that are checked.
// Next: tools/flashptx/bench.h.
#include <cmath>
#include <filesystem>
#include <set>

#include "tests/support.h"
#include "tests/tools/timed_emulator.h"
#include "tools/flashptx/bench.h"
#include "tools/flashptx/runner.h"

using namespace flashptx;

TEST_SUITE("tools/bench") {
  TEST_CASE("median and quartiles do not depend on the order") {
    const Quartiles q = quartiles({5, 1, 4, 2, 3});
    CHECK(q.low == 2);
    CHECK(q.median == 3);
    CHECK(q.high == 4);
    CHECK(quartiles({1, 2}).median == 1.5);
    CHECK(std::isnan(quartiles({}).median));
  }

  TEST_CASE("no figure from samples that are no good") {
    CHECK(refuse_samples({1.0f, 1.01f, 0.99f, 1.0f}) == "");
    CHECK(refuse_samples({1.0f, 1.0f}) != "");                      // too few
    CHECK(refuse_samples({1.0f, 0.0f, 1.0f, 1.0f}) != "");          // no time at all
    CHECK(refuse_samples({1.0f, NAN, 1.0f, 1.0f}) != "");
    CHECK(refuse_samples({1.0f, 2.0f, 1.0f, 2.0f, 3.0f}) != "");    // too noisy
  }

  TEST_CASE("the paper's grid has 16384 tokens of 2048 columns in each of 36 cells") {
    const auto all = cells({});
    CHECK(all.size() == 36);
    for (const reference::Problem& p : all) {
      CHECK(p.batch * p.seqlen_q == 16384);
      CHECK(p.heads_q * p.head_dim == 2048);
      CHECK(p.scale == doctest::Approx(1 / std::sqrt(p.head_dim)));
    }
    BenchGrid odd;
    odd.head_dims = {96};
    CHECK_THROWS_AS(cells(odd), std::invalid_argument);
    odd = {};
    odd.seqlens = {1000};
    CHECK_THROWS_AS(cells(odd), std::invalid_argument);
  }

  TEST_CASE("operations are counted as the papers do") {
    reference::Problem p = cells({}).back();
    CHECK(p.mask == Mask::causal);
    CHECK(flops(p) == 2.0 * p.seqlen_q * p.seqlen_q * p.head_dim * p.heads_q * p.batch);
    p.mask = Mask::full;
    CHECK(flops(p) == 4.0 * p.seqlen_q * p.seqlen_q * p.head_dim * p.heads_q * p.batch);
  }

  TEST_CASE("a sample of rows has the first, the last and no row twice") {
    reference::Problem p;
    p.seqlen_q = 1000, p.seqlen_k = 40, p.head_dim = p.head_dim_v = 8;
    const Case some = make_case(p, reference::Layout::bshd, reference::Inputs::ones, 1, true, 7);
    const auto& rows = some.problem().rows;
    REQUIRE(rows.size() == 7);
    CHECK(rows.front() == 0);
    CHECK(rows.back() == 999);
    CHECK(std::set<std::int64_t>(rows.begin(), rows.end()).size() == 7);
    CHECK(make_case(p, reference::Layout::bshd, reference::Inputs::ones, 1, true, 0).problem().rows.empty());
  }

  TEST_CASE("the FP8 chain is timed beside the 16-bit kernel, on the same tensors") {
    test::TimedEmulator device;
    const reference::Problem p = cells({{DataType::bf16}, {64}, {64}, {Mask::causal}, 64, 128}).front();
    Fp8Options recipe;
    recipe.hadamard = true;
    {
      BenchOptions options;
      options.mode = BenchMode::interleaved, options.repeats = 6, options.rounds = 2;
      Bench bench(device, options);
      std::vector<BenchRow> rows;
      device.launched = 0;
      const Status s = bench.run(p, {{"host", {}, {}}, {"chain", {}, recipe}}, &rows);
      REQUIRE_MESSAGE(s.ok(), s.message);
      REQUIRE(rows.size() == 2);
      for (const BenchRow& r : rows) CHECK_MESSAGE(r.has_figure(), r.note);
      CHECK(rows[0].kernel.rfind("attn_fwd_bf16_d64_causal", 0) == 0);
      CHECK(rows[1].kernel.rfind("attn_fwd_e4m3_d64_causal", 0) == 0);
      // Two rounds of one attention and of seven kernels; more only if the clock could be read.
      CHECK(device.launched >= 2 * (1 + 7));
    }
    CHECK(device.allocated == 0);
  }

  TEST_CASE("what two folders hold of one kernel runs as it stands in each, in turns, under the file's path") {
    const test::ScratchFolder folder;
    const std::string name = "attn_fwd_bf16_d64_causal__q64_kv64_s2__overlap_guarded2";
    KernelConfig config;
    std::string error;
    REQUIRE_MESSAGE(KernelConfig::parse(name, &config, &error), error);
    const std::string text = emit(config).text;
    for (const char* assembler : {"one", "two", "none", "empty"}) std::filesystem::create_directory(folder.path(assembler));
    test::write_file(folder.path("one/" + name + ".ptx"), text);
    test::write_file(folder.path("one/notes.txt"), "no kernel");
    test::write_file(folder.path("two/" + name + ".ptx"), text + "// another text\n");
    test::write_file(folder.path("empty/" + name + ".cubin"), "");
    CHECK_THROWS_WITH(kernels_of_folder(folder.path("none")), doctest::Contains("holds no attn_fwd_*.cubin"));
    CHECK_THROWS_WITH(kernels_of_folder(folder.path("empty")), doctest::Contains("is empty"));
    std::vector<BenchKernel> kernels = kernels_of_folder(folder.path("one"));
    REQUIRE(kernels.size() == 1);
    kernels.push_back(kernels_of_folder(folder.path("two")).at(0));
    CHECK(kernels[0].choice.ptx == text);
    CHECK(kernels[1].choice.ptx == text + "// another text\n");
    kernels.push_back(kernels[1]);
    kernels[2].choice.ptx = "\x7f" "ELF";  // machine code: the emulator cannot run it, and that is no figure
    test::TimedEmulator device;
    BenchOptions options;
    options.mode = BenchMode::interleaved, options.repeats = 6, options.rounds = 2;
    std::vector<BenchRow> rows;
    REQUIRE(Bench(device, options).run(cells({{DataType::bf16}, {64}, {64}, {Mask::causal}, 64, 64}).front(), kernels, &rows).ok());
    REQUIRE(rows.size() == 3);
    for (int i : {0, 1}) {
      CHECK_MESSAGE(rows[static_cast<std::size_t>(i)].has_figure(), rows[static_cast<std::size_t>(i)].note);
      CHECK(rows[static_cast<std::size_t>(i)].kernel == name);
    }
    CHECK(rows[0].label == "file:" + folder.path("one/" + name + ".ptx"));
    CHECK(rows[1].label == "file:" + folder.path("two/" + name + ".ptx"));
    CHECK_FALSE(rows[2].has_figure());
    CHECK(rows[2].note != "");
  }
}
