#!/bin/bash
# Runs the doctest runner and every tests/*/*.sh, and closes with one line that counts them all.
# Each part ends with its own line `N passed, N failed, N skipped`; a part without one counts as failed.
# Arguments go to the runner alone (the scripts are then left out): tests/all.sh -ts='reference/*'
cd "$(dirname "$0")/.." || exit 2
export BUILD="${BUILD:-build}"
parts=("$BUILD/tests/run")
if [ $# -eq 0 ] && [ "$BUILD" = "${BUILD%/*san}" ]; then parts+=(tests/*/*.sh); fi
log=$(mktemp) && trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0
for part in "${parts[@]}"; do
  [ -e "$part" ] || continue
  "$part" "$@" 2>&1 | tee "$log" | grep -v -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'
  status=${PIPESTATUS[0]}
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -1)
  read -r p _ f _ s _ <<< "$line"
  if [ -z "$line" ]; then echo "$part: ended (status $status) without its closing line"; p=0 f=1 s=0
  elif [ "$status" -ne 0 ] && [ "${f:-0}" -eq 0 ]; then echo "$part: status $status"; f=1; fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
