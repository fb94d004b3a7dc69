// What is derived from a schedule's table, and that the checker lets no wrong order through: each
// table with two steps swapped or one dropped is refused with a sentence, or is run on the emulator
// against float64. Next: gen/schedule/checker.cpp.
#include "gen/schedule/schedule.h"

#include <set>

#include "gen/catalog.h"
#include "gen/kernels/attention_forward.h"
#include "host/attention.h"
#include "gen/schedule/text.h"
#include "tests/support.h"
#include "tools/flashptx/runner.h"

using namespace flashptx;

namespace {

const Schedule& table(const char* name) { return *find_forward_schedule(name); }

std::string words(const std::vector<PlannedStep>& steps) {
  std::string out;
  for (const PlannedStep& s : steps) {
    out += std::string(out.empty() ? "" : " ") + to_string(s.what);
    if (s.lag) out += "-" + std::to_string(s.lag);
    if (s.what == Do::wait_qk || s.what == Do::wait_pv)
      out += "(" + std::to_string(s.pending) + ")";
  }
  return out;
}

Schedule swapped(Schedule s, std::size_t i, std::size_t j) {
  std::swap(s.steps[i], s.steps[j]);
  s.name = "mutant";
  return s;
}
Schedule dropped(Schedule s, std::size_t i) {
  s.steps.erase(s.steps.begin() + static_cast<long>(i));
  s.name = "mutant";
  return s;
}

// Orders that differ only in the token's place, or in where a stage is freed, are equal to a kernel
// with one warpgroup; one of each shape of the rest is enough to run.
std::string order_of_products(const Schedule& s) {
  std::string out;
  for (const Step& st : s.steps)
    if (st.what != Do::token_wait && st.what != Do::token_pass && st.what != Do::free_k &&
        st.what != Do::free_v)
      out += std::string(to_string(st.what)) + " ";
  return out;
}

reference::Problem small_problem(Mask mask) {
  reference::Problem p;
  p.batch = 1, p.heads_q = p.heads_kv = 1;
  p.seqlen_q = 130, p.seqlen_k = 200;
  p.head_dim = p.head_dim_v = 32;
  p.mask = mask;
  p.scale = 0.17f;
  return p;
}

KernelConfig small_kernel(const Schedule& s, Mask mask, Softmax softmax) {
  KernelConfig c;
  c.problem = {DataType::bf16, 32, 32, mask};
  c.plan.warpgroups = 2, c.plan.tile_kv = 32, c.plan.kv_stages = 2;
  c.plan.softmax = softmax;
  c.plan.follow(s);
  return c;
}

// "" or what is wrong with the kernel of that schedule, under an adversary.
std::string run_wrong(const Schedule& s, const Case& c, Softmax softmax, std::uint64_t seed) {
  EmulatorOptions options;
  options.seed = seed, options.adversary_level = 2, options.multiprocessors = 2;
  std::unique_ptr<Device> device;
  if (Status st = open_emulator(options, &device); !st.ok()) return st.message;
  Attention attention(*device);
  KernelConfig config = small_kernel(s, c.problem().mask, softmax);
  return run_case(*device, attention, c, {config.name(), "", s}).complaint();
}

}  // namespace

