// See chain_options.h.
#include "tools/flashptx/chain_options.h"

#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"
#include "tools/reference/numeric.h"

namespace flashptx {

void add_chain_options(Command& app, ChainOptions& o) {
  app.add_option("--scales", o.scales,
                 "e4m3, e5m2: the inputs are 16 bits wide, quantised on the device with a scale for each of these; the\n"
                 "result is compared with float64 attention of the 16-bit inputs. Default with the options below: head")
      ->check(one_of({"tensor", "head", "block"}));
  app.add_option("--block-rows", o.block_rows, "--scales block: rows that share a scale; default: 128")
      ->check(range(1, 2147483647));
  app.add_flag("--hadamard", o.hadamard, "e4m3, e5m2: as --scales, with random signs and Hadamard on Q and K");
  app.add_flag("--hadamard-v", o.hadamard_v, "The same on V; O is turned back");
  app.add_option("--rope", o.rope, "e4m3, e5m2: as --scales, with RoPE on Q and K in front")
      ->check(one_of({"none", "interleaved", "half"}))
      ->capture_default_str();
  app.add_option("--signs-seed", o.signs_seed, "Of Hadamard's signs")->capture_default_str();
  app.add_option("--from", o.from, "Type of the 16-bit inputs, and of O")
      ->check(one_of({"bf16", "f16"}))
      ->capture_default_str();
}

Fp8Options fp8_from(const ChainOptions& o, reference::Problem* shape) {
  if (!shape->eight_bit())
    leave(exit_usage, std::string("--scales, --block-rows, --hadamard, --hadamard-v and --rope are for --dtype e4m3 or e5m2, not ") +
                          to_string(shape->dtype));
  if (o.block_rows != 0 && o.scales != "block") leave(exit_usage, "--block-rows is for --scales block");
  Fp8Options f;
  f.dtype = shape->dtype, f.dtype_k = shape->dtype_k, f.dtype_v = shape->dtype_v;
  f.scale_kind = o.scales == "tensor" ? ScaleKind::tensor : o.scales == "block" ? ScaleKind::block : ScaleKind::head;
  f.block_rows = f.scale_kind == ScaleKind::block ? (o.block_rows == 0 ? 128 : o.block_rows) : 0;
  f.hadamard = o.hadamard, f.hadamard_v = o.hadamard_v;
  f.seed = static_cast<std::uint32_t>(o.signs_seed);
  f.rope = o.rope == "half" ? Rope::half : o.rope == "interleaved" ? Rope::interleaved : Rope::none;
  shape->dtype = o.from == "f16" ? DataType::f16 : DataType::bf16;
  shape->dtype_k = shape->dtype_v = {};
  return f;
}

std::string describe(const Fp8Options& o) {
  std::string s = to_string(o.dtype, o.type_k(), o.type_v());
  s += o.scale_kind == ScaleKind::tensor ? ", a scale a tensor"
       : o.scale_kind == ScaleKind::head ? ", a scale a head"
                                         : ", a scale each " + std::to_string(o.block_rows == 0 ? 128 : o.block_rows) + " rows";
  if (o.rope != Rope::none) s += o.rope == Rope::half ? ", rope half" : ", rope interleaved";
  if (o.hadamard) s += ", hadamard on Q, K";
  if (o.hadamard_v) s += o.hadamard ? ", V" : ", hadamard on V";
  if (o.fast) s += ", fast";
  return s;
}

}  // namespace flashptx
