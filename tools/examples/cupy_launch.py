"""Attention from CuPy: RawModule loads a committed kernel, libcuda encodes its tensor maps.

    python tools/examples/cupy_launch.py

CuPy passes any size-1 void array by value, so a 128-byte one is a CUtensorMap. Exit codes: 0 ok, 1 wrong, 3 no GPU.
"""
import ctypes
import sys

import flashptx_catalog as catalog

try:
    import cupy as cp
    import numpy as np
    cp.cuda.runtime.getDeviceCount()
except Exception as error:  # no CuPy, no driver or no GPU
    print(f"cannot run here: {error}")
    sys.exit(3)

LIBCUDA = ctypes.CDLL("libcuda.so.1")
DATA_TYPE = {"f16": 6, "bf16": 9}  # CUtensorMapDataType
SWIZZLE = {"none": 0, "32B": 1, "64B": 2, "128B": 3}


def cu_tensor_map_encode(element, rank, pointer, dims, strides, box, element_strides, swizzle):
    room = np.zeros(128 + 64, np.uint8)  # the encoder wants a multiple of 64; the launch does not
    start = -room.ctypes.data % 64
    u64, u32 = ctypes.c_uint64, ctypes.c_uint32
    result = LIBCUDA.cuTensorMapEncodeTiled(
        ctypes.c_void_p(room.ctypes.data + start), DATA_TYPE[element], u32(rank), ctypes.c_void_p(pointer),
        (u64 * rank)(*dims), (u64 * (rank - 1))(*strides), (u32 * rank)(*box), (u32 * rank)(*element_strides),
        0, SWIZZLE[swizzle], 2, 0)
    if result != 0:
        raise RuntimeError(f"cuTensorMapEncodeTiled: CUDA error {result}: dims {dims} strides {strides} box {box}")
    return room[start:start + 128].view(np.dtype("V128"))[0:1].copy()


def make_map(array, facts):
    return catalog.encode(array.data.ptr, array.shape, array.strides, facts, cu_tensor_map_encode)


def typed(kind, value):
    return {"pointer": np.uint64, "u32": np.uint32, "u64": np.uint64, "i64": np.int64, "f32": np.float32}[kind](value)


def attention(q, k, v, causal=False, scale=None):
    """q, k, v: float16 (batch, heads, seqlen, head_dim), any strides that TMA can express. Returns (o, lse)."""
    (batch, heads_q, seqlen_q, dim), (heads_kv, seqlen_k) = q.shape, k.shape[1:3]
    kernel = catalog.find("f16", dim, "causal" if causal else "full")
    function = cp.RawModule(path=str(catalog.PTX / kernel["file"])).get_function(kernel["entry"])
    function.max_dynamic_shared_size_bytes = kernel["shared"]
    o, lse = cp.empty_like(q), cp.empty((batch, heads_q, seqlen_q), cp.float32)
    counter = cp.zeros(2, cp.uint32)
    values = catalog.scalars(batch, heads_q, heads_kv, seqlen_q, seqlen_k, scale or dim ** -0.5)
    arguments = catalog.arguments(kernel, make_map, {"q_map": q, "k_map": k, "v_map": v, "o_map": o},
                                  {"lse": lse.data.ptr, "tile_counter": counter.data.ptr}, values, typed)
    multiprocessors = cp.cuda.Device().attributes["MultiProcessorCount"]
    function((catalog.grid(kernel, values, multiprocessors),), (kernel["block"][0],), tuple(arguments),
             shared_mem=kernel["shared"])
    return o, lse


def reference(q, k, v, causal):
    q, k, v = (x.astype(cp.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = cp.repeat(k, group, 1), cp.repeat(v, group, 1)
    s = cp.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
    if causal:
        i, j = cp.arange(s.shape[2])[:, None], cp.arange(s.shape[3])[None, :]
        s = cp.where(j <= i + s.shape[3] - s.shape[2], s, -cp.inf)
    largest = s.max(-1, keepdims=True)
    p = cp.exp(s - largest)
    return cp.einsum("bhij,bhjd->bhid", p / p.sum(-1, keepdims=True), v), (largest + cp.log(p.sum(-1, keepdims=True)))[..., 0]


def main():
    random = cp.random.RandomState(1)
    good = True
    for dim, causal, heads_kv in ((64, False, 4), (128, True, 2), (256, True, 1), (72, False, 4)):
        make = lambda heads, seqlen: random.standard_normal((2, seqlen, heads, dim)).astype(cp.float16).transpose(0, 2, 1, 3)
        q, k, v = make(4, 200), make(heads_kv, 333), make(heads_kv, 333)
        with cp.cuda.Stream(non_blocking=True) as stream:
            stream.wait_event(cp.cuda.Stream.null.record())
            o, lse = attention(q, k, v, causal)
            stream.synchronize()
        wanted_o, wanted_lse = reference(q, k, v, causal)
        error, lse_error = float(abs(o - wanted_o).max()), float(abs(lse - wanted_lse).max())
        ok = error < 2e-3 and lse_error < 1e-4
        good &= ok
        print(f"d{dim} {'causal' if causal else 'full'} 4/{heads_kv} heads: "
              f"O off by {error:.1e}, LSE by {lse_error:.1e}: {'ok' if ok else 'WRONG'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
