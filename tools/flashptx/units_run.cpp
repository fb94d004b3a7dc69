// Runs a unit on a device: first the check with exact data, then, where time exists, the timing
// with random normal data. Next: units_print.cpp.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>

#include "tools/flashptx/units.h"

namespace flashptx::units {

namespace {

void require(const Status& s) {
  if (!s.ok()) throw std::runtime_error(s.message);
}

// Device memory that goes when the value goes.
class Buffer {
 public:
  Buffer(Device& device, std::size_t bytes) : device_(device), bytes_(bytes) {
    require(device.allocate(bytes, &address_));
  }
  ~Buffer() { device_.free(address_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::uint64_t address() const { return address_; }
  void put(const std::vector<std::uint8_t>& bytes) {
    require(device_.copy_to_device(address_, bytes.data(), bytes.size()));
  }
  std::vector<std::uint8_t> get() const {
    std::vector<std::uint8_t> bytes(bytes_);
    require(device_.copy_from_device(bytes.data(), address_, bytes_));
    return bytes;
  }

 private:
  Device& device_;
  std::size_t bytes_;
  std::uint64_t address_ = 0;
};

double median_of(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty()      ? 0
         : v.size() % 2 ? v[v.size() / 2]
                        : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}
double quantile_of(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v.empty()
             ? 0
             : v[static_cast<std::size_t>(std::lround(q * static_cast<double>(v.size() - 1)))];
}

// A unit loaded on a device.
class Runner {
 public:
  Runner(Device& device, const Unit& unit, const std::vector<std::string>& folders)
      : device_(device), unit_(unit) {
    require(
        device.load(unit_text(unit, folders), "unit_" + unit.name, unit.shared_bytes, &kernel_));
  }
  ~Runner() {
    if (kernel_) device_.unload(kernel_);
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Data for `data` or the tensor map; `bytes` > data.size() leaves the rest as it is (timing of
  // TMA).
  void set_data(const std::vector<std::uint8_t>& data, std::size_t bytes = 0) {
    data_ = std::make_unique<Buffer>(device_, std::max({bytes, data.size(), std::size_t{16}}));
    if (!data.empty()) data_->put(data);
    if (bytes > data.size()) require(device_.fill(data_->address(), 0x3c, bytes, nullptr));
    data_bytes_ = std::max(bytes, data.size());
  }
  Timing launch(const Launch& l) {
    const auto ctas = static_cast<std::size_t>(l.ctas);
    if (!out_ || ctas != buffers_for_) {
      out_ = std::make_unique<Buffer>(device_, unit_.out_bytes_per_cta * ctas);
      clocks_ = std::make_unique<Buffer>(device_, 64 * ctas);
      buffers_for_ = ctas;
    }
    std::vector<void*> params;
    Params v = values(l);
    for (Arg a : unit_.args) params.push_back(v.pointer(a));
    LaunchDims dims;
    dims.grid[0] = static_cast<std::uint32_t>(l.ctas);
    dims.block[0] = static_cast<std::uint32_t>(unit_.threads);
    dims.shared_bytes = unit_.shared_bytes;
    require(device_.launch(kernel_, dims, params.data(), static_cast<int>(params.size()), nullptr));
    require(device_.synchronize(nullptr));
    return read_clocks(l.ctas);
  }
  std::vector<std::uint8_t> out() const { return out_->get(); }

 private:
  struct Params {
    TensorMap map;
    std::uint64_t out, clocks, data;
    std::uint32_t iterations, seed, footprint, mma_trips, work_trips, stride = 128;
    float scale;
    void* pointer(Arg a) {
      switch (a) {
        case Arg::map:
          return &map;
        case Arg::out:
          return &out;
        case Arg::clocks:
          return &clocks;
        case Arg::iterations:
          return &iterations;
        case Arg::seed:
          return &seed;
        case Arg::scale:
          return &scale;
        case Arg::data:
          return &data;
        case Arg::footprint:
          return &footprint;
        case Arg::mma_trips:
          return &mma_trips;
        case Arg::work_trips:
          return &work_trips;
        case Arg::stride:
          return &stride;
      }
      return nullptr;
    }
  };
  Params values(const Launch& l) {
    Params v{};
    v.out = out_->address();
    v.clocks = clocks_->address();
    v.data = data_ ? data_->address() : 0;
    v.iterations = l.iterations;
    v.seed = l.seed;
    v.footprint = l.footprint;
    v.mma_trips = l.mma_trips;
    v.work_trips = l.work_trips;
    v.stride = 128;
    v.scale = l.scale;
    if (unit_.args[0] == Arg::map) {
      TensorMapDesc d;
      d.name = "boxes";
      d.address = data_->address();
      d.rank = 2;
      d.dims[0] = 64;
      d.dims[1] = data_bytes_ / 128;
      d.stride_bytes[0] = 128;
      d.box[0] = 64;
      d.box[1] = static_cast<std::uint32_t>(std::stoul(unit_.values.at("rows")));
      require(device_.encode(d, &v.map));
    }
    return v;
  }
  Timing read_clocks(int ctas) const {
    const std::vector<std::uint8_t> bytes = clocks_->get();
    std::vector<double> clocks, nanoseconds, tensor, worker;
    for (int c = 0; c < ctas; ++c) {
      std::uint64_t w[8];
      std::memcpy(w, bytes.data() + 64 * c, 64);
      clocks.push_back(static_cast<double>(w[1] - w[0]));
      nanoseconds.push_back(static_cast<double>(w[3] - w[2]));
      tensor.push_back(static_cast<double>(w[4] - w[0]));
      worker.push_back(static_cast<double>(std::max(w[5], w[6]) - w[0]));
    }
    return {median_of(clocks), median_of(nanoseconds), {median_of(tensor), median_of(worker)}};
  }

  Device& device_;
  const Unit& unit_;
  LoadedKernel* kernel_ = nullptr;
  std::unique_ptr<Buffer> out_, clocks_, data_;
  std::size_t buffers_for_ = 0, data_bytes_ = 0;
};

int rows_of(const Unit& u) { return std::stoi(u.values.at("rows")); }

// A walk of 16 boxes with hashed words: small enough for the emulator and for the host.
std::vector<std::uint8_t> box_data(int rows) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(16 * rows) * 128);
  for (std::size_t w = 0; w < bytes.size() / 4; ++w) {
    const std::uint32_t value = static_cast<std::uint32_t>(w) * 0x9e3779b1u + 7;
    std::memcpy(bytes.data() + 4 * w, &value, 4);
  }
  return bytes;
}

Launch check_launch(const Unit& unit) {
  Launch l;
  l.ctas = 2;
  l.iterations = unit.group == "tma" ? 21 : unit.group == "synchronisation" ? 5 : 3;
  l.scale = unit.scale;
  l.mma_trips = 3;
  l.work_trips = 2;
  l.footprint = 16;
  if (unit.group == "tma") l.data = box_data(rows_of(unit));
  else if (unit.make_data) l.data = unit.make_data(true);
  return l;
}

void check_unit(Runner& runner, const Unit& unit) {
  const Launch l = check_launch(unit);
  if (!l.data.empty()) runner.set_data(l.data);
  runner.launch(l);
  const std::string wrong = unit.check(runner.out(), l);
  if (!wrong.empty()) throw std::runtime_error(wrong);
}

// Doubles the trips until the kernel runs 1.5 ms: long against globaltimer's step, short against
// patience.
void calibrate(Runner& runner, Launch* l) {
  for (l->iterations = 16; l->iterations < 1u << 24; l->iterations *= 2)
    if (runner.launch(*l).nanoseconds > 1.5e6) return;
}

void time_unit(Runner& runner, Device& device, const Unit& unit, int samples, Result* r) {
  Launch l;
  l.ctas = std::min(device.info().multiprocessors, unit.max_ctas);
  l.scale = unit.scale;
  std::unique_ptr<Buffer> flush;
  const bool cold = unit.footprint_bytes > 2 * device.info().l2_bytes;
  if (unit.group == "tma") {
    runner.set_data({}, unit.footprint_bytes);
    l.footprint = static_cast<std::uint32_t>(unit.footprint_bytes /
                                             (128 * static_cast<std::uint64_t>(rows_of(unit))));
    if (cold) flush = std::make_unique<Buffer>(device, 4 * device.info().l2_bytes);
  } else if (unit.make_data) {
    runner.set_data(unit.make_data(false));
  }
  calibrate(runner, &l);
  std::vector<double> rates, megahertz;
  for (int s = 0; s < samples; ++s) {
    if (flush)
      require(device.fill(flush->address(), static_cast<std::uint8_t>(s),
                          4 * device.info().l2_bytes, nullptr));
    const Timing t = runner.launch(l);
    const double work = unit.work_per_trip * l.iterations;
    rates.push_back(unit.is_latency ? t.clocks / work : work / t.clocks);
    megahertz.push_back(1e3 * t.clocks / t.nanoseconds);
  }
  r->timed = true;
  r->samples = samples;
  r->median = median_of(rates);
  r->quartile_low = quantile_of(rates, 0.25);
  r->quartile_high = quantile_of(rates, 0.75);
  r->megahertz = median_of(megahertz);
  r->per_second = unit.is_latency ? 0 : r->median * l.ctas * r->megahertz * 1e6;
}

// Where the total first exceeds the tensor time by 2 %, interpolated between the points of the
// sweep.
double find_knee(const std::vector<BesidePoint>& points) {
  double before_ratio = 0, before_excess = 0;
  for (const BesidePoint& p : points) {
    const double excess = p.clocks / p.tensor_alone - 1.02;
    if (excess > 0)
      return before_ratio +
             (p.exp_per_mac - before_ratio) * (-before_excess) / (excess - before_excess);
    before_ratio = p.exp_per_mac;
    before_excess = excess;
  }
  return 0;
}

}  // namespace

std::vector<std::string> unit_folders() {
  std::vector<std::string> out = {"ptx/units"};
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n > 0) {
    const std::string program(path, static_cast<std::size_t>(n));
    const std::string folder = program.substr(0, program.rfind('/'));
    out.push_back(folder + "/../ptx/units");                 // build/flashptx in the source tree
    out.push_back(folder + "/../share/flashptx/ptx/units");  // installed
  }
  return out;
}

std::string unit_text(const Unit& unit, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    std::ifstream in(folder + "/" + unit.file);
    if (!in) continue;
    const std::string text(std::istreambuf_iterator<char>(in), {});
    Values values = unit.values;
    values["entry"] = "unit_" + unit.name;
    return unit.file.ends_with(".in") ? expand(text, values) : text;
  }
  throw std::runtime_error("ptx/units/" + unit.file +
                           " not found: run in the source folder or give --folder");
}

Result run_unit(Device& device, const Unit& unit, const std::vector<std::string>& folders,
                int samples) {
  Result r;
  r.name = unit.name;
  r.group = unit.group;
  r.what = unit.what;
  r.unit = unit.unit;
  r.expected = unit.expected;
  r.is_latency = unit.is_latency;
  try {
    Runner runner(device, unit, folders);
    check_unit(runner, unit);
    r.checked = true;
    if (!device.info().is_emulator) time_unit(runner, device, unit, samples, &r);
  } catch (const std::exception& e) {
    r.error = e.what();
  }
  return r;
}

BesideSweep run_beside(Device& device, const Unit& unit, const std::vector<std::string>& folders,
                       int samples) {
  BesideSweep sweep;
  sweep.type = unit.values.at("type");
  sweep.work = unit.name.substr(unit.name.find('_', 7) + 1);
  try {
    Runner runner(device, unit, folders);
    check_unit(runner, unit);
    if (device.info().is_emulator) return sweep;
    runner.set_data(unit.make_data(false));
    Launch l;
    l.ctas = device.info().multiprocessors;
    l.scale = unit.scale;
    auto measure = [&](std::uint32_t mma_trips, std::uint32_t work_trips) {
      l.mma_trips = mma_trips;
      l.work_trips = work_trips;
      std::vector<double> total, tensor, work;
      for (int s = 0; s < samples; ++s) {
        const Timing t = runner.launch(l);
        // Not the clock behind the closing barrier: ptxas makes it BAR.SYNC.DEFER_BLOCKING, which does not hold
        // up a read of the clock.
        total.push_back(std::max(t.part_clocks[0], t.part_clocks[1]));
        tensor.push_back(t.part_clocks[0]);
        work.push_back(t.part_clocks[1]);
      }
      return Timing{median_of(total), 0, {median_of(tensor), median_of(work)}};
    };
    const std::uint32_t mma_trips = 2400;  // about 0.8 ms of tensor work
    const double macs = unit.work_per_trip / 2, elements = 64.0 * 256;
    const double tensor_alone = measure(mma_trips, 0).clocks;
    for (int per :
         {2048, 1024, 768, 512, 384, 320, 256, 224, 192, 160, 128, 112, 96, 80, 64, 48, 32}) {
      const auto work_trips =
          static_cast<std::uint32_t>(std::lround(mma_trips * macs / per / elements));
      const Timing both = measure(mma_trips, work_trips);
      BesidePoint p;
      p.exp_per_mac = work_trips * elements / (mma_trips * macs);
      p.tensor_alone = tensor_alone;
      p.work_alone = measure(0, work_trips).clocks;
      p.clocks = both.clocks;
      p.tensor_per_clock = mma_trips * unit.work_per_trip / both.part_clocks[0];
      p.work_per_clock = work_trips * elements / both.part_clocks[1];
      p.overlap =
          (p.tensor_alone + p.work_alone - p.clocks) / std::min(p.tensor_alone, p.work_alone);
      sweep.points.push_back(p);
    }
    sweep.knee = find_knee(sweep.points);
  } catch (const std::exception& e) {
    sweep.error = e.what();
  }
  return sweep;
}

}  // namespace flashptx::units
