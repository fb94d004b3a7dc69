// See host/driver/assemble.h.
#include "host/driver/assemble.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace flashptx {
namespace {

constexpr std::size_t log_capacity = 64 << 10;

// Option arrays of cuModuleLoadDataEx and cuLinkCreate with two log buffers. The driver writes
// filled sizes back into the value slots, so the object must outlive the call.
struct Logs {
  std::vector<char> info = std::vector<char>(log_capacity), error = std::vector<char>(log_capacity);
  int option[5] = {driver::info_log_buffer, driver::info_log_buffer_size_bytes,
                   driver::error_log_buffer, driver::error_log_buffer_size_bytes,
                   driver::log_verbose};
  void* value[5] = {info.data(), as_pointer(log_capacity), error.data(), as_pointer(log_capacity),
                    as_pointer(1)};

  static void* as_pointer(std::size_t v) { return reinterpret_cast<void*>(v); }
  static std::string text(const std::vector<char>& b) {
    return {b.data(), strnlen(b.data(), b.size())};
  }
  std::string info_text() const { return text(info); }
  std::string error_text() const { return text(error); }
};

int version_number(const std::string& v) {  // "8.0" -> 80
  const std::size_t dot = v.find('.');
  if (dot == std::string::npos) return 0;
  return std::atoi(v.c_str()) * 10 + std::atoi(v.c_str() + dot + 1);
}

std::string dotted(int ptx) { return std::to_string(ptx / 10) + "." + std::to_string(ptx % 10); }

std::string cuda_text(int driver_version, const std::string& driver_text) {
  const std::string cuda = "CUDA " + std::to_string(driver_version / 1000) + "." +
                           std::to_string(driver_version % 1000 / 10);
  return driver_text.empty() ? "supports " + cuda : "is " + driver_text + " (" + cuda + ")";
}

struct Request {
  const DriverApi& api;
  const std::string& image;
  const std::string& entry;
  int driver_version;
  const std::string& driver_text;
};

Status version_error(const Request& r, const std::string& version) {
  const int newest = newest_ptx_of_driver(r.driver_version);
  const std::string wanted = driver_for_ptx(version_number(version));
  return Status::error(StatusCode::driver_too_old,
                       r.entry + ": PTX .version " + version + " is newer than the driver, which " +
                           cuda_text(r.driver_version, r.driver_text) +
                           (newest ? " with PTX " + dotted(newest) : "") +
                           (wanted.empty() ? "; lower .version or install a newer driver"
                                           : "; install driver " + wanted + " or newer"));
}

Status failure(const Request& r, driver::Result e, const std::string& error_log) {
  const std::string name = r.api.error_name(e);
  if (is_sticky(e))
    return Status::error(
        StatusCode::earlier_error,
        "loading " + r.entry + ": " + name + " was left in the CUDA context by an earlier kernel");
  if (e == driver::out_of_memory)
    return Status::error(StatusCode::out_of_memory, "loading " + r.entry + ": " + name);
  const bool binary = is_binary(r.image);
  if (e == driver::unsupported_ptx_version && !binary)
    return version_error(r, ptx_version(r.image));
  if (e == driver::jit_compiler_not_found)
    return Status::error(
        StatusCode::driver_too_old,
        "loading " + r.entry + ": " + name +
            ": libnvidia-ptxjitcompiler.so.1, part of the driver, is not installed");
  std::string m = r.entry + ": " +
                  (binary ? "the cubin does not load: " : "the PTX does not assemble: ") + name;
  if (!binary) {
    if (const std::string why = explain_log(error_log, r.image); !why.empty()) m += ": " + why;
    m += "; .version " + ptx_version(r.image) + ", the driver " +
         cuda_text(r.driver_version, r.driver_text);
  }
  return Status::error(StatusCode::bad_ptx, m);
}

driver::Result load_image(const DriverApi& api, const char* image, Logs* logs,
                          driver::Module* out) {
  return api.module_load_data_ex(out, image, 5, logs->option, logs->value);
}

Status load_direct(const Request& r, Assembled* out) {
  Logs logs;
  const driver::Result e = load_image(r.api, r.image.c_str(), &logs, &out->module);
  if (e != driver::success) return failure(r, e, logs.error_text());
  out->log = logs.info_text();
  return {};
}

// Assembles through the linker, which alone gives the cubin out.
Status link(const Request& r, CacheEntry* out) {
  Logs logs;
  driver::Link link = nullptr;
  driver::Result e = r.api.link_create(5, logs.option, logs.value, &link);
  if (e != driver::success) return failure(r, e, logs.error_text());
  // The driver takes the text's terminating 0 as part of its size.
  e = r.api.link_add_data(link, driver::jit_input_ptx, const_cast<char*>(r.image.c_str()),
                          r.image.size() + 1, r.entry.c_str(), 0, nullptr, nullptr);
  void* cubin = nullptr;
  std::size_t bytes = 0;
  if (e == driver::success) e = r.api.link_complete(link, &cubin, &bytes);
  if (e == driver::success) out->cubin.assign(static_cast<const char*>(cubin), bytes);
  r.api.link_destroy(link);  // frees `cubin`; writes nothing into the logs any more
  if (e != driver::success) return failure(r, e, logs.error_text());
  out->log = logs.info_text();
  return {};
}

bool load_cubin(const Request& r, const CacheEntry& entry, Assembled* out) {
  Logs logs;
  if (load_image(r.api, entry.cubin.data(), &logs, &out->module) != driver::success) return false;
  out->log = entry.log;
  return true;
}

// From the text, remembering in `cache` what the next process should do.
Status assemble_and_store(const Request& r, const CubinCache& cache, const Sha256& key,
                          Assembled* out) {
  CacheEntry entry;
  const bool linked =
      link(r, &entry).ok();  // a text that is wrong fails below too, with the better log
  const bool whole = linked && count_usetmaxreg(entry.cubin) >= count_setmaxnreg(r.image);
  if (whole && load_cubin(r, entry, out)) {
    cache.put(key, entry);
    return {};
  }
  if (Status s = load_direct(r, out); !s.ok()) return s;
  entry.load_text = true;
  entry.cubin.clear();
  entry.log = out->log;
  cache.put(key, entry);
  return {};
}

}  // namespace

