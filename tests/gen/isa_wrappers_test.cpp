// Every wrapper once: what it prints must be a form of the table, and the whole must assemble.
//
// Wrappers that are one line each (FP_2, FP_3, FP_4) are listed by the macros themselves, so that a
// new one is tested without a new line here; the others are called below. Next:
// gen/isa/instructions.inc.
#include <set>

#include "gen/isa/kernel.h"
#include "tests/gen/isa_samples.h"
#include "tests/support.h"

namespace flashptx::test {
namespace {

using namespace gen;

struct Listed {
  const char* name;
  const char* opcode;
  std::size_t operands;
};
std::vector<Listed>& listed() {
  static std::vector<Listed> all;
  return all;
}
bool list(const char* name, const char* opcode, std::size_t operands) {
  listed().push_back({name, opcode, operands});
  return true;
}

// The wrappers' file once more, with the one-line macros as rows of a list.
struct OneLiners {
  Instr& emit(const std::string&, std::vector<Operand>, Location);
#define FP_AT Location at = Location::current()
#define FP_2(name, opcode) inline static const bool listed_##name = list(#name, opcode, 2);
#define FP_3(name, opcode) inline static const bool listed_##name = list(#name, opcode, 3);
#define FP_4(name, opcode) inline static const bool listed_##name = list(#name, opcode, 4);
#include "gen/isa/instructions_bulk.inc"
#include "gen/isa/instructions_float.inc"
#include "gen/isa/instructions_integer.inc"
#include "gen/isa/instructions_matrix.inc"
#include "gen/isa/instructions_memory.inc"
#include "gen/isa/instructions_sync.inc"
#undef FP_2
#undef FP_3
#undef FP_4
#undef FP_AT
};

struct Registers {
  explicit Registers(Kernel& k)
      : p(k.pred("p", 8)),
        h(k.b16("h", 8)),
        r(k.b32("r", 32)),
        d(k.b64("d", 8)),
        f(k.f32("f", 64)),
        s(k.b32("shared")),
        g(k.b64("global")),
        map(k.b64("map_address")) {
    for (int i = 0; i < 4; ++i) coords.push_back(r[i]);
  }
  Vec p, h, r, d, f;
  Reg s, g, map;
  std::vector<Operand> coords;
};

void call_integer(Kernel& k, const Registers& x) {
  const auto& [p, h, r, d, f, s, g, map, coords] = x;
  k.mov_b32(r[0], r[1]);
  k.mov_b32(r[0], h.slice(0, 2));
  k.mov_b32(h.slice(0, 2), r[1]);
  k.mov_b64(d[0], d[1]);
  k.mov_b64(d[0], r[1], r[2]);
  k.mov_b64(r.slice(0, 2), d[1]);
  k.mov_f32(f[0], f[1]);
  k.mov_pred(p[0], p[1]);
  k.add_u32(r[0], r[1], r[2]);
  k.add_s32(r[0], r[1], r[2]);
  k.sub_u32(r[0], r[1], r[2]);
  k.sub_s32(r[0], r[1], r[2]);
  k.mul_lo_u32(r[0], r[1], r[2]);
  k.mul_wide_u32(d[0], r[1], r[2]);
  k.mad_lo_u32(r[0], r[1], r[2], r[3]);
  k.mad_wide_u32(d[0], r[1], r[2], d[3]);
  k.div_u32(r[0], r[1], r[2]);
  k.rem_u32(r[0], r[1], r[2]);
  k.min_s32(r[0], r[1], r[2]);
  k.max_s32(r[0], r[1], r[2]);
  k.min_u32(r[0], r[1], r[2]);
  k.max_u32(r[0], r[1], r[2]);
  k.add_u64(d[0], d[1], d[2]);
  k.add_s64(d[0], d[1], d[2]);
  k.and_b32(r[0], r[1], r[2]);
  k.or_b32(r[0], r[1], r[2]);
  k.xor_b32(r[0], r[1], r[2]);
  k.and_pred(p[0], p[1], p[2]);
  k.or_pred(p[0], p[1], p[2]);
  k.not_pred(p[0], p[1]);
  k.shl_b32(r[0], r[1], r[2]);
  k.shr_u32(r[0], r[1], r[2]);
  k.shr_s32(r[0], r[1], r[2]);
  k.lop3_b32(r[0], r[1], r[2], r[3], 0xCA);
  k.prmt_b32(r[0], r[1], r[2], 4);
  k.bfi_b32(r[0], r[1], r[2], 4, 4);
  k.bfi_b64(d[0], d[1], d[2], 4, 4);
  k.setp("lt", "u32", p[0], r[1], r[2]);
  k.setp("lt", "and", "u32", p[0], r[1], r[2], p[1]);
  k.selp_b32(r[0], r[1], r[2], p[3]);
  k.selp_f32(f[0], f[1], f[2], p[3]);
  k.selp_b64(d[0], d[1], d[2], p[3]);
  k.selp_b16(h[0], h[1], h[2], p[3]);
}

void call_float(Kernel& k, const Registers& x) {
  const auto& [p, h, r, d, f, s, g, map, coords] = x;
  k.fma_rn_ftz_f32(f[0], f[1], f[2], f[3]);
  k.fma_rn_f32(f[0], f[1], f[2], f[3]);
  k.add_ftz_f32(f[0], f[1], f[2]);
  k.sub_ftz_f32(f[0], f[1], f[2]);
  k.mul_ftz_f32(f[0], f[1], f[2]);
  k.add_f32(f[0], f[1], f[2]);
  k.sub_f32(f[0], f[1], f[2]);
  k.mul_f32(f[0], f[1], f[2]);
  k.max_ftz_f32(f[0], f[1], f[2]);
  k.max_f32(f[0], f[1], f[2]);
  k.min_f32(f[0], f[1], f[2]);
  k.neg_f32(f[0], f[1]);
  k.abs_f32(f[0], f[1]);
  k.ex2_approx_ftz_f32(f[0], f[1]);
  k.lg2_approx_ftz_f32(f[0], f[1]);
  k.rcp_approx_ftz_f32(f[0], f[1]);
  k.cvt_rn_x2_f32("bf16", r[1], f[2], f[3]);
  k.cvt_rn_relu_x2_f32("f16", r[1], f[2], f[3]);
  k.cvt_rn_satfinite_x2_f32("bf16", r[1], f[2], f[3]);
  k.cvt_rn_satfinite_fp8x2_f32("e4m3", h[1], f[2], f[3]);
  k.cvt_rn_satfinite_relu_fp8x2_f32("e5m2", h[1], f[2], f[3]);
  k.cvt_rn_satfinite_fp8x2_f16x2("e4m3", h[1], r[2]);
  k.cvt_rn_f16x2_fp8x2("e4m3", r[1], h[2]);
  k.cvt_u64_u32(d[0], r[1]);
}

void call_memory(Kernel& k, const Registers& x) {
  const auto& [p, h, r, d, f, s, g, map, coords] = x;
  k.cvta_param_u64(d[0], d[1]);
  k.ld_param_u32(r[0], "map");
  k.ld_param_f32(f[0], "map");
  k.ld_param_u64(d[0], "map");
  k.ld_param("u32", r[1], address(symbol("map"), 16));
  k.ld_global("u32", r[1], address(g, 16));
  k.ld_global_nc("u32", r[1], address(g, 16));
  k.ld_global_nc_L1_no_allocate("u32", r[1], address(g, 16));
  k.ld_global_L2_cache_hint("u32", r[1], address(g, 16), hex(0x14F0000000000000));
  k.ld_relaxed_global("gpu", "u32", r[2], address(g, 16));
  k.ld_acquire_global("gpu", "u32", r[2], address(g, 16));
  k.ld_volatile_global("u32", r[1], address(g, 16));
  k.ld("u32", r[1], address(g, 16));
  k.ld_shared_u32(r[0], address(s, 16));
  k.ld_shared("u32", r[1], address(s, 16));
  k.ld_shared_cluster("u32", r[1], address(s, 16));
  k.st_global_f32(address(g, 16), f[1]);
  k.st_global_u32(address(g, 16), r[1]);
  k.st_global_v4_b32(address(g, 16), r.slice(0, 4));
  k.st_global("u32", address(g, 16), r[2]);
  k.st_relaxed_global("gpu", "u32", address(g, 16), r[3]);
  k.st_release_global("gpu", "u32", address(g, 16), r[3]);
  k.st_shared_u32(address(s, 16), r[1]);
  k.st_shared("u32", address(s, 16), r[2]);
  k.st_shared_cluster("u32", address(s, 16), r[2]);
  k.st_async("u32", address(s, 16), r[2], address(s, 8));
  k.createpolicy_fractional_L2("evict_last", d[1]);
  k.prefetch_global_L2(address(g, 16));
  k.prefetch_global_L2_evict_last(address(g, 16));
  k.prefetch_tensormap(map);
  k.prefetch_param_tensormap("map");
  k.cp_async_ca(address(s, 16), address(g, 16), 16);
  k.cp_async_ca(address(s, 16), address(g, 16), 16, 4);
  k.cp_async_cg(address(s, 16), address(g, 16));
  k.cp_async_cg(address(s, 16), address(g, 16), 4);
  k.cp_async_commit_group();
  k.cp_async_wait_group(0);
  k.cp_async_wait_all();
  k.cp_async_mbarrier_arrive(address(s, 8));
  k.cp_async_mbarrier_arrive_noinc(address(s, 8));
  k.atom_global_add_u32(r[0], address(g, 16), r[2]);
  k.atom_global("relaxed", "gpu", "add.u32", r[3], address(g, 16), r[5]);
  k.atom_global_cas("acq_rel", "gpu", "b32", r[3], address(g, 16), 4, r[6]);
  k.atom_shared("add.u32", r[1], address(s, 16), r[3]);
  k.red_global("release", "gpu", "max.s32", address(g, 16), r[4]);
  k.red_shared("add.u32", address(s, 16), r[2]);
}

void call_bulk(Kernel& k, const Registers& x) {
  const auto& [p, h, r, d, f, s, g, map, coords] = x;
  k.cp_async_bulk_tensor_load(s, map, coords, address(s, 8));
  k.cp_async_bulk_tensor_load(s, map, coords, address(s, 8), hex(0x14F0000000000000));
  k.cp_async_bulk_tensor_load_multicast(s, map, coords, address(s, 8), h[0]);
  k.cp_async_bulk_tensor_load_multicast(s, map, coords, address(s, 8), h[0],
                                        hex(0x14F0000000000000));
  k.cp_async_bulk_tensor_store(map, coords, s);
  k.cp_async_bulk_tensor_store(map, coords, s, hex(0x14F0000000000000));
  k.cp_reduce_async_bulk_tensor("add", map, coords, s);
  k.cp_async_bulk_prefetch_tensor(map, coords);
  k.cp_async_bulk_load(address(s, 16), address(g, 16), 1024, address(s, 8));
  k.cp_async_bulk_load(address(s, 16), address(g, 16), 1024, address(s, 8),
                       hex(0x14F0000000000000));
  k.cp_async_bulk_load_multicast(address(s, 16), address(g, 16), 1024, address(s, 8), h[0]);
  k.cp_async_bulk_to_peer(address(s, 16), address(s, 16), 1024, address(s, 8));
  k.cp_async_bulk_store(address(g, 16), address(s, 16), 1024);
  k.cp_reduce_async_bulk("add.u32", address(g, 16), address(s, 16), 1024);
  k.cp_async_bulk_prefetch_L2(address(g, 16), 1024);
  k.cp_async_bulk_commit_group();
  k.cp_async_bulk_wait_group_read(0);
  k.cp_async_bulk_wait_group(0);
  k.tensormap_replace_global_address(address(s), d[0]);
  k.tensormap_replace_global_dim(address(s), 1, 4);
  k.tensormap_replace_global_stride(address(s), 1, d[0]);
  k.tensormap_cp_fenceproxy_release_gpu(address(g), address(s));
  k.fence_proxy_tensormap_acquire_gpu(address(g));
  k.fence_proxy_tensormap_release_gpu();
}

void call_sync(Kernel& k, const Registers& x) {
  const auto& [p, h, r, d, f, s, g, map, coords] = x;
  k.shfl_sync_bfly_b32(r[0], r[1], 1);
  k.shfl_sync_idx_b32(r[0], r[1], 4);
  k.shfl_sync_idx_b32(r[0], r[1], 4, 4);
  k.shfl_sync_up_b32(r[0], r[1], 4);
  k.shfl_sync_down_b32(r[0], r[1], 4);
  k.vote_sync_any_pred(p[0], p[1]);
  k.vote_sync_all_pred(p[0], p[1]);
  k.vote_sync_uni_pred(p[0], p[1]);
  k.vote_sync_ballot_b32(r[0], p[1]);
  k.match_any_sync_b32(r[0], r[1]);
  k.match_all_sync_b32(r[0], p[1], r[2]);
  k.activemask_b32(r[0]);
  k.redux_sync("add.u32", r[1], r[2]);
  k.elect_sync(p[0]);
  k.bar_sync(3, 256);
  k.bar_sync_all(0);
  k.bar_arrive(3, 256);
  k.bar_warp_sync();
  k.barrier_sync(3, 256);
  k.barrier_arrive(3, 256);
  k.bar_red_or_pred(p[0], 3, 256, p[3]);
  k.bar_red_popc_u32(r[0], 3, 256, p[3]);
  k.setmaxnreg_inc(40);
  k.setmaxnreg_dec(40);
  k.barrier_cluster_arrive_release();
  k.barrier_cluster_arrive_relaxed();
  k.barrier_cluster_wait_acquire();
  k.mapa_shared_cluster_u32(r[0], r[1], 1);
  k.mbarrier_init(address(s, 16), 4);
  k.mbarrier_inval(address(s, 16));
  k.mbarrier_arrive(address(s, 16));
  k.mbarrier_arrive(address(s, 16), 4);
  k.mbarrier_arrive_remote(address(s, 16));
  k.mbarrier_arrive_remote(address(s, 16), 4);
  k.mbarrier_arrive_expect_tx(address(s, 16), 1024);
  k.mbarrier_arrive_expect_tx_remote(address(s, 16), 1024);
  k.mbarrier_expect_tx(address(s, 16), 1024);
  k.mbarrier_try_wait_parity(p[0], address(s, 16), 1);
  k.mbarrier_try_wait_parity(p[0], address(s, 16), 1, 4);
  k.mbarrier_try_wait_parity_acquire_cluster(p[0], address(s, 16), 1);
  k.mbarrier_test_wait_parity(p[0], address(s, 16), 1);
  k.fence_mbarrier_init();
  k.fence_proxy_async_shared();
  k.fence_proxy_async_shared_cluster();
  k.fence_proxy_async_global();
  k.fence_proxy_async();
  k.fence_acq_rel_gpu();
  k.fence_acq_rel_cta();
  k.fence_acq_rel_cluster();
  k.fence_acq_rel_sys();
  k.clock(r[0]);
  k.clock64(d[0]);
  k.globaltimer(d[0]);
  k.smid(r[0]);
  k.nanosleep(4);
  k.trap().when(p[0]);
  k.exit().when(p[0]);
  k.ret().when(p[0]);
  k.griddepcontrol_wait();
  k.griddepcontrol_launch_dependents();
}

void call_matrix(Kernel& k, const Registers& x) {
  const auto& [p, h, r, d, f, s, g, map, coords] = x;
  k.ldmatrix(r.slice(0, 4), address(s, 16));
  k.ldmatrix_trans(r.slice(0, 4), address(s, 16));
  k.stmatrix_x4(address(s, 16), r.slice(0, 4));
  k.stmatrix(address(s, 16), r.slice(0, 4));
  k.stmatrix_trans(address(s, 16), r.slice(0, 4));
  k.movmatrix_trans(r[0], r[1]);
  k.mma_sync("m16n8k16", "f32", "bf16", "bf16", f.slice(0, 4), r.slice(0, 4), r.slice(4, 2),
             f.slice(0, 4));
  k.wgmma_fence();
  k.wgmma_commit_group();
  k.wgmma_wait_group(0);
  k.wgmma_ss_16("bf16", 64, f.slice(0, 32), d[3], d[4], 1, 0, 1);
  k.wgmma_rs_16("bf16", 64, f.slice(0, 32), r.slice(0, 4), d[4], 1, 1);
  k.wgmma_ss_8("e4m3", "e5m2", 64, f.slice(0, 32), d[4], d[5], 1);
  k.wgmma_rs_8("e4m3", "e5m2", 64, f.slice(0, 32), r.slice(0, 4), d[5], 1);
  k.wgmma_mma_async(64, 32, "f16.e4m3.e4m3", r.slice(0, 16), d[4], d[5], {0, 1, -1});
}

void call_all(Kernel& k) {
  k.threads(256);
  k.min_ctas_per_sm(1);
  k.param_tensor_map("map");
  Registers x(k);
  call_integer(k, x);
  call_float(k, x);
  call_memory(k, x);
  call_bulk(k, x);
  call_sync(k, x);
  call_matrix(k, x);
}

TEST_SUITE("gen/isa_wrappers") {
  TEST_CASE("every one-line wrapper prints a form of the table with its number of operands") {
    std::set<std::pair<std::string, std::size_t>> known;
    for (const Sample& s : all_samples()) known.insert({s.opcode, s.operands.size()});
    CHECK(listed().size() > 100);
    for (const Listed& w : listed()) {
      std::string name = w.name, path = w.opcode;
      CHECK_MESSAGE(known.count({path, w.operands}), (name + ": " + path));
      // the name is the opcode path with dots as underscores, state space qualifiers shortened
      std::string spelt = path;
      for (const char* dropped : {".relaxed.gpu", "::cta"})
        if (auto at = spelt.find(dropped); at != std::string::npos)
          spelt.erase(at, std::string(dropped).size());
      for (char& c : spelt) c = c == '.' ? '_' : c;
      CHECK(name == spelt);
    }
  }

  TEST_CASE("every other wrapper emits, and ptxas takes the whole at the version that it states") {
    Kernel k("wrappers");
    call_all(k);
    CHECK(k.ptx_version() == 83);
    if (ptxas().empty()) FLASHPTX_SKIP("no ptxas");
    Assembled a = assemble(k.text(), "-O0");
    CHECK_MESSAGE(a.ok, a.log);
  }
}

}  // namespace
}  // namespace flashptx::test
