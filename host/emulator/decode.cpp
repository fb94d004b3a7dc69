// Names, types, immediates and labels resolved; scopes flattened (PTX ISA, "State Spaces, Types,
// and Variables").
//
// Two passes over each scope: its labels and variables first, then its instructions, so that a
// branch may look ahead. Next: ops_*.cpp, one group of instructions each.
#include "host/emulator/decode.h"

#include <bit>
#include <cstring>

#include "host/emulator/numeric.h"

namespace flashptx::emulator {

int type_bytes(Type t) {
  switch (t) {
    case Type::none:
    case Type::pred:
      return 0;
    case Type::b8:
    case Type::u8:
    case Type::s8:
    case Type::e4m3:
    case Type::e5m2:
      return 1;
    case Type::b16:
    case Type::u16:
    case Type::s16:
    case Type::f16:
    case Type::bf16:
    case Type::e4m3x2:
    case Type::e5m2x2:
      return 2;
    case Type::b64:
    case Type::u64:
    case Type::s64:
    case Type::f64:
      return 8;
    default:
      return 4;
  }
}
bool is_signed(Type t) {
  return t == Type::s8 || t == Type::s16 || t == Type::s32 || t == Type::s64;
}
bool is_float(Type t) { return t >= Type::f16; }

static const std::pair<const char*, Type> type_names[] = {
    {"pred", Type::pred},     {"b8", Type::b8},         {"b16", Type::b16},
    {"b32", Type::b32},       {"b64", Type::b64},       {"u8", Type::u8},
    {"u16", Type::u16},       {"u32", Type::u32},       {"u64", Type::u64},
    {"s8", Type::s8},         {"s16", Type::s16},       {"s32", Type::s32},
    {"s64", Type::s64},       {"f16", Type::f16},       {"f16x2", Type::f16x2},
    {"bf16", Type::bf16},     {"bf16x2", Type::bf16x2}, {"f32", Type::f32},
    {"f64", Type::f64},       {"tf32", Type::tf32},     {"e4m3x2", Type::e4m3x2},
    {"e5m2x2", Type::e5m2x2}, {"e4m3", Type::e4m3},     {"e5m2", Type::e5m2}};

static Type type_of(const std::string& s) {
  for (const auto& [name, type] : type_names)
    if (s == name) return type;
  return Type::none;
}

static const std::pair<const char*, Special> special_names[] = {
    {"%tid.x", Special::tid_x},
    {"%tid.y", Special::tid_y},
    {"%tid.z", Special::tid_z},
    {"%ntid.x", Special::ntid_x},
    {"%ntid.y", Special::ntid_y},
    {"%ntid.z", Special::ntid_z},
    {"%ctaid.x", Special::ctaid_x},
    {"%ctaid.y", Special::ctaid_y},
    {"%ctaid.z", Special::ctaid_z},
    {"%nctaid.x", Special::nctaid_x},
    {"%nctaid.y", Special::nctaid_y},
    {"%nctaid.z", Special::nctaid_z},
    {"%laneid", Special::laneid},
    {"%warpid", Special::warpid},
    {"%nwarpid", Special::nwarpid},
    {"%smid", Special::smid},
    {"%nsmid", Special::nsmid},
    {"%gridid", Special::gridid},
    {"%clusterid.x", Special::clusterid_x},
    {"%clusterid.y", Special::clusterid_y},
    {"%clusterid.z", Special::clusterid_z},
    {"%nclusterid.x", Special::nclusterid_x},
    {"%nclusterid.y", Special::nclusterid_y},
    {"%nclusterid.z", Special::nclusterid_z},
    {"%cluster_ctaid.x", Special::cluster_ctaid_x},
    {"%cluster_ctaid.y", Special::cluster_ctaid_y},
    {"%cluster_ctaid.z", Special::cluster_ctaid_z},
    {"%cluster_nctaid.x", Special::cluster_nctaid_x},
    {"%cluster_nctaid.y", Special::cluster_nctaid_y},
    {"%cluster_nctaid.z", Special::cluster_nctaid_z},
    {"%cluster_ctarank", Special::cluster_ctarank},
    {"%cluster_nctarank", Special::cluster_nctarank},
    {"%total_smem_size", Special::total_smem_size},
    {"%dynamic_smem_size", Special::dynamic_smem_size},
    {"%lanemask_eq", Special::lanemask_eq},
    {"%lanemask_le", Special::lanemask_le},
    {"%lanemask_lt", Special::lanemask_lt},
    {"%lanemask_ge", Special::lanemask_ge},
    {"%lanemask_gt", Special::lanemask_gt},
    {"WARP_SZ", Special::warp_size},
    {"%is_explicit_cluster", Special::is_explicit_cluster},
    {"%clock", Special::clock},
    {"%clock_hi", Special::clock_hi},
    {"%clock64", Special::clock64},
    {"%globaltimer", Special::globaltimer},
    {"%globaltimer_lo", Special::globaltimer_lo},
    {"%globaltimer_hi", Special::globaltimer_hi}};

int Program::entry_registers(int threads) const {
  if (kernel.maxnreg) return static_cast<int>(kernel.maxnreg);
  int blocks = kernel.minnctapersm ? static_cast<int>(kernel.minnctapersm) : 1;
  int per_thread = 65536 / std::max(threads, 1) / blocks / 8 * 8;
  return std::min(per_thread, 256);
}

constexpr std::uint64_t max_const_bytes = 65536;          // PTX ISA, "Constant State Space": ten such banks
constexpr std::uint64_t max_global_bytes = 1u << 28;  // ours: a short text must not ask for all memory

class Decoder {
 public:
  Decoder(const AstModule& module, const AstKernel& kernel, const GlobalAllocator& globals)
      : module_(module), globals_(globals) {
    program.file = module.file;
    program.entry = kernel.name;
    program.kernel = kernel;
    program.kernel.body.clear();
    program.registers.push_back({"(constant)", Type::none, 0});
    scopes_.emplace_back();
    for (const auto& v : module.variables) declare(v);
    layout_params(kernel);
    run_block(kernel.body, 0);
    implicit_return(kernel.at);  // a label may stand behind the last instruction
    for (auto& in : program.code) {
      if (in.target >= label_pcs_.size()) continue;
      if (is_branch(in)) in.target = label_pcs_[in.target];
    }
    name_labels();
    program.register_bytes = register_bytes_;
  }

