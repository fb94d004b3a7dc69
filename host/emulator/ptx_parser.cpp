// Tokens to tree: directives, kernels, scopes, instructions (PTX ISA, "Directives" and "Instruction
// Operands").
//
// A recursive descent with one token of look-ahead. Whatever the text, it ends in a module or in
// one PtxError. Next: decode.cpp turns the tree into something that runs.
#include <bit>
#include <cstdlib>
#include <optional>

#include "host/emulator/ptx_lexer.h"

namespace flashptx::emulator {
namespace {

constexpr int max_depth =
    64;  // of scopes, braces and parentheses: bad text must not overflow the stack

// PTX ISA, "Release History": sm_90 came with 7.8, sm_90a with 8.0.
bool known_version(const std::string& v) {
  return v == "7.8" || v == "9.0" || (v.size() == 3 && v[0] == '8' && v[1] == '.' && v[2] >= '0' && v[2] <= '8');
}

class Parser {
 public:
  Parser(const std::string& text, const std::string& file)
      : file_(file), tokens_(lex_ptx(text, file)) {}

  AstModule module() {
    AstModule m;
    m.file = file_;
    while (peek().kind != Token::Kind::end) {
      if (peek().kind != Token::Kind::dot_word) fail("a directive such as .visible .entry");
      const std::string word = peek().text;
      if (word == "version") {
        next();
        const Token& at = peek();
        m.version = number_text();
        if (!known_version(m.version)) fail_at(at, "a PTX version that this emulator knows, 7.8 to 9.0");
      } else if (word == "target") {
        next();
        const Token& at = peek();
        m.target = name("a target such as sm_90a");
        if (m.target != "sm_90" && m.target != "sm_90a") fail_at(at, "the target sm_90 or sm_90a");
        if (m.target == "sm_90a" && m.version == "7.8") fail_at(at, "sm_90, for sm_90a needs .version 8.0");
        while (accept(",")) m.target += ", " + name("a target option");
      } else if (word == "address_size") {
        next();
        m.address_size = static_cast<int>(unsigned_number());
        if (m.address_size != 64) fail_at(tokens_[pos_ - 1], ".address_size 64");
      } else if (!skip_ignored()) {
        top_level(m);
      }
    }
    return m;
  }

 private:
  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(pos_ + ahead, tokens_.size() - 1)];
  }
  const Token& next() {
    const Token& t = peek();
    if (pos_ + 1 < tokens_.size()) ++pos_;
    return t;
  }
  static std::string shown(const Token& t) {
    switch (t.kind) {
      case Token::Kind::end:
        return "the end of the text";
      case Token::Kind::dot_word:
        return "." + t.text;
      case Token::Kind::string:
        return "a string";
      default:
        return t.text;
    }
  }
  [[noreturn]] void fail_at(const Token& t, const std::string& expected) const {
    throw PtxError(file_, t.at, "expected " + expected + ", got " + shown(t));
  }
  [[noreturn]] void fail(const std::string& expected) const { fail_at(peek(), expected); }
  bool is(const char* punctuation) const {
    return peek().kind == Token::Kind::punctuation && peek().text == punctuation;
  }
  bool is_dot(const char* word) const {
    return peek().kind == Token::Kind::dot_word && peek().text == word;
  }
  bool accept(const char* punctuation) {
    if (!is(punctuation)) return false;
    next();
    return true;
  }
  bool accept_dot(const char* word) {
    if (!is_dot(word)) return false;
    next();
    return true;
  }
  void expect(const char* punctuation, const std::string& why) {
    if (!accept(punctuation)) fail(std::string(punctuation) + " " + why);
  }
  std::string name(const std::string& what) {
    if (peek().kind != Token::Kind::name) fail(what);
    return next().text;
  }
  std::string number_text() {
    if (peek().kind != Token::Kind::number) fail("a number");
    return next().text;
  }

