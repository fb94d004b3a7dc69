// The builder's engine: declarations, scopes, control flow, validation, counting.
// Next: gen/isa/kernel_text.cpp prints.
#include "gen/isa/kernel.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace flashptx::gen {
namespace {

// PTX ISA section 10: names that a user register must not have (`%tid` makes ptxas misread
// `%tid.x`).
bool is_special_register(const std::string& name) {
  return special_width(name) || special_width(name + ".x") || name == "is_explicit_cluster" ||
         name.rfind("pm", 0) == 0 || name.rfind("envreg", 0) == 0;
}

int width(RegType t) {
  switch (t) {
    case RegType::pred:
      return 1;
    case RegType::b16:
      return 16;
    case RegType::b32:
    case RegType::f32:
      return 32;
    case RegType::b64:
    case RegType::f64:
      return 64;
  }
  return 0;
}

// Bytes of a parameter type such as "u64", 0 if there is none of that name.
int param_bytes(const std::string& type) {
  static const std::map<std::string, int> kBytes = {{"b8", 1},  {"u8", 1},  {"s8", 1},  {"b16", 2},
                                                    {"u16", 2}, {"s16", 2}, {"f16", 2}, {"b32", 4},
                                                    {"u32", 4}, {"s32", 4}, {"f32", 4}, {"b64", 8},
                                                    {"u64", 8}, {"s64", 8}, {"f64", 8}};
  auto it = kBytes.find(type);
  return it == kBytes.end() ? 0 : it->second;
}

void check_range(const char* what, int value, int low, int high, const Location& at) {
  if (value < low || value > high)
    throw Error(at, std::string(what) + " " + std::to_string(value) + " must be in [" +
                        std::to_string(low) + ", " + std::to_string(high) + "]");
}

void check_alignment(const std::string& name, int alignment, const Location& at) {
  if (alignment < 1 || (alignment & (alignment - 1)))
    throw Error(at, name + ": alignment " + std::to_string(alignment) + " must be a power of two");
}

std::string upper(std::string s) {
  for (char& c : s) c = c == ' ' || c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return s;
}

}  // namespace

Instr& Instr::when(const Reg& p) {
  if (owner) owner->check_register(p, opcode, at);
  if (p.type != RegType::pred)
    throw Error(at, opcode + ": guard %" + p.name + " is not a predicate");
  guard = "@%" + p.name;
  return *this;
}
Instr& Instr::unless(const Reg& p) {
  when(p);
  guard = "@!%" + p.name;
  return *this;
}
Instr& Instr::note(const std::string& why) {
  comment = why;
  return *this;
}

Kernel::Kernel(std::string entry) : entry_(std::move(entry)) {
  scopes_.push_back({0, {}, 0});
  scope_parents_.push_back(-1);
  add(Node::Kind::open);  // the entry's own scope; its braces are printed by text()
}

void Kernel::new_symbol(const std::string& name, const Location& at) {
  if (!symbols_.insert(name).second)
    throw Error(at, "a parameter or variable " + name + " is declared already");
}
void Kernel::header(const std::string& line) { header_.push_back(line); }
void Kernel::param_tensor_map(const std::string& name, const std::string& why, Location at) {
  new_symbol(name, at);
  params_.push_back({".param .align 64 .b8 " + name + "[128]", why});
  param_bytes_ = (param_bytes_ + 63) / 64 * 64 + 128;
}
void Kernel::param(const std::string& name, const std::string& type, const std::string& why,
                   Location at) {
  // "u64 .ptr .global .align 16" starts with the type
  int bytes = param_bytes(type.substr(0, type.find(' ')));
  if (!bytes) throw Error(at, "parameter " + name + ": no type ." + type);
  new_symbol(name, at);
  params_.push_back({".param ." + type + " " + name, why});
  param_bytes_ = (param_bytes_ + bytes - 1) / bytes * bytes + bytes;
}
void Kernel::threads(int count, Location at) {
  check_range("threads per CTA", count, 1, 1024, at);
  threads_ = count;
}
void Kernel::min_ctas_per_sm(int n, Location at) {
  check_range("CTAs per SM", n, 1, 32, at);
  min_ctas_ = n;
}
void Kernel::cluster(int n, Location at) {
  check_range("CTAs per cluster", n, 1, 16, at);
  cluster_ = n;
}
void Kernel::dynamic_shared(const std::string& name, int alignment, Location at) {
  check_alignment(name, alignment, at);
  new_symbol(name, at);
  variables_.push_back(".extern .shared .align " + std::to_string(alignment) + " .b8 " + name +
                       "[];");
}
void Kernel::static_shared(const std::string& name, int bytes, int alignment, Location at) {
  check_alignment(name, alignment, at);
  check_range("bytes of static shared memory", bytes, 1, 232448, at);
  new_symbol(name, at);
  statics_.push_back(".shared .align " + std::to_string(alignment) + " .b8 " + name + "[" +
                     std::to_string(bytes) + "];");
}

