// A schedule as a small text: what somebody writes who wants an order of their own.
//
//   schedule early            # the name that the kernel's name will carry: a letter, then letters
//   and digits about V is freed later token_wait qk pv lag 1                  # or: pv -1
//   ...
// One step a line, in the words of gen/schedule/schedule.h. Next: gen/schedule/checker.cpp (what is
// refused).
#pragma once

#include <string>

#include "gen/schedule/schedule.h"

namespace flashptx {

// Reads and checks. On failure `error` starts with "file:line: ", holds the checker's sentence and,
// where the order is wrong, the drawn table. `file` is only a word for messages.
bool parse_schedule(const std::string& text, const std::string& file, Schedule* out,
                    std::string* error);

// The canonical text: parse_schedule gives the same schedule back.
std::string print_schedule(const Schedule& schedule);

}  // namespace flashptx
