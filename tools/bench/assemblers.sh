#!/bin/bash
# What several ptxas make of the committed kernels: tools/bench/assemblers.sh FLASHPTX OUTPUT.csv PTXAS...
# Needs no GPU, and nvdisasm in PATH. A row a kernel and assembler; the loop is the one over blocks of keys, its clocks the sum of the
# stall counts, mufu_late the exponentials that were moved behind the wait they stand in front of, early_writes the registers of A
# written before a wait covers their wgmma (flashptx sass). CUBINS=folder keeps what was assembled as folder/VERSION/KERNEL.cubin, for
# `flashptx bench --cubin-dir` and FLASHPTX_EXACT_CUBINS. KERNELS="name ..." in place of ptx/attn_fwd_*.ptx: also names to be emitted.
set -u -o pipefail
flashptx=$(readlink -f "${1:?path of flashptx}") || exit 2
csv=${2:?output file}; shift 2
cd "$(dirname "$0")/../.." || exit 2
scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT
failed=0
kernels=${KERNELS:-$(cd ptx && ls attn_fwd_*.ptx)}
echo 'kernel,ptxas,registers,spill_bytes,remarks,instructions,loop_instructions,loop_clocks,mufu,mufu_under_wgmma,mufu_late,early_writes' > "$csv"
for ptxas; do
  version=$("$ptxas" --version | sed -n 's/.*, V//p')
  [ -n "$version" ] || { echo "$ptxas: says no version" >&2; exit 2; }
  folder=${CUBINS:-$scratch}/$version
  mkdir -p "$folder" || exit 2
  for kernel in $kernels; do
    name=${kernel%.ptx}
    "$flashptx" emit "$name" -o "$scratch/k.ptx" &&
      "$ptxas" -arch=sm_90a -v "$scratch/k.ptx" -o "$folder/$name.cubin" > "$scratch/log" 2>&1 &&
      FLASHPTX_PTXAS="$ptxas" "$flashptx" sass "$scratch/k.ptx" > "$scratch/sass" || {
        echo "$version: $name does not assemble" >&2; cat "$scratch/log" >&2; failed=1; continue; }
    remarks=$(grep -oE 'C75[0-9]+|warning' "$scratch/log" | sort -u | tr '\n' ' ')
    awk -v name="$name" -v version="$version" -v remarks="${remarks:-none}" '
      NR == 1 { sub(/.*: /, ""); registers = $1; spilled = $3 }
      NR == 2 { for (i = 2; i <= NF; i += 2) all += $i }
      /^loop/ { here = $2 == "$KV_LOOP"; if (here) { loop = $4; clocks = $10 } }
      here && $1 == "MUFU:" { mufu = $2; under = $5 }
      /^ *loop \$KV_LOOP: ptxas moved/ { late = $5 }
      /before a wait covers that wgmma/ { ++early }
      END { sub(/ $/, "", remarks)
            printf "%s,%s,%d,%d,%s,%d,%d,%d,%d,%d,%d,%d\n", name, version, registers, spilled, remarks, all, loop, clocks, mufu, under, late, early }' \
      "$scratch/sass" >> "$csv"
  done
done
exit $failed