// The declaration that `name` is an element of, or the single register itself.
const Kernel::Declared* Kernel::find_register(const Scope& s, const std::string& name) const {
  auto it = s.names.find(name);
  if (it != s.names.end() && it->second.count == 0) return &it->second;
  std::size_t digits = name.find_last_not_of("0123456789") + 1;
  if (digits == 0 || digits == name.size() || name.size() - digits > 6) return nullptr;
  if (name[digits] == '0' && name.size() > digits + 1)
    return nullptr;  // elements have no leading zero
  it = s.names.find(name.substr(0, digits));
  if (it == s.names.end() || std::stoi(name.substr(digits)) >= it->second.count) return nullptr;
  return &it->second;
}

void Kernel::check_register(const Reg& r, const std::string& opcode, const Location& at) const {
  for (auto s = scopes_.rbegin(); s != scopes_.rend(); ++s) {
    const Declared* d = find_register(*s, r.name);
    if (!d) continue;
    if (width(d->type) == width(r.type)) return;
    throw Error(at, opcode + ": register %" + r.name + " is declared " + ptx_type(d->type) +
                        ", used as " + ptx_type(r.type));
  }
  std::string stem = r.name.substr(0, r.name.find_last_not_of("0123456789") + 1);
  bool was = was_declared_.count(r.name) || was_declared_.count(stem);
  throw Error(at, opcode + ": register %" + r.name +
                      (was ? " is used outside the scope that declares it" : " is not declared"));
}

void Kernel::declare(const std::string& name, RegType type, int count, const Location& at) {
  if (name.empty()) throw Error(at, "a register needs a name");
  for (char c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '$')
      throw Error(at, "register name %" + name + " may hold letters, digits, _ and $ only");
  if (is_special_register(name))
    throw Error(at, "register name %" + name + " is a special register; choose another");
  if (count > 0 && std::isdigit(static_cast<unsigned char>(name.back())))
    throw Error(at, "%" + name + "<" + std::to_string(count) +
                        ">: the name of a row must not end in a digit, "
                        "ptxas takes %" +
                        name + "0 for an element of another row");
  for (const Scope& s : scopes_) {
    bool taken = s.names.count(name) || find_register(s, name);
    for (int i = 0; i < count && !taken; ++i)  // %s<4> would declare a second %s3
      taken =
          s.names.count(name + std::to_string(i)) && !s.names.at(name + std::to_string(i)).count;
    if (taken) throw Error(at, "register %" + name + " is declared already");
  }
  scopes_.back().names[name] = {type, count};
  was_declared_.insert(name);
  std::string row = name;
  if (count > 0) row += "<" + std::to_string(count) + ">";
  nodes_[scopes_.back().node].declarations.push_back(std::string(ptx_type(type)) + " %" + row);
}

#define FLASHPTX_DECLARE(fn, t)                                                   \
  Reg Kernel::fn(const std::string& name, Location at) {                          \
    declare(name, RegType::t, 0, at);                                             \
    return Reg{name, RegType::t};                                                 \
  }                                                                               \
  Vec Kernel::fn(const std::string& name, int count, Location at) {               \
    if (count < 1) throw Error(at, "%" + name + ": needs a count of at least 1"); \
    declare(name, RegType::t, count, at);                                         \
    return Vec(name, RegType::t, count);                                          \
  }