Status assemble(const DriverApi& api, const std::string& image, const std::string& entry,
                const CubinCache* cache, int driver_version, const std::string& driver_text,
                Assembled* out) {
  const Request r{api, image, entry, driver_version, driver_text};
  *out = {};
  if (is_binary(image)) return load_direct(r, out);
  const std::string version = ptx_version(image);
  const int newest = newest_ptx_of_driver(driver_version);
  if (!version.empty() && newest != 0 && version_number(version) > newest)
    return version_error(r, version);
  if (cache == nullptr) return load_direct(r, out);
  const Sha256 key = CubinCache::key(image, driver_version, driver_text, "sm_90a");
  CacheEntry found;
  if (cache->get(key, &found)) {
    if (!found.load_text && load_cubin(r, found, out)) {
      out->from_cache = true;
      return {};
    }
    if (found.load_text) {
      Status s = load_direct(r, out);
      if (s.ok() && out->log.empty()) out->log = found.log;  // the driver's own cache keeps no log
      return s;
    }
    cache->remove(key);  // whole, but the driver refuses it
  }
  return assemble_and_store(r, *cache, key, out);
}

// ---- Parts

bool is_binary(std::string_view image) {
  return image.substr(0, 4) ==
             "\x7f"
             "ELF" ||
         image.substr(0, 4) == "\x50\xed\x55\xba";
}

std::string ptx_version(std::string_view text) {
  // The first directive of a module; only comments and blanks may stand before it (PTX ISA,
  // .version).
  std::size_t at = 0;
  while (at < text.size()) {
    if (std::isspace(static_cast<unsigned char>(text[at]))) {
      ++at;
    } else if (text.substr(at, 2) == "//") {
      at = std::min(text.find('\n', at), text.size());
    } else if (text.substr(at, 2) == "/*") {
      const std::size_t end = text.find("*/", at + 2);
      at = end == std::string_view::npos ? text.size() : end + 2;
    } else {
      break;
    }
  }
  if (text.substr(at, 8) != ".version") return "";
  at += 8;
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  std::size_t end = at;
  while (end < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[end])) || text[end] == '.'))
    ++end;
  return std::string(text.substr(at, end - at));
}

