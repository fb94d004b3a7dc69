// Two kernels by hand, for tests of the device that need no attention: `store` writes its argument,
// `fault` traps.
#pragma once

namespace flashptx::test {

constexpr const char* store_ptx = R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry store(.param .u64 out, .param .u32 value)
{
  .reg .b64 %a;
  .reg .b32 %v;
  ld.param.u64 %a, [out];
  ld.param.u32 %v, [value];
  cvta.to.global.u64 %a, %a;
  st.global.u32 [%a], %v;
  ret;
}
)";

constexpr const char* fault_ptx = R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry fault()
{
  trap;
  ret;
}
)";

}  // namespace flashptx::test
