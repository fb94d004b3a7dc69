// The CUDA device over a fake driver: which context, what each error becomes, when the cache is
// used.
#include "host/driver/cuda_device.h"

#include <thread>

#include "tests/host/fake_driver.h"
#include "tests/support.h"

namespace flashptx::test {
namespace {

constexpr const char* text = ".version 8.0\n.target sm_90a\n.visible .entry k() {\nwgmma.foo;\n}\n";
constexpr const char* split_text =
    ".version 8.0\n.target sm_90a\nsetmaxnreg.dec.sync.aligned.u32 24; // not setmaxnreg.inc\n"
    "setmaxnreg.inc.sync.aligned.u32 240;\n";

struct Fixture {
  ScratchFolder folder;
  CudaOptions options;
  std::unique_ptr<Device> device;
  Fixture() {
    reset_fake_driver();
    options.cache_dir = folder.path("cache");
  }
  ~Fixture() {
    device.reset();
    reset_fake_driver();
  }
  Status open() { return open_cuda_device(fake_driver_api(), options, &device); }
  // Loads and unloads; gives what the device said.
  Status load(const char* image, const char* entry = "k") {
    LoadedKernel* kernel = nullptr;
    Status s = device->load(image, entry, 200000, &kernel);
    if (s.ok()) {
      from_cache = kernel->from_cache;
      log = kernel->log;
      device->unload(kernel);
    }
    return s;
  }
  bool from_cache = false;
  std::string log;
};

}  // namespace

TEST_SUITE("host/driver/cuda_device") {
  TEST_CASE_FIXTURE(Fixture, "takes the caller's context, whose it stays") {
    make_current(fake_own_context(0));
    REQUIRE(open().ok());
    CHECK(fake_driver().primary_retained == 0);
    REQUIRE(device->synchronize(nullptr).ok());
    CHECK(fake_driver().pushes == 0);
    CHECK(current_context() == fake_own_context(0));
  }

  TEST_CASE_FIXTURE(Fixture, "holds the primary context open, and lets go of it") {
    REQUIRE(open().ok());
    CHECK(fake_driver().primary_retained == 1);
    CHECK(current_context() == nullptr);  // the caller's thread is left as it was
    make_current(fake_primary(0));
    std::unique_ptr<Device> second;
    REQUIRE(open_cuda_device(fake_driver_api(), options, &second).ok());
    CHECK(fake_driver().primary_retained == 2);
    second.reset();
    device.reset();
    CHECK(fake_driver().primary_retained == 0);
  }

  TEST_CASE_FIXTURE(Fixture, "works on a thread that has no context, or another one") {
    make_current(fake_primary(0));
    REQUIRE(open().ok());
    LoadedKernel* kernel = nullptr;
    REQUIRE(device->load(text, "k", 1000, &kernel).ok());
    std::thread([&] {
      CHECK(device->launch(kernel, {}, nullptr, 0, nullptr).ok());
      CHECK(fake_driver().launch_context == fake_primary(0));
      CHECK(current_context() == nullptr);
      make_current(fake_own_context(0));
      CHECK(device->launch(kernel, {}, nullptr, 0, nullptr).ok());
      CHECK(fake_driver().launch_context == fake_primary(0));
      CHECK(current_context() == fake_own_context(0));
      // The fake's streams other than null are being captured.
      for (Stream stream : {Stream{nullptr}, Stream{&kernel}}) {
        int told = -1;
        const int reads = fake_driver().context_reads;
        fake_driver().launch_context = nullptr;
        CHECK(device->launch_choosing(kernel, {}, nullptr, 0, stream, [&](bool captured) { told = captured; }).ok());
        CHECK(told == (stream != nullptr));
        CHECK(fake_driver().context_reads == reads + 1);
        CHECK(fake_driver().launch_context == fake_primary(0));
        CHECK(current_context() == fake_own_context(0));
      }
    }).join();
    device->unload(kernel);
    CHECK(fake_driver().modules == 0);
  }

  TEST_CASE_FIXTURE(Fixture, "finds the Hopper GPU among others and refuses the others by name") {
    fake_driver().gpus = {{"NVIDIA A100", 8, 0}, {"NVIDIA H200", 9, 0}, {"NVIDIA B200", 10, 0}};
    REQUIRE(open().ok());
    CHECK(device->info().name == "NVIDIA H200");
    CHECK(device->info().compute_capability == 90);
    CHECK(device->info().multiprocessors == 132);
    options.ordinal = 2;
    Status s = open();
    CHECK(s.code == StatusCode::no_device);
    CHECK(s.message ==
          "GPU 2 is NVIDIA B200 of compute capability 10.0: the kernels are sm_90a code and run on "
          "9.0 (Hopper) only");
    options.ordinal = 3;
    CHECK(open().message ==
          "ordinal is 3: the driver sees 3 GPUs (CUDA_ERROR_INVALID_DEVICE (101))");
    options.ordinal = -1;
    make_current(fake_own_context(0));
    CHECK(open().message.rfind(
              "the current CUDA context's GPU is NVIDIA A100 of compute capability 8.0", 0) == 0);
    make_current(nullptr);
    fake_driver().gpus = {};
    CHECK(open().message == "the driver sees no GPU");
  }

  TEST_CASE_FIXTURE(Fixture, "an assembler error carries entry, line, the line's text, versions") {
    REQUIRE(open().ok());
    fake_driver().assemble_result = driver::invalid_ptx;
    fake_driver().error_log =
        "ptxas application ptx input, line 4; error   : Unknown modifier '.foo'\nptxas fatal   : "
        "aborted\n";
    const Status s = load(text);
    CHECK(s.code == StatusCode::bad_ptx);
    CHECK(s.message.rfind(
              "k: the PTX does not assemble: CUDA_ERROR_INVALID_PTX (218): line 4: error : Unknown "
              "modifier '.foo' | wgmma.foo;; .version 8.0, the driver ",
              0) == 0);
    CHECK(s.message.find("CUDA 13.0") != std::string::npos);
    CHECK(fake_driver().modules == 0);
  }

  TEST_CASE_FIXTURE(Fixture, "a .version beyond the driver says what to install") {
    fake_driver().version = 12020;
    REQUIRE(open().ok());
    const Status s = load("// made by hand\n/* . */ .version 8.6\n.target sm_90a\n");
    CHECK(s.code == StatusCode::driver_too_old);
    CHECK(s.message.rfind("k: PTX .version 8.6 is newer than the driver, which ", 0) == 0);
    CHECK(s.message.find("CUDA 12.2") != std::string::npos);
    CHECK(s.message.find("with PTX 8.2; install driver 565 (CUDA 12.7) or newer") !=
          std::string::npos);
    CHECK(fake_driver().text_loads + fake_driver().links == 0);
    // A driver that the table does not know judges for itself.
    fake_driver().version = 13030;
    REQUIRE(open().ok());
    fake_driver().assemble_result = driver::unsupported_ptx_version;
    CHECK(load(".version 9.9\n").message.find("PTX .version 9.9 is newer than the driver") !=
          std::string::npos);
  }

  TEST_CASE_FIXTURE(Fixture, "the second load comes from the disk, log included") {
    REQUIRE(open().ok());
    REQUIRE(load(text).ok());
    CHECK_FALSE(from_cache);
    CHECK(fake_driver().links == 1);
    REQUIRE(open().ok());  // as another process would
    REQUIRE(load(text).ok());
    CHECK(from_cache);
    CHECK(fake_driver().links == 1);
    REQUIRE(load((std::string(text) + " ").c_str()).ok());
    CHECK_FALSE(from_cache);
  }

  TEST_CASE_FIXTURE(Fixture, "a linked cubin that lost its setmaxnreg is not used") {
    REQUIRE(open().ok());
    fake_driver().linked_usetmaxreg = 0;
    REQUIRE(load(split_text).ok());
    CHECK(fake_driver().text_loads == 1);
    CHECK(fake_driver().cubin_loads == 0);
    CHECK(log == "ptxas info    : Used 168 registers");
    REQUIRE(load(split_text).ok());  // remembered: no second link
    CHECK(fake_driver().links == 1);
    CHECK(fake_driver().text_loads == 2);
    fake_driver().linked_usetmaxreg = 2;
    REQUIRE(load((std::string(split_text) + "\n").c_str()).ok());
    CHECK(fake_driver().cubin_loads == 1);
  }

  TEST_CASE_FIXTURE(Fixture, "a cached cubin that the driver refuses is made anew") {
    REQUIRE(open().ok());
    REQUIRE(load(text).ok());
    fake_driver().cubin_result = driver::no_binary_for_gpu;
    REQUIRE(load(text).ok());
    CHECK_FALSE(from_cache);
    CHECK(fake_driver().text_loads == 1);
  }

  TEST_CASE_FIXTURE(Fixture, "without a cache nothing is linked or written") {
    options.cache = false;
    REQUIRE(open().ok());
    REQUIRE(load(text).ok());
    CHECK(fake_driver().links == 0);
    CHECK(shell("ls " + folder.path("cache")).exit_code != 0);
  }

  TEST_CASE_FIXTURE(Fixture,
                    "a broken context is reported as somebody's earlier error, ours once") {
    REQUIRE(open().ok());
    LoadedKernel* kernel = nullptr;
    REQUIRE(device->load(text, "k", 1000, &kernel).ok());
    fake_driver().next_error = 700;
    Status s = device->launch(kernel, {}, nullptr, 0, nullptr);
    CHECK(s.code == StatusCode::earlier_error);
    CHECK(
        s.message ==
        "launching k on a grid of 1: CUDA_ERROR_ILLEGAL_ADDRESS (700) was left in the CUDA context "
        "by an earlier kernel; the context is lost");
    std::uint64_t address = 0;
    CHECK(device->allocate(16, &address).code == StatusCode::earlier_error);
    CHECK(device->synchronize(nullptr).code == StatusCode::earlier_error);  // we launched nothing
    CHECK(load(text).code == StatusCode::earlier_error);
    fake_driver().next_error = driver::success;
    REQUIRE(device->launch(kernel, {}, nullptr, 0, nullptr).ok());
    fake_driver().next_error = 700;
    s = device->synchronize(nullptr);
    CHECK(s.code == StatusCode::launch_failed);
    CHECK(s.message ==
          "waiting for the stream: a kernel failed with CUDA_ERROR_ILLEGAL_ADDRESS (700); the CUDA "
          "context is lost");
    CHECK(device->synchronize(nullptr).code == StatusCode::earlier_error);
    fake_driver().next_error = 1;  // not sticky: about the call itself
    CHECK(device->launch(kernel, {}, nullptr, 0, nullptr).code == StatusCode::launch_failed);
    fake_driver().next_error = driver::success;
    device->unload(kernel);
  }

  TEST_CASE_FIXTURE(Fixture, "launch attributes are there only when they say something") {
    REQUIRE(open().ok());
    LoadedKernel* kernel = nullptr;
    REQUIRE(device->load(text, "k", 1000, &kernel).ok());
    LaunchDims dims;
    dims.grid[0] = 4;
    dims.block[0] = 384;
    dims.shared_bytes = 1000;
    REQUIRE(device->launch(kernel, dims, nullptr, 0, nullptr).ok());
    CHECK(fake_driver().launches.back().attribute_count == 0);
    CHECK(fake_driver().launches.back().block[0] == 384);
    CHECK(fake_driver().launches.back().shared_bytes == 1000);
    dims.cluster[0] = 2;
    dims.programmatic_dependent = true;
    REQUIRE(device->launch(kernel, dims, nullptr, 0, nullptr).ok());
    REQUIRE(fake_driver().attributes.size() == 2);
    CHECK(fake_driver().attributes[0].id == 4);
    CHECK(fake_driver().attributes[0].value.cluster.x == 2);
    CHECK(fake_driver().attributes[1].id == 6);
    device->unload(kernel);
  }

  TEST_CASE_FIXTURE(Fixture, "other refusals say what was asked") {
    REQUIRE(open().ok());
    std::uint64_t address = 0;
    CHECK(device->allocate(std::size_t{1} << 41, &address).code == StatusCode::out_of_memory);
    CHECK(device->allocate(0, &address).ok());
    CHECK(load(text, "missing").message.rfind("the module has no entry 'missing'", 0) == 0);
    CHECK(fake_driver().modules == 0);  // not left loaded
    LoadedKernel* kernel = nullptr;
    CHECK(device->load(text, "k", 232449, &kernel).message ==
          "k needs 232449 bytes of dynamic shared memory: the limit of NVIDIA H200 is 232448");
    std::vector<float> ms;
    CHECK(device->time([] { return Status{}; }, 1, 3, nullptr, &ms).ok());
    CHECK(ms.size() == 3);
    CHECK(fake_driver().events == 0);
    TensorMapDesc d;
    d.name = "Q";
    d.address = 32;
    d.rank = 1;
    d.dims[0] = 64;
    d.box[0] = 64;
    TensorMap map;
    REQUIRE(device->encode(d, &map).ok());
    CHECK(fake_driver().last_type == 9);
    CHECK(fake_driver().last_swizzle == 3);
  }
}

}  // namespace flashptx::test
