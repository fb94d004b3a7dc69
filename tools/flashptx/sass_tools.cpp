// Finds and runs ptxas and a disassembler. Both are optional: the tool says what is missing and
// where it is to be had. Next: sass_command.cpp.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tools/flashptx/sass.h"

extern char** environ;

namespace flashptx::sass {

namespace {

namespace fs = std::filesystem;

// Folders in the order in which they are searched.
std::vector<std::string> search_path() {
  std::vector<std::string> dirs;
  auto add_list = [&](const char* variable, const char* below) {
    const char* value = std::getenv(variable);
    if (!value) return;
    std::string list = value;
    for (std::size_t at = 0; at <= list.size();) {
      const std::size_t end = std::min(list.find(':', at), list.size());
      if (end > at) dirs.push_back(list.substr(at, end - at) + below);
      at = end + 1;
    }
  };
  add_list("PATH", "");
  add_list("CUDA_HOME", "/bin");
  add_list("CUDA_PATH", "/bin");
  dirs.push_back("/usr/local/cuda/bin");         // where NVIDIA's packages install
  dirs.push_back("build/cuda/nvidia/cu13/bin");  // where tools/setup.sh puts NVIDIA's wheels
  return dirs;
}

std::string find_program(const char* name) {
  for (const std::string& dir : search_path()) {
    const std::string path = dir + "/" + name;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

// A folder of our own for the files that ptxas reads and writes; gone when the value goes.
struct ScratchFolder {
  std::string path;
  ScratchFolder() {
    std::error_code bad;
    const fs::path above = fs::temp_directory_path(bad);
    std::string pattern = (above / "flashptx-XXXXXX").string();
    if (bad || !mkdtemp(pattern.data()))
      throw std::runtime_error("cannot make a folder for the assembler's files: is $TMPDIR a folder that can be written?");
    path = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

// What an outside program said, or that it said nothing.
std::string complaint_of(const std::string& program, int status, const std::string& said) {
  if (said.find_first_not_of(" \n") != std::string::npos) return program + ": " + said.substr(0, said.find_last_not_of("\n") + 1);
  return program + (status < 0 ? " was ended by a signal or could not be started" : " ended with status " + std::to_string(status)) +
         " and said nothing";
}

}  // namespace

Tools find_tools() {
  Tools t;
  const char* asked = std::getenv("FLASHPTX_PTXAS");  // as the Makefile and the tests take it
  t.ptxas = asked && *asked ? asked : find_program("ptxas");
  t.disassembler = find_program("nvdisasm");
  t.has_lines = !t.disassembler.empty();
  if (!t.has_lines) t.disassembler = find_program("cuobjdump");
  if (t.ptxas.empty())
    t.how_to_get =
        "ptxas not found in $FLASHPTX_PTXAS, $PATH, $CUDA_HOME/bin or build/cuda: it comes with the CUDA toolkit "
        "(package cuda-nvcc). ";
  if (t.disassembler.empty())
    t.how_to_get +=
        "no nvdisasm or cuobjdump in $PATH, $CUDA_HOME/bin or build/cuda: install NVIDIA's package "
        "cuda-nvdisasm (or the "
        "wheel nvidia-cuda-nvdisasm) and put its folder into $PATH.";
  return t;
}

int run_program(const std::vector<std::string>& argv, std::string* output) {
  int ends[2];
  // Closed in children: with several at once, one would keep another's pipe open.
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  std::vector<char*> args;
  for (const std::string& a : argv) args.push_back(const_cast<char*>(a.c_str()));
  args.push_back(nullptr);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, args[0], &actions, nullptr, args.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  char buffer[65536];
  for (ssize_t n; !failed && (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    output->append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  if (failed) return -1;
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string disassemble_file(const Tools& tools, const std::string& cubin_path) {
  if (tools.disassembler.empty()) throw std::runtime_error(tools.how_to_get);
  std::string text;
  const std::string path = cubin_path.rfind("-", 0) == 0 ? "./" + cubin_path : cubin_path;
  const std::vector<std::string> argv =
      tools.has_lines ? std::vector<std::string>{tools.disassembler, "-hex", "-gp", "-c", path}
                      : std::vector<std::string>{tools.disassembler, "-sass", path};
  if (const int status = run_program(argv, &text); status != 0)
    throw std::runtime_error(complaint_of(tools.disassembler, status, text));
  return text;
}

Assembled assemble(const Tools& tools, const std::string& ptx_text, const std::string& name) {
  if (tools.ptxas.empty() || tools.disassembler.empty()) throw std::runtime_error(tools.how_to_get);
  const ScratchFolder scratch;
  const std::string ptx = scratch.path + "/kernel.ptx", cubin = scratch.path + "/kernel.cubin";
  std::ofstream(ptx) << ptx_text;
  Assembled out;
  if (const int status = run_program({tools.ptxas, "-arch=sm_90a", "-lineinfo", "-v", ptx, "-o", cubin}, &out.log); status != 0) {
    std::string said = complaint_of(tools.ptxas, status, out.log);
    for (std::size_t at; (at = said.find(ptx)) != std::string::npos;) said.replace(at, ptx.size(), name);
    throw std::runtime_error(said);
  }
  out.disassembly = disassemble_file(tools, cubin);
  return out;
}

}  // namespace flashptx::sass
