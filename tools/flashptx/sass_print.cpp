// The report as a page, the listing with control bits, and JSON.
// Next: sass_command.cpp.
#include <cstdio>

#include "tools/flashptx/json.h"
#include "tools/flashptx/sass.h"
#include "tools/flashptx/text.h"

namespace flashptx::sass {

namespace {

std::string counts_text(const Counts& c) {
  std::string s;
  for (int k = 0; k < kind_count; ++k)
    if (c[static_cast<std::size_t>(k)] > 0)
      s += format("%s%s %d", s.empty() ? "" : "  ", to_string(static_cast<Kind>(k)),
                  c[static_cast<std::size_t>(k)]);
  return s.empty() ? "nothing" : s;
}

std::string loop_text(const LoopReport& l) {
  std::string s = format(
      "\nloop %s  0x%04x..0x%04x  %d instructions a trip, at least %d clocks by stall counts\n",
      l.loop.name.c_str(), l.first_address, l.last_address, l.instructions, l.stall_clocks);
  s += "  " + counts_text(l.counts) + "\n";
  if (l.counts[static_cast<int>(Kind::wgmma)] == 0) return s;
  if (l.mufu > 0)
    s += format(
        "  MUFU: %d a trip, %d while a wgmma is in flight, %d with the tensor cores idle for this "
        "warpgroup\n",
        l.mufu, l.mufu_under_wgmma, l.mufu - l.mufu_under_wgmma);
  for (const Stretch& t : l.stretches) {
    s += format("  0x%04x %6s  %-34s %s\n", t.address,
                t.ptx_line ? (":" + std::to_string(t.ptx_line)).c_str() : "", t.event.c_str(),
                t.step.c_str());
    if (t.counts != Counts{})
      s += format("                   | %d wgmma group%s open: ", t.in_flight,
                  t.in_flight == 1 ? "" : "s") +
           counts_text(t.counts) + "\n";
  }
  return s;
}

Json counts_json(const Counts& c) {
  Json j = Json::object();
  for (int k = 0; k < kind_count; ++k)
    j[to_string(static_cast<Kind>(k))] = c[static_cast<std::size_t>(k)];
  return j;
}

Json loop_json(const LoopReport& l) {
  Json stretches = Json::array();
  for (const Stretch& t : l.stretches)
    stretches.push_back({{"event", t.event},
                         {"address", t.address},
                         {"ptx_line", t.ptx_line},
                         {"step", t.step},
                         {"groups_open", t.in_flight},
                         {"counts_until_next", counts_json(t.counts)}});
  return {{"name", l.loop.name},
          {"first_address", l.first_address},
          {"last_address", l.last_address},
          {"instructions", l.instructions},
          {"stall_clocks", l.stall_clocks},
          {"counts", counts_json(l.counts)},
          {"mufu", l.mufu},
          {"mufu_under_wgmma", l.mufu_under_wgmma},
          {"mufu_moved_behind_wait", l.mufu_moved},
          {"stretches", stretches}};
}

}  // namespace

std::string report_text(const Report& r) {
  std::string s = r.name + ": ";
  s += r.facts.known ? format("%d registers, %d bytes spilled", r.facts.registers,
                              r.facts.spill_store_bytes + r.facts.spill_load_bytes)
                     : "registers and spills unknown (only the assembler's log has them)";
  s += format(", %d loops\n", static_cast<int>(r.loops.size()));
  s += "  " + counts_text(r.counts) + "\n";
  for (const LoopReport& l : r.loops) s += loop_text(l);
  s += r.warnings.empty() ? "\nno warnings\n" : "\nwarnings\n";
  for (const std::string& w : r.warnings) s += "  " + w + "\n";
  return s;
}

std::string listing_text(const Function& f, const Report& r, const PtxText& ptx) {
  std::string s;
  int line = -1;
  std::string step;
  for (std::size_t n = 0; n < f.code.size(); ++n) {
    const Instruction& i = f.code[n];
    for (const LoopReport& l : r.loops) {
      if (static_cast<std::size_t>(l.loop.head) == n)
        s += format("// loop %s begins\n", l.loop.name.c_str());
    }
    if (i.step != step) s += "// == " + (step = i.step) + "\n";
    if (i.ptx_line != line && i.ptx_line > 0) {
      std::string source = ptx.line(i.ptx_line);
      source.erase(0, source.find_first_not_of(" \t") == std::string::npos
                          ? source.size()
                          : source.find_first_not_of(" \t"));
      s += format("      :%d  %s\n", i.ptx_line, source.c_str());
    }
    line = i.ptx_line;
    std::string operands = i.operands;
    if (i.target >= 0)
      operands += format("  -> 0x%04x", f.code[static_cast<std::size_t>(i.target)].address);
    s += format("%04x  [%s]%s%s  %5s %-28s %s\n", i.address, to_string(i.control).c_str(),
                i.control.reuse ? " reuse " : "       ",
                i.control.reuse ? format("%x", i.control.reuse).c_str() : " ", i.predicate.c_str(),
                i.opcode.c_str(), operands.c_str());
    for (const LoopReport& l : r.loops)
      if (static_cast<std::size_t>(l.loop.last) == n)
        s += format("// loop %s ends\n", l.loop.name.c_str());
  }
  return s;
}

std::string report_json(const Function& f, const Report& r) {
  Json instructions = Json::array(), loops = Json::array();
  for (const Instruction& i : f.code) {
    const Control& c = i.control;
    instructions.push_back({{"address", i.address},
                            {"predicate", i.predicate},
                            {"opcode", i.opcode},
                            {"operands", i.operands},
                            {"class", to_string(i.kind)},
                            {"encoding",
                             {format("0x%016llx", static_cast<unsigned long long>(i.low)),
                              format("0x%016llx", static_cast<unsigned long long>(i.high))}},
                            {"control",
                             {{"stall", c.stall},
                              {"yield", c.yield},
                              {"write_barrier", c.write_barrier},
                              {"read_barrier", c.read_barrier},
                              {"wait_mask", c.wait_mask},
                              {"reuse", c.reuse}}},
                            {"ptx_line", i.ptx_line},
                            {"step", i.step}});
  }
  for (const LoopReport& l : r.loops) loops.push_back(loop_json(l));
  auto known = [&](int value) { return r.facts.known ? Json(value) : Json(); };
  const Json j = {{"kernel", r.name},
                            {"registers", known(r.facts.registers)},
                            {"spill_store_bytes", known(r.facts.spill_store_bytes)},
                            {"spill_load_bytes", known(r.facts.spill_load_bytes)},
                            {"stack_bytes", known(r.facts.stack_bytes)},
                            {"counts", counts_json(r.counts)},
                            {"warnings", r.warnings},
                            {"loops", loops},
                            {"instructions", instructions}};
  return j.dump(1) + "\n";
}

}  // namespace flashptx::sass
