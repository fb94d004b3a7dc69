// The command line's options without CLI11's header, which costs five seconds in every file that includes it.
//
// A thin face of the part of CLI11 that the subcommands use, with its names. Next: args.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace flashptx {

struct Check {
  enum class Kind { words, range, existing_file, existing_folder } kind;
  std::vector<std::string> words = {};
  double low = 0, high = 0;
};
inline Check one_of(std::vector<std::string> words) { return {Check::Kind::words, std::move(words)}; }
inline Check range(double low, double high) { return {Check::Kind::range, {}, low, high}; }
inline Check existing_file() { return {Check::Kind::existing_file}; }
inline Check existing_folder() { return {Check::Kind::existing_folder}; }

// The whole text into a file, or the end: exit_usage and a sentence with the path and the system's reason.
void write_file(const std::string& path, const std::string& text);

class Option {
 public:
  explicit Option(void* inner) : inner_(inner) {}
  Option* check(const Check& check);
  Option* capture_default_str();  // the help shows the default
  Option* delimiter(char c);
  Option* required();

 private:
  void* inner_;  // CLI::Option
};

class Command {
 public:
  Command(const std::string& about, const std::string& name);  // the program
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  Command* add_subcommand(const std::string& name, const std::string& about);
  // Called when the subcommand was chosen and its options are read.
  void callback(std::function<void()> body);
  // Shown below the help of this command, and below that (and the footer) of every subcommand so far.
  void footer(const std::string& text);

  // "name" is positional, "-o,--output" an option.
  Option* add_option(const std::string& names, std::string& value, const std::string& help = "");
  Option* add_option(const std::string& names, int& value, const std::string& help = "");
  Option* add_option(const std::string& names, std::int64_t& value, const std::string& help = "");
  Option* add_option(const std::string& names, std::uint64_t& value, const std::string& help = "");
  Option* add_option(const std::string& names, double& value, const std::string& help = "");
  Option* add_option(const std::string& names, std::vector<std::string>& value, const std::string& help = "");
  Option* add_option(const std::string& names, std::vector<int>& value, const std::string& help = "");
  Option* add_option(const std::string& names, std::vector<std::int64_t>& value, const std::string& help = "");
  // "--yes,!--no": the name behind ! sets false.
  Option* add_flag(const std::string& names, bool& value, const std::string& help = "");

  // Reads the line and runs the subcommand. Returns the process's exit code: help is 0, an error 2, leave() its own.
  int run(int argc, char** argv);

 private:
  struct Inner;
  explicit Command(std::unique_ptr<Inner> inner);
  template <class T>
  Option* option(const std::string& names, T& value, const std::string& help);
  std::unique_ptr<Inner> inner_;
};

}  // namespace flashptx
