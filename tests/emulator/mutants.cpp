// See mutants.h. Each kind is a function that looks at one line and adds its mutants.
#include "tests/emulator/mutants.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "tools/flashptx/pattern.h"

namespace flashptx::emulator::test {
namespace {

using Lines = std::vector<std::string>;
using Edits = std::vector<std::pair<std::size_t, std::string>>;

Lines split(const std::string& text) {
  Lines out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

std::string join(const Lines& lines) {
  std::string out;
  for (const auto& l : lines) out += l + "\n";
  return out;
}

// A line without its comment and the blanks around.
std::string statement(const std::string& line) {
  std::string s = line.substr(0, line.find("//"));
  const std::size_t from = s.find_first_not_of(" ");
  if (from == std::string::npos) return "";
  return s.substr(from, s.find_last_not_of(" ") - from + 1);
}

bool has(const std::string& s, const char* what) { return s.find(what) != std::string::npos; }

// Compiled once: thousands of lines ask for the same few, and compiling takes longer than searching.
const Pattern& compiled(const char* form) {
  static std::map<std::string, Pattern> known;
  const auto it = known.find(form);
  return it != known.end() ? it->second : known.emplace(form, form).first->second;
}

// The opcode's first words, of a guarded statement too; "" for directives, labels, operands.
std::string opcode(const std::string& s) {
  static const Pattern form(R"(^(?:@!?%\w+ )?([a-z][\w.:]*)\b.*;$)");
  Match m;
  return form.matches(s, &m) ? m[1] : "";
}

bool asynchronous(const std::string& s) {
  static const Pattern form(
      R"(^(wgmma|mbarrier|bar|barrier|fence|cp|setmaxnreg|stmatrix|ld\.shared|st\.shared)\b.*)");
  return form.matches(opcode(s)) && !has(s, "mbarrier.init") && !has(s, "try_wait");
}

class Mutator {
 public:
  explicit Mutator(const std::string& text) : lines_(split(text)) {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      at_ = i, now_ = statement(lines_[i]);
      if (now_.empty()) continue;
      drops();
      parity();
      numbers();
      descriptors();
      offsets();
      swaps();
      early_writes();
      guards();
    }
  }
  std::vector<Mutant> take() { return std::move(out_); }

 private:
  void add(const std::string& kind, const std::string& with, const std::string& change) {
    add(kind, Edits{{at_, with}}, change);
  }
  void add(const std::string& kind, Edits edits, const std::string& change) {
    out_.push_back({kind, now_, change, at_ + 1, std::move(edits)});
  }
  // Replaces what the first group of `form` matches.
  bool replace(const std::string& kind, const char* form, const std::vector<std::string>& with) {
    Match m;
    if (!compiled(form).search(now_, &m)) return false;
    for (const auto& w : with) {
      std::string s = now_;
      s.replace(m.positions[1], m[1].size(), w);
      if (s != now_) add(kind, s, s);
    }
    return true;
  }
  // The number in the first group of `form`, plus each of `deltas` (results below 0 are left out).
  bool shift(const std::string& kind, const char* form, std::initializer_list<long> deltas) {
    Match m;
    if (!compiled(form).search(now_, &m)) return false;
    std::vector<std::string> with;
    for (long d : deltas)
      if (const long v = std::stol(m[1], nullptr, 0) + d; v >= 0) with.push_back(std::to_string(v));
    return replace(kind, form, with);
  }

  void drops() {
    const std::string op = opcode(now_);
    static const char* const kinds[] = {
        "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group", "fence.proxy.async",
        "fence.mbarrier_init", "mbarrier.init", "mbarrier.arrive.expect_tx", "mbarrier.arrive",
        "cp.async.bulk.tensor", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "bar.sync",
        "bar.arrive", "bar.warp.sync"};
    for (const char* k : kinds)
      if (op.rfind(k, 0) == 0) {
        add(std::string("drop ") + k, "", "dropped");
        break;
      }
    // The branch back of a wait: the warp goes on, whatever the answer was.
    if (op == "bra" && at_ > 0 && has(lines_[at_ - 1], "mbarrier.try_wait"))
      add("drop mbarrier wait", "", "dropped");
    if (op == "mbarrier.arrive.shared::cta.b64") add("arrive twice", now_ + " " + now_, "twice");
  }

  void parity() {
    static const Pattern form(R"(try_wait\.parity\S* (%\w+), \[[^\]]*\], (%\w+);)");
    Match m;
    if (!form.search(now_, &m) || at_ < 2) return;
    std::string s = now_;
    s.replace(m.positions[2], m[2].size(), "%flipped_parity");
    const std::string flip = lines_[at_ - 2] + " .reg .b32 %flipped_parity; xor.b32 %flipped_parity, " + m[2] + ", 1;";
    if (has(flip, ".reg .pred")) add("flip parity", Edits{{at_ - 2, flip}, {at_, s}}, "the other parity");
  }

  void numbers() {
    const std::string op = opcode(now_);
    if (has(op, "expect_tx")) shift("transaction bytes", R"(, (\d+);)", {-16, 16, 8192});
    if (op.rfind("mbarrier.init", 0) == 0) shift("arrival count", R"(, (\d+);)", {-1, 1});
    if (op == "bar.sync" || op == "bar.arrive") {
      replace("barrier id", R"(bar\.\w+ (%?\w+))", {"9"});
      shift("barrier threads", R"(, (\d+);)", {-32, 32});
    }
    if (op.rfind("wgmma.wait_group", 0) == 0) shift("wait_group count", R"( (\d+);)", {1});
    if (op.rfind("cp.async.bulk.wait_group", 0) == 0) shift("wait_group count", R"( (\d+);)", {1});
    if (op == "cp.async.bulk.wait_group") replace("wait for reads only", R"((wait_group) )", {"wait_group.read"});
    if (op.rfind("setmaxnreg.inc", 0) == 0) shift("setmaxnreg count", R"( (\d+);)", {16});
    if (op.rfind("setmaxnreg.dec", 0) == 0) shift("setmaxnreg count", R"( (\d+);)", {64});
  }

  void descriptors() {
    static const Pattern high(R"(^mov\.b32 %\w+_high, 0x([0-9A-F]+);$)");
    Match m;
    if (high.matches(now_, &m)) {
      const unsigned v = static_cast<unsigned>(std::stoul(m[1], nullptr, 16));
      auto with = [&](const char* kind, unsigned x) {
        std::string s = now_;
        s.replace(m.positions[1] - 2, m[1].size() + 2, std::to_string(x));
        add(kind, s, s);
      };
      with("descriptor stride", v ^ 0x60);              // SBO 64 becomes 32
      with("descriptor stride", (v & ~0x3fffu) | 128);
      with("descriptor swizzle", v ^ 0xc0000000u);      // 128 bytes becomes 64
      with("descriptor base offset", v | 1u << 17);
    }
    replace("descriptor leading", R"(^or\.b32 %\w+_low, %\w+_low, (0x\w+);$)", {"0x10000", "0x4000000"});
    shift("descriptor start", R"(^add\.s64 %\w+_step, %\w+_desc, (\d+);$)", {2, 64});
  }

  void offsets() {
    const std::string op = opcode(now_);
    if (op.rfind("mbarrier", 0) == 0) shift("barrier offset", R"(_bar\w*\+(\d+)\])", {-8, 8});
    if (op.rfind("cp.async.bulk.tensor", 0) == 0 && has(now_, "mbarrier::"))
      replace("barrier offset", R"((\])\s*;$)", {"+8]"}), replace("stage offset", R"(^\S+ \[%\w+(\]))", {"+1024]"}),
          replace("tensor coordinates", R"(\{(%\w+), )", {"%" "seqlen_k"});
    shift("stage offset", R"(^add\.u32 %\w+_(?:dst|low), %\w+, (\d+);$)", {1024, 8192});
    shift("stage stride", R"(^(?:mad|mul)\.lo\.u32 %\w+_(?:dst|low|at), %\w+, (\d+)\b)", {1024});
    if (used_below()) {
      shift("stage mask", R"(^and\.b32 %\w+_stage, %\w+, (\d+);$)", {-1});
      shift("phase shift", R"(^shr\.u32 %\w+_phase, %\w+, (\d+);$)", {1});
    }
  }

  // Whether the destination is read before its scope declares it anew; ptxas drops the rest.
  bool used_below() const {
    static const Pattern form(R"(^\w[\w.]* (%\w+), )");
    Match m;
    if (!form.search(now_, &m)) return false;
    const std::string reg = m[1];
    const Pattern read("[ \\[]" + reg + "[\\],;+]"), own("^\\w[\\w.]* " + reg + ", " + reg + ", \\w+;$");
    for (std::size_t i = at_ + 1; i < lines_.size(); ++i) {
      const std::string s = statement(lines_[i]);
      if (s.rfind(".reg", 0) == 0 && has(s, (reg + ";").c_str())) return false;
      if (read.search(s) && !own.matches(s)) return true;
    }
    return false;
  }

  // With the next asynchronous statement of the same straight line; those in between must not be
  // labels, branches or scopes. Two mbarrier.init, two arrives or two loads commute and are left alone.
  void swaps() {
    if (!asynchronous(now_) || has(now_, "mma_async")) return;
    for (std::size_t i = at_ + 1; i < lines_.size(); ++i) {
      const std::string s = statement(lines_[i]);
      if (s.empty() || s[0] == '.' || s == "{" || s == "}") continue;
      const std::string op = opcode(s);
      if (s.back() == ':' || op == "bra" || op == "ret" || op == "exit") return;
      if (has(s, "mma_async")) return multi_line_swap(i);
      if (!asynchronous(s)) continue;
      if (op == opcode(now_) || (op.rfind("ld.", 0) == 0 && opcode(now_).rfind("ld.", 0) == 0)) return;
      return add("swap two steps", Edits{{at_, s}, {i, now_}}, "with line " + std::to_string(i + 1) + ": " + s);
    }
  }
  // A statement of several lines moves up whole; the lines below it stay blank.
  void multi_line_swap(std::size_t i) {
    Edits edits;
    std::string s;
    for (std::size_t end = i; end < lines_.size(); ++end) {
      s += statement(lines_[end]) + " ";
      edits.push_back({end, ""});
      if (s.find(';') != std::string::npos) break;
    }
    edits.back().second = now_;
    edits.push_back({at_, s});
    add("swap two steps", std::move(edits), "with the wgmma at line " + std::to_string(i + 1));
  }

  // After a wgmma.mma_async's last line: its first accumulator, and its first A register.
  void early_writes() {
    static const Pattern d(R"(\{(%\w+), )"), a(R"(\}, \{(%\w+), )");
    if (!has(now_, "mma_async")) return;
    std::string all;
    std::size_t end = at_;
    for (; end < lines_.size(); ++end) {
      all += lines_[end];
      if (lines_[end].find(';') != std::string::npos) break;
    }
    Match m;
    const std::size_t begin = at_;
    auto write = [&](const char* kind, const std::string& what) {
      at_ = end;
      add(kind, Edits{{end, lines_[end] + " " + what}}, what);
      at_ = begin;
    };
    if (d.search(all, &m)) write("early accumulator write", "mov.b32 " + m[1] + ", 0;");
    if (a.search(all, &m)) write("early A write", "mov.b32 " + m[1] + ", 0;");
  }

  void guards() {
    static const Pattern form(R"(^@!?%\w+ (mbarrier\.(?:arrive|init).*)$)");
    Match m;
    if (form.matches(now_, &m)) add("drop guard", m[1], m[1]);
  }

  Lines lines_;
  std::size_t at_ = 0;
  std::string now_;
  std::vector<Mutant> out_;
};

}  // namespace

std::string Mutant::text(const std::string& clean) const {
  Lines lines = split(clean);
  for (const auto& [index, line] : edits) lines[index] = line;
  return join(lines);
}

std::vector<Mutant> make_mutants(const std::string& text) { return Mutator(text).take(); }

BarrierNames barriers_of_line(const std::string& text, std::size_t line) {
  const Lines lines = split(text);
  BarrierNames out;
  Match m;
  static const Pattern named(R"(bar\.(?:sync|arrive) (%?\w+))"),
      memory(R"(\[(%\w*_bar|%smem_base)(?:\+(\d+))?\])"), base(R"((?:add|mad|mul)\S* (%\w+), .*\b(\d{4,});)");
  const std::string s = statement(lines[line - 1]);
  if (named.search(s, &m)) {
    out.named = m[1];
    return out;
  }
  // The last barrier operand of the statement is the one that a copy signals.
  std::string reg;
  unsigned offset = 0;
  for (const Match& i : memory.all(s))
    reg = i[1], offset = !i[2].empty() ? static_cast<unsigned>(std::stoul(i[2])) : 0;
  if (reg.empty() && line >= 2 && has(lines[line - 2], "try_wait")) return barriers_of_line(text, line - 1);
  if (reg.empty()) return out;
  for (std::size_t i = line - 1; reg != "%smem_base" && i-- > 0;) {
    const std::string before = statement(lines[i]);
    if (base.search(before, &m) && m[1] == reg) {
      offset += static_cast<unsigned>(std::stoul(m[2]));
      break;
    }
    if (has(before, (".reg .b32 " + reg + ";").c_str())) break;
  }
  // The ring: the barriers that follow with the same arrival count.
  const auto count_at = [&](unsigned at) {
    const std::string bar = "[%smem_base+" + std::to_string(at) + "], ";
    for (const auto& l : lines)
      if (has(l, "mbarrier.init") && has(l, bar.c_str())) return l.substr(l.find(bar) + bar.size(), 3);
    return std::string();
  };
  const std::string count = count_at(offset);
  do out.mbarrier_offsets.push_back(offset), offset += 8;
  while (!count.empty() && count_at(offset) == count);
  return out;
}

}  // namespace flashptx::emulator::test
