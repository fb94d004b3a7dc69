// Worker processes that get the numbers of jobs over a socket and answer with verdicts.
//
// The caller alone prints and counts. It must have no threads yet, and nothing that a fork breaks, such as a GPU's context.
// Next: tests/workers_test.cpp.
#include "tests/workers.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <stdexcept>

namespace flashptx::test {
namespace {

struct Worker {
  pid_t pid = 0;
  int socket = -1;
  std::FILE* output = nullptr;  // stdout and stderr of the process, emptied after each job
  bool busy = false;
  std::size_t job = 0;
};

bool send_all(int socket, const void* data, std::size_t bytes) {
  for (const char* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t n = send(socket, at, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

// false: the other side is gone.
bool receive_all(int socket, void* data, std::size_t bytes) {
  for (char* at = static_cast<char*>(data); bytes > 0;) {
    const ssize_t n = recv(socket, at, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

bool send_verdict(int socket, const Verdict& v) {
  const std::size_t head[2] = {v.ok, v.skip_reason.size()};
  return send_all(socket, head, sizeof head) && send_all(socket, v.skip_reason.data(), v.skip_reason.size());
}

bool receive_verdict(int socket, Verdict* v) {
  std::size_t head[2];
  if (!receive_all(socket, head, sizeof head)) return false;
  v->ok = head[0] != 0, v->skip_reason.resize(head[1]);
  return receive_all(socket, v->skip_reason.data(), head[1]);
}

std::string take_output(const Worker& w) {
  std::string text;
  char buffer[4096];
  const int file = fileno(w.output);
  for (ssize_t n; (n = pread(file, buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  if (ftruncate(file, 0) != 0) throw std::runtime_error("cannot empty a worker's output");
  return text;
}

class Pool {
 public:
  Pool(const Jobs& jobs, unsigned workers) : jobs_(jobs), workers_(workers) {
    for (std::size_t i = 0; i < jobs.names.size(); ++i) (jobs.alone(i) ? alone_ : shared_).push_back(i);
  }

  void run() {
    for (;;) {
      for (Worker& w : workers_) hand_out(&w);
      std::vector<pollfd> ready;
      std::vector<Worker*> of;
      for (Worker& w : workers_)
        if (w.busy) ready.push_back({w.socket, POLLIN, 0}), of.push_back(&w);
      if (ready.empty()) break;
      if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) throw std::runtime_error("poll failed");
      for (std::size_t i = 0; i < ready.size(); ++i)
        if (ready[i].revents != 0) collect(of[i]);
    }
    for (Worker& w : workers_) {
      if (w.pid == 0) continue;
      const std::string how = end_of(&w);
      if (!how.empty()) jobs_.done({}, take_output(w) + "A worker " + how + " after its last case\n");
      std::fclose(w.output);
    }
  }

 private:
  void hand_out(Worker* w) {
    if (w->busy) return;
    bool others_busy = false;
    for (const Worker& other : workers_) others_busy |= other.busy;
    std::deque<std::size_t>& from = shared_.empty() && !others_busy ? alone_ : shared_;
    if (from.empty()) return;
    if (w->pid == 0) start(w);
    w->job = from.front(), w->busy = true;
    from.pop_front();
    send_all(w->socket, &w->job, sizeof w->job);  // where it is gone, collect() hears of it
  }

  void collect(Worker* w) {
    w->busy = false;
    Verdict v;
    if (receive_verdict(w->socket, &v)) return jobs_.done(v, take_output(*w));
    const std::string how = end_of(w);
    jobs_.done({}, take_output(*w) + "\"" + jobs_.names[w->job] + "\": the process " + (how.empty() ? "ended" : how) +
                       " within this case\n");
    std::fclose(w->output);
    *w = {};  // hand_out() starts another
  }

  void start(Worker* w) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) throw std::runtime_error("socketpair failed");
    w->output = std::tmpfile();
    if (w->output == nullptr || fcntl(fileno(w->output), F_SETFL, O_APPEND) != 0)
      throw std::runtime_error("no temporary file for a worker's output");
    std::fflush(nullptr);
    w->pid = fork();
    if (w->pid < 0) throw std::runtime_error("fork failed");
    if (w->pid == 0) {
      for (const Worker& other : workers_)
        if (&other != w && other.pid != 0) close(other.socket);  // or it would not see the caller's end
      close(sockets[0]);
      work(sockets[1], fileno(w->output));
    }
    close(sockets[1]);
    w->socket = sockets[0];
  }

  // Ends by exit(), not _exit(): the sanitizers report leaks there.
  [[noreturn]] void work(int socket, int output) const {
    if (dup2(output, 1) < 0 || dup2(output, 2) < 0) _exit(2);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a crash loses no line
    for (std::size_t job; receive_all(socket, &job, sizeof job);) {
      const Verdict v = jobs_.run(job);
      std::cout.flush();
      std::fflush(nullptr);
      if (!send_verdict(socket, v)) break;
    }
    std::exit(0);
  }

  // Closes the connection, waits, and says how the process ended; nothing to say of status 0.
  static std::string end_of(Worker* w) {
    close(w->socket);
    int status = 0;
    while (waitpid(w->pid, &status, 0) < 0)
      if (errno != EINTR) return "is lost";
    if (WIFSIGNALED(status)) return std::string("died of a signal (") + strsignal(WTERMSIG(status)) + ")";
    return WEXITSTATUS(status) == 0 ? "" : "ended with status " + std::to_string(WEXITSTATUS(status));
  }

  const Jobs& jobs_;
  std::vector<Worker> workers_;
  std::deque<std::size_t> shared_, alone_;
};

}  // namespace

void run_in_workers(const Jobs& jobs, unsigned workers) { Pool(jobs, workers).run(); }

}  // namespace flashptx::test
