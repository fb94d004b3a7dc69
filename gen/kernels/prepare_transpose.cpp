// prep_transpose: V (batch, seqlen, heads, head_dim) of an 8-bit type -> V^T (batch, heads, head_dim, padded keys).
//
// wgmma takes 8-bit operands K-major only (PTX ISA 9.7.15.5.1), so P V needs V^T; its keys are permuted so
// that P needs no shuffle (gen/tile/key_order.h). A CTA does 128 keys x head_dim: a thread loads the 4 keys of
// one output word x 16 columns (four 16-byte loads in flight), transposes 4 x 4 bytes in registers, and
// shared memory serves only to turn words into rows of 128 bytes. One barrier. Next: prepare.cpp.
#include "gen/kernels/prepare_kernels.h"
#include "gen/tile/key_order.h"

namespace flashptx::gen {
namespace {

constexpr int tile_keys = key_order_padding;
constexpr int words = tile_keys / 4;  // a row of the tile, in 4-byte words
constexpr int chunk = 16;             // columns, or bytes, a vector access takes

// How a warp's lanes are laid over chunks of columns x words of keys: as many chunks as give whole lines
// when a key is read, at most 8 so that the stores below can be spread over all banks.
int lane_chunks(int head_dim) {
  int n = 8;
  while (head_dim / chunk % n) n /= 2;
  return n;
}

// The 16-byte pieces of the tile's row `row` stand in the order piece ^ key(row): a warp's 32 stores of one word
// then hit 32 banks. Its lanes differ in lane_chunks chunks of columns and 32 / lane_chunks words.
void swizzle_key(Kernel& k, const Reg& key, const Reg& column_chunk, int head_dim) {
  const int n = lane_chunks(head_dim);
  k.and_b32(key, column_chunk, n - 1);
  if (n < 8) k.mul_lo_u32(key, key, 8 / n);
}

// a..d: 4 bytes each of four keys. Afterwards: word i holds byte i of each, in this order.
void transpose_bytes(Kernel& k, const std::vector<Reg>& keys, const std::vector<Reg>& out, const Vec& t) {
  k.prmt_b32(t[0], keys[0], keys[1], hex(0x5140)).note("a0 b0 a1 b1");
  k.prmt_b32(t[1], keys[2], keys[3], hex(0x5140)).note("c0 d0 c1 d1");
  k.prmt_b32(t[2], keys[0], keys[1], hex(0x7362)).note("a2 b2 a3 b3");
  k.prmt_b32(t[3], keys[2], keys[3], hex(0x7362));
  k.prmt_b32(out[0], t[0], t[1], hex(0x5410)).note("a0 b0 c0 d0: four keys of a column");
  k.prmt_b32(out[1], t[0], t[1], hex(0x7632));
  k.prmt_b32(out[2], t[2], t[3], hex(0x5410));
  k.prmt_b32(out[3], t[2], t[3], hex(0x7632));
}

struct Place {
  Reg thread, tile, head, batch, heads, seqlen, column_chunk, word;
};

Place coordinates(Kernel& k, int head_dim) {
  Place p{k.b32("thread"),       k.b32("tile"), k.b32("head"), k.b32("batch"), k.b32("heads"), k.b32("seqlen"),
          k.b32("column_chunk"), k.b32("word")};
  k.section("coordinates");
  tile_and_head(k, p.tile, p.head, p.batch, p.heads);
  k.ld_param_u32(p.seqlen, "seqlen");
  k.mov_b32(p.thread, special("tid.x"));
  const int n = lane_chunks(head_dim), outer = head_dim / chunk / n;
  // thread = (outer chunk * (words / (32 / n)) + outer word) * 32 + lane, with outer word running first
  const Reg lane = k.b32("lane"), warp = k.b32("warp"), rest = k.b32("rest");
  k.and_b32(lane, p.thread, 31);
  k.shr_u32(warp, p.thread, 5);
  k.and_b32(p.column_chunk, lane, n - 1).note("neighbours read neighbouring columns of a key");
  k.div_u32(p.word, lane, n);
  if (outer > 1) {
    k.div_u32(rest, warp, n).note("warps that share a group of chunks: 32 words / (32 / chunks) each");
    k.mad_lo_u32(p.column_chunk, rest, n, p.column_chunk);
    k.rem_u32(warp, warp, n);
  }
  k.mad_lo_u32(p.word, warp, 32 / n, p.word);
  return p;
}

// 16 bytes of each of the four keys of word `p.word`: the keys at positions 4w .. 4w+3, zeros beyond the last.
void load_keys(Kernel& k, const Place& p, const Vec& raw) {
  k.section("load 4 keys x 16 columns");
  const Reg from = k.b64("from"), stride = k.b64("key_stride"), wide = k.b64("wide"), key = k.b32("key"),
            left = k.b32("keys_left"), inside = k.pred("is_inside");
  tensor_base(k, from, "v", p.batch, p.head);
  k.shr_u32(key, p.word, 2);
  k.shl_b32(key, key, 4);
  k.shl_b32(left, p.word, 1);
  k.and_b32(left, left, 6);
  k.add_u32(key, key, left).note("16 (w / 4) + 2 (w % 4); the others are 1, 8 and 9 further");
  k.mad_lo_u32(key, p.tile, tile_keys, key);
  k.sub_s32(left, p.seqlen, key);
  k.ld_param_u64(stride, "v_stride_seq");
  k.cvt_u64_u32(wide, key);
  k.mad_lo_u64(from, wide, stride, from);
  k.mul_wide_u32(wide, p.column_chunk, chunk);
  k.add_u64(from, from, wide);
  int before = 0;
  for (int i = 0; i < 4; ++i) {
    const int further = key_at_position(i);
    if (further == before + 1) {
      k.add_u64(from, from, stride);
    } else if (further > before) {
      k.mad_lo_u64(from, stride, further - before, from);
    }
    before = further;
    for (int j = 0; j < 4; ++j) k.mov_b32(raw[4 * i + j], 0);
    k.setp("gt", "s32", inside, left, further);
    k.ld_global_nc_L1_no_allocate("v4.b32", raw.slice(4 * i, 4), address(from)).when(inside);
  }
}

}  // namespace

int transpose_threads(const PrepareConfig& c) { return words * c.head_dim / chunk; }

// grid (tiles of 128 keys * heads, batch)
void emit_transpose(Kernel& k, const PrepareConfig& c) {
  const int d = c.head_dim, threads = transpose_threads(c);
  k.static_shared("tile_words", d * tile_keys, 16);
  const Place p = coordinates(k, d);
  const Vec raw = k.b32("key_bytes", 16), turned = k.b32("column_word", 4), t = k.b32("pairs", 4);
  load_keys(k, p, raw);

  k.section("4 x 4 bytes transposed; words to shared memory, columns as rows");
  const Reg to = k.b32("store_addr"), piece = k.b32("piece"), key = k.b32("swizzle"), base = k.b32("tile_base");
  k.mov_b32(base, symbol("tile_words"));
  swizzle_key(k, key, p.column_chunk, d);
  k.shr_u32(piece, p.word, 2);
  k.xor_b32(piece, piece, key);
  k.mad_lo_u32(to, p.column_chunk, chunk * tile_keys, base);
  k.mad_lo_u32(to, piece, 16, to);
  k.and_b32(piece, p.word, 3);
  k.mad_lo_u32(to, piece, 4, to);
  for (int j = 0; j < 4; ++j) {
    transpose_bytes(k, raw.slice(j, 4, 4), turned.all(), t);
    for (int i = 0; i < 4; ++i) k.st_shared_u32(address(to, tile_keys * (4 * j + i)), turned[i]);
  }
  k.bar_sync_all(0);

  k.section("rows of 128 bytes to memory");
  const Reg row = k.b32("row"), from = k.b32("load_addr"), out = k.b64("out"), wide = k.b64("wide_row"),
            pitch = k.b64("padded_keys"), index = k.b32("row_chunk");
  const Vec line = k.b32("line", 4);
  k.shr_u32(row, p.thread, 3);
  k.and_b32(piece, p.thread, 7);
  k.add_u32(index, p.seqlen, tile_keys - 1);
  k.and_b32(index, index, hex(0xffffff80));
  k.cvt_u64_u32(pitch, index);
  k.mad_lo_u32(index, p.batch, p.heads, p.head);
  k.mul_wide_u32(wide, index, d);
  k.cvt_u64_u32(out, row);
  k.add_u64(wide, wide, out);
  k.ld_param_u64(out, "vt");
  k.mad_lo_u64(out, wide, pitch, out);
  k.mul_wide_u32(wide, p.tile, tile_keys);
  k.add_u64(out, out, wide);
  k.mul_wide_u32(wide, piece, 16);
  k.add_u64(out, out, wide);
  k.mul_lo_u64(pitch, pitch, threads / 8);
  for (int i = 0; i < 4; ++i) {
    if (i) k.add_u32(row, row, threads / 8);
    if (i) k.add_u64(out, out, pitch);
    k.shr_u32(index, row, 4);
    swizzle_key(k, key, index, d);
    k.xor_b32(key, key, piece);
    k.mad_lo_u32(from, row, tile_keys, base);
    k.mad_lo_u32(from, key, 16, from);
    k.ld_shared_v4_b32(line.all(), address(from));
    k.st_global_v4_b32(address(out), line.all());
  }
}

}  // namespace flashptx::gen
