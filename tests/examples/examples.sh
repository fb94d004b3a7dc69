#!/bin/bash
# The programs of tools/examples: they compile without a warning, and where there is a GPU they run and agree.
cd "$(dirname "$0")/../.." && . tests/lib.sh
kernel() { ls ptx/attn_fwd_bf16_d128_"$1"__*.ptx | head -1; }

case_is 'launch.c compiles as strict C99' \
  gcc -std=c99 -O2 -Wall -Wextra -Wpedantic -Werror tools/examples/launch.c -o "$scratch/launch" -ldl -lm
for mask in full causal; do
  example "launch.c runs the $mask kernel with libcuda alone" "$scratch/launch" $(kernel $mask)
done
case_is 'launch.c refuses a file that is no kernel' exits 2 "$scratch/launch" README.md
case_is 'launch.c stays below 150 lines' test "$(wc -l < tools/examples/launch.c)" -lt 150

case_is 'fp8.c compiles as strict C99' \
  gcc -std=c99 -O2 -I. -Wall -Wextra -Wpedantic -Werror tools/examples/fp8.c -o "$scratch/fp8" "$BUILD/libflashptx.a" -ldl -lm \
  -lpthread -lstdc++
example 'fp8.c agrees with float64' "$scratch/fp8"

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
if [ -n "$nvcc" ] && [ -e "$(dirname "$nvcc")/../include/cuda_runtime.h" ]; then
  case_is 'launch_runtime.cu compiles' "$nvcc" -std=c++17 tools/examples/launch_runtime.cu -o "$scratch/launch_runtime"
  example 'launch_runtime.cu runs the causal kernel' "$scratch/launch_runtime" $(kernel causal)
else
  skip_case 'launch_runtime.cu compiles' 'no nvcc with the CUDA runtime headers here'
fi

if command -v python3 > /dev/null; then
  export PYTHONDONTWRITEBYTECODE=1
  case_is 'catalog.json alone is enough to lay out a launch' python3 tests/examples/catalog_client.py
  for program in cupy_launch cuda_core_launch; do
    example "$program.py agrees with float64" python3 "tools/examples/$program.py"
  done
  if python3 -c 'import torch' 2> /dev/null; then
    FLASHPTX_LIBRARY="$BUILD/libflashptx.so" \
      example 'flashptx_torch.py: eager, opcheck, CUDA graph, torch.compile' python3 tools/examples/flashptx_torch.py
  else
    skip_case 'flashptx_torch.py: eager, opcheck, CUDA graph, torch.compile' 'no PyTorch here'
  fi
  for file in tools/examples/*.py tools/compare/*.py; do
    case_is "$file is valid Python" python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$file"
  done
else
  skip_case 'the Python examples' 'no python3 here'
fi
finish
