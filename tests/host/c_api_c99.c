/* The C API used from C99: that the header compiles there, and what each call answers. Returns 0,
 * or the line of the first answer that was wrong. The context stands on a fake device: see
 * tests/host/c_api_test.cpp. */
#include <string.h>

#include "host/flashptx.h"

#define EXPECT(condition) \
  if (!(condition)) return __LINE__
#define SAYS(text) EXPECT(strcmp(flashptx_last_error(context), (text)) == 0)

int c99_plans_and_runs(flashptx_context* context);
int c99_refusals(flashptx_context* context);
int c99_struct_sizes(flashptx_context* context);

static flashptx_forward_problem usual(void) {
  flashptx_forward_problem p = {.size = sizeof p,
                                .dtype = FLASHPTX_BF16,
                                .mask = FLASHPTX_MASK_CAUSAL,
                                .batch = 2,
                                .heads_q = 8,
                                .heads_kv = 2,
                                .seqlen_q = 300,
                                .seqlen_k = 500,
                                .head_dim = 128};
  p.q = p.o = flashptx_strides_bshd(300, 8, 128);
  p.k = p.v = flashptx_strides_bhsd(500, 2, 128);
  return p;
}

int c99_plans_and_runs(flashptx_context* context) {
  flashptx_forward_problem problem = usual();
  flashptx_plan* plan = NULL;
  char* memory = (char*)0x100000;
  EXPECT(flashptx_plan_forward(context, &problem, &plan) == FLASHPTX_OK);
  EXPECT(strncmp(flashptx_plan_kernel(plan), "attn_fwd_bf16_d128_causal__", 27) == 0);
  EXPECT(strstr(flashptx_plan_describe(plan), "why: ") != NULL);
  EXPECT(strstr(flashptx_plan_describe(plan), "heads 8/2, seqlen 300 x 500") != NULL);
  EXPECT(flashptx_forward(plan, memory, memory + 16, memory + 32, memory + 48, NULL, NULL) ==
         FLASHPTX_OK);
  EXPECT(flashptx_forward(plan, memory, memory, memory, memory + 48, (float*)(memory + 4), NULL) ==
         FLASHPTX_OK);
  flashptx_plan_destroy(plan);
  flashptx_plan_destroy(NULL);
  return 0;
}

