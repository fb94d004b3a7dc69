// prep_transpose, prep_quantize_transpose: V (batch, seqlen, heads, head_dim) -> V^T (batch, heads, head_dim, padded keys)
// of 8 bits, from 8 bits as they are or from 16 with a scale.
//
// wgmma takes 8-bit operands K-major only (PTX ISA 9.7.15.5.1), so P V needs V^T; its keys are permuted so
// that P needs no shuffle (gen/tile/key_order.h). A CTA does 128 keys x head_dim: a thread loads the 4 keys of
// one output word x 16 columns (four 16-byte loads in flight; eight of 16-bit values, 8 columns in either half of the
// row), transposes 4 x 4 bytes in registers, and shared memory serves only to turn words into rows of 128 bytes. Of
// heads of 64 columns and less a CTA does several: whole lines of V, and fewer CTAs to start.
// Next: prepare_scales.cpp.
#include <algorithm>

#include "gen/kernels/prepare_rows.h"
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

// Columns of a 16-byte load; a thread loads 16 columns of each key.
int piece_columns(const PrepareConfig& c) { return c.sink == Sink::transpose ? 16 : 8; }

// Threads of one head.
int head_threads(const PrepareConfig& c) { return words * c.head_dim / chunk; }

void divide(Kernel& k, const Reg& to, const Reg& from, int by) {
  if ((by & (by - 1)) == 0) k.shr_u32(to, from, log2_of(by));
  else k.div_u32(to, from, by).note("ptxas takes a division by a power of two for any other");
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
  Reg column_chunk, word;
  Reg exists;  // of several heads: this thread's
};

// The head of this thread among those of the CTA; `thread` becomes the one within it.
void heads_of_cta(Rows& p, const Reg& exists) {
  Kernel& k = p.k;
  const int each = transpose_heads(p.c);
  k.scope([&] {
    const Reg in_group = k.b32("head_in_group");
    tile_and_head(k, p.tile, p.head, p.batch, p.heads, each);
    k.shr_u32(in_group, p.thread, log2_of(head_threads(p.c)));
    k.add_u32(p.head, p.head, in_group);
    k.setp("lt", "u32", exists, p.head, p.heads);
    k.and_b32(p.thread, p.thread, head_threads(p.c) - 1);
  });
}

// Fills in r.thread, tile, head, batch, heads and seqlen.
Place coordinates(Rows& p) {
  Kernel& k = p.k;
  const int head_dim = p.c.head_dim;
  k.section("coordinates");
  p.thread = k.b32("thread"), p.tile = k.b32("tile"), p.head = k.b32("head"), p.batch = k.b32("batch");
  p.heads = k.b32("heads"), p.seqlen = k.b32("seqlen");
  Place at{k.b32("column_chunk"), k.b32("word"), {}};
  k.mov_b32(p.thread, special("tid.x"));
  if (transpose_heads(p.c) == 1) {
    tile_and_head(k, p.tile, p.head, p.batch, p.heads);
  } else {
    at.exists = k.pred("head_exists");
    heads_of_cta(p, at.exists);
  }
  k.ld_param_u32(p.seqlen, "seqlen");
  const int n = lane_chunks(head_dim), outer = head_dim / chunk / n;
  const Reg lane = k.b32("lane"), warp = k.b32("warp"), rest = k.b32("rest");
  k.and_b32(lane, p.thread, 31);
  k.shr_u32(warp, p.thread, 5);
  k.and_b32(at.column_chunk, lane, n - 1).note("neighbours read neighbouring columns of a key");
  divide(k, at.word, lane, n);
  if (outer > 1) {
    divide(k, rest, warp, n);
    k.and_b32(warp, warp, n - 1).note("warps that share a group of chunks: 32 words / (32 / chunks) each");
    k.mad_lo_u32(at.column_chunk, rest, n, at.column_chunk);
  }
  k.mad_lo_u32(at.word, warp, 32 / n, at.word);
  return at;
}

