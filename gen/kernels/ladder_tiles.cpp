// See ladder_tiles.h.
#include "gen/kernels/ladder_tiles.h"

namespace flashptx::gen {

void setup_tiles(LadderTiles& t) {
  Kernel& k = t.k;
  t.thread = k.b32("thread"), t.lane = k.b32("lane"), t.warp = k.b32("warp");
  t.copy_row = k.b32("copy_row"), t.copy_chunk = k.b32("copy_chunk"), t.copy_to = k.b32("copy_to");
  k.mov_b32(t.thread, special("tid.x"));
  k.and_b32(t.lane, t.thread, 31);
  k.shr_u32(t.warp, t.thread, 5);
  setup_copy(t);
}

void setup_copy(LadderTiles& t) {
  Kernel& k = t.k;
  k.and_b32(t.copy_chunk, t.thread, t.chunks() - 1);
  k.shr_u32(t.copy_row, t.thread, t.chunks() == 16 ? 4 : 3);
  k.and_b32(t.copy_to, t.copy_row, 7);
  k.xor_b32(t.copy_to, t.copy_to, t.copy_chunk).note("swizzle: chunk ^ (row & 7)");
  k.shl_b32(t.copy_to, t.copy_to, 4);
  k.mad_lo_u32(t.copy_to, t.copy_row, t.row_bytes(), t.copy_to);
}

void copy_source(LadderTiles& t, const Reg& address, const Reg& pass_bytes,
                 const std::string& pointer, const Reg& row0, const Reg& heads, const Reg& head) {
  Kernel& k = t.k;
  k.scope([&] {
    Reg row = k.b32("row"), line = k.b64("line"), head_line = k.b64("head_line"),
        base = k.b64("base"), bytes = k.b32("bytes");
    k.add_u32(row, row0, t.copy_row);
    k.mul_wide_u32(line, row, heads);
    k.cvt_u64_u32(head_line, head);
    k.add_u64(line, line, head_line).note("(row * heads + head) rows of head_dim");
    k.mul_lo_u64(line, line, t.row_bytes());
    k.ld_param_u64(base, pointer);
    k.add_u64(address, base, line);
    k.shl_b32(bytes, t.copy_chunk, 4);
    k.cvt_u64_u32(line, bytes);
    k.add_u64(address, address, line);
    k.mul_wide_u32(pass_bytes, heads, t.row_bytes() * t.rows_per_pass());
  });
}

void copy_tile(LadderTiles& t, const Reg& tile, int offset, const Reg& address,
               const Reg& pass_bytes, int rows, const Reg& rows_left, bool async) {
  Kernel& k = t.k;
  const int passes = rows / t.rows_per_pass();
  k.scope([&] {
    Reg from = k.b64("from"), to = k.b32("to"), size = k.b32("size"), valid = k.pred("is_valid");
    Vec data = async ? Vec() : k.b32("data", 4 * passes);
    k.add_u32(to, tile, t.copy_to);
    k.mov_b64(from, address);
    for (int i = 0; i < passes; ++i) {
      const Operand dst = gen::address(to, offset + i * t.rows_per_pass() * t.row_bytes());
      if (rows_left.valid()) k.setp("gt", "s32", valid, rows_left, i * t.rows_per_pass());
      if (async && rows_left.valid()) {
        k.selp_b32(size, 16, 0, valid);
        k.cp_async_cg(dst, gen::address(from), size).note(i == 0 ? "0 bytes of source: zeros" : "");
      } else if (async) {
        k.cp_async_cg(dst, gen::address(from));
      } else {
        if (rows_left.valid())
          for (int w = 0; w < 4; ++w) k.mov_b32(data[4 * i + w], 0);
        Instr& load = k.ld_global("v4.b32", data.slice(4 * i, 4), gen::address(from));
        if (rows_left.valid()) load.when(valid);
      }
      if (i + 1 < passes) k.add_u64(from, from, pass_bytes);
    }
    if (!async)
      for (int i = 0; i < passes; ++i)
        k.st_shared("v4.b32", gen::address(to, offset + i * t.rows_per_pass() * t.row_bytes()),
                    data.slice(4 * i, 4));
  });
}

namespace {

// address = tile + offset + row * row_bytes + ((chunk ^ (row & 7)) * 16), chunk 0 or 1.
void finish_address(LadderTiles& t, const Reg& address, const Reg& tile, int offset, const Reg& row,
                    const Reg& chunk) {
  Kernel& k = t.k;
  Reg low = k.b32("low");
  k.and_b32(low, row, 7);
  k.xor_b32(low, low, chunk);
  k.shl_b32(low, low, 4);
  k.mad_lo_u32(address, row, t.row_bytes(), low);
  k.add_u32(address, address, tile);
  k.add_u32(address, address, offset);
}

}  // namespace

void fragment_address_a(LadderTiles& t, const Reg& address, const Reg& tile, int offset) {
  Kernel& k = t.k;
  k.scope([&] {
    Reg row = k.b32("row"), chunk = k.b32("chunk");
    k.and_b32(row, t.lane, 15);
    k.mad_lo_u32(row, t.warp, t.config.warp_rows(), row);
    k.shr_u32(chunk, t.lane, 4);
    finish_address(t, address, tile, offset, row, chunk);
  });
}

void fragment_address_b(LadderTiles& t, const Reg& address, const Reg& tile, int offset) {
  Kernel& k = t.k;
  k.scope([&] {
    Reg row = k.b32("row"), chunk = k.b32("chunk");
    k.shr_u32(row, t.lane, 4);
    k.shl_b32(row, row, 3);
    k.and_b32(chunk, t.lane, 7);
    k.add_u32(row, row, chunk).note("matrices 0 and 1: n 0..7, 2 and 3: n 8..15");
    k.shr_u32(chunk, t.lane, 3);
    k.and_b32(chunk, chunk, 1);
    finish_address(t, address, tile, offset, row, chunk);
  });
}

void fragment_address_bt(LadderTiles& t, const Reg& address, const Reg& tile, int offset) {
  Kernel& k = t.k;
  k.scope([&] {
    Reg row = k.b32("row"), chunk = k.b32("chunk");
    k.and_b32(row, t.lane, 15).note("matrices 0 and 1: k 0..15 of n 0..7, 2 and 3: of n 8..15");
    k.shr_u32(chunk, t.lane, 4);
    finish_address(t, address, tile, offset, row, chunk);
  });
}

void at_step(LadderTiles& t, const Reg& d, const Reg& address, int step) {
  if (step == 0) t.k.mov_b32(d, address);
  else t.k.xor_b32(d, address, 32 * step);
}

void mma_pair(LadderTiles& t, const Vec& acc, int n_tiles, int first, const Vec& a,
              const std::vector<Reg>& b) {
  for (int m = 0; m < t.m_tiles(); ++m)
    for (int n = 0; n < 2; ++n) {
      const std::vector<Reg> d = acc.slice(4 * (m * n_tiles + first + n), 4);
      t.k.mma_sync("m16n8k16", "f32", t.type(), t.type(), d, a.slice(4 * m, 4),
                   {b[static_cast<std::size_t>(2 * n)], b[static_cast<std::size_t>(2 * n + 1)]}, d);
    }
}

}  // namespace flashptx::gen
