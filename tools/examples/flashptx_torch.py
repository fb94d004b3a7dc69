"""PyTorch: attention as a torch.library custom op over the C library (ctypes; no compiled extension).

    make && python tools/examples/flashptx_torch.py          checks it: eager, opcheck, CUDA graph, torch.compile

    from flashptx_torch import attention
    o, lse = attention(q, k, v, causal=True)                  # (batch, heads, seqlen, head_dim), any strides
    o, lse = fp8_attention(q, k, v, causal=True)              # the same tensors, FP8 inside

Runs on the current stream with PyTorch's allocator; a plan is made once per shape and kept. Forward only.
Exit codes of the check: 0 ok, 1 wrong, 3 cannot run here.
"""
import ctypes
import functools
import itertools
import os
import pathlib
import sys
import threading

import torch

c_int32, c_int64, c_float, c_char_p, c_void_p, c_size_t = (
    ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)


class Options(ctypes.Structure):  # flashptx_options
    _fields_ = [("size", c_size_t), ("device_kind", c_int32), ("use_ordinal", c_int32), ("ordinal", c_int32),
                ("sm_margin", c_int32), ("cache_off", c_int32), ("cache_dir", c_char_p)]


class Strides(ctypes.Structure):  # flashptx_strides
    _fields_ = [("batch", c_int64), ("seq", c_int64), ("head", c_int64)]


class ScaleStrides(ctypes.Structure):  # flashptx_scale_strides
    _fields_ = [("batch", c_int64), ("head", c_int64), ("block_rows", c_int64)]


class ForwardProblem(ctypes.Structure):  # flashptx_forward_problem
    _fields_ = [("size", c_size_t), ("dtype", c_int32), ("mask", c_int32), ("batch", c_int64), ("heads_q", c_int64),
                ("heads_kv", c_int64), ("seqlen_q", c_int64), ("seqlen_k", c_int64), ("head_dim", c_int64),
                ("head_dim_v", c_int64), ("use_softmax_scale", c_int32), ("softmax_scale", c_float),
                ("q", Strides), ("k", Strides), ("v", Strides), ("o", Strides), ("kernel", c_char_p), ("ptx", c_char_p),
                ("dtype_o", c_int32), ("use_dtype_o", c_int32), ("v_transposed", c_int32), ("allow_workspace", c_int32),
                ("q_scale", ScaleStrides), ("k_scale", ScaleStrides), ("v_scale", ScaleStrides), ("q_scale_group", c_int64),
                ("fast", c_int32), ("reserved", c_int32), ("dtype_k", c_int32), ("dtype_v", c_int32)]


class ForwardArgs(ctypes.Structure):  # flashptx_forward_args
    _fields_ = [("size", c_size_t)] + [(name, c_void_p) for name in (
        "q", "k", "v", "o", "lse", "q_scale", "k_scale", "v_scale", "workspace", "cos", "sin")]


class Fp8Options(ctypes.Structure):  # flashptx_fp8_options
    _fields_ = [("size", c_size_t), ("dtype", c_int32), ("scale_kind", c_int32), ("block_rows", c_int64),
                ("hadamard", c_int32), ("hadamard_v", c_int32), ("seed", ctypes.c_uint32), ("rope", c_int32),
                ("table_dtype", c_int32), ("position_q", c_int64), ("position_k", c_int64), ("table_rows", c_int64),
                ("fast", c_int32), ("reserved", c_int32), ("dtype_k", c_int32), ("dtype_v", c_int32)]


DTYPES = {torch.float16: 0, torch.bfloat16: 1, torch.float8_e4m3fn: 2, torch.float8_e5m2: 3}
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
SCALES = {"tensor": 0, "head": 1, "block": 2}


