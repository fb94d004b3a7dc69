// Reading and appending the tuner's files. Next: tune_files.h.
#include "tools/flashptx/tune_files.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace flashptx::tune {
namespace {

namespace fs = std::filesystem;

constexpr const char* assembly_header =
    "kernel,text_hash,assembler,registers,spill_bytes,stack_bytes,seconds,verdict,end";
constexpr const char* timing_header =
    "date,device,driver,assembler,dtype,mask,v_transposed,head_dim,seqlen,batch,heads,kernel,text_hash,stage,"
    "samples,"
    "ms_q1,ms_median,ms_q3,tflops,anchor,ratio,sm_clock_mhz,note,end";

// One field: a comma or a newline inside would be read as another.
std::string field(std::string text) {
  for (char& c : text)
    if (c == ',' || c == '\n' || c == '\r') c = ';';
  return text + ",";
}
std::string field(long long v) { return std::to_string(v) + ","; }
std::string field(double v) {
  char text[64];
  std::snprintf(text, sizeof text, "%.7g,", v);
  return text;
}

// Every line ends in a field ".": without it the line was cut short.
bool split(const std::string& line, std::size_t count, std::vector<std::string>* out) {
  for (std::size_t at = 0; at <= line.size();) {
    const std::size_t end = std::min(line.find(',', at), line.size());
    out->push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return out->size() == count && out->back() == ".";
}

}  // namespace

std::string to_line(const Assembly& a) {
  return field(a.kernel) + field(a.text_hash) + field(a.assembler) +
         field(static_cast<long long>(a.registers)) + field(static_cast<long long>(a.spill_bytes)) +
         field(static_cast<long long>(a.stack_bytes)) + field(a.seconds) + field(a.verdict) + ".";
}

bool from_line(const std::string& line, Assembly* out) {
  std::vector<std::string> f;
  if (!split(line, 9, &f)) return false;
  *out = {f[0],
          f[1],
          f[2],
          f[7],
          std::atoi(f[3].c_str()),
          std::atoi(f[4].c_str()),
          std::atoi(f[5].c_str()),
          std::atof(f[6].c_str())};
  return f[0] != "kernel";
}

std::string to_line(const Timing& t) {
  return field(t.date) + field(t.device) + field(t.driver) + field(t.assembler) + field(t.dtype) +
         field(t.mask) + field(t.v_transposed ? 1LL : 0LL) + field(static_cast<long long>(t.head_dim)) + field(t.seqlen) +
         field(t.batch) + field(t.heads) + field(t.kernel) + field(t.text_hash) + field(t.stage) +
         field(static_cast<long long>(t.samples)) + field(t.ms_q1) + field(t.ms_median) +
         field(t.ms_q3) + field(t.tflops) + field(t.anchor) + field(t.ratio) + field(t.clock_mhz) +
         field(t.note) + ".";
}

bool from_line(const std::string& line, Timing* out) {
  std::vector<std::string> f;
  if (!split(line, 24, &f) || f[0] == "date") return false;
  Timing t;
  t.date = f[0], t.device = f[1], t.driver = f[2], t.assembler = f[3], t.dtype = f[4],
  t.mask = f[5], t.v_transposed = f[6] == "1";
  t.head_dim = std::atoi(f[7].c_str());
  t.seqlen = std::atoll(f[8].c_str()), t.batch = std::atoll(f[9].c_str());
  t.heads = std::atoll(f[10].c_str());
  t.kernel = f[11], t.text_hash = f[12], t.stage = f[13];
  t.samples = std::atoi(f[14].c_str());
  t.ms_q1 = std::atof(f[15].c_str()), t.ms_median = std::atof(f[16].c_str());
  t.ms_q3 = std::atof(f[17].c_str()), t.tflops = std::atof(f[18].c_str());
  t.anchor = f[19], t.ratio = std::atof(f[20].c_str()), t.clock_mhz = std::atof(f[21].c_str());
  t.note = f[22];
  *out = t;
  return true;
}

WorkFolder::WorkFolder(const std::string& path) : path_(path) {
  std::error_code failed;
  fs::create_directories(path_ + "/cubins", failed);
  if (failed)
    throw std::runtime_error("cannot make the work folder " + path_ + ": " + failed.message());
  std::string line;
  for (std::ifstream in(path_ + "/assembled.csv"); std::getline(in, line);)
    if (Assembly a; from_line(line, &a)) {
      assemblies_[{a.text_hash, a.assembler}] = a;
      newest_assembler_ = a.assembler;
    }
  for (std::ifstream in(path_ + "/timings.csv"); std::getline(in, line);)
    if (Timing t; from_line(line, &t)) timings_.push_back(t);
}

bool WorkFolder::find(const std::string& text_hash, const std::string& assembler,
                      Assembly* out) const {
  std::lock_guard lock(mutex_);
  const auto found = assemblies_.find({text_hash, assembler});
  if (found == assemblies_.end()) return false;
  if (found->second.ok() && !fs::exists(cubin_path(text_hash, assembler))) return false;
  *out = found->second;
  return true;
}

void WorkFolder::append_line(const std::string& file, const char* header, const std::string& line) {
  const std::string path = path_ + "/" + file;
  const bool fresh = !fs::exists(path);
  bool torn = false;  // the last line lacks its end: start a new one
  if (std::ifstream in(path, std::ios::binary | std::ios::ate); in && in.tellg() > 0) {
    in.seekg(-1, std::ios::end);
    torn = in.get() != '\n';
  }
  std::ofstream out(path, std::ios::app);
  if (fresh) out << header << "\n";
  if (torn) out << "\n";
  out << line << "\n" << std::flush;
  if (!out) throw std::runtime_error("cannot write " + path);
}

void WorkFolder::append(const Assembly& a) {
  std::lock_guard lock(mutex_);
  append_line("assembled.csv", assembly_header, to_line(a));
  assemblies_[{a.text_hash, a.assembler}] = a;
  newest_assembler_ = a.assembler;
}

void WorkFolder::append(const Timing& t) {
  std::lock_guard lock(mutex_);
  append_line("timings.csv", timing_header, to_line(t));
  timings_.push_back(t);
}

std::string WorkFolder::cubin_path(const std::string& text_hash,
                                   const std::string& assembler) const {
  return path_ + "/cubins/" + text_hash + "-" + assembler + ".cubin";
}

std::string WorkFolder::newest_assembler() const {
  std::lock_guard lock(mutex_);
  return newest_assembler_;
}

void WorkFolder::set_running(const std::vector<std::string>& hashes) {
  const std::string path = path_ + "/running.txt";
  if (hashes.empty()) {
    fs::remove(path);
    return;
  }
  std::ofstream out(path);
  for (const std::string& h : hashes) out << h << "\n";
}

std::vector<std::string> WorkFolder::left_running() const {
  std::vector<std::string> out;
  std::string line;
  for (std::ifstream in(path_ + "/running.txt"); std::getline(in, line);) out.push_back(line);
  return out;
}

std::string utc_date() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

}  // namespace flashptx::tune
