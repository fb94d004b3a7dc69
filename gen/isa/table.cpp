// The instruction table and the matcher over it. ptxas judges the spellings in tests/gen/isa.
#include "gen/isa/table.h"

#include <cstring>
#include <map>

namespace flashptx::gen {
namespace {

#define A true   // needs sm_90a
#define G false  // plain sm_90

const std::vector<Form> kForms = {
    // -- movement and integer arithmetic (PTX ISA 9.7.1, 9.7.4, 9.7.8, 9.7.9)
    {"mov{.b32|.u32}", "b32 b32|imm|spec|sym", 10, G, "mov"},
    {"mov.b32", "b32 b16[2]", 10, G, "mov"},
    {"mov.b32", "b32|f32 b32|f32|imm", 10, G, "mov"},
    {"mov.b32", "b16[2] b32", 10, G, "mov"},
    {"mov{.b64|.u64}", "b64 b64|imm|spec|sym", 10, G, "mov"},
    {"mov.b64", "b64 b32[2]", 10, G, "mov"},
    {"mov.b64", "b32[2] b64", 10, G, "mov"},
    {"mov.b16", "b16 b16|imm", 10, G, "mov"},
    {"mov.f32", "f32 f32|fimm", 10, G, "mov"},
    {"mov.pred", "pred pred|imm", 10, G, "mov"},
    {"add{.u32|.s32}", "b32 b32|spec b32|imm", 10, G, "add"},
    {"sub{.u32|.s32}", "b32 b32|imm b32|imm", 10, G, "sub"},
    {"mul.lo{.u32|.s32}", "b32 b32|spec b32|imm|spec", 10, G, "mul"},
    {"mul.hi{.u32|.s32}", "b32 b32 b32|imm", 10, G, "mul"},
    {"mul.wide{.u32|.s32}", "b64 b32 b32|imm", 10, G, "mul"},
    {"mad.lo{.u32|.s32}", "b32 b32|spec b32|imm|spec b32|imm|spec", 10, G, "mad"},
    {"mad.wide{.u32|.s32}", "b64 b32 b32|imm b64", 10, G, "mad"},
    {"div{.u32|.s32}", "b32 b32 b32|imm", 10, G, "div"},
    {"rem{.u32|.s32}", "b32 b32 b32|imm", 10, G, "rem"},
    {"min{.u32|.s32}", "b32 b32 b32|imm", 10, G, "min"},
    {"max{.u32|.s32}", "b32 b32 b32|imm", 10, G, "max"},
    {"add{.u64|.s64}", "b64 b64 b64|imm", 10, G, "add"},
    {"sub{.u64|.s64}", "b64 b64 b64|imm", 10, G, "sub"},
    {"mul.lo{.u64|.s64}", "b64 b64 b64|imm", 10, G, "mul"},
    {"{and|or|xor}.b32", "b32 b32|spec b32|imm", 10, G, "logic"},
    {"{and|or|xor}.b64", "b64 b64 b64|imm", 10, G, "logic"},
    {"{and|or|xor}.pred", "pred pred pred|imm", 10, G, "logic"},
    {"not.b32", "b32 b32", 10, G, "logic"},
    {"not.pred", "pred pred", 10, G, "logic"},
    {"lop3.b32", "b32 b32 b32|imm b32|imm imm", 43, G, "lop3"},
    {"shl.b32", "b32 b32|spec b32|imm", 10, G, "shl"},
    {"shl.b64", "b64 b64 b32|imm", 10, G, "shl"},
    {"shr{.u32|.s32|.b32}", "b32 b32|spec b32|imm", 10, G, "shr"},
    {"shr{.u64|.s64|.b64}", "b64 b64 b32|imm", 10, G, "shr"},
    {"prmt.b32", "b32 b32 b32|imm b32|imm", 20, G, "prmt"},
    {"setp{.eq|.ne|.lt|.le|.gt|.ge}{.u32|.s32}", "pred b32|spec b32|imm|spec", 10, G, "setp"},
    {"setp{.eq|.ne}.b32", "pred b32 b32|imm", 10, G, "setp"},
    {"setp{.eq|.ne|.lt|.le|.gt|.ge}{.u64|.s64}", "pred b64 b64|imm", 10, G, "setp"},
    {"setp{.eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu}{.ftz|}.f32",
     "pred f32 f32|fimm", 10, G, "setp"},
    {"setp{.eq|.ne|.lt|.le|.gt|.ge}{.and|.or|.xor}{.u32|.s32}", "pred b32|spec b32|imm pred", 10, G,
     "setp"},
    {"selp.b32", "b32|f32 b32|f32|imm b32|f32|imm pred", 10, G, "selp"},
    {"selp.f32", "f32 f32|fimm f32|fimm pred", 10, G, "selp"},
    {"selp.b64", "b64 b64|imm b64|imm pred", 10, G, "selp"},
    // -- floating point (9.7.3)
    {"{add|sub|mul}{.rn|}{.ftz|}.f32", "f32 f32|fimm f32|fimm", 10, G, "add"},
    {"fma.rn{.ftz|}.f32", "f32 f32|fimm f32|fimm f32|fimm", 20, G, "fma"},
    {"{max|min}{.ftz|}{.NaN|}.f32", "f32 f32|fimm f32|fimm", 70, G, "max"},
    {"{neg|abs}{.ftz|}.f32", "f32 f32", 10, G, "neg"},
    {"{ex2|lg2}.approx{.ftz|}.f32", "f32 f32", 10, G, "ex2"},
    {"{rcp|rsqrt}.approx{.ftz|}.f32", "f32 f32", 10, G, "rcp"},
    {"tanh.approx.f32", "f32 f32", 70, G, "tanh"},
    {"cvt.rn.f32{.u32|.s32}", "f32 b32", 10, G, "cvt"},
    {"cvt.rn{.bf16x2|.f16x2}.f32", "b32 f32 f32", 70, G, "cvt"},
    {"cvt.u64.u32", "b64 b32|spec", 10, G, "cvt"},
    {"cvt.s64.s32", "b64 b32", 10, G, "cvt"},
    {"cvt.u32.u64", "b32 b64", 10, G, "cvt"},
    {"cvta.param.u64", "b64 b64", 77, G, "cvta"},
    {"cvta.to.global.u64", "b64 b64", 20, G, "cvta"},
    // -- memory (9.7.9)
    {"ld.param{.u32|.s32|.b32}", "b32 mem", 10, G, "ld"},
    {"ld.param.f32", "f32 mem", 10, G, "ld"},
    {"ld.param{.u64|.s64|.b64}", "b64 mem", 10, G, "ld"},
    {"ld.global{.u32|.b32}", "b32 mem", 10, G, "ld"},
    {"ld.global{.nc|}.f32", "f32 mem", 20, G, "ld"},
    {"st.global{.u32|.b32}", "mem b32|f32|imm", 10, G, "st"},
    {"st.global.f32", "mem f32|fimm", 10, G, "st"},
    {"st.global{.u64|.b64}", "mem b64", 10, G, "st"},
    {"st.global.v2{.b32|.u32}", "mem b32[2]", 10, G, "st"},
    {"st.global.v4{.b32|.u32}", "mem b32[4]", 10, G, "st"},
    {"ld.shared{::cta|}{.u32|.b32}", "b32 mem", 10, G, "ld"},
    {"ld.shared{::cta|}.f32", "f32 mem", 10, G, "ld"},
    {"st.shared{::cta|}{.u32|.b32}", "mem b32|imm", 10, G, "st"},
    {"st.shared{::cta|}.f32", "mem f32", 10, G, "st"},
    {"st.shared{::cta|}.v4{.u32|.b32}", "mem b32[4]", 10, G, "st"},
    {"atom.global{.relaxed.gpu|}.add.u32", "b32 mem b32|imm", 60, G, "atom"},
    {"atom.global{.relaxed.gpu|}.exch.b32", "b32 mem b32|imm", 60, G, "atom"},
    {"red.global{.relaxed.gpu|}.add.u32", "mem b32|imm", 60, G, "red"},
    {"ldmatrix.sync.aligned.m8n8.x4{.trans|}.shared{::cta|}.b16", "b32[4] mem", 65, G, "ldmatrix"},
    {"stmatrix.sync.aligned.m8n8.x4{.trans|}.shared{::cta|}.b16", "mem b32[4]", 78, G, "stmatrix"},
    {"stmatrix.sync.aligned.m8n8.x2{.trans|}.shared{::cta|}.b16", "mem b32[2]", 78, G, "stmatrix"},
    // -- warps (9.7.9.6, 9.7.13)
    {"shfl.sync{.bfly|.idx|.up|.down}.b32", "b32|f32 b32|f32 b32|imm imm imm|b32", 60, G, "shfl"},
    {"vote.sync{.any|.all}.pred", "pred pred imm|b32", 60, G, "vote"},
    {"vote.sync.ballot.b32", "b32 pred imm|b32", 60, G, "vote"},
    {"elect.sync", "sym imm|b32", 80, G, "elect"},
    {"bar{.sync|.arrive}", "imm|b32 ?imm|b32", 10, G, "bar"},
    {"bar.warp.sync", "imm|b32", 60, G, "bar"},
    {"setmaxnreg{.inc|.dec}.sync.aligned.u32", "imm", 80, A, "setmaxnreg"},
    // -- mbarrier (9.7.13.15)
    {"mbarrier.init.shared::cta.b64", "mem imm|b32", 78, G, "mbarrier.init"},
    {"mbarrier.inval.shared::cta.b64", "mem", 78, G, "mbarrier.inval"},
    {"mbarrier.arrive{.release.cta|}.shared::cta.b64", "sink mem ?imm|b32", 80, G, "mbarrier.arrive"},
    {"mbarrier.arrive{.release.cluster|}.shared::cluster.b64", "sink mem ?imm|b32", 80, G,
     "mbarrier.arrive"},
    {"mbarrier.arrive.expect_tx{.release.cta|}.shared::cta.b64", "sink mem imm|b32", 80, G,
     "mbarrier.arrive"},
    {"mbarrier.try_wait.parity{.acquire.cta|.acquire.cluster|}.shared::cta.b64",
     "pred mem imm|b32 ?imm|b32", 78, G, "mbarrier.try_wait"},
    {"mbarrier.test_wait.parity.shared::cta.b64", "pred mem imm|b32", 78, G, "mbarrier.test_wait"},
    {"mapa.shared::cluster.u32", "b32 b32 b32|imm", 78, G, "mapa"},
    {"fence.mbarrier_init.release.cluster", "", 80, G, "fence"},
    {"fence.proxy.async{.shared::cta|.global|}", "", 80, G, "fence"},
    {"fence.acq_rel{.cta|.gpu|.sys|.cluster}", "", 60, G, "fence"},
    {"barrier.cluster.arrive{.release|.relaxed|}.aligned", "", 78, G, "barrier.cluster"},
    {"barrier.cluster.wait{.acquire|}.aligned", "", 78, G, "barrier.cluster"},
    // -- bulk and tensor copies (9.7.9.25)
    {"cp.async.bulk.tensor{.1d|.2d|.3d|.4d|.5d}.shared::cluster.global.mbarrier::complete_tx::bytes",
     "mem mem mem", 80, G, "cp.async.bulk.tensor"},
    {"cp.async.bulk.tensor{.1d|.2d|.3d|.4d|.5d}.shared::cluster.global.mbarrier::complete_tx::bytes."
     "L2::cache_hint",
     "mem mem mem b64|imm", 80, G, "cp.async.bulk.tensor"},
    {"cp.async.bulk.tensor{.1d|.2d|.3d|.4d|.5d}.shared::cluster.global.mbarrier::complete_tx::bytes."
     "multicast::cluster",
     "mem mem mem b16", 80, A, "cp.async.bulk.tensor"},
    {"cp.async.bulk.tensor{.1d|.2d|.3d|.4d|.5d}.shared::cluster.global.mbarrier::complete_tx::bytes."
     "multicast::cluster.L2::cache_hint",
     "mem mem mem b16 b64|imm", 80, A, "cp.async.bulk.tensor"},
    {"cp.async.bulk.tensor{.1d|.2d|.3d|.4d|.5d}.global.shared::cta.bulk_group", "mem mem", 80, G,
     "cp.async.bulk.tensor"},
    {"cp.async.bulk.commit_group", "", 80, G, "cp.async.bulk.commit_group"},
    {"cp.async.bulk.wait_group{.read|}", "imm", 80, G, "cp.async.bulk.wait_group"},
    {"prefetch.tensormap", "mem", 80, G, "prefetch"},
    // -- wgmma (9.7.15)
    {"wgmma.fence.sync.aligned", "", 80, A, "wgmma.fence"},
    {"wgmma.commit_group.sync.aligned", "", 80, A, "wgmma.commit_group"},
    {"wgmma.wait_group.sync.aligned", "imm", 80, A, "wgmma.wait_group"},
    {"wgmma.mma_async.sync.aligned.m64n<N>k16.f32{.bf16.bf16|.f16.f16}",
     "f32[] b64 b64 pred|imm imm imm imm imm", 80, A, "wgmma.mma_async"},
    {"wgmma.mma_async.sync.aligned.m64n<N>k16.f32{.bf16.bf16|.f16.f16}",
     "f32[] b32[4] b64 pred|imm imm imm imm", 80, A, "wgmma.mma_async"},
    {"wgmma.mma_async.sync.aligned.m64n<N>k32.f32{.e4m3.e4m3|.e4m3.e5m2|.e5m2.e4m3|.e5m2.e5m2}",
     "f32[] b64 b64 pred|imm imm imm", 80, A, "wgmma.mma_async"},
    {"wgmma.mma_async.sync.aligned.m64n<N>k32.f32{.e4m3.e4m3|.e4m3.e5m2|.e5m2.e4m3|.e5m2.e5m2}",
     "f32[] b32[4] b64 pred|imm imm imm", 80, A, "wgmma.mma_async"},
    // -- control, time, dependent launch (9.7.12, 9.7.13.13, 9.7.19)
    {"bra{.uni|}", "sym", 10, G, "bra"},
    {"ret", "", 10, G, "ret"},
    {"trap", "", 10, G, "trap"},
    {"nanosleep.u32", "imm|b32", 63, G, "nanosleep"},
    {"griddepcontrol{.wait|.launch_dependents}", "", 78, G, "griddepcontrol"},
};
#undef A
#undef G

void expand(const std::string& pattern, std::string done, std::vector<std::string>* out) {
  auto open = pattern.find('{');
  if (open == std::string::npos) {
    out->push_back(done + pattern);
    return;
  }
  auto close = pattern.find('}', open);
  done += pattern.substr(0, open);
  std::string alternatives = pattern.substr(open + 1, close - open - 1), rest = pattern.substr(close + 1);
  std::size_t from = 0;
  while (true) {
    auto bar = alternatives.find('|', from);
    expand(rest, done + alternatives.substr(from, bar == std::string::npos ? bar : bar - from), out);
    if (bar == std::string::npos) break;
    from = bar + 1;
  }
}

std::vector<std::string> split(const std::string& s, char sep) {
  std::vector<std::string> out;
  std::size_t from = 0;
  while (from < s.size()) {
    auto to = s.find(sep, from);
    if (to == std::string::npos) to = s.size();
    if (to > from) out.push_back(s.substr(from, to - from));
    from = to + 1;
  }
  return out;
}

bool kind_fits(const std::string& kind, const Operand& o) {
  using K = Operand::Kind;
  auto bracket = kind.find('[');
  if (bracket != std::string::npos) {
    if (o.kind != K::list || o.regs.empty()) return false;
    std::string count = kind.substr(bracket + 1, kind.size() - bracket - 2);
    if (!count.empty() && std::stoul(count) != o.regs.size()) return false;
    for (const Reg& r : o.regs)
      if (kind.substr(0, bracket) != ptx_type(r.type) + 1) return false;
    return true;
  }
  if (kind == "imm") return o.kind == K::imm;
  if (kind == "fimm") return o.kind == K::fimm;
  if (kind == "spec") return o.kind == K::special;
  if (kind == "mem") return o.kind == K::address;
  if (kind == "sym") return o.kind == K::symbol;
  if (kind == "sink") return o.kind == K::sink;
  return o.kind == K::reg && kind == ptx_type(o.type) + 1;
}

// "" if the operands fit; else what is wrong with the first that does not.
std::string misfit(const Form& form, const std::vector<Operand>& operands) {
  std::vector<std::string> kinds = split(form.operands, ' ');
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    std::string kind = kinds[i];
    bool optional = kind[0] == '?';
    if (optional) kind = kind.substr(1);
    if (i >= operands.size()) {
      if (optional) continue;
      return "operand " + std::to_string(i + 1) + " (" + kind + ") is missing";
    }
    bool fits = false;
    for (const std::string& k : split(kind, '|')) fits = fits || kind_fits(k, operands[i]);
    if (!fits)
      return "operand " + std::to_string(i + 1) + " must be " + kind + ", got " + operands[i].text;
  }
  if (operands.size() > kinds.size())
    return "takes " + std::to_string(kinds.size()) + " operands, got " + std::to_string(operands.size());
  return "";
}

// PTX ISA 9.7.15.5: N is a multiple of 8 in 8..256 and D holds N/2 registers a thread.
std::string wgmma_misfit(int n, const std::vector<Operand>& operands) {
  if (n < 8 || n > 256 || n % 8)
    return "N = " + std::to_string(n) + " must be a multiple of 8 in 8..256";
  if (operands[0].regs.size() != static_cast<std::size_t>(n / 2))
    return "D must hold N/2 = " + std::to_string(n / 2) + " registers, got " +
           std::to_string(operands[0].regs.size());
  return "";
}

// Limits on constants that ptxas would report far from the caller, or not at all.
std::string constant_misfit(const std::string& op, const std::vector<Operand>& o) {
  auto range = [&](std::size_t i, long lo, long hi, long step, const char* what) -> std::string {
    if (i >= o.size() || o[i].kind != Operand::Kind::imm) return "";
    long v = static_cast<long>(o[i].imm);
    if (v >= lo && v <= hi && v % step == 0) return "";
    std::string multiple = step > 1 ? "a multiple of " + std::to_string(step) + " " : "";
    return std::string(what) + " " + std::to_string(v) + " must be " + multiple + "in [" +
           std::to_string(lo) + ", " + std::to_string(hi) + "]";
  };
  if (op.rfind("setmaxnreg", 0) == 0) return range(0, 24, 256, 8, "count");
  if (op.rfind("mbarrier.init", 0) == 0) return range(1, 1, (1 << 20) - 1, 1, "arrival count");
  if (op.rfind("mbarrier.arrive.expect_tx", 0) == 0) return range(2, 0, (1 << 20) - 1, 1, "bytes");
  if (op == "bar.sync" || op == "bar.arrive") {
    std::string e = range(0, 0, 15, 1, "barrier id");
    if (e.empty() && op == "bar.arrive" && o.size() < 2) e = "bar.arrive needs a thread count";
    return e.empty() ? range(1, 32, 1024, 32, "thread count") : e;
  }
  return "";
}

const std::multimap<std::string, const Form*>& index() {
  static const std::multimap<std::string, const Form*> map = [] {
    std::multimap<std::string, const Form*> m;
    for (const Form& f : kForms)
      for (const std::string& s : spellings(f)) m.emplace(s, &f);
    return m;
  }();
  return map;
}

// "wgmma...m64n128k16..." -> the spelling with <N>, and N.
std::string generic_n(const std::string& opcode, int* n) {
  auto at = opcode.find(".m64n");
  if (at == std::string::npos || opcode.rfind("wgmma", 0) != 0) return opcode;
  auto digits = at + 5, end = opcode.find_first_not_of("0123456789", digits);
  if (end == std::string::npos || end == digits) return opcode;
  *n = std::stoi(opcode.substr(digits, end - digits));
  return opcode.substr(0, digits) + "<N>" + opcode.substr(end);
}

}  // namespace

const std::vector<Form>& forms() { return kForms; }

std::vector<std::string> spellings(const Form& form) {
  std::vector<std::string> out;
  expand(form.opcode, "", &out);
  return out;
}

const Form* find_form(const std::string& opcode, const std::vector<Operand>& operands,
                      std::string* why) {
  int n = 0;
  auto [from, to] = index().equal_range(generic_n(opcode, &n));
  if (from == to) {
    *why = opcode + ": no such instruction in the table (gen/isa/table.cpp)";
    return nullptr;
  }
  for (auto it = from; it != to; ++it) {
    std::string bad = misfit(*it->second, operands);
    if (bad.empty() && n) bad = wgmma_misfit(n, operands);
    if (bad.empty()) bad = constant_misfit(opcode, operands);
    if (bad.empty()) return it->second;
    *why = opcode + ": " + bad;
  }
  return nullptr;
}

}  // namespace flashptx::gen