// The keys at positions 4w .. 4w + 3 of word w, 16 columns of each; zeros beyond the last key.
void load_keys(Rows& r, const Place& at, const Vec& raw) {
  Kernel& k = r.k;
  const bool quantizes = r.c.transposed;
  k.section("load 4 keys x 16 columns");
  const char* tensor = quantizes ? "x" : "v";
  const Reg from = k.b64("from"), stride = k.b64("key_stride"), wide = k.b64("wide"), key = k.b32("key"),
            left = k.b32("keys_left"), inside = k.pred("is_inside");
  tensor_base(k, from, tensor, r.batch, r.head);
  k.shr_u32(key, at.word, 2);
  k.shl_b32(key, key, 4);
  k.shl_b32(left, at.word, 1);
  k.and_b32(left, left, 6);
  k.add_u32(key, key, left).note("16 (w / 4) + 2 (w % 4); the others are 1, 8 and 9 further");
  k.mad_lo_u32(key, r.tile, tile_keys, key);
  k.sub_s32(left, r.seqlen, key);
  k.ld_param_u64(stride, std::string(tensor) + "_stride_seq");
  k.cvt_u64_u32(wide, key);
  k.mad_lo_u64(from, wide, stride, from);
  k.mul_wide_u32(wide, at.column_chunk, chunk);
  k.add_u64(from, from, wide);
  r.meet_other_grids();
  const int pieces = chunk / piece_columns(r.c);
  int before = 0;
  for (int i = 0; i < 4; ++i) {
    const int further = key_at_position(i);
    if (further == before + 1) {
      k.add_u64(from, from, stride);
    } else if (further > before) {
      k.mad_lo_u64(from, stride, further - before, from);
    }
    before = further;
    k.setp("gt", "s32", inside, left, further);
    if (transpose_heads(r.c) > 1) k.and_pred(inside, inside, at.exists);
    for (int piece = 0; piece < pieces; ++piece) {
      const std::vector<Reg> words = raw.slice(4 * (pieces * i + piece), 4);
      for (const Reg& w : words) k.mov_b32(w, 0);
      k.ld_global("L1::no_allocate.v4.b32", words, address(from, piece * r.c.head_dim)).when(inside);
    }
  }
}

// 16-bit words to the bytes that load_keys gives of 8-bit ones: word 4i + j has bytes 4j .. 4j + 3 of key i.
void quantize_keys(Rows& r, Scales& scales, const Vec& bytes) {
  Kernel& k = r.k;
  if (r.c.sink == Sink::quantize_blocks) {
    k.section("the block's largest");
    scales.clear();
    scales.take_words(0);
    scales.reduce();
    scales.write_block();
  }
  k.section("to 8 bits");
  for (int v = 0; v < r.at.vectors; ++v) scales.convert_words(r.vector(0, v), bytes[2 * v], bytes[2 * v + 1]);
}

}  // namespace

int transpose_heads(const PrepareConfig& c) {
  const int threads = head_threads(c);
  return c.sink == Sink::transpose && threads < 256 && 256 % threads == 0 ? 256 / threads : 1;
}

int transpose_threads(const PrepareConfig& c) { return head_threads(c) * transpose_heads(c); }

// grid (tiles of 128 keys * heads, batch)
void emit_transpose(Kernel& k, const PrepareConfig& c) {
  const int d = c.head_dim, threads = head_threads(c), columns = piece_columns(c), heads = transpose_heads(c);
  k.static_shared("tile_words", heads * d * tile_keys, 16);
  // Loads in flight are what this kernel lives on: as many threads as their registers allow.
  k.min_ctas_per_sm(std::clamp((c.transposed ? 1024 : 2048) / transpose_threads(c), 1, 32));
  Rows p(k, c);
  const Place at = coordinates(p);
  const Vec raw = k.b32("key_bytes", 16), turned = k.b32("column_word", 4), t = k.b32("pairs", 4);
  if (c.transposed) {
    p.declare();
    Scales scales(p);
    load_keys(p, at, p.words);
    if (c.sink == Sink::quantize) scales.read();
    quantize_keys(p, scales, raw);
  } else {
    load_keys(p, at, raw);
  }

  k.section("4 x 4 bytes transposed; words to shared memory, columns as rows");
  const Reg to = k.b32("store_addr"), piece = k.b32("piece"), key = k.b32("swizzle"), base = k.b32("tile_base");
  k.mov_b32(base, symbol("tile_words"));
  if (heads > 1) {
    k.and_b32(piece, p.head, heads - 1);
    k.mad_lo_u32(base, piece, d * tile_keys, base);
  }
  swizzle_key(k, key, at.column_chunk, d);
  k.shr_u32(piece, at.word, 2);
  k.xor_b32(piece, piece, key);
  k.mad_lo_u32(to, at.column_chunk, columns * tile_keys, base);
  k.mad_lo_u32(to, piece, 16, to);
  k.and_b32(piece, at.word, 3);
  k.mad_lo_u32(to, piece, 4, to);
  for (int j = 0; j < 4; ++j) {
    const int column = 4 * j < columns ? 4 * j : d / 2 + 4 * j - columns;  // the second piece is half a row away
    transpose_bytes(k, raw.slice(j, 4, 4), turned.all(), t);
    for (int i = 0; i < 4; ++i) k.st_shared_u32(address(to, tile_keys * (column + i)), turned[i]);
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
    divide(k, index, row, columns);
    swizzle_key(k, key, index, d);
    k.xor_b32(key, key, piece);
    k.mad_lo_u32(from, row, tile_keys, base);
    k.mad_lo_u32(from, key, 16, from);
    k.ld_shared_v4_b32(line.all(), address(from));
    Instr& store = k.st_global_v4_b32(address(out), line.all());
    if (heads > 1) store.when(at.exists);
  }
}

}  // namespace flashptx::gen
