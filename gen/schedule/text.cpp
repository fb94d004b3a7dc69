// Lines to steps, steps to lines. Next: text.h for the format.
#include "gen/schedule/text.h"

#include <algorithm>
#include <sstream>

namespace flashptx {
namespace {

constexpr std::size_t kMostSteps = 2 * kDoCount;  // beyond that no table is worth drawing
constexpr std::size_t kLongestName = 24;  // it is a part of the kernel's name, which profilers cut

std::string trimmed(const std::string& s) {
  std::size_t from = s.find_first_not_of(" \t\r"), to = s.find_last_not_of(" \t\r");
  return from == std::string::npos ? "" : s.substr(from, to - from + 1);
}

// What stood in the file, fit for a terminal: unprintable bytes as '?', no longer than a line.
std::string shown(const std::string& text) {
  std::string out = text.substr(0, 40);
  for (char& c : out)
    if (c < ' ' || c > '~') c = '?';
  return "\"" + out + (text.size() > 40 ? "...\"" : "\"");
}

bool known_step(const std::string& word, Do* out) {
  for (int i = 0; i < kDoCount; ++i)
    if (word == to_string(static_cast<Do>(i))) {
      *out = static_cast<Do>(i);
      return true;
    }
  return false;
}

std::string all_steps() {
  std::string out;
  for (int i = 0; i < kDoCount; ++i)
    out += std::string(i ? ", " : "") + to_string(static_cast<Do>(i));
  return out;
}

std::string name_complaint(const std::string& name) {
  auto letter = [](char c) { return c >= 'a' && c <= 'z'; };
  auto digit = [](char c) { return c >= '0' && c <= '9'; };
  bool good = !name.empty() && name.size() <= kLongestName && letter(name[0]) &&
              std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || digit(c); });
  return good ? ""
              : "schedule name " + shown(name) +
                    " must be a letter and then letters or digits, lower case, at most " +
                    std::to_string(kLongestName) + " (it becomes a part of the kernel's name)";
}

// Reads line after line; `lines` remembers where each step stood.
struct Reader {
  Schedule schedule;
  std::vector<int> lines;
  std::string complaint;

  void step(const std::string& word, const std::string& rest) {
    Step s{Do::qk, 0};
    if (!known_step(word, &s.what)) {
      complaint = shown(word) + " is no step; the steps are " + all_steps();
      return;
    }
    std::istringstream words(rest);
    std::string first, second, more;
    words >> first >> second >> more;
    std::string lag = first == "lag" ? second : first;
    bool form =
        rest.empty() ||
        (more.empty() && (first == "lag" ? !second.empty() : second.empty() && first[0] == '-'));
    if (form && !rest.empty()) {
      if (first != "lag") lag = lag.substr(1);
      form = lag.size() == 1 && lag[0] >= '0' && lag[0] <= '9';
      if (form) s.lag = lag[0] - '0';
    }
    if (!form) {
      complaint =
          shown(rest) + " behind " + word + " is no lag; wanted nothing, \"-1\" or \"lag 1\"";
      return;
    }
    if (schedule.steps.size() >= kMostSteps) {
      complaint = "more than " + std::to_string(kMostSteps) + " steps; a trip has " + std::to_string(kDoCount);
      return;
    }
    schedule.steps.push_back(s);
  }

  void line(const std::string& text, int number) {
    std::size_t end = text.find_first_of(" \t");
    std::string word = text.substr(0, end),
                rest = end == std::string::npos ? "" : trimmed(text.substr(end));
    if (word == "schedule") {
      complaint = schedule.name.empty() ? name_complaint(rest)
                                        : "a second \"schedule\" line; one file is one schedule";
      schedule.name = rest;
    } else if (word == "about") {
      if (!schedule.about.empty()) complaint = "a second \"about\" line";
      schedule.about = rest;
    } else {
      step(word, rest);
      lines.push_back(number);
    }
  }
};

bool same_steps(const Schedule& a, const Schedule& b) {
  return std::equal(
      a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(),
      [](const Step& x, const Step& y) { return x.what == y.what && x.lag == y.lag; });
}

}  // namespace

bool parse_schedule(const std::string& text, const std::string& file, Schedule* out,
                    std::string* error) {
  Reader reader;
  int number = 0;
  auto refuse = [&](int line, const std::string& why) {
    if (error) *error = file + ":" + std::to_string(line) + ": " + why;
    return false;
  };
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    ++number;
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    reader.line(line, number);
    if (!reader.complaint.empty()) return refuse(number, reader.complaint);
  }
  Schedule& s = reader.schedule;
  if (s.name.empty()) return refuse(1, "no \"schedule NAME\" line");
  const Schedule* built_in = find_forward_schedule(s.name);
  if (built_in && !same_steps(*built_in, s))
    return refuse(1,
                  "schedule \"" + s.name + "\" is built in with other steps; choose another name");
  ScheduleFault fault = find_fault(s);
  if (!fault.sentence.empty()) {
    int line = fault.step >= 0 ? reader.lines[static_cast<std::size_t>(fault.step)] : number;
    return refuse(line, fault.sentence + "\n" + draw(s, 3));
  }
  *out = s;
  return true;
}

std::string print_schedule(const Schedule& schedule) {
  std::string out = "schedule " + schedule.name + "\n";
  if (!schedule.about.empty()) out += "about " + schedule.about + "\n";
  for (const Step& s : schedule.steps)
    out += std::string(to_string(s.what)) + (s.lag ? " lag " + std::to_string(s.lag) : "") + "\n";
  return out;
}

}  // namespace flashptx
