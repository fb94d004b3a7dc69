// How good the checkers are: single mutants of catalogued kernels, each of which must end in a
// fault or a wrong result, or be listed here as harmless with the reason.
//
// The runner takes a sample of three kernels; `make mutants` takes all (FLASHPTX_MUTANTS=all; a name or "catalog" picks
// other kernels, FLASHPTX_MUTANTS_LINES lines of one) and prints the table by kind, what noticed each to
// FLASHPTX_MUTANTS_LOG. Measured with every mutant of every attention kernel in ptx/ (38; two hours of
// a core). What the first five problems did not notice, and what a reason explains, ran again when the last two were added:
//
//                           mutants   change something: noticed   explained   same value   not reached   faults placed
//   16 bit, head dim 64        4936               4670 of 4670         232           24            10   4092 of 4116
//   16 bit, head dim 128       7453               7162 of 7162         242           37            12   5835 of 5885
//   16 bit, head dim 256       4502               4350 of 4350         124           24             4   3118 of 3140
//   8 bit, V by rows           4977               4711 of 4711         202           58             6   4066 of 4106
//   8 bit, V^T given           5131               4860 of 4860         229           35             7   4149 of 4186
//   8 bit, V^T given, folds    4575               4315 of 4315         202           34            24   3584 of 3671
//   all                       31574             30068 of 30068        1231          212            63   24844 of 25104 (99.0 %)
//
// explained: nothing notices, and a row of the table below says why nothing is to be noticed. not reached: mostly the copy of
// a tile's end for rows without keys, which can neither fail nor fold. placed: the fault names the line, the barrier, what is
// missing, or (5208 of them) only its ring; another mutant's sentence would pass for the right one in 36 %.
// A mutant runs round-robin and then under adversaries, until something notices. Next: mutants.h.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "tests/attention/scores.h"
#include "tests/emulator/attention.h"
#include "tests/emulator/mutants.h"
#include "tools/flashptx/pattern.h"

using namespace flashptx;
using namespace flashptx::emulator::test;

