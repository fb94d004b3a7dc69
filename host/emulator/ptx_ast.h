// PTX text as a tree: what the parser makes, the printer prints and the decoder reads.
//
// The tree keeps what the text says and judges nothing: whether an opcode exists is the decoder's
// business. print(parse(text)) parses to the same tree; comments, .loc, .file, .section and .pragma
// are not kept. Next: ptx_parser.cpp, then decode.h.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace flashptx::emulator {

struct Position {
  int line = 0, column = 0;
};

// file:line:column: what was expected, and what stands there.
struct PtxError : std::runtime_error {
  PtxError(const std::string& file, Position at, const std::string& what)
      : std::runtime_error(file + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) +
                           ": " + what) {}
};

struct AstOperand {
  enum class Kind : std::uint8_t {
    name,     // register, special register ("%tid.x"), symbol, label; +offset
    integer,  // bits
    float32,  // bits
    float64,  // bits of the double
    vector,   // items
    address,  // items[0] is the base (name or integer), then coordinates
    sink,     // _
    pair,     // items: d|p
  };
  Kind kind = Kind::sink;
  bool negated = false;    // !p
  bool is_signed = false;  // the integer was written with a minus sign
  std::string name;
  std::int64_t offset = 0;  // name+offset
  std::uint64_t bits = 0;
  std::vector<AstOperand> items;
  Position at;
};

struct AstInstruction {
  std::string guard;  // empty: none
  bool guard_negated = false;
  std::string opcode;                   // "mbarrier"
  std::vector<std::string> qualifiers;  // "arrive", "shared::cta", "b64"
  std::vector<AstOperand> operands;
  Position at;
  std::string mnemonic() const {
    std::string s = opcode;
    for (const auto& q : qualifiers) s += "." + q;
    return s;
  }
};

// One name of a .reg line: count > 0 for %r<count>.
struct AstRegister {
  std::string name;
  int count = -1;
  Position at;
};

struct AstVariable {
  std::string space;        // "shared", "global", "const", "param", "local"
  std::string linkage;      // "", "extern", "visible", "weak", "common"
  std::string type;         // "b8"
  int vector = 1;           // .v2, .v4
  std::uint64_t align = 0;  // 0: not written
  bool pointer = false;     // .ptr
  std::string pointer_space;
  std::uint64_t pointer_align = 0;
  std::string name;
  bool is_array = false;
  std::uint64_t elements = 1;  // 0: extern array of unknown length
  std::vector<AstOperand> values;
  Position at;
};

struct AstStatement {
  enum class Kind : std::uint8_t { instruction, label, registers, variable, block };
  Kind kind = Kind::instruction;
  AstInstruction instruction;
  std::string label;
  std::string register_type;
  std::vector<AstRegister> registers;
  AstVariable variable;
  std::vector<AstStatement> block;
  Position at;
};

struct AstKernel {
  std::string name;
  bool visible = false;
  std::vector<AstVariable> params;
  std::uint32_t reqntid[3] = {0, 0, 0};
  std::uint32_t maxntid[3] = {0, 0, 0};
  std::uint32_t reqnctapercluster[3] = {0, 0, 0};
  std::uint32_t minnctapersm = 0, maxnreg = 0, maxclusterrank = 0;
  bool explicit_cluster = false;
  std::vector<AstStatement> body;
  Position at;
};

struct AstModule {
  std::string file;
  std::string version;  // "8.0"
  std::string target;   // "sm_90a"
  int address_size = 64;
  std::vector<AstVariable> variables;
  std::vector<AstKernel> kernels;
};

// Throws PtxError. `file` is used in messages only.
AstModule parse_ptx(const std::string& text, const std::string& file);
std::string print_ptx(const AstModule& module);

}  // namespace flashptx::emulator