int c99_refusals(flashptx_context* context) {
  flashptx_forward_problem problem = usual();
  flashptx_plan* plan = NULL;
  char* memory = (char*)0x100000;
  EXPECT(flashptx_plan_forward(NULL, &problem, &plan) == FLASHPTX_INVALID_ARGUMENT);
  SAYS("context is a null pointer");
  EXPECT(flashptx_plan_forward(context, NULL, &plan) == FLASHPTX_INVALID_ARGUMENT);
  SAYS("problem is a null pointer");
  EXPECT(flashptx_plan_forward(context, &problem, NULL) == FLASHPTX_INVALID_ARGUMENT);
  SAYS("plan is a null pointer");
  problem.dtype = 7;
  plan = (flashptx_plan*)memory;
  EXPECT(flashptx_plan_forward(context, &problem, &plan) == FLASHPTX_UNSUPPORTED);
  SAYS("dtype is 7: must be 0 (f16), 1 (bf16), 2 (e4m3) or 3 (e5m2)");
  EXPECT(plan == NULL);
  problem = usual();
  problem.dtype_k = FLASHPTX_BF16;
  EXPECT(flashptx_plan_forward(context, &problem, &plan) == FLASHPTX_UNSUPPORTED);
  SAYS("dtype_k is 1: must be 0 (that of Q), 2 (e4m3) or 3 (e5m2)");
  problem.dtype_k = FLASHPTX_E5M2;
  EXPECT(flashptx_plan_forward(context, &problem, &plan) == FLASHPTX_UNSUPPORTED);
  SAYS("dtype_k is e5m2 while dtype is bf16: K and V have types of their own only where Q is e4m3 or e5m2");
  problem.dtype = FLASHPTX_E4M3;
  EXPECT(flashptx_plan_forward(context, &problem, &plan) == FLASHPTX_OK);
  EXPECT(strncmp(flashptx_plan_kernel(plan), "attn_fwd_e4m3_ke5m2_d128_causal", 31) == 0);
  flashptx_plan_destroy(plan);
  plan = NULL;
  problem = usual();
  problem.mask = -1;
  EXPECT(flashptx_plan_forward(context, &problem, &plan) == FLASHPTX_INVALID_ARGUMENT);
  SAYS("mask is -1: must be 0 (full) or 1 (causal)");
  problem = usual();
  problem.use_softmax_scale = 7;
  EXPECT(flashptx_plan_forward(context, &problem, &plan) == FLASHPTX_INVALID_ARGUMENT);
  SAYS("use_softmax_scale is 7: must be 0 or 1");
  problem.use_softmax_scale = 1;
  problem.softmax_scale = -2.0f;
  EXPECT(flashptx_plan_forward(context, &problem, &plan) == FLASHPTX_INVALID_ARGUMENT);
  SAYS("softmax_scale is -2.000000: must be >= 0 and at most 1e20");
  problem.softmax_scale =
      0.0f / (problem.softmax_scale + 2.0f); /* NaN is no default once a scale is given */
  EXPECT(flashptx_plan_forward(context, &problem, &plan) == FLASHPTX_INVALID_ARGUMENT);
  SAYS("softmax_scale is nan: must be finite and >= 0");
  problem = usual();
  EXPECT(flashptx_plan_forward(context, &problem, &plan) == FLASHPTX_OK);
  SAYS(
      "softmax_scale is nan: must be finite and >= 0"); /* success leaves the last sentence alone */
  EXPECT(flashptx_forward(plan, memory, memory + 2, memory, memory, NULL, NULL) ==
         FLASHPTX_INVALID_ARGUMENT);
  SAYS("k is address 1048578: must be a multiple of 16 bytes");
  EXPECT(flashptx_forward(plan, memory, memory, memory, NULL, NULL, NULL) ==
         FLASHPTX_INVALID_ARGUMENT);
  SAYS("o is a null pointer");
  EXPECT(flashptx_forward(plan, memory, memory + 16, memory + 32, memory, NULL, NULL) ==
         FLASHPTX_INVALID_ARGUMENT);
  SAYS("o is the address of q: O must not overlap Q, K or V");
  EXPECT(flashptx_forward(NULL, memory, memory, memory, memory, NULL, NULL) ==
         FLASHPTX_INVALID_ARGUMENT);
  flashptx_plan_destroy(plan);
  EXPECT(strcmp(flashptx_status_name(FLASHPTX_EARLIER_ERROR), "earlier_error") == 0);
  EXPECT(strcmp(flashptx_status_name((flashptx_status)99), "unknown") == 0);
  EXPECT(strcmp(flashptx_version(), "0.1.0") == 0);
  return 0;
}

int c99_struct_sizes(flashptx_context* context) {
  struct {
    flashptx_forward_problem known;
    char newer[16];
  } wide;
  flashptx_plan* plan = NULL;
  flashptx_options options = {.size = sizeof options, .sm_margin = -1};
  flashptx_context* made = NULL;
  memset(&wide, 0, sizeof wide);
  wide.known = usual();
  wide.known.size = sizeof wide;
  EXPECT(flashptx_plan_forward(context, &wide.known, &plan) == FLASHPTX_OK); /* newer, but unused */
  flashptx_plan_destroy(plan);
  wide.newer[3] = 1;
  EXPECT(flashptx_plan_forward(context, &wide.known, &plan) == FLASHPTX_UNSUPPORTED);
  EXPECT(strstr(flashptx_last_error(context), "newer than this library (0.1.0)") != NULL);
  wide.known.size = 8;
  EXPECT(flashptx_plan_forward(context, &wide.known, &plan) == FLASHPTX_INVALID_ARGUMENT);
  EXPECT(strstr(flashptx_last_error(context),
                "flashptx_forward_problem.size is 8: must be sizeof") != NULL);
  EXPECT(flashptx_create(&options, NULL) == FLASHPTX_INVALID_ARGUMENT);
  EXPECT(flashptx_create(&options, &made) == FLASHPTX_INVALID_ARGUMENT);
  SAYS("options.sm_margin is -1: must be >= 0");
  options.sm_margin = 0;
  options.device_kind = 5;
  EXPECT(flashptx_create(&options, &made) == FLASHPTX_INVALID_ARGUMENT);
  SAYS("options.device_kind is 5: must be 0, 1 or 2");
  EXPECT(made == NULL);
  flashptx_destroy(NULL);
  return 0;
}