  // .loc, .file, .section, .pragma: read and dropped.
  bool skip_ignored() {
    if (is_dot("pragma")) {
      while (!is(";")) {
        if (peek().kind == Token::Kind::end) fail("; after .pragma");
        next();
      }
      next();
      return true;
    }
    if (is_dot("loc") || is_dot("file")) {
      int line = peek().at.line;
      while (peek().kind != Token::Kind::end && peek().at.line == line) next();
      return true;
    }
    if (is_dot("section")) {
      while (!is("{")) {
        if (peek().kind == Token::Kind::end) fail("{ after .section");
        next();
      }
      int depth = 0;
      do {
        if (is("{")) ++depth;
        if (is("}")) --depth;
        if (peek().kind == Token::Kind::end) fail("} after .section");
        next();
      } while (depth > 0);
      return true;
    }
    return false;
  }

  // ---- constants (PTX ISA, "Constant Expressions") ----
  struct Constant {
    AstOperand::Kind kind = AstOperand::Kind::integer;
    std::uint64_t bits = 0;
    bool is_signed = false;
  };

  Constant literal() {
    const Token& t = peek();
    if (t.kind != Token::Kind::number) fail("a constant");
    const std::string& s = t.text;
    Constant c;
    auto digits = [&](std::size_t from, int base, std::size_t to) {
      if (from >= to) fail("digits in the constant");
      std::uint64_t v = 0;
      for (std::size_t i = from; i < to; ++i) {
        char ch = s[i];
        int d = ch >= '0' && ch <= '9'   ? ch - '0'
                : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
                : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10
                                         : 99;
        if (d >= base) fail("a constant in base " + std::to_string(base));
        if (v > (~std::uint64_t{0} - d) / base) fail("a constant of at most 64 bits");
        v = v * base + d;
      }
      return v;
    };
    char second = s.size() > 1 ? s[1] : '\0';
    if (s[0] == '0' && (second == 'f' || second == 'F')) {
      if (s.size() != 10) fail("0f and eight hexadecimal digits");
      c.kind = AstOperand::Kind::float32;
      c.bits = digits(2, 16, s.size());
    } else if (s[0] == '0' && (second == 'd' || second == 'D')) {
      if (s.size() != 18) fail("0d and sixteen hexadecimal digits");
      c.kind = AstOperand::Kind::float64;
      c.bits = digits(2, 16, s.size());
    } else if (s.find('.') != std::string::npos ||
               (second != 'x' && second != 'X' && s.find_first_of("eE") != std::string::npos)) {
      char* end = nullptr;
      double v = std::strtod(s.c_str(), &end);
      if (*end != '\0') fail("a floating-point constant");
      c.kind = AstOperand::Kind::float64;
      c.bits = std::bit_cast<std::uint64_t>(v);
    } else {
      std::size_t to = s.back() == 'U' ? s.size() - 1 : s.size();
      bool hex = second == 'x' || second == 'X', binary = second == 'b' || second == 'B';
      if (s[0] == '0' && hex) c.bits = digits(2, 16, to);
      else if (s[0] == '0' && binary) c.bits = digits(2, 2, to);
      else if (s[0] == '0' && to > 1) c.bits = digits(1, 8, to);
      else c.bits = digits(0, 10, to);
    }
    next();
    return c;
  }

  Constant unary(int depth) {
    if (depth > max_depth) fail("a shallower constant expression");
    if (accept("-")) {
      Constant c = unary(depth + 1);
      if (c.kind == AstOperand::Kind::float32) c.bits ^= 0x80000000u;
      else if (c.kind == AstOperand::Kind::float64) c.bits ^= 1ull << 63;
      else c.bits = ~c.bits + 1, c.is_signed = static_cast<std::int64_t>(c.bits) < 0;
      return c;
    }
    if (accept("+")) return unary(depth + 1);
    if (accept("~")) {
      Constant c = unary(depth + 1);
      if (c.kind != AstOperand::Kind::integer) fail("an integer after ~");
      c.bits = ~c.bits;
      c.is_signed = static_cast<std::int64_t>(c.bits) < 0;
      return c;
    }
    if (accept("(")) {
      Constant c = binary(0, depth + 1);
      expect(")", "to close the expression");
      return c;
    }
    return literal();
  }

