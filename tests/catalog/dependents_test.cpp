// Programmatic dependent launch: where each kernel waits for the grid before it, and where it lets the next one in.
//
// The emulator runs grids one after the other, so that no run would notice an access in front of the wait: the texts, and what ptxas
// makes of them, are read instead. Next: gen/tile/tile_scheduler.cpp and gen/kernels/prepare_rows.cpp (why it is where it is),
// tests/gpu/dependents_gpu_test.cpp (kernels in a row).
#include <sstream>

#include "gen/catalog.h"
#include "gen/kernels/prepare.h"
#include "gen/kernels/prepare_kernels.h"
#include "tests/attention/beds.h"
#include "tests/support.h"
#include "tools/flashptx/sass.h"

using namespace flashptx;

namespace {

constexpr auto npos = std::string::npos;
const std::string wait = "griddepcontrol.wait;", lets_in = "griddepcontrol.launch_dependents;";

// From the entry's body on, without comments.
std::string body_of(const std::string& text) {
  std::istringstream lines(text.substr(text.find("\n{\n")));
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t note = line.find("//");
    // Titles of sections stay, to be found.
    out += (line.find("// ==") != npos ? line : line.substr(0, note)) + "\n";
  }
  return out;
}

std::size_t first_access(const std::string& body, std::size_t from) {
  std::size_t at = npos;
  for (const char* access : {"ld.global", "st.global", "atom.global", "red.global", "red.release.gpu.global", "red.relaxed.gpu.global",
                             "ld.acquire.gpu.global", "prefetch.global", "cp.async.bulk.tensor"})
    at = std::min(at, body.find(access, from));
  return at;
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != npos; at = text.find(what, at + 1)) ++n;
  return n;
}

// "" or what is wrong.
std::string fault_of_attention(const KernelConfig& c, const std::string& text) {
  const std::string body = body_of(text);
  const std::size_t first = first_access(body, 0);
  if (c.plan.symmetric) return body.find(wait) < first && body.find(lets_in) < first ? "" : "an access in front of the wait";
  const std::size_t consumer = body.find("role: consumer"), producer = body.find("role: producer");
  if (consumer == npos || producer < consumer) return "roles are not where they were";
  if (first < consumer) return "an access in front of the roles";
  // A consumer's first word from the producer is a tile, or that there is none.
  const std::size_t fetched = body.find("$WAIT_TILE_FULL", consumer);
  if (fetched == npos || first_access(body, consumer) < fetched) return "a consumer's access in front of its first tile";
  const std::size_t waited = body.find(wait, producer);
  if (waited == npos || first_access(body, producer) < waited) return "an access of the producer in front of the wait";
  if (body.find("mbarrier.arrive", producer) < waited) return "something is published in front of the wait";
  if (body.find(lets_in, producer) > waited || count(body, lets_in) != 1) return "the next grid is not let in, or twice";
  // Nothing between the choice of the thread and the wait lets a CTA leave without.
  const std::size_t elected = body.find("elect.sync", producer);
  if (elected > waited || count(body.substr(elected, waited - elected), "bra ") != 1) return "a way around the wait";
  if (count(body, wait) != (c.plan.v_background ? 2u : 1u)) return "as many waits as roles that begin with one";
  if (!c.plan.v_background) return "";
  const std::size_t background = body.find("V to V^T in the background");
  return body.find(wait, background) < first_access(body, background) ? "" : "an access in the background in front of the wait";
}

std::string fault_of_preparation(const PrepareConfig& c, const std::string& text) {
  const std::string body = body_of(text);
  if (body.find("ld.global.nc") != npos) return "a load that ptxas moves across the wait";
  const std::size_t waited = body.find(wait), let = body.find(lets_in), first = first_access(body, 0);
  if (waited == npos || waited > first) return "an access in front of the wait";
  if (let == npos || let < waited || let > first) return "the next grid is not let in between wait and access";
  if (c.sink == Sink::quantize_blocks && !c.transposed && !c.packed) {  // the way of blocks that are held, and that of others
    const std::size_t other = body.find("// == a block of several chunks"), again = body.find(wait, waited + 1);
    return again < other && body.rfind("st.global", again) > first && body.rfind("st.global", again) != npos ? "" : "long blocks do not wait";
  }
  if (!gen::reads_ahead(c)) return count(body, wait) == 1 && body[waited - 1] == ' ' && body[waited - 2] == ' ' ? "" : "a wait on a condition";
  // Rows are read ahead unless there is no amax; its magnitudes are read, and all is written, behind a wait of every thread.
  if (body.substr(waited - 17, 17).find("@%no_amax_before ") == npos) return "it waits before it reads, or not at all with a fixed scale";
  const std::size_t all = body.find(" " + wait, waited + 1);
  if (all == npos || body[all - 1] != ' ') return "no wait behind amax";
  return first < all && all < body.find("[amax]") && all < body.find("st.global") ? "" : "amax is not waited for in front of what it wrote";
}

