// LaunchFacts -> JSON. Order of keys is fixed, numbers are plain: the file is a golden and is read by people too.
// Next: gen/catalog.h (the facts).
#include "tools/flashptx/catalog_json.h"


#include "host/sha256.h"
#include "tools/flashptx/json.h"

namespace flashptx {
namespace {


struct ParamShape {
  const char* kind;
  int bytes, alignment;
};
ParamShape shape_of(ParamKind kind) {
  switch (kind) {
    case ParamKind::tensor_map: return {"tensor_map", 128, 64};
    case ParamKind::pointer: return {"pointer", 8, 8};
    case ParamKind::u32: return {"u32", 4, 4};
    case ParamKind::u64: return {"u64", 8, 8};
    case ParamKind::i64: return {"i64", 8, 8};
    case ParamKind::f32: return {"f32", 4, 4};
  }
  return {"?", 0, 0};
}

// cuda.core and DLPack list dimensions outermost first.
template <class T>
Json reversed(const std::vector<T>& values) {
  Json out = Json::array();
  for (auto it = values.rbegin(); it != values.rend(); ++it) out.push_back(*it);
  return out;
}

// Dimension "heads_kv" of parameter k_map has the byte stride "stride(heads_kv) * element_bytes": whatever the
// caller's tensor has; only the innermost must be contiguous.
Json tensor_map_json(const ParamFact& p) {
  Json strides = Json::array();
  for (std::size_t i = 1; i < p.dims.size(); ++i) strides.push_back("stride(" + p.dims[i] + ") * element_bytes");
  const std::string swizzle = p.swizzle_bytes ? std::to_string(p.swizzle_bytes) + "B" : "none";
  return Json{
      {"element", p.element},
      {"rank", p.dims.size()},
      {"dims", p.dims},
      {"strides_bytes", strides},
      {"box", p.box},
      {"element_strides", std::vector<int>(p.dims.size(), 1)},
      {"interleave", "none"},
      {"swizzle", swizzle},
      {"l2_promotion", "any"},
      {"oob_fill", "zeros"},
      {"strided_view", {{"shape", reversed(p.dims)}, {"box_dim", reversed(p.box)}, {"swizzle", swizzle}}},
  };
}

Json params_json(const LaunchFacts& facts) {
  Json out = Json::array();
  for (const ParamFact& p : facts.params) {
    const ParamShape shape = shape_of(p.kind);
    Json one{{"name", p.name}, {"kind", shape.kind}, {"bytes", shape.bytes}, {"alignment", shape.alignment}};
    if (p.kind == ParamKind::tensor_map || p.kind == ParamKind::pointer)
      one["access"] = p.written ? "write" : "read";
    one["meaning"] = p.meaning;
    if (p.kind == ParamKind::tensor_map) one["tensor_map"] = tensor_map_json(p);
    out.push_back(std::move(one));
  }
  return out;
}

std::string target_of(const std::string& text) {
  const std::string directive = "\n.target ";
  const std::size_t at = text.find(directive) + directive.size();
  return text.substr(at, text.find('\n', at) - at);
}

Json launch_json(const std::string& file, const EmittedKernel& kernel) {
  const LaunchFacts& f = kernel.facts;
  return Json{
      {"file", file},
      {"entry", f.entry},
      {"sha256", to_hex(sha256(kernel.text))},
      {"arch", target_of(kernel.text)},
      {"ptx_version", f.ptx_version},
      {"driver_min", f.driver_min},
      {"grid", f.grid},
      {"block", {f.block_threads, 1, 1}},
      {"num_warps", f.block_threads / 32},
      {"cluster", {f.cluster, 1, 1}},
      {"shared", f.shared_bytes},
      {"parameters", params_json(f)},
  };
}

const ParamFact* find_param(const LaunchFacts& facts, const std::string& name) {
  for (const ParamFact& p : facts.params)
    if (p.name == name) return &p;
  return nullptr;
}

Json workspace_json(const KernelConfig& config, const LaunchFacts& facts) {
  Json out = Json::array();
  if (const ParamFact* counter = find_param(facts, "tile_counter"))
    out.push_back({{"parameter", "tile_counter"}, {"bytes", 8}, {"zeroed", true}, {"meaning", counter->meaning}});
  if (const ParamFact* flags = find_param(facts, "v_flags"))
    out.push_back({{"parameter", "v_flags"}, {"bytes", 8}, {"bytes_per_head_of_v", 4}, {"zeroed", true}, {"meaning", flags->meaning}});
  const int part_bytes = config.tile_q() * (config.problem.head_dim_v + 2) * 4;
  for (const auto& [name, bytes] : {std::pair{"tail_partials", 2 * part_bytes}, std::pair{"tail_arrivals", 4}})
    if (const ParamFact* p = find_param(facts, name))
      out.push_back({{"parameter", name}, {"bytes_per_cut_tile", bytes}, {"zeroed", bytes == 4}, {"optional", true}, {"meaning", p->meaning}});
  return out;
}

Json describe(const KernelConfig& config, const EmittedKernel& kernel) {
  const ProblemClass& c = config.problem;
  const Plan& p = config.plan;
  Json out = launch_json(config.name() + ".ptx", kernel);
  out["workspace"] = workspace_json(config, kernel.facts);
  out["problem"] = {{"operation", "attention_forward"}, {"dtype", to_string(c.dtype)}, {"head_dim", c.head_dim},
                    {"head_dim_v", c.head_dim_v},       {"mask", to_string(c.mask)}};
  if (c.mixed()) out["problem"]["dtype_k"] = to_string(c.type_k()), out["problem"]["dtype_v"] = to_string(c.type_v());
  if (c.mask == Mask::causal) out["problem"]["mask_alignment"] = "bottom right: key j is seen when j <= i + seqlen_k - seqlen_q";
  out["plan"] = {{"tile_q", config.tile_q()}, {"tile_kv", p.tile_kv},   {"warpgroups", p.warpgroups}, {"teams", p.teams},
                 {"kv_stages", p.kv_stages},  {"schedule", p.schedule}, {"softmax", to_string(p.softmax)}};
  out["registers"] = {{"entry", kernel.facts.entry_registers},
                      {"producer", kernel.facts.producer_registers},
                      {"consumer", kernel.facts.consumer_registers}};
  out["lse"] = {{"base", "e"},
                {"dtype", "f32"},
                {"shape", {"batch", "heads_q", "seqlen_q"}},
                {"contiguous", true},
                {"of", "softmax_scale * (q . k) over visible keys"},
                {"empty_row", "-inf, and O = 0"}};
  out["limits"] = {{"head_dim", "<= " + std::to_string(c.head_dim) + ", a multiple of 8; missing columns read as zeros"},
                   {"head_ratio", "heads_q is a multiple of heads_kv"},
                   {"alignment", "addresses and byte strides are multiples of 16; strides below 2^40 bytes"},
                   {"seqlen_k", ">= 0; when it is 0, k_map and v_map are not read, but must be maps"}};
  return out;
}

Json describe(const std::string& name, const EmittedKernel& kernel) {
  Json out = launch_json(name + ".ptx", kernel);
  out["problem"] = {{"operation", name}};
  return out;
}

// Calls with every kernel of the catalogue: file, text, facts.
template <class Body>
void for_each_kernel(Body body) {
  for (const KernelConfig& config : catalog()) {
    const EmittedKernel kernel = emit(config);
    body(config.name() + ".ptx", kernel.text, describe(config, kernel));
  }
  for (const std::string& name : auxiliary_kernels()) {
    const EmittedKernel kernel = emit_auxiliary(name);
    body(name + ".ptx", kernel.text, describe(name, kernel));
  }
}

}  // namespace

std::string kernel_json(const KernelConfig& config) { return describe(config, emit(config)).dump(1) + "\n"; }
std::string auxiliary_json(const std::string& name, const EmittedKernel& kernel) {
  return describe(name, kernel).dump(1) + "\n";
}

std::string kernels_json() {
  Json all = Json::array();
  for_each_kernel([&](const std::string&, const std::string&, Json facts) { all.push_back(std::move(facts)); });
  return all.dump(1) + "\n";
}

std::vector<std::pair<std::string, std::string>> catalog_files() {
  std::vector<std::pair<std::string, std::string>> files;
  Json kernels = Json::array();
  for_each_kernel([&](const std::string& file, const std::string& text, Json facts) {
    files.emplace_back(file, text);
    kernels.push_back(std::move(facts));
  });
  const Json root{
      {"schema_version", catalog_schema_version},
      {"arguments", "pass an array of pointers to the parameters (kernelParams of cuLaunchKernel) in this order; "
                    "never one packed buffer: by-value tensor maps have no stable offset in it"},
      {"shared_memory", "set CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES to `shared` before the first launch"},
      {"tensor_maps", "dims are innermost first, as cuTensorMapEncodeTiled takes them; strided_view is outermost "
                      "first, as DLPack and cuda.core's as_tensor_map take it"},
      {"kernels", std::move(kernels)},
  };
  files.emplace_back("catalog.json", root.dump(1) + "\n");
  return files;
}

}  // namespace flashptx
