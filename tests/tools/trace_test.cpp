// Marks in kernels, the timing model, and what is drawn of both.
// Next: tools/flashptx/trace.h, gen/trace_events.h.
#include "tools/flashptx/trace.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gen/kernels/attention_forward.h"
#include "tests/support.h"
#include "tools/flashptx/trace_lanes.h"
#include "tools/flashptx/trace_run.h"

using namespace flashptx;

namespace {

KernelConfig small(const char* schedule, Mask mask, Softmax softmax) {
  KernelConfig c;
  c.problem = {DataType::bf16, 64, 64, mask};
  c.plan.warpgroups = 2, c.plan.tile_kv = 64, c.plan.kv_stages = 2, c.plan.q_stages = 2;
  c.plan.schedule = schedule, c.plan.softmax = softmax;
  return c;
}

reference::Problem shape(const KernelConfig& c, int seqlen, int heads) {
  reference::Problem p;
  p.dtype = c.problem.dtype, p.mask = c.problem.mask;
  p.batch = 1, p.heads_q = p.heads_kv = heads;
  p.seqlen_q = p.seqlen_k = seqlen;
  p.head_dim = p.head_dim_v = c.problem.head_dim;
  p.scale = 0.125f;
  return p;
}

// Runs on an emulator of two multiprocessors: each CTA walks several tiles.
Status marks_of(const KernelConfig& c, int seqlen, int heads, std::uint32_t capacity,
                std::uint64_t seed, Trace* out, Marks marks = Marks::all) {
  EmulatorOptions options;
  options.seed = seed, options.adversary_level = seed ? 2 : 0, options.multiprocessors = 2;
  std::unique_ptr<Device> device;
  if (Status s = open_emulator(options, &device); !s.ok()) return s;
  TraceCost unused;
  return run_trace(*device, c, marks, shape(c, seqlen, heads), capacity, out, &unused);
}

std::string events_at(const std::vector<TraceSpan>& spans, std::uint32_t position) {
  std::string out;
  for (const TraceSpan& s : spans)
    if (s.position == position) out += std::string(out.empty() ? "" : " ") + to_string(s.event);
  return out;
}

// What Perfetto's importer would object to: it keeps int64(us * 1000) of ts and of dur.
std::string perfetto_complaint(const std::string& json) {
  struct Track {
    bool named = false;
    std::int64_t end = 0, last = -1;
    double end_us = 0;
  };
  std::map<std::pair<int, int>, Track> tracks;
  std::size_t slices = 0;
  const nlohmann::json parsed = nlohmann::json::parse(json);
  for (const auto& e : parsed["traceEvents"]) {
    Track& t = tracks[{e["pid"].get<int>(), e["tid"].get<int>()}];
    if (e["ph"] == "M") t.named |= e["name"] == "thread_name";
    if (e["ph"] != "X") continue;
    const double us = e["ts"], length_us = e["dur"];
    const auto ts = static_cast<std::int64_t>(us * 1000), dur = static_cast<std::int64_t>(length_us * 1000);
    const std::string what = e.dump();
    if (!t.named) return "no name of its track before " + what;
    if (us < 0 || ts < t.last) return "goes back in time: " + what;
    if (ts < t.end || us < t.end_us - 1e-6) return "begins before its neighbour ends: " + what;
    t.last = ts, t.end = ts + dur, t.end_us = us + length_us, ++slices;
  }
  return slices > 20 ? "" : "only " + std::to_string(slices) + " slices";
}

const char* const kOverlapTrip =
    "k_full_wait token_wait qk v_full_wait pv wait_qk mask_max exp_sum wait_pv rescale_o pack_p";

}  // namespace

