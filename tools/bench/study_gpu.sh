#!/bin/bash
# The ladder, the timelines and the units, measured: tools/bench/study_gpu.sh FLASHPTX OUTPUT_FOLDER
# Builds nothing, needs one GPU for about two and a half minutes. Leaves ladder.csv, .svg, .txt, trace_table.csv, trace.txt, units.csv,
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

# Both sets of marks for what stands in ptx/, every mark for the steps on the way there.
d128=attn_fwd_bf16_d128_full__q128_kv128_s2
catalogued=$(timeout 20 "$flashptx" list | grep -o 'attn_fwd_bf16_[a-z0-9_]*' | grep -v '__q128_kv128_s2_qs2__' | sort -u)
eight_bit=$(timeout 20 "$flashptx" list | grep -oE 'attn_fwd_e4m3_d(64_full__|128_full)[a-z0-9_]*' | sort -u)
plain8=attn_fwd_e4m3_d128_full__q128_kv128_s2__serial_plain_ob
steps="${d128}__serial_plain_sym ${d128}__serial_plain ${d128}__serial_pp_plain ${d128}__overlap_plain ${d128}__overlap_plain_sym"
trace() {  # NAME few|all
  limited 30 "$flashptx" trace "$1" --marks "$2" --device cuda --batch 1 --heads 16 --seqlen 8192 --capacity 4096 \
    --table "$out/trace_table.csv" -o "$1.$2"
}
rm -f "$out/trace_table.csv"
for name in $catalogued $eight_bit $plain8 $steps; do
  trace "$name" all
  case " $steps " in *" $name "*) ;; *) trace "$name" few ;; esac
done > "$out/trace.txt" 2>&1
limited 90 "$flashptx" units --device cuda --folder "$root/ptx/units" --csv "$out/units.csv" --svg units > "$out/units.txt" 2>&1
grep -E '^(kernel|marks cost|cycles|FAILED)' "$out/trace.txt"
find . -name '*.json' ! -name 'ladder.json' ! -name '*d128_full__q192*all.json' ! -name '*overlap_pp_plain.all.json' -delete  # several megabytes each
tar czf "$out/pictures.tar.gz" ./*.svg ./*.json ./*.csv
ls -l "$out"
exit $failed
