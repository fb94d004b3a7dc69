#!/bin/bash
# Runs every command of tools/TUTORIAL.md that is fenced as `sh`, in order, in one folder. A fence `sh refused` must end
# with 2 (a refusal), `sh fails` with 1 (a wrong result or a fault).
cd "$(dirname "$0")/../.." && . tests/lib.sh
root=$PWD
mkdir "$scratch/tutorial" && cd "$scratch/tutorial" || exit 2
case "$BUILD" in /*) ln -s "$BUILD" build ;; *) ln -s "$root/$BUILD" build ;; esac
awk '/^```sh/ { n++; kind = $2 ? $2 : "works"; file = sprintf("block_%02d.%s", n, kind); open = 1; next }
     /^```/ { open = 0 } open { print > file }' "$root/tools/TUTORIAL.md"
for block in block_*; do
  sentence="TUTORIAL.md: $(grep -m1 flashptx "$block")"
  case "$block" in
    *.works) case_is "$sentence" bash -e "$block" ;;
    *.fails) case_is "$sentence (must fail)" exits 1 bash -e "$block" ;;
    *.refused) case_is "$sentence (must be refused)" exits 2 bash -e "$block" ;;
    *) case_is "$block has a fence that this script knows" false ;;
  esac
done
case_is 'there are as many blocks as the tutorial promises' test "$(ls block_* | wc -l)" -ge 8
case_is 'the picture is labelled as modelled' grep -q 'MODELLED' early.svg
case_is 'Perfetto gets JSON' python3 -c 'import json; assert len(json.load(open("early.json"))["traceEvents"]) > 100'
finish