class Library:
    """libflashptx.so: contexts by device, plans by shape."""

    def __init__(self, path=None):
        root = pathlib.Path(__file__).resolve().parents[2]
        path = path or os.environ.get("FLASHPTX_LIBRARY") or root / "build" / "libflashptx.so"
        lib = self.lib = ctypes.CDLL(str(path))
        lib.flashptx_last_error.restype = lib.flashptx_plan_describe.restype = c_char_p
        lib.flashptx_plan_kernel.restype = c_char_p
        lib.flashptx_last_error.argtypes = lib.flashptx_plan_describe.argtypes = [c_void_p]
        lib.flashptx_plan_kernel.argtypes = [c_void_p]
        lib.flashptx_create.argtypes = [ctypes.POINTER(Options), ctypes.POINTER(c_void_p)]
        lib.flashptx_plan_forward.argtypes = [c_void_p, ctypes.POINTER(ForwardProblem), ctypes.POINTER(c_void_p)]
        lib.flashptx_plan_fp8_attention.argtypes = [c_void_p, ctypes.POINTER(ForwardProblem), ctypes.POINTER(Fp8Options),
                                                    ctypes.POINTER(c_void_p)]
        lib.flashptx_forward.argtypes = [c_void_p] * 7
        lib.flashptx_forward_with.argtypes = [c_void_p, ctypes.POINTER(ForwardArgs), c_void_p]
        lib.flashptx_plan_workspace.argtypes, lib.flashptx_plan_workspace.restype = [c_void_p], c_size_t
        self.contexts, self.plans, self.lock = {}, {}, threading.Lock()

    def check(self, status, context=None):
        if status != 0:
            raise RuntimeError("flashptx: " + self.lib.flashptx_last_error(context).decode())

    def context(self, device):
        if device not in self.contexts:
            options = Options(size=ctypes.sizeof(Options), device_kind=1, use_ordinal=1, ordinal=device)
            context = c_void_p()
            self.check(self.lib.flashptx_create(ctypes.byref(options), ctypes.byref(context)))
            self.contexts[device] = context
        return self.contexts[device]

    def plan(self, device, dtypes, causal, scale, q_shape, k_shape, v_dim, strides, kernel=None, fp8=None):
        """Shapes are (batch, heads, seqlen, dim); strides: (batch, seq, head) of q, k, v, o in elements. fp8: None, or
        (dtypes, scales, hadamard, seed, fast) of FP8 inside. dtypes: of q, k, v; FP8 may mix its two."""
        key = (device, dtypes, causal, scale, q_shape, k_shape, v_dim, strides, kernel, fp8)
        with self.lock:
            if key not in self.plans:
                q, k, v, o = (Strides(*s) for s in strides)
                problem = ForwardProblem(
                    size=ctypes.sizeof(ForwardProblem), dtype=DTYPES[dtypes[0]], mask=int(causal), batch=q_shape[0],
                    heads_q=q_shape[1], heads_kv=k_shape[1], seqlen_q=q_shape[2], seqlen_k=k_shape[2], head_dim=q_shape[3],
                    head_dim_v=v_dim, use_softmax_scale=int(scale is not None), softmax_scale=scale or 0.0,
                    q=q, k=k, v=v, o=o, kernel=kernel.encode() if kernel else None, allow_workspace=1)
                if dtypes[0] in FP8:  # 0 in these fields: that of q
                    problem.dtype_k, problem.dtype_v = DTYPES[dtypes[1]], DTYPES[dtypes[2]]
                # FP8: the scales' strides are 0, one scale a tensor.
                context, plan = self.context(device), c_void_p()
                if fp8 is None:
                    status = self.lib.flashptx_plan_forward(context, ctypes.byref(problem), ctypes.byref(plan))
                else:
                    inside, scales, hadamard, seed, fast = fp8
                    options = Fp8Options(size=ctypes.sizeof(Fp8Options), dtype=DTYPES[inside[0]], dtype_k=DTYPES[inside[1]],
                                         dtype_v=DTYPES[inside[2]], scale_kind=SCALES[scales],
                                         hadamard=int(hadamard), seed=seed, fast=int(fast))
                    status = self.lib.flashptx_plan_fp8_attention(context, ctypes.byref(problem), ctypes.byref(options),
                                                                  ctypes.byref(plan))
                self.check(status, context)
                self.plans[key] = plan
            return self.plans[key]

    def forward(self, q, k, v, o, lse, causal, scale=None, kernel=None, descale=(None, None, None), fp8=None):
        """FP8 tensors: o is bfloat16, descale the fp32 scales of q, k and v, one element each or None. fp8: as for plan."""
        strides = tuple((x.stride(0), x.stride(2), x.stride(1)) for x in (q, k, v, o))
        plan = self.plan(q.device.index, (q.dtype, k.dtype, v.dtype), causal, scale, tuple(q.shape), tuple(k.shape), v.shape[3], strides, kernel, fp8)
        stream = torch.cuda.current_stream(q.device).cuda_stream
        bytes_needed = self.lib.flashptx_plan_workspace(plan)
        if q.dtype in FP8 or fp8 or bytes_needed:
            workspace = torch.empty(bytes_needed, dtype=torch.uint8, device=q.device)  # the allocator knows the stream
            scales = [x.data_ptr() if x is not None else None for x in descale]
            args = ForwardArgs(ctypes.sizeof(ForwardArgs), q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(),
                               lse.data_ptr() if lse is not None else None, *scales, workspace.data_ptr())
            self.check(self.lib.flashptx_forward_with(plan, ctypes.byref(args), stream))
            return plan
        self.check(self.lib.flashptx_forward(plan, q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(),
                                             lse.data_ptr() if lse is not None else None, stream))
        return plan


