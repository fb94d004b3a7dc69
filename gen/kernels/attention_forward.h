// The forward attention kernel for 16-bit inputs: config in, PTX text and launch facts out.
#pragma once

#include "gen/catalog.h"

namespace flashptx::gen {

// Register counts of a warpgroup split: producer and each consumer, and the count at kernel entry.
struct RegisterSplit {
  int producer = 0, consumer = 0, entry = 0;
};
RegisterSplit register_split(const KernelConfig& config);

// "" if a kernel of this config can exist; else one sentence naming the field, its value and the limit.
std::string check_forward(const KernelConfig& config);

EmittedKernel emit_attention_forward(const KernelConfig& config, std::string* line_table = nullptr);

}  // namespace flashptx::gen
