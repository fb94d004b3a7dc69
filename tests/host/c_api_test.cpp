// Runs the C99 program of tests/host/c_api_c99.c on a fake device, and what C cannot say: sentences
// per thread.
#include <thread>

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
  }
}

}  // namespace flashptx::test
