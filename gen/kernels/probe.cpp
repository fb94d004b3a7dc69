// probe: a kernel that writes back what it was passed, for authors of launchers.
//
// A launcher that truncates a by-value argument, swaps two or reads a Python int as 32 bits gives a wrong attention
// result at best; here it gives a slot that is not what was sent. One parameter of each kind that the attention
// kernels have, in the same order of kinds. Next: tools/flashptx/probe_command.cpp sends and compares.
#include "gen/catalog.h"
#include "gen/isa/kernel.h"
#include "gen/kernels/prepare.h"

namespace flashptx {
namespace {

using namespace gen;

constexpr int map_words = 16;  // 128 bytes as 64-bit words

LaunchFacts probe_facts() {
  LaunchFacts f;
  f.entry = "probe";
  f.grid = "1";
  f.block_threads = 32;
  f.driver_min = "520 (CUDA 11.8)";
  const auto add = [&](const char* name, ParamKind kind, const char* meaning, bool written = false) {
    ParamFact p;
    p.name = name, p.kind = kind, p.meaning = meaning, p.written = written;
    f.params.push_back(p);
  };
  add("map", ParamKind::tensor_map, "any 128 bytes; copied to out[0..15]");
  f.params.back().element = "any";
  add("out", ParamKind::pointer, "24 x u64, 8-byte aligned", true);
  add("null", ParamKind::pointer, "any pointer, 0 too; copied to out[17], not followed");
  add("word", ParamKind::u32, "copied to out[18]");
  add("wide", ParamKind::u64, "copied to out[19]");
  add("signed_wide", ParamKind::i64, "copied to out[20]");
  add("real", ParamKind::f32, "its bits are copied to out[21]");
  return f;
}

void probe_header(Kernel& k, const LaunchFacts& f) {
  k.header("probe");
  k.header("");
  k.header("Written by: flashptx emit probe");
  k.header("Writes back what it was passed: find a truncated, swapped or misaligned argument in seconds.");
  k.header("");
  k.header("Launch: grid 1, block 32, no shared memory. out receives 24 64-bit words:");
  k.header("  [0..15] the map's 128 bytes, [16] out itself, [17] null, [18] word, [19] wide, [20] signed_wide,");
  k.header("  [21] bits of real, [22] grid size x, [23] block size x");
  for (const ParamFact& p : f.params) k.header("  " + p.name + ": " + p.meaning);
}

}  // namespace

std::vector<std::string> auxiliary_kernels() {
  std::vector<std::string> names = {"probe"};
  for (const PrepareConfig& c : prepare_catalog()) names.push_back(c.name());
  return names;
}

EmittedKernel emit_auxiliary(const std::string& name) {
  if (PrepareConfig prepare; PrepareConfig::parse(name, &prepare, nullptr)) return emit_prepare(prepare);
  if (name != "probe") throw Error("no auxiliary kernel is called " + name);
  EmittedKernel out;
  out.facts = probe_facts();
  Kernel k("probe");
  probe_header(k, out.facts);
  k.param_tensor_map("map");
  for (const char* p : {"out", "null"}) k.param(p, "u64");
  k.param("word", "u32");
  k.param("wide", "u64");
  k.param("signed_wide", "s64");
  k.param("real", "f32");
  k.threads(out.facts.block_threads);
  const Reg tid = k.b32("thread"), first = k.pred("first_thread");
  k.mov_b32(tid, special("tid.x"));
  k.setp("eq", "u32", first, tid, 0);
  k.if_(first, [&] {
    const Reg to = k.b64("to"), wide = k.b64("value"), word = k.b32("half"), real = k.f32("value_f32");
    k.ld_param_u64(to, "out");
    const auto store = [&](int slot) {
      k.emit("st.global.u64", {address(to, 8 * slot), wide}, Location::current());
    };
    k.section("the map, word by word");
    for (int i = 0; i < map_words; ++i) {
      k.emit("ld.param.u64", {wide, address(symbol("map"), 8 * i)}, Location::current());
      store(i);
    }
    k.section("64-bit parameters");
    int slot = map_words;
    for (const char* p : {"out", "null"}) k.ld_param_u64(wide, p), store(slot++);
    k.section("32-bit and signed ones");
    k.ld_param_u32(word, "word");
    k.cvt_u64_u32(wide, word), store(slot++);
    for (const char* p : {"wide", "signed_wide"}) k.ld_param_u64(wide, p), store(slot++);
    k.ld_param_f32(real, "real");
    k.mov_b32(word, real);
    k.cvt_u64_u32(wide, word), store(slot++);
    k.section("the launch");
    for (const char* size : {"nctaid.x", "ntid.x"}) {
      k.mov_b32(word, special(size));
      k.cvt_u64_u32(wide, word), store(slot++);
    }
  });
  k.emit("ret", {}, Location::current());
  out.facts.ptx_version = std::to_string(k.ptx_version() / 10) + "." + std::to_string(k.ptx_version() % 10);
  out.text = k.text();
  return out;
}

}  // namespace flashptx
