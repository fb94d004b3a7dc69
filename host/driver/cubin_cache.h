// Assembled kernels kept on disk, one file each, named by the hash of all that decides their
// content.
//
// Several processes may share the folder: files appear by rename, so a reader sees a whole entry or
// none; no locks. An entry carries its own key, length and hash: what is corrupt, foreign or cut
// short is ignored and rewritten. A folder that cannot be written to is tolerated. Nothing here can
// make a call fail. Next: host/driver/assemble.cpp (its user).
#pragma once

#include <string>
#include <string_view>

#include "host/sha256.h"

namespace flashptx {

struct CacheEntry {
  bool load_text = false;  // the linker spoils this kernel: load the text itself (see assemble.h)
  std::string log;         // what the assembler said when the entry was made
  std::string cubin;       // empty with load_text
};

class CubinCache {
 public:
  explicit CubinCache(std::string dir) : dir_(std::move(dir)) {}

  static Sha256 key(std::string_view text, int driver_version, std::string_view driver_text,
                    std::string_view arch);
  bool get(const Sha256& key, CacheEntry* out) const;
  bool put(const Sha256& key,
           const CacheEntry& entry) const;  // false: not stored, and that is all right
  void remove(const Sha256& key) const;
  std::string path(const Sha256& key) const;
  const std::string& dir() const { return dir_; }

 private:
  std::string dir_;
};

// $FLASHPTX_CACHE_DIR, $XDG_CACHE_HOME/flashptx, $HOME/.cache/flashptx; "" when FLASHPTX_CACHE=0 or
// none is set.
std::string default_cache_dir();
bool cache_disabled_by_environment();

}  // namespace flashptx
