# Sourced by the test scripts: cases that pass, fail or are skipped with a reason, and the closing line.
# A case is a sentence that can be false, then the command that shows it.
BUILD="${BUILD:-build}"
passed=0 failed=0 skipped=0
scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT

case_is() {  # case_is "sentence" command...
  local sentence="$1" status; shift
  "$@" > "$scratch/output" 2>&1; status=$?
  if [ "$status" -eq 0 ]; then passed=$((passed + 1))
  else failed=$((failed + 1)); echo "FAILED ($status): $sentence"; sed 's/^/    /' "$scratch/output" | tail -30; fi
}
skip_case() {  # skip_case "sentence" "reason"
  skipped=$((skipped + 1)); echo "skipped 1: $1: $2"
}
exits() {  # exits STATUS command...: the command ends with that status and does not crash
  local wanted="$1" status; shift
  "$@"; status=$?
  [ "$status" -eq "$wanted" ] || { echo "exit status $status, wanted $wanted: $*"; return 1; }
}
# An example that exits 3 cannot run here: that is a skip, not a pass.
example() {  # example "sentence" command...
  local sentence="$1" status; shift
  "$@" > "$scratch/output" 2>&1; status=$?
  case "$status" in
    0) passed=$((passed + 1)) ;;
    3) skip_case "$sentence" "$(tail -1 "$scratch/output")" ;;
    *) failed=$((failed + 1)); echo "FAILED ($status): $sentence"; sed 's/^/    /' "$scratch/output" | tail -30 ;;
  esac
}
finish() {
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ]
}
