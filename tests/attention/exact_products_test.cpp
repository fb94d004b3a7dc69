// Attention whose products are exact: O must be the right number, not a near one, whatever assembled the kernel.
//
// P V takes P from registers while the softmax of the next block runs. An assembler that gives these registers to
// something else before the product has read them (reported of ptxas for sm_90a) changes some sums a little, which an
// error bound may pass. So here scores are whole numbers, P is 1, 1/2, 1/4 or 0, V whole numbers: every sum is exact in fp32
// and in the 14 bits of 8-bit products, and only the division by the row's sum is rounded. Each row of a tile sees another
// pattern of P. FLASHPTX_EXACT_LAUNCHES: launches a kernel on the GPU. FLASHPTX_EXACT_IMAGES: a
// folder with kernels as some assembler made them (tools/bench/assemblers.sh), to be asked the same.
// Next: tests/catalog/wgmma_registers_test.cpp looks for the same fault in the machine code.
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include "tests/attention/beds.h"
#include "tests/emulator/mutants.h"
#include "tests/support.h"
#include "tools/reference/numeric.h"

using namespace flashptx;
using test::Bed;

namespace {

constexpr int nothing = 256;  // score of a key that must not count: exp2(-256) is 0

std::uint32_t hash(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t h = a * 0x9e3779b1u ^ b * 0x85ebca77u ^ c * 0xc2b2ae3du;
  h = (h ^ h >> 15) * 0x2c1b3c6du;
  return h ^ h >> 13;
}
// Minus the score in log2 units, for rows of class `row_class` (what column of K they pick).
int level(int head, int key, int row_class) {
  static const int levels[] = {0, 0, 1, 2, nothing, nothing, 1, nothing};
  return levels[hash(static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(row_class)) % 8];
}
int value(int head, int key, int column) {
  return static_cast<int>(hash(static_cast<std::uint32_t>(head) + 99, static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(column)) % 7) - 3;
}
int class_of(int head, int row, int head_dim) { return (row * 7 + head) % head_dim; }

// Q's rows are unit vectors times 16; column c of K holds the scores of class c, over 16; the scale makes them log2 units.
reference::Tensors exact_tensors(const KernelConfig& c, std::int64_t heads, std::int64_t seqlen_q, std::int64_t seqlen_k) {
  reference::Problem p;
  p.dtype = c.problem.dtype, p.mask = c.problem.mask, p.dtype_o = c.problem.dtype_o;
  p.head_dim = c.problem.head_dim, p.head_dim_v = c.problem.head_dim_v;
  p.heads_q = p.heads_kv = heads, p.seqlen_q = seqlen_q, p.seqlen_k = seqlen_k;
  p.scale = std::log(2.0f);
  reference::Tensors t = reference::make_tensors(p, reference::Layout::bshd, reference::Inputs::ones, 1);
  const auto fill = [&](std::vector<std::uint8_t>& bytes, std::int64_t rows, const reference::Strides& s, int dim, auto&& number) {
    reference::parallel_for(rows, 0, [&](std::int64_t r) {
      for (std::int64_t h = 0; h < heads; ++h)
        for (int d = 0; d < dim; ++d)
          reference::store(p.dtype, bytes.data(), r * s.seqlen + h * s.head + d, number(static_cast<int>(h), static_cast<int>(r), d));
    });
  };
  fill(t.q, seqlen_q, t.problem.q_strides, p.head_dim,
       [&](int h, int r, int d) { return d == class_of(h, r, p.head_dim) ? 16.0 : 0.0; });
  fill(t.k, seqlen_k, t.problem.k_strides, p.head_dim, [](int h, int r, int d) { return -level(h, r, d) / 16.0; });
  fill(t.v, seqlen_k, t.problem.v_strides, p.head_dim_v, [](int h, int r, int d) { return value(h, r, d); });
  return t;
}

// O as the exact quotient, (row, head, column), and LSE, (head, row). The same for all types.
struct Exact {
  std::vector<double> o, lse;
};

Exact exact_result(const reference::Problem& p) {
  Exact e;
  const auto dim = static_cast<std::size_t>(p.head_dim_v), heads = static_cast<std::size_t>(p.heads_q);
  const auto rows = static_cast<std::size_t>(p.seqlen_q);
  e.o.resize(rows * heads * dim), e.lse.resize(heads * rows);
  std::vector<float> values(static_cast<std::size_t>(p.seqlen_k) * dim);
  for (int h = 0; h < p.heads_q; ++h) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(value(h, static_cast<int>(i / dim), static_cast<int>(i % dim)));
    reference::parallel_for(p.seqlen_q, 0, [&](std::int64_t r) {
      const auto keys = static_cast<int>(p.visible(r)), c = class_of(h, static_cast<int>(r), p.head_dim);
      int least = nothing;
      for (int k = 0; k < keys; ++k) least = std::min(least, level(h, k, c));
      double sum = 0;
      std::vector<double> sums(dim, 0.0);
      for (int k = 0; k < keys; ++k) {
        const int below = level(h, k, c) - least;
        if (below > 100) continue;
        const double weight = std::ldexp(1.0, -below);
        const float* v = &values[static_cast<std::size_t>(k) * dim];
        sum += weight;
        for (std::size_t d = 0; d < dim; ++d) sums[d] += weight * static_cast<double>(v[d]);
      }
      const auto row = static_cast<std::size_t>(r), head = static_cast<std::size_t>(h);
      e.lse[head * rows + row] = keys == 0 ? -INFINITY : std::log(sum) - least * std::log(2.0);
      for (std::size_t d = 0; d < dim; ++d) e.o[(row * heads + head) * dim + d] = keys == 0 ? 0 : sums[d] / sum;
    });
  }
  return e;
}
// Kept: thirty kernels ask for the same six.
const Exact& exact_of(const reference::Problem& p) {
  static std::map<std::array<std::int64_t, 5>, Exact> known;
  const std::array<std::int64_t, 5> key{p.head_dim, p.mask == Mask::causal, p.heads_q, p.seqlen_q, p.seqlen_k};
  const auto it = known.find(key);
  return it != known.end() ? it->second : known.emplace(key, exact_result(p)).first->second;
}

