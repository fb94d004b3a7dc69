#!/bin/bash
# Runs the doctest runner and every tests/*/*.sh, and closes with one line that counts them all.
# Each part ends with its own line `N passed, N failed, N skipped`; a part without one counts as failed.
# Arguments go to the runner alone (the scripts are then left out): tests/all.sh -ts='reference/*'
cd "$(dirname "$0")/.." || exit 2
export BUILD="${BUILD:-build}"
scripts=()
if [ $# -eq 0 ] && [ "$BUILD" = "${BUILD%/*san}" ]; then scripts=(tests/*/*.sh); fi
logs=$(mktemp -d) beside=
trap '[ -z "$beside" ] || kill -- -"$beside" 2> /dev/null; rm -rf "$logs"' EXIT
passed=0 failed=0 skipped=0
closing='^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'
log_of() { echo "$logs/${1//\//_}"; }
count() {  # count PART STATUS: by the closing line of its log
  local line p f s
  line=$(grep -E "$closing" "$(log_of "$1")" | tail -1)
  read -r p _ f _ s _ <<< "$line"
  if [ -z "$line" ]; then echo "$1: ended (status $2) without its closing line"; p=0 f=1 s=0
  elif [ "$2" -ne 0 ] && [ "${f:-0}" -eq 0 ]; then echo "$1: status $2"; f=1; fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}
run_scripts() {
  local script
  for script in "${scripts[@]}"; do
    "$script" > "$(log_of "$script")" 2>&1; echo $? > "$(log_of "$script").status"
  done
}

# The scripts run beside the runner, whose processes have long cases at their ends; but not where there is a GPU to time.
if [ ! -e /dev/nvidiactl ]; then
  set -m  # a process group of its own, to be ended with this one
  run_scripts & beside=$!
  set +m
fi
runner="$BUILD/tests/run"
"$runner" "$@" 2>&1 | tee "$(log_of "$runner")" | grep -v -E "$closing"
count "$runner" "${PIPESTATUS[0]}"
if [ -n "$beside" ]; then wait "$beside"; beside=; else run_scripts; fi
for script in "${scripts[@]}"; do
  grep -v -E "$closing" "$(log_of "$script")"
  count "$script" "$(cat "$(log_of "$script").status" || echo 1)"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
