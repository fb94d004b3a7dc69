// Operands by kind: slot i of an instruction takes register number i, lists start at 16 * i.
#include "tests/gen/isa_samples.h"

#include <algorithm>

namespace flashptx::test {
namespace {

using gen::Operand;
using gen::OperandKind;
using gen::Reg;
using gen::RegType;

Reg reg(const std::string& type, std::size_t number) {
  std::string n = std::to_string(number);
  if (type == "pred") return {"p" + n, RegType::pred};
  if (type == "b16") return {"h" + n, RegType::b16};
  if (type == "b64") return {"d" + n, RegType::b64};
  if (type == "f32") return {"f" + n, RegType::f32};
  return {"r" + n, RegType::b32};
}

int tensor_rank(const std::string& opcode) {
  return opcode[opcode.find("d.", opcode.find(".tensor.")) - 1] - '0';
}

Operand list(const OperandKind& kind, std::size_t slot, int n) {
  auto bracket = kind.base.find('[');
  std::string type = kind.base.substr(0, bracket), count = kind.base.substr(bracket + 1);
  std::size_t size =
      count == "]" ? static_cast<std::size_t>(type == "f32" ? n / 2 : n / 4) : std::stoul(count);
  std::vector<Reg> regs;
  for (std::size_t i = 0; i < size; ++i) regs.push_back(reg(type, 16 * slot + i));
  return Operand(regs);
}

Operand constant(const OperandKind& kind, const std::string& opcode, bool last, bool high) {
  if (kind.ranged) return Operand(static_cast<std::int64_t>(high ? kind.high : kind.low));
  if (last && opcode.find("L2::cache_hint") != std::string::npos)
    return gen::hex(0x14F0000000000000);
  return Operand(high ? 31 : 1);
}

// `variant` picks the far end of a constant's range and a non-zero offset of an address.
Operand sample_operand(const OperandKind& kind, const std::string& opcode, std::size_t slot,
                       bool last, int n, bool variant) {
  const std::string& k = kind.base;
  std::int64_t offset = variant ? kind.alignment : 0;
  if (k.back() == ']') return list(kind, slot, n);
  if (k == "imm") return constant(kind, opcode, last, variant);
  if (k == "fimm") return gen::f32_imm(variant ? 0.5f : 1.0f);
  if (k == "spec") return gen::special("tid.x");
  if (k == "spec64") return gen::special("clock64");
  if (k == "smem") return gen::address(reg("b32", slot), offset);
  if (k == "gmem" || k == "mem") return gen::address(reg("b64", slot), offset);
  if (k == "map") return gen::address(reg("b64", slot));
  if (k == "pmem") return gen::address(gen::symbol("param"), offset);
  if (k == "sym") return gen::symbol("buffer");
  if (k == "label") return gen::symbol("$END");
  if (k == "sink") return gen::sink();
  if (k == "pair") {
    bool two_predicates = opcode.rfind("setp", 0) == 0;
    Operand first = two_predicates ? Operand(reg("pred", 9)) : Operand(reg("b32", slot));
    return gen::pred_pair(variant && opcode == "elect.sync" ? gen::sink() : first, reg("pred", 8));
  }
  if (k == "tensor") {
    std::vector<Operand> coordinates;
    for (int i = 0; i < tensor_rank(opcode); ++i)
      coordinates.push_back(
          i == 1 && variant ? Operand(-8) : Operand(reg("b32", 20 + static_cast<std::size_t>(i))));
    return gen::tensor_address(reg("b64", slot), coordinates);
  }
  return reg(k, slot);
}

void add_variants(const gen::Form& form, const std::string& opcode, int n, bool all,
                  std::vector<Sample>* out) {
  int optional = 0;
  auto kinds = gen::operand_kinds(form, &optional);
  auto make = [&](std::size_t slot, std::size_t choice, bool variant, std::size_t count) {
    std::vector<Operand> operands;
    for (std::size_t i = 0; i < count; ++i)
      operands.push_back(sample_operand(kinds[i][i == slot ? choice : 0], opcode, i,
                                        i + 1 == kinds.size(), n, i == slot && variant));
    return operands;
  };
  std::size_t required = kinds.size() - static_cast<std::size_t>(optional);
  out->push_back({&form, opcode, make(0, 0, false, required), true});
  if (!all) return;
  for (std::size_t count = required + 1; count <= kinds.size(); ++count)
    out->push_back({&form, opcode, make(0, 0, false, count), false});
  for (std::size_t slot = 0; slot < kinds.size(); ++slot)
    for (std::size_t choice = 0; choice < kinds[slot].size(); ++choice)
      for (bool variant : {false, true})
        out->push_back(
            {&form, opcode, make(slot, choice, variant, std::max(slot + 1, required)), false});
}

}  // namespace

std::string Sample::text() const {
  std::string line = opcode;
  for (const char* leaves : {"ret", "exit", "trap", "bra", "brkpt"})
    if (opcode.rfind(leaves, 0) == 0 && opcode.find("brev") != 0) line = "@%p15 " + opcode;
  for (std::size_t i = 0; i < operands.size(); ++i) line += (i ? ", " : " ") + operands[i].text;
  return line + ";";
}

std::vector<Sample> samples(const gen::Form& form) {
  std::vector<Sample> out;
  bool first = true;
  for (const std::string& spelling : gen::spellings(form)) {
    auto at = spelling.find("<N>");
    if (at == std::string::npos) {
      add_variants(form, spelling, 0, first, &out);
    } else {
      for (int n = 8; n <= 256; n += 8)
        add_variants(form, spelling.substr(0, at) + std::to_string(n) + spelling.substr(at + 3), n,
                     first && n == 64, &out);
    }
    first = false;
  }
  return out;
}

std::vector<Sample> all_samples() {
  std::vector<Sample> out;
  for (const gen::Form& form : gen::forms()) {
    std::vector<Sample> some = samples(form);
    out.insert(out.end(), some.begin(), some.end());
  }
  return out;
}

SampleModule sample_module(const std::vector<Sample>& samples, int ptx_version, bool sm90a) {
  constexpr std::size_t kPerEntry = 100;  // ptxas takes more than linear time in an entry's length
  SampleModule m;
  m.sample_of_line.push_back(-1);
  auto line = [&m](const std::string& text, long sample = -1) {
    m.text += text + "\n";
    m.sample_of_line.push_back(sample);
  };
  line(".version " + std::to_string(ptx_version / 10) + "." + std::to_string(ptx_version % 10));
  line(std::string(".target sm_90") + (sm90a ? "a" : ""));
  line(".address_size 64");
  line(".extern .shared .align 1024 .b8 buffer[];");
  for (std::size_t from = 0; from < samples.size(); from += kPerEntry) {
    line(".visible .entry samples_" + std::to_string(from) + "(.param .align 64 .b8 param[128])");
    line(".reqntid 128");
    line(".minnctapersm 1");
    line("{");
    line(
        ".reg .pred %p<16>;  .reg .b16 %h<96>;  .reg .b32 %r<96>;  .reg .b64 %d<96>;  .reg .f32 "
        "%f<160>;");
    for (std::size_t i = from; i < std::min(from + kPerEntry, samples.size()); ++i)
      line(samples[i].text(), static_cast<long>(i));
    line("$END:");
    line("ret;");
    line("}");
  }
  return m;
}

}  // namespace flashptx::test
