// Jobs spread over processes, for the test runner: one that dies takes one job with it, not the rest.
//
// Processes and not threads, because a test case may set the environment, open the only GPU or crash. What a job
// writes is kept until it ends, so that two failures are not mixed. Next: tests/main.cpp, whose jobs are cases.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace flashptx::test {

struct Verdict {
  bool ok = false;
  std::string skip_reason;  // not empty: the job did not run
};

struct Jobs {
  std::vector<std::string> names;
  // Such a job starts when all others are done, and runs by itself: it measures, or has a device to itself.
  std::function<bool(std::size_t)> alone;
  std::function<Verdict(std::size_t)> run;  // in a worker
  // In the caller's process, in the order in which jobs end. `text` is all that the job wrote.
  std::function<void(const Verdict&, const std::string& text)> done;
};

// Each worker takes the next job when it is free. A worker that dies or ends with another status than 0 makes its job, or
// one more than there are, a failure, and another one goes on.
void run_in_workers(const Jobs& jobs, unsigned workers);

}  // namespace flashptx::test