namespace {

// same: reached, but every value was what it was.
enum class Found { refused, fault, hang, wrong, unreached, same, harmless, nothing };

struct Verdict {
  Found found = Found::nothing;
  bool at_line = false, at_barrier = false, at_missing = false, at_ring = false;  // what the fault names
  std::string message;
  bool named() const { return at_line || at_barrier || at_missing || at_ring; }
};

// Survivors with the reason: they change nothing which the PTX ISA defines, or nothing that happens
// in these problems (then they say so). `statement` is a regular expression for the statement as it was, `change` for
// what was done, `near` for a line of the same straight piece of text, `region` for where it stands.
enum class Region {
  anywhere,
  tile_start,    // the producer's loads in front of the loop over a tile's blocks
  without_keys,  // the copy of a tile's end for rows that see no key
  redo,          // the producer's loads of a tile that is done again, but those of the loop over its blocks
  halves,        // the consumers' loop over blocks, where V comes and is transposed in two halves
  v_before_k,    // the producer's loops over a tile's blocks, in a schedule that frees V ahead of K
  redo_blocks,   // the loop over the blocks of a tile that is done again, with one Q buffer
  one_q,         // anywhere, with one Q buffer
};
struct Harmless {
  const char* kind;
  const char* statement;
  const char* change;
  const char* why;
  const char* near = "";
  Region region = Region::anywhere;
};
const char* const waited_twice = "two levels: the block's products were waited for before they were added to O";
const char* const next_k =
    "K of the next block is waited for before; it was asked for when the transposing warps had freed both halves of this V";
const char* const first_of_redo =
    "a load of a tile that is done again: all warps have finished the tiles before, or the barrier taken instead is freed later";
const char* const in_order =
    "8 bit, nothing lags: K of the next block was waited for just now, freed behind a product that completed after this V's";
const char* const handed_on =
    "a block that the warpgroup only hands on: it reads nothing of it, and never hands on a whole ring ahead";
const char* const read_before =
    "one buffer for Q and O: each warp has waited, before it handed Q back, for what it stored to be read";
const Harmless harmless[] = {
    {"drop wgmma.fence", "", "",
     "repeated after a branch for ptxas alone (C7519): nothing has touched the registers since the last one"},
    {"barrier id", R"(^bar\.sync 0;)", "", "all threads meet once; any free barrier does"},
    {"drop bar.sync", R"(^bar\.sync 1, 256;)", "", "takes the last turn, which nobody needs, before the exit"},
    {"drop bar.sync", R"(^bar\.sync %token, 256;)", "",
     "the token orders the turns of the warpgroups and no data: one turn is taken early, where no other is missed"},
    {"swap two steps", R"(^wgmma\.fence)", R"(wgmma at line)",
     "the same fence, after the first of its products"},
    {"descriptor leading", "", "",
     "one 64-column atom wide: the leading offset is not used"},
    {"drop bar.warp.sync", "", "",
     "either before an arrival on a tile slot, which later arrivals of the warp, on K and V, order as well before the slot is written again; or between lane 0's wait_group.read and stmatrix.sync, which itself waits for lane 0"},
    {"swap two steps", R"(^bar\.warp\.sync)", R"(mbarrier\.arrive)",
     "as dropping that bar.warp.sync"},
    {"stage stride", R"(scales_at, %slot_stage)", "", "the scales of a slot that holds no tile: nobody reads them", R"(scales_at\+\d+\], 0;)"},
    {"stage stride", R"(scales_at, %slot_stage)", "",
     "all tiles of these problems have the same scales, and the slot still holds them", "", Region::redo},
    {"swap two steps", R"(^st\.shared)", R"(fence\.mbarrier_init)",
     "bar.sync 0 follows and orders the word"},
    {"swap two steps", R"(^st\.shared.*raw_bar)", R"(expect_tx)",
     "the second of two halves of a block: its kind is read with the first", R"(raw_position, %\w+, 2, 1;)"},
    {"swap two steps", R"(^wgmma\.commit)", R"(wgmma\.wait_group)",
     "the next tile's S is waited for again where it is read"},
    {"wait_group count", R"(^wgmma\.wait_group)", R"( 1;)",
     "as above: O's group is the older one"},
    {"drop wgmma.wait_group", R"(sync\.aligned 0;)", "", waited_twice, R"(add\.ftz\.f32 %o_acc\d+, %o_acc\d+, %o_new)"},
    {"wait_group count", R"(^wgmma\.wait_group)", "", waited_twice, R"(add\.ftz\.f32 %o_acc\d+, %o_acc\d+, %o_new)"},
    {"drop mbarrier wait", R"(WAIT_([KQV]|RAW)_EMPTY)", "", first_of_redo, "", Region::redo},
    {"barrier offset", R"(try_wait.*(k|q|v|raw)_bar)", "", first_of_redo, "", Region::redo},
    {"drop mbarrier wait", R"(WAIT_K_EMPTY)", "",
     "the tile's first K: V of the block before was waited for just now, whose stage is freed behind this K's", "", Region::tile_start},
    {"drop mbarrier wait", R"(WAIT_V_EMPTY)", "", in_order, R"(mov\.b32 %row0, 0;)"},
    {"barrier offset", R"(try_wait.*v_bar.*v_free)", "", in_order, R"(mov\.b32 %row0, 0;)"},
    {"drop mbarrier wait", R"(WAIT_TILE_EMPTY)", "",
     "one Q buffer: Q of the tile before was loaded when all warps were done with the tile that this slot held", "", Region::one_q},
    {"drop mbarrier wait", R"(WAIT_TILE_EMPTY_[34])", "",
     "all warps have read the slot before this one, or are in a tile that is done again; here such a tile has more blocks than "
     "the ring has stages, so that K's waits tell that they have read this slot"},
    {"drop mbarrier wait", R"(WAIT_[KV]_FULL)", "", handed_on, R"(\[%kv_bar)"},
    {"barrier offset", R"(try_wait.*%kv_bar)", "", handed_on},
    {"barrier offset", R"(try_wait.*raw_bar.*raw_free)", R"(.*)",
     "the first of two halves waits for the second one's barrier, which is freed behind its own", R"(raw_position, %\w+, 2, 0;)"},
    {"drop mbarrier wait", R"(WAIT_V_FULL)", "", next_k, "", Region::halves},
    {"barrier offset", R"(try_wait.*v_bar.*v_phase)", "", next_k, "", Region::halves},
    {"drop mbarrier wait", R"(WAIT_V_EMPTY)", "",
     "K of the block behind was waited for just now, and each warp frees the V that this one replaces ahead of the K that that one did",
     R"(and\.b32 %v_stage, %v_count, 1;)", Region::v_before_k},
    {"barrier offset", R"(try_wait.*\[%k_bar\+16\])", R"(\[%k_bar\+24\])",
     "two stages: an even block waits for the stage of the block before it, which is what the odd block behind it must wait for; "
     "Q of this tile came when all K of the tile before were free",
     R"(and\.b32 %k_stage, %k_count, 1;)", Region::redo_blocks},
    {"drop cp.async.bulk.wait_group", R"(wait_group\.read 0;)", "", read_before, R"(\$CONSUMER_END:)"},
    {"wait_group count", R"(^cp\.async\.bulk\.wait_group\.read 0;)", "", read_before, R"(\$CONSUMER_END:)"},
    {"drop mbarrier.arrive", R"(slot_bar)", "",
     "after the last tile: nobody waits for that slot again"},
    {"arrive twice", R"(slot_bar)", "",
     "after the last tile: nobody waits for that slot again"},
    {"drop guard", R"(slot_bar)", "",
     "after the last tile: nobody waits for that slot again"},
    {"stage mask", R"(slot_stage)", "", "after the last tile: nobody waits for either slot again", "", Region::without_keys},
    {"wait for reads only", "", "",
     "a warpgroup that sees no key stores the same zeros when its tile is done again", "", Region::without_keys},
    {"drop cp.async.bulk.wait_group", R"(wait_group 0;)", "", "likewise", "", Region::without_keys},
    {"wait_group count", R"(^cp\.async\.bulk\.wait_group 0;)", "", "likewise", "", Region::without_keys},
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (char c : text)
    if (c == '\n') lines.emplace_back();
    else lines.back().push_back(c);
  return lines;
}

// Whether the branch back to the label of line `label` comes behind `line`.
bool inside_loop(const std::vector<std::string>& lines, std::size_t label, std::size_t line) {
  const std::string name = lines[label].substr(lines[label].find('$'), lines[label].find(':') - lines[label].find('$'));
  for (std::size_t i = line; i < lines.size(); ++i)
    if (lines[i].find("bra " + name + ";") != std::string::npos) return true;
  return false;
}

bool stands_in(Region region, const std::vector<std::string>& lines, std::size_t line) {
  if (region == Region::anywhere) return true;
  if (region == Region::halves) {
    static const Pattern half(R"(raw_position, %k_count, 2, 1;)");
    bool loop = false;
    for (std::size_t i = line; i-- > 0 && !loop;)
      loop = lines[i].find("$KV_LOOP") != std::string::npos && lines[i].find(':') != std::string::npos && inside_loop(lines, i, line);
    return loop && std::any_of(lines.begin(), lines.end(), [](const std::string& l) { return half.search(l); });
  }
  const auto has = [&](std::size_t i, const char* what) { return lines[i].find(what) != std::string::npos; };
  if (region == Region::one_q)
    return std::any_of(lines.begin(), lines.end(), [](const std::string& l) { return l.find("Q 0: 1 stages") != std::string::npos; });
  if (region == Region::v_before_k || region == Region::redo_blocks) {
    bool loop = false, again = false, kernel = false;
    for (std::size_t i = line; i-- > 0;) {
      loop |= has(i, "$PRODUCER_BLOCK") && has(i, ":") && inside_loop(lines, i, line);
      again |= has(i, "$REDO:");
      kernel |= has(i, region == Region::redo_blocks ? "Q 0: 1 stages" : "Schedule \"trailing\"");
    }
    return loop && kernel && (again || region == Region::v_before_k);
  }
  for (std::size_t i = line; i-- > 0;) {
    if (region == Region::tile_start) {
      if (has(i, "$PRODUCER_BLOCK") && has(i, ":")) return false;
      if (has(i, "$PRODUCER_TILE:")) return true;
    } else if (region == Region::without_keys) {
      if (has(i, "== S = Q K^T")) return false;
      if (has(i, "no key is visible: O = 0")) return true;
    } else {
      if (has(i, "$PRODUCER_TILE:") || (has(i, "$PRODUCER_BLOCK") && has(i, ":") && inside_loop(lines, i, line))) return false;
      if (has(i, "$REDO:")) return true;
    }
  }
  return false;
}

// A line above, down from the declarations that begin the piece, or the one below.
bool stands_near(const char* near, const std::vector<std::string>& lines, std::size_t line) {
  if (!*near) return true;
  const Pattern wanted(near);
  for (std::size_t i = std::min(line + 1, lines.size()), n = 0; n < 20 && i > 0; --i, ++n)
    if (wanted.search(lines[i - 1])) return true;
  return false;
}

const Harmless* explained(const std::vector<std::string>& lines, const Mutant& m) {
  for (const Harmless& h : harmless)
    if (m.kind == h.kind && Pattern(h.statement).search(m.before) &&
        Pattern(h.change).search(m.change) && stands_in(h.region, lines, m.line) &&
        stands_near(h.near, lines, m.line))
      return &h;
  return nullptr;
}

// The kernel with a trap where the mutant's statement would give another number than its own; empty if the mutant is of
// another kind. What never traps changes nothing in the problems that were run, whatever the reason.
std::string trap_if_other(const std::string& clean, const Mutant& m) {
  static const Pattern form(R"(^\w[\w.]* (%\w+), )");
  Match before, after;
  if ((m.kind != "stage mask" && m.kind != "phase shift" && m.kind != "stage stride") ||
      !form.search(m.before, &before) || !form.search(m.change, &after))
    return "";
  std::string other = m.change;
  other.replace(after.positions[1], after[1].size(), "%other_value");
  Mutant trap = m;
  trap.edits = {{m.line - 1, "{ .reg .b32 %other_value; .reg .pred %is_other; " + other + " " + m.before +
                                " setp.ne.u32 %is_other, %other_value, " + before[1] + "; @%is_other trap; }"}};
  return trap.text(clean);
}

// The sentence itself: the list of the warp's last events would name too much, and the file's name has words in it.
std::string sentence(const std::string& message) {
  static const Pattern file(R"(\S+\.ptx:)");
  return file.replaced(message.substr(0, message.find("last events of this warp")), "line ");
}

// What a fault that is due to `what` being dropped says of it.
bool says_missing(const std::string& say, const std::string& what) {
  const std::string last = what.substr(what.rfind('.') + 1);
  for (const std::string& name : {what, last})
    for (const char* words : {" missing", " is missing", " 0 missing", ", or a barrier after it, is missing",
                              " by the writer is missing", ".read is missing", ".read 0 missing", " and wait_group"})
      if (say.find(name + words) != std::string::npos) return true;
  static const Pattern wait_group(R"(wait_group(\.read)? \d+ missing)");
  if (last == "wait_group") return wait_group.search(say);
  return what == "fence.mbarrier_init" && say.find("no fence.mbarrier_init has made visible") != std::string::npos;
}

// Of the statement that begins at `named`: a wgmma has many lines.
bool within_three(const std::vector<std::string>& lines, std::size_t named, std::size_t line) {
  if (named == 0) return false;  // "line 0": no place
  std::size_t last = named;
  while (last < lines.size() && last < named + 40 && lines[last - 1].find(';') == std::string::npos) ++last;
  return line + 3 >= named && line <= last + 3;
}

void judge_place(const std::string& clean, const std::vector<std::string>& all, const Mutant& m, Verdict* v) {
  const std::string say = sentence(v->message);
  static const Pattern lines(R"(line (\d+))"), numbers(R"(\d+)"), named(R"((?:^|[^m\w])barrier (\d+))");
  for (const Match& i : lines.all(say))
    v->at_line |= within_three(all, std::stoul(i[1]), m.line);
  const BarrierNames names = barriers_of_line(clean, m.line);
  for (const Match& i : numbers.all(say))
    for (unsigned offset : names.mbarrier_offsets)
      v->at_barrier |= i[0] == std::to_string(offset) || i[0] == std::to_string(offset + 1024);
  // A register as barrier number: any named barrier but that of the whole CTA is the one.
  if (!names.named.empty())
    for (const Match& i : named.all(say))
      v->at_barrier |= names.named[0] == '%' ? i[1] != "0" : i[1] == names.named;
  const auto says = [&](const char* words) { return say.find(words) != std::string::npos; };
  if (m.kind == "setmaxnreg count") v->at_missing = says("setmaxnreg.inc") && says("can never be met");  // the victim
  else if (m.kind == "swap two steps")
    for (const char* step : {"fence.proxy.async", "bar.warp.sync", "wgmma.fence", "wgmma.wait_group",
                             "cp.async.bulk.wait_group", "fence.mbarrier_init"})
      v->at_missing |= (m.before + m.change).find(step) != std::string::npos && says_missing(say, step);
  else if (m.kind == "wait_group count" || m.kind == "wait for reads only") v->at_missing = says_missing(say, "wait_group");
  else if (m.kind == "drop mbarrier wait") 
    v->at_missing = says("has not waited for that phase") || says("no barrier orders") || says("or a barrier after it, is missing");
  else if (m.kind == "drop bar.sync") v->at_missing = says("a barrier after mbarrier.init is missing") || says("no barrier orders");
  else if (m.kind == "drop bar.warp.sync") v->at_missing = says("bar.warp.sync, if it is between") || says("or bar.warp.sync after it");
  else if (m.kind.rfind("drop ", 0) == 0 && m.kind != "drop guard") v->at_missing = says_missing(say, m.kind.substr(5));
}

// The first barrier of the ring that the barrier at `offset` of shared memory belongs to: what the lines that use it add.
std::string ring_base(const std::vector<std::string>& lines, unsigned offset) {
  for (unsigned stage = 0; stage < 8 && 8 * stage <= offset; ++stage) {
    const std::string base = std::to_string(offset - 8 * stage);
    for (const std::string& l : lines)
      if (l.find("_bar") != std::string::npos &&
          (l.find("+" + base + "]") != std::string::npos || l.find(", " + base + ";") != std::string::npos))
        return base;
  }
  return "";
}

// The victim: the fault names a line that works on the mutated ring (Q, K, V, raw V, O or the tile slots).
void judge_victim(const std::vector<std::string>& lines, const Mutant& m, Verdict* v) {
  static const Pattern rings(R"(%(?:(q|k|v|vt|kv|o|slot|raw)_(?!acc|count|row)\w+|(src|dst)\b))"), named(R"(line (\d+))"),
      barrier(R"(\[%smem_base\+(\d+)\])");
  const auto rings_of = [&](std::size_t from, std::size_t to) {
    std::string found;
    for (std::size_t i = from; i <= to && i < lines.size(); ++i)
      for (const Match& r : rings.all(lines[i]))
        found += !r[2].empty() ? (r[2] == "src" ? "r" : "v")  // of the transposing warps
                 : r[1] == "vt" ? "v" : r[1] == "kv" ? "kv" : r[1].substr(0, 1);
    return found;
  };
  const bool is_wait = m.kind == "drop mbarrier wait";  // the branch: the barrier stands in the line before
  std::string mutated = rings_of(m.line - (is_wait ? 2 : 1), m.line - 1);
  Match b;
  if (mutated.empty() && barrier.search(lines[m.line - 1], &b)) {  // an mbarrier.init
    const std::string base = ring_base(lines, static_cast<unsigned>(std::stoul(b[1])));
    for (std::size_t i = 0; i < lines.size() && !base.empty(); ++i)
      if (lines[i].find("_bar+" + base + "]") != std::string::npos ||
          (lines[i].find("_bar, ") != std::string::npos && lines[i].find(", " + base + ";") != std::string::npos))
        mutated += rings_of(i, i);
  }
  const std::string say = sentence(v->message);
  for (const Match& i : named.all(say)) {
    const std::size_t l = static_cast<std::size_t>(std::stoul(i[1]));
    if (l == 0 || l > lines.size()) continue;
    // A wgmma's descriptors stand at its end.
    std::size_t last = l - 1;
    while (last + 1 < lines.size() && lines[last].find(';') == std::string::npos) ++last;
    v->at_ring |= rings_of(l - 1, last).find_first_of(mutated) != std::string::npos;
  }
}

// Problems for one CTA or cluster: three heads of a few tiles each, so that rings go round and rows without keys occur; scores for
// which the guarded softmax does two tiles again; and many short tiles, so that a barrier whose arrivals are miscounted
// gets out of step.
class Harness {
 public:
  Harness(const KernelConfig& config, bool thorough) : text_(emit(config).text), lines_(lines_of(text_)), mutants_(make_mutants(text_)) {
    const int tile = config.tile_q(), block = config.plan.tile_kv;
    problems_.push_back({make_attention(config, 2 * tile + 8, std::max(tile, 4 * block) + 44,
                                        reference::Inputs::random, 3)});
    // Odd and even many tiles: the slot behind them is then the second and the first.
    problems_.push_back({make_attention(config, redone(config, 3, 2))});
    problems_.push_back({make_attention(config, redone(config, 4, 0))});
    // An arrival too few of each warp puts a phase out of step after as many tiles as there are arrivals, on two slots.
    problems_.push_back({make_attention(config, tile - 8, 2 * block - 5, reference::Inputs::random, 8 * config.plan.warpgroups + 4)});
    problems_.push_back({make_attention(config, tile + 8, 0)});
    // One block of keys. Then tiles done again where the rings stand at an odd count whose phases differ from those of half
    // and twice of it, and where the last block is as full as the others: what the first loads get wrong then shows.
    // Where O is folded, enough blocks for that.
    problems_.push_back({make_attention(config, tile, block - 5)});
    const int usual = config.plan.guard_blocks + 4 + (config.problem.mask == Mask::causal ? tile / block : 0);
    const int more = std::max(usual, config.plan.fold_blocks) / 8 * 8 + 7;
    if (thorough && config.plan.softmax == Softmax::guarded) problems_.push_back({make_attention(config, redone(config, 3, 1, more))});
    for (Problem& p : problems_) {
      const AttentionOutcome clean = run(p, text_, 0, 0);
      REQUIRE_MESSAGE(clean.status.ok(), clean.status.message);
      p.counts = clean.line_counts;
      p.o_error = 2 * clean.o_error, p.lse_error = 2 * clean.lse_error;
      p.limit = 0;
      for (auto n : p.counts) p.limit += 4 * n;
    }
  }

