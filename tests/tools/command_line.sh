#!/bin/bash
# The command line as a script sees it: exit codes, refusals with their sentence, round trips through files.
cd "$(dirname "$0")/../.." && . tests/lib.sh
flashptx="$BUILD/flashptx"
says() {  # says STATUS "words" command...: ends with that status and prints the words
  local wanted="$1" words="$2" status; shift 2
  "$@" > "$scratch/says" 2>&1; status=$?
  cat "$scratch/says"
  [ "$status" -eq "$wanted" ] && grep -q -- "$words" "$scratch/says"
}
name=$("$flashptx" emit --dtype bf16 --head-dim 128 --causal --name)

case_is 'every subcommand has help with the exit codes' sh -c '
  for c in list emit run demo bench probe golden fuzz sass trace diff tune prepare; do
    "$0" $c --help | grep -q "Exit codes" || { echo "$c"; exit 1; }
  done' "$flashptx"
case_is 'no subcommand is a usage error' exits 2 "$flashptx"
case_is 'an unknown subcommand is a usage error' exits 2 "$flashptx" frobnicate
case_is 'an unknown option is a usage error' exits 2 "$flashptx" list --frobnicate
case_is 'list shows every committed kernel' sh -c '
  "$0" list > "$1/list" || exit 2
  for f in ptx/attn_*.ptx; do grep -q "$(basename "$f" .ptx)" "$1/list" || { echo "$f"; exit 1; }; done' "$flashptx" "$scratch"
case_is 'list --json is what ptx/catalog.json holds' sh -c '
  python3 -c "import json, subprocess, sys
