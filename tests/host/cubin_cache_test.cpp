// The disk cache: what was stored comes back; anything else is ignored and rewritten; many writers
// do no harm.
#include "host/driver/cubin_cache.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/support.h"

namespace flashptx::test {
namespace {

CacheEntry sample(std::size_t bytes = 5000) {
  CacheEntry e;
  e.log = "ptxas info : Used 168 registers";
  for (std::size_t i = 0; i < bytes; ++i) e.cubin += static_cast<char>(i * 31 + i / 256);
  return e;
}

const Sha256 key = CubinCache::key("// text", 13000, "580.1", "sm_90a");

struct Environment {  // sets a variable for a scope
  std::string name, before;
  bool had;
  Environment(const char* n, const char* value) : name(n) {
    const char* old = std::getenv(n);
    had = old != nullptr;
    before = had ? old : "";
    if (value != nullptr) setenv(n, value, 1);
    else unsetenv(n);
  }
  ~Environment() {
    if (had) setenv(name.c_str(), before.c_str(), 1);
    else unsetenv(name.c_str());
  }
};

}  // namespace

TEST_SUITE("host/driver/cubin_cache") {
  TEST_CASE("gives back what was stored, in a folder that it makes") {
    ScratchFolder folder;
    const CubinCache cache(folder.path("a/b/flashptx"));
    CacheEntry out;
    CHECK_FALSE(cache.get(key, &out));
    REQUIRE(cache.put(key, sample()));
    REQUIRE(cache.get(key, &out));
    CHECK(out.cubin == sample().cubin);
    CHECK(out.log == sample().log);
    CHECK_FALSE(out.load_text);
    CacheEntry marker;
    marker.load_text = true;
    marker.log = "C7504";
    REQUIRE(cache.put(key, marker));
    REQUIRE(cache.get(key, &out));
    CHECK(out.load_text);
    CHECK(out.cubin.empty());
    cache.remove(key);
    CHECK_FALSE(cache.get(key, &out));
    CHECK(shell("ls " + cache.dir()).output.empty());  // no temporary file is left
  }

  TEST_CASE("text, driver and architecture each change the key") {
    CHECK(key != CubinCache::key("// texT", 13000, "580.1", "sm_90a"));
    CHECK(key != CubinCache::key("// text", 12080, "580.1", "sm_90a"));
    CHECK(key != CubinCache::key("// text", 13000, "580.2", "sm_90a"));
    CHECK(key != CubinCache::key("// text", 13000, "580.1", "sm_90"));
  }

  TEST_CASE("ignores an entry with any byte changed, cut short, lengthened or of another key") {
    ScratchFolder folder;
    const CubinCache cache(folder.path("c"));
    REQUIRE(cache.put(key, sample(40)));
    const std::string good = read_file(cache.path(key));
    CacheEntry out;
    for (std::size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 0x10);
      write_file(cache.path(key), bad);
      CHECK_FALSE(cache.get(key, &out));
      write_file(cache.path(key), good.substr(0, i));
      CHECK_FALSE(cache.get(key, &out));
    }
    write_file(cache.path(key), good + "x");
    CHECK_FALSE(cache.get(key, &out));
    const Sha256 other = CubinCache::key("// other", 13000, "580.1", "sm_90a");
    write_file(cache.path(other), good);
    CHECK_FALSE(cache.get(other, &out));
    write_file(cache.path(key), good);
    CHECK(cache.get(key, &out));
    write_file(cache.path(key), "rubbish");
    REQUIRE(cache.put(key, sample()));
    CHECK(cache.get(key, &out));
  }

  TEST_CASE("tolerates folders that cannot be written to, and a folder in the entry's place") {
    ScratchFolder folder;
    write_file(folder.path("file"), "");
    const CubinCache under_file(folder.path("file/x"));
    CacheEntry out;
    CHECK_FALSE(under_file.put(key, sample()));
    CHECK_FALSE(under_file.get(key, &out));
    const CubinCache blocked(folder.path("d"));
    mkdir(folder.path("d").c_str(), 0755);
    mkdir(blocked.path(key).c_str(), 0755);
    CHECK_FALSE(blocked.put(key, sample()));
    CHECK_FALSE(blocked.get(key, &out));
    CHECK(shell("ls " + blocked.dir() + " | grep -c tmp").output == "0\n");
    const CubinCache off("");
    CHECK_FALSE(off.put(key, sample()));
    CHECK_FALSE(off.get(key, &out));
    if (geteuid() == 0) return;  // root writes anywhere: the rest would prove nothing
    mkdir(folder.path("ro").c_str(), 0555);
    CHECK_FALSE(CubinCache(folder.path("ro")).put(key, sample()));
  }

  TEST_CASE("two processes that write one entry never show a reader a torn one") {
    ScratchFolder folder;
    const CubinCache cache(folder.path("c"));
    const CacheEntry a = sample(200000), b = sample(70000);
    REQUIRE(cache.put(key, a));
    pid_t children[2];
    for (int c = 0; c < 2; ++c) {
      children[c] = fork();
      if (children[c] != 0) continue;
      for (int i = 0; i < 60; ++i)
        if (!cache.put(key, c == 0 ? a : b)) _exit(1);
      _exit(0);
    }
    int torn = 0, done = 0, reads = 0;
    while (done < 2 || reads < 10) {
      CacheEntry out;
      ++reads;
      if (!cache.get(key, &out) || (out.cubin != a.cubin && out.cubin != b.cubin)) ++torn;
      int status = 0;
      while (done < 2 && waitpid(children[done], &status, WNOHANG) == children[done]) {
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 0);
        ++done;
      }
    }
    CHECK(torn == 0);
    CHECK(shell("ls " + cache.dir() + " | grep -c tmp").output == "0\n");
  }

  TEST_CASE("finds its folder from the environment") {
    Environment a("FLASHPTX_CACHE", nullptr), b("FLASHPTX_CACHE_DIR", "/one"),
        c("XDG_CACHE_HOME", "/two"), d("HOME", "/three");
    CHECK(default_cache_dir() == "/one");
    {
      Environment off("FLASHPTX_CACHE", "0");
      CHECK(default_cache_dir().empty());
      CHECK(cache_disabled_by_environment());
    }
    Environment e("FLASHPTX_CACHE_DIR", nullptr);
    CHECK(default_cache_dir() == "/two/flashptx");
    Environment f("XDG_CACHE_HOME", nullptr);
    CHECK(default_cache_dir() == "/three/.cache/flashptx");
    Environment g("HOME", nullptr);
    CHECK(default_cache_dir().empty());
  }
}

}  // namespace flashptx::test
