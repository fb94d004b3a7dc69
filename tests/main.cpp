// The test runner: doctest with one closing line, `N passed, N failed, N skipped`.
//
// A listener counts cases, not assertions; a case that called skip() counts as skipped and its reason is
// printed, so that nothing that did not run can look like a pass. A run without a case fails.
// Next: tests/support.h.
#define DOCTEST_CONFIG_IMPLEMENT
#include "tests/support.h"

#include <cstdio>
#include <map>
#include <string>

namespace flashptx::test {
namespace {

struct Counts {
  int passed = 0, failed = 0, skipped = 0;
  std::string skip_reason;                  // of the running case
  std::map<std::string, int> skip_reasons;  // reason -> cases
} counts;

struct Counter : doctest::IReporter {
  explicit Counter(const doctest::ContextOptions&) {}
  void test_case_start(const doctest::TestCaseData&) override { counts.skip_reason.clear(); }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    if (!stats.testCaseSuccess) {
      ++counts.failed;
    } else if (!counts.skip_reason.empty()) {
      ++counts.skipped;
      ++counts.skip_reasons[counts.skip_reason];
    } else {
      ++counts.passed;
    }
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};
REGISTER_LISTENER("counter", 1, Counter);

}  // namespace

void skip(const std::string& reason) { counts.skip_reason = reason; }

}  // namespace flashptx::test

int main(int argc, char** argv) {
  doctest::Context context;
  context.setOption("no-intro", true);
  context.setOption("minimal", true);  // failures only
  context.applyCommandLine(argc, argv);
  const int status = context.run();
  if (context.shouldExit()) return status;  // a query, such as --list-test-cases
  const auto& counts = flashptx::test::counts;
  for (const auto& [reason, cases] : counts.skip_reasons)
    std::printf("skipped %d: %s\n", cases, reason.c_str());
  std::printf("%d passed, %d failed, %d skipped\n", counts.passed, counts.failed, counts.skipped);
  if (counts.passed + counts.failed + counts.skipped == 0) return 1;
  return status != 0 || counts.failed != 0;
}
