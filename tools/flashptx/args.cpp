// The one file that includes CLI11; and how a subcommand ends early. Next: args.h.
#include "tools/flashptx/args.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <limits>
#include <list>
#include <new>
#include <sstream>
#include <stdexcept>
#include <type_traits>

#include "tools/flashptx/commands.h"

namespace flashptx {
namespace {

template <class T>
std::string beyond(const std::string& text) {
  return text + " is beyond " + std::to_string(8 * sizeof(T)) + " bits";
}

// CLI11 2.1 reads numbers with strtoull and its kin and takes what those make of it: 2^64 becomes 2^64 - 1, "-1"
// and "" an unsigned number, "nan" passes every range. An empty text is most often a shell variable that is not set.
// Why `text` cannot be a T; empty if it can.
template <class T>
std::string unreadable(const std::string& text) {
  if (text.empty()) return "wants a value, got nothing";
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(std::strtod(text.c_str(), nullptr))) return text + " is no number";
  } else if constexpr (std::is_unsigned_v<T>) {
    if (text.find('-') != std::string::npos) return text + " must not be negative";
    errno = 0;
    const unsigned long long value = std::strtoull(text.c_str(), nullptr, 0);
    if (errno == ERANGE || value > std::numeric_limits<T>::max()) return beyond<T>(text);
  } else if constexpr (std::is_integral_v<T>) {
    errno = 0;
    const long long value = std::strtoll(text.c_str(), nullptr, 0);
    if (errno == ERANGE || value != static_cast<T>(value)) return beyond<T>(text);
  }
  return "";
}

template <class T>
struct ElementOf {
  using type = T;
};
template <class T>
struct ElementOf<std::vector<T>> {
  using type = T;
};

// Thrown by leave(); no std::exception, so that no subcommand catches it by accident.
struct Leave {
  ExitCode code;
};

}  // namespace

void leave(ExitCode code, const std::string& sentence) {
  if (!sentence.empty()) std::cerr << "flashptx: " << sentence << "\n";
  throw Leave{code};
}

void write_file(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream out(path, std::ios::binary);
  if (!out.write(text.data(), static_cast<std::streamsize>(text.size())) || !out.flush())
    leave(exit_usage, "cannot write " + path + (errno != 0 ? std::string(": ") + std::strerror(errno) : ""));
}

struct Command::Inner {
  std::unique_ptr<CLI::App> owned;  // of the program; subcommands belong to it
  CLI::App* app = nullptr;
  std::list<Option> options;
  std::list<std::unique_ptr<Command>> subcommands;
};

namespace {

// CLI11's own range prints its limits as floating point.
CLI::Validator in_range(double low, double high) {
  std::ostringstream limits;
  limits << std::setprecision(12) << low << " to " << high;
  return CLI::Validator(
      [low, high, wanted = limits.str()](std::string& typed) {
        char* end = nullptr;
        const double value = std::strtod(typed.c_str(), &end);
        const bool whole = !typed.empty() && *end == 0;
        return whole && value >= low && value <= high ? std::string() : "wanted " + wanted + ", got " + typed;
      },
      limits.str());
}

}  // namespace

Option* Option::check(const Check& c) {
  auto* option = static_cast<CLI::Option*>(inner_);
  switch (c.kind) {
    case Check::Kind::words: option->check(CLI::IsMember(c.words)); break;
    case Check::Kind::range: option->check(in_range(c.low, c.high)); break;
    case Check::Kind::existing_file: option->check(CLI::ExistingFile); break;
    case Check::Kind::existing_folder: option->check(CLI::ExistingDirectory); break;
  }
  return this;
}

Option* Option::capture_default_str() {
  static_cast<CLI::Option*>(inner_)->capture_default_str();
  return this;
}

Option* Option::delimiter(char c) {
  static_cast<CLI::Option*>(inner_)->delimiter(c);
  return this;
}

Option* Option::required() {
  static_cast<CLI::Option*>(inner_)->required();
  return this;
}

Command::Command(const std::string& about, const std::string& name) : inner_(std::make_unique<Inner>()) {
  inner_->owned = std::make_unique<CLI::App>(about, name);
  inner_->app = inner_->owned.get();
  inner_->app->require_subcommand(1);
}

Command::Command(std::unique_ptr<Inner> inner) : inner_(std::move(inner)) {}
Command::~Command() = default;

Command* Command::add_subcommand(const std::string& name, const std::string& about) {
  auto inner = std::make_unique<Inner>();
  inner->app = inner_->app->add_subcommand(name, about);
  inner_->subcommands.emplace_back(new Command(std::move(inner)));
  return inner_->subcommands.back().get();
}

void Command::callback(std::function<void()> body) { inner_->app->callback(std::move(body)); }

void Command::footer(const std::string& text) {
  inner_->app->footer(text);
  for (auto& sub : inner_->subcommands) {
    const std::string own = sub->inner_->app->get_footer();
    sub->footer(own.empty() ? text : own + "\n" + text);
  }
}

template <class T>
Option* Command::option(const std::string& names, T& value, const std::string& help) {
  CLI::Option* added = inner_->app->add_option(names, value, help);
  added->check(CLI::Validator(unreadable<typename ElementOf<T>::type>, "", "readable"));
  inner_->options.emplace_back(added);
  return &inner_->options.back();
}

#define FLASHPTX_OPTION(Type)                                                                   \
  Option* Command::add_option(const std::string& names, Type& value, const std::string& help) { \
    return option(names, value, help);                                                          \
  }
FLASHPTX_OPTION(std::string)
FLASHPTX_OPTION(int)
FLASHPTX_OPTION(std::int64_t)
FLASHPTX_OPTION(std::uint64_t)
FLASHPTX_OPTION(double)
FLASHPTX_OPTION(std::vector<std::string>)
FLASHPTX_OPTION(std::vector<int>)
FLASHPTX_OPTION(std::vector<std::int64_t>)
#undef FLASHPTX_OPTION

Option* Command::add_flag(const std::string& names, bool& value, const std::string& help) {
  inner_->options.emplace_back(inner_->app->add_flag(names, value, help));
  return &inner_->options.back();
}

int Command::run(int argc, char** argv) {
  try {
    inner_->app->parse(argc, argv);
  } catch (const Leave& e) {
    return e.code;
  } catch (const CLI::ParseError& e) {
    return inner_->app->exit(e) == 0 ? exit_ok : exit_usage;
  } catch (const std::bad_alloc&) {
    std::cerr << "flashptx: out of memory: the sizes asked for need more than this machine has\n";
    return exit_usage;
  } catch (const std::length_error&) {
    std::cerr << "flashptx: out of memory: the sizes asked for are beyond any machine's\n";
    return exit_usage;
  } catch (const std::filesystem::filesystem_error& e) {
    std::cerr << "flashptx: " << e.path1().string() << ": " << e.code().message() << "\n";
    return exit_usage;
  } catch (const std::exception& e) {  // gen::Error and the like: one sentence that says where
    std::cerr << "flashptx: " << e.what() << "\n";
    return exit_usage;
  }
  return exit_ok;
}

}  // namespace flashptx
