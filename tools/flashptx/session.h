// A device for the command line: what `--device auto|cuda|emulator` means. Next: runner.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "host/device.h"

namespace flashptx {

enum class DeviceChoice { automatic, cuda, emulator };
bool parse_device_choice(const std::string& text, DeviceChoice* out);

struct DeviceRequest {
  DeviceChoice choice = DeviceChoice::automatic;
  int ordinal = 0;
  EmulatorOptions emulator;
};

// Lets the emulator say on stderr how far it is, and Ctrl-C end its launch; a second Ctrl-C ends the process.
void watch_emulator(EmulatorOptions& options);
bool interrupted();  // by that Ctrl-C

// automatic: a GPU, else the emulator with `*note` saying in one sentence why no GPU was taken.
Status open_device(const DeviceRequest& request, std::unique_ptr<Device>* out, std::string* note);

// "NVIDIA H200, 132 SMs, driver 580.159.04" or "emulator (a Hopper SM in software)".
std::string describe(const DeviceInfo& info);

}  // namespace flashptx
