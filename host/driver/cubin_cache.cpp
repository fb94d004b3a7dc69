// See host/driver/cubin_cache.h. File: "FPTXCUB1", key, SHA-256 of the rest, then flags, the log's
// length, the cubin's length (little endian), log, cubin.
#include "host/driver/cubin_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace flashptx {
namespace {

constexpr std::string_view magic = "FPTXCUB1";
constexpr std::size_t hash_bytes = 32;
constexpr std::size_t head_bytes = 8 + 2 * hash_bytes;  // magic, key, hash of the body
constexpr std::size_t body_head_bytes = 3 * 8;          // flags, log bytes, cubin bytes
constexpr std::size_t max_file_bytes = std::size_t{256} << 20;

void append_u64(std::string* s, std::uint64_t v) {
  for (int i = 0; i < 8; ++i) s->push_back(static_cast<char>(v >> (8 * i)));
}

std::uint64_t read_u64(std::string_view s) {
  std::uint64_t v = 0;
  for (int i = 7; i >= 0; --i) v = v << 8 | static_cast<std::uint8_t>(s[i]);
  return v;
}

std::string_view view(const Sha256& h) {
  return {reinterpret_cast<const char*>(h.data()), h.size()};
}

bool read_file(const std::string& path, std::string* out) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat st {};
  bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= 0 &&
            static_cast<std::size_t>(st.st_size) <= max_file_bytes;
  if (ok) out->resize(static_cast<std::size_t>(st.st_size));
  for (std::size_t at = 0; ok && at < out->size();) {
    const ssize_t n = read(fd, out->data() + at, out->size() - at);
    if (n < 0 && errno == EINTR) continue;
    ok = n > 0;
    if (ok) at += static_cast<std::size_t>(n);
  }
  close(fd);
  return ok;
}

bool write_file(const std::string& path, std::string_view data) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  bool ok = true;
  while (ok && !data.empty()) {
    const ssize_t n = write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    ok = n > 0;
    if (ok) data.remove_prefix(static_cast<std::size_t>(n));
  }
  ok = close(fd) == 0 && ok;
  if (!ok) unlink(path.c_str());
  return ok;
}

void make_dirs(const std::string& dir) {
  for (std::size_t i = 1; i <= dir.size(); ++i)
    if (i == dir.size() || dir[i] == '/') mkdir(dir.substr(0, i).c_str(), 0755);
}

std::string environment(const char* name) {
  const char* v = std::getenv(name);
  return v == nullptr ? "" : v;
}

}  // namespace

Sha256 CubinCache::key(std::string_view text, int driver_version, std::string_view driver_text,
                       std::string_view arch) {
  std::string all = "driver " + std::to_string(driver_version) + " " + std::string(driver_text) +
                    "\n" + std::string(arch) + "\n";
  all += text;
  return sha256(all);
}

std::string CubinCache::path(const Sha256& key) const {
  return dir_ + "/" + to_hex(key) + ".cubin";
}

bool CubinCache::get(const Sha256& key, CacheEntry* out) const {
  std::string file;
  if (dir_.empty() || !read_file(path(key), &file)) return false;
  const std::string_view all = file;
  if (all.size() < head_bytes + body_head_bytes || all.substr(0, 8) != magic) return false;
  const std::string_view body = all.substr(head_bytes);
  if (all.substr(8, hash_bytes) != view(key)) return false;
  if (all.substr(8 + hash_bytes, hash_bytes) != view(sha256(body))) return false;
  const std::uint64_t log_bytes = read_u64(body.substr(8));
  const std::uint64_t cubin_bytes = read_u64(body.substr(16));
  const std::uint64_t rest = body.size() - body_head_bytes;
  if (log_bytes > rest || cubin_bytes != rest - log_bytes) return false;
  out->load_text = read_u64(body) != 0;
  out->log = body.substr(body_head_bytes, log_bytes);
  out->cubin = body.substr(body_head_bytes + log_bytes);
  return true;
}

bool CubinCache::put(const Sha256& key, const CacheEntry& entry) const {
  if (dir_.empty()) return false;
  std::string body;
  append_u64(&body, entry.load_text ? 1 : 0);
  append_u64(&body, entry.log.size());
  append_u64(&body, entry.cubin.size());
  body += entry.log;
  body += entry.cubin;
  std::string file(magic);
  file += view(key);
  file += view(sha256(body));
  file += body;
  make_dirs(dir_);
  static std::atomic<unsigned> serial{0};
  const std::string final_path = path(key);
  const std::string temporary =
      final_path + "." + std::to_string(getpid()) + "." + std::to_string(serial++) + ".tmp";
  if (!write_file(temporary, file)) return false;
  if (std::rename(temporary.c_str(), final_path.c_str()) == 0) return true;
  unlink(temporary.c_str());
  return false;
}

void CubinCache::remove(const Sha256& key) const {
  if (!dir_.empty()) unlink(path(key).c_str());
}

bool cache_disabled_by_environment() { return environment("FLASHPTX_CACHE") == "0"; }

std::string default_cache_dir() {
  if (cache_disabled_by_environment()) return "";
  if (const std::string d = environment("FLASHPTX_CACHE_DIR"); !d.empty()) return d;
  if (const std::string d = environment("XDG_CACHE_HOME"); !d.empty()) return d + "/flashptx";
  if (const std::string d = environment("HOME"); !d.empty()) return d + "/.cache/flashptx";
  return "";
}

}  // namespace flashptx