std::string fault_of_attention(const KernelConfig& c) { return fault_of_attention(c, emit(c).text); }
std::string fault_of_preparation(const PrepareConfig& c) { return fault_of_preparation(c, emit_prepare(c).text); }

// The first line that holds `what` from `from` on, moved behind the next one that holds `to`, or taken out.
std::string moved(std::string text, const std::string& from, const std::string& what, const std::string& to) {
  const std::size_t at = text.find(what, text.find(from)), begin = text.rfind('\n', at) + 1, end = text.find('\n', at) + 1;
  REQUIRE(at != npos);
  const std::string line = text.substr(begin, end - begin);
  text.erase(begin, end - begin);
  if (to.empty()) return text;
  const std::size_t place = text.find(to, begin);
  REQUIRE(place != npos);
  return text.insert(text.find('\n', place) + 1, line);
}

PrepareConfig preparation(const std::string& name) {
  PrepareConfig c;
  std::string error;
  REQUIRE_MESSAGE(PrepareConfig::parse(name, &c, &error), error);
  return c;
}

std::vector<PrepareConfig> preparations() {
  std::vector<PrepareConfig> all = prepare_catalog();
  for (const char* name :
       {"prep_amax_f16_d176", "prep_quantize_f16_e5m2_d64", "prep_quantize_bf16_e4m3_d176", "prep_quantize_blocks_bf16_e4m3_d256_r32",
        "prep_hadamard_amax_bf16_d64", "prep_hadamard_quantize_bf16_e4m3_d128", "prep_hadamard_quantize_bf16_e4m3_d96",
        "prep_rope_half_f32_bf16_d128", "prep_rope_interleaved_bf16_f16_d64", "prep_rope_half_bf16_hadamard_bf16_d256",
        "prep_rope_interleaved_f32_quantize_bf16_e4m3_d256", "prep_rope_half_f32_amax_bf16_d128",
        "prep_rope_half_bf16_quantize_blocks_bf16_e4m3_d64_r64", "prep_rope_interleaved_f32_hadamard_quantize_blocks_f16_e4m3_d128_r128",
        "prep_rope_half_bf16_hadamard_quantize_bf16_e4m3_d256_packed", "prep_quantize_transpose_f16_e5m2_d256"})
    all.push_back(preparation(name));
  return all;
}

}  // namespace