  void judge_place(const Mutant& m, Verdict* v) const {
    ::judge_place(text_, lines_, m, v), judge_victim(lines_, m, v);
  }
  const std::vector<std::string>& lines() const { return lines_; }
  const std::vector<Mutant>& mutants() const { return mutants_; }

  Verdict judge(const Mutant& m) const {
    Verdict v;
    bool reached = false;
    const std::string text = m.text(text_);
    const Harmless* known = explained(lines_, m);
    for (const Problem& p : problems_) {
      if (!reaches(p, m)) continue;
      reached = true;
      int orders = 0;
      for (const auto& [seed, level] : {std::pair{0, 0}, {2, 2}, {1, 1}, {4, 2}}) {
        if (known && ++orders > 2) break;  // the reason does not depend on an order
        const AttentionOutcome o = run(p, text, static_cast<std::uint64_t>(seed), level);
        if (o.status.ok() && o.o_error <= p.o_error && o.lse_error <= p.lse_error) continue;
        v.message = o.status.message;
        v.found = o.status.code == StatusCode::bad_ptx                    ? Found::refused
                  : o.status.ok()                                         ? Found::wrong
                  : v.message.find("deadlock") != std::string::npos ||
                          v.message.find("livelock") != std::string::npos ? Found::hang
                                                                          : Found::fault;
        if (!o.status.ok()) judge_place(m, &v);
        return v;
      }
    }
    v.found = !reached ? Found::unreached : gives_same_values(m) ? Found::same : known ? Found::harmless : Found::nothing;
    return v;
  }

