// `flashptx units`: measures the units of an SM with the micro-kernels of ptx/units/.
// Next: units.h.
#include <filesystem>
#include <iostream>
#include <memory>

#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/problem_options.h"
#include "tools/flashptx/session.h"
#include "tools/flashptx/units.h"

namespace flashptx {

namespace {

struct UnitsOptions {
  std::string only, csv, json, svg, emit, folder, from, device = "auto";
  int samples = 7;
  bool list = false, no_beside = false;
};

bool wanted(const UnitsOptions& o, const units::Unit& u) {
  return o.only.empty() || u.name.find(o.only) != std::string::npos || u.group == o.only;
}

void write_result(const std::string& path, const std::string& text) {
  write_file(path, text);
  std::cerr << "wrote " << path << "\n";
}

void list_units(const UnitsOptions& o) {
  for (const auto& list : {units::all_units(), units::beside_units()})
    for (const units::Unit& u : list)
      if (wanted(o, u)) std::cout << u.group << "  " << u.name << "  " << u.what << "\n";
}

void emit_units(const UnitsOptions& o, const std::vector<std::string>& folders) {
  std::filesystem::create_directories(o.emit);
  for (const auto& list : {units::all_units(), units::beside_units()})
    for (const units::Unit& u : list)
      if (wanted(o, u)) write_result(o.emit + "/unit_" + u.name + ".ptx", units::unit_text(u, folders));
}

void draw(const UnitsOptions& o, const units::Findings& f) {
  write_result(o.svg + "_rates.svg", units::rates_svg(f));
  write_result(o.svg + "_beside.svg", units::beside_svg(f));
}

// Returns whether every result was right.
bool run_units(const UnitsOptions& o) {
  std::vector<std::string> folders = units::unit_folders();
  if (!o.folder.empty()) folders = {o.folder};
  if (o.list) return list_units(o), true;
  if (!o.emit.empty()) return emit_units(o, folders), true;
  if (!o.from.empty()) {
    if (o.svg.empty()) throw std::runtime_error("--from draws: it wants --svg PREFIX");
    return draw(o, units::read_csv(read_or_leave(o.from))), true;
  }
  std::unique_ptr<Device> device;
  DeviceRequest request;
  std::string note;
  if (!parse_device_choice(o.device, &request.choice))
    leave(exit_usage, "--device: auto, cuda or emulator");
  if (const Status s = open_device(request, &device, &note); !s.ok())
    leave(exit_no_device, s.message);
  if (!note.empty()) std::cerr << note << "\n";
  units::Findings f;
  f.device = device->info();
  bool right = true;
  for (const units::Unit& u : units::all_units()) {
    if (!wanted(o, u)) continue;
    f.results.push_back(units::run_unit(*device, u, folders, o.samples));
    right = right && f.results.back().error.empty();
  }
  for (const units::Unit& u : units::beside_units()) {
    if (o.no_beside || !wanted(o, u)) continue;
    f.sweeps.push_back(units::run_beside(*device, u, folders, std::min(o.samples, 5)));
    right = right && f.sweeps.back().error.empty();
  }
  if (f.results.empty() && f.sweeps.empty())
    throw std::runtime_error("no unit matches " + o.only + ": --list shows them");
  std::cout << units::table_text(f) << units::claims_text(f);
  if (!o.csv.empty()) write_result(o.csv, units::csv_text(f));
  if (!o.json.empty()) write_result(o.json, units::json_text(f));
  if (!o.svg.empty()) {
    if (f.device.is_emulator)
      throw std::runtime_error("--svg: charts need timings, and timing needs a GPU");
    draw(o, f);
  }
  return right;
}

}  // namespace

void add_units(Command& app) {
  auto o = std::make_shared<UnitsOptions>();
  Command* c = app.add_subcommand("units",
                                   "Measure the units of an SM: tensor cores, special functions, "
                                   "memory, barriers, and exp beside wgmma");
  c->add_option("only", o->only,
                "A group (tensor, special, arithmetic, convert, shared, tma, synchronisation, "
                "beside) or part of a name");
  c->add_option("--device", o->device, "auto, cuda or emulator");
  c->add_option("--samples", o->samples, "Timed launches a unit")->check(range(1, 1000));
  c->add_option("--csv", o->csv, "Write CSV to this file");
  c->add_option("--json", o->json, "Write JSON (nvbench's shape) to this file");
  c->add_option("--svg", o->svg, "Write PREFIX_rates.svg and PREFIX_beside.svg");
  c->add_option("--from", o->from, "Draw --svg from a CSV written before, and run nothing");
  c->add_option("--emit", o->emit, "Write the kernels' PTX into this folder and run nothing");
  c->add_option("--folder", o->folder, "Where the micro-kernels are (ptx/units)");
  c->add_flag("--list", o->list, "Name the units and run nothing");
  c->add_flag("--no-beside", o->no_beside, "Leave out the sweeps beside wgmma");
  c->callback([o] {
    try {
      if (!run_units(*o)) leave(exit_mismatch, "a unit did not give the right result");
    } catch (const std::filesystem::filesystem_error&) {
      throw;  // worded where everything ends
    } catch (const std::exception& e) {
      leave(exit_usage, e.what());
    }
  });
}

}  // namespace flashptx
