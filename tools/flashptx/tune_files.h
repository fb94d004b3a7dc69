// The tuner's work folder: assembled.csv, timings.csv, cubins/, running.txt.
//
// Lines are appended and flushed one by one, so that whatever ends the process loses at most the
// line in hand; a torn line is ignored when read. Next: tune.h.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace flashptx::tune {

// A kernel's text through one assembler.
struct Assembly {
  std::string kernel, text_hash, assembler;
  std::string verdict;  // "ok", or why it was dropped
  int registers = 0, spill_bytes = 0, stack_bytes = 0;
  double seconds = 0;
  bool ok() const { return verdict == "ok"; }
};

// One kernel on one cell in one stage.
struct Timing {
  std::string date, device, driver, assembler, dtype, mask;
  bool v_transposed = false;  // the kernels take V^T; the pass that writes it is timed with them
  int head_dim = 0;
  long long seqlen = 0, batch = 0, heads = 0;
  std::string kernel, text_hash;
  std::string stage;  // "1", "2", "3", "final"; "verify": note is "ok" or what was wrong
  int samples = 0;
  double ms_q1 = 0, ms_median = 0, ms_q3 = 0, tflops = 0;
  std::string anchor;  // timed in the same rounds
  double ratio = 0;    // median over the anchor's; 0: no figure
  double clock_mhz = 0;
  std::string note;  // why there is no figure, or why the kernel must not be tried again
};

std::string to_line(const Assembly& a);
std::string to_line(const Timing& t);
bool from_line(const std::string& line, Assembly* out);
bool from_line(const std::string& line, Timing* out);

class WorkFolder {
 public:
  // Makes the folder; reads what is there. Throws std::runtime_error.
  explicit WorkFolder(const std::string& path);

  // Thread-safe, as is append().
  bool find(const std::string& text_hash, const std::string& assembler, Assembly* out) const;
  void append(const Assembly& a);
  void append(const Timing& t);
  std::string cubin_path(const std::string& text_hash, const std::string& assembler) const;
  std::string newest_assembler() const;  // of the last line; "" if none
  const std::vector<Timing>& timings() const { return timings_; }
  const std::string& path() const { return path_; }

  // Text hashes of the kernels that are being run right now; what is left there ended the process.
  void set_running(const std::vector<std::string>& hashes);
  std::vector<std::string> left_running() const;

 private:
  void append_line(const std::string& file, const char* header, const std::string& line);
  std::string path_, newest_assembler_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Assembly> assemblies_;
  std::vector<Timing> timings_;
};

std::string utc_date();

}  // namespace flashptx::tune
