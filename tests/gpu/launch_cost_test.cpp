// What the driver takes of the host's time for a launch, by how it is asked and by what it has to copy: a planned call of
// ours is one look at the context, one at the stream (kernels that draw their tiles) and one launch, and our own part of it
// is 0.2 us (tests/host/planned_call_test.cpp), so that the rest is found here. Reports; checks only that every way launches.
// Next: tests/gpu/host_gpu_test.cpp, which times the planned call itself.
#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "host/driver/cuda_device.h"
#include "tests/support.h"

namespace flashptx::test {
namespace {

// An entry that does nothing, with `maps` tensor maps and `scalars` addresses as parameters.
std::string nothing_ptx(int maps, int scalars) {
  std::string params;
  const auto add = [&](const std::string& p) { params += (params.empty() ? "" : ", ") + p; };
  for (int i = 0; i < maps; ++i) add(".param .align 64 .b8 map" + std::to_string(i) + "[128]");
  for (int i = 0; i < scalars; ++i) add(".param .u64 value" + std::to_string(i));
  return ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry nothing(" + params + ")\n.reqntid 384, 1, 1\n{\n  ret;\n}\n";
}

struct Bench {
  const DriverApi& api;
  driver::Function function = nullptr;
  std::vector<void*> params;
  std::size_t bytes = 0;
  alignas(128) char buffer[1024] = {};

  driver::Result ex(void** p, void** extra) const {
    driver::LaunchConfig config{{1, 1, 1}, {384, 1, 1}, 0, nullptr, nullptr, 0};
    return api.launch_kernel_ex(&config, function, p, extra);
  }
  driver::Result plain(void** p, void** extra) const {
    return api.launch_kernel(function, 1, 1, 1, 384, 1, 1, 0, nullptr, p, extra);
  }
  // CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END
  std::vector<void*> extra() {
    return {reinterpret_cast<void*>(1), buffer, reinterpret_cast<void*>(2), &bytes, nullptr};
  }
};

// Microseconds a call, the best of batches that do not fill the queue.
double best_us(const DriverApi& api, const std::function<driver::Result()>& call) {
  double best = 1e9;
  for (int batch = 0; batch < 40; ++batch) {
    driver::Result e = driver::success;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 100 && e == driver::success; ++i) e = call();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    REQUIRE(e == driver::success);
    REQUIRE(api.stream_synchronize(nullptr) == driver::success);
    best = std::min(best, took.count() / 100);
  }
  return best;
}

void report(const DriverApi& api, int maps, int scalars) {
  driver::Module module = nullptr;
  REQUIRE(api.module_load_data_ex(&module, nothing_ptx(maps, scalars).c_str(), 0, nullptr, nullptr) == driver::success);
  Bench b{api, nullptr, {}, static_cast<std::size_t>(128 * maps + 8 * scalars)};
  REQUIRE(api.module_get_function(&b.function, module, "nothing") == driver::success);
  for (int i = 0; i < maps; ++i) b.params.push_back(b.buffer + 128 * i);
  for (int i = 0; i < scalars; ++i) b.params.push_back(b.buffer + 128 * maps + 8 * i);
  std::vector<void*> extra = b.extra();
  const double ex = best_us(api, [&] { return b.ex(b.params.data(), nullptr); });
  const double ex_packed = best_us(api, [&] { return b.ex(nullptr, extra.data()); });
  const double plain = best_us(api, [&] { return b.plain(b.params.data(), nullptr); });
  const double packed = best_us(api, [&] { return b.plain(nullptr, extra.data()); });
  MESSAGE(maps << " maps and " << scalars << " addresses: cuLaunchKernelEx " << ex << " us, packed " << ex_packed
               << "; cuLaunchKernel " << plain << ", packed " << packed);
  api.module_unload(module);
}

}  // namespace

TEST_SUITE("gpu/host") {
  TEST_CASE("what a launch costs the host is reported, by how it is asked for") {
    const DriverApi* api = nullptr;
    std::unique_ptr<Device> device;
    Status s = load_driver(&api);
    if (s.ok()) s = open_cuda_device({}, &device);
    if (!s.ok()) FLASHPTX_SKIP(s.message);
    driver::Context context = nullptr;
    REQUIRE(api->primary_context_retain(&context, 0) == driver::success);
    REQUIRE(api->context_push(context) == driver::success);
    const bool has_plain = api->launch_kernel != nullptr;
    REQUIRE(has_plain);
    for (const auto& [maps, scalars] : {std::pair{0, 0}, std::pair{0, 9}, std::pair{1, 9}, std::pair{4, 9}, std::pair{4, 24}})
      report(*api, maps, scalars);
    int status = 0;
    driver::Context current = nullptr;
    MESSAGE("cuCtxGetCurrent " << best_us(*api, [&] { return api->context_get_current(&current); }) << " us, cuStreamIsCapturing "
                               << best_us(*api, [&] { return api->stream_is_capturing(nullptr, &status); }) << " us");
    api->context_pop(&current);
    api->primary_context_release(0);
  }
}

}  // namespace flashptx::test
