#include "gen/kernels/prepare_kernels.h"
namespace flashptx::gen {
void emit_rows(Kernel&, const PrepareConfig& c) { throw Error(c.name() + ": not written yet"); }
int rows_threads(const PrepareConfig&) { return 256; }
int tile_rows(const PrepareConfig&) { return 128; }
int rows_to_hold(const PrepareConfig&, std::int64_t) { return 128; }
void check_block_rows(const PrepareConfig&) {}
int hadamard_size(int d) { return d & -d; }
}  // namespace flashptx::gen
