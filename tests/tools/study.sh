#!/bin/bash
# The study tools as a script sees them: what they write, and what they say to input that is broken or odd.
cd "$(dirname "$0")/../.." && . tests/lib.sh
flashptx="$BUILD/flashptx"
says() {  # says STATUS "words" command...: ends with that status and prints the words
  local wanted="$1" words="$2" status; shift 2
  timeout 60 "$@" > "$scratch/says" 2>&1; status=$?
  cat "$scratch/says"
  [ "$status" -eq "$wanted" ] && grep -q -- "$words" "$scratch/says"
}

# --- emit --lineinfo
case_is 'emit --lineinfo writes the plain text, lines that point at a table, and the table' sh -c '
  "$0" emit --lineinfo -o "$1/k.ptx" && "$0" emit -o "$1/plain.ptx" || exit 1
  sed "/^ *\.loc /d; /^\.file /{N;d}" "$1/k.ptx" | cmp - "$1/plain.ptx" || exit 2
  table="$1/$(sed -n "s/^\.file 1 \"\(.*\)\"/\1/p" "$1/k.ptx")"
  for line in $(sed -n "s/^ *\.loc 1 \([0-9]*\) .*/\1/p" "$1/k.ptx" | sort -u); do
    sed -n "${line}p" "$table" | grep -q "[A-Za-z]" || { echo "line $line of the table is empty"; exit 3; }
  done
  exp=$(grep -n "^exp_sum " "$table" | cut -d: -f1)
  grep -A3 "^ *\.loc 1 $exp 1" "$1/k.ptx" | grep -q . && sed -n "/\.loc 1 $exp 1/,/\.loc/p" "$1/k.ptx" | grep -q ex2' \
  "$flashptx" "$scratch"
case_is 'emit --lineinfo wants a file' says 2 'give -o FILE' "$flashptx" emit --lineinfo
case_is 'emit --lineinfo for a rung of the ladder' sh -c '
  "$0" emit fa2_fwd_bf16_d128_full --lineinfo -o "$1/fa2.ptx" && grep -q "online softmax" "$1/fa2_fwd_bf16_d128_full.schedule"' "$flashptx" "$scratch"
case_is 'emit --lineinfo where there are no steps' says 2 'has no steps' "$flashptx" emit probe --lineinfo -o "$scratch/probe.ptx"

# --- schedule files
schedule="$scratch/s.txt"
write_schedule() { printf '%s\n' 'schedule early' 'about x' token_wait qk 'pv lag 1' token_pass wait_qk free_k mask_max exp_sum 'wait_pv lag 1' \
                   'free_v lag 1' rescale_o pack_p | sed "$1" > "$schedule"; }
refused_schedule() {  # refused_schedule "sed script" "words"
  write_schedule "$1"
  says 2 "$2" "$flashptx" emit --schedule "$schedule" -o "$scratch/s.ptx"
}
write_schedule ''
case_is 'a schedule as it should be' "$flashptx" emit --schedule "$schedule" -o "$scratch/s.ptx"
while IFS='|' read -r script words; do
  case_is "schedule file: $script" refused_schedule "$script" "$words"
done <<'END'
s/^qk$/qkk/|s.txt:4: "qkk" is no step; the steps are
s/^pv lag 1/pv lag/|s.txt:5: "lag" behind pv is no lag
s/^pv lag 1/pv lag 2/|s.txt:5: .*lag 2 of pv must be 0 or 1
/^qk$/d|s.txt:13: .*step qk stands 0 times
s/^qk$/qk\nqk/|s.txt:5: .*step qk stands 2 times
/^token_pass/d|step token_pass stands 0 times
s/^free_v lag 1/free_v/|s.txt:12: .*frees V before wait_pv
s/^schedule.*/schedule Early/|s.txt:1: schedule name "Early"
/^schedule/d|s.txt:1: no "schedule NAME" line
s/^schedule early/schedule serial/|is built in with other steps
END
printf 'schedule a\n\001\033[31m%0300d' 7 > "$schedule"
case_is 'what is no text is shown without its control characters' sh -c '
  "$0" emit --schedule "$1" > "$2/o" 2>&1; test $? -eq 2 && ! grep -q "$(printf "\033")" "$2/o" && grep -q "s.txt:2: .*\.\.\.\" is no step" "$2/o"' \
  "$flashptx" "$schedule" "$scratch"
yes qk | head -100000 | sed '1i schedule a' > "$schedule"
case_is 'a file of steps without end is refused before it is drawn' says 2 's.txt:26: more than 24 steps' "$flashptx" emit --schedule "$schedule"

# --- trace and diff
kernel=attn_fwd_bf16_d128_full__q128_kv128_s2__overlap_pp_plain
case_is 'trace --json is JSON alone, and its parts are the whole trip' sh -c '
  "$0" trace "$2" --json --model -o "$1/t" 2> /dev/null | python3 -c "
