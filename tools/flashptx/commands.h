// The subcommands of `flashptx` and what their exit codes mean.
//
// A file tools/flashptx/NAME_command.cpp holds the options of one subcommand and its prose; what it does lives in
// files beside it that know no command line, so that the tests can call them. Next: main.cpp.
#pragma once

#include <string>

namespace flashptx {

class Command;

enum ExitCode { exit_ok = 0, exit_mismatch = 1, exit_usage = 2, exit_no_device = 3, exit_interrupted = 130 };
constexpr const char* exit_code_help =
    "Exit codes: 0 all well; 1 a wrong result, a fault or an error while running; 2 the command line or the\n"
    "problem asked for cannot be; 3 no device of the kind asked for; 130 ended by Ctrl-C.";

void add_list(Command& app);
void add_emit(Command& app);
void add_run(Command& app);
void add_demo(Command& app);
void add_bench(Command& app);
void add_probe(Command& app);
void add_golden(Command& app);
void add_fuzz(Command& app);
void add_sass(Command& app);
void add_trace(Command& app);
void add_diff(Command& app);
void add_units(Command& app);
void add_ladder(Command& app);
void add_tune(Command& app);
void add_prepare(Command& app);
void add_accuracy(Command& app);

// Ends a subcommand: thrown by its callback, turned into the process's exit code by main.
[[noreturn]] void leave(ExitCode code, const std::string& sentence);

}  // namespace flashptx
