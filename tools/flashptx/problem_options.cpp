// Options -> problem, layout, inputs, device. The host checks the problem itself. Next: host/problem.h.
#include "tools/flashptx/problem_options.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <utility>

#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"
#include "tools/reference/numeric.h"

namespace flashptx {

void add_type_options(Command& app, TypeOptions& o) {
  app.add_option("--dtype", o.dtype, "f16 (fp16), bf16, e4m3 or e5m2")->capture_default_str();
  app.add_option("--dtype-q", o.dtype_q, "Of Q alone: e4m3 or e5m2, which Q, K and V may mix");
  app.add_option("--dtype-k", o.dtype_k, "Of K alone");
  app.add_option("--dtype-v", o.dtype_v, "Of V alone");
}

Types types_from(const TypeOptions& o) {
  const auto parsed = [](const std::string& option, const std::string& typed, const char* wanted) {
    DataType t{};
    if (!reference::parse_data_type(typed, &t) || t == DataType::f32) leave(exit_usage, option + " " + typed + ": wanted " + wanted);
    return t;
  };
  const auto is_8_bit = [](DataType t) { return t == DataType::e4m3 || t == DataType::e5m2; };
  const DataType all = parsed("--dtype", o.dtype, "f16, bf16, e4m3 or e5m2");
  DataType types[] = {all, all, all};
  const std::pair<const char*, const std::string&> own[] = {{"--dtype-q", o.dtype_q}, {"--dtype-k", o.dtype_k}, {"--dtype-v", o.dtype_v}};
  for (int i = 0; i < 3; ++i) {
    if (own[i].second.empty()) continue;
    types[i] = parsed(own[i].first, own[i].second, "e4m3 or e5m2");
    if (!is_8_bit(types[i])) leave(exit_usage, std::string(own[i].first) + " " + own[i].second + ": wanted e4m3 or e5m2; --dtype is for all three");
  }
  for (int i = 0; i < 3; ++i)
    if (is_8_bit(types[i]) != is_8_bit(types[0]))
      leave(exit_usage, std::string(to_string(types[0])) + " Q, " + to_string(types[1]) + " K, " + to_string(types[2]) +
                            " V: only e4m3 and e5m2 mix (--dtype e4m3, and --dtype-q, --dtype-k or --dtype-v)");
  Types t;
  t.q = types[0];
  if (types[1] != t.q) t.k = types[1];
  if (types[2] != t.q) t.v = types[2];
  return t;
}

void add_problem_options(Command& app, ProblemOptions& o) {
  add_type_options(app, o);
  app.add_option("--batch", o.batch)->capture_default_str();
  app.add_option("--heads", o.heads, "Query heads")->capture_default_str();
  app.add_option("--heads-kv", o.heads_kv, "Key heads, a divisor of --heads; default: --heads")
      ->check(range(1, 2147483647));
  app.add_option("--seqlen-q,--seqlen", o.seqlen_q, "Queries")->capture_default_str();
  app.add_option("--seqlen-k", o.seqlen_k, "Keys; default: as many as queries");
  app.add_option("--head-dim", o.head_dim, "Of Q and K, a multiple of 8 up to 256")->capture_default_str();
  app.add_option("--head-dim-v", o.head_dim_v, "Of V and O; default: that of Q");
  app.add_flag("--causal", o.causal, "Query i sees key j when j <= i + seqlen_k - seqlen_q");
  app.add_option("--layout", o.layout, "Memory order: bshd, bhsd, or qkv (views of one fused buffer)")
      ->check(one_of({"bshd", "bhsd", "qkv"}))
      ->capture_default_str();
  app.add_option("--scale", o.scale, "Softmax scale; default: 1 / sqrt(head_dim)");
  app.add_option("--inputs", o.inputs, "random, outliers, ones, identity_qk, v_ramp or one_hot")
      ->check(one_of({"random", "outliers", "ones", "identity_qk", "v_ramp", "one_hot"}))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "Of the random data")->capture_default_str();
}

void add_device_options(Command& app, ProblemOptions& o) {
  app.add_option("--device", o.device, "auto (a GPU, else the emulator), cuda or emulator")
      ->check(one_of({"auto", "cuda", "emulator"}))
      ->capture_default_str();
  app.add_option("--ordinal", o.ordinal, "Which CUDA device")->capture_default_str()->check(range(0, 1024));
}