import json, sys
t = json.load(sys.stdin); trip = t[\"trip\"]
assert t[\"source\"] == \"model\" and abs(sum(trip[\"event_cycles\"].values()) - trip[\"cycles_a_trip_mean\"]) < 1"' "$flashptx" "$scratch" "$kernel"
case_is 'a CSV of a trace says which kernel it holds' says 0 "kernel *$kernel" "$flashptx" trace --from "$scratch/t.csv" -o "$scratch/u"
case_is 'and is not taken for another' says 2 'line 2: holds attn_fwd_bf16_d128_full__q128_kv128_s2__overlap_pp_plain, not' \
  "$flashptx" trace --from "$scratch/t.csv" --head-dim 64 -o "$scratch/u"
case_is 'a PTX text is not traced' says 2 'the generator puts the marks in' "$flashptx" trace k.ptx -o "$scratch/u"
case_is 'nor compared' says 2 'texts are not compared' "$flashptx" diff k.ptx serial
case_is 'a model of steady trips says that sizes do not change it' says 0 'nothing runs: --batch' \
  "$flashptx" trace --model --seqlen 100 -o "$scratch/u"
case_is 'trace refuses a length below one, with whole limits' says 2 'seqlen: wanted 1 to 1073741824, got -5' "$flashptx" trace --seqlen -5
case_is 'trace cannot write into a missing folder' says 2 'cannot write' "$flashptx" trace --model -o "$scratch/no/such"
case_is 'diff of kernels of different classes, as JSON' sh -c '
  "$0" diff "$1" attn_fwd_e4m3_d256_causal__q128_kv128_s2__overlap_pp_guarded3_dyn_ob --json --model -o "$2/d.svg" 2> /dev/null | python3 -c "
import json, sys
d = json.load(sys.stdin)
assert d[\"launch\"][\"threads\"] == {\"a\": 384, \"b\": 384} and d[\"a\"] == \"$1\""; grep -q "MODELLED" "$2/d.svg"' "$flashptx" "$kernel" "$scratch"
case_is 'diff of a kernel with itself has nothing to mark' sh -c '
  "$0" diff "$1" "$1" > "$2/o" && ! sed 3d "$2/o" | grep "^\* " && tail -1 "$2/o" | grep -q none' "$flashptx" "$kernel" "$scratch"

# --- ladder
case_is 'ladder names the rungs that there are' says 2 'only zz: no such rung; there are unfused, fa1' "$flashptx" ladder --device emulator --only fa1 --only zz
case_is 'ladder says that it draws no chart without timings' says 0 'is not written' "$flashptx" ladder --device emulator --only fa1 --svg "$scratch/l.svg"
case_is 'the chart of a CSV has no line through its text' sh -c '
  "$0" ladder --from tools/bench/results/ladder_h200.csv --svg "$1/l.svg" && test "$(grep -n "stroke-dasharray" "$1/l.svg" | tail -1 | cut -d: -f1)" \
    -lt "$(grep -n "FlashAttention-3: 740" "$1/l.svg" | tail -1 | cut -d: -f1)"' "$flashptx" "$scratch"

# --- sass
export PATH="$PATH:$PWD/build/cuda/nvidia/cu13/bin"
if command -v nvdisasm > /dev/null && [ -n "${FLASHPTX_PTXAS:-$(command -v ptxas)}" ]; then
  PATH="$PATH:$(dirname "${FLASHPTX_PTXAS:-$(command -v ptxas)}")"
  printf '.version 8.0\n.target sm_90\n.address_size 64\n.visible .entry one() { ret; }\n.visible .entry two() { ret; }\n' > "$scratch/two.ptx"
  case_is 'sass --json of two entries is one document' sh -c '
    "$0" sass "$1/two.ptx" --json | python3 -c "import json, sys; assert {f[\"kernel\"] for f in json.load(sys.stdin)} == {\"one\", \"two\"}"' "$flashptx" "$scratch"
  case_is 'sass names the entries where one is not there' says 2 'entry three: .* has .*one' "$flashptx" sass "$scratch/two.ptx" --entry three
  case_is 'what ptxas refuses stands under the name of the file' sh -c '
    echo hello > "$1/bad.ptx"; "$0" sass "$1/bad.ptx" > "$1/o" 2>&1; test $? -eq 2 && grep -q "$1/bad.ptx, line 1" "$1/o" && ! grep -q "kernel.ptx" "$1/o"' "$flashptx" "$scratch"
  printf '\177ELFgarbage' > "$scratch/bad.cubin"
  case_is 'a broken cubin is refused in the words of nvdisasm' says 2 'nvdisasm' "$flashptx" sass "$scratch/bad.cubin"
  "${FLASHPTX_PTXAS:-ptxas}" -arch=sm_90a "$scratch/two.ptx" -o "$scratch/two.cubin"
  case_is "a cubin's registers are unknown" says 0 'registers and spills unknown' "$flashptx" sass "$scratch/two.cubin"
  mkdir "$scratch/fake" && printf '#!/bin/sh\nkill -9 $$\n' > "$scratch/fake/nvdisasm" && chmod +x "$scratch/fake/nvdisasm"
  case_is 'a disassembler that dies is said to have' says 2 'was ended by a signal' env PATH="$scratch/fake:$PATH" "$flashptx" sass "$scratch/two.cubin"
else
  skip_case 'sass of real files' 'no ptxas or no nvdisasm'
fi
[ -x /usr/local/cuda/bin/nvdisasm ] || [ -x build/cuda/nvidia/cu13/bin/nvdisasm ] ||
  case_is 'without a disassembler sass says where to get one' says 2 'cuda-nvdisasm' \
    env -u CUDA_HOME -u CUDA_PATH PATH=/nowhere "$(realpath "$flashptx")" sass ptx/probe.ptx
case_is 'sass of a folder' says 2 'no such file' "$flashptx" sass "$scratch"

finish
