// The builder's printing: the head, scopes with their registers, instructions with notes in one
// column.
//
// With line_info, a .loc line precedes the first instruction of each section, or within a step of
// the step: it holds until the next one. Next: gen/isa/kernel.cpp.
#include <algorithm>

#include "gen/isa/kernel.h"

namespace flashptx::gen {
namespace {

constexpr int kNoteColumn = 76;

}  // namespace

int Kernel::line_of(const std::string& title) const {
  if (title.empty()) return 0;
  auto it = std::find(titles_.begin(), titles_.end(), title);
  return it == titles_.end() ? 0 : static_cast<int>(it - titles_.begin()) + 1;
}
std::string Kernel::line_table_file() const { return entry_ + ".schedule"; }
std::string Kernel::line_table() const {
  std::string out;
  for (const std::string& t : titles_) out += t + "\n";
  return out;
}

void Kernel::check_whole() const {
  for (const Use& u : uses_) {
    if (!u.branch) {
      if (!symbols_.count(u.symbol))
        throw Error(u.at,
                    u.opcode + ": " + u.symbol + " is no parameter or variable of the kernel");
      continue;
    }
    auto label = placed_.find(u.symbol);
    if (label == placed_.end())
      throw Error(u.at, "label " + u.symbol + " is branched to but never placed");
    int scope = u.scope;
    while (scope >= 0 && scope != label->second.scope)
      scope = scope_parents_[static_cast<std::size_t>(scope)];
    if (scope < 0)
      throw Error(u.at, "label " + u.symbol + " stands in a scope that the branch is not in");
  }
  for (const Node& n : nodes_)
    if (n.instr && n.instr->opcode.rfind("setmaxnreg", 0) == 0 && (!threads_ || !min_ctas_))
      throw Error(n.instr->at,
                  "setmaxnreg: ptxas may drop it (C7508) unless threads() and "
                  "min_ctas_per_sm() are given");
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
  *out += ".version " + version_text(ptx_version()) + "\n";
  *out += std::string(".target sm_90") + (sm90a_ ? "a" : "") + "\n.address_size 64\n\n";
  if (line_info_ && !titles_.empty()) *out += ".file 1 \"" + line_table_file() + "\"\n\n";
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
  check_whole();
  std::string out;
  print_head(&out);
  std::vector<int> lines{0};  // of the section that each open scope is in
  int printed_line = 0, step_line = 0;  // 0: in no step
  std::size_t next_step = 0;
  auto location = [&](const std::string& indent) {
    const int line = step_line ? step_line : lines.back();
    if (!line_info_ || !line || line == printed_line) return;
    printed_line = line;
    out += indent + ".loc 1 " + std::to_string(printed_line) + " 1\n";
  };
  auto registers = [&out](const Node& n, std::size_t depth) {
    for (const std::string& d : n.declarations)
      out += std::string(depth * 4, ' ') + ".reg " + d + ";\n";
  };
  out += "{\n";
  for (const std::string& s : statics_) out += "    " + s + "\n";
  registers(nodes_[0], 1);
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    const Node& n = nodes_[i];
    for (; next_step < steps_.size() && steps_[next_step].first <= i; ++next_step)
      step_line = line_of(steps_[next_step].second);
    std::string indent(static_cast<std::size_t>(n.depth) * 4, ' ');
    switch (n.kind) {
      case Node::Kind::instr:
        location(indent);
        print_instr(n, &out);
        break;
      case Node::Kind::label:
        out += indent.substr(4) + n.text + ":\n";
        break;
      case Node::Kind::pragma:
        out += indent + ".pragma \"" + n.text + "\";\n";
        break;
      case Node::Kind::section:
        if (!step_line) lines.back() = line_of(n.text);
        out += "\n" + indent + "// == " + n.text + "\n";
        break;
      case Node::Kind::comment:
        out += indent + "// " + n.text + "\n";
        break;
      case Node::Kind::open:
        lines.push_back(lines.back());
        out += indent + "{\n";
        registers(n, static_cast<std::size_t>(n.depth) + 1);
        break;
      case Node::Kind::close:
        lines.pop_back();
        out += indent + "}\n";
        break;
    }
  }
  out += "    ret;\n}\n";
  return out;
}

}  // namespace flashptx::gen
