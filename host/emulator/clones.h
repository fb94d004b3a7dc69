// One attribute for the emulator's hot loops: the compiler makes a version for each vector width
// and the loader picks one for the machine. Results are the same in all: the build forbids
// contraction of a * b + c
// (-ffp-contract=off), so a fused multiply-add happens only where the code asks for one.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FLASHPTX_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FLASHPTX_CLONES  // sanitizers start before the loader can pick a clone
#endif
#define FLASHPTX_LAMBDA __attribute__((always_inline))
#define FLASHPTX_INLINE inline __attribute__((always_inline))
