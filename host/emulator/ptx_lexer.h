// Characters to tokens, with line and column for every message.
//
// PTX words that begin with a dot (directives, types, qualifiers) are one token, `::` included, so
// that an opcode is a name and a run of dot words. Next: ptx_parser.cpp.
#pragma once

#include <string>
#include <vector>

#include "host/emulator/ptx_ast.h"

namespace flashptx::emulator {

struct Token {
  enum class Kind { name, dot_word, number, string, punctuation, end };
  Kind kind = Kind::end;
  std::string text;  // dot_word: without the dot
  Position at;
  bool spaced = true;  // white space or a comment stands before it
};

std::vector<Token> lex_ptx(const std::string& text, const std::string& file);

}  // namespace flashptx::emulator
