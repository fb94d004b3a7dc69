// Small texts: printf into a string, a field of CSV. Next: statistics.h (figures worth printing).
#pragma once

#include <cstdio>
#include <string>

namespace flashptx {

template <class... T>
std::string format(const char* form, T... values) {
  const int n = std::snprintf(nullptr, 0, form, values...);
  std::string s(static_cast<std::size_t>(n) + 1, '\0');
  std::snprintf(s.data(), s.size(), form, values...);
  s.pop_back();
  return s;
}

inline std::string csv_quoted(std::string s) {
  for (char& c : s)
    if (c == '"' || c == '\n') c = '\'';
  return "\"" + s + "\"";
}

}  // namespace flashptx
