"""A client that knows nothing but ptx/catalog.json: every kernel's launch can be laid out from it. No GPU needed."""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "examples"))
import flashptx_catalog as catalog

SIZES = {"tensor_map": 128, "pointer": 8, "u32": 4, "u64": 8, "i64": 8, "f32": 4}


def main():
    root = json.loads((ROOT / "ptx" / "catalog.json").read_text())
    assert root["schema_version"] == 1
    for kernel in root["kernels"]:
        assert (ROOT / "ptx" / kernel["file"]).exists(), kernel["file"]
        assert kernel["block"][0] % 32 == 0 and kernel["arch"] in ("sm_90", "sm_90a")
        for p in kernel["parameters"]:
            assert p["bytes"] == SIZES[p["kind"]], p
        if kernel["problem"]["operation"] != "attention_forward":
            continue
        values = catalog.scalars(2, 6, 3, 200, 333, 0.125)
        tensors = {name: name for name in ("q_map", "k_map", "v_map", "o_map")}
        eight_bit = kernel["problem"]["dtype"] in ("e4m3", "e5m2")
        pointers = {"lse": 1, "tile_counter": 2}
        if eight_bit:  # no scales: all are 1, and their strides are not looked at
            pointers |= {"q_scale": 0, "k_scale": 0, "v_scale": 0}
            values |= {p["name"]: 0 for p in kernel["parameters"] if "_scale_" in p["name"] and p["name"] not in values}
        arguments = catalog.arguments(kernel, lambda array, facts: (array, facts["box"]), tensors, pointers, values,
                                      lambda kind, value: (kind, value))
        assert len(arguments) == len(kernel["parameters"])
        assert {w["parameter"] for w in kernel["workspace"]} == \
            {p["name"] for p in kernel["parameters"] if p["name"] in ("tile_counter", "tail_partials", "tail_arrivals")}
        tile_q = kernel["plan"]["tile_q"]
        if kernel["entry"].endswith("_tail"):
            given = dict(zip((p["name"] for p in kernel["parameters"]), arguments))
            assert given["tail_first"] == ("u32", -(-200 // tile_q) * 12) and given["tail_parts"] == ("u32", 0)
            assert given["tail_arrivals"] == ("pointer", 0)
        tiles = -(-200 // tile_q) * 12
        assert catalog.grid(kernel, values, 132) == min(-(-tiles // kernel["plan"]["teams"]), 132)
        assert catalog.grid(kernel, values, 7) == 7
        for p in kernel["parameters"]:
            if p["kind"] != "tensor_map":
                continue
            facts, seen = p["tensor_map"], {}
            # A (batch, heads, seqlen, dim) view of bshd memory, batch 1 with a stride that no map may have.
            dim = kernel["problem"]["head_dim"]
            catalog.encode(4096, (1, 6, 200, dim), (2, 2 * dim, 12 * dim, 2), facts,
                           lambda *a: seen.update(zip(("element", "rank", "pointer", "dims", "strides", "box",
                                                       "element_strides", "swizzle"), a)))
            assert seen["dims"] == [dim, 200, 6, 1] and seen["rank"] == 4
            assert all(s % 16 == 0 for s in seen["strides"]) and seen["strides"][:2] == [12 * dim, 2 * dim]
            width = 1 if eight_bit and p["name"] != "o_map" else 2
            assert seen["box"][0] * width <= 128 and facts["strided_view"]["box_dim"] == seen["box"][::-1]
    names = [k["entry"] for k in root["kernels"]]
    assert len(set(names)) == len(names)
    assert catalog.find("bf16", 72, "causal")["problem"]["head_dim"] == 128


main()