 private:
  bool gives_same_values(const Mutant& m) const {
    const std::string text = trap_if_other(text_, m);
    if (text.empty()) return false;
    for (const Problem& p : problems_) {
      const AttentionOutcome o = run(p, text, 0, 0);
      if (o.status.code == StatusCode::bad_ptx) throw std::runtime_error(o.status.message);
      if (!o.status.ok()) return false;
    }
    return true;
  }
  struct Problem {
    AttentionCase data;
    std::vector<std::uint64_t> counts = {};  // by line
    std::uint64_t limit = 0;
    double o_error = 0, lse_error = 0;  // twice those of the kernel itself
  };
  // A tile for each head; those from `first_head` on meet a key that exceeds the rest, in rows of which the
  // others say whether all keys are where they belong.
  static reference::Tensors redone(const KernelConfig& c, int heads, int first_head, int blocks = 0) {
    reference::Problem p;
    p.dtype = c.problem.dtype, p.mask = c.problem.mask, p.threads = 1;
    p.heads_q = p.heads_kv = heads;
    p.head_dim = p.head_dim_v = c.problem.head_dim;
    p.seqlen_q = c.tile_q() - 8;
    p.seqlen_k = (c.plan.guard_blocks + 3) * c.plan.tile_kv + 10;
    if (p.mask == Mask::causal) p.seqlen_k += c.tile_q();
    if (blocks) p.seqlen_k = blocks * c.plan.tile_kv - 5;
    const double jump = p.dtype == DataType::f16 ? 20 : 140;
    flashptx::test::Scores scores = flashptx::test::jumping_scores(
        &p, jump, [=](std::int64_t head, std::int64_t row) { return head >= first_head && row % 16 < 8; });
    scores.noise = 0.125;  // every column of Q and K counts
    return flashptx::test::scored_tensors(p, scores);
  }
  // A label or a statement of several lines counts where it begins or ends.
  static bool reaches(const Problem& p, const Mutant& m) {
    for (std::size_t l = m.line > 20 ? m.line - 20 : 1; l <= m.line; ++l)
      if (l < p.counts.size() && p.counts[l] && (l == m.line || m.kind.rfind("early", 0) == 0)) return true;
    return false;
  }
  AttentionOutcome run(const Problem& p, const std::string& text, std::uint64_t seed, int level) const {
    EmulatorOptions o;
    o.seed = seed, o.adversary_level = level, o.threads = 1, o.multiprocessors = p.data.config.plan.cluster;
    o.instruction_limit = o.idle_instruction_limit = p.limit;
    return run_attention(p.data, o, text);
  }

