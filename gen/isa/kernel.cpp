// The builder's engine: scopes, control flow, validation, counting and printing.
#include "gen/isa/kernel.h"

#include <algorithm>
#include <cstdlib>

namespace flashptx::gen {
namespace {

// PTX ISA section 10: names that a user register must not have (`%tid` makes ptxas misread `%tid.x`).
bool is_special_register(const std::string& name) {
  static const char* const kNames[] = {
      "tid", "ntid", "laneid", "warpid", "nwarpid", "ctaid", "nctaid", "smid", "nsmid", "gridid",
      "clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi",
      "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt", "clusterid",
      "nclusterid", "cluster_ctaid", "cluster_nctaid", "cluster_ctarank", "cluster_nctarank",
      "is_explicit_cluster", "total_smem_size", "dynamic_smem_size", "aggr_smem_size"};
  for (const char* n : kNames)
    if (name == n) return true;
  return name.rfind("pm", 0) == 0 || name.rfind("envreg", 0) == 0;
}

std::string upper(std::string s) {
  for (char& c : s) c = c == ' ' || c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return s;
}

constexpr int kNoteColumn = 76;

}  // namespace

Instr& Instr::when(const Reg& p) {
  if (p.type != RegType::pred) throw Error(at, opcode + ": guard %" + p.name + " is not a predicate");
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
  scopes_.push_back({0, {}});
  add(Node::Kind::open);  // the entry's own scope; its braces are printed by text()
}

void Kernel::header(const std::string& line) { header_.push_back(line); }
void Kernel::param_tensor_map(const std::string& name, const std::string& why) {
  params_.push_back({".param .align 64 .b8 " + name + "[128]", why});
}
void Kernel::param(const std::string& name, const std::string& type, const std::string& why) {
  params_.push_back({".param ." + type + " " + name, why});
}
void Kernel::dynamic_shared(const std::string& name, int alignment) {
  variables_.push_back(".extern .shared .align " + std::to_string(alignment) + " .b8 " + name + "[];");
}
void Kernel::static_shared(const std::string& name, int bytes, int alignment) {
  statics_.push_back(".shared .align " + std::to_string(alignment) + " .b8 " + name + "[" +
                     std::to_string(bytes) + "];");
}

void Kernel::declare(const std::string& name, RegType type, int count, const Location& at) {
  if (name.empty()) throw Error(at, "a register needs a name");
  if (is_special_register(name))
    throw Error(at, "register name %" + name + " is a special register; choose another");
  if (count < 0) throw Error(at, "%" + name + ": count " + std::to_string(count) + " is negative");
  for (const Scope& s : scopes_)
    if (s.names.count(name)) throw Error(at, "register %" + name + " is declared already");
  scopes_.back().names.insert(name);
  std::string row = name;
  if (count > 0) row += "<" + std::to_string(count) + ">";
  nodes_[scopes_.back().node].declarations.push_back(std::string(ptx_type(type)) + " %" + row);
}

#define FLASHPTX_DECLARE(fn, t)                                          \
  Reg Kernel::fn(const std::string& name, Location at) {                 \
    declare(name, RegType::t, 0, at);                                    \
    return Reg{name, RegType::t};                                        \
  }                                                                      \
  Vec Kernel::fn(const std::string& name, int count, Location at) {      \
    if (count < 1) throw Error(at, "%" + name + ": needs a count of at least 1"); \
    declare(name, RegType::t, count, at);                                \
    return Vec(name, RegType::t, count);                                 \
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
  n.text = text;
  nodes_.push_back(std::move(n));
  return nodes_.back();
}

void Kernel::scope(const std::function<void()>& body) {
  scopes_.push_back({nodes_.size(), {}});
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

void Kernel::section(const std::string& title) { add(Node::Kind::section, title); }
void Kernel::comment(const std::string& text) { add(Node::Kind::comment, text); }

std::string Kernel::new_label(const std::string& stem) {
  std::string base = "$" + upper(stem);
  int n = ++labels_[base];
  return n == 1 ? base : base + "_" + std::to_string(n);
}
void Kernel::label(const std::string& name) { add(Node::Kind::label, name); }

void Kernel::branch(const std::string& target, const std::string& why) {
  emit("bra", {symbol(target)}, Location::current()).note(why);
}
void Kernel::guarded_branch(const Reg& p, bool if_true, const std::string& target,
                            const std::string& why) {
  Instr& i = emit("bra", {symbol(target)}, Location::current());
  if (if_true) i.when(p);
  else i.unless(p);
  i.note(why);
}

void Kernel::loop(const std::string& name, const std::function<Reg()>& body) {
  std::string head = new_label(name);
  label(head);
  ++depth_;
  Reg again = body();
  --depth_;
  guarded_branch(again, true, head, "");
}

void Kernel::if_(const Reg& p, const std::function<void()>& body, const std::string& why) {
  std::string end = new_label("skip");
  guarded_branch(p, false, end, why);
  ++depth_;
  body();
  --depth_;
  label(end);
}
void Kernel::unless(const Reg& p, const std::function<void()>& body, const std::string& why) {
  std::string end = new_label("skip");
  guarded_branch(p, true, end, why);
  ++depth_;
  body();
  --depth_;
  label(end);
}
void Kernel::if_else(const Reg& p, const std::function<void()>& yes,
                     const std::function<void()>& no, const std::string& why) {
  std::string other = new_label("else"), end = new_label("end");
  guarded_branch(p, false, other, why);
  ++depth_;
  yes();
  --depth_;
  branch(end);
  label(other);
  ++depth_;
  no();
  --depth_;
  label(end);
}

void Kernel::wait(const std::string& what, const Operand& barrier, const Operand& parity,
                  Location at) {
  std::string head = new_label("wait " + what);
  scope([&] {
    Reg done = pred("done_" + std::to_string(nodes_.size()), at);
    label(head);
    emit("mbarrier.try_wait.parity.shared::cta.b64", {done, barrier, parity}, at);
    guarded_branch(done, false, head, "");
  });
}

Instr& Kernel::emit(const std::string& opcode, std::vector<Operand> operands, Location at) {
  std::string why;
  const Form* form = find_form(opcode, operands, &why);
  if (!form) throw Error(at, why);
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
  return *n.instr;
}

InstrCounts Kernel::counts(std::size_t from, std::size_t to) const {
  InstrCounts c;
  for (std::size_t i = from; i < to; ++i) {
    if (nodes_[i].kind != Node::Kind::instr) continue;
    const std::string& op = nodes_[i].instr->opcode;
    auto starts = [&](const char* p) { return op.rfind(p, 0) == 0; };
    if (starts("wgmma.mma_async")) {
      ++c.wgmma;
      c.wgmma_cycles += std::atoi(op.c_str() + op.find(".m64n") + 5) / 2;
    } else if (starts("ex2") || starts("lg2") || starts("rcp") || starts("tanh")) {
      ++c.ex2;
    } else if (starts("fma") || starts("add.ftz") || starts("add.rn") || starts("mul.ftz") ||
               starts("mul.rn") || starts("sub.ftz") || starts("add.f") || starts("mul.f")) {
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

void Kernel::print_instr(const Node& n, std::string* out) const {
  const Instr& in = *n.instr;
  std::string indent(static_cast<std::size_t>(n.depth) * 4, ' ');
  std::string line = indent + (in.guard.empty() ? "" : in.guard + " ") + in.opcode;
  for (std::size_t i = 0; i < in.operands.size(); ++i) {
    const Operand& o = in.operands[i];
    if (i) line += ",";
    if (o.kind == Operand::Kind::list && o.regs.size() > 8) {  // wgmma accumulators: eight a row
      line += "\n" + indent + "    {";
      for (std::size_t r = 0; r < o.regs.size(); ++r) {
        if (r) line += r % 8 ? ", " : ",\n" + indent + "     ";
        line += "%" + o.regs[r].name;
      }
      line += "}";
    } else {
      line += " " + o.text;
    }
  }
  line += ";";
  if (!in.comment.empty()) {
    auto last = line.rfind('\n');
    std::size_t width = line.size() - (last == std::string::npos ? 0 : last + 1);
    line += std::string(width < kNoteColumn ? kNoteColumn - width : 1, ' ') + "// " + in.comment;
  }
  *out += line + "\n";
}

void Kernel::print_head(std::string* out) const {
  for (const std::string& h : header_) *out += h.empty() ? "//\n" : "// " + h + "\n";
  *out += ".version " + std::to_string(version_ / 10) + "." + std::to_string(version_ % 10) + "\n";
  *out += std::string(".target sm_90") + (sm90a_ ? "a" : "") + "\n.address_size 64\n\n";
  for (const std::string& v : variables_) *out += v + "\n";
  if (!variables_.empty()) *out += "\n";
  *out += ".visible .entry " + entry_ + "(\n";
  for (std::size_t i = 0; i < params_.size(); ++i) {
    std::string line = "    " + params_[i].first + (i + 1 < params_.size() ? "," : "");
    if (!params_[i].second.empty())
      line += std::string(line.size() < 44 ? 44 - line.size() : 1, ' ') + "// " + params_[i].second;
    *out += line + "\n";
  }
  *out += ")\n";
  if (threads_) *out += ".reqntid " + std::to_string(threads_) + "\n";
  if (cluster_ > 1) *out += ".reqnctapercluster " + std::to_string(cluster_) + "\n";
  if (min_ctas_) *out += ".minnctapersm " + std::to_string(min_ctas_) + "\n";
}

std::string Kernel::text() const {
  std::string out;
  print_head(&out);
  auto registers = [&out](const Node& n, std::size_t depth) {
    for (const std::string& d : n.declarations)
      out += std::string(depth * 4, ' ') + ".reg " + d + ";\n";
  };
  out += "{\n";
  for (const std::string& s : statics_) out += "    " + s + "\n";
  registers(nodes_[0], 1);
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    const Node& n = nodes_[i];
    std::string indent(static_cast<std::size_t>(n.depth) * 4, ' ');
    switch (n.kind) {
      case Node::Kind::instr: print_instr(n, &out); break;
      case Node::Kind::label: out += indent.substr(4) + n.text + ":\n"; break;
      case Node::Kind::section: out += "\n" + indent + "// == " + n.text + "\n"; break;
      case Node::Kind::comment: out += indent + "// " + n.text + "\n"; break;
      case Node::Kind::open:
        out += indent + "{\n";
        registers(n, static_cast<std::size_t>(n.depth) + 1);
        break;
      case Node::Kind::close: out += indent + "}\n"; break;
    }
  }
  out += "    ret;\n}\n";
  return out;
}

}  // namespace flashptx::gen
