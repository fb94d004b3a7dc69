// The runtime on a real GPU: leaks, streams, graphs, contexts, cache, errors. Skipped where no GPU
// opens.
//
// Numbers are chosen so that the answer is exact without a reference: with Q = 0 every visible key
// weighs the same, so V constant gives O = that constant and LSE = ln(number of keys). Next:
// tests/host/cuda_device_test.cpp (the same rules over a fake driver).
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "host/attention.h"
#include "host/driver/assemble.h"
#include "host/driver/cuda_device.h"
#include "host/fp8_attention.h"
#include "tests/gpu/trivial_kernels.h"
#include "tests/host/problems.h"
#include "tests/support.h"

namespace flashptx::test {
namespace {

constexpr std::uint16_t bf16_one = 0x3f80, bf16_two = 0x4000, bf16_rubbish = 0x7f01;

// A device, or the reason why there is none.
struct Gpu {
  std::unique_ptr<Device> device;
  const DriverApi* api = nullptr;
  std::string missing;
  explicit Gpu(CudaOptions options = {}) {
    Status s = load_driver(&api);
    if (s.ok()) s = open_cuda_device(options, &device);
    missing = s.message;
  }
};

// Q, K, V, O, LSE of a problem in device memory, filled with constants.
struct Tensors {
  Device& device;
  ForwardProblem problem;
  std::uint64_t q = 0, k = 0, v = 0, o = 0, lse = 0;
  std::size_t q_elems, k_elems, rows;

