// Microbenchmarks of a Hopper SM: what is measured, how it is checked, how it is run and shown.
//
// A Unit is a micro-kernel of ptx/units/ with its values filled in, the work of one trip, and a
// check of the result on the host. Timing needs a GPU; the results are checked on any device, the
// emulator included. Next: units_list.cpp (what there is), units_check.cpp (the host's
// recurrences), units_run.cpp, units_print.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "host/device.h"
#include "tools/flashptx/units_template.h"

namespace flashptx::units {

// A kernel parameter, in the order of the entry.
enum class Arg {
  map,
  out,
  clocks,
  iterations,
  seed,
  scale,
  data,
  footprint,
  mma_trips,
  work_trips,
  stride
};

// What a launch was given; checks need it.
struct Launch {
  int ctas = 1;
  std::uint32_t iterations = 1;
  std::uint32_t seed = 12345;
  float scale = 0;
  std::uint32_t footprint = 0;  // boxes
  std::uint32_t mma_trips = 0, work_trips = 0;
  std::vector<std::uint8_t> data;  // what `data` or the tensor map points at
};

struct Unit {
  std::string name;   // "wgmma_f16_ss_n128_wg1": entry is "unit_" + name
  std::string group;  // "tensor", "special", "arithmetic", "convert", "shared", "tma",
                      // "synchronisation", "beside"
  std::string what;   // one line
  std::string file;   // in ptx/units/
  Values values;
  std::vector<Arg> args;
  int threads = 0;
  std::uint32_t shared_bytes = 0;  // dynamic
  std::size_t out_bytes_per_cta = 0;
  double work_per_trip = 0;  // of one CTA, in `unit`
  std::string unit;          // "FLOP", "results", "instructions", "bytes", "clocks"
  double expected = 0;       // per clock and SM, or clocks for a latency; 0: not known beforehand
  bool is_latency = false;   // work_per_trip events, each `clocks` long
  float scale = 0;
  int max_ctas = 1 << 30;
  std::uint64_t footprint_bytes = 0;  // TMA
  // Bytes for `data`. Small integers when `exact`, so that sums are exact; else normal numbers
  // (power!).
  std::function<std::vector<std::uint8_t>(bool exact)> make_data;
  // Empty when `out` is what the host computes, else one sentence: where, wanted, got.
  std::function<std::string(const std::vector<std::uint8_t>& out, const Launch&)> check;
};

std::vector<Unit> all_units();
// The three kinds of work beside wgmma ("ex2", "softmax", "softmax_max", "ldmatrix") for f16 and
// e4m3.
std::vector<Unit> beside_units();
// PTX text; throws std::runtime_error when the file is not found in any of `folders`.
std::string unit_text(const Unit& unit, const std::vector<std::string>& folders);
std::vector<std::string> unit_folders();

// --- checks (units_check.cpp)
using Check = std::function<std::string(const std::vector<std::uint8_t>&, const Launch&)>;
using Step =
    std::function<void(std::uint32_t* chains, int i, std::uint32_t scale, std::uint32_t seed)>;
enum class Start { f32, f16, bf16, integer };
Check check_arithmetic(Start start, int rounds, Step step, double relative_tolerance,
                       bool packed_half, bool across_lanes = false);
Check check_wgmma(const std::string& type, int n, int warpgroups);
Check check_mma_sync(const std::string& type, int warps);
Check check_shared(int threads, const std::string& kind);
Check check_tma(int rows);
Check check_counter(std::uint32_t per_iteration);
Check check_barrier_tokens(int threads);
Check check_beside(const std::string& type, const std::string& work);
std::vector<std::uint8_t> wgmma_data(const std::string& type, int n, bool exact);
std::vector<std::uint8_t> mma_sync_data(const std::string& type, bool exact);

// --- running (units_run.cpp)
struct Timing {
  double clocks = 0;                // median over CTAs of clock64 stop - start
  double nanoseconds = 0;           // the same of globaltimer
  std::vector<double> part_clocks;  // beside: tensor warpgroup, slowest working warpgroup
};
struct Result {
  std::string name, group, what, unit;
  bool checked = false;
  std::string error;  // of the check or of the run; empty: right
  bool timed = false;
  bool is_latency = false;
  double median = 0, quartile_low = 0, quartile_high = 0;  // per clock and SM, or clocks
  double megahertz = 0;                                    // clock64 over globaltimer
  double per_second = 0;                                   // all SMs, at that clock
  double expected = 0;
  int samples = 0;
};
// One point of the sweep beside wgmma.
struct BesidePoint {
  double exp_per_mac = 0;
  double tensor_per_clock = 0;  // FLOP a clock and SM, over the tensor warpgroup's own time
  double work_per_clock = 0;    // elements a clock and SM, over the workers' own time
  double clocks = 0, tensor_alone = 0, work_alone = 0;
  double overlap = 0;  // (tensor_alone + work_alone - clocks) / the smaller of the two
};
struct BesideSweep {
  std::string type, work;
  std::vector<BesidePoint> points;
  double knee = 0;  // exp per MAC at which the total passes the tensor time by 2 %
  std::string error;
};

Result run_unit(Device& device, const Unit& unit, const std::vector<std::string>& folders,
                int samples);
BesideSweep run_beside(Device& device, const Unit& unit, const std::vector<std::string>& folders,
                       int samples);

// --- showing (units_print.cpp)
struct Findings {
  DeviceInfo device;
  std::vector<Result> results;
  std::vector<BesideSweep> sweeps;
};
std::string table_text(const Findings& f);
std::string claims_text(const Findings& f);
std::string csv_text(const Findings& f);
Findings read_csv(const std::string& text);  // of csv_text; throws std::runtime_error with the line
std::string json_text(const Findings& f);
std::string rates_svg(const Findings& f);   // bars: each unit against its ceiling
std::string beside_svg(const Findings& f);  // lines: tensor rate against exp per multiply-add

}  // namespace flashptx::units
