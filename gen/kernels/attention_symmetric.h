// The forward kernel without a producer: wgmma and TMA, but every warpgroup computes (Plan::symmetric).
#pragma once

#include "gen/catalog.h"

namespace flashptx::gen {

EmittedKernel emit_attention_symmetric(const KernelConfig& config, std::string* line_table = nullptr);

}  // namespace flashptx::gen
