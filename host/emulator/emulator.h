// The emulator as a Device, and what only an emulator can tell: counters of the last launch.
//
// Next: device.cpp (the Device), machine.h (the SM).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/device.h"

namespace flashptx {

// Text of --stats: instructions by role and kind, loops, bank conflicts of the last launch of
// `device`, or "" when it is not an emulator.
std::string emulator_stats(const Device& device);

// Warp instructions of the last launch of `device` by line of its text (index 0 is not used); empty
// when it is not an emulator. For coverage.
std::vector<std::uint64_t> emulator_line_counts(const Device& device);

// What the emulator does not model, one line each; for --help and README.md.
std::string emulator_limits();

// Parses and prints PTX text as the emulator understands it; for tools and tests.
Status emulator_reprint(const std::string& text, const std::string& file, std::string* out);

}  // namespace flashptx
