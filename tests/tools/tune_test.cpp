// The tuner without a GPU: its space, its files, a pretended assembler, a pretended GPU that runs
// on the emulator and invents its times, and the table. Next: tools/flashptx/tune.h.
#include "tools/flashptx/tune.h"

#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <set>

#include "gen/kernels/attention_forward.h"
#include "host/split_tail.h"
#include "tests/forwarding_device.h"
#include "tests/support.h"

using namespace flashptx;
using namespace flashptx::tune;

namespace {

const ProblemClass d128{DataType::bf16, 128, 128, Mask::full};
const ProblemClass d64{DataType::bf16, 64, 64, Mask::causal};

// Runs on the emulator, but says that it is a GPU; a kernel with tile_kv 48 is the fastest.
struct PretendedGpu : test::ForwardingDevice {
  DeviceInfo information;
  std::string last_entry;
  int timed = 0;
  static EmulatorOptions four_multiprocessors() {
    EmulatorOptions options;
    options.multiprocessors = 4;
    return options;
  }
  PretendedGpu() : ForwardingDevice(four_multiprocessors()), information(inner->info()) {
    information.name = "pretended", information.driver_text = "1.0",
    information.is_emulator = false;
    information.l2_bytes = 1;
  }
  const DeviceInfo& info() const override { return information; }
  Status launch(LoadedKernel* k, const LaunchDims& dims, void** params, int count,
                Stream s) override {
    last_entry = k->entry;
    if (k->entry == "flashptx_clock") return Status::error(StatusCode::unsupported, "no clock");
    return inner->launch(k, dims, params, count, s);
  }
  Status time(const std::function<Status()>& work, int, int repeats, Stream,
              std::vector<float>* out) override {
    if (Status s = work(); !s.ok()) return s;
    ++timed;
    const float ms = last_entry.find("_kv48_") != std::string::npos   ? 1.0f
                     : last_entry.find("_kv64_") != std::string::npos ? 1.2f
                                                                      : 2.0f;
    out->assign(static_cast<std::size_t>(repeats), ms);
    return {};
  }
};

// Times without running anything, on as many multiprocessors as an H200 has: cut tiles are the fastest.
struct NothingRuns : PretendedGpu {
  std::multiset<std::size_t> allocated;
  NothingRuns() { information.multiprocessors = 132; }
  Status allocate(std::size_t bytes, std::uint64_t* address) override {
    allocated.insert(bytes);
    return PretendedGpu::allocate(bytes, address);
  }
  Status launch(LoadedKernel* k, const LaunchDims&, void**, int, Stream) override {
    last_entry = k->entry;
    return {};
  }
  Status time(const std::function<Status()>& work, int, int repeats, Stream, std::vector<float>* out) override {
    if (Status s = work(); !s.ok()) return s;
    out->assign(static_cast<std::size_t>(repeats), last_entry.find("_tail") != std::string::npos ? 1.0f : 1.1f);
    return {};
  }
};

bool has(const std::vector<Exclusion>& list, const char* reason) {
  return std::any_of(list.begin(), list.end(), [&](const Exclusion& e) { return e.reason.rfind(reason, 0) == 0; });
}

tune::Timing final_row(const std::string& kernel, double ratio, double tflops,
                 const std::string& stage = "final") {
  tune::Timing t;
  t.date = "2025-01-02T03:04:05Z", t.device = "card", t.driver = "580", t.assembler = "13.0.88";
  t.dtype = "bf16", t.mask = "full", t.head_dim = 128, t.seqlen = 1024;
  t.kernel = kernel, t.text_hash = "hash of " + kernel, t.stage = stage;
  t.ratio = ratio, t.tflops = tflops, t.anchor = "today";
  if (stage == "verify") t.note = "ok";
  return t;
}

std::string fake_assembler(const test::ScratchFolder& folder, const std::string& says) {
  const std::string path = folder.path("ptxas");
  test::write_file(path,
                   "#!/bin/sh\n"
                   "[ \"$1\" = --version ] && { echo 'release 1.2, V1.2.3'; exit 0; }\n"
                   "echo run >> " +
                       folder.path("runs") +
                       "\n"
                       "printf x > \"$5\"\n" +
                       says + "\n");
  chmod(path.c_str(), 0755);
  return path;
}

}  // namespace