namespace {

// The float64 reference keeps Q, K, V, O as they are and O and LSE as float and double: refused here in words,
// before an allocation fails. The largest argument is named.
void check_size(const reference::Problem& p) {
  const double b = static_cast<double>(p.batch), rows_q = b * p.heads_q * p.seqlen_q, rows_k = b * p.heads_kv * p.seqlen_k;
  const double bytes = 2 * (rows_q * (p.head_dim + p.head_dim_v) + rows_k * (p.head_dim + p.head_dim_v)) + 4 * rows_q;
  const double have = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  if (bytes <= have) return;
  const std::pair<const char*, std::int64_t> arguments[] = {{"--batch", p.batch}, {"--heads", p.heads_q},
      {"--seqlen-q", p.seqlen_q}, {"--seqlen-k", p.seqlen_k}, {"--head-dim", p.head_dim}};
  const auto* largest = std::max_element(std::begin(arguments), std::end(arguments),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
  char text[160];
  std::snprintf(text, sizeof text, "%s %lld is too large: Q, K, V and O would take %.3g GB, this machine has %.3g GB",
                largest->first, static_cast<long long>(largest->second), bytes * 1e-9, have * 1e-9);
  leave(exit_usage, text);
}

}  // namespace

reference::Problem problem_from(const ProblemOptions& o) {
  reference::Problem p;
  const Types types = types_from(o);
  p.dtype = types.q, p.dtype_k = types.k, p.dtype_v = types.v;
  p.batch = o.batch, p.heads_q = o.heads, p.heads_kv = o.heads_kv > 0 ? o.heads_kv : o.heads;
  p.seqlen_q = o.seqlen_q, p.seqlen_k = o.seqlen_k >= 0 ? o.seqlen_k : o.seqlen_q;
  p.head_dim = o.head_dim, p.head_dim_v = o.head_dim_v > 0 ? o.head_dim_v : o.head_dim;
  p.mask = o.causal ? Mask::causal : Mask::full;
  const bool scaled = o.scale != unset_scale;
  if (scaled && !(o.scale >= 0 && o.scale <= 1e20))
    leave(exit_usage, "--scale " + std::to_string(o.scale) + " must be in [0, 1e20]");
  p.scale = scaled ? static_cast<float>(o.scale) : 1 / std::sqrt(static_cast<float>(o.head_dim));
  // What the reference itself could not survive; everything else is the host's to refuse.
  if (p.batch < 0 || p.seqlen_q < 0 || p.heads_q < 1 || p.head_dim < 1)
    leave(exit_usage, "--batch, --heads, --seqlen-q and --head-dim must not be negative, heads and head_dim not 0");
  if (p.heads_q % p.heads_kv != 0)
    leave(exit_usage, "--heads " + std::to_string(p.heads_q) + " is not a multiple of --heads-kv " +
                          std::to_string(p.heads_kv));
  check_size(p);
  if (o.layout == "qkv" && (p.seqlen_q != p.seqlen_k || p.head_dim != p.head_dim_v))
    leave(exit_usage, "--layout qkv is one buffer: --seqlen-k and --head-dim-v must equal those of Q");
  return p;
}

reference::Layout layout_from(const ProblemOptions& o) {
  reference::Layout layout = reference::Layout::bshd;
  reference::parse_layout(o.layout, &layout);  // spelling was checked by the parser
  return layout;
}

reference::Inputs inputs_from(const ProblemOptions& o) {
  reference::Inputs inputs = reference::Inputs::random;
  reference::parse_inputs(o.inputs, &inputs);
  return inputs;
}

DeviceRequest device_from(const ProblemOptions& o) {
  DeviceRequest request;
  parse_device_choice(o.device, &request.choice);
  request.ordinal = o.ordinal;
  return request;
}

std::unique_ptr<Device> open_or_leave(const DeviceRequest& request) {
  std::unique_ptr<Device> device;
  std::string note;
  const Status s = open_device(request, &device, &note);
  if (!s.ok()) leave(exit_no_device, s.message);
  static bool said = false;  // `run` opens a device for each of its orders
  if (!note.empty() && !said) std::cerr << "flashptx: " << note << "\n";
  said = said || !note.empty();
  return device;
}

std::string read_or_leave(const std::string& path) {
  std::ifstream in(path, std::ios::binary);  // which opens a folder as well
  if (!in || std::filesystem::is_directory(path)) leave(exit_usage, "cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

KernelFile kernel_file_or_leave(const std::string& path) {
  KernelFile file{read_or_leave(path), ""};
  if (file.text.empty()) leave(exit_usage, path + " is empty: no kernel to run");
  if (file.text.rfind("\x7f" "ELF", 0) == 0) return file;
  const char* const blank = " \t\r\n";
  std::size_t at = file.text.find(".entry");
  if (at != std::string::npos) at = file.text.find_first_not_of(blank, at + 6);
  if (at == std::string::npos) leave(exit_usage, path + " has no .entry: it is no PTX kernel");
  file.entry = file.text.substr(at, file.text.find_first_of(" \t\r\n(", at) - at);
  return file;
}

}  // namespace flashptx
