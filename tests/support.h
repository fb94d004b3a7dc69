// What every test file may use: a skip that states its reason, the assembler, a scratch folder.
//
// A case that cannot run here says `FLASHPTX_SKIP("why")`: it counts as skipped, never as passed, and the
// reason is printed. Next: tests/main.cpp counts.
#pragma once

#include <doctest/doctest.h>

#include <string>

namespace flashptx::test {

// Marks the running case as skipped; FLASHPTX_SKIP also leaves it.
void skip(const std::string& reason);

// Path of ptxas ($FLASHPTX_PTXAS, $CUDA_HOME, PATH, the usual places), empty if there is none.
const std::string& ptxas();

struct Assembled {
  bool ok = false;
  std::string log;  // everything that `ptxas -v` said
  int registers = -1;
  int spill_bytes = 0;  // stores plus loads
  int stack_bytes = 0;
};
// Assembles for sm_90a and reads what -v reports. `ptxas()` must not be empty.
Assembled assemble(const std::string& text, const std::string& extra_flags = "");

struct ProcessResult {
  int exit_code = -1;
  std::string output;  // stdout and stderr
};
ProcessResult shell(const std::string& command);

std::string read_file(const std::string& path);  // throws std::runtime_error if unreadable
void write_file(const std::string& path, const std::string& bytes);

// A fresh folder, removed with its contents at the end of the scope.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace flashptx::test

#define FLASHPTX_SKIP(reason)          \
  do {                                 \
    ::flashptx::test::skip((reason)); \
    return;                            \
  } while (false)
