// What a disassembler says, as data: instructions with decoded control bits, loops, and what lies
// between each wgmma and its wait. Reads nvdisasm's or cuobjdump's text; needs neither a GPU nor
// the generator.
//
// Why: ptxas may move the exponentials behind the wait that they were meant to hide under,
// serialise wgmma or spill, and says little or nothing. All of that can be read in the machine
// code. Next: sass_parse.cpp (text and control bits), sass_flow.cpp (loops), sass_report.cpp
// (findings).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace flashptx::sass {

// Bits 105..125 of the 128-bit encoding (Volta to Hopper): what the assembler promises the
// scheduler.
struct Control {
  int stall = 0;           // clocks before this warp may issue its next instruction
  bool yield = false;      // the scheduler should prefer another warp (the encoded bit is 0)
  int write_barrier = -1;  // scoreboard set when the result is written, 0..5
  int read_barrier = -1;   // scoreboard set when the sources are read
  unsigned wait_mask = 0;  // scoreboards waited for before issue, bit i = scoreboard i
  unsigned reuse = 0;      // operand slots kept in the reuse cache
};
Control decode_control(std::uint64_t high_word);
std::string to_string(const Control& c);  // "wait 01---- r- w2 yield stall  4 reuse 1"

enum class Kind {
  wgmma,
  wgmma_fence,
  wgmma_wait,
  mma,
  mufu,
  fma,
  fmnmx,
  half,
  convert,
  integer,
  move,
  shuffle,
  vote,
  uniform,
  barrier,
  mbarrier,
  tma,
  shared,
  global,
  local,
  branch,
  other
};
constexpr int kind_count = static_cast<int>(Kind::other) + 1;
const char* to_string(Kind k);
Kind classify(const std::string& opcode);

struct Instruction {
  std::uint32_t address = 0;
  std::string predicate;  // "@!P0" or empty
  std::string opcode;     // "HGMMA.64x32x16.F32.BF16"
  std::string operands;
  std::uint64_t low = 0, high = 0;
  Control control;
  Kind kind = Kind::other;
  int ptx_line = 0;  // 0: unknown
  std::string step;  // the PTX section that the line stands in
  int target = -1;   // index of a branch's target
};

struct Function {
  std::string name;
  std::vector<Instruction> code;
};

// Every function of a disassembly. Throws std::runtime_error with the line for text that is no
// disassembly.
std::vector<Function> parse_disassembly(const std::string& text);

struct Loop {
  int head = 0;           // index of the first instruction of the head
  int last = 0;           // index of the branch that closes it
  std::vector<int> body;  // indices, ascending; slow paths that lie out of line included
  int parent = -1;        // index into the list of loops
  bool polling = false;   // waits for an mbarrier and does nothing else
  std::string name;       // the PTX label, where the line table leads to one
};
std::vector<Loop> find_loops(const Function& f);
// Where control may go from instruction `index`; a call is taken to return.
std::vector<int> successors(const Function& f, int index);

// A wgmma whose A operand is in registers, and an instruction that may write one of them before a wait covers
// that wgmma: an assembler that shares the registers too early (or a text that does) gives wrong products.
struct EarlyWrite {
  int wgmma = 0, writer = 0;  // indices
  int reg = 0;
};
std::vector<EarlyWrite> early_writes_of_a(const Function& f);
// The general registers that an instruction writes, of the pipelines that may write one (empty for stores, branches).
std::vector<int> registers_written(const Instruction& i);

// The PTX that a function was assembled from: lines (1-based), and the section each stands in.
struct PtxText {
  std::vector<std::string> lines;
  std::vector<std::string> section;  // same length
  std::string line(int n) const;
};
PtxText read_ptx(const std::string& text);

using Counts = std::array<int, kind_count>;

// A stretch of a loop between two events of the tensor core: a wgmma, a wait, a barrier.
struct Stretch {
  std::string event;  // "wgmma 64x32x16 x4, committed", "wait until <= 1 open", "loop head"
  int address = 0;
  int ptx_line = 0;
  std::string step;
  int in_flight =
      0;  // wgmma groups open while the instructions that follow issue, in the steady state
  Counts counts{};  // instructions up to the next event
};

struct LoopReport {
  Loop loop;
  std::uint32_t first_address = 0, last_address = 0;
  int instructions = 0;  // issue slots of one warp and trip, slow paths and inner loops included
  int stall_clocks = 0;  // sum of stall counts: no warp can take a trip faster
  Counts counts{};
  std::vector<Stretch> stretches;
  int mufu = 0;
  int mufu_under_wgmma = 0;  // issued while at least one wgmma group is open
  int mufu_moved = 0;        // stand before a wait in the PTX and behind it in the machine code
};

struct AssemblerFacts {
  bool known = false;  // a cubin comes without the assembler's log
  int registers = 0, spill_store_bytes = 0, spill_load_bytes = 0, stack_bytes = 0;
  std::vector<std::string> remarks;  // C75xx and other lines that matter
};
// The part of `ptxas -v` that speaks of `entry`.
AssemblerFacts parse_assembler_log(const std::string& log, const std::string& entry);

struct Report {
  std::string name;
  AssemblerFacts facts;
  Counts counts{};
  std::vector<LoopReport> loops;  // polling loops left out
  std::vector<std::string> warnings;
};
// Fills each instruction's step from `ptx`, then counts.
Report analyse(Function& f, const PtxText& ptx, const AssemblerFacts& facts);

std::string report_text(const Report& r);
std::string listing_text(const Function& f, const Report& r, const PtxText& ptx);
std::string report_json(const Function& f, const Report& r);

// Outside programs. An empty path means: not found.
struct Tools {
  std::string ptxas, disassembler;
  bool has_lines = false;  // nvdisasm maps to PTX lines; cuobjdump does not
  std::string how_to_get;  // one sentence for whatever is missing
};
Tools find_tools();
// Runs argv and collects stdout and stderr together; returns the exit status, -1 when it cannot
// start.
int run_program(const std::vector<std::string>& argv, std::string* output);

struct Assembled {
  std::string log, disassembly;
};
// Throws std::runtime_error with the program's own words.
Assembled assemble(const Tools& tools, const std::string& ptx_text, const std::string& name = "the PTX");
std::string disassemble_file(const Tools& tools, const std::string& cubin_path);

}  // namespace flashptx::sass