  Tensors(Device& d, const ForwardProblem& p) : device(d), problem(p) {
    rows = static_cast<std::size_t>(p.batch * p.heads_q * p.seqlen_q);
    q_elems = rows * static_cast<std::size_t>(p.head_dim);
    k_elems = static_cast<std::size_t>(p.batch * p.heads_kv * p.seqlen_k * p.head_dim);
    for (auto [address, elems] :
         {std::pair{&q, q_elems}, {&k, k_elems}, {&v, k_elems}, {&o, q_elems}})
      REQUIRE(d.allocate(elems * 2, address).ok());
    REQUIRE(d.allocate(rows * 4, &lse).ok());
    set(q, q_elems, 0);
    set(k, k_elems, bf16_one);
    set(v, k_elems, bf16_one);
    clear();
  }
  ~Tensors() {
    for (std::uint64_t a : {q, k, v, o, lse}) device.free(a);
  }
  void set(std::uint64_t at, std::size_t elems, std::uint16_t value) {
    const std::vector<std::uint16_t> host(elems, value);
    REQUIRE(device.copy_to_device(at, host.data(), elems * 2).ok());
  }
  void clear() {
    set(o, q_elems, bf16_rubbish);
    const std::vector<float> host(rows, 1234.0f);
    REQUIRE(device.copy_to_device(lse, host.data(), rows * 4).ok());
  }
  ForwardPointers at() const { return {q, k, v, o, lse}; }
  // O everywhere `value`, LSE of the last query of each head ln(keys).
  void check(std::uint16_t value, double last_lse) const {
    std::vector<std::uint16_t> out(q_elems);
    std::vector<float> l(rows);
    REQUIRE(device.copy_from_device(out.data(), o, q_elems * 2).ok());
    REQUIRE(device.copy_from_device(l.data(), lse, rows * 4).ok());
    std::size_t wrong = 0;
    for (std::uint16_t x : out) wrong += x != value;
    CHECK(wrong == 0);
    const std::size_t s = static_cast<std::size_t>(problem.seqlen_q);
    for (std::size_t i = s - 1; i < rows; i += s) {
      if (std::isinf(last_lse)) CHECK(l[i] == static_cast<float>(last_lse));
      else CHECK(l[i] == doctest::Approx(last_lse).epsilon(1e-5));
    }
  }
};

std::size_t free_bytes(const Gpu& gpu) {
  // The primary context: retaining it once more gives its handle.
  std::size_t free_now = 0, total = 0;
  driver::Context context = nullptr, ignored = nullptr;
  gpu.api->primary_context_retain(&context, 0);
  gpu.api->context_push(context);
  CHECK(gpu.api->mem_get_info(&free_now, &total) == driver::success);
  gpu.api->context_pop(&ignored);
  gpu.api->primary_context_release(0);
  return free_now;
}

// A stream of the primary context, made as the CUDA runtime's non-blocking streams are.
struct OwnStream {
  const Gpu& gpu;
  Stream stream = nullptr;
  explicit OwnStream(const Gpu& g) : gpu(g) {
    driver::Context context = nullptr, ignored = nullptr;
    gpu.api->primary_context_retain(&context, 0);
    gpu.api->context_push(context);
    REQUIRE(gpu.api->stream_create(&stream, 1) == driver::success);
    gpu.api->context_pop(&ignored);
    gpu.api->primary_context_release(0);
  }
  ~OwnStream() { gpu.api->stream_destroy(stream); }
};

// The primary context made current, as an application that uses a GPU has it.
struct CurrentContext {
  const Gpu& gpu;
  explicit CurrentContext(const Gpu& g) : gpu(g) {
    driver::Context context = nullptr;
    gpu.api->primary_context_retain(&context, 0);
    gpu.api->context_push(context);
  }
  ~CurrentContext() {
    driver::Context ignored = nullptr;
    gpu.api->context_pop(&ignored);
    gpu.api->primary_context_release(0);
  }
};

const ForwardProblem small = bshd(2, 4, 2, 200, 300, 128, Mask::causal);

}  // namespace

TEST_SUITE("gpu/host") {
  TEST_CASE(
      "10,000 launches leave the device's memory as it was; host time a call is reported") {
    Gpu gpu;
    if (!gpu.device) FLASHPTX_SKIP(gpu.missing);
    CurrentContext current(gpu);
    Attention attention(*gpu.device);
    Tensors t(*gpu.device, bshd(1, 1, 1, 64, 64, 64, Mask::causal));
    std::unique_ptr<ForwardPlan> plan;
    REQUIRE(attention.plan_forward(t.problem, {}, &plan).ok());
    REQUIRE(plan->run(t.at(), nullptr).ok());
    REQUIRE(gpu.device->synchronize(nullptr).ok());
    const std::size_t before = free_bytes(gpu);
    double best_us = 1e9;
    const ForwardPointers at = t.at();
    for (int batch = 0; batch < 100; ++batch) {
      bool ok = true;  // checked outside: a check takes its time too
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 100; ++i) ok &= plan->run(at, nullptr).ok();
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - start;
      best_us = std::min(best_us, took.count() / 100);
      REQUIRE(ok);
      REQUIRE(gpu.device->synchronize(nullptr).ok());
    }
    CHECK(free_bytes(gpu) == before);
    MESSAGE("host time of a planned call, best of 100 batches: " << best_us << " us");
    t.check(bf16_one, std::log(64.0));
  }

  TEST_CASE("loading and unloading 200 times leaves the device's memory as it was") {
    CudaOptions options;
    options.cache = false;
    Gpu gpu(options);
    if (!gpu.device) FLASHPTX_SKIP(gpu.missing);
    const auto once = [&] {
      LoadedKernel* kernel = nullptr;
      REQUIRE(gpu.device->load(store_ptx, "store", 0, &kernel).ok());
      gpu.device->unload(kernel);
    };
    for (int i = 0; i < 20; ++i) once();
    const std::size_t before = free_bytes(gpu);
    for (int i = 0; i < 200; ++i) once();
    CHECK(free_bytes(gpu) == before);
  }

  TEST_CASE("runs on a stream of the caller") {
    Gpu gpu;
    if (!gpu.device) FLASHPTX_SKIP(gpu.missing);
    OwnStream own(gpu);
    Attention attention(*gpu.device);
    Tensors t(*gpu.device, small);
    std::unique_ptr<ForwardPlan> plan;
    REQUIRE(attention.plan_forward(small, {}, &plan).ok());
    REQUIRE(plan->run(t.at(), own.stream).ok());
    REQUIRE(gpu.device->synchronize(own.stream).ok());
    t.check(bf16_one, std::log(300.0));
  }

