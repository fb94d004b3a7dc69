// The one file that includes <regex>. Next: pattern.h.
#include "tools/flashptx/pattern.h"

#include <regex>

namespace flashptx {

struct Pattern::Inner {
  std::regex regex;
};

Pattern::Pattern(const std::string& text) : inner_(std::make_shared<Inner>(Inner{std::regex(text)})) {}

namespace {

Match taken(const std::smatch& m) {
  Match found;
  for (std::size_t i = 0; i < m.size(); ++i) {
    found.groups.push_back(m[i].str());
    found.positions.push_back(static_cast<std::size_t>(m.position(i)));
  }
  return found;
}

}  // namespace

bool Pattern::search(const std::string& in, Match* found) const {
  std::smatch m;
  if (!std::regex_search(in, m, inner_->regex)) return false;
  if (found != nullptr) *found = taken(m);
  return true;
}

bool Pattern::matches(const std::string& in, Match* found) const {
  std::smatch m;
  if (!std::regex_match(in, m, inner_->regex)) return false;
  if (found != nullptr) *found = taken(m);
  return true;
}

std::vector<Match> Pattern::all(const std::string& in) const {
  std::vector<Match> out;
  for (std::sregex_iterator i(in.begin(), in.end(), inner_->regex), end; i != end; ++i) out.push_back(taken(*i));
  return out;
}

std::string Pattern::replaced(const std::string& in, const std::string& by) const {
  return std::regex_replace(in, inner_->regex, by);
}

}  // namespace flashptx
