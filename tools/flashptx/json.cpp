// See json.h; RFC 8259 is the format. Next: catalog_json.cpp.
#include "tools/flashptx/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace flashptx {
namespace {

void write_text(std::string* out, const std::string& s) {
  *out += '"';
  for (char c : s) {
    char code[8];
    if (c == '"' || c == '\\') *out += '\\', *out += c;
    else if (c == '\n') *out += "\\n";
    else if (static_cast<unsigned char>(c) >= 0x20) *out += c;
    else std::snprintf(code, sizeof code, "\\u%04x", c), *out += code;
  }
  *out += '"';
}

}  // namespace

Json Json::number(double d) {
  if (!std::isfinite(d)) return {};
  char text[32];
  Json j;
  j.text_.assign(text, std::to_chars(text, text + sizeof text, d).ptr);
  if (j.text_.find_first_of(".e") == std::string::npos) j.text_ += ".0";
  return j;
}

Json::Json(std::initializer_list<Json> elements) {
  const bool pairs = std::all_of(elements.begin(), elements.end(), [](const Json& e) {
    return e.kind_ == Kind::array && e.items_.size() == 2 && e.items_[0].second.kind_ == Kind::text;
  });
  if (!pairs) *this = array(elements);
  else {
    *this = object();
    for (const Json& e : elements) items_.emplace_back(e.items_[0].second.text_, e.items_[1].second);
  }
}

Json Json::array(std::initializer_list<Json> elements) {
  Json j;
  j.kind_ = Kind::array;
  for (const Json& e : elements) j.items_.emplace_back("", e);
  return j;
}

Json Json::object() {
  Json j;
  j.kind_ = Kind::object;
  return j;
}

void Json::push_back(Json element) {
  kind_ = Kind::array;
  items_.emplace_back("", std::move(element));
}

Json& Json::operator[](const std::string& key) {
  kind_ = Kind::object;
  for (auto& [name, value] : items_)
    if (name == key) return value;
  return items_.emplace_back(key, Json()).second;
}

void Json::update(const Json& other) {
  for (const auto& [name, value] : other.items_) (*this)[name] = value;
}

void Json::write(std::string* out, int indent, int depth) const {
  if (kind_ == Kind::literal) *out += text_;
  else if (kind_ == Kind::text) write_text(out, text_);
  else {
    const bool object = kind_ == Kind::object;
    const auto line = [&](int d) { *out += '\n', out->append(static_cast<std::size_t>(indent * d), ' '); };
    *out += object ? '{' : '[';
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (i > 0) *out += ',';
      line(depth + 1);
      if (object) write_text(out, items_[i].first), *out += ": ";
      items_[i].second.write(out, indent, depth + 1);
    }
    if (!items_.empty()) line(depth);
    *out += object ? '}' : ']';
  }
}

std::string Json::dump(int indent) const {
  std::string out;
  write(&out, indent, 0);
  return out;
}

}  // namespace flashptx