TEST_SUITE("catalog/dependents") {
  TEST_CASE("attention waits in every CTA, in front of all that it reads, writes or publishes") {
    for (const KernelConfig& c : catalog()) CHECK_MESSAGE(fault_of_attention(c) == "", c.name(), ": ", fault_of_attention(c));
    for (const char* name : {"attn_fwd_bf16_d256_full__q128_kv64_s2__overlap_pp_guarded1_ob_c2",
                             "attn_fwd_bf16_d128_causal__q192_kv64_s4_qs2__overlap_guarded1_dyn_c2",
                             "attn_fwd_e4m3_d256_full_vt__q128_kv128_s2__overlap_pp_guarded3_ob_fold16_c2",
                             "attn_fwd_bf16_d64_full__q128_kv64_s4_qs2__overlap_pp_guarded2_ob_x2",
                             "attn_fwd_bf16_d64_full__q256_kv64_s8_qs2__overlap_pp_guarded2_ob_late_tail",
                             "attn_fwd_e4m3_d256_full_vt__q128_kv128_s2_vb__overlap_pp_guarded3_ob",
                             "attn_fwd_e4m3_d64_full__q128_kv128_s2__serial_pp_guarded3_ob"}) {
      const KernelConfig c = test::kernel_named(name);
      CHECK_MESSAGE(fault_of_attention(c) == "", name, ": ", fault_of_attention(c));
    }
    KernelConfig c = test::kernel_named("attn_fwd_bf16_d128_full__q128_kv64_s2__overlap_lazy8");
    c.plan.symmetric = true;
    CHECK_MESSAGE(fault_of_attention(c) == "", c.name(), ": ", fault_of_attention(c));
  }

  TEST_CASE("preparation waits in every thread in front of memory, or behind amax in front of what that wrote") {
    for (const PrepareConfig& c : preparations()) CHECK_MESSAGE(fault_of_preparation(c) == "", c.name(), ": ", fault_of_preparation(c));
  }

  TEST_CASE("a wait that is missing or stands further down is noticed") {
    for (const char* name : {"attn_fwd_bf16_d128_full__q192_kv64_s3_qs2__overlap_pp_guarded1", "attn_fwd_e4m3_d128_full__q192_kv128_s2_qs2__serial_pp_guarded6_chord4_psum_dyn_ob"}) {
      const KernelConfig c = test::kernel_named(name);
      const std::string text = emit(c).text;
      CHECK(fault_of_attention(c, moved(text, "role: producer", wait, "")) != "");
      CHECK(fault_of_attention(c, moved(text, "role: producer", wait, "mbarrier.arrive")) != "");
      CHECK(fault_of_attention(c, moved(text, "role: producer", wait, "cp.async.bulk.tensor")) != "");
      CHECK(fault_of_attention(c, moved(text, "role: producer", lets_in, "")) != "");
      CHECK(fault_of_attention(c, moved(text, "role: producer", wait, "bra ")) != "");
    }
    for (const char* name : {"prep_amax_bf16_d128", "prep_transpose_fp8_d128", "prep_hadamard_bf16_d128", "prep_quantize_blocks_bf16_e4m3_d128_r128",
                             "prep_rope_half_f32_hadamard_quantize_blocks_bf16_e4m3_d128_r128_packed"}) {
      const PrepareConfig c = preparation(name);
      const std::string text = emit_prepare(c).text;
      CHECK(fault_of_preparation(c, moved(text, "{\n", wait, "")) != "");
      CHECK(fault_of_preparation(c, moved(text, "{\n", wait, "global")) != "");
      CHECK(fault_of_preparation(c, moved(text, "{\n", lets_in, "")) != "");
    }
    const PrepareConfig blocks = preparation("prep_quantize_blocks_bf16_e4m3_d128_r128"), behind = preparation("prep_quantize_bf16_e4m3_d128");
    const std::string of_blocks = emit_prepare(blocks).text, of_behind = emit_prepare(behind).text;
    CHECK(fault_of_preparation(blocks, moved(of_blocks, "to 8 bits", wait, "")) != "");
    CHECK(fault_of_preparation(behind, moved(of_behind, "{\n", wait, "")) != "");
    CHECK(fault_of_preparation(behind, moved(of_behind, "read once", wait, "")) != "");
    CHECK(fault_of_preparation(behind, moved(of_behind, "read once", wait, "ld.global.f32")) != "");
  }

  TEST_CASE("ptxas moves no access of a preparation in front of its wait, and amax lets nobody in before") {
    const sass::Tools tools = sass::find_tools();
    if (tools.ptxas.empty() || tools.disassembler.empty()) FLASHPTX_SKIP(tools.how_to_get);
    for (const PrepareConfig& c : preparations()) {
      CAPTURE(c.name());
      int waits = 0, accesses = 0, early = 0;
      for (const sass::Function& f : sass::parse_disassembly(sass::assemble(tools, emit_prepare(c).text).disassembly)) {
        if (f.name != c.name()) continue;
        for (const sass::Instruction& i : f.code) {
          const auto is = [&](const char* opcode) { return i.opcode.rfind(opcode, 0) == 0; };
          if (is("ACQBULK")) ++waits;
          if (is("LDG") || is("STG") || is("RED") || is("ATOM") || is("CCTL") || (is("PREEXIT") && c.sink == Sink::amax)) {
            ++accesses;
            early += waits == 0;
          }
        }
      }
      CHECK(waits >= 1);
      CHECK(accesses >= 2);
      CHECK(early == 0);
    }
  }
}
