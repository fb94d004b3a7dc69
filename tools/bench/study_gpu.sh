#!/bin/bash
# The ladder, the timelines and the units, measured: tools/bench/study_gpu.sh FLASHPTX OUTPUT_FOLDER
# Builds nothing, needs one GPU for about two minutes. Leaves ladder.csv, .svg, .txt, trace_table.csv, trace.txt, units.csv,
# units.txt and pictures.tar.gz (ladder.json; per kernel the timeline, Perfetto's JSON, the flat marks; the units' charts).
set -u
flashptx=$(readlink -f "${1:?path of flashptx}") || exit 2
out=${2:?output folder}
mkdir -p "$out" && out=$(readlink -f "$out") || exit 2
root=$(cd "$(dirname "$0")/../.." && pwd)
failed=0
limited() { timeout "$@" || { echo "FAILED ($?): ${*:2}"; failed=1; }; }

cd "$(mktemp -d)" || exit 2
limited 150 "$flashptx" ladder --device cuda --ablation --csv "$out/ladder.csv" --json ladder.json \
  --svg "$out/ladder.svg" > "$out/ladder.txt" 2>&1
cat "$out/ladder.txt"

kernels=
for name in $(timeout 20 "$flashptx" list | grep -o 'attn_fwd_bf16_[a-z0-9_]*' | sort -u); do
  case "$name" in *__q128_kv128_s2_qs2__*) continue ;; esac   # the shape for short rows
  kernels="$kernels $name"
done
d128=attn_fwd_bf16_d128_full__q128_kv128_s2
kernels="$kernels ${d128}__serial_plain_sym ${d128}__serial_plain ${d128}__serial_pp_plain ${d128}__overlap_plain"
kernels="$kernels ${d128}__overlap_plain_sym"
for name in $(echo $kernels | tr ' ' '\n' | sort -u); do
  limited 30 "$flashptx" trace "$name" --device cuda --batch 1 --heads 16 --seqlen 8192 --capacity 6144 \
    --table "$out/trace_table.csv" -o "$name"
done > "$out/trace.txt" 2>&1
limited 90 "$flashptx" units --device cuda --folder "$root/ptx/units" --csv "$out/units.csv" --svg units > "$out/units.txt" 2>&1
grep -E '^(kernel|marks cost|cycles|FAILED)' "$out/trace.txt"
find . -name '*.json' ! -name 'ladder.json' ! -name '*d128_full__q192*' ! -name '*overlap_pp_plain*' -delete  # several megabytes each
tar czf "$out/pictures.tar.gz" ./*.svg ./*.json ./*.csv
ls -l "$out"
exit $failed
