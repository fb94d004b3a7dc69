// ptx/catalog.json: what a stranger must know to launch a committed kernel, for programs.
//
// The same facts stand in each kernel's header comment. Both come from EmittedKernel::facts, so they cannot
// disagree. Next: catalog_json.cpp; golden_command.cpp writes the files.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gen/catalog.h"

namespace flashptx {

constexpr int catalog_schema_version = 1;

// The launch facts of one kernel, as text: JSON headers are dear to include.
std::string kernel_json(const KernelConfig& config);
std::string auxiliary_json(const std::string& name, const EmittedKernel& kernel);
// All of the catalogue: the list that stands in catalog.json under "kernels".
std::string kernels_json();

// Every file that belongs into ptx/, by name within it, catalog.json last.
std::vector<std::pair<std::string, std::string>> catalog_files();

}  // namespace flashptx