  std::string text_;
  std::vector<std::string> lines_;
  std::vector<Mutant> mutants_;
  std::vector<Problem> problems_;
};

struct Row {
  int all = 0, of[8] = {}, placed = 0, line = 0, barrier = 0, missing = 0, ring = 0;
  void add(const Verdict& v) {
    ++all, ++of[static_cast<int>(v.found)];
    if (v.found != Found::fault && v.found != Found::hang) return;
    placed += v.named(), line += v.at_line, barrier += v.at_barrier, missing += v.at_missing;
    ring += !v.at_line && !v.at_barrier && !v.at_missing && v.at_ring;
  }
  int faults() const { return of[static_cast<int>(Found::fault)] + of[static_cast<int>(Found::hang)]; }
  int caught() const {
    return faults() + of[static_cast<int>(Found::refused)] + of[static_cast<int>(Found::wrong)];
  }
  int changing() const { return caught() + of[static_cast<int>(Found::nothing)]; }
};

void print(const std::string& name, const Row& r) {
  std::printf("%-28s %5d %7d %6d %5d %5d %9d %5d %8d %7d   %d of %d (line %d, barrier %d, what is missing %d; only the ring %d)\n",
              name.c_str(), r.all, r.of[0], r.of[1], r.of[2], r.of[3], r.of[4], r.of[5], r.of[6], r.of[7], r.placed,
              r.faults(), r.line, r.barrier, r.missing, r.ring);
}

// Every `step`-th mutant of each kind from the `first`-th on, one of each kind at least; all with step 1. Or those of the
// lines that FLASHPTX_MUTANTS_LINES lists, by commas.
std::vector<const Mutant*> choose(const std::vector<Mutant>& mutants, std::size_t step, std::size_t first) {
  std::vector<const Mutant*> chosen;
  std::map<std::string, std::size_t> of_kind, seen;
  if (const char* lines = std::getenv("FLASHPTX_MUTANTS_LINES")) {
    const std::string wanted = "," + std::string(lines) + ",";
    for (const Mutant& m : mutants)
      if (wanted.find("," + std::to_string(m.line) + ",") != std::string::npos) chosen.push_back(&m);
    return chosen;
  }
  for (const Mutant& m : mutants) ++of_kind[m.kind];
  for (const Mutant& m : mutants)
    if (seen[m.kind]++ % step == first % std::min(step, of_kind[m.kind])) chosen.push_back(&m);
  return chosen;
}

// What each mutant did and what noticed it, a paragraph each: FLASHPTX_MUTANTS_LOG names the file.
void log(const KernelConfig& config, const std::vector<const Mutant*>& chosen, const std::vector<Verdict>& verdicts) {
  static const char* const found[] = {"refused", "fault", "hang", "wrong", "unreached", "same", "harmless", "MISSED"};
  const char* path = std::getenv("FLASHPTX_MUTANTS_LOG");
  if (!path) return;
  std::ofstream out(path, std::ios::app);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const Verdict& v = verdicts[i];
    out << config.name() << ":" << chosen[i]->line << ": " << chosen[i]->kind << ": `" << chosen[i]->before << "` -> `"
        << chosen[i]->change << "`: " << found[static_cast<int>(v.found)] << (v.at_line ? " line" : "")
        << (v.at_barrier ? " barrier" : "") << (v.at_missing ? " missing" : "") << (v.at_ring ? " ring" : "") << "\n  "
        << v.message.substr(0, v.message.find("\n  last events of this warp")) << "\n";
  }
}