  // Operators by precedence: | ^ & (<< >>) (+ -) (* /).
  int operator_level() const {
    if (peek().kind != Token::Kind::punctuation) return -1;
    const std::string& s = peek().text;
    if (s == "|") return 0;
    if (s == "^") return 1;
    if (s == "&") return 2;
    if ((s == "<" || s == ">") && peek(1).text == s && !peek(1).spaced) return 3;
    if (s == "+" || s == "-") return 4;
    if (s == "*" || s == "/") return 5;
    return -1;
  }

  Constant binary(int level, int depth) {
    if (level > 5) return unary(depth);
    if (depth > max_depth) fail("a shallower constant expression");
    Constant a = binary(level + 1, depth);
    while (operator_level() == level) {
      char op = next().text[0];
      if (level == 3) next();
      Constant b = binary(level + 1, depth);
      if (a.kind != AstOperand::Kind::integer || b.kind != AstOperand::Kind::integer)
        fail("integers in a constant expression");
      switch (op) {
        case '|':
          a.bits |= b.bits;
          break;
        case '^':
          a.bits ^= b.bits;
          break;
        case '&':
          a.bits &= b.bits;
          break;
        case '<':
          a.bits = b.bits < 64 ? a.bits << b.bits : 0;
          break;
        case '>':
          a.bits = b.bits < 64 ? a.bits >> b.bits : 0;
          break;
        case '+':
          a.bits += b.bits;
          break;
        case '-':
          a.bits -= b.bits;
          break;
        case '*':
          a.bits *= b.bits;
          break;
        default:
          if (b.bits == 0) fail("a divisor other than 0");
          a.bits /= b.bits;
      }
      a.is_signed = static_cast<std::int64_t>(a.bits) < 0;
    }
    return a;
  }

  std::uint64_t unsigned_number() {
    Constant c = unary(0);
    if (c.kind != AstOperand::Kind::integer || c.is_signed)
      fail_at(tokens_[pos_ ? pos_ - 1 : 0], "a number of at least 0");
    return c.bits;
  }
  std::uint32_t number32() {
    std::uint64_t v = unsigned_number();
    if (v > 0xffffffffu) fail_at(tokens_[pos_ - 1], "a number below 2^32");
    return static_cast<std::uint32_t>(v);
  }

  // ---- variables ----
  AstVariable variable(const std::string& linkage, bool is_param) {
    AstVariable v;
    v.linkage = linkage;
    v.at = peek().at;
    v.space = next().text;
    while (peek().kind == Token::Kind::dot_word) {
      if (accept_dot("align")) {
        v.align = unsigned_number();
        if (v.align == 0 || (v.align & (v.align - 1)) || v.align > (1u << 20))
          fail_at(tokens_[pos_ - 1], "an alignment that is a power of two");
      } else if (accept_dot("v2")) {
        v.vector = 2;
      } else if (accept_dot("v4")) {
        v.vector = 4;
      } else if (is_param && accept_dot("ptr")) {
        v.pointer = true;
        if (peek().kind == Token::Kind::dot_word && !is_dot("align")) v.pointer_space = next().text;
        if (accept_dot("align")) v.pointer_align = unsigned_number();
      } else if (v.type.empty()) {
        v.type = next().text;
        if (type_bytes(v.type) == 0) fail_at(tokens_[pos_ - 1], "a type such as .b8");
      } else {
        fail("a name");
      }
    }
    if (v.type.empty()) fail("a type such as .b8");
    v.name = name("the variable's name");
    while (accept("[")) {
      v.is_array = true;
      if (is("]")) {
        v.elements = 0;
      } else {
        std::uint64_t n = unsigned_number();
        if (n > (1u << 30) || v.elements * n > (1u << 30))
          fail_at(tokens_[pos_ - 1], "an array below 2^30 elements");
        v.elements *= n;
      }
      expect("]", "after the array's length");
    }
    if (!is_param && is("=")) {
      // PTX ISA, "Initializers": constants and global variables only, a list for arrays and vectors.
      if (v.space != "global" && v.space != "const") fail("; after a variable of ." + v.space);
      const Token& equals = next();
      values(v, 0);
      if (v.values.size() != 1 && !v.is_array && v.vector == 1)
        fail_at(equals, "one initial value for a scalar");
    }
    return v;
  }

