// Opening a device by choice. Next: session.h.
#include "tools/flashptx/session.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace flashptx {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;

void on_interrupt(int) {
  interrupt_seen = 1;
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace

bool interrupted() { return interrupt_seen != 0; }

void watch_emulator(EmulatorOptions& options) {
  // A shell that starts us in the background has SIGINT ignored; leave it so.
  if (std::signal(SIGINT, on_interrupt) == SIG_IGN) std::signal(SIGINT, SIG_IGN);
  options.cancelled = interrupted;
  options.progress = [](const std::string& line) {
    // One line that is written over, where somebody looks; else a line each.
    std::fprintf(stderr, isatty(STDERR_FILENO) ? "\r  %s\033[K\r" : "  %s\n", line.c_str());
    std::fflush(stderr);
  };
}

bool parse_device_choice(const std::string& text, DeviceChoice* out) {
  if (text == "auto") *out = DeviceChoice::automatic;
  else if (text == "cuda") *out = DeviceChoice::cuda;
  else if (text == "emulator") *out = DeviceChoice::emulator;
  else return false;
  return true;
}

Status open_device(const DeviceRequest& request, std::unique_ptr<Device>* out, std::string* note) {
  if (request.choice == DeviceChoice::emulator) return open_emulator(request.emulator, out);
  const Status cuda = open_cuda_device(request.ordinal, out);
  if (cuda.ok() || request.choice == DeviceChoice::cuda) return cuda;
  if (cuda.code != StatusCode::no_device) return cuda;  // a GPU is there but unusable: say so, do not hide it
  *note = "no Hopper GPU (" + cuda.message + "): running on the emulator";
  return open_emulator(request.emulator, out);
}

std::string describe(const DeviceInfo& info) {
  if (info.is_emulator) return "emulator (a Hopper SM in software; it keeps no time)";
  std::string text = info.name + ", " + std::to_string(info.multiprocessors) + " SMs, driver ";
  text += info.driver_text.empty() ? "?" : info.driver_text;
  const int v = info.driver_version;
  return text + " (CUDA " + std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10) + ")";
}

}  // namespace flashptx