  TEST_CASE("is captured in a graph that replays with new data, beside fresh launches") {
    Gpu gpu;
    if (!gpu.device) FLASHPTX_SKIP(gpu.missing);
    CurrentContext current(gpu);
    OwnStream own(gpu);
    Attention attention(*gpu.device);
    Tensors t(*gpu.device, small), other(*gpu.device, small);
    std::unique_ptr<ForwardPlan> plan;
    REQUIRE(attention.plan_forward(small, {}, &plan).ok());
    void *graph = nullptr, *exec = nullptr;
    constexpr int thread_local_mode = 1;
    REQUIRE(gpu.api->stream_begin_capture(own.stream, thread_local_mode) == driver::success);
    for (int i = 0; i < 3; ++i) REQUIRE(plan->run(t.at(), own.stream).ok());
    REQUIRE(gpu.api->stream_end_capture(own.stream, &graph) == driver::success);
    REQUIRE(gpu.api->graph_instantiate(&exec, graph, 0) == driver::success);
    for (std::uint16_t value : {bf16_two, bf16_one}) {
      t.set(t.v, t.k_elems, value);
      t.clear();
      for (int i = 0; i < 10; ++i) {
        REQUIRE(gpu.api->graph_launch(exec, own.stream) == driver::success);
        REQUIRE(plan->run(other.at(), nullptr).ok());
      }
      REQUIRE(gpu.device->synchronize(own.stream).ok());
      REQUIRE(gpu.device->synchronize(nullptr).ok());
      t.check(value, std::log(300.0));
      other.check(bf16_one, std::log(300.0));
    }
    gpu.api->graph_exec_destroy(exec);
    gpu.api->graph_destroy(graph);
  }

  TEST_CASE("the FP8 chain is captured at its first call and replays with new data, beside another stream's") {
    Gpu gpu;
    if (!gpu.device) FLASHPTX_SKIP(gpu.missing);
    CurrentContext current(gpu);
    OwnStream own(gpu), second(gpu);
    Attention attention(*gpu.device);
    Tensors t(*gpu.device, small), other(*gpu.device, small);
    for (ScaleKind kind : {ScaleKind::tensor, ScaleKind::head, ScaleKind::block}) {
      Fp8Options options;
      options.scale_kind = kind, options.hadamard = true;
      std::unique_ptr<Fp8Plan> plan;
      const Status planned = plan_fp8_attention(attention, small, options, {}, &plan);
      REQUIRE_MESSAGE(planned.ok(), planned.message);
      std::uint64_t workspace[2];
      for (std::uint64_t& w : workspace) REQUIRE(gpu.device->allocate(plan->workspace_bytes(), &w).ok());
      const auto at = [&](const Tensors& x, int i) {
        Fp8Pointers p;
        p.q = x.q, p.k = x.k, p.v = x.v, p.o = x.o, p.lse = x.lse, p.workspace = workspace[i];
        return p;
      };
      void *graph = nullptr, *exec = nullptr;
      REQUIRE(gpu.api->stream_begin_capture(own.stream, 1) == driver::success);
      for (int i = 0; i < 3; ++i) REQUIRE(plan->run(at(t, 0), own.stream).ok());
      REQUIRE(gpu.api->stream_end_capture(own.stream, &graph) == driver::success);
      REQUIRE(gpu.api->graph_instantiate(&exec, graph, 0) == driver::success);
      for (std::uint16_t value : {bf16_two, bf16_one}) {
        t.set(t.v, t.k_elems, value);
        t.clear(), other.clear();
        for (int i = 0; i < 10; ++i) {
          REQUIRE(gpu.api->graph_launch(exec, own.stream) == driver::success);
          REQUIRE(plan->run(at(other, 1), second.stream).ok());
        }
        REQUIRE(gpu.device->synchronize(own.stream).ok());
        REQUIRE(gpu.device->synchronize(second.stream).ok());
        t.check(value, std::log(300.0));
        other.check(bf16_one, std::log(300.0));
      }
      gpu.api->graph_exec_destroy(exec);
      gpu.api->graph_destroy(graph);
      for (std::uint64_t w : workspace) gpu.device->free(w);
    }
  }