  static int type_bytes(const std::string& t) {
    if (t == "b8" || t == "u8" || t == "s8") return 1;
    if (t == "b16" || t == "u16" || t == "s16" || t == "f16" || t == "bf16") return 2;
    if (t == "b32" || t == "u32" || t == "s32" || t == "f32" || t == "f16x2" || t == "bf16x2")
      return 4;
    if (t == "b64" || t == "u64" || t == "s64" || t == "f64") return 8;
    return 0;
  }

  void values(AstVariable& v, int depth) {
    if (depth > max_depth) fail("fewer braces");
    if (accept("{")) {
      do values(v, depth + 1);
      while (accept(","));
      expect("}", "after the initial values");
      return;
    }
    AstOperand o;
    o.at = peek().at;
    Constant c = binary(0, 0);
    o.kind = c.kind, o.bits = c.bits, o.is_signed = c.is_signed;
    v.values.push_back(o);
  }

  void top_level(AstModule& m) {
    std::string linkage;
    while (is_dot("visible") || is_dot("extern") || is_dot("weak") || is_dot("common"))
      linkage = next().text;
    if (is_dot("entry")) {
      m.kernels.push_back(kernel(linkage == "visible"));
    } else if (is_dot("shared") || is_dot("global") || is_dot("const")) {
      m.variables.push_back(variable(linkage, false));
      expect(";", "after the variable");
    } else {
      fail("a directive that is implemented (.entry, .shared, .global, .const; .func is not)");
    }
  }

  void triple(std::uint32_t (&out)[3]) {
    out[0] = number32(), out[1] = out[2] = 1;
    for (int i = 1; i < 3 && accept(","); ++i) out[i] = number32();
  }

  AstKernel kernel(bool visible) {
    AstKernel k;
    k.at = peek().at;
    k.visible = visible;
    next();
    k.name = name("the entry's name");
    if (accept("(") && !accept(")")) {
      do {
        if (!is_dot("param")) fail(".param");
        k.params.push_back(variable("", true));
      } while (accept(","));
      expect(")", "after the parameters");
    }
    for (;;) {
      if (accept_dot("reqntid")) triple(k.reqntid);
      else if (accept_dot("maxntid")) triple(k.maxntid);
      else if (accept_dot("reqnctapercluster")) triple(k.reqnctapercluster);
      else if (accept_dot("explicitcluster")) k.explicit_cluster = true;
      else if (accept_dot("minnctapersm")) k.minnctapersm = number32();
      else if (accept_dot("maxnreg")) k.maxnreg = number32();
      else if (accept_dot("maxclusterrank")) k.maxclusterrank = number32();
      else if (!skip_ignored()) break;
    }
    if (!is("{")) fail("{ or a directive such as .reqntid");
    k.body = block(0);
    return k;
  }

  std::vector<AstStatement> block(int depth) {
    if (depth > max_depth) fail("fewer nested scopes");
    expect("{", "to open the scope");
    std::vector<AstStatement> out;
    while (!accept("}")) {
      if (peek().kind == Token::Kind::end) fail("} to close the scope");
      if (accept(";") || skip_ignored()) continue;
      out.push_back(statement(depth));
    }
    return out;
  }

