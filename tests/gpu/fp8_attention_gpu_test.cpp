// The chain "16 bits in, FP8 attention inside" on a GPU, by every recipe, against float64 of the tensors as given.
// Next: tests/host/fp8_attention_test.cpp (the same on the emulator), tools/flashptx/chain_run.h (the bounds).
#include <cmath>

#include "host/driver/cuda_device.h"
#include "tests/support.h"
#include "tools/flashptx/chain_run.h"

using namespace flashptx;

TEST_SUITE("gpu/fp8_attention") {
  TEST_CASE("agrees with float64 by every recipe, and gives the same bits again") {
    std::unique_ptr<Device> device;
    if (const Status s = open_cuda_device(CudaOptions{}, &device); !s.ok()) FLASHPTX_SKIP(s.message);
    Attention attention(*device);
    for (int dim : {64, 128, 256})
      for (Mask mask : {Mask::full, Mask::causal})
        for (ScaleKind kind : {ScaleKind::tensor, ScaleKind::head, ScaleKind::block})
          for (int turned : {0, 1, 2})  // nothing; Q and K; V as well
            for (Rope rope : {Rope::none, Rope::half}) {
              if (rope != Rope::none && (kind == ScaleKind::tensor || turned == 2)) continue;
              reference::Problem p;
              p.batch = 2, p.heads_q = 6, p.heads_kv = 2, p.seqlen_q = 700, p.seqlen_k = 2100;
              p.head_dim = p.head_dim_v = dim, p.mask = mask, p.scale = 1 / std::sqrt(static_cast<float>(dim));
              Fp8Options o;
              o.dtype = dim == 64 && kind == ScaleKind::head ? DataType::e5m2 : DataType::e4m3;
              o.scale_kind = kind, o.hadamard = turned > 0, o.hadamard_v = turned > 1, o.seed = 5, o.rope = rope;
              const ChainCase c = make_chain_case(p, reference::Layout::bshd, reference::Inputs::outliers, 3, true, 100, o);
              const Outcome first = run_chain(*device, attention, c, {});
              CHECK_MESSAGE(first.ok(), first.kernel, ": ", first.complaint());
              const Outcome again = run_chain(*device, attention, c, {});
              CHECK(again.o_bytes == first.o_bytes);
              CHECK(again.lse_bytes == first.lse_bytes);
            }
  }
}