  Program program;

  struct Symbol {
    enum class Kind { reg, shared, global, constant, param, label, dynamic_shared } kind;
    std::uint32_t index = 0;    // register number, label id
    std::uint64_t address = 0;  // variable
  };

  const Symbol* find(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      auto it = scope->find(name);
      if (it != scope->end()) return &it->second;
    }
    return nullptr;
  }

  Operand register_operand(std::uint16_t reg) {
    const RegisterInfo& info = program.registers[reg];
    Operand o;
    o.present = true;
    o.base = 0;
    o.reg = reg;
    o.offset = info.offset;
    o.width = info.type == Type::pred ? 1 : type_bytes(info.type) == 8 ? 8 : 4;
    return o;
  }

  std::uint16_t special(const std::string& name) {
    for (const auto& [n, s] : special_names) {
      if (name != n) continue;
      std::uint16_t& slot = program.special[static_cast<int>(s)];
      bool wide = s == Special::clock64 || s == Special::globaltimer || s == Special::gridid;
      if (!slot) slot = add_register(name, wide ? Type::b64 : Type::b32);
      return slot;
    }
    return 0;
  }

  Operand constant(std::uint64_t bits, int width) {
    auto [it, added] = constants_.try_emplace({bits, width}, 0);
    if (added) {
      it->second = static_cast<std::uint32_t>(program.pool.size());
      program.pool.resize(program.pool.size() + 256);
      for (int lane = 0; lane < 32; ++lane)
        std::memcpy(&program.pool[it->second + lane * width], &bits, width);
    }
    Operand o;
    o.present = true;
    o.offset = it->second;
    o.width = static_cast<std::uint8_t>(width);
    return o;
  }

  [[noreturn]] void fail(Position at, const std::string& what) const {
    throw PtxError(module_.file, at, what);
  }