// What O may be: an fp32 reciprocal and product are off by less than 2^-20, then O's type rounds. Of a cut tile each part's O
// (at most 3 in size) is divided before both are added, so that a sum of 0 may leave what rounding left.
struct Range {
  double low, high;
};
Range range_of(const reference::Problem& p, double x, bool cut) {
  const double slack = std::fabs(x) * 0x1p-20 + (cut ? 3 * 0x1p-22 : 0);
  return {reference::round_to(p.output(), x - slack), reference::round_to(p.output(), x + slack)};
}

// The first element that is not what it must be; empty if all are.
std::string wrong(const reference::Problem& p, bool cut, const Exact& e, const std::vector<std::uint8_t>& o, const std::vector<std::uint8_t>& lse) {
  std::size_t many = 0;
  std::string first;
  for (std::size_t i = 0; i < e.o.size(); ++i) {
    const double got = reference::load(p.output(), o.data(), static_cast<std::int64_t>(i));
    const Range may = range_of(p, e.o[i], cut);
    if (got >= may.low && got <= may.high) continue;
    const std::size_t column = i % static_cast<std::size_t>(p.head_dim_v), row_head = i / static_cast<std::size_t>(p.head_dim_v),
                      heads = static_cast<std::size_t>(p.heads_q);
    if (many++ == 0)
      first = "O[row " + std::to_string(row_head / heads) + "][head " + std::to_string(row_head % heads) + "][" +
              std::to_string(column) + "] is " + std::to_string(got) + ", must be " + std::to_string(may.low);
  }
  for (std::size_t i = 0; i < e.lse.size(); ++i) {
    float got;
    std::memcpy(&got, lse.data() + 4 * i, 4);
    if (got == static_cast<float>(e.lse[i]) || std::fabs(got - e.lse[i]) <= 4e-6 * (1 + std::fabs(e.lse[i]))) continue;
    if (many++ == 0) first = "LSE " + std::to_string(i) + " is " + std::to_string(got) + ", must be " + std::to_string(e.lse[i]);
  }
  return many == 0 ? "" : first + "; " + std::to_string(many) + " wrong";
}

// Kept too: several kernels, and each of several assemblers, get the same tensors.
const Case& case_of(const KernelConfig& c, std::int64_t heads, std::int64_t seqlen_q, std::int64_t seqlen_k) {
  static std::map<std::array<std::int64_t, 8>, Case> known;
  const ProblemClass& p = c.problem;
  const std::array<std::int64_t, 8> key{static_cast<int>(p.dtype), static_cast<int>(p.dtype_o), p.mask == Mask::causal, p.head_dim,
                                        p.head_dim_v, heads, seqlen_q, seqlen_k};
  const auto it = known.find(key);
  if (it != known.end()) return it->second;
  return known.emplace(key, make_case(exact_tensors(c, heads, seqlen_q, seqlen_k), reference::Layout::bshd, true, 1)).first->second;
}