  TEST_CASE("works from a thread without a context, and beside a context of the caller's own") {
    Gpu gpu;  // the primary context, which is also the CUDA runtime's
    if (!gpu.device) FLASHPTX_SKIP(gpu.missing);
    Attention attention(*gpu.device);
    Tensors t(*gpu.device, small);
    std::unique_ptr<ForwardPlan> plan;
    REQUIRE(attention.plan_forward(small, {}, &plan).ok());
    std::thread([&] {
      CHECK(plan->run(t.at(), nullptr).ok());
      CHECK(gpu.device->synchronize(nullptr).ok());
    }).join();
    t.check(bf16_one, std::log(300.0));
    t.clear();

    driver::Context own = nullptr, ignored = nullptr;
    REQUIRE(gpu.api->context_create(&own, 0, 0) == driver::success);  // and current now
    {
      Gpu second;
      REQUIRE(second.device);
      Attention in_own(*second.device);
      Tensors u(*second.device, small);
      std::unique_ptr<ForwardPlan> other;
      REQUIRE(in_own.plan_forward(small, {}, &other).ok());
      REQUIRE(other->run(u.at(), nullptr).ok());
      REQUIRE(plan->run(t.at(), nullptr).ok());  // of the primary context, while `own` is current
      REQUIRE(second.device->synchronize(nullptr).ok());
      REQUIRE(gpu.device->synchronize(nullptr).ok());
      u.check(bf16_one, std::log(300.0));
      t.check(bf16_one, std::log(300.0));
    }
    gpu.api->context_pop(&ignored);
    gpu.api->context_destroy(own);
  }

  TEST_CASE("runs on a second GPU while the first is current") {
    const DriverApi* api = nullptr;
    if (Status s = load_driver(&api); !s.ok()) FLASHPTX_SKIP(s.message);
    int count = 0;
    api->device_get_count(&count);
    if (count < 2) FLASHPTX_SKIP("one GPU only");
    Gpu first;
    CudaOptions options;
    options.ordinal = 1;
    Gpu second(options);
    REQUIRE(second.device);
    Attention attention(*second.device);
    Tensors t(*second.device, small);
    std::unique_ptr<ForwardPlan> plan;
    REQUIRE(attention.plan_forward(small, {}, &plan).ok());
    REQUIRE(plan->run(t.at(), nullptr).ok());
    REQUIRE(second.device->synchronize(nullptr).ok());
    t.check(bf16_one, std::log(300.0));
  }

  TEST_CASE("a second process finds the kernel assembled, with the same result") {
    ScratchFolder folder;
    CudaOptions options;
    options.cache_dir = folder.path("cache");
    std::vector<int> registers;
    int entry_registers = 0;
    for (int round = 0; round < 2; ++round) {
      Gpu gpu(options);
      if (!gpu.device) FLASHPTX_SKIP(gpu.missing);
      Attention attention(*gpu.device);
      Tensors t(*gpu.device, small);
      std::unique_ptr<ForwardPlan> plan;
      REQUIRE(attention.plan_forward(small, {}, &plan).ok());
      REQUIRE(plan->run(t.at(), nullptr).ok());
      REQUIRE(gpu.device->synchronize(nullptr).ok());
      t.check(bf16_one, std::log(300.0));
      registers.push_back(plan->kernel()->loaded->registers);
      entry_registers = plan->kernel()->facts.entry_registers;
      CHECK(plan->kernel()->loaded->local_bytes == 0);
      CHECK(plan->kernel()->loaded->log.find("C75") == std::string::npos);
      CacheEntry entry;
      const CubinCache cache(options.cache_dir);
      const std::string text = emit(plan->kernel()->config).text;
      const DeviceInfo& info = gpu.device->info();
      REQUIRE(cache.get(CubinCache::key(text, info.driver_version, info.driver_text, "sm_90a"),
                        &entry));
      CHECK(plan->kernel()->loaded->from_cache == (round == 1 && !entry.load_text));
      if (entry.load_text)
        MESSAGE("the driver's linker drops setmaxnreg: texts are loaded directly");
      else CHECK(count_usetmaxreg(entry.cubin) >= count_setmaxnreg(text));
    }
    CHECK(registers[0] == registers[1]);
    CHECK(registers[0] == entry_registers);
  }

