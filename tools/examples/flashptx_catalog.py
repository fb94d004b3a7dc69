"""Reads ptx/catalog.json for the Python examples: which kernel, which arguments, which grid.

Uses the standard library only, so that every client (CuPy, cuda.core, ...) can share it. A client brings three
things: how it makes a tensor map, how it types a scalar, how it launches. Next: cupy_launch.py, cuda_core_launch.py.
"""
import json
import math
import pathlib
import re

PTX = pathlib.Path(__file__).resolve().parents[2] / "ptx"


def find(dtype, head_dim, mask, folder=PTX):
    """The catalogue's kernel for a problem class; smaller head dims run on the next larger kernel."""
    kernels = [k for k in json.loads((folder / "catalog.json").read_text())["kernels"]
               if k["problem"].get("dtype") == dtype and k["problem"].get("mask") == mask
               and k["problem"]["head_dim"] >= head_dim]
    if not kernels:
        raise LookupError(f"no kernel in {folder} for {dtype}, head_dim {head_dim}, {mask}")
    return min(kernels, key=lambda k: k["problem"]["head_dim"])


def scalars(batch, heads_q, heads_kv, seqlen_q, seqlen_k, scale):
    """Every scalar that a forward kernel may ask for, by parameter name."""
    return {"batch": batch, "heads_q": heads_q, "heads_kv": heads_kv, "seqlen_q": seqlen_q, "seqlen_k": seqlen_k,
            "head_group": max(1, heads_q * batch), "softmax_scale_log2": scale * math.log2(math.e)}


def grid(kernel, values, multiprocessors):
    """Evaluates the catalogue's grid formula."""
    names = dict(values, multiprocessors=multiprocessors)
    formula = kernel["grid"]
    if not re.fullmatch(r"[a-z0-9_ ()*/,+-]+", formula):
        raise ValueError(f"unexpected grid formula: {formula}")
    return int(eval(formula, {"__builtins__": {}, "min": min, "max": max, "ceil": math.ceil}, names))


def uncut(kernel, values):
    """What a kernel takes that can cut the last wave's tiles along the keys (`_tail`), where none is to be cut."""
    tiles = -(-values["seqlen_q"] // kernel["plan"]["tile_q"]) * values["heads_q"] * values["batch"]
    return {"tail_first": tiles, "tail_parts": 0, "tail_blocks": 0, "tail_partials": 0, "tail_arrivals": 0}


def arguments(kernel, make_map, tensors, pointers, values, typed):
    """The launch's arguments in the kernel's order.

    tensors: {"q_map": array, ...} each as (batch, heads, seqlen, dim); pointers: {"lse": address, ...}
    make_map(array, tensor_map_facts); typed(kind, value) for pointers and scalars
    """
    out = []
    pointers, values = uncut(kernel, values) | pointers, uncut(kernel, values) | values
    for p in kernel["parameters"]:
        name, kind = p["name"], p["kind"]
        if kind == "tensor_map":
            out.append(make_map(tensors[name], p["tensor_map"]))
        else:
            out.append(typed(kind, (pointers if kind == "pointer" else values)[name]))
    return out


def encode(array_pointer, shape, strides_bytes, facts, cu_tensor_map_encode):
    """Innermost-first lists for cuTensorMapEncodeTiled from an outermost-first view; returns what the call returns.

    cu_tensor_map_encode(element, rank, pointer, dims, strides, box, element_strides, swizzle)
    """
    dims = list(reversed(shape))
    strides = list(reversed(strides_bytes))[1:]
    # The stride of a dimension of extent 1 is arbitrary in most frameworks, but must be a multiple of 16 here.
    strides = [s if extent > 1 else 16 * ((dims[0] * 2 + 15) // 16) for s, extent in zip(strides, dims[1:])]
    return cu_tensor_map_encode(facts["element"], facts["rank"], array_pointer, dims, strides, facts["box"],
                                facts["element_strides"], facts["swizzle"])
