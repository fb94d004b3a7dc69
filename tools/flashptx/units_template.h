// Text substitution for the micro-kernels in ptx/units/*.ptx.in: the smallest language that keeps a
// kernel readable while N, types and unrolling vary. Next: units_list.cpp, which names the values.
//
//   <name>            a value: text, or a number
//   <i*128 + 64>      integer arithmetic over names and numbers: + - * / %
//   <list %d N/2>     %d0, %d1, ... (N/2 of them)
//   //: repeat i 8    repeats the lines up to its `//: end` with i = 0..7; may be nested
//   //: if name       keeps the lines up to `//: end` when the value is not 0; `//: if !name` the
//   opposite
//
// Anything else between < and > stays, so register ranges such as %x<8> need no escape.
#pragma once

#include <map>
#include <string>

namespace flashptx::units {

using Values = std::map<std::string, std::string>;

// Throws std::runtime_error with the line number for an unclosed block or a bad count.
std::string expand(const std::string& text, const Values& values);

// Integer value of an expression; false when it uses an unknown or non-numeric name or is no
// expression.
bool evaluate(const std::string& expression, const Values& values, long* result);

}  // namespace flashptx::units
