// What a planned call asks of the driver: with the pointers of the call before, a look at the context, one at the stream
// and the launch; a tensor map only for a pointer that has changed. Next: tests/gpu/launch_cost_test.cpp.
#include "host/attention.h"
#include "host/driver/cuda_device.h"
#include "tests/host/fake_driver.h"
#include "tests/support.h"

namespace flashptx::test {
namespace {

ForwardProblem small_problem() {
  ForwardProblem p;
  p.batch = 1, p.heads_q = p.heads_kv = 2, p.seqlen_q = p.seqlen_k = 64, p.head_dim = 64, p.mask = Mask::causal;
  p.q = p.k = p.v = p.o = strides_bshd(64, 2, 64);
  return p;
}

}  // namespace

TEST_SUITE("host/planned_call") {
  TEST_CASE("asks the driver for three things, and for a tensor map only when a pointer has changed") {
    reset_fake_driver();
    FakeDriver& fake = fake_driver();
    CudaOptions options;
    options.cache = false;
    std::unique_ptr<Device> device;
    REQUIRE(open_cuda_device(fake_driver_api(), options, &device).ok());
    make_current(fake_primary(0));
    {
      Attention attention(*device);
      std::unique_ptr<ForwardPlan> plan;
      const Status s = attention.plan_forward(small_problem(), {}, &plan);
      REQUIRE_MESSAGE(s.ok(), s.message);
      REQUIRE(plan->kernel()->binding.tile_counter);
      ForwardPointers at;
      at.q = 0x1000, at.k = 0x2000, at.v = 0x3000, at.o = 0x4000;
      struct Asked {
        int context, capturing, encoded;
        std::size_t launched;
      };
      const auto run = [&] {
        const Asked before{fake.context_reads, fake.capture_reads, static_cast<int>(fake.encoded.size()), fake.launches.size()};
        REQUIRE(plan->run(at, nullptr).ok());
        return Asked{fake.context_reads - before.context, fake.capture_reads - before.capturing,
                     static_cast<int>(fake.encoded.size()) - before.encoded, fake.launches.size() - before.launched};
      };
      CHECK(run().encoded == 4);
      Asked again = run();
      CHECK(again.context == 1);
      CHECK(again.capturing == 1);
      CHECK(again.launched == 1);
      CHECK(again.encoded == 0);
      at.v = 0x5000;
      CHECK(run().encoded == 1);
      CHECK(fake.encoded.back() == 0x5000);
      at.v = 0x3000;  // back to a pointer of before: the map of the call between must not be used
      CHECK(run().encoded == 1);
      CHECK(fake.encoded.back() == 0x3000);
      CHECK(fake.pushes == 0);
    }
  }
}

}  // namespace flashptx::test
