// The test runner: doctest with one closing line, `N passed, N failed, N skipped`.
//
// A listener counts cases, not assertions; a case that called skip() counts as skipped and its reason is
// printed, so that nothing that did not run can look like a pass. A run without a case fails. Cases are spread over as many
// processes as there are processors; FLASHPTX_TEST_WORKERS=1 runs all in this one, as a debugger wants it.
// Next: tests/support.h, tests/workers.h.
#define DOCTEST_CONFIG_IMPLEMENT
#include "tests/support.h"
#include "tests/workers.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace flashptx::test {
namespace {

struct Counts {
  int passed = 0, failed = 0, skipped = 0;
  std::string skip_reason;                  // of the running case
  std::map<std::string, int> skip_reasons;  // reason -> cases
} counts;

struct Listed {
  std::vector<std::string> names;
  std::vector<bool> alone;
  int first = 1;          // what doctest calls the first of them, from 1
  bool separable = true;  // no option looks at more than one case
} listed;

struct Counter : doctest::IReporter {
  explicit Counter(const doctest::ContextOptions& options) : options_(options) {}
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
  void report_query(const doctest::QueryData& query) override {
    for (unsigned i = 0; i < query.num_data; ++i) {
      const std::string name = query.data[i]->m_name;
      listed.names.push_back(name);
      // Cases on the GPU: some time it, and the driver's part of a launch.
      listed.alone.push_back(name.rfind("gpu:", 0) == 0 || std::string(query.data[i]->m_test_suite).rfind("gpu/", 0) == 0);
    }
    listed.first = static_cast<int>(std::max(1u, options_.first));
    listed.separable = options_.abort_after <= 0 && options_.out.size() == 0;
  }
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  const doctest::ContextOptions& options_;
};
REGISTER_LISTENER("counter", 1, Counter);

void configure(doctest::Context* context, int argc, char** argv) {
  context->setOption("no-intro", true);
  context->setOption("minimal", true);  // failures only
  context->applyCommandLine(argc, argv);
}

bool other_reporter(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::string(argv[i]).find("-r=") == 0 || std::string(argv[i]).find("reporters=") != std::string::npos) return true;
  return false;
}

// Fills `listed` with the cases that the command line asks for, in their order.
void list_cases(int argc, char** argv) {
  std::vector<const char*> arguments(argv, argv + argc);
  arguments.insert(arguments.end(), {"--list-test-cases", "--reporters=none"});  // no options but arguments
  doctest::Context query;
  query.applyCommandLine(static_cast<int>(arguments.size()), arguments.data());
  query.run();
}

Verdict run_listed(std::size_t i, int argc, char** argv) {
  doctest::Context context;
  configure(&context, argc, argv);
  context.setOption("first", listed.first + static_cast<int>(i));
  context.setOption("last", listed.first + static_cast<int>(i));
  counts = {};
  const int status = context.run();
  return {status == 0 && counts.failed == 0 && counts.passed + counts.skipped == 1, counts.skip_reason};
}

// A case's text without the summary that doctest ends a run with: here a run is one case.
void print_case(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.find("[doctest] ") == std::string::npos) std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void count_case(const Verdict& v) {
  if (!v.ok) ++counts.failed;
  else if (v.skip_reason.empty()) ++counts.passed;
  else ++counts.skipped, ++counts.skip_reasons[v.skip_reason];
}

unsigned wanted_workers() {
  const char* asked = std::getenv("FLASHPTX_TEST_WORKERS");
  const int n = asked ? std::atoi(asked) : static_cast<int>(std::min(8u, std::thread::hardware_concurrency()));
  return static_cast<unsigned>(std::max(1, n));
}

}  // namespace

void skip(const std::string& reason) { counts.skip_reason = reason; }

}  // namespace flashptx::test

int main(int argc, char** argv) {
  using namespace flashptx::test;
  doctest::Context context;
  configure(&context, argc, argv);
  if (context.shouldExit()) return context.run();  // a query, such as --list-test-cases
  if (!other_reporter(argc, argv)) list_cases(argc, argv);
  const unsigned workers = static_cast<unsigned>(std::min<std::size_t>(wanted_workers(), listed.names.size()));
  int status = 0;
  if (workers < 2 || !listed.separable) {
    status = context.run();
  } else {
    Jobs jobs;
    jobs.names = listed.names;
    jobs.alone = [](std::size_t i) { return listed.alone[i]; };
    jobs.run = [=](std::size_t i) { return run_listed(i, argc, argv); };
    // Of many cases only what failed is shown, and how far the run is: some that pass print errors that they wanted.
    const bool many = listed.names.size() >= 100 && argc == 1;
    std::size_t done = 0;
    jobs.done = [&](const Verdict& v, const std::string& text) {
      if (!many || !v.ok) print_case(text);
      count_case(v);
      if (many && ++done % 100 == 0) std::printf("%zu of %zu cases\n", done, listed.names.size()), std::fflush(stdout);
    };
    run_in_workers(jobs, workers);
  }
  for (const auto& [reason, cases] : counts.skip_reasons)
    std::printf("skipped %d: %s\n", cases, reason.c_str());
  std::printf("%d passed, %d failed, %d skipped\n", counts.passed, counts.failed, counts.skipped);
  if (counts.passed + counts.failed + counts.skipped == 0) return 1;
  return status != 0 || counts.failed != 0;
}