 private:
  std::uint16_t add_register(const std::string& name, Type type) {
    if (program.registers.size() >= 65535) fail({0, 0}, "more than 65534 registers in one kernel");
    std::uint32_t bytes = type == Type::pred ? 64 : type_bytes(type) == 8 ? 256 : 128;
    program.registers.push_back({name, type, register_bytes_});
    register_bytes_ += bytes;
    return static_cast<std::uint16_t>(program.registers.size() - 1);
  }

  void define(const std::string& name, Position at, Symbol s) {
    for (const auto& [n, kind] : special_names)
      if (const std::string_view special = n; special.substr(0, name.size()) == name &&
                                              (special.size() == name.size() || special[name.size()] == '.'))
        fail(at, name + " is the name of a special register; ptxas would misread it");
    if (!scopes_.back().emplace(name, s).second)
      fail(at, name + " is declared twice in this scope");
  }

  static std::uint64_t align_up(std::uint64_t v, std::uint64_t a) { return (v + a - 1) / a * a; }

  void declare(const AstVariable& v) {
    std::uint64_t element = static_cast<std::uint64_t>(type_bytes(type_of(v.type))) * v.vector;
    std::uint64_t bytes = element * v.elements, align = v.align ? v.align : element;
    Symbol s{};
    if (v.space == "shared" && v.linkage == "extern") {
      s.kind = Symbol::Kind::dynamic_shared;
      program.dynamic_align =
          std::max<std::uint32_t>(program.dynamic_align, static_cast<std::uint32_t>(align));
      dynamic_names_.push_back(v.name);
    } else if (v.space == "shared") {
      std::uint64_t at = align_up(shared_origin + program.static_shared_bytes, align);
      if (at + bytes > shared_origin + shared_limit)
        fail(v.at, "static shared memory above 232448 bytes");
      s.kind = Symbol::Kind::shared;
      s.address = at;
      program.static_shared_bytes = static_cast<std::uint32_t>(at + bytes - shared_origin);
      program.shared_symbols.push_back(
          {v.name, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(bytes)});
    } else {
      if (v.space == "const" && align_up(program.constants.size(), align) + bytes > max_const_bytes)
        fail(v.at, "constant memory above 65536 bytes");
      if (bytes > max_global_bytes) fail(v.at, "a static variable above 2^28 bytes");
      std::vector<std::uint8_t> init(bytes, 0);
      std::size_t unit = static_cast<std::size_t>(type_bytes(type_of(v.type)));
      if (v.values.size() * unit > bytes)
        fail(v.at, v.name + " has more initial values than elements");
      for (std::size_t i = 0; i < v.values.size(); ++i) {
        std::uint64_t bits = v.values[i].bits;
        if (v.type == "f32" && v.values[i].kind == AstOperand::Kind::float64)
          bits = std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
        std::memcpy(&init[i * unit], &bits, unit);
      }
      if (v.space == "const") {
        s.kind = Symbol::Kind::constant;
        s.address = align_up(program.constants.size(), align);
        program.constants.resize(s.address);
        program.constants.insert(program.constants.end(), init.begin(), init.end());
      } else {
        s.kind = Symbol::Kind::global;
        s.address = globals_(v, bytes, init);
      }
    }
    define(v.name, v.at, s);
  }

  void layout_params(const AstKernel& kernel) {
    scopes_.emplace_back();
    for (const auto& v : kernel.params) {
      std::uint64_t element = static_cast<std::uint64_t>(type_bytes(type_of(v.type))) * v.vector;
      std::uint64_t at = align_up(program.param_bytes, v.align ? v.align : element),
                    bytes = element * v.elements;
      if (at + bytes > 32764) fail(v.at, "kernel parameters above 32764 bytes");
      program.params.push_back(
          {v.name, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(bytes)});
      program.param_bytes = static_cast<std::uint32_t>(at + bytes);
      Symbol s{};
      s.kind = Symbol::Kind::param;
      s.address = at;
      define(v.name, v.at, s);
    }
  }

