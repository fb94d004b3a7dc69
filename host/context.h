// What stands behind the opaque handles of host/flashptx.h, for C++ code that shares them (the
// command line, tests). Next: host/c_api.cpp.
#pragma once

#include <memory>
#include <string>

#include "host/attention.h"
#include "host/device.h"
#include "host/flashptx.h"
#include "host/fp8_attention.h"

struct flashptx_context {
  flashptx_context(std::unique_ptr<flashptx::Device> device, int sm_margin);
  std::unique_ptr<flashptx::Device> device;
  flashptx::Attention attention;
  std::string description;
};

// One of the two.
struct flashptx_plan {
  std::unique_ptr<flashptx::ForwardPlan> forward;
  std::unique_ptr<flashptx::Fp8Plan> fp8;

  const std::string& describe() const { return fp8 ? fp8->describe() : forward->describe(); }
  const std::string& kernel_name() const { return fp8 ? fp8->kernel_name() : forward->kernel_name(); }
  std::size_t workspace_bytes() const { return fp8 ? fp8->workspace_bytes() : forward->workspace_bytes(); }
};
