#!/bin/sh
# Installs what building and testing need and this machine lacks: from Debian the compiler, make, doctest, CLI11
# and nlohmann-json; from PyPI NVIDIA's assembler and disassembler into build/cuda, where no toolkit is found.
# Quiet, does nothing the second time, needs root or sudo only where a Debian package is missing.
# The assembler is optional: without it the tests that ask it are skipped, and say so.
set -eu
cd "$(dirname "$0")/.."
mkdir -p build
log=build/setup.log
: > "$log"
say() { echo "setup: $*"; }
has() { command -v "$1" > /dev/null 2>&1; }

root=
if [ "$(id -u)" -ne 0 ]; then
  if has sudo; then root=sudo; else root=none; fi
fi
updated=
apt_install() {  # apt_install PACKAGE...
  if ! has apt-get; then say "no apt-get here; install by hand: $*"; return 1; fi
  if [ "$root" = none ]; then say "neither root nor sudo; install by hand: apt-get install $*"; return 1; fi
  say "installing $*"
  if [ -z "$updated" ]; then $root apt-get update -qq >> "$log" 2>&1 || true; updated=1; fi
  # apt takes its own lock; wait for another apt instead of failing at once.
  if ! $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      -o DPkg::Lock::Timeout=120 "$@" >> "$log" 2>&1; then
    say "apt-get install $* failed; the last lines of $log:"
    tail -5 "$log"
    return 1
  fi
}

missing=
need() { missing="$missing $1"; }
has g++ || need g++
has make || need make
for header in doctest/doctest.h:doctest-dev CLI/CLI.hpp:libcli11-dev nlohmann/json.hpp:nlohmann-json3-dev; do
  [ -e "/usr/include/${header%%:*}" ] || [ -e "/usr/local/include/${header%%:*}" ] || need "${header##*:}"
done
# shellcheck disable=SC2086
[ -z "$missing" ] || apt_install $missing

find_tool() {  # find_tool PROGRAM: prints its path, in the order in which the Makefile looks
  for dir in "${CUDA_HOME:-/nonexistent}/bin" "${CUDA_PATH:-/nonexistent}/bin"; do
    [ -x "$dir/$1" ] && echo "$dir/$1" && return
  done
  command -v "$1" && return
  for dir in /usr/local/cuda/bin /usr/local/cuda-*/bin build/cuda/nvidia/cu13/bin; do
    [ -x "$dir/$1" ] && echo "$dir/$1" && return
  done
  return 0
}
wheels=
[ -n "$(find_tool ptxas)" ] || wheels="nvidia-cuda-nvcc==13.0.*"
[ -n "$(find_tool nvdisasm)" ] || wheels="$wheels nvidia-cuda-nvdisasm>=13.2,<14"
if [ -n "$wheels" ] && [ -z "${FLASHPTX_SETUP_NO_CUDA:-}" ]; then
  if ! python3 -m pip --version > /dev/null 2>&1; then apt_install python3-pip || true; fi
  say "fetching into build/cuda: $wheels"
  # --target replaces nothing that is there already: the two wheels share a folder, so each goes in by itself.
  for wheel in $wheels; do
    if python3 -m pip install --quiet --no-deps --disable-pip-version-check --target build/cuda/fetched "$wheel" \
        >> "$log" 2>&1; then
      cp -R build/cuda/fetched/nvidia build/cuda/
    else
      say "could not fetch $wheel (see $log): tests that need it will be skipped"
    fi
    rm -rf build/cuda/fetched
  done
fi
ptxas=$(find_tool ptxas) nvdisasm=$(find_tool nvdisasm)
say "ready ($(g++ --version | head -1); ptxas: ${ptxas:-none}; nvdisasm: ${nvdisasm:-none})"