  // The dynamic array begins after the static variables: its address is known when all are
  // declared.
  void run_block(const std::vector<AstStatement>& block, int depth) {
    scopes_.emplace_back();
    for (const auto& s : block) {
      if (s.kind == AstStatement::Kind::label) {
        Symbol l{};
        l.kind = Symbol::Kind::label;
        l.index = static_cast<std::uint32_t>(label_pcs_.size());
        label_pcs_.push_back(~0u);
        define(s.label, s.at, l);
      } else if (s.kind == AstStatement::Kind::variable) {
        declare(s.variable);
      }
    }
    if (depth == 0) declare_nested(block);
    for (const auto& s : block) {
      switch (s.kind) {
        case AstStatement::Kind::label: {
          std::uint32_t id = scopes_.back().at(s.label).index;
          label_pcs_[id] = static_cast<std::uint32_t>(program.code.size());
          label_texts_.emplace_back(label_pcs_[id], s.label);
          break;
        }
        case AstStatement::Kind::registers:
          registers(s);
          break;
        case AstStatement::Kind::variable:
          break;
        case AstStatement::Kind::block:
          run_block(s.block, depth + 1);
          break;
        case AstStatement::Kind::instruction:
          instruction(s.instruction);
          break;
      }
    }
    scopes_.pop_back();
  }

  // Room for the static variables of inner scopes must be known before dynamic memory is placed.
  void declare_nested(const std::vector<AstStatement>& block) {
    std::uint64_t bytes = program.static_shared_bytes;
    std::function<void(const std::vector<AstStatement>&)> visit =
        [&](const std::vector<AstStatement>& b) {
          for (const auto& s : b) {
            if (s.kind != AstStatement::Kind::block) continue;
            for (const auto& v : s.block) {
              if (v.kind != AstStatement::Kind::variable || v.variable.space != "shared") continue;
              std::uint64_t element =
                  static_cast<std::uint64_t>(type_bytes(type_of(v.variable.type))) *
                  v.variable.vector;
              bytes = align_up(shared_origin + bytes, v.variable.align
                                                          ? v.variable.align
                                                          : std::max<std::uint64_t>(element, 1)) -
                      shared_origin + element * v.variable.elements;
            }
            visit(s.block);
          }
        };
    visit(block);
    dynamic_base_ = align_up(shared_origin + bytes, program.dynamic_align);
    if (!dynamic_names_.empty()) {
      for (const auto& name : dynamic_names_) scopes_.front().at(name).address = dynamic_base_;
      program.shared_symbols.push_back(
          {dynamic_names_[0], static_cast<std::uint32_t>(dynamic_base_), 0});
    }
  }

  void registers(const AstStatement& s) {
    Type type = type_of(s.register_type);
    for (const auto& r : s.registers) {
      for (int i = 0; i < std::max(r.count, 1); ++i) {
        if (r.count == 0) break;
        std::string name = r.count < 0 ? r.name : r.name + std::to_string(i);
        Symbol symbol{};
        symbol.kind = Symbol::Kind::reg;
        symbol.index = add_register(name, type);
        define(name, r.at, symbol);
      }
    }
  }

  static bool is_branch(const Instr& in) {
    return in.text.rfind("bra", 0) == 0 && in.text.rfind("brev", 0) != 0;
  }

  void instruction(const AstInstruction& ast) {
    auto it = op_table().find(ast.opcode);
    if (it == op_table().end())
      fail(ast.at, "the opcode " + ast.mnemonic() + " is not implemented");
    if (module_.target == "sm_90" && (ast.opcode == "wgmma" || ast.opcode == "setmaxnreg"))
      fail(ast.at, ast.opcode + " needs .target sm_90a");
    Instr in;
    in.text = ast.mnemonic();
    in.line = static_cast<std::uint32_t>(ast.at.line);
    in.pc = static_cast<std::uint32_t>(program.code.size());
    if (!ast.guard.empty()) {
      const Symbol* s = find(ast.guard);
      if (!s || s->kind != Symbol::Kind::reg || program.registers[s->index].type != Type::pred)
        fail(ast.at, "the guard " + ast.guard + " is not a predicate register of this scope");
      in.guard = static_cast<std::uint16_t>(s->index);
      in.guard_negated = ast.guard_negated;
      in.reads.push_back(in.guard);
    }
    OpDecoder op(*this, ast, in);
    it->second(op);
    op.finish();
    program.code.push_back(std::move(in));
  }

