// Opening a device by choice. Next: session.h.
#include "tools/flashptx/session.h"

namespace flashptx {

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
