"""Times FlashPTX beside PyTorch's cuDNN and FlashAttention-2 backends: same process, same tensors, in turns.

    make && python tools/compare/compare.py --csv out.csv
    python tools/compare/compare.py --head-dim 128 --mask causal --seqlen 16384 --rounds 9

Each round times every contender once, `--launches` back to back in one CUDA graph, by events, in alternating order; rows are medians
over rounds and ratios are medians of the rounds' ratios. FA3 is timed too where the wheel fa3-fwd is installed; else
it is estimated from peers.csv (see README.md).
Exit codes: 0 ok, 1 a wrong result, 3 cannot run here.
"""
import argparse
import csv
import datetime
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples"))
try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    import flashptx_torch
except Exception as error:
    print(f"cannot run here: {error}")
    sys.exit(3)

try:  # FlashAttention-3's forward as a wheel, where it is installed (PyPI: fa3-fwd); never needed
    from fa3_fwd_interface import flash_attn_func as fa3_forward
except Exception:
    fa3_forward = None

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}
FIELDS = ["date", "device", "driver", "torch", "cudnn", "dtype", "head_dim", "mask", "batch", "heads", "seqlen",
          "contender", "kernel", "rounds", "launches", "ms_q1", "ms_median", "ms_q3", "tflops", "ratio_to_cudnn", "ratio_to_best_peer", "best_peer", "relative_rms", "note"]


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ints = lambda text: [int(x) for x in text.split(",")]
    words = lambda text: text.split(",")
    p.add_argument("--libflashptx", help="path of libflashptx.so (default: build/libflashptx.so)")
    p.add_argument("--kernel", action="append", default=[], help="also time this kernel by name (repeatable)")
    p.add_argument("--dtype", type=words, default=["bf16"])
    p.add_argument("--head-dim", type=ints, default=[64, 128, 256])
    p.add_argument("--mask", type=words, default=["full", "causal"])
    p.add_argument("--seqlen", type=ints, default=[512, 1024, 2048, 4096, 8192, 16384])
    p.add_argument("--tokens", type=int, default=16384)
    p.add_argument("--hidden", type=int, default=2048)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--launches", type=int, default=10)
    p.add_argument("--errors", action="store_true", help="also each contender's RMS error relative to fp32 attention")
    p.add_argument("--same-bits", type=int, default=0, metavar="N",
                   help="also launch each FlashPTX kernel N times and say how many gave other bits of O or LSE than the first")
    p.add_argument("--csv", help="write this file")
    return p.parse_args()


def peer_table():
    with open(pathlib.Path(__file__).with_name("peers.csv")) as f:
        return {(r["dtype"], int(r["head_dim"]), r["mask"], int(r["seqlen"])): r
                for r in csv.DictReader(f) if r["pass"] == "fwd"}


class Contender:
    def __init__(self, name, call, kernel=""):
        self.name, self.call, self.kernel, self.ms, self.note = name, call, kernel, [], ""
        self.graph, self.relative_rms, self.both = None, None, None

    def capture(self, launches):
        """All launches of a sample as one CUDA graph, so that no contender is timed by its Python."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.call()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(launches):
                self.call()
        self.graph = graph


def contenders_of(library, q, k, v, causal, kernels):
    """q, k, v: (batch, heads, seqlen, dim) views of (batch, seqlen, heads, dim) memory."""
    out = []
    for name in [None] + kernels:
        if name and f"_d{q.shape[3]}_" not in name:
            continue
        o, lse = flashptx_torch.outputs(q, v)
        call = lambda o=o, name=name: library.forward(q, k, v, o, None, causal, None, name) and o
        contender = Contender("flashptx" if not name else "flashptx:named", call, name or "")
        contender.both = lambda o=o, lse=lse, name=name: library.forward(q, k, v, o, lse, causal, None, name) and (o, lse)
        try:
            plan = library.forward(q, k, v, o, None, causal, None, name)
            contender.kernel = library.lib.flashptx_plan_kernel(plan).decode()
        except RuntimeError as error:
            contender.note = str(error).replace("\n", " ")
        out.append(contender)
    for name, backend in BACKENDS.items() if q.dtype not in flashptx_torch.FP8 else ():
        def call(backend=backend):
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        out.append(tried(Contender(name, call)))
    if fa3_forward:
        rows = [x.transpose(1, 2) for x in (q, k, v)]  # (batch, seqlen, heads, dim)

        def call():
            with torch.no_grad():
                o = fa3_forward(*rows, causal=causal)
            return (o[0] if isinstance(o, tuple) else o).transpose(1, 2)
        out.append(tried(Contender("fa3", call)))
    return out


def tried(contender):
    try:
        contender.call()
    except RuntimeError as error:
        contender.note = str(error).split("\n")[0]
    return contender


def agree(contenders):
    """Largest difference of each from the cuDNN result, so that nothing wrong is timed."""
    peers = [c for c in contenders if not c.name.startswith("flashptx") and not c.note]
    if not peers:
        return
    wanted = peers[0].call().float()
    for c in contenders:
        if c.note:
            continue
        off = (c.call().float() - wanted).abs().max().item()
        if not off < (0.05 if peers[0].name in BACKENDS else 0.25):
            c.note = f"WRONG: off by {off:.3g} from {peers[0].name}"


def count_other_bits(contenders, launches):
    """Launches of FlashPTX's kernels that differ from their first in any bit of O or LSE, which are overwritten in between."""
    for c in contenders:
        if not c.both or c.note:
            continue
        outputs = [x.view(torch.int16) for x in c.both()]
        first, other = [x.clone() for x in outputs], 0
        for _ in range(launches - 1):
            for x in outputs:
                x.fill_(-1)
            c.both()
            other += not all(torch.equal(x, y) for x, y in zip(outputs, first))
        print(f"  {c.kernel}: {other} of {launches} launches gave other bits", flush=True)
        if other:
            c.note = f"WRONG: {other} of {launches} launches gave other bits"