@functools.lru_cache(None)
def library():
    return Library()


def outputs(q, v):
    """O as (batch, seqlen, heads, dim) in memory, seen as (batch, heads, seqlen, dim)."""
    batch, heads, seqlen, _ = q.shape
    dtype = torch.bfloat16 if q.dtype in FP8 else q.dtype
    o = q.new_empty((batch, seqlen, heads, v.shape[3]), dtype=dtype).transpose(1, 2)
    return o, q.new_empty((batch, heads, seqlen), dtype=torch.float32)


@torch.library.custom_op("flashptx::attention", mutates_args=(), device_types="cuda")
def attention_op(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float | None
                 ) -> tuple[torch.Tensor, torch.Tensor]:
    dtypes = {q.dtype, k.dtype, v.dtype}
    if not dtypes <= set(FP8) and (len(dtypes) > 1 or q.dtype not in DTYPES):
        raise TypeError(f"flashptx: q, k, v must all be float16, all bfloat16, or each float8_e4m3fn or float8_e5m2, not {q.dtype}, {k.dtype}, {v.dtype}")
    # The head dimension must be contiguous; everything else the library takes as it is or refuses by name.
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    o, lse = outputs(q, v)
    with torch.cuda.device(q.device):
        library().forward(q, k, v, o, lse, causal, scale)
    return o, lse


@attention_op.register_fake
def _(q, k, v, causal, scale):
    return outputs(q, v)


def attention(q, k, v, causal=False, scale=None):
    """(o, lse). Causal is aligned bottom right; lse is fp32, natural logarithm, -inf for a row without keys."""
    return attention_op(q, k, v, causal, scale)


def fp8_attention(q, k, v, causal=False, scale=None, dtype=torch.float8_e4m3fn, scales="block", hadamard=True, seed=1,
                  fast=False):
    """attention() of 16-bit tensors computed in FP8: quantised, with random signs and Hadamard on q and k, in one call. fast:
    P's error may be 1.25 times plain FP8's. dtype: one for all, or three, of q, k and v."""
    dtypes = dtype if isinstance(dtype, tuple) else (dtype,) * 3
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    o, lse = outputs(q, v)
    with torch.cuda.device(q.device):
        library().forward(q, k, v, o, lse, causal, scale, fp8=(dtypes, scales, hadamard, seed, fast))
    return o, lse


