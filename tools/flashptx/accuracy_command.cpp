// `flashptx accuracy`: the error of FP8 beside 16 bits, as a table, CSV, JSON and pictures. Next: accuracy.h.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>

#include "tools/flashptx/accuracy.h"
#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/problem_options.h"

namespace flashptx {
namespace {

struct AccuracyOptions {
  ProblemOptions device;  // only --device and --ordinal
  std::vector<std::string> tests = {"outliers", "constant", "needle"};
  std::vector<std::int64_t> seqlens, constant_keys, needle_keys;
  std::int64_t heads = 0, rows = 0, queries = 0;
  std::uint64_t seed = 1;
  std::string size = "auto", csv, svg;
  bool json = false, fast = false;
};

AccuracySize size_from(const AccuracyOptions& o, bool emulator) {
  AccuracySize s = accuracy_size(o.size == "small" || (o.size == "auto" && emulator));
  if (!o.seqlens.empty()) s.outlier_seqlens = o.seqlens;
  if (!o.constant_keys.empty()) s.constant_keys = o.constant_keys;
  if (!o.needle_keys.empty()) s.needle_keys = o.needle_keys;
  for (const auto* lengths : {&s.outlier_seqlens, &s.constant_keys, &s.needle_keys})
    for (std::int64_t n : *lengths)
      if (n < 1 || n > 1 << 24) leave(exit_usage, "a length is " + std::to_string(n) + ": must be in [1, 2^24]");
  if (o.heads > 0) s.heads = o.heads;
  if (o.rows > 0) s.rows = o.rows;
  if (o.queries > 0) s.queries = o.queries;
  s.seed = o.seed, s.fast = o.fast;
  return s;
}

void run_accuracy_command(const AccuracyOptions& o) {
  DeviceRequest request = device_from(o.device);
  watch_emulator(request.emulator);
  const std::unique_ptr<Device> device = open_or_leave(request);
  const DeviceInfo& info = device->info();
  std::vector<AccuracyTest> tests;
  for (AccuracyTest t : {AccuracyTest::outliers, AccuracyTest::constant, AccuracyTest::needle})
    if (std::find(o.tests.begin(), o.tests.end(), to_string(t)) != o.tests.end()) tests.push_back(t);
  if (!o.json) std::cout << describe(info) << "\n";
  AccuracyReport report;
  const Status s = run_accuracy(*device, size_from(o, info.is_emulator), tests,
                                [&](const AccuracyRow& r) {
                                  if (!o.json) std::cout << accuracy_line(r) << std::flush;
                                },
                                &report);
  // What was measured is kept, whatever came after.
  if (o.json) std::cout << accuracy_json(report, info.name);
  if (!o.csv.empty()) write_file(o.csv, accuracy_csv(report, info.name));
  if (!o.svg.empty()) {
    const std::string rmse = accuracy_rmse_svg(report, info.name), constant = accuracy_constant_svg(report, info.name);
    if (!rmse.empty()) write_file(o.svg + "_rmse.svg", rmse);
    if (!constant.empty()) write_file(o.svg + "_constant.svg", constant);
  }
  if (!s.ok()) leave(interrupted() ? exit_interrupted : exit_mismatch, s.message);
  const auto wrong = std::count_if(report.rows.begin(), report.rows.end(), [](const AccuracyRow& r) { return !r.ok(); });
  if (wrong > 0)
    leave(exit_mismatch, std::to_string(wrong) + " of " + std::to_string(report.rows.size()) + " rows are not well");
}

}  // namespace

void add_accuracy(Command& app) {
  auto options = std::make_shared<AccuracyOptions>();
  AccuracyOptions& o = *options;
  Command* c = app.add_subcommand("accuracy", "The error of FP8 beside 16 bits: outliers, long sums, a needle among many keys");
  add_device_options(*c, o.device);
  c->add_option("--test", o.tests, "outliers, constant, needle; comma separated")
      ->delimiter(',')
      ->check(one_of({"outliers", "constant", "needle"}))
      ->capture_default_str();
  c->add_option("--size", o.size, "small (seconds on the emulator), full, auto: full on a GPU")
      ->check(one_of({"auto", "small", "full"}))
      ->capture_default_str();
  c->add_option("--seqlen", o.seqlens, "outliers: queries and keys; several")->delimiter(',');
  c->add_option("--heads", o.heads, "outliers: heads")->check(range(1, 65535));
  c->add_option("--rows", o.rows, "outliers: rows of each head that are compared")->check(range(1, 1 << 24));
  c->add_option("--constant-keys", o.constant_keys, "constant: keys; several")->delimiter(',');
  c->add_option("--needle-keys", o.needle_keys, "needle: keys; several")->delimiter(',');
  c->add_option("--queries", o.queries, "constant, needle: queries, which is positions of the needle")->check(range(1, 1 << 20));
  c->add_option("--seed", o.seed, "Of the random data")->capture_default_str();
  c->add_flag("--fast", o.fast, "FP8 in fast mode too, a row beside those of the two softmaxes");
  c->add_option("--csv", o.csv, "Write this file too");
  c->add_option("--svg", o.svg, "Write NAME_rmse.svg and NAME_constant.svg");
  c->add_flag("--json", o.json, "JSON in place of the table");
  c->callback([options] { run_accuracy_command(*options); });
}

}  // namespace flashptx