  TEST_CASE(
      "without keys O is 0 and LSE -inf; a head stride of 0 on K and V is read as broadcast") {
    Gpu gpu;
    if (!gpu.device) FLASHPTX_SKIP(gpu.missing);
    Attention attention(*gpu.device);
    std::unique_ptr<ForwardPlan> plan;
    {
      Tensors t(*gpu.device, bshd(2, 4, 2, 200, 0, 128));
      REQUIRE(attention.plan_forward(t.problem, {}, &plan).ok());
      REQUIRE(plan->run({t.q, 0, 0, t.o, t.lse}, nullptr).ok());
      REQUIRE(gpu.device->synchronize(nullptr).ok());
      t.check(0, -INFINITY);
    }
    ForwardProblem p = small;
    p.k = p.v = {0, 128, 0};
    Tensors t(*gpu.device, small);
    REQUIRE(attention.plan_forward(p, {}, &plan).ok());
    REQUIRE(plan->run(t.at(), nullptr).ok());
    REQUIRE(gpu.device->synchronize(nullptr).ok());
    t.check(bf16_one, std::log(300.0));
  }

  TEST_CASE("the driver's assembler log names our line") {
    CudaOptions options;
    for (bool cache : {false, true}) {
      ScratchFolder folder;
      options.cache = cache;
      options.cache_dir = folder.path("c");
      Gpu gpu(options);
      if (!gpu.device) FLASHPTX_SKIP(gpu.missing);
      LoadedKernel* kernel = nullptr;
      std::string text = store_ptx;
      text.replace(text.find("st.global.u32"), 13, "st.global.foo");
      Status s = gpu.device->load(text, "store", 0, &kernel);
      CHECK(s.code == StatusCode::bad_ptx);
      CHECK(s.message.find("line 11: ") != std::string::npos);
      CHECK(s.message.find("| st.global.foo [%a], %v;") != std::string::npos);
      text = store_ptx;
      text.replace(text.find("8.0"), 3, "9.9");
      s = gpu.device->load(text, "store", 0, &kernel);
      CHECK(s.code == StatusCode::driver_too_old);
      CHECK(s.message.find(".version 9.9") != std::string::npos);
    }
  }

  // Breaks the context, so it runs in a process of its own, started by the case below.
  TEST_CASE("child: a trap is ours once, then an earlier error" * doctest::skip()) {
    Gpu gpu, bystander;
    REQUIRE(gpu.device);
    LoadedKernel* kernel = nullptr;
    REQUIRE(gpu.device->load(fault_ptx, "fault", 0, &kernel).ok());
    REQUIRE(gpu.device->launch(kernel, {}, nullptr, 0, nullptr).ok());
    CHECK(gpu.device->synchronize(nullptr).code == StatusCode::launch_failed);
    CHECK(gpu.device->launch(kernel, {}, nullptr, 0, nullptr).code == StatusCode::earlier_error);
    const Status s = bystander.device->synchronize(nullptr);
    CHECK(s.code == StatusCode::earlier_error);
    CHECK(s.message.find("CUDA_ERROR_") != std::string::npos);
  }

  TEST_CASE("a broken context is told apart from an error of the call") {
    Gpu gpu;
    if (!gpu.device) FLASHPTX_SKIP(gpu.missing);
    char self[4096] = {};
    REQUIRE(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    const ProcessResult r = shell(
        std::string(self) + " --no-skip -tc='child: a trap is ours once*'");
    INFO(r.output);
    CHECK(r.exit_code == 0);
    CHECK(r.output.find("1 passed, 0 failed, 0 skipped") != std::string::npos);
  }
}

}  // namespace flashptx::test
