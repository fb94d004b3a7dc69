"""Draws a CSV of compare.py as one SVG: a panel a head dimension and mask, TFLOP/s over the sequence length.

    python3 tools/compare/plot.py out.csv out.svg
"""
import csv
import sys

STYLE = {"flashptx": ("FlashPTX", "#0072B2", ""), "fa3": ("FlashAttention-3", "#D55E00", "6 3"),
         "cudnn": ("cuDNN", "#009E73", "2 3"), "fa2": ("FlashAttention-2", "#8C8C8C", "8 3 2 3")}  # safe for colour-blind eyes
WIDTH, HEIGHT, LEFT, TOP, TOP_VALUE = 300, 230, 62, 64, 900


def panel(out, x, y, title, series, seqlens):
    at_x = lambda i: x + i * (WIDTH - 40) / (len(seqlens) - 1)
    at_y = lambda v: y + HEIGHT - v * HEIGHT / TOP_VALUE
    out.append(f'<text x="{x}" y="{y - 10}" class="t">{title}</text>')
    for v in range(0, TOP_VALUE + 1, 300):
        out.append(f'<line x1="{x}" x2="{at_x(len(seqlens) - 1):.0f}" y1="{at_y(v):.1f}" y2="{at_y(v):.1f}" class="g"/>'
                   f'<text x="{x - 6}" y="{at_y(v) + 4:.1f}" class="a" text-anchor="end">{v}</text>')
    for i, s in enumerate(seqlens):
        label = str(s) if s < 1024 else f"{s // 1024}k"
        out.append(f'<text x="{at_x(i):.1f}" y="{y + HEIGHT + 18}" class="a" text-anchor="middle">{label}</text>')
    for name, (_, colour, dash) in STYLE.items():
        points = [(at_x(i), at_y(series[name][s])) for i, s in enumerate(seqlens) if s in series.get(name, {})]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2.2" stroke-dasharray="{dash}" points="'
                   + " ".join(f"{a:.1f},{b:.1f}" for a, b in points) + '"/>')
        out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.6" fill="{colour}"/>' for a, b in points]


def main(source, target):
    cells, facts = {}, {}
    with open(source) as f:
        for r in csv.DictReader(f):
            if r["tflops"] and r["contender"] in STYLE:
                cells.setdefault((int(r["head_dim"]), r["mask"]), {}).setdefault(r["contender"], {})[int(r["seqlen"])] = float(r["tflops"])
                facts = r
    keys = sorted(cells, key=lambda k: (k[1] != "full", k[0]))
    seqlens = sorted({s for c in cells.values() for line in c.values() for s in line})
    columns = max(1, (len(keys) + 1) // 2)
    width, height = LEFT + columns * (WIDTH + 40), TOP + 2 * (HEIGHT + 76)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
           '<style>.t{font-size:14px;font-weight:bold;fill:#222}.a{font-size:12px;fill:#444}.g{stroke:#ddd}</style>',
           f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="24" class="t">{facts["dtype"]} forward, TFLOP/s over sequence length; {facts["device"]}, driver '
           f'{facts["driver"]}, {facts["date"][:10]}</text>']
    for i, (name, colour, dash) in enumerate(STYLE.values()):
        x = width - 4 * 150 - 10 + i * 150
        out.append(f'<line x1="{x}" x2="{x + 28}" y1="{height - 12}" y2="{height - 12}" stroke="{colour}" stroke-width="2.5" '
                   f'stroke-dasharray="{dash}"/><text x="{x + 34}" y="{height - 8}" class="a">{name}</text>')
    for i, key in enumerate(keys):
        panel(out, LEFT + i % columns * (WIDTH + 40), TOP + i // columns * (HEIGHT + 66), f"head dim {key[0]}, {key[1]}",
              cells[key], seqlens)
    with open(target, "w") as f:
        f.write("\n".join(out) + "\n</svg>\n")


if __name__ == "__main__":
    main(*sys.argv[1:3])
