// ptx/catalog.json: what a stranger must know to launch a committed kernel, for programs.
//
// The same facts stand in each kernel's header comment. Both come from EmittedKernel::facts, so they cannot
// disagree. Next: catalog_json.cpp; golden_command.cpp writes the files.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gen/catalog.h"

namespace flashptx {

constexpr int catalog_schema_version = 1;

nlohmann::ordered_json kernel_json(const KernelConfig& config, const EmittedKernel& kernel);
nlohmann::ordered_json auxiliary_json(const std::string& name, const EmittedKernel& kernel);

// Every file that belongs into ptx/, by name within it, catalog.json last.
std::vector<std::pair<std::string, std::string>> catalog_files();

}  // namespace flashptx
