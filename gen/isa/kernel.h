// The PTX builder: one Kernel object emits one entry as readable text.
//
// A wrapper is the opcode path with dots as underscores, destination first; each call is validated
// against the instruction table (gen/isa/table.cpp) and returns the instruction, so that
// `.when(p)`, `.unless(p)` and `.note("why")` can be added to it. Control flow takes lambdas and
// cannot be left open. Next: gen/isa/instructions.inc (the wrappers), gen/tile/ (what kernels are
// made of).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gen/isa/error.h"
#include "gen/isa/operand.h"
#include "gen/isa/table.h"

namespace flashptx::gen {

class Kernel;

class Instr {
 public:
  Instr& when(const Reg& p);
  Instr& unless(const Reg& p);
  Instr& note(const std::string& why);

  std::string opcode;
  std::vector<Operand> operands;
  std::string guard;  // "@%p" or "@!%p"
  std::string comment;
  Location at;
  const Kernel* owner = nullptr;  // judges the guard
};

// How many instructions of each class a stretch of code issues, for budgets and headers.
struct InstrCounts {
  int wgmma = 0, ex2 = 0, fma = 0, alu = 0, cvt = 0, memory = 0, sync = 0, other = 0;
  long wgmma_cycles = 0;  // tensor core clocks: N/2 for each m64nNk16 (16 bit) or m64nNk32 (8 bit)
  int issue_slots() const { return wgmma + ex2 + fma + alu + cvt + memory + sync + other; }
};

class Kernel {
 public:
  explicit Kernel(std::string entry);
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  // --- the head of the file
  void header(const std::string& line);  // a comment line above the entry
  void param_tensor_map(const std::string& name, const std::string& why = "",
                        Location at = Location::current());
  void param(const std::string& name, const std::string& type, const std::string& why = "",
             Location at = Location::current());
  void threads(int count, Location at = Location::current());
  void min_ctas_per_sm(int n, Location at = Location::current());
  void cluster(int n, Location at = Location::current());
  void dynamic_shared(const std::string& name, int alignment, Location at = Location::current());
  void static_shared(const std::string& name, int bytes, int alignment,
                     Location at = Location::current());
  // `.file` and `.loc` lines: each instruction points at the line of line_table() that holds the
  // step, or else the title of the section, it stands in, so that a profiler's source page shows
  // steps. Off unless asked for.
  void line_info(bool on) { line_info_ = on; }
  void line_table_begins(const std::vector<std::string>& lines);  // before any section
  std::string line_table() const;       // a step or a section title a line
  std::string line_table_file() const;  // the name that .file gives it: "<entry>.schedule"

  // --- registers, declared at the head of the innermost open scope
  Reg pred(const std::string& name, Location at = Location::current());
  Reg b16(const std::string& name, Location at = Location::current());
  Reg b32(const std::string& name, Location at = Location::current());
  Reg b64(const std::string& name, Location at = Location::current());
  Reg f32(const std::string& name, Location at = Location::current());
  Vec pred(const std::string& name, int count, Location at = Location::current());
  Vec b16(const std::string& name, int count, Location at = Location::current());
  Vec b32(const std::string& name, int count, Location at = Location::current());
  Vec b64(const std::string& name, int count, Location at = Location::current());
  Vec f32(const std::string& name, int count, Location at = Location::current());

  // --- structure
  void role(const std::string& name, const std::string& about, const std::function<void()>& body);
  void scope(const std::function<void()>& body);
  void section(const std::string& title);  // a heading comment
  // What body emits points at this line of line_table(), whatever sections it opens. Prints nothing.
  void step(const std::string& line, const std::function<void()>& body);
  void comment(const std::string& text);
  // Body, then back to its head while the predicate that body returns is true.
  void loop(const std::string& name, const std::function<Reg()>& body,
            Location at = Location::current());
  // The same, and ptxas must not unroll it (PTX ISA, .pragma "nounroll"): for roles with few registers.
  void rolled_loop(const std::string& name, const std::function<Reg()>& body,
                   Location at = Location::current());
  void if_(const Reg& p, const std::function<void()>& body, const std::string& why = "",
           Location at = Location::current());
  // The same for a branch that a usual trip does not take: counts() leaves its body out.
  void if_rare(const Reg& p, const std::function<void()>& body, const std::string& why = "",
               Location at = Location::current());
  void unless(const Reg& p, const std::function<void()>& body, const std::string& why = "",
              Location at = Location::current());
  void if_else(const Reg& p, const std::function<void()>& yes, const std::function<void()>& no,
               const std::string& why = "", Location at = Location::current());
  // mbarrier.try_wait.parity in a loop: returns when the phase of that parity has completed.
  void wait(const std::string& what, const Operand& barrier, const Operand& parity,
            Location at = Location::current());
  // The same, but for threads in which `ready`: the phase was seen complete before.
  void wait_unless(const Reg& ready, const std::string& what, const Operand& barrier, const Operand& parity,
                   Location at = Location::current());
  // The same with .acquire.cluster: what a peer CTA released by its arrival is visible after it.
  void wait_cluster(const std::string& what, const Operand& barrier, const Operand& parity,
                    Location at = Location::current());
  std::string new_label(const std::string& stem);  // "$KV_LOOP", "$KV_LOOP_2"
  void label(const std::string& name, Location at = Location::current());
  void branch(const std::string& target, const std::string& why = "",
              Location at = Location::current());
  void branch_if(const Reg& p, const std::string& target, const std::string& why = "",
                 Location at = Location::current());