  void implicit_return(Position at) {
    AstInstruction ret;
    ret.opcode = "ret";
    ret.at = at;
    instruction(ret);
  }

  void name_labels() {
    program.labels.assign(program.code.size(), "");
    std::string now;
    std::size_t next = 0;
    for (std::size_t pc = 0; pc < program.code.size(); ++pc) {
      while (next < label_texts_.size() && label_texts_[next].first <= pc)
        now = label_texts_[next++].second;
      program.labels[pc] = now;
    }
  }

  const AstModule& module_;
  const GlobalAllocator& globals_;
  std::vector<std::map<std::string, Symbol>> scopes_;
  std::vector<std::uint32_t> label_pcs_;
  std::vector<std::pair<std::uint32_t, std::string>> label_texts_;
  std::map<std::pair<std::uint64_t, int>, std::uint32_t> constants_;
  std::vector<std::string> dynamic_names_;
  std::uint64_t dynamic_base_ = shared_origin;
  std::uint32_t register_bytes_ = 256;
};

// ---- OpDecoder ----

void OpDecoder::fail(const std::string& what) const {
  decoder_.fail(ast.at, ast.mnemonic() + ": " + what);
}
void OpDecoder::fail_at(const AstOperand& o, const std::string& what) const {
  decoder_.fail(o.at.line ? o.at : ast.at, ast.mnemonic() + ": " + what);
}
Program& OpDecoder::program() { return decoder_.program; }

bool OpDecoder::take(const char* qualifier) {
  for (std::size_t i = 0; i < taken_.size(); ++i)
    if (!taken_[i] && ast.qualifiers[i] == qualifier) return taken_[i] = true;
  return false;
}
std::string OpDecoder::take_optional(std::initializer_list<const char*> choices) {
  for (const char* c : choices)
    if (take(c)) return c;
  return "";
}
std::string OpDecoder::take_one_of(std::initializer_list<const char*> choices, const char* what) {
  std::string s = take_optional(choices);
  if (s.empty()) {
    std::string list;
    for (const char* c : choices) list += std::string(list.empty() ? "." : ", .") + c;
    fail("expected " + std::string(what) + " among " + list +
         (peek_qualifier().empty() ? "" : "; got ." + peek_qualifier()));
  }
  return s;
}
const std::string& OpDecoder::peek_qualifier() const {
  static const std::string none;
  for (std::size_t i = 0; i < taken_.size(); ++i)
    if (!taken_[i]) return ast.qualifiers[i];
  return none;
}
Type OpDecoder::take_type(std::initializer_list<Type> allowed) {
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i]) continue;
    Type t = type_of(ast.qualifiers[i]);
    if (t == Type::none) continue;
    for (Type a : allowed)
      if (a == t) {
        taken_[i] = true;
        return t;
      }
    fail("the type ." + ast.qualifiers[i] + " is not implemented here");
  }
  fail("expected a type");
}
void OpDecoder::ignore(std::initializer_list<const char*> qualifiers) {
  for (const char* q : qualifiers) take(q);
}
void OpDecoder::finish() {
  if (!peek_qualifier().empty())
    fail("the qualifier ." + peek_qualifier() + " is not implemented here");
}
const AstOperand& OpDecoder::operand(int i) const {
  if (i >= operands())
    fail("expected at least " + std::to_string(i + 1) + " operands, got " +
         std::to_string(operands()));
  return ast.operands[static_cast<std::size_t>(i)];
}
void OpDecoder::count(int least, int most) const {
  if (operands() >= least && operands() <= most) return;
  fail("expected " + std::to_string(least) + (least == most ? "" : " to " + std::to_string(most)) +
       " operands, got " + std::to_string(operands()));
}

Operand OpDecoder::constant(std::uint64_t bits, int width) {
  return decoder_.constant(bits, width);
}

