// Candidates through ptxas on all cores; each text once, known again by its hash. Next: tune.h.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "host/driver/assemble.h"
#include "host/sha256.h"
#include "tools/flashptx/runner.h"
#include "tools/flashptx/sass.h"
#include "tools/flashptx/tune.h"

namespace flashptx::tune {
namespace {

namespace fs = std::filesystem;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// "ok", or the first thing that makes the machine code slower or other than the text.
std::string verdict_of(int status, const std::string& log, const std::string& text,
                       const std::string& cubin, const sass::AssemblerFacts& facts) {
  if (status != 0) return "ptxas failed: " + log.substr(0, 300);
  if (facts.spill_store_bytes + facts.spill_load_bytes > 0) return "spills";
  if (facts.stack_bytes > 0) return "local memory";
  // C7508: setmaxnreg ignored; C7510: wgmma serialised; C7514 to C7519: a wait or fence inserted.
  if (!facts.remarks.empty()) return "remark: " + facts.remarks.front().substr(0, 300);
  if (count_usetmaxreg(cubin) < count_setmaxnreg(text)) return "setmaxnreg dropped";
  return "ok";
}

Assembly assemble_one(const WorkFolder& work, const std::string& name, const std::string& text,
                      const std::string& hash, const std::string& ptxas, const std::string& version,
                      const KernelConfig* emulated) {
  const auto start = std::chrono::steady_clock::now();
  const std::string cubin = work.cubin_path(hash, version);
  const std::string ptx = cubin + ".ptx", fresh = cubin + ".new";
  std::ofstream(ptx, std::ios::binary) << text;
  std::string log;
  const int status = sass::run_program({ptxas, "-arch=sm_90a", "-v", ptx, "-o", fresh}, &log);
  const sass::AssemblerFacts facts = sass::parse_assembler_log(log, name);
  Assembly a;
  a.kernel = name, a.text_hash = hash, a.assembler = version;
  a.registers = facts.registers, a.stack_bytes = facts.stack_bytes;
  a.spill_bytes = facts.spill_store_bytes + facts.spill_load_bytes;
  a.verdict = verdict_of(status, log, text, read_file(fresh), facts);
  if (a.ok() && emulated != nullptr)
    if (const std::string wrong = emulator_doubts(*emulated); !wrong.empty())
      a.verdict = "emulator: " + wrong.substr(0, 300);
  std::error_code ignored;
  if (a.ok()) fs::rename(fresh, cubin);
  else fs::remove(fresh, ignored);
  fs::remove(ptx, ignored);
  a.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return a;
}

}  // namespace

std::string text_hash(const std::string& ptx) { return to_hex(sha256(ptx)).substr(0, 24); }

// Several tiles for each, an even number for pairs of CTAs; one tile in the last wave where such tiles are cut.
int emulated_multiprocessors(const KernelConfig& config) {
  const int tiles = 2 * ((emulated_rows + config.tile_q() - 1) / config.tile_q());
  return config.plan.split_tail ? tiles - 1 : 2;
}

std::string emulator_doubts(const KernelConfig& config) {
  EmulatorOptions options;
  options.seed = 1, options.adversary_level = 2;
  options.threads = 1;          // every core assembles another kernel
  options.multiprocessors = emulated_multiprocessors(config);
  std::unique_ptr<Device> device;
  if (const Status s = open_emulator(options, &device); !s.ok()) return s.message;
  reference::Problem p;
  p.dtype = config.problem.dtype, p.mask = config.problem.mask;
  p.batch = 1, p.heads_q = 2, p.heads_kv = 1, p.seqlen_q = emulated_rows, p.seqlen_k = 351;
  p.head_dim = config.problem.head_dim, p.head_dim_v = config.problem.head_dim_v;
  p.scale = 1 / std::sqrt(static_cast<float>(p.head_dim));
  p.threads = 1;
  const Case c = make_case(p, reference::Layout::bshd, reference::Inputs::outliers, 3, true, 0);
  Attention attention(*device);
  return run_case(*device, attention, c, {config.name(), ""}).complaint();
}

std::string assembler_version(const std::string& ptxas) {
  std::string out;
  if (ptxas.empty() || sass::run_program({ptxas, "--version"}, &out) != 0) return "";
  const std::size_t at = out.rfind(", V");
  if (at == std::string::npos) return "";
  return out.substr(at + 3, out.find_first_not_of("0123456789.", at + 3) - at - 3);
}

AssembleReport assemble_all(WorkFolder& work, const std::vector<Candidate>& candidates,
                            const std::string& ptxas, int jobs, bool emulate) {
  const std::string version = assembler_version(ptxas);
  if (version.empty()) throw std::runtime_error(ptxas + " does not say its version");
  AssembleReport report;
  std::mutex mutex;
  std::exception_ptr failure;
  std::atomic<std::size_t> next{0};
  std::atomic<bool> stop{false};
  const auto one = [&](const KernelConfig& config) {
    const std::string name = config.name(), text = emit(config).text, hash = text_hash(text);
    Assembly a;
    const bool known = work.find(hash, version, &a);
    if (!known) {
      a = assemble_one(work, name, text, hash, ptxas, version, emulate ? &config : nullptr);
      work.append(a);
    }
    std::lock_guard lock(mutex);
    report.reused += known;
    ++(a.ok() ? report.kept : report.dropped);
    if (!a.ok()) ++report.reasons[a.verdict.substr(0, a.verdict.find(':'))];
    if (!known)
      std::printf("  %4d of %zu  %5.1f s  %s  %s\n", report.kept + report.dropped,
                  candidates.size(), a.seconds, name.c_str(), a.verdict.c_str());
    std::fflush(stdout);
  };
  const auto worker = [&] {
    for (std::size_t i; !stop && (i = next++) < candidates.size();) {
      try {
        one(candidates[i].config);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        stop = true;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < jobs; ++i) threads.emplace_back(worker);
  for (std::thread& t : threads) t.join();
  if (failure) std::rethrow_exception(failure);
  return report;
}

}  // namespace flashptx::tune