void try_mutants(const KernelConfig& config, std::size_t step, std::size_t first, bool table) {
  const Harness harness(config, table);
  const std::vector<const Mutant*> chosen = choose(harness.mutants(), step, first);
  std::vector<Verdict> verdicts(chosen.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i; (i = next++) < chosen.size();) verdicts[i] = harness.judge(*chosen[i]);
  };
  std::vector<std::thread> pool;
  for (unsigned t = 1; table && t < std::thread::hardware_concurrency(); ++t) pool.emplace_back(work);
  work();
  for (auto& t : pool) t.join();

  log(config, chosen, verdicts);
  // What the rule for a named place is worth: how often another mutant's sentence, taken for this one's, would pass.
  std::vector<std::size_t> faults;
  for (std::size_t i = 0; i < chosen.size(); ++i)
    if (verdicts[i].found == Found::fault || verdicts[i].found == Found::hang) faults.push_back(i);
  int by_chance = 0;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    Verdict other;
    other.message = verdicts[faults[(i + faults.size() / 2) % faults.size()]].message;
    harness.judge_place(*chosen[faults[i]], &other);
    by_chance += other.named();
  }
  std::map<std::string, Row> rows;
  Row sum;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const Mutant& m = *chosen[i];
    const Verdict& v = verdicts[i];
    rows[m.kind].add(v), sum.add(v);
    if (table && v.found == Found::unreached)
      std::printf("unreached: line %zu %s: %s\n", m.line, m.kind.c_str(), m.before.c_str());
    if (table && v.found == Found::harmless)
      std::printf("survives: line %zu %s: %s: %s\n", m.line, m.kind.c_str(), m.before.c_str(), explained(harness.lines(), m)->why);
    CHECK_MESSAGE(v.found != Found::nothing, config.name() << " line " << m.line << ": " << m.kind << ": `"
                                                           << m.before << "` -> `" << m.change
                                                           << "` is not noticed");
    if (table && (v.found == Found::fault || v.found == Found::hang) && !v.named())
      std::printf("not placed: line %zu %s: %s -> %s\n  %.600s\n", m.line, m.kind.c_str(), m.before.c_str(),
                  m.change.c_str(), v.message.c_str());
  }
  const bool some_lines = std::getenv("FLASHPTX_MUTANTS_LINES") != nullptr;
  CHECK((some_lines || sum.caught() * 100 >= sum.changing() * 98));
  // The aim of all mutants is 90 %; a sample of some thirty faults scatters around that.
  CHECK((some_lines || sum.placed * 100 >= sum.faults() * (step == 1 ? 90 : 80)));
  if (!table) return;
  std::printf("%s\n%-28s %5s %7s %6s %5s %5s %9s %5s %8s %7s   faults that name the place\n", config.name().c_str(),
              "mutants", "all", "refused", "fault", "hang", "wrong", "unreached", "same", "harmless", "missed");
  for (const auto& [kind, row] : rows) print(kind, row);
  print("all", sum);
  std::printf("  caught %d of %d that change something; another mutant's sentence would be taken for the right one in %d of %d\n",
              sum.caught(), sum.changing(), by_chance, sum.faults());
  std::fflush(stdout);
}