Operand OpDecoder::src(const AstOperand& o, Type t, bool wider) {
  using Kind = AstOperand::Kind;
  int bytes = type_bytes(t), width = bytes == 8 ? 8 : 4;
  if (t == Type::pred) return pred_src(o);
  if (o.negated) fail_at(o, "! belongs to predicates only");
  switch (o.kind) {
    case Kind::integer: {
      if (is_float(t) && t != Type::f16x2 && t != Type::bf16x2 && bytes >= 4)
        fail_at(o, "expected a floating-point constant (0f... or with a point)");
      return constant(bytes == 8 ? o.bits : o.bits & (~0ull >> (64 - 8 * bytes)), width);
    }
    case Kind::float32:
      if (t == Type::f64)
        return constant(std::bit_cast<std::uint64_t>(static_cast<double>(
                            std::bit_cast<float>(static_cast<std::uint32_t>(o.bits)))),
                        8);
      if (bytes != 4) fail_at(o, "a 0f constant needs a 32-bit type");
      return constant(o.bits, width);
    case Kind::float64:
      if (t == Type::f32)
        return constant(std::bit_cast<std::uint32_t>(f64_to_f32(std::bit_cast<double>(o.bits))), 4);
      if (bytes != 8) fail_at(o, "a double constant needs .f32 or .f64");
      return constant(o.bits, 8);
    case Kind::name:
      break;
    default:
      fail_at(o, "expected a register or a constant");
  }
  const Decoder::Symbol* s = decoder_.find(o.name);
  std::uint16_t reg = 0;
  if (!s) {
    reg = decoder_.special(o.name);
    if (!reg) fail_at(o, o.name + " is not declared in this scope");
  } else if (s->kind == Decoder::Symbol::Kind::reg) {
    reg = static_cast<std::uint16_t>(s->index);
  } else if (s->kind == Decoder::Symbol::Kind::label) {
    fail_at(o, o.name + " is a label, expected a register");
  } else {
    std::uint64_t address = s->address + static_cast<std::uint64_t>(o.offset);
    if (bytes < 4) fail_at(o, "an address needs 32 or 64 bits");
    return constant(address, width);
  }
  if (o.offset) fail_at(o, "a register takes no offset outside [ ]");
  int have = type_bytes(program().registers[reg].type);
  if (program().registers[reg].type == Type::pred)
    fail_at(o, o.name + " is a predicate, expected a value");
  bool special = !s;
  if (have != bytes && !(have > bytes && (wider || special)) && !(special && bytes == 8))
    fail_at(o, o.name + " has " + std::to_string(have * 8) + " bits, expected " +
                   std::to_string(bytes * 8));
  Operand r = decoder_.register_operand(reg);
  if (special && bytes == 8 && r.width != 8) fail_at(o, o.name + " has 32 bits, expected 64");
  in.reads.push_back(reg);
  return r;
}

Operand OpDecoder::pred_src(const AstOperand& o) {
  if (o.kind == AstOperand::Kind::integer && o.bits <= 1) {
    Operand r = constant(o.bits ? ~0u : 0u, 4);
    r.width = 1;
    return r;
  }
  const Decoder::Symbol* s = o.kind == AstOperand::Kind::name ? decoder_.find(o.name) : nullptr;
  if (!s || s->kind != Decoder::Symbol::Kind::reg ||
      program().registers[s->index].type != Type::pred)
    fail_at(o, "expected a predicate register");
  Operand r = decoder_.register_operand(static_cast<std::uint16_t>(s->index));
  r.negated = o.negated;
  in.reads.push_back(r.reg);
  return r;
}

Operand OpDecoder::dst(const AstOperand& o, Type t, bool wider) {
  if (is_sink(o)) return {};
  const Decoder::Symbol* s = o.kind == AstOperand::Kind::name ? decoder_.find(o.name) : nullptr;
  if (!s || s->kind != Decoder::Symbol::Kind::reg)
    fail_at(o, "expected a destination register" + (o.name.empty() ? "" : ", got " + o.name));
  const RegisterInfo& info = program().registers[s->index];
  int have = type_bytes(info.type), want = type_bytes(t);
  if ((t == Type::pred) != (info.type == Type::pred))
    fail_at(o, o.name + (t == Type::pred ? " is not a predicate" : " is a predicate"));
  if (have != want && !(wider && have > want))
    fail_at(o, o.name + " has " + std::to_string(have * 8) + " bits, expected " +
                   std::to_string(want * 8));
  Operand r = decoder_.register_operand(static_cast<std::uint16_t>(s->index));
  in.writes.push_back(r.reg);
  return r;
}

