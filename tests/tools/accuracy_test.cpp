// `flashptx accuracy` on the emulator at small sizes: every row is within its limit, and a device that
// computes something else is noticed. Next: tools/flashptx/accuracy.h.
#include "tools/flashptx/accuracy.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/forwarding_device.h"
#include "tests/support.h"

using namespace flashptx;

namespace {

AccuracyReport report_of(Device& device, const std::vector<AccuracyTest>& tests, int head_dim = 128) {
  AccuracySize size = accuracy_size(true);
  size.head_dim = head_dim, size.queries = 40;
  size.outlier_seqlens = {200}, size.constant_keys = {300, 520}, size.needle_keys = {600};
  AccuracyReport report;
  const Status s = run_accuracy(device, size, tests, {}, &report);
  CHECK_MESSAGE(s.ok(), s.message);
  return report;
}

std::unique_ptr<Device> emulator(bool narrow = false) {
  EmulatorOptions options;
  options.fp8_narrow_accumulator = narrow;
  std::unique_ptr<Device> device;
  REQUIRE(open_emulator(options, &device).ok());
  return device;
}

// Passes everything on, but kernels of attention leave O as it is.
class Lazy : public test::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  Status copy_from_device(void* d, std::uint64_t s, std::size_t n) override {
    const Status r = inner->copy_from_device(d, s, n);
    // O as zeros between its guards, which nobody wrote.
    auto* bytes = static_cast<std::uint8_t*>(d);
    for (std::size_t i = 4096; i + 4096 < n; ++i) bytes[i] = 0;
    return r;
  }
  Status launch(LoadedKernel*, const LaunchDims&, void**, int, Stream) override { return {}; }
  Status time(const std::function<Status()>&, int, int, Stream, std::vector<float>*) override { return {}; }
};

const std::vector<AccuracyTest> all = {AccuracyTest::outliers, AccuracyTest::constant, AccuracyTest::needle};

}  // namespace

TEST_SUITE("tools/accuracy") {
  TEST_CASE("every row is within its limit and every needle is found") {
    const auto device = emulator();
    const AccuracyReport report = report_of(*device, all);
    CHECK(report.rows.size() == 18 + 2 * 6 + 6);
    for (const AccuracyRow& r : report.rows) {
      CAPTURE(accuracy_line(r));
      CHECK(r.ok());
      CHECK(r.found == r.wanted);
      if (r.test == AccuracyTest::outliers) CHECK(r.error > 0);
    }
  }

  TEST_CASE("a narrow accumulator stays within the limits at these lengths") {
    const auto device = emulator(true);
    for (const AccuracyRow& r : report_of(*device, {AccuracyTest::constant, AccuracyTest::needle}).rows) {
      CAPTURE(accuracy_line(r));
      CHECK(r.ok());
    }
  }

  TEST_CASE("a device that leaves O at zero fails every row that it computed") {
    Lazy device(emulator());
    for (const AccuracyRow& r : report_of(device, all).rows) {
      CAPTURE(accuracy_line(r));
      if (!r.softmax.empty()) CHECK_FALSE(r.ok());
      CHECK((r.wanted == 0 || r.found == 0));
    }
  }

  TEST_CASE("CSV, JSON and the pictures hold every row") {
    const auto device = emulator();
    const AccuracyReport report = report_of(*device, all, 64);
    const std::string csv = accuracy_csv(report, "d");
    CHECK(static_cast<std::size_t>(std::count(csv.begin(), csv.end(), '\n')) == report.rows.size() + 1);
    CHECK(nlohmann::json::parse(accuracy_json(report, "d"))["rows"].size() == report.rows.size());
    CHECK(accuracy_rmse_svg(report, "d").find("</svg>") != std::string::npos);
    CHECK(accuracy_constant_svg(report, "d").find("</svg>") != std::string::npos);
    CHECK(accuracy_rmse_svg({}, "d").empty());
    CHECK(accuracy_constant_svg({}, "d").empty());
  }
}
