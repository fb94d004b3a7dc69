// Options -> KernelConfig. Whether a kernel can have that config is the generator's to say. Next: gen/catalog.h.
#include "tools/flashptx/config_options.h"

#include <filesystem>

#include "gen/schedule/text.h"
#include "host/select.h"
#include "tools/flashptx/args.h"
#include "tools/flashptx/commands.h"
#include "tools/flashptx/problem_options.h"
#include "tools/reference/numeric.h"

namespace flashptx {
namespace {

void set_switch(const std::string& typed, bool* value) {
  if (!typed.empty()) *value = typed == "on";
}
void set_number(int typed, int* value) {
  if (typed != 0) *value = typed;
}

Plan default_plan(const ProblemClass& problem) {
  ForwardProblem p;
  p.dtype = problem.dtype, p.dtype_k = problem.dtype_k, p.dtype_v = problem.dtype_v, p.mask = problem.mask;
  p.batch = 1, p.heads_q = p.heads_kv = 16, p.seqlen_q = p.seqlen_k = 16384;
  p.head_dim = problem.head_dim, p.head_dim_v = problem.head_dim_v;
  Selection chosen;
  const Status s = select_forward(p, &chosen);
  if (!s.ok()) leave(exit_usage, s.message);
  return chosen.config.plan;
}

}  // namespace

Schedule schedule_or_leave(const std::string& name_or_file) {
  if (const Schedule* built_in = find_forward_schedule(name_or_file)) return *built_in;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(name_or_file, ignored)) {
    std::string names;
    for (const Schedule& s : forward_schedules()) names += (names.empty() ? "" : ", ") + s.name;
    leave(exit_usage, "--schedule " + name_or_file + ": neither a file nor a built-in schedule (" + names + ")");
  }
  Schedule schedule;
  std::string error;
  if (!parse_schedule(read_or_leave(name_or_file), name_or_file, &schedule, &error)) leave(exit_usage, error);
  return schedule;
}

void add_config_options(Command& app, ConfigOptions& o) {
  const auto on_off = one_of({"on", "off"});
  app.add_option("name", o.name, "Kernel name; in its place the options below, unset ones as the host would choose");
  add_type_options(app, o);
  app.add_option("--head-dim", o.head_dim, "Head dimension of Q and K, a multiple of 8: the kernel that serves it")->capture_default_str();
  app.add_option("--head-dim-v", o.head_dim_v, "Head dimension of V and O; default: that of Q");
  app.add_flag("--causal", o.causal, "Causal mask, aligned bottom right");
  app.add_option("--warpgroups", o.warpgroups, "Consumer warpgroups, 64 query rows each");
  app.add_option("--teams", o.teams, "2: the CTA is two teams of two warpgroups, each with a producer, tiles and rings of its own (16 bit)");
  app.add_option("--tile-kv", o.tile_kv, "Keys per block");
  app.add_option("--stages", o.stages, "Ring slots of K and of V");
  app.add_option("--q-stages", o.q_stages, "Q buffers");
  app.add_option("--schedule", o.schedule, schedule_help);
  app.add_option("--ping-pong", o.ping_pong, "Token between warpgroups around their wgmma issue")->check(on_off);
  app.add_option("--softmax", o.softmax, "plain; lazy: rescale O only when the maximum grew enough;\n"
                 "guarded: no maximum after the masked and the first blocks; what overflows is scaled (8 bit) or its tile runs anew")
      ->check(one_of({"plain", "lazy", "guarded"}));
  app.add_option("--lazy-threshold", o.lazy_threshold_log2, "Growth of the maximum, in powers of two");
  app.add_option("--dynamic-tiles", o.dynamic_tiles, "Tiles drawn from a counter, heaviest first")->check(on_off);
  app.add_option("--o-own-buffer", o.o_own_buffer, "O staged in its own shared memory")->check(on_off);
  app.add_option("--late-store", o.late_store, "O staged under the next tile's first exponentials")->check(on_off);
  app.add_option("--p-sums", o.p_sums, "8 bit: rows' sums of P as rounded, by the tensor cores")->check(on_off);
  app.add_option("--pin-exp", o.pin_exp, "Keep the exponentials in front of the wait for P V")->check(on_off);
}

KernelConfig config_from(const ConfigOptions& o) {
  KernelConfig config;
  if (!o.name.empty()) {
    std::string error;
    if (!KernelConfig::parse(o.name, &config, &error)) leave(exit_usage, o.name + ": " + error);
    if (o.shapes_named_kernel())
      leave(exit_usage, o.name + " says all of its kernel: beside a name only --schedule can be given, not " +
                            "the options that make one");
    if (!o.schedule.empty()) config.plan.follow(schedule_or_leave(o.schedule));
    return config;
  }
  const Types types = types_from(o);
  config.problem.dtype = types.q, config.problem.dtype_k = types.k, config.problem.dtype_v = types.v;
  for (const int d : {o.head_dim, o.head_dim_v == 0 ? o.head_dim : o.head_dim_v})
    if (d < 8 || d > 256 || d % 8 != 0)
      leave(exit_usage, "head dimension " + std::to_string(d) + ": must be a multiple of 8 from 8 to 256");
  config.problem.head_dim = compiled_head_dim(o.head_dim);
  config.problem.head_dim_v = compiled_head_dim(o.head_dim_v != 0 ? o.head_dim_v : o.head_dim);
  config.problem.mask = o.causal ? Mask::causal : Mask::full;
  config.plan = default_plan(config.problem);
  Plan& plan = config.plan;
  set_number(o.warpgroups, &plan.warpgroups);
  set_number(o.teams, &plan.teams);
  set_number(o.tile_kv, &plan.tile_kv);
  set_number(o.stages, &plan.kv_stages);
  set_number(o.q_stages, &plan.q_stages);
  set_number(o.lazy_threshold_log2, &plan.lazy_threshold_log2);
  if (!o.schedule.empty()) plan.follow(schedule_or_leave(o.schedule));
  if (!o.softmax.empty()) plan.take(o.softmax == "lazy" ? Softmax::lazy : o.softmax == "guarded" ? Softmax::guarded : Softmax::plain);
  set_switch(o.ping_pong, &plan.ping_pong);
  set_switch(o.dynamic_tiles, &plan.dynamic_tiles);
  set_switch(o.o_own_buffer, &plan.o_own_buffer);
  set_switch(o.late_store, &plan.late_store);
  set_switch(o.p_sums, &plan.p_sums);
  set_switch(o.pin_exp, &plan.pin_exp);
  return config;
}

}  // namespace flashptx
