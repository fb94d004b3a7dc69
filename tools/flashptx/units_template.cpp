// See units_template.h.
#include "tools/flashptx/units_template.h"

#include <cctype>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace flashptx::units {

namespace {

// sum = product {+- product}; product = atom {*/% atom}; atom = number | name | (sum)
class Parser {
 public:
  Parser(const std::string& text, const Values& values) : text_(text), values_(values) {}
  bool parse(long* result) {
    *result = sum();
    skip();
    return ok_ && at_ == text_.size();
  }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  long sum() {
    long v = product();
    for (;;) {
      if (take('+')) v += product();
      else if (take('-')) v -= product();
      else return v;
    }
  }
  long product() {
    long v = atom();
    for (;;) {
      if (take('*')) v *= atom();
      else if (take('/')) v = divide(v, atom());
      else if (take('%')) v = remainder(v, atom());
      else return v;
      if (!ok_) return 0;
    }
  }
  long divide(long a, long b) {
    if (b == 0) ok_ = false;
    return ok_ ? a / b : 0;
  }
  long remainder(long a, long b) { return a - divide(a, b) * b; }
  long atom() {
    skip();
    if (take('(')) {
      const long v = sum();
      ok_ = take(')') && ok_;
      return v;
    }
    std::string word;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
      word += text_[at_++];
    if (word.empty()) return ok_ = false;
    const auto named = values_.find(word);
    const std::string digits = named == values_.end() ? word : named->second;
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos)
      return ok_ = false;
    return std::stol(digits);
  }

  const std::string& text_;
  const Values& values_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

std::string list_of(const std::string& inner, const Values& values, bool* known) {
  const auto space = inner.find(' ', 5);
  long count = 0;
  *known = space != std::string::npos && evaluate(inner.substr(space + 1), values, &count);
  std::string s;
  for (long i = 0; i < count; ++i)
    s += (i ? ", " : "") + inner.substr(5, space - 5) + std::to_string(i);
  return s;
}

std::string substitute(const std::string& line, const Values& values, int depth = 0) {
  std::string out;
  for (std::size_t at = 0; at < line.size();) {
    const auto close = line[at] == '<' ? line.find('>', at) : std::string::npos;
    if (close == std::string::npos ||
        line.find('<', at + 1) < close) {  // %x<<N/2>>: the inner pair is ours
      out += line[at++];
      continue;
    }
    const std::string inner = line.substr(at + 1, close - at - 1);
    long number = 0;
    bool known = true;
    std::string value;
    if (const auto named = values.find(inner); named != values.end())
      value = depth < 4 ? substitute(named->second, values, depth + 1) : named->second;
    else if (inner.rfind("list ", 0) == 0) value = list_of(inner, values, &known);
    else if (inner.find_first_not_of("0123456789") != std::string::npos &&
             evaluate(inner, values, &number))
      value = std::to_string(number);
    else known = false;
    out += known ? value : line.substr(at, close - at + 1);
    at = close + 1;
  }
  return out;
}

struct Lines {
  std::vector<std::string> text;
  std::size_t at = 0;
};

[[noreturn]] void fail(const Lines& lines, const std::string& what) {
  throw std::runtime_error("template line " + std::to_string(lines.at) + ": " + what);
}

std::string trimmed(const std::string& s) {
  const auto a = s.find_first_not_of(" \t");
  return a == std::string::npos ? "" : s.substr(a);
}

// Copies lines until the `//: end` of this level (or the end of the text at level 0).
void copy(Lines& lines, Values& values, bool keep, int level, std::string* out) {
  while (lines.at < lines.text.size()) {
    const std::string line = lines.text[lines.at++], t = trimmed(line);
    std::istringstream words(t.rfind("//:", 0) == 0 ? t.substr(3) : "");
    std::string verb, name, rest;
    words >> verb >> name;
    std::getline(words, rest);
    if (verb == "end") {
      if (level == 0) fail(lines, "end without a beginning");
      return;
    } else if (verb == "repeat") {
      long count = 0;
      if (keep && !evaluate(rest, values, &count)) fail(lines, "no count: " + rest);
      const std::size_t body = lines.at;
      const Values before = values;
      if (count == 0) copy(lines, values, false, level + 1, out);
      for (long i = 0; i < count; ++i) {
        lines.at = body;
        values[name] = std::to_string(i);
        copy(lines, values, keep, level + 1, out);
      }
      values = before;
    } else if (verb == "if") {
      const bool negated = name[0] == '!';
      const auto value = values.find(name.substr(negated));
      if (value == values.end() && keep) fail(lines, "unknown name: " + name);
      const bool on = value != values.end() && value->second != "0" && !value->second.empty();
      copy(lines, values, keep && on != negated, level + 1, out);
    } else if (keep) {
      *out += substitute(line, values) + "\n";
    }
  }
  if (level > 0) fail(lines, "a block is not closed");
}

}  // namespace

bool evaluate(const std::string& expression, const Values& values, long* result) {
  return Parser(expression, values).parse(result);
}

std::string expand(const std::string& text, const Values& values) {
  Lines lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.text.push_back(line);
  Values scope = values;
  std::string out;
  copy(lines, scope, true, 0, &out);
  return out;
}

}  // namespace flashptx::units
