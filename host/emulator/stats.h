// Counters of a launch as text. Next: stats.cpp.
#pragma once

#include <string>

#include "host/emulator/machine.h"

namespace flashptx::emulator {

std::string describe_counters(const Program& program, const Counters& counters);
std::vector<std::uint64_t> counts_by_line(const Program& program, const Counters& counters);

}  // namespace flashptx::emulator
