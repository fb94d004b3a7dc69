// The runner run upon cases made for it: what it counts, what it keeps of their text, that the dead do not pass.
//
// Those of `runner/samples` are no tests; doctest leaves them out unless asked by --no-skip. Next: tests/main.cpp.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "tests/support.h"

using namespace flashptx;

namespace {

// Holds a folder that one case at a time can have.
void hold_for_a_while() {
  const std::string folder = std::string(std::getenv("FLASHPTX_SAMPLES")) + "/held";
  CHECK_MESSAGE(mkdir(folder.c_str(), 0700) == 0, "another case runs at the same time");
  usleep(100000);
  rmdir(folder.c_str());
}

test::ProcessResult run_samples(const std::string& which, int workers) {
  const test::ScratchFolder folder;
  char self[4096];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self);
  REQUIRE(n > 0);
  return test::shell("FLASHPTX_SAMPLES=" + folder.path("") + " FLASHPTX_TEST_WORKERS=" + std::to_string(workers) + " '" +
                     std::string(self, static_cast<std::size_t>(n)) + "' --no-skip -ts=runner/samples -tc='" + which + "'");
}

int times(const std::string& text, const std::string& what) {
  int n = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++n;
  return n;
}

}  // namespace

TEST_SUITE("runner/samples" * doctest::skip()) {
  TEST_CASE("gpu: one") { hold_for_a_while(); }
  TEST_CASE("gpu: two") { hold_for_a_while(); }
  TEST_CASE("a failure") {
    for (int i = 0; i < 20; ++i) {
      std::printf("line %d of it\n", i);
      if (i % 4 == 0) usleep(1000);
    }
    CHECK(1 + 1 == 3);
  }
  TEST_CASE("another failure") {
    for (int i = 0; i < 20; ++i) {
      test::shell("true");  // a process of its own in between
      std::printf("row %d of it\n", i);
    }
    CHECK(2 + 2 == 5);
  }
  TEST_CASE("an exception") { throw std::runtime_error("thrown by a sample"); }
  TEST_CASE("no reason to run") { FLASHPTX_SKIP("a reason, with spaces"); }
  TEST_CASE("dead: killed") {
    std::printf("last words\n");
    raise(SIGKILL);
  }
  TEST_CASE("dead: aborts") { std::abort(); }  // not a bad address: the sanitizers make an exit of that
  TEST_CASE("dead: leaves as if all were well") { std::exit(0); }
  TEST_CASE("fine: at once") { CHECK(true); }
  TEST_CASE("fine: holds") { hold_for_a_while(); }
  TEST_CASE("late: is well, but the process does not end so") { std::atexit([] { _exit(23); }); }
}

TEST_SUITE("runner") {
  TEST_CASE("several processes and one count the same") {
    for (int workers : {1, 2, 5}) {
      const test::ProcessResult r = run_samples("fine*,gpu:*,no reason*,*failure,an exception", workers);
      CAPTURE(r.output);
      CHECK(times(r.output, "\n4 passed, 3 failed, 1 skipped\n") == 1);
      CHECK(times(r.output, " passed, ") == 1);
      CHECK(r.output.find("skipped 1: a reason, with spaces\n") != std::string::npos);
      CHECK(times(r.output, "thrown by a sample") == 1);
      CHECK(r.output.find("1 + 1 == 3") != std::string::npos);
      CHECK(r.exit_code == 1);
      std::string lines, rows;
      for (int i = 0; i < 20; ++i) lines += "line " + std::to_string(i) + " of it\n", rows += "row " + std::to_string(i) + " of it\n";
      CHECK(r.output.find(lines) != std::string::npos);
      CHECK(r.output.find(rows) != std::string::npos);
    }
  }

  TEST_CASE("a case that kills its process fails by name, and the others still run") {
    const test::ProcessResult r = run_samples("fine*,dead*", 2);
    CAPTURE(r.output);
    CHECK(times(r.output, "\n2 passed, 3 failed, 0 skipped\n") == 1);
    CHECK(r.output.find("last words\n\"dead: killed\": the process died of a signal (Killed)") != std::string::npos);
    CHECK(r.output.find("\"dead: aborts\": the process died of a signal (Aborted)") != std::string::npos);
    CHECK(r.output.find("\"dead: leaves as if all were well\": the process ended within this case") != std::string::npos);
    CHECK(r.exit_code == 1);
  }

  TEST_CASE("a process that ends badly after its last case is a failure") {
    const test::ProcessResult r = run_samples("fine*,late*", 2);
    CAPTURE(r.output);
    CHECK(r.output.find("3 passed, 1 failed, 0 skipped\n") != std::string::npos);
    CHECK(r.output.find("A worker ended with status 23") != std::string::npos);
    CHECK(r.exit_code == 1);
  }

  TEST_CASE("no case at all is no pass") {
    const test::ProcessResult r = run_samples("there is none", 2);
    CHECK(r.output == "0 passed, 0 failed, 0 skipped\n");
    CHECK(r.exit_code == 1);
  }
}