// A loaded problem, run again and again.
class Run {
 public:
  Run(Bed& bed, const KernelConfig& config, const std::string& image, std::int64_t heads, std::int64_t seqlen_q, std::int64_t seqlen_k)
      : bed_(bed), case_(case_of(config, heads, seqlen_q, seqlen_k)), exact_(exact_of(case_.problem())) {
    choice_.kernel = config.name(), choice_.ptx = image, kernel_cuts_ = config.plan.split_tail;
  }
  // The complaint of the first launch that has one.
  std::string launch(int times) {
    for (int i = 0; i < times; ++i) {
      const Outcome r = run_case(*bed_.device, *bed_.attention, case_, choice_);
      if (!r.status.ok()) return r.status.message;
      if (!r.guards_untouched) return "bytes beside O or LSE were written";
      if (i > 0 && r.o_bytes == first_.o_bytes && r.lse_bytes == first_.lse_bytes) continue;
      if (const std::string w = wrong(case_.problem(), kernel_cuts_, exact_, r.o_bytes, r.lse_bytes); !w.empty())
        return "launch " + std::to_string(i) + ": " + w;
      if (i > 0) return "launch " + std::to_string(i) + " gives other bits than the first";
      first_ = r;
    }
    return "";
  }

 private:
  Bed& bed_;
  bool kernel_cuts_ = false;
  const Case& case_;
  const Exact& exact_;
  ForwardChoice choice_;
  Outcome first_;
};

Bed adversary(std::uint64_t seed, int level, bool check_hazards) {
  EmulatorOptions o;
  o.seed = seed, o.adversary_level = level, o.check_hazards = check_hazards, o.multiprocessors = 2;
  return test::open_bed(DeviceChoice::emulator, o);
}

// Keys of several blocks, the last not full; rows of two tiles.
constexpr std::int64_t few_rows = 205, few_keys = 525;

std::string cubin_of(const std::string& text) {
  const test::ScratchFolder folder;
  test::write_file(folder.path("k.ptx"), text);
  const test::ProcessResult r = test::shell(test::ptxas() + " -arch=sm_90a " + folder.path("k.ptx") + " -o " + folder.path("k.cubin"));
  REQUIRE_MESSAGE(r.exit_code == 0, r.output);
  return test::read_file(folder.path("k.cubin"));
}

struct Asked {
  std::vector<std::array<std::int64_t, 3>> shapes;  // heads, rows, keys
  int launches = 1;
};
Asked of_a_gpu() {
  const char* launches = std::getenv("FLASHPTX_EXACT_LAUNCHES");
  return {{{4, 1000, 4096}, {2, few_rows, few_keys}, {3, 300, 130}}, launches ? std::max(1, std::atoi(launches)) : 100};
}

// The first complaint about a kernel, over all shapes.
std::string complaint_of(Bed& bed, const KernelConfig& c, const std::string& image, const Asked& asked) {
  for (const auto& [heads, rows, keys] : asked.shapes)
    if (const std::string bad = Run(bed, c, image, heads, rows, keys).launch(asked.launches); !bad.empty())
      return c.name() + " " + std::to_string(rows) + " x " + std::to_string(keys) + ": " + bad;
  return "";
}

void every_kernel_on_the_gpu(Bed& gpu, bool by_ptxas) {
  for (const KernelConfig& c : catalog()) CHECK(complaint_of(gpu, c, by_ptxas ? cubin_of(emit(c).text) : "", of_a_gpu()) == "");
}

// FOLDER/ASSEMBLER/KERNEL.cubin, or .ptx for the device's own assembler: by assembler how many were asked, and complaints.
struct Images {
  std::map<std::string, int> asked;
  std::vector<std::string> complaints;
};
Images exact_images(Bed& bed, const std::string& folder, const Asked& asked) {
  Images out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension(), from = entry.path().parent_path().filename();
    if (extension != ".cubin" && extension != ".ptx") continue;
    KernelConfig c;
    std::string bad;
    const std::string image = test::read_file(entry.path());
    ++out.asked[from];
    if (image.empty()) bad = entry.path().string() + " is empty";
    else if (KernelConfig::parse(entry.path().stem(), &c, &bad)) bad = complaint_of(bed, c, image, asked);
    if (!bad.empty()) out.complaints.push_back(from + ": " + bad);
  }
  return out;
}

}  // namespace

