// The generator's one exception: where, what, wanted, got.
#pragma once

#include <algorithm>
#include <source_location>
#include <stdexcept>
#include <string>

namespace flashptx::gen {

using Location = std::source_location;

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what) : std::runtime_error(what) {}
  Error(const Location& at, const std::string& what)
      : std::runtime_error(short_name(at) + ": " + what) {}

 private:
  // "gen/kernels/attention_forward.cpp:41", whatever directory the compiler was started in.
  static std::string short_name(const Location& at) {
    std::string file = std::string("/") + at.file_name();
    std::size_t top = std::string::npos;  // tests/gen/x.cpp belongs to tests
    for (const char* folder : {"/gen/", "/host/", "/tests/", "/tools/"})
      top = std::min(top, file.rfind(folder));
    file = file.substr(top == std::string::npos ? 1 : top + 1);
    return file + ":" + std::to_string(at.line());
  }
};

}  // namespace flashptx::gen