TEST_SUITE("gen/schedule") {
  TEST_CASE("overlap: peeled trip, steady trip with its wait counts, epilogue") {
    Derived d = derive(table("overlap"));
    CHECK(words(d.peeled) == "qk wait_qk(0) free_k mask_max exp_sum pack_p");
    CHECK(words(d.steady) ==
          "token_wait qk pv-1 token_pass wait_qk(1) free_k mask_max exp_sum wait_pv-1(0) free_v-1 "
          "rescale_o pack_p");
    CHECK(words(d.epilogue) == "pv-1 wait_pv-1(0) free_v-1");
    CHECK(d.peeled[3].first);
    for (const PlannedStep& s : d.steady) CHECK_FALSE(s.first);
  }

  TEST_CASE("serial: no wait is left for the epilogue") {
    Derived d = derive(table("serial"));
    CHECK(words(d.peeled) == "qk wait_qk(0) free_k mask_max exp_sum pack_p pv wait_pv(0) free_v");
    CHECK(words(d.steady) ==
          "token_wait qk wait_qk(0) token_pass free_k mask_max exp_sum rescale_o pack_p pv "
          "wait_pv(0) free_v");
    CHECK(d.epilogue.empty());
    CHECK(table("serial").p_shares_s());
    CHECK_FALSE(table("overlap").p_shares_s());
    CHECK_FALSE(table("trailing").p_shares_s());
  }

  TEST_CASE(
      "trailing: the wait for S covers the P V that was issued before it, so its own wait is "
      "empty") {
    Derived d = derive(table("trailing"));
    CHECK(words(d.steady) ==
          "token_wait qk wait_qk(0) token_pass wait_pv-1(-1) free_v-1 free_k mask_max exp_sum "
          "rescale_o pack_p pv");
    CHECK(words(d.epilogue) == "wait_pv-1(0) free_v-1");
  }

  TEST_CASE("rotated: trailing's steps in trailing's order, the first P V in the loop too") {
    Derived d = derive(table("rotated")), t = derive(table("trailing"));
    CHECK(words(d.peeled) == "qk wait_qk(0) free_k mask_max exp_sum pack_p");
    CHECK(words(d.steady) ==
          "pv-1 token_wait qk wait_qk(0) token_pass wait_pv-1(-1) free_v-1 free_k mask_max exp_sum rescale_o pack_p");
    CHECK(words(d.epilogue) == "pv-1 wait_pv-1(0) free_v-1");
    CHECK(words(d.peeled) + " pv" == words(t.peeled));
    CHECK_FALSE(table("rotated").p_shares_s());
  }

  TEST_CASE("two products in flight: the count says how many newer groups may stay") {
    Schedule s = table("overlap");
    std::swap(s.steps[1], s.steps[2]);  // pv -1 before qk: S is complete only when both are
    REQUIRE(check(s).empty());
    CHECK(words(derive(s).steady).find("wait_qk(0)") != std::string::npos);
    CHECK(words(derive(s).steady).find("wait_pv-1(-1)") != std::string::npos);
  }

  TEST_CASE("a table without tokens is legal, one token alone is not") {
    Schedule s = dropped(table("overlap"), 3);
    CHECK(check(s) == "schedule mutant: step token_pass stands 0 times, wanted once");
    CHECK(check(dropped(s, 0)) == "");
    KernelConfig c = small_kernel(table("overlap"), Mask::full, Softmax::plain);
    c.plan.own_schedule = dropped(s, 0);
    c.plan.schedule = "mutant", c.plan.ping_pong = true;
    CHECK_THROWS_WITH_AS(emit(c), doctest::Contains("passes no token"), std::exception);
  }

  TEST_CASE("a dropped step is refused with a sentence, whichever it is") {
    for (const Schedule& s : forward_schedules())
      for (std::size_t i = 0; i < s.steps.size(); ++i) {
        ScheduleFault fault = find_fault(dropped(s, i));
        CAPTURE(s.name);
        CAPTURE(to_string(s.steps[i].what));
        CHECK(fault.sentence.find("stands 0 times, wanted once") != std::string::npos);
        CHECK(fault.sentence.find(to_string(s.steps[i].what)) != std::string::npos);
      }
  }

  TEST_CASE("two steps swapped: refused with a sentence and its step, or right on the emulator") {
    const Case full = make_case(small_problem(Mask::full), reference::Layout::bshd,
                                reference::Inputs::random, 3, true, 0);
    const Case causal = make_case(small_problem(Mask::causal), reference::Layout::bshd,
                                  reference::Inputs::outliers, 4, true, 0);
    std::set<std::string> ran;
    int refused = 0, accepted = 0;
    for (const Schedule& s : forward_schedules())
      for (std::size_t i = 0; i < s.steps.size(); ++i)
        for (std::size_t j = i + 1; j < s.steps.size(); ++j) {
          Schedule mutant = swapped(s, i, j);
          ScheduleFault fault = find_fault(mutant);
          if (!fault.sentence.empty()) {
            ++refused;
            CHECK(fault.sentence.find("schedule mutant") == 0);
            continue;
          }
          ++accepted;
          if (!ran.insert(order_of_products(mutant)).second) continue;
          CAPTURE(draw(mutant, 3));
          CHECK(run_wrong(mutant, full, Softmax::lazy, 5) == "");
          CHECK(run_wrong(mutant, causal, Softmax::plain, 6) == "");
        }
    CHECK(refused > 100);
    CHECK(accepted > 20);
    CHECK(ran.size() > 5);
  }

  // P V issued behind the exponentials of the next block: P must not be packed beside them into the registers that it reads.
  TEST_CASE("8 bit: wherever the last P V stands between the exponentials and the packing, the kernel is right") {
    reference::Problem p = small_problem(Mask::full);
    p.dtype = DataType::e4m3, p.head_dim = p.head_dim_v = 64, p.seqlen_k = 700;
    const Case c = make_case(p, reference::Layout::bshd, reference::Inputs::random, 5, true, 0);
    for (const char* order : {"qk\nwait_qk\nfree_k\nmask_max\nexp_sum\npv lag 1\nwait_pv lag 1\nfree_v lag 1\nrescale_o\npack_p\n",
                              "qk\nwait_qk\nfree_k\nmask_max\npv lag 1\nexp_sum\nwait_pv lag 1\nfree_v lag 1\nrescale_o\npack_p\n",
                              "pv lag 1\nqk\nwait_qk\nwait_pv lag 1\nfree_v lag 1\nfree_k\nmask_max\nexp_sum\nrescale_o\npack_p\n"}) {
      Schedule s;
      std::string error;
      REQUIRE_MESSAGE(parse_schedule(std::string("schedule mine\nabout x\n") + order, "t", &s, &error), error);
      REQUIRE(check(s) == "");
      KernelConfig config;
      config.problem = {DataType::e4m3, 64, 64, Mask::full};
      config.plan.warpgroups = 2, config.plan.kv_stages = 2, config.plan.o_own_buffer = true;
      config.plan.softmax = Softmax::guarded, config.plan.guard_blocks = 1;
      config.plan.follow(s);
      EmulatorOptions options;
      options.seed = 3, options.adversary_level = 2, options.multiprocessors = 2;
      std::unique_ptr<Device> device;
      REQUIRE(open_emulator(options, &device).ok());
      Attention attention(*device);
      const std::string wrong = run_case(*device, attention, c, {config.name(), "", s}).complaint();
      CHECK_MESSAGE(wrong == "", order, ": ", wrong);
    }
  }

  TEST_CASE("8 bit: O scaled in front of the exponentials, or the turn kept over P V with two stages: refused by name") {
    const auto refusal = [](const char* order, DataType dtype, Softmax softmax, int stages) {
      Schedule s;
      std::string error;
      REQUIRE_MESSAGE(parse_schedule(std::string("schedule mine\nabout x\n") + order, "t", &s, &error), error);
      REQUIRE(check(s) == "");
      KernelConfig c;
      c.problem = {dtype, 64, 64, Mask::full};
      c.plan.warpgroups = 2, c.plan.kv_stages = stages, c.plan.o_own_buffer = true, c.plan.softmax = softmax, c.plan.ping_pong = true;
      c.plan.follow(s);
      return gen::check_forward(c);
    };
    const char* early = "qk\nwait_qk\nfree_k\nmask_max\nrescale_o\nexp_sum\npack_p\npv\nwait_pv\nfree_v\n";
    CHECK(refusal(early, DataType::e4m3, Softmax::guarded, 2).find("may still move the reference") != std::string::npos);
    CHECK(refusal(early, DataType::e4m3, Softmax::plain, 2) == "");
    CHECK(refusal(early, DataType::bf16, Softmax::guarded, 2) == "");
    const char* greedy = "token_wait\nqk\nwait_qk\nfree_k\nmask_max\nexp_sum\nrescale_o\npack_p\npv\nwait_pv\nfree_v\ntoken_pass\n";
    CHECK(refusal(greedy, DataType::bf16, Softmax::lazy, 2).find("keeps its turn over P V") != std::string::npos);
    CHECK(refusal(greedy, DataType::bf16, Softmax::lazy, 3) == "");
  }

  TEST_CASE("a plan that follows another table keeps no late store that it cannot have") {
    KernelConfig c;
    REQUIRE(KernelConfig::parse("attn_fwd_bf16_d64_full__q256_kv64_s4_qs2__overlap_pp_guarded2_ob_late", &c, nullptr));
    c.plan.follow(table("serial"));
    CHECK(gen::check_forward(c) == "");
  }

  TEST_CASE("tokens anywhere in their order deadlock nothing") {
    const Case c = make_case(small_problem(Mask::causal), reference::Layout::bshd,
                             reference::Inputs::random, 3, true, 0);
    for (std::size_t pass : {4u, 7u, 11u})
      for (std::size_t wait : {0u, 2u, 4u}) {
        Schedule s = table("overlap");
        s.name = "mutant";
        s.steps.erase(s.steps.begin() + 3);
        s.steps.erase(s.steps.begin());
        s.steps.insert(s.steps.begin() + static_cast<long>(wait), {Do::token_wait});
        s.steps.insert(s.steps.begin() + static_cast<long>(std::max(pass, wait + 1)),
                       {Do::token_pass});
        REQUIRE(check(s) == "");
        CAPTURE(draw(s, 3));
        CHECK(run_wrong(s, c, Softmax::guarded, pass) == "");
      }
  }
}
