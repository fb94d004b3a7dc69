// Processes, files and the assembler for tests.
//
// ptxas is the oracle for spelling; it is looked for once, in the same places as the Makefile does.
// Next: tests/main.cpp.
#include "tests/support.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace flashptx::test {
namespace {

bool executable(const std::string& path) { return !path.empty() && access(path.c_str(), X_OK) == 0; }

std::string find_ptxas() {
  std::vector<std::string> places;
  if (const char* p = std::getenv("FLASHPTX_PTXAS")) places.push_back(p);
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* p = std::getenv(variable)) places.push_back(std::string(p) + "/bin/ptxas");
  if (const char* p = std::getenv("PATH")) {
    std::istringstream path(p);
    for (std::string folder; std::getline(path, folder, ':');) places.push_back(folder + "/ptxas");
  }
  places.push_back("/usr/local/cuda/bin/ptxas");
  places.push_back("build/cuda/nvidia/cu13/bin/ptxas");
  for (const std::string& place : places)
    if (executable(place)) return place;
  return "";
}

int number_before(const std::string& log, const char* what) {
  int largest = 0;
  const std::string phrase = std::string(" ") + what;
  for (std::size_t at = log.find(phrase); at != std::string::npos; at = log.find(phrase, at + 1)) {
    std::size_t first = at;
    while (first > 0 && std::isdigit(static_cast<unsigned char>(log[first - 1]))) --first;
    if (first < at) largest = std::max(largest, std::stoi(log.substr(first, at - first)));
  }
  return largest;
}

}  // namespace

const std::string& ptxas() {
  static const std::string found = find_ptxas();
  return found;
}

ProcessResult shell(const std::string& command) {
  ProcessResult result;
  FILE* pipe = popen(("{ " + command + "\n} 2>&1").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen failed: " + command);
  char buffer[4096];
  for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) result.output.append(buffer, n);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  if (!out.write(bytes.data(), static_cast<std::streamsize>(bytes.size())))
    throw std::runtime_error("cannot write " + path);
}

ScratchFolder::ScratchFolder() {
  std::string pattern = std::filesystem::temp_directory_path().string() + "/flashptx-test-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Assembled assemble(const std::string& text, const std::string& extra_flags) {
  const ScratchFolder folder;
  write_file(folder.path("kernel.ptx"), text);
  const ProcessResult run = shell(ptxas() + " -arch=sm_90a -v " + extra_flags + " " +
                                  folder.path("kernel.ptx") + " -o " + folder.path("kernel.cubin"));
  Assembled result;
  result.ok = run.exit_code == 0;
  result.log = run.output;
  result.registers = number_before(run.output, "registers");
  result.stack_bytes = number_before(run.output, "bytes stack frame");
  result.spill_bytes =
      number_before(run.output, "bytes spill stores") + number_before(run.output, "bytes spill loads");
  return result;
}

}  // namespace flashptx::test