KernelConfig named(const std::string& name) {
  KernelConfig c;
  std::string error;
  REQUIRE_MESSAGE(KernelConfig::parse(name, &c, &error), error);
  return c;
}
const char* const small_causal = "attn_fwd_bf16_d64_causal__q256_kv64_s4_qs2__overlap_pp_guarded2_dyn_ob";
const char* const eight_bit = "attn_fwd_e4m3_d64_full__q192_kv128_s3_qs2__trailing_pp_guarded3_dyn_ob";
const char* const guarded = "attn_fwd_bf16_d128_full__q128_kv128_s2_qs2__overlap_guarded2";

std::size_t number_from(const char* variable, std::size_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? static_cast<std::size_t>(std::max(0, std::atoi(text))) : otherwise;
}
std::string asked_for() {
  const char* asked = std::getenv("FLASHPTX_MUTANTS");
  return asked ? asked : "";
}
void try_asked(const std::string& which) {
  const std::size_t step = std::max<std::size_t>(1, number_from("FLASHPTX_MUTANTS_STEP", 1));
  const std::size_t first_of_step = number_from("FLASHPTX_MUTANTS_FIRST", 0);
  if (which == "catalog") {
    // Thinned, each kernel takes other mutants than the one before: most of the text is common to them.
    std::size_t first = 0;
    for (const KernelConfig& c : catalog()) try_mutants(c, step, first++, true);
  } else if (which == "all") {
    for (const char* name : {small_causal, guarded, eight_bit}) try_mutants(named(name), step, 0, true);
  } else {
    try_mutants(named(which), step, first_of_step, true);
  }
}

}  // namespace

// A case a kernel: the runner spreads them over its processes.
TEST_SUITE("emulator/mutation") {
  TEST_CASE("a mutant that nothing notices has a known reason: causal in 16 bits, or what FLASHPTX_MUTANTS says") {
    if (asked_for().empty()) try_mutants(named(small_causal), 96, 0, false);
    else try_asked(asked_for());
  }
  TEST_CASE("a mutant that nothing notices has a known reason: head_dim 128 in 16 bits") {
    if (!asked_for().empty()) FLASHPTX_SKIP("FLASHPTX_MUTANTS asks for others");
    try_mutants(named(guarded), 96, 0, false);
  }
  TEST_CASE("a mutant that nothing notices has a known reason: 8 bits") {
    if (!asked_for().empty()) FLASHPTX_SKIP("FLASHPTX_MUTANTS asks for others");
    try_mutants(named(eight_bit), 120, 0, false);
  }
}