bool OpDecoder::immediate(int i, std::uint64_t* out) const {
  if (i >= operands() ||
      ast.operands[static_cast<std::size_t>(i)].kind != AstOperand::Kind::integer)
    return false;
  *out = ast.operands[static_cast<std::size_t>(i)].bits;
  return true;
}
std::uint64_t OpDecoder::need_immediate(int i, const char* what) const {
  std::uint64_t v = 0;
  if (!immediate(i, &v))
    fail_at(operand(i), "expected an integer constant for " + std::string(what));
  return v;
}

void OpDecoder::address(const AstOperand& o, Space space, Operand* base, std::int64_t* offset) {
  if (o.kind != AstOperand::Kind::address || o.items.size() != 1)
    fail_at(o, "expected an address such as [%r1+16]");
  AstOperand inner = o.items[0];
  *offset = 0;
  if (inner.kind == AstOperand::Kind::integer) {
    *base = constant(inner.bits, 8);
    return;
  }
  const Decoder::Symbol* s =
      inner.kind == AstOperand::Kind::name ? decoder_.find(inner.name) : nullptr;
  if (!s)
    fail_at(o, inner.name.empty() ? "expected a register or a variable in the address"
                                  : inner.name + " is not declared in this scope");
  using K = Decoder::Symbol::Kind;
  *offset = inner.offset;
  if (s->kind == K::reg) {
    inner.offset = 0;
    bool narrow = space == Space::shared || space == Space::shared_cluster ||
                  space == Space::param || space == Space::constant;
    int have = type_bytes(program().registers[s->index].type);
    if (have != 8 && !(have == 4 && narrow))
      fail_at(o,
              inner.name + " has " + std::to_string(have * 8) + " bits, expected a 64-bit address");
    *base = src(inner, have == 8 ? Type::u64 : Type::u32);
    return;
  }
  bool fits = (s->kind == K::shared || s->kind == K::dynamic_shared)
                  ? space == Space::shared || space == Space::shared_cluster
              : s->kind == K::global   ? space == Space::global || space == Space::generic
              : s->kind == K::constant ? space == Space::constant
              : s->kind == K::param    ? space == Space::param
                                       : false;
  if (!fits) fail_at(o, inner.name + " does not lie in the state space of this instruction");
  *base = constant(s->address, 8);
}

Space OpDecoder::take_space(std::initializer_list<const char*> allowed) {
  std::string s = take_optional(allowed);
  if (s == "global") return Space::global;
  if (s == "shared" || s == "shared::cta") return Space::shared;
  if (s == "shared::cluster") return Space::shared_cluster;
  if (s == "param" || s == "param::entry") return Space::param;
  if (s == "const") return Space::constant;
  return Space::generic;
}

std::uint32_t OpDecoder::label(int i) {
  const AstOperand& o = operand(i);
  const Decoder::Symbol* s = o.kind == AstOperand::Kind::name ? decoder_.find(o.name) : nullptr;
  if (!s || s->kind != Decoder::Symbol::Kind::label)
    fail_at(o, "expected a label of this or an enclosing scope" +
                   (o.name.empty() ? "" : ", got " + o.name));
  return s->index;
}

const OpTable& op_table() {
  static const OpTable table = [] {
    OpTable t;
    register_integer_ops(t);
    register_float_ops(t);
    register_move_ops(t);
    register_convert_ops(t);
    register_control_ops(t);
    register_memory_ops(t);
    register_warp_ops(t);
    register_barrier_ops(t);
    register_mbarrier_ops(t);
    register_async_ops(t);
    register_wgmma_ops(t);
    return t;
  }();
  return table;
}

Program decode_program(const AstModule& module, const std::string& entry,
                       const GlobalAllocator& globals) {
  for (const auto& k : module.kernels)
    if (k.name == entry) return std::move(Decoder(module, k, globals).program);
  std::string names;
  for (const auto& k : module.kernels) names += (names.empty() ? "" : ", ") + k.name;
  throw PtxError(module.file, {1, 1},
                 "expected an entry named " + entry + ", got " + (names.empty() ? "none" : names));
}

}  // namespace flashptx::emulator