def measure_errors(contenders, q, k, v, causal):
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        exact = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal)
    size = exact.square().mean().sqrt()
    for c in contenders:
        if not c.note:
            c.relative_rms = ((c.call().float() - exact).square().mean().sqrt() / size).item()


def time_rounds(contenders, rounds, launches):
    running = [c for c in contenders if not c.note]
    for c in running:
        try:
            c.capture(launches)
        except RuntimeError as error:
            c.note = "no graph: " + str(error).split("\n")[0]
    running = [c for c in running if c.graph]
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for i in range(rounds + 1):  # the first round warms up
        for c in running if i % 2 else reversed(running):
            c.graph.replay()
            start.record()
            c.graph.replay()
            end.record()
            end.synchronize()
            if i:
                c.ms.append(start.elapsed_time(end) / launches)


def rows_of(contenders, facts, flop, table, key):
    cudnn = next((c for c in contenders if c.name == "cudnn" and c.ms), None)
    rows = []
    for c in contenders:
        row = dict(facts, contender=c.name, kernel=c.kernel, rounds=len(c.ms), note=c.note,
                   relative_rms=f"{c.relative_rms:.4e}" if c.relative_rms else "")
        if c.ms:
            low, median, high = statistics.quantiles(c.ms, n=4) if len(c.ms) > 1 else c.ms * 3
            row.update(ms_q1=f"{low:.5f}", ms_median=f"{median:.5f}", ms_q3=f"{high:.5f}",
                       tflops=f"{flop / median * 1e-9:.1f}")
            if cudnn:
                row["ratio_to_cudnn"] = f"{statistics.median(a / b for a, b in zip(cudnn.ms, c.ms)):.3f}"
            best = min((p for p in contenders if not p.name.startswith("flashptx") and p.ms),
                       key=lambda p: statistics.median(p.ms), default=None)
            if best:
                row["ratio_to_best_peer"] = f"{statistics.median(a / b for a, b in zip(best.ms, c.ms)):.3f}"
                row["best_peer"] = best.name
        rows.append(row)
    peer = None if fa3_forward else table.get(key)
    if peer and peer["fa3_tflops"] and peer["cudnn_tflops"] and cudnn:
        ratio = float(peer["fa3_tflops"]) / float(peer["cudnn_tflops"])
        now = flop / statistics.median(cudnn.ms) * 1e-9
        rows.append(dict(facts, contender="fa3 (estimate)", tflops=f"{now * ratio:.1f}", ratio_to_cudnn=f"{ratio:.3f}",
                         note="peers.csv scaled by cuDNN of this run"))
    return rows


def main():
    args = parse()
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        print("cannot run here: no Hopper GPU")
        return 3
    library = flashptx_torch.Library(args.libflashptx)
    facts = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
             "device": torch.cuda.get_device_name(), "torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
    version = pathlib.Path("/proc/driver/nvidia/version")
    found = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", version.read_text()) if version.exists() else None
    facts["driver"] = found.group() if found else ""
    print("# " + ", ".join(f"{k} {v}" for k, v in facts.items()))
    print("# interleaved rounds; TFLOP/s = 4 s^2 d h b / time, halved when causal; every contender's result was compared first")
    table, wrong = peer_table(), False
    out = open(args.csv, "w", newline="") if args.csv else None
    writer = csv.DictWriter(out, FIELDS) if out else None
    if writer:
        writer.writeheader()
    for dtype in args.dtype:
        for dim in args.head_dim:
            for mask in args.mask:
                for seqlen in args.seqlen:
                    batch, heads = args.tokens // seqlen, args.hidden // dim
                    torch.manual_seed(1)
                    q, k, v = (torch.randn((batch, seqlen, heads, dim), device="cuda").to(DTYPES[dtype]).transpose(1, 2)
                               for _ in range(3))
                    contenders = contenders_of(library, q, k, v, mask == "causal", args.kernel)
                    agree(contenders)
                    if args.same_bits:
                        count_other_bits(contenders, args.same_bits)
                    if args.errors:
                        measure_errors(contenders, q, k, v, mask == "causal")
                    time_rounds(contenders, args.rounds, args.launches)
                    flop = 4 * seqlen * seqlen * dim * heads * batch / (2 if mask == "causal" else 1)
                    cell = dict(facts, dtype=dtype, head_dim=dim, mask=mask, batch=batch, heads=heads, seqlen=seqlen,
                                launches=args.launches)
                    rows = rows_of(contenders, cell, flop, table, (dtype, dim, mask, seqlen))
                    wrong |= any(r.get("note", "").startswith("WRONG") for r in rows)
                    print(f"{dtype} d{dim} {mask} s={seqlen}: " + "   ".join(
                        f"{r['contender']} {r['tflops']} ({r.get('ratio_to_cudnn', '?')})"
                        + (f" error {r['relative_rms']}" if r.get("relative_rms") else "")
                        + (f" best peer x{r['ratio_to_best_peer']}" if r["contender"].startswith("flashptx") else "")
                        if r.get("tflops")
                        else f"{r['contender']}: {r['note']}" for r in rows), flush=True)
                    if writer:
                        writer.writerows(rows)
                        out.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
