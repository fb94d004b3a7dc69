// Floating-point arithmetic behind opcodes that also take integers. Next: ops_float.cpp.
#pragma once

#include "host/emulator/decode.h"

namespace flashptx::emulator {

enum class FloatOp : std::uint8_t {
  add,
  sub,
  mul,
  fma,
  div,
  min,
  max,
  abs,
  neg,
  rcp,
  sqrt,
  rsqrt,
  ex2,
  lg2,
  sin,
  cos,
  tanh
};

// False, with nothing taken, when the instruction has no floating-point type.
bool decode_float_arithmetic(OpDecoder& op, FloatOp what);

}  // namespace flashptx::emulator
