// A JSON value to be written: built as braces show it, keys in the order in which they came.
//
//   Json j{{"device", name}, {"rows", Json::array()}};  j["rows"].push_back({{"ok", true}, {"ms", 0.25}});
//
// Ours, because the usual header costs ten seconds in the files that print; the tests read the output back with
// that one. Next: json.cpp.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace flashptx {

class Json {
 public:
  Json() = default;  // null
  Json(std::nullptr_t) {}
  Json(const char* s) : kind_(Kind::text), text_(s) {}
  Json(std::string s) : kind_(Kind::text), text_(std::move(s)) {}
  Json(std::same_as<bool> auto b) : kind_(Kind::literal), text_(b ? "true" : "false") {}
  Json(std::integral auto i) requires(!std::same_as<decltype(i), bool>) : kind_(Kind::literal), text_(std::to_string(i)) {}
  Json(std::floating_point auto d) : Json(number(d)) {}
  template <class T>
  Json(const std::vector<T>& values) : kind_(Kind::array) {
    for (const auto& v : values) items_.emplace_back("", Json(v));
  }
  // An object if every element is a pair that begins with a text, else an array.
  Json(std::initializer_list<Json> elements);

  static Json array(std::initializer_list<Json> elements = {});
  static Json object();

  void push_back(Json element);               // null becomes an array
  Json& operator[](const std::string& key);   // null becomes an object; a new key is null
  void update(const Json& other);             // every key of an object

  // With `indent` spaces a level, an element a line; numbers as short as read back the same; NaN and infinities null.
  std::string dump(int indent) const;

 private:
  enum class Kind { literal, text, array, object };
  static Json number(double d);
  void write(std::string* out, int indent, int depth) const;

  Kind kind_ = Kind::literal;
  std::string text_ = "null";                         // a literal as it is written, a text as it is meant
  std::vector<std::pair<std::string, Json>> items_;  // of an array without keys
};

}  // namespace flashptx