  // --- one instruction, validated; the wrappers below call this
  Instr& emit(const std::string& opcode, std::vector<Operand> operands, Location at);

  // --- counting: all that was emitted between two marks
  std::size_t mark() const { return nodes_.size(); }
  InstrCounts counts(std::size_t from, std::size_t to) const;

  const std::string& entry() const { return entry_; }
  // The lowest version that takes everything used; more than 4 KiB of parameters need 8.1.
  int ptx_version() const { return param_bytes_ > 4096 && version_ < 81 ? 81 : version_; }
  bool needs_sm90a() const { return sm90a_; }
  // Refuses what only the whole can show: a branch to a label that is not there or not visible, a
  // symbol that is no parameter or variable, setmaxnreg without the launch bounds that ptxas needs
  // for it.
  std::string text() const;
  // Refuses a register that no open scope declares, or declares with another width.
  void check_register(const Reg& r, const std::string& opcode, const Location& at) const;

#include "gen/isa/instructions.inc"

 private:
  struct Node {
    enum class Kind { instr, label, pragma, section, comment, open, close };
    Kind kind = Kind::instr;
    int depth = 0;
    bool rare = false;
    std::unique_ptr<Instr> instr;
    std::string text;
    std::vector<std::string> declarations;  // of an opened scope
  };
  struct Declared {
    RegType type;
    int count;  // 0: a single register
  };
  struct Scope {
    std::size_t node;
    std::map<std::string, Declared> names;
    int id = 0;
  };
  struct Label {
    int scope;
    Location at;
  };
  struct Use {  // of a symbol or a label, judged by text()
    std::string symbol, opcode;
    bool branch;
    int scope;
    Location at;
  };
  void declare(const std::string& name, RegType type, int count, const Location& at);
  const Declared* find_register(const Scope& s, const std::string& name) const;
  void new_symbol(const std::string& name, const Location& at);
  Node& add(Node::Kind kind, const std::string& text = "");
  void wait_with(const char* opcode, const std::string& what, const Operand& barrier,
                 const Operand& parity, Location at);
  void guarded_branch(const Reg& p, bool if_true, const std::string& target, const std::string& why,
                      const Location& at);
  void check_whole() const;
  int line_of(const std::string& title) const;
  void print_instr(const Node& n, std::string* out) const;
  void print_head(std::string* out) const;

  std::string entry_;
  std::vector<std::string> header_;
  std::vector<std::pair<std::string, std::string>> params_;  // declaration, comment
  std::vector<std::string> variables_;                       // module-scope shared memory
  std::vector<std::string> statics_;                         // entry-scope shared memory
  std::set<std::string> symbols_;                            // parameters and variables
  int threads_ = 0, min_ctas_ = 0, cluster_ = 1;
  int param_bytes_ = 0;
  std::vector<Node> nodes_;
  std::vector<Scope> scopes_;       // open ones, outermost first
  std::vector<int> scope_parents_;  // by scope id, of all
  std::set<std::string> was_declared_;
  std::map<std::string, int> label_stems_;
  std::map<std::string, Label> placed_;
  std::vector<Use> uses_;
  std::vector<std::string> titles_;  // lines of line_table(): what it begins with, then steps and sections
  std::vector<std::pair<std::size_t, std::string>> steps_;  // node from which each holds; "": none
  int depth_ = 1;
  int rare_depth_ = 0;
  int version_ = 78;
  bool sm90a_ = false;
  bool line_info_ = false;
};

}  // namespace flashptx::gen