def reference(q, k, v, causal):
    q, k, v = (x.double() for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        s.masked_fill_(~torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril(s.shape[-1] - s.shape[-2]),
                       -torch.inf)
    return torch.softmax(s, -1).nan_to_num(0) @ v, torch.logsumexp(s, -1)


def close(result, wanted, dtype):
    o_error = (result[0] - wanted[0]).abs().max().item()
    lse = torch.where(result[1] == wanted[1], 0.0, result[1] - wanted[1])  # -inf equals -inf
    return o_error < (2e-2 if dtype == torch.bfloat16 else 3e-3) and lse.abs().max().item() < 1e-4


def relative_rms(result, wanted):
    return ((result[0].double() - wanted[0]).square().mean() / wanted[0].square().mean()).sqrt().item()


def check_float8(q, k, v, dtypes, causal):
    """Tensors that are FP8 already: what is off is P, which FP8 rounds by 2.6 % (RMS)."""
    descale = [x.float().abs().amax().reshape(1) / torch.finfo(t).max for x, t in zip((q, k, v), dtypes)]
    eight = [(x.float() / s).to(t) for x, s, t in zip((q, k, v), descale, dtypes)]
    o, lse = outputs(eight[0], eight[2])
    library().forward(*eight, o, lse, causal, descale=descale)
    wanted = reference(*(x.double() * s.double() for x, s in zip(eight, descale)), causal)
    return relative_rms((o, lse), wanted) < 0.04 and (lse - wanted[1]).abs().max().item() < 1e-2


def check_float8_op(q, k, v):
    eight = [x.to(torch.float8_e4m3fn) for x in (q, k, v)]  # scale 1
    return relative_rms(attention(*eight, True), reference(*(x.double() for x in eight), True)) < 0.04


def check_fp8_inside(q, k, v, causal, scales, hadamard, fast=False, dtype=torch.float8_e4m3fn, limit=0.08):
    """Q, K, V and P are rounded: about 5 % in all for normal data, more where e5m2 is among them."""
    result = fp8_attention(q, k, v, causal, dtype=dtype, scales=scales, hadamard=hadamard, fast=fast)
    return relative_rms(result, reference(q, k, v, causal)) < limit


def check_fp8_graph(q, k, v):
    fp8_attention(q, k, v, True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = fp8_attention(q, k, v, True)
    q.copy_(torch.randn_like(q))
    graph.replay()
    return relative_rms(result, reference(q, k, v, True)) < 0.08


def check_cuda_graph(q, k, v):
    attention(q, k, v, True)  # plans and loads outside the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = attention(q, k, v, True)
    q.copy_(torch.randn_like(q))  # replay must see new data
    graph.replay()
    return close(result, reference(q, k, v, True), q.dtype)


def check_second_stream(q, k, v):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        result = attention(q, k, v, False)
    torch.cuda.current_stream().wait_stream(stream)
    return close(result, reference(q, k, v, False), q.dtype)


def check_compile(q, k, v):
    @torch.compile(fullgraph=True)
    def model(q, k, v):
        o, lse = attention(q * 1.0, k, v, True)
        return o + 0, lse
    return close(model(q, k, v), reference(q, k, v, True), q.dtype)


def check_fused_qkv(dtype):
    qkv = torch.randn((2, 130, 3, 4, 64), dtype=dtype, device="cuda")
    q, k, v = (x.transpose(1, 2) for x in qkv.unbind(2))
    return close(attention(q, k, v, True), reference(q, k, v, True), dtype)


def main():
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        print("cannot run here: no Hopper GPU")
        return 3
    good = True

    def report(name, ok):
        nonlocal good
        good &= bool(ok)
        print(f"{name}: {'ok' if ok else 'WRONG'}")

    torch.manual_seed(1)
    for dtype, dim, heads_kv in ((torch.bfloat16, 128, 2), (torch.float16, 64, 6), (torch.bfloat16, 80, 1)):
        make = lambda heads, seqlen: torch.randn((2, heads, seqlen, dim), dtype=dtype, device="cuda")
        q, k, v = make(6, 200), make(heads_kv, 333), make(heads_kv, 333)
        for causal in (False, True):
            report(f"eager {str(dtype)[6:]} d{dim} causal={causal}",
                   close(attention(q, k, v, causal), reference(q, k, v, causal), dtype))
        report(f"more queries than keys d{dim}", close(attention(k, q[:, :heads_kv], q[:, :heads_kv], True),
                                                       reference(k, q[:, :heads_kv], q[:, :heads_kv], True), dtype))
    make = lambda heads, seqlen: torch.randn((2, heads, seqlen, 128), dtype=torch.bfloat16, device="cuda")
    q8, k8, v8 = make(6, 200), make(2, 333), make(2, 333)
    for causal in (False, True):
        for dtypes in itertools.product(FP8, repeat=3):
            report(f"{', '.join(str(t)[6:] for t in dtypes)} causal={causal}", check_float8(q8, k8, v8, dtypes, causal))
        for scales in SCALES:
            for hadamard in (False, True):
                report(f"FP8 inside, scales by {scales}, hadamard={hadamard}, causal={causal}",
                       check_fp8_inside(q8, k8, v8, causal, scales, hadamard)
                       and check_fp8_inside(q8, k8, v8, causal, scales, hadamard, fast=True))
    mixed = (torch.float8_e4m3fn, torch.float8_e4m3fn, torch.float8_e5m2)
    report("FP8 inside, V in e5m2", check_fp8_inside(q8, k8, v8, True, "block", True, dtype=mixed, limit=0.12))
    report("float8 op", check_float8_op(q8, k8, v8))
    report("FP8 inside, CUDA graph", check_fp8_graph(q8, k8, v8))
    report("fused qkv", check_fused_qkv(torch.bfloat16))
    report("second stream", check_second_stream(q, k, v))
    report("CUDA graph", check_cuda_graph(q, k, v))
    torch.library.opcheck(attention_op, (q, k, v, True, None), test_utils=("test_schema", "test_faketensor"))
    report("opcheck", True)
    report("torch.compile", check_compile(q, k, v))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