TEST_SUITE("attention/exact products") {
  TEST_CASE("emulator: every kernel of the catalogue gives exact numbers") {
    Bed beds[] = {adversary(0, 0, true), adversary(7, 2, true)};
    for (const KernelConfig& c : catalog())
      for (Bed& bed : beds) {
        const std::string complaint = Run(bed, c, "", 1, few_rows, few_keys).launch(1);
        CHECK_MESSAGE(complaint.empty(), c.name(), ": ", complaint);
      }
  }

  TEST_CASE("emulator: a register of P written before the product has read it gives another number") {
    Bed bed = adversary(2, 2, false);  // nothing but the numbers can tell
    for (const char* name : {"attn_fwd_bf16_d64_causal__q256_kv64_s4_qs2__overlap_pp_guarded2_dyn_ob",
                             "attn_fwd_f16_d128_full__q192_kv64_s3_qs2__overlap_pp_guarded1",
                             "attn_fwd_e4m3_d64_full__q192_kv128_s3_qs2__trailing_pp_guarded3_dyn_ob"}) {
      KernelConfig c;
      std::string error;
      REQUIRE_MESSAGE(KernelConfig::parse(name, &c, &error), error);
      int tried = 0, noticed = 0;
      const std::string text = emit(c).text;
      for (const emulator::test::Mutant& m : emulator::test::make_mutants(text)) {
        if (m.kind != "early A write" || ++tried > 6) continue;
        noticed += !Run(bed, c, m.text(text), 1, few_rows, few_keys).launch(1).empty();
      }
      CHECK(tried > 3);
      CHECK_MESSAGE(noticed >= 3, name, ": ", noticed);
    }
  }

  TEST_CASE("gpu: exact numbers from what the driver's assembler makes of each kernel") {
    Bed& gpu = test::gpu_bed();
    if (!gpu.device) FLASHPTX_SKIP("no GPU: " + gpu.missing);
    every_kernel_on_the_gpu(gpu, false);
  }

  TEST_CASE("gpu: exact numbers from what ptxas makes of each kernel") {
    Bed& gpu = test::gpu_bed();
    if (!gpu.device) FLASHPTX_SKIP("no GPU: " + gpu.missing);
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas ($CUDA_HOME, PATH, /usr/local/cuda, build/cuda)");
    every_kernel_on_the_gpu(gpu, true);
  }

  TEST_CASE("gpu: exact numbers from what other assemblers made") {
    const char* folder = std::getenv("FLASHPTX_EXACT_IMAGES");
    if (folder == nullptr) FLASHPTX_SKIP("FLASHPTX_EXACT_IMAGES names no folder of cubins");
    Bed& gpu = test::gpu_bed();
    if (!gpu.device) FLASHPTX_SKIP("no GPU: " + gpu.missing);
    const Images images = exact_images(gpu, folder, of_a_gpu());
    for (const auto& [from, count] : images.asked) MESSAGE(from << ": " << count << " kernels asked");
    for (const std::string& complaint : images.complaints) FAIL_CHECK(complaint);
    CHECK_FALSE(images.asked.empty());
  }

  TEST_CASE("emulator: of kernels in a folder the wrong one is named with its assembler") {
    const test::ScratchFolder folder;
    KernelConfig c;
    std::string error;
    REQUIRE_MESSAGE(KernelConfig::parse("attn_fwd_bf16_d64_full__q64_kv64_s2__overlap_guarded1", &c, &error), error);
    const std::string text = emit(c).text;
    for (const char* assembler : {"good", "bad"}) std::filesystem::create_directory(folder.path(assembler));
    test::write_file(folder.path("good/" + c.name() + ".ptx"), text);
    test::write_file(folder.path("good/notes.txt"), "left alone");
    test::write_file(folder.path("bad/attn_fwd_bf16_d64_full__q64_kv64_s2__frobnicate.ptx"), text);
    test::write_file(folder.path("bad/" + c.name() + ".cubin"), "");
    for (const emulator::test::Mutant& m : emulator::test::make_mutants(text))
      if (m.kind == "early A write") test::write_file(folder.path("bad/" + c.name() + ".ptx"), m.text(text));
    Bed bed = adversary(2, 2, false);
    const Images images = exact_images(bed, folder.path(""), {{{1, few_rows, few_keys}}, 1});
    CHECK(images.asked.at("good") == 1);
    CHECK(images.asked.at("bad") == 3);
    REQUIRE(images.complaints.size() == 3);
    for (const std::string& complaint : images.complaints) CHECK(complaint.rfind("bad: ", 0) == 0);
  }
}
