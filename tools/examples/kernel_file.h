/* For the C examples: reads what a launcher must know out of a committed .ptx, and checks a result.
 *
 * Everything about the kernel stands in its own text: entry, threads, shared memory, parameters by name. Nothing here
 * launches anything; that is launch.c (driver API) and launch_runtime.cu (CUDA runtime).
 */
#ifndef FLASHPTX_EXAMPLES_KERNEL_FILE_H
#define FLASHPTX_EXAMPLES_KERNEL_FILE_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 3, QUERIES = 200, KEYS = 333, DIM = 128 }; /* batch 1; not multiples of any tile */

typedef struct kernel_file {
  char* text;
  char entry[256];
  int threads, tile_q, causal;
  unsigned shared_bytes;
} kernel_file;

static int number_after(const char* text, const char* words) {
  const char* at = strstr(text, words);
  return at ? atoi(at + strlen(words)) : 0;
}

static int read_kernel(const char* path, kernel_file* k) {
  FILE* f = fopen(path, "rb");
  const char* at;
  long size;
  if (!f) return 0;
  fseek(f, 0, SEEK_END), size = ftell(f), rewind(f);
  k->text = (char*)calloc((size_t)size + 1, 1);
  size = (long)fread(k->text, 1, (size_t)size, f), fclose(f);
  at = strstr(k->text, ".entry ");
  if (!at || sscanf(at, ".entry %255[^(\n ]", k->entry) != 1 || !strstr(k->entry, "_bf16_d128_")) return 0;
  k->threads = number_after(at, ".reqntid ");
  k->tile_q = number_after(k->entry, "__q");
  k->causal = strstr(k->entry, "_causal_") != NULL;
  k->shared_bytes = (unsigned)number_after(k->text, "dynamic shared memory ");
  return 1;
}

/* Rows of a map's box, from its line of the header: "//   k_map: bf16 {...} innermost first, box {64, 128, 1, 1}". */
static int box_rows(const kernel_file* k, const char* map) {
  char line[80];
  const char* at;
  snprintf(line, sizeof line, "//   %s: ", map);
  at = strstr(k->text, line);
  return at ? number_after(at, "box {64, ") : 0;
}

/* The next parameter's name after *at, or 0 when the list ends. */
static int next_parameter(const char** at, char name[64]) {
  const char* end = strstr(*at, "\n)");
  const char* p = strstr(*at, ".param ");
  const char *stop, *start;
  if (!p || !end || p > end) return 0;
  stop = p + strcspn(p, ",\n[/");
  while (stop[-1] == ' ') --stop;
  for (start = stop; start[-1] != ' ';) --start;
  snprintf(name, 64, "%.*s", (int)(stop - start), start);
  *at = p + strcspn(p, "\n");
  return 1;
}

static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
static float from_bf16(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

/* Roughly normal numbers, the same everywhere. */
static void fill_random(uint16_t* x, size_t count, uint32_t seed) {
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int j = 0; j < 4; ++j) seed = seed * 1664525u + 1013904223u, sum += (float)(seed >> 8) * (1.0f / 8388608.0f);
    x[i] = to_bf16((sum - 4.0f) * 0.866f);
  }
}

/* Tensors are (seqlen, HEADS, DIM). Returns the largest error of O; *lse_error that of LSE. */
static double check_attention(const uint16_t* q, const uint16_t* k, const uint16_t* v, const uint16_t* o, const float* lse,
                              int causal, double* lse_error) {
  static double p[KEYS];
  double worst = 0;
  *lse_error = 0;
  for (int h = 0; h < HEADS; ++h)
    for (int i = 0; i < QUERIES; ++i) {
      int visible = causal ? i + KEYS - QUERIES + 1 : KEYS;
      double largest = -1e300, sum = 0, off;
      for (int j = 0; j < visible; ++j) {
        p[j] = 0;
        for (int d = 0; d < DIM; ++d)
          p[j] += (double)from_bf16(q[(i * HEADS + h) * DIM + d]) * from_bf16(k[(j * HEADS + h) * DIM + d]);
        p[j] /= sqrt((double)DIM);
        if (p[j] > largest) largest = p[j];
      }
      for (int j = 0; j < visible; ++j) sum += p[j] = exp(p[j] - largest);
      for (int d = 0; d < DIM; ++d) {
        double wanted = 0;
        for (int j = 0; j < visible; ++j) wanted += p[j] / sum * from_bf16(v[(j * HEADS + h) * DIM + d]);
        off = fabs(wanted - from_bf16(o[(i * HEADS + h) * DIM + d]));
        if (!(off <= worst)) worst = off;
      }
      off = fabs(largest + log(sum) - lse[h * QUERIES + i]);
      if (!(off <= *lse_error)) *lse_error = off;
    }
  return worst;
}

#endif