FLASHPTX_DECLARE(pred, pred)
FLASHPTX_DECLARE(b16, b16)
FLASHPTX_DECLARE(b32, b32)
FLASHPTX_DECLARE(b64, b64)
FLASHPTX_DECLARE(f32, f32)
#undef FLASHPTX_DECLARE

Kernel::Node& Kernel::add(Node::Kind kind, const std::string& text) {
  Node n;
  n.kind = kind;
  n.depth = depth_;
  n.rare = rare_depth_ > 0;
  n.text = text;
  nodes_.push_back(std::move(n));
  return nodes_.back();
}

void Kernel::scope(const std::function<void()>& body) {
  int id = static_cast<int>(scope_parents_.size());
  scope_parents_.push_back(scopes_.back().id);
  scopes_.push_back({nodes_.size(), {}, id});
  add(Node::Kind::open);
  ++depth_;
  body();
  --depth_;
  add(Node::Kind::close);
  scopes_.pop_back();
}

void Kernel::role(const std::string& name, const std::string& about,
                  const std::function<void()>& body) {
  section("role: " + name + (about.empty() ? "" : " -- " + about));
  scope(body);
}

void Kernel::section(const std::string& title) {
  add(Node::Kind::section, title);
  const bool in_step = !steps_.empty() && !steps_.back().second.empty();
  if (!in_step && !line_of(title)) titles_.push_back(title);
}
void Kernel::line_table_begins(const std::vector<std::string>& lines) { titles_ = lines; }
void Kernel::step(const std::string& line, const std::function<void()>& body) {
  if (!line_of(line)) titles_.push_back(line);
  steps_.push_back({nodes_.size(), line});
  body();
  steps_.push_back({nodes_.size(), ""});
}
void Kernel::comment(const std::string& text) { add(Node::Kind::comment, text); }

std::string Kernel::new_label(const std::string& stem) {
  std::string base = "$" + upper(stem);
  int n = ++label_stems_[base];
  return n == 1 ? base : base + "_" + std::to_string(n);
}
void Kernel::label(const std::string& name, Location at) {
  auto [it, fresh] = placed_.emplace(name, Label{scopes_.back().id, at});
  if (!fresh)
    throw Error(at, "label " + name + " is placed already, at line " +
                        std::to_string(it->second.at.line()));
  add(Node::Kind::label, name);
}

void Kernel::branch(const std::string& target, const std::string& why, Location at) {
  emit("bra", {symbol(target)}, at).note(why);
}
void Kernel::branch_if(const Reg& p, const std::string& target, const std::string& why, Location at) {
  guarded_branch(p, true, target, why, at);
}
void Kernel::guarded_branch(const Reg& p, bool if_true, const std::string& target,
                            const std::string& why, const Location& at) {
  Instr& i = emit("bra", {symbol(target)}, at);
  if (if_true) i.when(p);
  else i.unless(p);
  i.note(why);
}

void Kernel::loop(const std::string& name, const std::function<Reg()>& body, Location at) {
  std::string head = new_label(name);
  label(head, at);
  ++depth_;
  Reg again = body();
  --depth_;
  guarded_branch(again, true, head, "", at);
}

void Kernel::rolled_loop(const std::string& name, const std::function<Reg()>& body, Location at) {
  loop(name, [&] {
    add(Node::Kind::pragma, "nounroll");
    return body();
  }, at);
}

void Kernel::if_(const Reg& p, const std::function<void()>& body, const std::string& why,
                 Location at) {
  std::string end = new_label("skip");
  guarded_branch(p, false, end, why, at);
  ++depth_;
  body();
  --depth_;
  label(end, at);
}
void Kernel::if_rare(const Reg& p, const std::function<void()>& body, const std::string& why,
                     Location at) {
  if_(p, [&] {
    ++rare_depth_;
    body();
    --rare_depth_;
  }, why, at);
}
void Kernel::unless(const Reg& p, const std::function<void()>& body, const std::string& why,
                    Location at) {
  std::string end = new_label("skip");
  guarded_branch(p, true, end, why, at);
  ++depth_;
  body();
  --depth_;
  label(end, at);
}
void Kernel::if_else(const Reg& p, const std::function<void()>& yes,
                     const std::function<void()>& no, const std::string& why, Location at) {
  std::string other = new_label("else"), end = new_label("end");
  guarded_branch(p, false, other, why, at);
  ++depth_;
  yes();
  --depth_;
  branch(end, "", at);
  label(other, at);
  ++depth_;
  no();
  --depth_;
  label(end, at);
}