namespace {
// PTX ISA, release history: newest PTX of a CUDA version, and the driver branch of that CUDA
// version.
struct Release {
  int cuda, ptx;
  const char* branch;
};
constexpr Release releases[] = {
    {11080, 78, "520 (CUDA 11.8)"}, {12000, 80, "525 (CUDA 12.0)"}, {12010, 81, "530 (CUDA 12.1)"},
    {12020, 82, "535 (CUDA 12.2)"}, {12030, 83, "545 (CUDA 12.3)"}, {12040, 84, "550 (CUDA 12.4)"},
    {12050, 85, "555 (CUDA 12.5)"}, {12070, 86, "565 (CUDA 12.7)"}, {12080, 87, "570 (CUDA 12.8)"},
    {12090, 88, "575 (CUDA 12.9)"}, {13000, 90, "580 (CUDA 13.0)"},
};
}  // namespace

int newest_ptx_of_driver(int driver_version) {
  // Beyond the table (a newer minor of 13 or a later major) nothing is known: let the driver judge.
  if (driver_version >= 13010) return 0;
  int newest = 0;
  for (const Release& r : releases)
    if (r.cuda <= driver_version) newest = r.ptx;
  return newest;
}

std::string driver_for_ptx(int ptx) {
  for (const Release& r : releases)
    if (r.ptx >= ptx) return r.branch;
  return "";
}

std::string explain_log(std::string_view log, std::string_view text) {
  // ptxas writes "ptxas application ptx input, line 12; error   : Unknown modifier '.foo'".
  const std::size_t at = log.find(", line ");
  if (at == std::string_view::npos) {
    std::string_view first = log.substr(0, log.find('\n'));
    return std::string(first);
  }
  const std::size_t digits = at + 7;
  const int line = std::atoi(std::string(log.substr(digits, 10)).c_str());
  std::size_t semicolon = log.find(';', digits);
  std::string_view said = log.substr(semicolon == std::string_view::npos ? digits : semicolon + 1);
  said = said.substr(0, said.find('\n'));
  while (!said.empty() && said.front() == ' ') said.remove_prefix(1);
  std::string m = "line " + std::to_string(line) + ": ";
  for (char c : said)  // the log pads "error   :" to a column
    if (c != ' ' || m.back() != ' ') m += c;
  std::size_t start = 0;
  for (int i = 1; i < line && start != std::string_view::npos; ++i) {
    start = text.find('\n', start);
    if (start != std::string_view::npos) ++start;
  }
  if (line < 1 || start == std::string_view::npos || start >= text.size()) return m;
  std::string_view own = text.substr(start, text.find('\n', start) - start);
  while (!own.empty() && std::isspace(static_cast<unsigned char>(own.front())))
    own.remove_prefix(1);
  return m + " | " + std::string(own.substr(0, 120));
}

int count_setmaxnreg(std::string_view text) {
  int n = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const std::string_view code = line.substr(0, line.find("//"));
    for (std::size_t at = 0; (at = code.find("setmaxnreg.", at)) != std::string_view::npos;
         at += 11)
      ++n;
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return n;
}

namespace {
template <typename T>
T read_at(std::string_view s, std::size_t at) {
  T v{};
  if (at + sizeof(T) <= s.size()) std::memcpy(&v, s.data() + at, sizeof(T));
  return v;
}
}  // namespace

int count_usetmaxreg(std::string_view cubin) {
  // ELF-64: section table at e_shoff (byte 40), e_shentsize (58), e_shnum (60); a section's flags
  // at 8, offset at 24, size at 32. SHF_EXECINSTR = 4. Hopper instructions are 16 bytes, the opcode
  // in the low 12 bits.
  constexpr std::uint64_t usetmaxreg = 0x9c8;
  if (cubin.size() < 64 || cubin.substr(0, 4) !=
                               "\x7f"
                               "ELF")
    return -1;
  const auto table = read_at<std::uint64_t>(cubin, 40);
  const auto entry_bytes = read_at<std::uint16_t>(cubin, 58);
  const auto count = read_at<std::uint16_t>(cubin, 60);
  int n = 0;
  for (unsigned i = 0; i < count; ++i) {
    const std::uint64_t header = table + std::uint64_t{i} * entry_bytes;
    if (header > cubin.size() || (read_at<std::uint64_t>(cubin, header + 8) & 4) == 0) continue;
    const auto offset = read_at<std::uint64_t>(cubin, header + 24);
    const auto bytes = read_at<std::uint64_t>(cubin, header + 32);
    if (offset > cubin.size() || bytes > cubin.size() - offset) continue;
    for (std::uint64_t at = 0; at + 16 <= bytes; at += 16)
      if ((read_at<std::uint64_t>(cubin, offset + at) & 0xfff) == usetmaxreg) ++n;
  }
  return n;
}

}  // namespace flashptx
