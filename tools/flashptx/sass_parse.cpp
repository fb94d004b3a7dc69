// Disassembly text -> instructions. The control bits come from the encodings in the comments,
// because no disassembler prints them; the layout is the one published for Volta (Jia et al., arXiv
// 1804.06826, section 2.1). Next: sass_flow.cpp.
#include <cctype>
#include <sstream>
#include <stdexcept>

#include "tools/flashptx/sass.h"

namespace flashptx::sass {

namespace {

unsigned bits(std::uint64_t word, int first, int count) {
  return static_cast<unsigned>((word >> first) & ((1u << count) - 1));
}

bool starts_with(const std::string& s, const char* prefix) { return s.rfind(prefix, 0) == 0; }

std::string trim(const std::string& s) {
  const auto a = s.find_first_not_of(" \t\r"), b = s.find_last_not_of(" \t\r");
  return a == std::string::npos ? "" : s.substr(a, b - a + 1);
}

// "/* 0x00000a00ff017b82 */" at the end of a line
bool trailing_word(const std::string& line, std::uint64_t* word) {
  const auto at = line.rfind("/* 0x");
  if (at == std::string::npos) return false;
  *word = std::stoull(line.substr(at + 5), nullptr, 16);
  return true;
}

// "        /*0040*/                   BSSY B0, `(.L_x_0) ;       /* 0x... */"
bool parse_instruction(const std::string& line, Instruction* out) {
  const auto open = line.find("/*");
  if (open == std::string::npos || line.find_first_not_of(" \t") != open) return false;
  const auto close = line.find("*/", open);
  if (close == std::string::npos || close < open + 6) return false;
  const std::string address = line.substr(open + 2, close - open - 2);
  if (address.find_first_not_of("0123456789abcdef") != std::string::npos) return false;
  const auto end = line.find(';', close);
  if (end == std::string::npos) return false;
  std::string body = trim(line.substr(close + 2, end - close - 2));
  out->address = static_cast<std::uint32_t>(std::stoul(address, nullptr, 16));
  if (starts_with(body, "@")) {
    const auto space = body.find(' ');
    out->predicate = body.substr(0, space);
    body = trim(body.substr(space));
  }
  const auto space = body.find(' ');
  out->opcode = body.substr(0, space);
  out->operands = space == std::string::npos ? "" : trim(body.substr(space));
  out->kind = classify(out->opcode);
  if (!trailing_word(line, &out->low)) throw std::runtime_error("no encoding beside: " + line);
  return true;
}

// Index of the instruction that a branch leads to, by label or by address; -1 for an indirect one.
int branch_target(const Instruction& i, const Function& f,
                  const std::map<std::string, int>& labels) {
  const auto quote = i.operands.find("`(");
  if (quote != std::string::npos) {
    const auto it =
        labels.find(i.operands.substr(quote + 2, i.operands.find(')', quote) - quote - 2));
    return it == labels.end() ? -1 : it->second;
  }
  const auto hex = i.operands.rfind("0x");
  if (hex == std::string::npos) return -1;
  const auto address = std::stoull(i.operands.substr(hex), nullptr, 16);
  return address / 16 < f.code.size() ? static_cast<int>(address / 16) : -1;
}

void resolve_branches(Function& f, const std::map<std::string, int>& labels) {
  for (Instruction& i : f.code)
    if (starts_with(i.opcode, "BRA") || starts_with(i.opcode, "WARPSYNC.COLLECTIVE"))
      i.target = branch_target(i, f, labels);
}

}  // namespace

Control decode_control(std::uint64_t high_word) {
  Control c;
  c.stall = static_cast<int>(bits(high_word, 41, 4));
  c.yield = bits(high_word, 45, 1) == 0;
  const unsigned write = bits(high_word, 46, 3), read = bits(high_word, 49, 3);
  c.write_barrier = write == 7 ? -1 : static_cast<int>(write);
  c.read_barrier = read == 7 ? -1 : static_cast<int>(read);
  c.wait_mask = bits(high_word, 52, 6);
  c.reuse = bits(high_word, 58, 4);
  return c;
}

std::string to_string(const Control& c) {
  std::string s = "wait ";
  for (int b = 0; b < 6; ++b) s += c.wait_mask >> b & 1 ? static_cast<char>('0' + b) : '-';
  s += " r";
  s += c.read_barrier < 0 ? '-' : static_cast<char>('0' + c.read_barrier);
  s += " w";
  s += c.write_barrier < 0 ? '-' : static_cast<char>('0' + c.write_barrier);
  s += c.yield ? " Y " : " - ";
  s += c.stall < 10 ? " " : "";
  s += std::to_string(c.stall);
  return s;
}

const char* to_string(Kind k) {
  static const char* names[kind_count] = {
      "wgmma",   "wgmma_fence", "wgmma_wait", "mma",     "mufu",   "fma",     "fmnmx",   "half",
      "convert", "integer",     "move",       "shuffle", "vote",   "uniform", "barrier", "mbarrier",
      "tma",     "shared",      "global",     "local",   "branch", "other"};
  return names[static_cast<int>(k)];
}

Kind classify(const std::string& opcode) {
  static const struct {
    const char* prefix;
    Kind kind;
  } table[] = {
      {"HGMMA", Kind::wgmma},
      {"QGMMA", Kind::wgmma},
      {"IGMMA", Kind::wgmma},
      {"BGMMA", Kind::wgmma},
      {"WARPGROUP.DEPBAR", Kind::wgmma_wait},
      {"WARPGROUP", Kind::wgmma_fence},
      {"HMMA", Kind::mma},
      {"QMMA", Kind::mma},
      {"IMMA", Kind::mma},
      {"MUFU", Kind::mufu},
      {"FFMA", Kind::fma},
      {"FMUL", Kind::fma},
      {"FADD", Kind::fma},
      {"FSWZADD", Kind::fma},
      {"FMNMX", Kind::fmnmx},
      {"HFMA2", Kind::half},
      {"HADD2", Kind::half},
      {"HMUL2", Kind::half},
      {"HMNMX2", Kind::half},
      {"HSETP2", Kind::half},
      {"HSET2", Kind::half},
      {"F2FP", Kind::convert},
      {"F2F", Kind::convert},
      {"F2I", Kind::convert},
      {"I2F", Kind::convert},
      {"FRND", Kind::convert},
      {"I2FP", Kind::convert},
      {"F2IP", Kind::convert},
      {"SHFL", Kind::shuffle},
      {"VOTEU", Kind::vote},
      {"VOTE", Kind::vote},
      {"ELECT", Kind::vote},
      {"REDUX", Kind::vote},
      {"UTMA", Kind::tma},
      {"UBLKCP", Kind::tma},
      {"UBLKRED", Kind::tma},
      {"BAR", Kind::barrier},
      {"WARPSYNC", Kind::barrier},
      {"BSYNC", Kind::branch},
      {"BSSY", Kind::branch},
      {"UCGABAR", Kind::barrier},
      {"SYNCS", Kind::mbarrier},
      {"NANOSLEEP", Kind::mbarrier},
      {"ARRIVES", Kind::mbarrier},
      {"LDSM", Kind::shared},
      {"STSM", Kind::shared},
      {"LDS", Kind::shared},
      {"STS", Kind::shared},
      {"ATOMS", Kind::shared},
      {"MOVM", Kind::shared},
      {"LDGSTS", Kind::global},
      {"LDGDEPBAR", Kind::global},
      {"LDG", Kind::global},
      {"STG", Kind::global},
      {"ATOMG", Kind::global},
      {"RED", Kind::global},
      {"ATOM", Kind::global},
      {"LD.", Kind::global},
      {"ST.", Kind::global},
      {"LDL", Kind::local},
      {"STL", Kind::local},
      {"BRA", Kind::branch},
      {"EXIT", Kind::branch},
      {"CALL", Kind::branch},
      {"RET", Kind::branch},
      {"BRX", Kind::branch},
      {"JMP", Kind::branch},
      {"BREAK", Kind::branch},
      {"BMOV", Kind::branch},
      {"MOV", Kind::move},
      {"CS2R", Kind::move},
      {"S2R", Kind::move},
      {"LDC", Kind::move},
      {"R2P", Kind::move},
      {"P2R", Kind::move},
      {"IMAD.MOV", Kind::move},
      {"IMAD", Kind::integer},
      {"IADD", Kind::integer},
      {"LOP3", Kind::integer},
      {"SHF", Kind::integer},
      {"PRMT", Kind::integer},
      {"ISETP", Kind::integer},
      {"FSETP", Kind::integer},
      {"FSEL", Kind::integer},
      {"SEL", Kind::integer},
      {"LEA", Kind::integer},
      {"IMNMX", Kind::integer},
      {"VIMNMX", Kind::integer},
      {"PLOP3", Kind::integer},
      {"POPC", Kind::integer},
      {"FLO", Kind::integer},
      {"SGXT", Kind::integer},
      {"IABS", Kind::integer},
      {"BREV", Kind::integer},
      {"VIADD", Kind::integer},
      {"SHL", Kind::integer},
      {"R2UR", Kind::uniform},
      {"S2UR", Kind::uniform},
      {"USETMAXREG", Kind::other},
      {"U", Kind::uniform},  // every other U... runs on the uniform datapath
  };
  for (const auto& row : table)
    if (starts_with(opcode, row.prefix)) return row.kind;
  return Kind::other;
}

std::vector<Function> parse_disassembly(const std::string& text) {
  std::vector<Function> functions;
  std::map<std::string, int> labels;
  std::istringstream in(text);
  std::string line;
  int ptx_line = 0;
  bool want_high = false;
  auto finish = [&] {
    if (!functions.empty()) resolve_branches(functions.back(), labels);
    labels.clear();
  };
  while (std::getline(in, line)) {
    const std::string t = trim(line);
    if (starts_with(t, ".section") && t.find(".text.") != std::string::npos) {
      finish();
      const auto at = t.find(".text.") + 6;
      functions.push_back({t.substr(at, t.find_first_of(", \t", at) - at), {}});
    } else if (starts_with(t, "Function : ")) {  // cuobjdump
      finish();
      functions.push_back({trim(t.substr(11)), {}});
    } else if (functions.empty()) {
      continue;
    } else if (starts_with(t, "//## File")) {
      const auto at = t.find("line ");
      if (t.find(".nv_debug_ptx_txt") != std::string::npos && at != std::string::npos)
        ptx_line = std::stoi(t.substr(at + 5));
    } else if (!t.empty() && t.back() == ':' && t[0] == '.') {
      labels[t.substr(0, t.size() - 1)] = static_cast<int>(functions.back().code.size());
    } else if (Instruction i; want_high && starts_with(t, "/* 0x")) {
      Instruction& last = functions.back().code.back();
      trailing_word(t, &last.high);
      last.control = decode_control(last.high);
      want_high = false;
    } else if (parse_instruction(line, &i)) {
      i.ptx_line = ptx_line;
      functions.back().code.push_back(i);
      want_high = true;
    }
  }
  finish();
  std::erase_if(functions, [](const Function& f) { return f.code.empty(); });
  if (functions.empty()) throw std::runtime_error("no function in this disassembly");
  return functions;
}

std::string PtxText::line(int n) const {
  return n >= 1 && n <= static_cast<int>(lines.size()) ? lines[static_cast<std::size_t>(n - 1)]
                                                       : "";
}

// A section opens with a comment "// == name" (more = signs may follow) and lasts until the next
// one or the brace that closes the entry.
PtxText read_ptx(const std::string& text) {
  PtxText p;
  std::istringstream in(text);
  std::string line, section;
  while (std::getline(in, line)) {
    const std::string t = trim(line);
    if (starts_with(t, "// ==")) {
      section = t.substr(t.find_first_not_of("/= "));
      section = trim(section.substr(0, section.find(" ==")));
    } else if (starts_with(t, ".visible") || starts_with(t, ".entry")) {
      section.clear();
    }
    p.lines.push_back(line);
    p.section.push_back(section);
  }
  return p;
}

}  // namespace flashptx::sass