  AstStatement statement(int depth) {
    AstStatement s;
    s.at = peek().at;
    if (is("{")) {
      s.kind = AstStatement::Kind::block;
      s.block = block(depth + 1);
    } else if (is_dot("reg")) {
      next();
      s.kind = AstStatement::Kind::registers;
      if (peek().kind != Token::Kind::dot_word) fail("a register type such as .b32");
      s.register_type = next().text;
      if (s.register_type != "pred" &&
          (type_bytes(s.register_type) == 0 || type_bytes(s.register_type) == 1))
        fail_at(tokens_[pos_ - 1], "a register type such as .b32");
      do {
        AstRegister r;
        r.at = peek().at;
        r.name = name("a register name");
        if (accept("<")) {
          r.count = static_cast<int>(std::min<std::uint64_t>(unsigned_number(), 1u << 16));
          if (r.count >= 1 << 16) fail_at(tokens_[pos_ - 1], "fewer than 65536 registers");
          expect(">", "after the register count");
        }
        s.registers.push_back(r);
      } while (accept(","));
      expect(";", "after the registers");
    } else if (is_dot("shared") || is_dot("global") || is_dot("const")) {
      s.kind = AstStatement::Kind::variable;
      s.variable = variable("", false);
      expect(";", "after the variable");
    } else if (peek().kind == Token::Kind::name && peek(1).kind == Token::Kind::punctuation &&
               peek(1).text == ":") {
      s.kind = AstStatement::Kind::label;
      s.label = next().text;
      next();
    } else {
      s.instruction = instruction();
    }
    return s;
  }

  AstInstruction instruction() {
    AstInstruction i;
    if (accept("@")) {
      i.guard_negated = accept("!");
      i.guard = name("a predicate register");
    }
    if (peek().kind != Token::Kind::name) fail("an instruction, a label, .reg or }");
    i.at = peek().at;
    i.opcode = next().text;
    while (peek().kind == Token::Kind::dot_word) i.qualifiers.push_back(next().text);
    if (!is(";")) {
      do i.operands.push_back(operand(0));
      while (accept(","));
    }
    expect(";", "or , after an operand of " + i.mnemonic());
    return i;
  }

  AstOperand named() {
    AstOperand o;
    o.at = peek().at;
    o.kind = AstOperand::Kind::name;
    o.name = name("an operand");
    if (o.name == "_") o.kind = AstOperand::Kind::sink;
    if (peek().kind == Token::Kind::dot_word && !peek().spaced) o.name += "." + next().text;
    return o;
  }

  AstOperand operand(int depth) {
    if (depth > max_depth) fail("fewer braces");
    AstOperand o;
    o.at = peek().at;
    if (accept("{")) {
      o.kind = AstOperand::Kind::vector;
      do o.items.push_back(operand(depth + 1));
      while (accept(","));
      expect("}", "to close the vector");
      return o;
    }
    if (accept("[")) {
      o.kind = AstOperand::Kind::address;
      do o.items.push_back(operand(depth + 1));
      while (accept(","));
      expect("]", "to close the address");
      return o;
    }
    bool negated = accept("!");
    if (peek().kind == Token::Kind::name) {
      o = named();
      o.negated = negated;
      if (is("|")) {
        next();
        AstOperand pair;
        pair.kind = AstOperand::Kind::pair;
        pair.at = o.at;
        pair.items.push_back(o);
        pair.items.push_back(named());
        return pair;
      }
      if (o.kind == AstOperand::Kind::name && (is("+") || is("-"))) {
        bool minus = next().text == "-";
        Constant c = unary(0);
        if (c.kind != AstOperand::Kind::integer) fail("an integer offset");
        o.offset = static_cast<std::int64_t>(minus ? ~c.bits + 1 : c.bits);
      }
      return o;
    }
    if (negated) fail("a predicate register after !");
    Constant c = binary(0, 0);
    o.kind = c.kind, o.bits = c.bits, o.is_signed = c.is_signed;
    return o;
  }

  std::string file_;
  std::vector<Token> tokens_;
  std::size_t pos_ = 0;
};

}  // namespace

AstModule parse_ptx(const std::string& text, const std::string& file) {
  return Parser(text, file).module();
}

}  // namespace flashptx::emulator
