// What stands behind the opaque handles of host/flashptx.h, for C++ code that shares them (the
// command line, tests). Next: host/c_api.cpp.
#pragma once

#include <memory>
#include <string>

#include "host/attention.h"
#include "host/device.h"
#include "host/flashptx.h"
#include "host/prepare.h"

struct flashptx_context {
  flashptx_context(std::unique_ptr<flashptx::Device> device, int sm_margin);
  std::unique_ptr<flashptx::Device> device;
  flashptx::Attention attention;
  flashptx::Prepare prepare;
  std::string description;
};

struct flashptx_plan {
  std::unique_ptr<flashptx::ForwardPlan> forward;
};
