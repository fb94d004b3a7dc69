// Regular expressions without <regex>, which costs three seconds in every file that includes it.
//
// A thin face of std::regex (ECMAScript's grammar), for the reader of machine code and for tests. Next: pattern.cpp.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace flashptx {

// What a pattern found: group 0 is all of it. A group that took no part is empty.
struct Match {
  std::vector<std::string> groups;
  std::vector<std::size_t> positions;
  const std::string& operator[](std::size_t group) const { return groups[group]; }
};

class Pattern {
 public:
  Pattern(const std::string& text);  // throws std::exception where the text is no regular expression
  bool search(const std::string& in, Match* found = nullptr) const;   // somewhere in it: the first place
  bool matches(const std::string& in, Match* found = nullptr) const;  // all of it
  std::vector<Match> all(const std::string& in) const;
  std::string replaced(const std::string& in, const std::string& by) const;  // every place

 private:
  struct Inner;
  std::shared_ptr<const Inner> inner_;
};

}  // namespace flashptx
