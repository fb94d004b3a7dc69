// Runs the C99 program of tests/host/c_api_c99.c on a fake device, and what C cannot say: sentences
// per thread.
#include <cmath>
#include <thread>
#include <vector>

#include "host/context.h"
#include "tests/host/fake_device.h"
#include "tests/support.h"

extern "C" {
int c99_plans_and_runs(flashptx_context* context);
int c99_refusals(flashptx_context* context);
int c99_struct_sizes(flashptx_context* context);
}

namespace flashptx::test {

TEST_SUITE("host/c_api") {
  TEST_CASE("plans and runs from C99") {
    auto device = std::make_unique<FakeDevice>();
    FakeDevice& fake = *device;
    flashptx_context context(std::move(device), 0);
    CHECK(c99_plans_and_runs(&context) == 0);
    CHECK(fake.launches.size() == 2);
    CHECK(std::string(flashptx_describe_device(&context)) == "fake H200, 132 SMs");
  }

  TEST_CASE("refuses from C99 with the argument's name") {
    flashptx_context context(std::make_unique<FakeDevice>(), 0);
    CHECK(c99_refusals(&context) == 0);
  }

  TEST_CASE("tells structs of older and newer headers by their size") {
    flashptx_context context(std::make_unique<FakeDevice>(), 0);
    CHECK(c99_struct_sizes(&context) == 0);
  }

  TEST_CASE("keeps the last sentence of each thread apart") {
    flashptx_context context(std::make_unique<FakeDevice>(), 0);
    CHECK(flashptx_forward(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr) ==
          FLASHPTX_INVALID_ARGUMENT);
    CHECK(std::string(flashptx_last_error(&context)) == "plan is a null pointer");
    std::thread([&] {
      CHECK(std::string(flashptx_last_error(&context)).empty());
      CHECK(flashptx_synchronize(nullptr, nullptr) == FLASHPTX_INVALID_ARGUMENT);
      CHECK(std::string(flashptx_last_error(nullptr)) == "context is a null pointer");
    }).join();
    CHECK(std::string(flashptx_last_error(&context)) == "plan is a null pointer");
  }

  TEST_CASE("memory calls reach the device and check for null") {
    auto device = std::make_unique<FakeDevice>();
    FakeDevice& fake = *device;
    flashptx_context context(std::move(device), 0);
    void* p = nullptr;
    REQUIRE(flashptx_device_alloc(&context, 100, &p) == FLASHPTX_OK);
    CHECK(fake.live_allocations == 1);
    char byte = 0;
    CHECK(flashptx_copy_to_device(&context, p, &byte, 1) == FLASHPTX_OK);
    CHECK(flashptx_copy_from_device(&context, nullptr, p, 1) == FLASHPTX_INVALID_ARGUMENT);
    flashptx_device_free(&context, p);
    flashptx_device_free(&context, nullptr);
    CHECK(fake.live_allocations == 0);
  }

  TEST_CASE("computes attention on the emulator, memory and all") {
    flashptx_options options{};
    options.size = sizeof options;
    options.device_kind = FLASHPTX_DEVICE_EMULATOR;
    flashptx_context* context = nullptr;
    REQUIRE(flashptx_create(&options, &context) == FLASHPTX_OK);
    // Q = 0: every key weighs the same, so V = 1 gives O = 1 and LSE = ln(70) exactly enough.
    constexpr int seqlen_q = 3, seqlen_k = 70, head_dim = 64;
    flashptx_forward_problem problem{};
    problem.size = sizeof problem;
    problem.dtype = FLASHPTX_BF16;
    problem.batch = problem.heads_q = problem.heads_kv = 1;
    problem.seqlen_q = seqlen_q;
    problem.seqlen_k = seqlen_k;
    problem.head_dim = head_dim;
    problem.q = problem.o = flashptx_strides_bshd(seqlen_q, 1, head_dim);
    problem.k = problem.v = flashptx_strides_bshd(seqlen_k, 1, head_dim);
    flashptx_plan* plan = nullptr;
    REQUIRE(flashptx_plan_forward(context, &problem, &plan) == FLASHPTX_OK);
    const std::vector<std::uint16_t> zeros(seqlen_q * head_dim), ones(seqlen_k * head_dim, 0x3f80);
    std::vector<std::uint16_t> out(zeros.size());
    float lse[seqlen_q] = {};
    void *q = nullptr, *k = nullptr, *o = nullptr, *l = nullptr;
    REQUIRE(flashptx_device_alloc(context, zeros.size() * 2, &q) == FLASHPTX_OK);
    REQUIRE(flashptx_device_alloc(context, ones.size() * 2, &k) == FLASHPTX_OK);
    REQUIRE(flashptx_device_alloc(context, zeros.size() * 2, &o) == FLASHPTX_OK);
    REQUIRE(flashptx_device_alloc(context, sizeof lse, &l) == FLASHPTX_OK);
    REQUIRE(flashptx_copy_to_device(context, q, zeros.data(), zeros.size() * 2) == FLASHPTX_OK);
    REQUIRE(flashptx_copy_to_device(context, k, ones.data(), ones.size() * 2) == FLASHPTX_OK);
    const flashptx_status status =
        flashptx_forward(plan, q, k, k, o, static_cast<float*>(l), nullptr);
    INFO(flashptx_last_error(context));
    REQUIRE(status == FLASHPTX_OK);
    REQUIRE(flashptx_synchronize(context, nullptr) == FLASHPTX_OK);
    REQUIRE(flashptx_copy_from_device(context, out.data(), o, out.size() * 2) == FLASHPTX_OK);
    REQUIRE(flashptx_copy_from_device(context, lse, l, sizeof lse) == FLASHPTX_OK);
    CHECK(out == std::vector<std::uint16_t>(out.size(), 0x3f80));
    for (float x : lse) CHECK(x == doctest::Approx(std::log(70.0)).epsilon(1e-5));
    for (void* p : {q, k, o, l}) flashptx_device_free(context, p);
    flashptx_plan_destroy(plan);
    flashptx_destroy(context);
  }

  TEST_CASE("without a GPU, create says what is missing") {
    flashptx_options options{};
    options.size = sizeof options;
    options.device_kind = FLASHPTX_DEVICE_CUDA;
    flashptx_context* context = nullptr;
    const flashptx_status status = flashptx_create(&options, &context);
    if (status == FLASHPTX_OK) {
      flashptx_destroy(context);
      FLASHPTX_SKIP("a GPU is present");
    }
    CHECK((status == FLASHPTX_NO_DEVICE || status == FLASHPTX_DRIVER_TOO_OLD));
    CHECK(context == nullptr);
    CHECK(std::string(flashptx_last_error(nullptr)).size() > 20);
    options.device_kind = FLASHPTX_DEVICE_AUTO;  // then takes the emulator
    REQUIRE(flashptx_create(&options, &context) == FLASHPTX_OK);
    CHECK(std::string(flashptx_describe_device(context)).find("emulator") != std::string::npos);
    flashptx_destroy(context);
  }
}

}  // namespace flashptx::test
