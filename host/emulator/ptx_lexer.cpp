// The lexer of ptx_lexer.h: PTX ISA, "Syntax" (identifiers, numbers, comments).
#include "host/emulator/ptx_lexer.h"

namespace flashptx::emulator {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '$'; }

class Lexer {
 public:
  Lexer(const std::string& text, const std::string& file) : text_(text), file_(file) {}

  std::vector<Token> run() {
    std::vector<Token> out;
    for (;;) {
      bool spaced = skip_space() || out.empty();
      Token t = next();
      t.spaced = spaced;
      out.push_back(t);
      if (t.kind == Token::Kind::end) return out;
    }
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0';
  }
  bool at_end() const { return pos_ >= text_.size(); }
  void step() {
    if (text_[pos_++] == '\n') {
      ++line_;
      column_ = 1;
    } else {
      ++column_;
    }
  }
  Position here() const { return {line_, column_}; }

  bool skip_space() {
    bool any = false;
    while (!at_end()) {
      char c = peek();
      if (c == '\0') throw PtxError(file_, here(), "a zero byte: this is no PTX text");
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v') {
        step();
      } else if (c == '/' && peek(1) == '/') {
        while (!at_end() && peek() != '\n' && peek() != '\0') step();
      } else if (c == '/' && peek(1) == '*') {
        Position start = here();
        step(), step();
        while (!at_end() && !(peek() == '*' && peek(1) == '/')) step();
        if (at_end())
          throw PtxError(file_, start,
                         "expected */ to close this comment, got the end of the text");
        step(), step();
      } else {
        break;
      }
      any = true;
    }
    return any;
  }

  Token next() {
    Token t;
    t.at = here();
    if (at_end()) return t;
    char c = peek();
    if (is_letter(c) || c == '_' || c == '$' || (c == '%' && is_word(peek(1)))) {
      t.kind = Token::Kind::name;
      t.text += c;
      step();
      while (is_word(peek())) t.text += peek(), step();
    } else if (is_digit(c)) {
      number(t);
    } else if (c == '.' && is_word(peek(1))) {
      t.kind = Token::Kind::dot_word;
      step();
      while (is_word(peek()) || (peek() == ':' && peek(1) == ':' && is_word(peek(2)))) {
        if (peek() == ':') t.text += "::", step(), step();
        t.text += peek(), step();
      }
    } else if (c == '"') {
      t.kind = Token::Kind::string;
      step();
      while (!at_end() && peek() != '"' && peek() != '\n') t.text += peek(), step();
      if (peek() != '"') throw PtxError(file_, t.at, "expected \" to close this string");
      step();
    } else if (std::string("{}[]()<>,;:|!+-@=~*/&^").find(c) != std::string::npos) {
      t.kind = Token::Kind::punctuation;
      t.text = c;
      step();
    } else {
      bool printable = c > ' ' && c < 127;
      throw PtxError(
          file_, t.at,
          "expected PTX, got the character " +
              (printable ? "'" + std::string(1, c) + "'"
                         : "with code " + std::to_string(static_cast<unsigned char>(c))));
    }
    return t;
  }

  void number(Token& t) {
    t.kind = Token::Kind::number;
    bool hex = peek() == '0' && (peek(1) == 'x' || peek(1) == 'X' || peek(1) == 'f' ||
                                 peek(1) == 'F' || peek(1) == 'd' || peek(1) == 'D');
    while (is_word(peek())) {
      char c = peek();
      t.text += c;
      step();
      if (!hex && (c == 'e' || c == 'E') && (peek() == '+' || peek() == '-'))
        t.text += peek(), step();
      if (!hex && peek() == '.' && is_digit(peek(1)) && t.text.find('.') == std::string::npos) {
        t.text += '.';
        step();
      }
    }
  }

  const std::string& text_;
  const std::string& file_;
  std::size_t pos_ = 0;
  int line_ = 1, column_ = 1;
};

}  // namespace

std::vector<Token> lex_ptx(const std::string& text, const std::string& file) {
  return Lexer(text, file).run();
}

}  // namespace flashptx::emulator
