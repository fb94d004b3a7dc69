// PTX text to a loaded module: the driver's assembler, its log read and turned into one sentence.
//
// The driver can hand out the cubin only through its linker (cuLinkComplete), and a linker may
// compile for several units, in which case the assembler drops setmaxnreg (remark C7504) and the
// kernel becomes several times slower. So each linked cubin is inspected: if it has fewer
// USETMAXREG than the text has setmaxnreg, the text is loaded directly instead, and the driver's
// own cache does the keeping. Next: host/driver/cubin_cache.h.
#pragma once

#include <string>
#include <string_view>

#include "host/device.h"
#include "host/driver/cubin_cache.h"
#include "host/driver/driver_api.h"

namespace flashptx {

struct Assembled {
  driver::Module module = nullptr;
  std::string log;  // info log, C75xx remarks included
  bool from_cache = false;
};

// `entry` is for messages. The right context is current. `cache` may be null.
Status assemble(const DriverApi& api, const std::string& image, const std::string& entry,
                const CubinCache* cache, int driver_version, const std::string& driver_text,
                Assembled* out);

// ---- Parts, for the tests

bool is_binary(std::string_view image);          // a cubin or fatbin, not PTX
std::string ptx_version(std::string_view text);  // "8.0", "" if there is no .version
int newest_ptx_of_driver(int driver_version);    // 13000 -> 90, as 10 * major + minor; 0 unknown
std::string driver_for_ptx(int ptx);             // 86 -> "565 (CUDA 12.7)"
// The first line number in a log and that line's own text: "line 12: error : ... | setmaxnreg.foo
// ..."
std::string explain_log(std::string_view log, std::string_view text);
int count_setmaxnreg(std::string_view text);   // instructions in PTX
int count_usetmaxreg(std::string_view cubin);  // instructions in the machine code; -1 if no ELF

}  // namespace flashptx