void Kernel::wait(const std::string& what, const Operand& barrier, const Operand& parity,
                  Location at) {
  wait_with("mbarrier.try_wait.parity.shared::cta.b64", what, barrier, parity, at);
}

void Kernel::wait_unless(const Reg& ready, const std::string& what, const Operand& barrier, const Operand& parity,
                         Location at) {
  std::string end = new_label(what + " done");
  guarded_branch(ready, true, end, "seen before", at);
  wait(what, barrier, parity, at);
  label(end, at);
}

void Kernel::wait_cluster(const std::string& what, const Operand& barrier, const Operand& parity,
                          Location at) {
  wait_with("mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64", what, barrier, parity, at);
}

void Kernel::wait_with(const char* opcode, const std::string& what, const Operand& barrier,
                       const Operand& parity, Location at) {
  std::string head = new_label("wait " + what);
  scope([&] {
    Reg done = pred("done_" + std::to_string(nodes_.size()), at);
    label(head, at);
    emit(opcode, {done, barrier, parity}, at);
    guarded_branch(done, false, head, "", at);
  });
}

Instr& Kernel::emit(const std::string& opcode, std::vector<Operand> operands, Location at) {
  std::string why;
  const Form* form = find_form(opcode, operands, &why);
  if (!form) throw Error(at, why);
  for (const Operand& o : operands) {
    for (const Reg& r : o.regs) check_register(r, opcode, at);
    if (!o.base_symbol.empty())
      uses_.push_back({o.base_symbol, opcode, opcode.rfind("bra", 0) == 0, scopes_.back().id, at});
  }
  version_ = std::max(version_, form->ptx_version);
  if (form->needs_sm90a) {
    sm90a_ = true;
    version_ = std::max(version_, 80);
  }
  Node& n = add(Node::Kind::instr);
  n.instr = std::make_unique<Instr>();
  n.instr->opcode = opcode;
  n.instr->operands = std::move(operands);
  n.instr->at = at;
  n.instr->owner = this;
  return *n.instr;
}

InstrCounts Kernel::counts(std::size_t from, std::size_t to) const {
  InstrCounts c;
  for (std::size_t i = from; i < to; ++i) {
    if (nodes_[i].kind != Node::Kind::instr || nodes_[i].rare) continue;
    const std::string& op = nodes_[i].instr->opcode;
    auto starts = [&](const char* p) { return op.rfind(p, 0) == 0; };
    if (starts("wgmma.mma_async")) {
      ++c.wgmma;
      c.wgmma_cycles += std::atoi(op.c_str() + op.find(".m64n") + 5) / 2;
    } else if (starts("ex2") || starts("lg2") || starts("rcp") || starts("tanh") ||
               starts("rsqrt") || starts("sqrt") || starts("sin") || starts("cos")) {
      ++c.ex2;
    } else if (starts("fma") || starts("add.ftz") || starts("add.rn") || starts("mul.ftz") ||
               starts("mul.rn") || starts("sub.ftz") || starts("add.f") || starts("mul.f") ||
               starts("add.bf") || starts("mul.bf")) {
      ++c.fma;
    } else if (starts("cvt")) {
      ++c.cvt;
    } else if (starts("ld") || starts("st") || starts("cp.") || starts("shfl") || starts("atom") ||
               starts("red")) {
      ++c.memory;
    } else if (starts("mbarrier") || starts("bar") || starts("wgmma") || starts("fence") ||
               starts("vote")) {
      ++c.sync;
    } else if (starts("bra") || starts("ret") || starts("setmaxnreg")) {
      ++c.other;
    } else if (starts("mov")) {
      ++c.other;  // most are renamings that cost nothing
    } else {
      ++c.alu;
    }
  }
  return c;
}

}  // namespace flashptx::gen
