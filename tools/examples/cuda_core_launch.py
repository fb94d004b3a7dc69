"""Attention from cuda.core: a committed kernel, its tensor maps made from strided views.

    python tools/examples/cuda_core_launch.py

Uses cuda.core's TensorMapDescriptor where there is one, else encodes with cuda.bindings. Tensors are PyTorch's.
Exit codes: 0 ok, 1 wrong, 3 cannot run here.
"""
import ctypes
import sys

import flashptx_catalog as catalog

try:
    import torch
    import cuda.core as core
    if not hasattr(core, "launch"):
        import cuda.core.experimental as core
    from cuda.bindings import driver
    if not torch.cuda.is_available():
        raise RuntimeError("no GPU")
except Exception as error:
    print(f"cannot run here: {error}")
    sys.exit(3)

def swizzle_names():
    """The enumeration that as_tensor_map takes; its place differs between versions of cuda.core."""
    for module in (core, core.utils, getattr(core, "_tensor_map", None)):
        if hasattr(module, "TensorMapSwizzle"):
            return module.TensorMapSwizzle
    return None


SWIZZLES = swizzle_names()
HAS_DESCRIPTOR = hasattr(core, "TensorMapDescriptor") and SWIZZLES is not None


def descriptor_map(tensor, facts):
    """The view form: shape and strides come from the tensor, box and swizzle from the catalogue."""
    view = core.utils.StridedMemoryView.from_any_interface(tensor, stream_ptr=-1)
    swizzle = getattr(SWIZZLES, "SWIZZLE_" + facts["strided_view"]["swizzle"])
    return view.as_tensor_map(box_dim=tuple(facts["strided_view"]["box_dim"]), swizzle=swizzle)


def bindings_map(tensor, facts):
    types = {"f16": driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
             "bf16": driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16}

    def call(element, rank, pointer, dims, strides, box, element_strides, swizzle):
        u64, u32 = driver.cuuint64_t, driver.cuuint32_t
        result, tensor_map = driver.cuTensorMapEncodeTiled(
            types[element], rank, pointer, [u64(x) for x in dims], [u64(x) for x in strides], [u32(x) for x in box],
            [u32(x) for x in element_strides], driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(driver.CUtensorMapSwizzle, "CU_TENSOR_MAP_SWIZZLE_" + swizzle),
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
        if result != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"cuTensorMapEncodeTiled: {result}")
        return tensor_map

    strides = [s * tensor.element_size() for s in tensor.stride()]
    return catalog.encode(tensor.data_ptr(), tensor.shape, strides, facts, call)


def typed(kind, value):
    return {"pointer": ctypes.c_uint64, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64, "i64": ctypes.c_int64,
            "f32": ctypes.c_float}[kind](value)


def launch_by_bindings(handle, kernel, grid, stream, arguments):
    """cuLaunchKernel with an array of pointers to the arguments' values."""
    at = [int(a.getPtr()) if hasattr(a, "getPtr") else ctypes.addressof(a) for a in arguments]
    params = (ctypes.c_void_p * len(at))(*at)
    function = driver.CUfunction(int(handle.handle if hasattr(handle, "handle") else handle._handle))
    result, = driver.cuLaunchKernel(function, *([*grid, 1, 1][:3] if hasattr(grid, "__len__") else (grid, 1, 1)),
                                    kernel["block"][0], 1, 1, kernel["shared"], int(stream.handle),
                                    ctypes.addressof(params), 0)
    if result != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"cuLaunchKernel: {result}")


def attention_core(device, stream, q, k, v, causal, make_map):
    """q, k, v: (batch, heads, seqlen, dim) views. Launched by cuda.core.launch."""
    (batch, heads_q, seqlen_q, dim), (heads_kv, seqlen_k) = q.shape, k.shape[1:3]
    kernel = catalog.find({torch.float16: "f16", torch.bfloat16: "bf16"}[q.dtype], dim, "causal" if causal else "full")
    path = catalog.PTX / kernel["file"]
    handle = core.ObjectCode.from_ptx(path.read_bytes()).get_kernel(kernel["entry"])
    handle.attributes.max_dynamic_shared_size_bytes  # loads it, and raises if that fails
    result, = driver.cuKernelSetAttribute(
        driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel["shared"],
        driver.CUkernel(int(handle.handle if hasattr(handle, "handle") else handle._handle)), device.device_id)
    if result != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"cuKernelSetAttribute: {result}")
    o = torch.empty_like(q)
    lse = torch.empty((batch, heads_q, seqlen_q), dtype=torch.float32, device=q.device)
    counter = torch.zeros(2, dtype=torch.int32, device=q.device)
    values = catalog.scalars(batch, heads_q, heads_kv, seqlen_q, seqlen_k, dim ** -0.5)
    tensors = {"q_map": q, "k_map": k, "v_map": v, "o_map": o}
    pointers = {"lse": lse.data_ptr(), "tile_counter": counter.data_ptr()}
    arguments = catalog.arguments(kernel, make_map, tensors, pointers, values, typed)
    multiprocessors = device.properties.multiprocessor_count
    config = core.LaunchConfig(grid=catalog.grid(kernel, values, multiprocessors), block=kernel["block"][0],
                               shmem_size=kernel["shared"])
    torch.cuda.synchronize()  # torch filled the tensors on its own stream
    try:
        core.launch(stream, config, handle, *arguments)
    except TypeError:  # a cuda.core whose launch takes no CUtensorMap: the same kernel through cuda.bindings
        launch_by_bindings(handle, kernel, catalog.grid(kernel, values, multiprocessors), stream, arguments)
    stream.sync()
    return o, lse


def reference(q, k, v, causal):
    q, k, v = (x.double() for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        s.masked_fill_(~torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril(s.shape[-1] - s.shape[-2]),
                       -torch.inf)
    return torch.softmax(s, -1) @ v, torch.logsumexp(s, -1)


def main():
    device = core.Device()
    device.set_current()
    stream = device.create_stream()
    torch.manual_seed(1)
    good = True
    makers = [("cuda.bindings", bindings_map)] + ([("TensorMapDescriptor", descriptor_map)] if HAS_DESCRIPTOR else [])
    for dtype, dim, causal in ((torch.bfloat16, 128, True), (torch.float16, 64, False), (torch.bfloat16, 256, False)):
        make = lambda heads, seqlen: torch.randn((2, seqlen, heads, dim), dtype=dtype, device="cuda").transpose(1, 2)
        q, k, v = make(6, 200), make(2, 333), make(2, 333)
        wanted_o, wanted_lse = reference(q, k, v, causal)
        for name, make_map in makers:
            o, lse = attention_core(device, stream, q, k, v, causal, make_map)
            error, lse_error = (o - wanted_o).abs().max().item(), (lse - wanted_lse).abs().max().item()
            ok = error < (2e-2 if dtype == torch.bfloat16 else 3e-3) and lse_error < 1e-4
            good &= ok
            print(f"{str(dtype)[6:]} d{dim} {'causal' if causal else 'full'}, maps by {name}: "
                  f"O off by {error:.1e}, LSE by {lse_error:.1e}: {'ok' if ok else 'WRONG'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
