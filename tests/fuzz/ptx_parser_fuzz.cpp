// libFuzzer target: bytes to lexer, parser, printer and decoder of the emulator. Built and run by
// `make fuzz-parser` (clang++ with its fuzzer runtime); a text that breaks a rule of ptx_check.h aborts and
// is kept as crash-* in $(BUILD)/fuzz. Fixed findings move to tests/fuzz/corpus.
//
// Half of the mutations work on bytes (libFuzzer's own), half on tokens and lines: bytes alone seldom get
// past the lexer. Next: tests/fuzz/ptx_check.h.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "tests/fuzz/ptx_check.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

// Constants and operands at the limits of what the language and the decoder can hold.
const char* const kEdges[] = {"0", "1", "-1", "31", "32", "255", "256", "257", "65535", "65536", "4294967295",
                              "4294967296", "18446744073709551615", "-9223372036854775808", "0x80000000",
                              "0f7F800000", "0d7FF0000000000000", "1e308", "0.0", "077", "0b1", "1U", "_", "{}",
                              "[]", "%r0", "%p0", "!", "|", "<2>", "<0>", "[1073741824]", ".v4", ".pred", ".b8",
                              ".b64", "{0, 0, 0}", "[%r0+4]", "$L:", "@%p0", ".align 1048576", "ret;"};

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '%' ||
         c == '$' || c == ':';
}

struct Span {
  std::size_t from, bytes;
};
std::vector<Span> tokens_of(const std::string& s) {
  std::vector<Span> out;
  for (std::size_t i = 0; i < s.size();) {
    std::size_t end = i + 1;
    if (is_word(s[i])) {
      while (end < s.size() && is_word(s[end])) ++end;
    }
    if (s[i] > ' ') out.push_back({i, end - i});
    i = end;
  }
  return out;
}
std::vector<Span> lines_of(const std::string& s) {
  std::vector<Span> out;
  for (std::size_t i = 0; i < s.size();) {
    const std::size_t end = std::min(s.find('\n', i), s.size() - 1) + 1;
    out.push_back({i, end - i});
    i = end;
  }
  return out;
}

void bend(std::string& s, std::mt19937& rng) {
  const bool lines = rng() % 4 == 0;
  const std::vector<Span> spans = lines ? lines_of(s) : tokens_of(s);
  if (spans.empty()) return;
  const Span at = spans[rng() % spans.size()], other = spans[rng() % spans.size()];
  const std::string taken = s.substr(other.from, other.bytes);
  switch (rng() % (lines ? 3 : 5)) {
    case 0: s.erase(at.from, at.bytes); break;
    case 1: s.insert(at.from, lines ? taken : taken + " "); break;
    case 2: s.replace(at.from, at.bytes, taken); break;
    default: s.replace(at.from, at.bytes, kEdges[rng() % std::size(kEdges)]); break;
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  std::mt19937 rng(seed);
  if (rng() % 2) return LLVMFuzzerMutate(data, size, max_size);
  std::string s(reinterpret_cast<const char*>(data), size);
  for (unsigned i = 0, n = 1 + rng() % 3; i < n; ++i) bend(s, rng);
  if (s.size() > max_size) s.resize(max_size);
  std::memcpy(data, s.data(), s.size());
  return s.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto outcome = flashptx::emulator::test::check_ptx(text);
  if (!outcome.complaint.empty()) {
    std::fprintf(stderr, "%s\n", outcome.complaint.c_str());
    std::abort();
  }
  return 0;
}