TEST_SUITE("tools/trace") {
  TEST_CASE("a kernel that passes no token is drawn without its steps") {
    KernelConfig c = small("serial", Mask::full, Softmax::plain);
    const Trace with = model_trace(c, 6);
    CHECK(trace_svg(with, with, 3).find(">token_pass<") != std::string::npos);
    c.plan.ping_pong = false;
    const Trace without = model_trace(c, 6);
    CHECK(trace_svg(without, without, 3).find(">token_") == std::string::npos);
    CHECK(emit(c).text.find("token_pass") == std::string::npos);
  }

  TEST_CASE("kernels with marks at head_dim 128 spill nothing") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas");
    for (KernelConfig c : catalog())
      for (Marks marks : {Marks::few, Marks::all}) {
        if (c.problem.head_dim != 128 || c.problem.dtype != DataType::bf16) continue;
        c.plan.trace = marks;
        CAPTURE(c.name());
        test::Assembled a = test::assemble(emit(c).text);
        REQUIRE_MESSAGE(a.ok, a.log);
        CHECK(a.spill_bytes == 0);
        CHECK(a.stack_bytes == 0);
        CHECK(a.log.find("C75") == std::string::npos);
      }
  }

  TEST_CASE("in FP8 few marks cost no spill; all of them few bytes around a tile, with V^T given none") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas");
    for (KernelConfig c : catalog())
      for (Marks marks : {Marks::few, Marks::all}) {
        if (!c.problem.eight_bit() || c.problem.mask == Mask::causal || c.plan.two_level) continue;
        if (marks == Marks::all && (c.plan.fold_blocks || c.problem.head_dim < 128)) continue;
        c.plan.trace = marks;
        CAPTURE(c.name());
        const test::Assembled a = test::assemble(emit(c).text);
        REQUIRE_MESSAGE(a.ok, a.log);
        CHECK(a.spill_bytes <= (marks == Marks::few || c.problem.v_transposed ? 0 : 32));
        if (marks == Marks::few) CHECK(a.stack_bytes == 0);
      }
  }

  TEST_CASE(
      "marks off: no parameter, no clock; on: two parameters at the end and a name that says so") {
    KernelConfig c = small("overlap", Mask::full, Softmax::lazy);
    CHECK(emit(c).text.find("%clock") == std::string::npos);
    c.plan.trace = Marks::all;
    EmittedKernel k = emit(c);
    CHECK(k.facts.entry == "attn_fwd_bf16_d64_full__q128_kv64_s2_qs2__overlap_pp_lazy8_trace");
    REQUIRE(k.facts.params.size() > 2);
    CHECK(k.facts.params[k.facts.params.size() - 2].name == "trace");
    CHECK(k.facts.params.back().name == "trace_capacity");
    KernelConfig back;
    std::string error;
    REQUIRE(KernelConfig::parse(c.name(), &back, &error));
    CHECK(back.plan.trace == Marks::all);
    c.plan.trace = Marks::few;
    CHECK(c.name().ends_with("_tracefew"));
    REQUIRE(KernelConfig::parse(c.name(), &back, &error));
    CHECK(back.plan.trace == Marks::few);
  }

  TEST_CASE("a steady trip leaves the table's steps in order, under every order of the emulator") {
    for (std::uint64_t seed : {0u, 3u, 4u}) {
      Trace t;
      Status s = marks_of(small("overlap", Mask::full, Softmax::lazy), 320, 2, 2048, seed, &t);
      REQUIRE_MESSAGE(s.ok(), s.message);
      CHECK(t.lost == 0);
      REQUIRE(t.ctas.size() == 2);
      for (const CtaTrace& c : t.ctas) {
        REQUIRE(c.roles.size() == 3);
        CHECK(c.roles[0].back().event == TraceEvent::done);
        for (std::size_t r = 1; r < 3; ++r) {
          CHECK(c.roles[r].back().event == TraceEvent::done);
          for (std::uint32_t trip = 1; trip < 5; ++trip)
            CHECK(events_at(c.roles[r], trip) == kOverlapTrip);
        }
      }
    }
  }

  TEST_CASE(
      "every kind of kernel leaves complete marks: masks, schedules, guarded tiles that are "
      "redone, late stores") {
    int late = 0;
    for (const char* schedule : {"overlap", "serial", "trailing", "rotated"})
      for (Mask mask : {Mask::full, Mask::causal})
        for (int kind = 0; kind < 3; ++kind) {
          KernelConfig c = small(schedule, mask, kind == 0 ? Softmax::plain : Softmax::guarded);
          c.plan.dynamic_tiles = mask == Mask::causal;
          c.plan.o_own_buffer = c.plan.late_store = kind == 2;
          if (!gen::check_forward(c).empty()) continue;
          late += c.plan.late_store;
          CAPTURE(c.name());
          for (Marks marks : {Marks::few, Marks::all}) {
            Trace t;
            Status s = marks_of(c, 200, 3, 4096, 7, &t, marks);
            REQUIRE_MESSAGE(s.ok(), s.message);
            CHECK(t.lost == 0);
            for (const CtaTrace& cta : t.ctas)
              for (const auto& role : cta.roles) CHECK(role.back().event == TraceEvent::done);
          }
        }
    CHECK(late == 4);  // overlap and rotated
  }

  TEST_CASE("few marks: three or four of a steady trip, in the schedule's order, and products that end where the waits are") {
    for (const auto& [schedule, softmax] : {std::pair{"overlap", Softmax::plain}, {"serial", Softmax::plain}, {"trailing", Softmax::plain},
                                            {"overlap", Softmax::guarded}, {"serial", Softmax::guarded}}) {
      const KernelConfig c = small(schedule, Mask::full, softmax);
      CAPTURE(c.name());
      CHECK(trace_trip_events(c).size() == (softmax == Softmax::guarded ? 3 : 4));
      Trace few, all;
      REQUIRE(marks_of(c, 320, 2, 2048, 3, &few, Marks::few).ok());
      REQUIRE(marks_of(c, 320, 2, 2048, 3, &all, Marks::all).ok());
      CHECK(few.lost == 0);
      std::string wanted;
      for (TraceEvent e : trace_trip_events(c)) wanted += std::string(wanted.empty() ? "" : " ") + to_string(e);
      for (const CtaTrace& cta : few.ctas)
        for (std::size_t r = 1; r < 3; ++r)
          for (std::uint32_t trip = 1; trip < 5; ++trip) CHECK(events_at(cta.roles[r], trip) == wanted);
      CHECK(summarise(few).trips == summarise(all).trips);
      CHECK(few.ctas[0].in_flight.size() == all.ctas[0].in_flight.size());
      // The softmax of `serial` runs under no product of its own, that of `overlap` under P V.
      const double own = summarise(few).overlap_own;
      CHECK((std::string(schedule) == "overlap" ? own > 0.3 : own < 0.1));
    }
  }

  TEST_CASE("8 bit: the transposing warp has a lane, its blocks in order, and the model has it too") {
    for (bool v_transposed : {false, true})
      for (Marks marks : {Marks::few, Marks::all}) {
        KernelConfig c = small("serial", Mask::full, Softmax::plain);
        c.problem.dtype = DataType::e4m3, c.problem.v_transposed = v_transposed;
        c.plan.tile_kv = 128, c.plan.o_own_buffer = true;
        CAPTURE(c.name());
        Trace t;
        const Status s = marks_of(c, 600, 2, 2048, 5, &t, marks);
        REQUIRE_MESSAGE(s.ok(), s.message);
        CHECK(t.lost == 0);
        const Trace model = model_trace(c, 8);
        CHECK(summarise(model).trips > 3);
        for (const Trace* one : std::initializer_list<const Trace*>{&t, &model})
          for (const CtaTrace& cta : one->ctas) {
            if (one == &t && marks == Marks::few) {
              CHECK(cta.transposer.empty());
              continue;
            }
            CHECK(cta.transposer.empty() == v_transposed);
            std::uint32_t next = 0;
            for (const TraceSpan& span : cta.transposer)
              if (span.event == TraceEvent::transpose) CHECK(span.position == next++);
            CHECK((v_transposed || next >= 5));
          }
        if (!v_transposed && marks == Marks::all) CHECK(trace_svg(t, t, 3).find("transposing warp") != std::string::npos);
        Trace back;
        CHECK(read_trace_csv(trace_csv(t), c, &back) == "");
        CHECK(trace_csv(back) == trace_csv(t));
      }
  }

  TEST_CASE("few marks where V is transposed in the kernel: of a trip the consumers' three, K's and Q's load, none of the transposing warps") {
    const auto transposers_marks = [](const KernelConfig& c) {
      const std::string text = emit(c).text;
      const std::size_t from = text.find("== V to V^T");
      REQUIRE(from != std::string::npos);
      return text.find("%clock", from) != std::string::npos || text.find("%globaltimer", from) != std::string::npos;
    };
    std::size_t seen = 0;
    for (KernelConfig c : catalog()) {
      if (!c.problem.eight_bit() || c.problem.v_transposed) continue;
      CAPTURE(c.name());
      const EmittedKernel unmarked = emit(c);
      c.plan.trace = Marks::few;
      const EmittedKernel few = emit(c);
      CHECK(few.facts.producer_registers == unmarked.facts.producer_registers);
      CHECK(few.facts.consumer_registers == unmarked.facts.consumer_registers);
      CHECK(trace_trip_events(c).size() == 3);
      CHECK_FALSE(transposers_marks(c));
      c.plan.trace = Marks::all;
      CHECK(transposers_marks(c));
      ++seen;
    }
    CHECK(seen > 0);
    KernelConfig c = small("serial", Mask::causal, Softmax::guarded);
    c.problem.dtype = DataType::e4m3, c.plan.tile_kv = 128, c.plan.o_own_buffer = true, c.plan.dynamic_tiles = true;
    Trace t;
    const Status s = marks_of(c, 600, 3, 2048, 5, &t, Marks::few);
    REQUIRE_MESSAGE(s.ok(), s.message);
    CHECK(t.lost == 0);
    std::size_t all_tiles = 0;
    for (const CtaTrace& cta : t.ctas) {
      CHECK(cta.transposer.empty());
      std::uint32_t blocks = 0, tiles = 0;
      for (const TraceSpan& span : cta.roles[0]) {
        if (span.event == TraceEvent::k_load) CHECK(span.position == blocks++);
        else if (span.event == TraceEvent::q_load) CHECK(span.position == tiles++);
        else CHECK(span.event == TraceEvent::done);
      }
      CHECK(cta.roles[0].back().event == TraceEvent::done);
      CHECK(blocks > tiles);
      CHECK(cta.loads.size() == blocks);
      all_tiles += tiles;
    }
    CHECK(all_tiles == 15);
  }

  TEST_CASE("8 bit in the model: half the bytes, and wgmma of twice the depth in the same clocks") {
    KernelConfig c = small("serial", Mask::full, Softmax::plain);
    c.plan.tile_kv = 128;
    const int sixteen = product_clocks(c, false) + product_clocks(c, true);
    c.problem.dtype = DataType::e4m3;
    CHECK(2 * (product_clocks(c, false) + product_clocks(c, true)) == sixteen);
  }

  TEST_CASE("a buffer that is too small loses marks, counts them and is not left") {
    Trace t;
    Status s = marks_of(small("overlap", Mask::full, Softmax::plain), 320, 2, 13, 0, &t);
    REQUIRE_MESSAGE(s.ok(), s.message);  // run_trace checks the guard bytes
    CHECK(t.lost > 13);
    for (const CtaTrace& c : t.ctas)
      for (const auto& role : c.roles) CHECK(role.size() <= 39);
  }

  TEST_CASE("a symmetric kernel: thread 0's loads are marks of warpgroup 0, and each load is seen later") {
    KernelConfig c = small("overlap", Mask::full, Softmax::plain);
    c.plan.symmetric = true, c.plan.ping_pong = false, c.plan.q_stages = 1;
    for (std::uint64_t seed : {0u, 5u}) {
      Trace t;
      Status s = marks_of(c, 320, 2, 4096, seed, &t);
      REQUIRE_MESSAGE(s.ok(), s.message);
      CHECK(t.lost == 0);
      for (const CtaTrace& cta : t.ctas) {
        REQUIRE(cta.roles.size() == 3);
        CHECK(cta.roles[0].empty());
        CHECK(events_at(cta.roles[1], 2) == std::string("k_empty_wait k_load v_empty_wait v_load k_full_wait qk v_full_wait "
                                                        "pv wait_qk mask_max exp_sum wait_pv rescale_o pack_p"));
        CHECK(events_at(cta.roles[2], 2).find("k_load") == std::string::npos);
        CHECK(cta.loads.size() == 2 * 5 * 3);  // K and V, five blocks, three of six tiles
        for (const Flight& f : cta.loads) CHECK(f.stop > f.start);
      }
    }
  }

  TEST_CASE("loads of the producer end when the block is first seen") {
    Trace t;
    Status s = marks_of(small("overlap", Mask::full, Softmax::plain), 320, 2, 2048, 0, &t);
    REQUIRE_MESSAGE(s.ok(), s.message);
    for (const CtaTrace& cta : t.ctas)
      for (bool v : {false, true}) {
        std::uint32_t next = 0;
        for (const Flight& f : cta.loads)
          if (f.pv == v) {
            CHECK(f.position == next++);
            CHECK(f.stop > f.start);
          }
        CHECK(next >= 15);
      }
  }

  TEST_CASE("broken marks are refused with the role") {
    Trace t;
    t.config = small("overlap", Mask::full, Softmax::plain);
    std::vector<std::uint8_t> zeros(trace_buffer_bytes(3, 16), 0);
    CHECK(read_marks(zeros, 16, &t) == "no CTA left a mark");
    CHECK(read_marks({}, 16, &t) == "the buffer of marks is too short");
    std::vector<std::uint8_t> bad = zeros;
    TraceHeader h{1, 1, 0, 2, 2, 1, 0, {}};
    std::uint8_t* header = bad.data() + 16 * sizeof(TraceTrip);
    std::memcpy(header, &h, sizeof h);
    TraceRecord r{30, {5, 0, 0}};
    std::memcpy(header + sizeof h, &r, sizeof r);
    CHECK(read_marks(bad, 16, &t).find("CTA 0 producer: a mark with the unknown event 30") == 0);
  }

  TEST_CASE("the model is within 15 % of each kernel of the catalogue that was measured") {
    std::istringstream lines(test::read_file("tools/bench/results/trace_h200.csv"));
    std::string line;
    std::getline(lines, line);
    REQUIRE(line.find("kernel,marks,device,without_marks_ms,with_marks_ms,slow_down_percent,clock_mhz,trips,measured_cycles,") == 0);
    int seen = 0;
    while (std::getline(lines, line)) {
      std::vector<std::string> f;
      std::istringstream fields(line);
      for (std::string one; std::getline(fields, one, ',');) f.push_back(one);
      REQUIRE(f.size() > 9);
      const std::vector<KernelConfig> all = catalog();
      const auto c = std::find_if(all.begin(), all.end(), [&](const KernelConfig& k) { return k.name() == f[0]; });
      if (c == all.end() || f[1] != "few") continue;
      // Without what the marks cost: the transposing warps had some when these rows were measured.
      const double measured = std::stod(f[8]) / (1 + std::stod(f[5]) / 100);
      CAPTURE(f[0]);
      CHECK(summarise(model_trace(*c, 12)).cycles_per_trip == doctest::Approx(measured).epsilon(0.15));
      ++seen;
    }
    CHECK(seen >= 20);
  }

  TEST_CASE("in the model V comes by slabs where it is transposed in the kernel: two loads of it and two turns of the warps at head_dim 256") {
    KernelConfig c = small("trailing", Mask::full, Softmax::plain);
    c.problem.dtype = DataType::e4m3, c.plan.tile_kv = 128, c.plan.o_own_buffer = true, c.plan.q_stages = 1;
    for (int dim : {128, 256}) {
      c.problem.head_dim = c.problem.head_dim_v = dim;
      const Trace t = model_trace(c, 6);
      const auto count = [](const std::vector<TraceSpan>& spans, TraceEvent e) {
        return std::count_if(spans.begin(), spans.end(), [&](const TraceSpan& s) { return s.event == e; });
      };
      CHECK(count(t.ctas[0].transposer, TraceEvent::transpose) == 6 * dim / 128);
      CHECK(count(t.ctas[0].roles[0], TraceEvent::v_load) == 6 * dim / 128);
      CHECK(count(t.ctas[0].roles[0], TraceEvent::k_load) == 6);
    }
  }

  TEST_CASE("the model keeps the units' limits and shows what overlap is for") {
    KernelConfig c;
    c.plan.softmax = Softmax::plain;
    double cycles[2];
    for (int i = 0; i < 2; ++i) {
      c.plan.schedule = i ? "serial" : "overlap";
      c.plan.warpgroups = 1, c.plan.ping_pong = false;
      c.plan.tile_kv = 64;
      Trace t = model_trace(c, 10);
      TraceSummary s = summarise(t);
      REQUIRE(s.trips > 3);
      CHECK(t.modelled);
      cycles[i] = s.cycles_per_trip;
      CHECK(s.cycles_per_trip >= 2 * 8 * 32);                                  // wgmma: 512 clocks
      double stream = 0;  // exponentials go on between the instructions of rescaling and packing
      for (TraceEvent e : {TraceEvent::exp_sum, TraceEvent::rescale_o, TraceEvent::pack_p}) stream += s.event_cycles[static_cast<int>(e)];
      CHECK(stream >= 32 * 8);  // 32 ex2 a lane
      double sum = 0;
      for (double e : s.event_cycles) sum += e;
      CHECK(sum == doctest::Approx(s.cycles_per_trip).epsilon(0.05));
      CHECK((i ? s.overlap_own < 0.05 : s.overlap_own > 0.2));
    }
    CHECK(cycles[1] > 1.15 * cycles[0]);
  }

  TEST_CASE("Chrome's JSON in Perfetto's whole nanoseconds: tracks named, times in order, no slice over another") {
    KernelConfig eight_bit = small("serial", Mask::causal, Softmax::plain), symmetric = small("overlap", Mask::full, Softmax::plain);
    eight_bit.problem.dtype = DataType::e4m3, eight_bit.plan.tile_kv = 128, eight_bit.plan.o_own_buffer = true;
    symmetric.plan.symmetric = true, symmetric.plan.ping_pong = false, symmetric.plan.q_stages = 1;
    std::vector<Trace> traces;
    for (const KernelConfig& c : {small("overlap", Mask::full, Softmax::lazy), eight_bit, symmetric}) {
      traces.push_back(model_trace(c, 40));
      for (Marks marks : {Marks::few, Marks::all}) {
        Trace t;
        const Status s = marks_of(c, 330, 3, 4096, 6, &t, marks);
        REQUIRE_MESSAGE(s.ok(), s.message);
        t.clock_mhz = 1755;  // no whole nanosecond a clock
        t.ctas.back().origin_us = -3.0007;
        traces.push_back(t);
      }
    }
    for (const Trace& t : traces) {
      CAPTURE(t.config.name());
      CHECK(perfetto_complaint(trace_chrome_json(t)) == "");
    }
  }

  TEST_CASE("tiles without a key and lost marks are still a trace that Perfetto draws") {
    KernelConfig c = small("overlap", Mask::causal, Softmax::plain);
    EmulatorOptions options;
    options.multiprocessors = 2;
    std::unique_ptr<Device> device;
    REQUIRE(open_emulator(options, &device).ok());
    reference::Problem p = shape(c, 330, 2);
    p.seqlen_k = 70;  // bottom right: the first 260 rows see no key
    for (std::uint32_t capacity : {4096u, 16u}) {
      Trace t;
      TraceCost unused;
      const Status s = run_trace(*device, c, Marks::all, p, capacity, &t, &unused);
      REQUIRE_MESSAGE(s.ok(), s.message);
      CHECK((t.lost == 0) == (capacity == 4096));
      t.clock_mhz = 1755;
      CHECK(perfetto_complaint(trace_chrome_json(t)) == "");
    }
  }

  TEST_CASE("a written CSV reads back to the same lanes and figures") {
    KernelConfig c = small("overlap", Mask::full, Softmax::plain);
    Trace t, back;
    REQUIRE(marks_of(c, 320, 2, 2048, 0, &t).ok());
    CHECK(read_trace_csv(trace_csv(t), c, &back) == "");
    CHECK(back.device == t.device);
    CHECK(trace_csv(back) == trace_csv(t));
    CHECK(back.ctas[0].loads.size() == t.ctas[0].loads.size());
    CHECK(summarise(back).cycles_per_trip == summarise(t).cycles_per_trip);
    CHECK(read_trace_csv("head\nmarks,0,0,warpgroup7,qk,0,0,1\n", c, &back) ==
          "line 2: warpgroup7: the kernel has 2 warpgroups");
    CHECK(read_trace_csv("head\n", c, &back) == "no marks");
  }

  TEST_CASE("two kernels in one picture: both named, one scale, modelled said of each") {
    const Trace a = model_trace(small("serial", Mask::full, Softmax::lazy), 8),
                b = model_trace(small("overlap", Mask::full, Softmax::lazy), 8);
    const std::string svg = diff_svg(a, b, 3);
    CHECK(svg.find("A  " + a.config.name()) != std::string::npos);
    CHECK(svg.find("B  " + b.config.name()) != std::string::npos);
    CHECK(svg.find("MODELLED") != svg.rfind("MODELLED"));
    CHECK(svg.find("measured") == svg.find("not measured") + 4);
  }

  TEST_CASE("the window of a picture holds steady trips only") {
    Trace t;
    REQUIRE(marks_of(small("overlap", Mask::full, Softmax::plain), 320, 2, 2048, 0, &t).ok());
    const auto [from, to] = steady_window(t.ctas.front(), 2);
    CHECK(to > from);
    for (const TraceSpan& s : t.ctas.front().roles[1])
      if (s.start >= from && s.start < to) CHECK(s.event < TraceEvent::tile_wait);
  }

  TEST_CASE("picture, CSV and summary say whether they were measured") {
    Trace t = model_trace(small("serial", Mask::full, Softmax::lazy), 6);
    CHECK(trace_svg(t, t, 3).find("MODELLED") != std::string::npos);
    CHECK(trace_text(t, summarise(t), nullptr).find("MODELLED, not measured") == 0);
    CHECK(trace_csv(t).find("\nmodel,0,0,producer,k_empty_wait,0,") != std::string::npos);
    t.modelled = false, t.device = "a card";
    CHECK(trace_svg(t, t, 3).find("MODELLED") == std::string::npos);
    CHECK(trace_svg(t, t, 3).find("Measured on a card") != std::string::npos);
  }
}