TEST_SUITE("tools/tune") {
  TEST_CASE("every plan is a candidate, illegal or excluded, and today's are always candidates") {
    for (const ProblemClass& problem : {d128, d64}) {
      const Space space = enumerate(problem, {512, 16384}, {});
      int left_out = 0;
      for (const auto* list : {&space.illegal, &space.excluded})
        for (const Exclusion& e : *list) {
          left_out += e.count;
          CHECK_FALSE(e.reason.empty());
          KernelConfig example;
          CHECK(KernelConfig::parse(e.example, &example, nullptr));
        }
      CHECK(space.looked_at == left_out + static_cast<int>(space.candidates.size()));
      std::set<std::string> names;
      for (const Candidate& c : space.candidates) {
        CHECK(names.insert(c.config.name()).second);
        CHECK(gen::check_forward(c.config) == "");
      }
      for (std::int64_t s : {512, 16384}) CHECK(names.count(incumbent({problem, s}).name()) == 1);
      CHECK(space.candidates.front().distance == 0);
    }
  }

  TEST_CASE("8 bit has a class for V by rows and one for V^T, each with plans of its own and its own rows") {
    Grid grid;
    grid.dtypes = {DataType::e4m3}, grid.head_dims = {128}, grid.masks = {Mask::full}, grid.seqlens = {4096};
    const std::vector<ProblemClass> classes = classes_of(grid);
    REQUIRE(classes.size() == 2);
    CHECK(text_of(classes[1]) == "e4m3 d128 full vt");
    std::vector<Winner> winners;
    for (const ProblemClass& c : classes) {
      SpaceOptions near;
      near.distance = 1;
      const Space space = enumerate(c, grid.seqlens, near);
      CHECK(space.candidates.size() > 5);
      for (const Candidate& k : space.candidates) CHECK(k.config.problem.v_transposed == c.v_transposed);
      Winner w;
      w.cell = {c, 4096}, w.kernel = space.candidates.back().config.name(), w.tflops = 1, w.source = "s";
      winners.push_back(w);
    }
    const std::string text = table_text(merge({}, winners));
    CHECK(text.find("DataType::e4m3") != std::string::npos);
    CHECK(text.find(winners[0].kernel) != std::string::npos);
    CHECK(text.find(winners[1].kernel) != std::string::npos);
    tune::Timing t = final_row("k", 1, 2);
    t.v_transposed = true;
    tune::Timing back;
    REQUIRE(from_line(to_line(t), &back));
    CHECK(back.v_transposed);
    CHECK(back.kernel == "k");
    CHECK(back.seqlen == 1024);
  }

  TEST_CASE("--quick keeps what is one field apart; exclusions can be lifted") {
    SpaceOptions quick, everything;
    quick.distance = 1;
    everything.everything = true;
    const Space all = enumerate(d128, {16384}, {}), near = enumerate(d128, {16384}, quick);
    CHECK(near.candidates.size() > 5);
    CHECK(near.candidates.size() < 40);
    for (const Candidate& c : near.candidates) CHECK(c.distance <= 1);
    CHECK(enumerate(d128, {16384}, everything).candidates.size() > 2 * all.candidates.size());
    KernelConfig alone;
    REQUIRE(KernelConfig::parse("attn_fwd_bf16_d128_full__q64_kv64_s2__overlap_guarded2", &alone,
                                nullptr));
    CHECK(not_worth_trying(alone).rfind("one warpgroup", 0) == 0);
  }

  TEST_CASE("cut tiles and pairs of CTAs are offered where they are legal and have something to gain") {
    SpaceOptions near;
    near.distance = 1;
    const Space space = enumerate(d128, {512, 16384}, near);
    int cut = 0, paired = 0;
    for (const Candidate& c : space.candidates) {
      const Plan& p = c.config.plan;
      CHECK(gen::check_forward(c.config) == "");
      CHECK(p.direct_of_16 == 0);
      cut += p.split_tail, paired += p.cluster == 2;
      if (!p.split_tail) continue;
      // As far apart as the same kernel without, and that is there too.
      KernelConfig whole = c.config;
      whole.plan.split_tail = false;
      CHECK(std::any_of(space.candidates.begin(), space.candidates.end(), [&](const Candidate& other) {
        return other.config.name() == whole.name() && other.distance == c.distance;
      }));
    }
    CHECK(cut > 5);
    CHECK(paired > 0);
    for (const KernelConfig& today : {incumbent({d128, 16384})}) {
      KernelConfig with = today;
      with.plan.split_tail = true;
      CHECK(std::any_of(space.candidates.begin(), space.candidates.end(),
                        [&](const Candidate& c) { return c.config.name() == with.name() && c.distance == 0; }));
    }
    CHECK(has(enumerate({DataType::e4m3, 128, 128, Mask::full}, {1024}, near).illegal, "cluster # is for kernels with a producer"));
    int causal_pairs = 0;
    for (const Candidate& c : enumerate({DataType::bf16, 128, 128, Mask::causal}, {16384}, near).candidates) {
      if (c.config.plan.cluster == 1) continue;
      ++causal_pairs;
      CHECK(c.config.plan.dynamic_tiles);
      CHECK(gen::check_forward(c.config) == "");
    }
    CHECK(causal_pairs > 0);
    // 132 tiles of one wave: nothing to cut. One tile a head: no pair.
    SpaceOptions full_wave = near;
    full_wave.tokens = 192 * 132, full_wave.hidden = 128, full_wave.warpgroups = {3};
    const Space none = enumerate(d128, {192}, full_wave);
    CHECK(has(none.excluded, "cut tiles where no cell has any"));
    CHECK(has(none.excluded, "pairs of CTAs where a head has one tile"));
    for (const Candidate& c : none.candidates) CHECK((!c.config.plan.split_tail && c.config.plan.cluster == 1));
    const Space narrow = enumerate({DataType::bf16, 64, 64, Mask::full}, {16384}, near);
    CHECK(has(narrow.excluded, "pairs of CTAs at head_dim up to 64"));
    for (const Candidate& c : narrow.candidates) CHECK(c.config.plan.cluster == 1);
    for (const Candidate& c : enumerate(d64, {512, 16384}, near).candidates)
      CHECK((!c.config.plan.split_tail && c.config.plan.cluster == 1));
  }

  TEST_CASE("a late store is offered one field apart, where it is legal") {
    SpaceOptions near;
    near.distance = 1, near.softmaxes = {Softmax::guarded};
    const ProblemClass narrow{DataType::bf16, 64, 64, Mask::full};
    const Space space = enumerate(narrow, {1024}, near);
    const KernelConfig today = incumbent({narrow, 1024});
    int others = 0;
    for (const Candidate& c : space.candidates) {
      if (c.config.plan.late_store == today.plan.late_store) continue;
      ++others;
      CHECK(gen::check_forward(c.config) == "");
      KernelConfig turned = c.config;
      turned.plan.late_store = today.plan.late_store;
      CHECK(turned.name() == today.name());
      CHECK(c.distance == 1);
    }
    CHECK(others == 1);
    CHECK(has(space.illegal, "late_store is for"));
    CHECK(has(space.illegal, "schedule \"trailing\" has no P V in flight"));
    for (const Candidate& c : enumerate({DataType::e4m3, 64, 64, Mask::full}, {1024}, {}).candidates) CHECK_FALSE(c.config.plan.late_store);
  }

  TEST_CASE("two teams are offered in 16 bit, where they are legal") {
    SpaceOptions near;
    near.distance = 2, near.softmaxes = {Softmax::guarded};
    const Space space = enumerate({DataType::bf16, 64, 64, Mask::causal}, {2048}, near);
    int in_teams = 0;
    for (const Candidate& c : space.candidates) {
      in_teams += c.config.plan.teams == 2;
      CHECK(gen::check_forward(c.config) == "");
    }
    CHECK(in_teams > 0);
    CHECK(has(space.illegal, "teams # is for"));
    for (const Candidate& c : enumerate({DataType::e4m3, 64, 64, Mask::full}, {1024}, {}).candidates) CHECK(c.config.plan.teams == 1);
  }

  TEST_CASE("kernels of fast mode are offered where it is asked for, and then nothing else") {
    ProblemClass problem{DataType::e4m3, 128, 128, Mask::full};
    problem.v_transposed = true;
    SpaceOptions o;
    o.distance = 1;
    for (const Candidate& c : enumerate(problem, {4096}, o).candidates) CHECK(c.config.plan.direct_of_16 == 0);
    o.fast = true;
    const Space space = enumerate(problem, {8192}, o);
    CHECK(space.fast);
    std::set<int> words;
    bool cut = false;
    for (const Candidate& c : space.candidates) {
      words.insert(c.config.plan.direct_of_16);
      cut |= c.config.plan.split_tail;
    }
    CHECK(words == std::set<int>{8, 10, 12, 14});
    CHECK(cut);
    CHECK(has(space.excluded, "no direct words"));
    CHECK(has(space.excluded, "fewer than 8"));
    CHECK(has(space.excluded, "more direct words than the host takes"));
    CHECK(space.candidates.front().config.name() == incumbent({problem, 8192, true}).name());
    int left_out = 0;
    for (const Candidate& c : space.candidates)  // a plan of today may have fewer checked blocks than the loops
      left_out -= c.config.plan.guard_blocks != checked_blocks(c.config.plan.tile_kv, true);
    for (const auto* list : {&space.illegal, &space.excluded})
      for (const Exclusion& e : *list) left_out += e.count;
    CHECK(space.looked_at == left_out + static_cast<int>(space.candidates.size()));
    // 16 bits have none.
    CHECK(enumerate(d128, {4096}, o).candidates.empty());
    // Where sums are in two levels there is no fast mode: today's choice is no candidate.
    const ProblemClass by_rows{DataType::e4m3, 256, 256, Mask::full};
    for (const Candidate& c : enumerate(by_rows, {16384}, o).candidates) CHECK(c.config.plan.direct_of_16 != 0);
  }

  TEST_CASE("the emulator is asked about cut tiles, late stores, pairs and direct words, and cuts") {
    for (const char* name : {"attn_fwd_bf16_d64_full__q256_kv64_s4_qs2__overlap_pp_guarded2_ob_tail",
                             "attn_fwd_f16_d64_causal__q256_kv64_s4_qs2__overlap_pp_guarded2_dyn_ob_late",
                             "attn_fwd_bf16_d128_full__q192_kv64_s3_qs2__overlap_pp_guarded1_tail",
                             "attn_fwd_bf16_d128_full__q128_kv128_s2_qs2__trailing_pp_guarded1_c2",
                             "attn_fwd_bf16_d128_causal__q192_kv64_s3_qs2__overlap_pp_guarded1_dyn_c2",
                             "attn_fwd_e4m3_d64_full_vt__q192_kv128_s3_qs2__overlap_guarded3_fast8_dyn_ob"}) {
      KernelConfig config;
      std::string error;
      REQUIRE_MESSAGE(KernelConfig::parse(name, &config, &error), error);
      CHECK_MESSAGE(emulator_doubts(config) == "", name);
    }
    // What it runs has tiles to cut, whatever the rows of a tile.
    ForwardProblem p;
    p.batch = 1, p.heads_q = 2, p.heads_kv = 1, p.seqlen_q = emulated_rows, p.seqlen_k = 351, p.head_dim = 64;
    for (int warpgroups = 1; warpgroups <= 4; ++warpgroups)
      for (int keys : {32, 128, 256}) {
        KernelConfig c{{DataType::bf16, 64, 64, Mask::full}, {}};
        c.plan.warpgroups = warpgroups, c.plan.tile_kv = keys;
        CHECK(emulated_multiprocessors(c) == 2);
        c.plan.split_tail = true;
        CHECK(split_tail(p, c, emulated_multiprocessors(c), true).parts > 0);
      }
  }

  TEST_CASE("lines come back as they were written, torn ones are ignored") {
    test::ScratchFolder folder;
    tune::Timing t = final_row("k", 0.5, 700.25);
    t.note = "a, b\nc", t.samples = 22, t.ms_median = 0.125, t.batch = 3, t.heads = 4;
    Assembly a{"k", "h", "13.0", "ok", 168, 0, 0, 1.5};
    {
      WorkFolder work(folder.path("w"));
      work.append(t), work.append(a);
    }
    const std::string path = folder.path("w/timings.csv"), whole = test::read_file(path);
    test::write_file(path, whole + to_line(t).substr(0, 60));
    {
      WorkFolder work(folder.path("w"));
      REQUIRE(work.timings().size() == 1);
      const tune::Timing& back = work.timings()[0];
      CHECK(back.note == "a; b;c");
      CHECK(back.ms_median == 0.125);
      CHECK(back.kernel == "k");
      CHECK(back.heads == 4);
      CHECK(work.newest_assembler() == "13.0");
      Assembly found;
      CHECK_FALSE(work.find("h", "13.0", &found));  // said to be ok, but its cubin is gone
      work.append(t);                               // goes on a line of its own
    }
    CHECK(WorkFolder(folder.path("w")).timings().size() == 2);
  }

  TEST_CASE("an assembler's complaints drop the kernel, and none is assembled twice") {
    const auto verdict = [](const std::string& log, int* runs) {
      test::ScratchFolder folder;
      const KernelConfig config = incumbent({d64, 512});
      const std::string entry =
          "ptxas info : Compiling entry function '" + config.name() + "' for 'sm_90a'";
      const std::string ptxas = fake_assembler(folder, "echo \"" + entry + "\"\n" + log);
      WorkFolder work(folder.path("w"));
      AssembleReport r;
      for (int i = 0; i < 2; ++i) r = assemble_all(work, {{config, 0}}, ptxas, 2, false);
      CHECK(r.reused == 1);
      CHECK(r.dropped == 1);
      const std::string lines = test::read_file(folder.path("runs"));
      *runs = static_cast<int>(std::count(lines.begin(), lines.end(), '\n'));
      Assembly a;
      REQUIRE(work.find(text_hash(emit(config).text), "1.2.3", &a));
      return a.verdict;
    };
    int runs = 0;
    CHECK(verdict("echo '0 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads'", &runs) ==
          "spills");
    CHECK(runs == 1);
    CHECK(verdict("echo '16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads'",
                  &runs) == "local memory");
    CHECK(verdict("echo 'ptxas info : (C7510) Potential Performance Loss'", &runs)
              .rfind("remark: ", 0) == 0);
    CHECK(verdict("exit 1", &runs).rfind("ptxas failed", 0) == 0);
    CHECK(verdict("true", &runs) == "setmaxnreg dropped");  // not machine code at all
  }

  TEST_CASE("a kernel that the emulator finds right is kept, with a real assembler") {
    if (test::ptxas().empty())
      FLASHPTX_SKIP("no ptxas ($CUDA_HOME, PATH, /usr/local/cuda, build/cuda)");
    test::ScratchFolder folder;
    WorkFolder work(folder.path("w"));
    const KernelConfig config = incumbent({d64, 512});
    const AssembleReport r = assemble_all(work, {{config, 0}}, test::ptxas(), 1, true);
    CHECK(r.kept == 1);
    const std::string version = assembler_version(test::ptxas());
    CHECK(test::read_file(work.cubin_path(text_hash(emit(config).text), version)).size() > 10000);
  }

  TEST_CASE("halving finds the fastest, verifies it, logs it, and a second run times nothing") {
    test::ScratchFolder folder;
    Grid grid;
    grid.dtypes = {DataType::bf16}, grid.head_dims = {64}, grid.masks = {Mask::causal},
    grid.seqlens = {128};
    grid.tokens = 128, grid.hidden = 64;
    SpaceOptions few;
    few.distance = 1, few.tile_kv = {32, 48, 64};
    const std::vector<std::pair<ProblemClass, Space>> spaces = {
        {d64, enumerate(d64, grid.seqlens, few)}};
    TimeOptions options;
    options.jit = true;
    const std::string today = incumbent({d64, 128}).name();
    Winner w;
    {
      PretendedGpu gpu;
      WorkFolder work(folder.path("w"));
      REQUIRE(time_cells(gpu, work, grid, spaces, options).ok());
      CHECK(gpu.timed > 10);
      CHECK(work.left_running().empty());
      w = winner_of(work.timings(), {d64, 128}, today, 0.005);
    }
    CHECK(w.problem == "");
    CHECK(w.kernel.find("_kv48_") != std::string::npos);
    CHECK(w.today_tflops == doctest::Approx(w.tflops / 1.2));
    PretendedGpu gpu;
    WorkFolder work(folder.path("w"));
    const std::size_t before = work.timings().size();
    REQUIRE(time_cells(gpu, work, grid, spaces, options).ok());
    CHECK(gpu.timed == 0);
    CHECK(work.timings().size() == before);
    // What an earlier process left in running.txt, alone, is never run again.
    KernelConfig bad;
    REQUIRE(KernelConfig::parse(w.kernel, &bad, nullptr));
    work.set_running({text_hash(emit(bad).text)});
    REQUIRE(time_cells(gpu, work, grid, spaces, options).ok());
    CHECK(std::any_of(work.timings().begin() + static_cast<std::ptrdiff_t>(before),
                      work.timings().end(),
                      [&](const tune::Timing& t) { return t.note.rfind("dropped: ", 0) == 0; }));
    CHECK(std::none_of(work.timings().begin() + static_cast<std::ptrdiff_t>(before),
                       work.timings().end(),
                       [&](const tune::Timing& t) { return t.kernel == w.kernel && t.ratio > 0; }));
    CHECK(winner_of(work.timings(), {d64, 128}, today, 0.005).kernel == today);
  }

  TEST_CASE("a kernel is timed with its tiles cut where the host cuts, with a workspace; in the last stage also whole") {
    test::ScratchFolder folder;
    const ProblemClass problem{DataType::bf16, 64, 64, Mask::full};
    Grid grid;
    grid.dtypes = {DataType::bf16}, grid.head_dims = {64}, grid.masks = {Mask::full}, grid.seqlens = {256, 4096};
    grid.tokens = 4096, grid.hidden = 64;
    SpaceOptions few;
    few.distance = 1, few.tile_kv = {64}, few.schedules = {"overlap"}, few.warpgroups = {4}, few.softmaxes = {Softmax::guarded};
    few.tokens = grid.tokens, few.hidden = grid.hidden;
    const Space space = enumerate(problem, grid.seqlens, few);
    TimeOptions options;
    options.jit = true;
    NothingRuns gpu;
    WorkFolder work(folder.path("w"));
    REQUIRE(time_cells(gpu, work, grid, {{problem, space}}, options).ok());
    const std::string today = incumbent({problem, 4096}).name();
    KernelConfig cut;
    REQUIRE(KernelConfig::parse(today, &cut, nullptr));
    cut.plan.split_tail = true;
    int with_tail = 0, whole_early = 0, whole_last = 0;
    for (const tune::Timing& t : work.timings()) {
      const bool is_cut = t.kernel.find("_tail") != std::string::npos;
      if (t.seqlen == 256) CHECK_FALSE(is_cut);  // 16 tiles of four blocks: the host leaves them whole
      if (t.seqlen != 4096 || t.ratio <= 0) continue;
      with_tail += is_cut;
      if (t.kernel != today) (t.stage == "final" ? whole_last : whole_early) += !is_cut;
    }
    CHECK(with_tail > 10);
    CHECK(whole_early == 0);
    CHECK(whole_last >= 2);
    ForwardProblem p;
    p.batch = p.heads_q = p.heads_kv = 1, p.seqlen_q = p.seqlen_k = 4096, p.head_dim = 64;
    CHECK(gpu.allocated.count(split_tail(p, cut, 132).workspace_bytes) > 0);
    // Nothing ran, so nothing is right; said to be, cut tiles win a row without _tail.
    CHECK(winner_of(work.timings(), {problem, 4096}, today, 0.005).problem != "");
    for (tune::Timing t : std::vector<tune::Timing>(work.timings()))
      if (t.stage == "final") t.stage = "verify", t.note = "ok", work.append(t);
    const Winner w = winner_of(work.timings(), {problem, 4096}, today, 0.005);
    CHECK(w.problem == "");
    CHECK(w.kernel == today);
    CHECK(w.cut_tflops == doctest::Approx(1.1 * w.whole_tflops));
    CHECK(w.tflops == w.cut_tflops);
  }

  TEST_CASE("a kernel counts with its tiles cut where they were; a row never says so, nor has fast mode rows") {
    const std::string x = "attn_fwd_bf16_d128_full__q192_kv64_s3_qs2__overlap_pp_guarded1", xt = x + "_tail";
    const std::string y = "attn_fwd_bf16_d128_full__q128_kv128_s2_qs2__trailing_pp_guarded1";
    const Cell cell{d128, 1024};
    CHECK(whole_kernel(xt) == x);
    CHECK(whole_kernel(x) == x);
    CHECK(whole_kernel("no kernel_tail") == "no kernel_tail");
    std::vector<tune::Timing> log = {final_row(x, 1, 600), final_row(xt, 0.95, 630), final_row(y, 0.97, 618)};
    for (const std::string& k : {x, xt, y}) log.push_back(final_row(k, 1, 0, "verify"));
    Winner w = winner_of(log, cell, y, 0.005);
    CHECK(w.kernel == x);
    CHECK((w.tflops == 630 && w.cut_tflops == 630 && w.whole_tflops == 600));
    CHECK((w.runner_up == y && w.runner_up_tflops == 618 && w.today_tflops == 618));
    CHECK(w.source == "card, driver 580, ptxas 13.0.88, 2025-01-02, tiles of the last wave cut");
    const std::string text = table_text(merge({}, {w}));
    CHECK(text.find(x + "\"") != std::string::npos);
    CHECK(text.find(xt) == std::string::npos);
    // The host cuts by its rule, faster or not: a slower cut counts as well.
    log[1] = final_row(xt, 1.05, 570);
    w = winner_of(log, cell, x, 0.005);
    CHECK((w.kernel == y && w.today_tflops == 570));
    // And one that is wrong cannot win by being right whole.
    log[1] = final_row(xt, 0.9, 660), log[4].note = "wrong: element 3";
    CHECK(winner_of(log, cell, y, 0.005).kernel == y);

    const std::string f = "attn_fwd_e4m3_d128_full_vt__q192_kv128_s3_qs2__serial_pp_guarded3_fast12_dyn_ob";
    ProblemClass problem{DataType::e4m3, 128, 128, Mask::full};
    problem.v_transposed = true;
    std::vector<tune::Timing> fast = {final_row(f, 0.9, 1100), final_row(f, 1, 0, "verify")};
    for (tune::Timing& t : fast) t.dtype = "e4m3", t.v_transposed = true;
    CHECK(winner_of(fast, {problem, 1024}, f, 0.005).problem != "");  // it competes only in its own class
    w = winner_of(fast, {problem, 1024, true}, f, 0.005);
    CHECK((w.kernel == f && w.tflops == 1100));
    CHECK(merge({}, {w}).empty());
  }

  TEST_CASE("only verified kernels win, and today's stays unless the gain is worth it") {
    const Cell cell{d128, 1024};
    std::vector<tune::Timing> log = {final_row("today", 1, 600), final_row("fast", 0.9, 660),
                               final_row("near", 0.997, 602), final_row("today", 1, 600, "verify")};
    CHECK(winner_of(log, cell, "today", 0.005).kernel == "today");  // the others are not verified
    log.push_back(final_row("near", 1, 0, "verify"));
    CHECK(winner_of(log, cell, "today", 0.005).kernel == "today");  // 0.3 % is not enough
    CHECK(winner_of(log, cell, "today", 0.001).kernel == "near");
    log.push_back(final_row("fast", 1, 0, "verify"));
    const Winner w = winner_of(log, cell, "today", 0.005);
    CHECK(w.kernel == "fast");
    CHECK(w.runner_up == "near");
    CHECK(w.today_tflops == 600);
    CHECK(w.source == "card, driver 580, ptxas 13.0.88, 2025-01-02");
    log.back().note = "wrong: element 3";
    CHECK(winner_of(log, cell, "today", 0.005).kernel == "today");
    CHECK(winner_of(log, {d128, 2048}, "today", 0.005).problem != "");
  }

  TEST_CASE("winners replace their class; boundaries are geometric means") {
    Winner w;
    w.cell = {d128, 512}, w.kernel = "x", w.tflops = 1, w.source = "s";
    std::vector<Winner> winners = {w};
    w.cell.seqlen = 2048, w.kernel = "y";
    winners.push_back(w);
    w.cell = {{DataType::bf16, 96, 96, Mask::full}, 1024}, w.kernel = "z";
    winners.push_back(w);
    const std::vector<TableRow> before = rows_of_rules(), rows = merge(before, winners);
    std::vector<TableRow> mine, others;
    for (const TableRow& r : rows)
      (r.dtype == DataType::bf16 && r.mask == Mask::full && r.head_dim_max > 64 &&
               r.head_dim_max <= 128
           ? mine
           : others)
          .push_back(r);
    REQUIRE(mine.size() == 3);
    CHECK((mine[0].kernel == "z" && mine[0].head_dim_min == 65 && mine[0].seqlen_min == 1 &&
           mine[0].seqlen_max == INT64_MAX));
    CHECK((mine[1].kernel == "x" && mine[1].head_dim_min == 97 && mine[1].seqlen_min == 1 &&
           mine[1].seqlen_max == 1024));
    CHECK((mine[2].kernel == "y" && mine[2].head_dim_min == 97 && mine[2].seqlen_min == 1025 &&
           mine[2].seqlen_max == INT64_MAX));
    CHECK(others.size() == before.size() - 4);  // bf16's two plain rows, and f16's, which would hide what was measured
    CHECK(table_text(merge(rows, {})) == table_text(rows));
  }

  TEST_CASE("the table written from the rules chooses what the rules choose") {
    const std::vector<TableRow> owned = rows_of_rules();
    std::vector<MeasuredRow> rows;
    for (const TableRow& r : owned)
      rows.push_back({r.dtype, r.mask, r.head_dim_min, r.head_dim_max, r.seqlen_min, r.seqlen_max,
                      r.kernel.c_str(), 0, 0, "", 0, r.source.c_str()});
    for (DataType dtype : {DataType::f16, DataType::bf16})
      for (Mask mask : {Mask::full, Mask::causal})
        for (int d = 8; d <= 256; d += 8)
          for (int dv : {0, 64, 128, 256})
            for (std::int64_t s : {1, 1448, 1449, 2896, 2897, 5792, 5793, 100000}) {
              ForwardProblem p;
              p.dtype = dtype, p.mask = mask, p.head_dim = d, p.head_dim_v = dv;
              p.batch = p.heads_q = p.heads_kv = 1, p.seqlen_q = s, p.seqlen_k = 77;
              Selection by_table, by_rules;
              REQUIRE(select_among(rows, p, &by_table).ok());
              REQUIRE(select_among({}, p, &by_rules).ok());
              CHECK(by_table.config.name() == by_rules.config.name());
              CHECK(by_table.reason == by_rules.reason);
            }
  }
}