assert json.loads(subprocess.check_output([sys.argv[1], \"list\", \"--json\"])) == json.load(open(\"ptx/catalog.json\"))[\"kernels\"]
" "$0"' "$flashptx"

case_is 'emit by options gives a name that emits the same text' sh -c '
  "$0" emit --dtype bf16 --head-dim 128 --causal -o "$2/a.ptx" && "$0" emit "$1" > "$2/b.ptx" && cmp "$2/a.ptx" "$2/b.ptx"' \
  "$flashptx" "$name" "$scratch"
case_is 'emit refuses a config that no kernel can have, with a sentence' \
  says 2 'warpgroups\|registers\|shared' "$flashptx" emit --head-dim 256 --warpgroups 7
case_is 'emit refuses an unknown schedule by name' says 2 'frobnicate' "$flashptx" emit --schedule frobnicate
case_is 'emit refuses a name that does not parse' says 2 'attn_fwd_bf16_d128' "$flashptx" emit attn_fwd_bf16_d128_diagonal
case_is 'emit cannot write into a missing folder' says 2 'cannot write' "$flashptx" emit "$name" -o "$scratch/no/such/file"
case_is 'prepare checks one job and writes a line of CSV' sh -c '
  "$0" prepare quantize --hadamard --rope half --device emulator --seqlen 128 --tokens 256 --hidden 256 --csv "$1/prepare.csv" |
    grep -q "right on 2 x 128 x 2" && grep -q "prep_rope_half_f32_hadamard_quantize_blocks_bf16_e4m3_d128_r128_packed,128,2,128,2" "$1/prepare.csv"' \
  "$flashptx" "$scratch"
# A shell starts what runs beside it with SIGINT ignored; Python does not.
case_is 'Ctrl-C ends prepare with 130 and no verdict' python3 -c '
import signal, subprocess, sys
p = subprocess.Popen([sys.argv[1], "prepare", "--device", "emulator", "--sweep"], stdout=subprocess.PIPE, text=True,
                     preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
p.stdout.readline(), p.stdout.readline()  # it is at work
p.send_signal(signal.SIGINT)
rest = p.communicate(timeout=60)[0]
print(rest, p.returncode)
assert p.returncode == 130 and "WRONG" not in rest' "$flashptx"
case_is 'prepare refuses a block without rows' says 2 'block-rows' "$flashptx" prepare --block-rows 0 --device emulator
case_is 'prepare refuses a head_dim' says 2 'head_dim is 24: must be a multiple of 16' \
  "$flashptx" prepare --head-dim 24 --hidden 48 --device emulator
case_is 'emit writes a preparation kernel' says 0 'visible .entry prep_hadamard_f16_d64' "$flashptx" emit prep_hadamard_f16_d64
case_is 'ptx/ is what the generator writes' "$flashptx" golden --check
case_is 'golden NAME prints what changed' sh -c '
  cp -r ptx "$2/ptx" && sed -i "s/wgmma/wgmmX/" "$2/ptx/$1.ptx" && ! "$0" golden --check --folder "$2/ptx" > /dev/null &&
  "$0" golden --folder "$2/ptx" "$1" | grep -q "^-.*wgmmX" && diff -r ptx "$2/ptx"' \
  "$flashptx" "$(basename "$(ls ptx/attn_*.ptx | head -1)" .ptx)" "$scratch"

case_is 'run refuses heads that do not divide' says 2 'heads' "$flashptx" run --heads 6 --heads-kv 4
case_is 'run refuses a head dimension that TMA cannot read' says 2 'head_dim' "$flashptx" run --device emulator --head-dim 20
case_is 'run refuses a missing file' exits 2 "$flashptx" run --ptx "$scratch/missing.ptx"
case_is 'run takes bf16 through FP8 and shows plain FP8 beside, two orders' says 0 'one scale a tensor, no Hadamard' \
  "$flashptx" run --device emulator --dtype e4m3 --scales block --hadamard --hadamard-v --rope half --seqlen 90 --head-dim 64 --seeds 2
case_is 'run refuses a Hadamard transform without FP8' says 2 'are for --dtype e4m3 or e5m2, not bf16' "$flashptx" run --hadamard
case_is 'run refuses rows of a block without blocks' says 2 '--block-rows is for --scales block' \
  "$flashptx" run --dtype e4m3 --block-rows 64
case_is 'run refuses blocks that no kernel takes' says 2 'block_rows is 48' \
  "$flashptx" run --device emulator --dtype e4m3 --scales block --block-rows 48 --seqlen 40
case_is 'run --fast takes a kernel with direct words of P' says 0 'fast mode, 14 of 16 words' \
  "$flashptx" run --device emulator --dtype e4m3 --fast --seqlen 200 --head-dim 64 --seeds 2
case_is 'run --fast reaches the attention inside the chain' says 0 '_fast14' \
  "$flashptx" run --device emulator --dtype e4m3 --scales block --hadamard --fast --seqlen 150 --head-dim 64
case_is 'run takes no fast kernel unasked' sh -c '! "$0" run --device emulator --dtype e4m3 --seqlen 64 --head-dim 64 | grep -q _fast' \
  "$flashptx"
case_is 'tune refuses --fast for 16 bits' says 2 'fast is for --dtype e4m3 or e5m2' "$flashptx" tune --dry-run --fast
case_is 'tune lists late stores beside today'"'"'s kernel' says 0 '1 apart.*_ob_late$' \
  "$flashptx" tune --dry-run --dtype bf16 --head-dim 64 --mask full --seqlen 4096 --distance 1 --softmax guarded
case_is 'emit --late-store names the kernel' says 0 '_ob_late$' "$flashptx" emit --head-dim 64 --late-store on --name
case_is 'emit refuses a late store where none can be' says 2 'late_store needs a buffer for all of O' \
  "$flashptx" emit --head-dim 128 --late-store on --o-own-buffer on
case_is 'tune --fast lists kernels of fast mode, whole and cut' says 0 '_fast14_.*_tail$' \
  "$flashptx" tune --dry-run --fast --dtype e4m3 --head-dim 64 --mask full --seqlen 16384 --distance 0 --softmax guarded
case_is 'run refuses --fast for 16 bits' says 2 'only e4m3 and e5m2 have a fast mode' "$flashptx" run --device emulator --fast
case_is 'run takes e4m3 and e5m2 mixed' says 0 'attn_fwd_e4m3_ke5m2_d64_' \
  "$flashptx" run --device emulator --dtype e4m3 --dtype-k e5m2 --seqlen 100 --head-dim 64
case_is 'run quantises each tensor to its own type' says 0 'V e5m2' \
  "$flashptx" run --device emulator --dtype e4m3 --dtype-v e5m2 --scales block --hadamard --seqlen 100 --head-dim 64
case_is 'run refuses types that do not mix' says 2 'only e4m3 and e5m2 mix' "$flashptx" run --dtype-v e5m2
case_is 'run refuses 16 bits for one tensor by its option' says 2 '--dtype-k bf16: wanted e4m3 or e5m2' \
  "$flashptx" run --dtype e4m3 --dtype-k bf16
case_is 'emit takes mixed types' says 0 'e4m3 Q, e4m3 K, e5m2 V in, bf16 out' "$flashptx" emit --dtype e4m3 --dtype-v e5m2 --head-dim 64
case_is 'accuracy --fast adds a row' says 0 'fast' \
  "$flashptx" accuracy --device emulator --test outliers --seqlen 130 --heads 1 --rows 64 --fast
case_is 'accuracy finds every needle on the emulator' says 0 'found 20 of 20' \
  "$flashptx" accuracy --device emulator --test needle --needle-keys 300 --queries 20
case_is 'accuracy refuses a length' says 2 'must be in' "$flashptx" accuracy --device emulator --needle-keys 0
case_is 'run agrees with float64 on the emulator, five orders, the same bits' \
  says 0 'ok: agrees' "$flashptx" run --device emulator --seqlen 150 --heads 4 --heads-kv 2 --head-dim 64 --causal --seeds 5
case_is 'run runs an unedited file in place of the generated text' sh -c '
  "$0" emit --head-dim 64 -o "$1/k.ptx" && "$0" run --device emulator --seqlen 70 --head-dim 64 --ptx "$1/k.ptx" | grep -q "ok: agrees"' \
  "$flashptx" "$scratch"
case_is 'an edited file with a wrong sign is a mismatch, exit 1' sh -c '
  sed "s/add\.f32/sub.f32/" "$1/k.ptx" > "$1/wrong.ptx" && ! cmp -s "$1/k.ptx" "$1/wrong.ptx" || exit 9
  "$0" run --device emulator --seqlen 70 --head-dim 64 --ptx "$1/wrong.ptx" > "$1/out"; test $? -eq 1 && grep -q MISMATCH "$1/out"' \
  "$flashptx" "$scratch"
case_is 'an edited file that waits for too little is a fault with a sentence' sh -c '
  sed "s/wgmma\.wait_group\.sync\.aligned [0-9]*/wgmma.wait_group.sync.aligned 7/" "$1/k.ptx" > "$1/race.ptx"
  cmp -s "$1/k.ptx" "$1/race.ptx" && exit 9
  "$0" run --device emulator --seqlen 70 --head-dim 64 --ptx "$1/race.ptx" > "$1/out"; test $? -eq 1 && grep -q "in flight" "$1/out"' \
  "$flashptx" "$scratch"
echo hello > "$scratch/bad.ptx" && : > "$scratch/empty.ptx"
for command in 'run --device emulator --seqlen 70 --head-dim 64' 'probe --device emulator'; do
  case_is "$command refuses a file that is no PTX" says 2 'bad.ptx has no .entry' "$flashptx" $command --ptx "$scratch/bad.ptx"
  case_is "$command refuses an empty file" says 2 'empty.ptx is empty' "$flashptx" $command --ptx "$scratch/empty.ptx"
  case_is "$command refuses an empty name" says 2 'ptx: wants a value' "$flashptx" $command --ptx ''
  case_is "$command refuses a folder" says 2 'directory' "$flashptx" $command --ptx "$scratch"
done
mkdir -p "$scratch/no_kernels" "$scratch/empty_kernels"
: > "$scratch/empty_kernels/$name.cubin"
case_is 'bench refuses a folder without kernels by its name' says 2 "$scratch/no_kernels holds no attn_fwd_" \
  "$flashptx" bench --cubin-dir "$scratch/no_kernels"
case_is 'bench refuses an empty cubin by its name, in the second folder too' says 2 "empty_kernels/$name.cubin is empty" \
  "$flashptx" bench --cubin-dir ptx --cubin-dir "$scratch/empty_kernels"
case_is 'sass takes the assembler that FLASHPTX_PTXAS names' says 2 "$scratch/no_such_ptxas.*could not be started\|nvdisasm" \
  env FLASHPTX_PTXAS="$scratch/no_such_ptxas" "$flashptx" sass "$name"
case_is 'trace --from refuses a folder by its name' says 2 "cannot read $scratch" "$flashptx" trace --from "$scratch"
case_is 'sass refuses a folder by its name' says 2 "no such file.*$scratch" "$flashptx" sass "$scratch"
case_is 'an empty kernel name is not the default kernel' says 2 'name: wants a value' "$flashptx" emit ''
case_is 'the largest seed is taken' says 0 '1 cases, 0 failed' "$flashptx" fuzz --cases 1 --seed 18446744073709551615
case_is 'a seed beyond 64 bits is refused' says 2 'seed: 18446744073709551616 is beyond 64 bits' \
  "$flashptx" fuzz --cases 1 --seed 18446744073709551616
case_is 'a negative seed is refused' says 2 'seed: -1 must not be negative' "$flashptx" fuzz --cases 1 --seed -1
case_is 'an empty seed is refused' says 2 'seed: wants a value' "$flashptx" fuzz --cases 1 --seed ''
case_is 'a length beyond 64 bits is refused, not clamped' says 2 'seqlen-q: -9999999999999999999999 is beyond 64 bits' \
  "$flashptx" run --device emulator --seqlen -9999999999999999999999
case_is 'a head dimension beyond 32 bits is refused' says 2 'head-dim: 4294967360 is beyond 32 bits' \
  "$flashptx" run --device emulator --head-dim 4294967360
case_is 'a time that is no number is refused' says 2 'nan is no number' "$flashptx" fuzz --seconds nan
case_is 'run --json is JSON with the verdict' sh -c '
  "$0" run --device emulator --seqlen 40 --head-dim 64 --json | python3 -c "import json, sys; assert json.load(sys.stdin)[\"ok\"] is True"' \
  "$flashptx"
case_is 'run --stats counts the matrix products' says 0 'wgmma' "$flashptx" run --device emulator --seqlen 40 --head-dim 64 --stats
case_is 'probe: every parameter arrives, on the emulator' \
  says 0 'as it was sent' "$flashptx" probe --device emulator
case_is 'the committed probe.ptx does the same' "$flashptx" probe --device emulator --ptx ptx/probe.ptx
case_is 'demo agrees with float64' says 0 'ok: agrees' "$flashptx" demo --device emulator --folder "$scratch/demo"
case_is 'fuzz finds nothing in twenty cases' says 0 '20 cases, 0 failed' "$flashptx" fuzz --cases 20
case_is 'tune --dry-run lists candidates and what is left out, with reasons' \
  says 0 'excluded.*one warpgroup' "$flashptx" tune --dry-run --head-dim 256 --mask full --seqlen 4096
case_is 'tune writes the table of the rules' sh -c '
  "$0" tune --from-rules --stages write --work "$1/tune" --table "$1/table.inc" && grep -q "attn_fwd_bf16_d128_causal__" "$1/table.inc"' \
  "$flashptx" "$scratch"
case_is 'tune refuses a head dimension that no kernel has' says 2 'multiple of 16' "$flashptx" tune --dry-run --head-dim 100
for wrong in 'run --seeds 0' 'run --adversary 7' 'run --repeats -1' 'run --check-rows -1' 'run --ordinal -1' 'run --heads-kv 0' \
             'run --heads-kv -1' 'run --scale 1e38' 'fuzz --cases 0' 'fuzz --cases -1' 'fuzz --seconds 0' \
             'golden --check --folder build/no-such-folder' 'emit --head-dim 7' 'emit --head-dim 264' 'emit probe --causal' 'ladder --device emulator --seqlen 1000 --tokens 500' 'emit --name --head-dim 256 --warpgroups 7'; do
  case_is "refused: $wrong" exits 2 "$flashptx" $wrong
done
case_is 'a problem beyond the memory is refused with its size' \
  says 2 'seqlen-q 9000000000000 is too large' "$flashptx" run --device emulator --seqlen 9000000000000
case_is 'emit refuses options that a name already says' says 2 'beside a name' "$flashptx" emit "$name" --head-dim 64
case_is 'emit pads a head dimension to the kernel that serves it' says 0 '_d80_' "$flashptx" emit --head-dim 72 --name
case_is 'emit --softmax guarded' says 0 'guarded' "$flashptx" emit --softmax guarded --name
case_is 'units cannot write into a missing folder' says 2 'cannot write' \
  "$flashptx" units --device emulator --no-beside --csv "$scratch/no/such.csv" ex2
case_is 'an instruction limit is kept' says 1 'limit is 5' "$flashptx" run --device emulator --seqlen 40 --head-dim 64 --emulator-limit 5
case_is 'another target is refused with its place, under the name of the file' sh -c '
  sed "s/^.target.*/.target sm_80/" "$1/k.ptx" > "$1/old.ptx"
  "$0" run --device emulator --seqlen 70 --head-dim 64 --ptx "$1/old.ptx" > "$1/out"; test $? -ne 0 && grep -q "REFUSED.*old.ptx:[0-9]*.*sm_80" "$1/out"' \
  "$flashptx" "$scratch"

if "$flashptx" probe --device cuda > /dev/null 2>&1; then
  case_is 'run agrees with float64 on the GPU' "$flashptx" run --device cuda --seqlen 1000 --heads 4 --heads-kv 2 --causal
  case_is 'bench gives a figure' "$flashptx" bench --seqlen 2048 --head-dim 128 --mask full
else
  case_is 'without a GPU --device cuda says so and exits 3' exits 3 "$flashptx" run --device cuda
  case_is 'without a GPU bench says so and exits 3' exits 3 "$flashptx" bench
  printf '#!/bin/sh\n[ "$1" = --version ] && echo "release 1.2, V1.2.3"\n' > "$scratch/ptxas" && chmod +x "$scratch/ptxas"
  case_is 'without a GPU tune times nothing, says so and leaves the table alone' says 0 'no GPU, nothing timed' "$flashptx" tune \
    --quick --head-dim 64 --mask full --seqlen 512 --work "$scratch/tune" --table "$scratch/none.inc" --ptxas "$scratch/ptxas"
  case_is 'asked to time and nothing else, it exits 3' exits 3 "$flashptx" tune --stages time --quick --head-dim 64 \
    --mask full --seqlen 512 --work "$scratch/tune"
fi
finish
