// Integer arithmetic, logic, shifts, bit fields, comparison and selection (PTX ISA, "Integer
// Arithmetic", "Comparison and Selection", "Logic and Shift").
//
// Each opcode: what its qualifiers may be, where its operands go, which loop runs it.
// Next: ops_float.cpp, which add/mul/setp and the like hand their float types to.
#include "host/emulator/decode.h"
#include "host/emulator/lanes.h"
#include "host/emulator/numeric.h"
#include "host/emulator/ops_float.h"

namespace flashptx::emulator {
namespace {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
__extension__ using u128 = unsigned __int128;
__extension__ using s128 = __int128;

constexpr std::initializer_list<Type> integers = {Type::u16,  Type::u32,    Type::u64, Type::s16,
                                                  Type::s32,  Type::s64,    Type::f16, Type::f16x2,
                                                  Type::bf16, Type::bf16x2, Type::f32, Type::f64};
constexpr std::initializer_list<Type> bits = {Type::b16, Type::b32, Type::b64};

void operands2(OpDecoder& op, Type t) {
  op.count(3, 3);
  op.in.d = op.dst(0, t), op.in.a = op.src(1, t), op.in.b = op.src(2, t);
  op.in.work = Work::alu;
}
void operands1(OpDecoder& op, Type t) {
  op.count(2, 2);
  op.in.d = op.dst(0, t), op.in.a = op.src(1, t);
  op.in.work = Work::alu;
}

// Picks the loop for an integer type. F takes and returns the widest unsigned or the exact signed
// type.
#define BY_TYPE2(t, f)                                                       \
  (t == Type::u16   ? Exec(lanes2<[](u16 a, u16 b) -> u16 f, u16, u16, u16>) \
   : t == Type::s16 ? Exec(lanes2<[](s16 a, s16 b) -> s16 f, s16, s16, s16>) \
   : t == Type::u32 ? Exec(lanes2<[](u32 a, u32 b) -> u32 f, u32, u32, u32>) \
   : t == Type::s32 ? Exec(lanes2<[](s32 a, s32 b) -> s32 f, s32, s32, s32>) \
   : t == Type::u64 ? Exec(lanes2<[](u64 a, u64 b) -> u64 f, u64, u64, u64>) \
                    : Exec(lanes2<[](s64 a, s64 b) -> s64 f, s64, s64, s64>))
#define BY_SIZE2(t, f)                                                           \
  (type_bytes(t) == 2   ? Exec(lanes2<[](u16 a, u16 b) -> u16 f, u16, u16, u16>) \
   : type_bytes(t) == 4 ? Exec(lanes2<[](u32 a, u32 b) -> u32 f, u32, u32, u32>) \
                        : Exec(lanes2<[](u64 a, u64 b) -> u64 f, u64, u64, u64>))
#define BY_SIZE1(t, f)                                               \
  (type_bytes(t) == 2   ? Exec(lanes1<[](u16 a) -> u16 f, u16, u16>) \
   : type_bytes(t) == 4 ? Exec(lanes1<[](u32 a) -> u32 f, u32, u32>) \
                        : Exec(lanes1<[](u64 a) -> u64 f, u64, u64>))

s32 saturate(s64 v) {
  return v > 0x7fffffff ? 0x7fffffff : v < -0x7fffffff - 1 ? -0x7fffffff - 1 : static_cast<s32>(v);
}

void add(OpDecoder& op) {
  if (decode_float_arithmetic(op, FloatOp::add)) return;
  bool sat = op.take("sat");
  Type t = op.take_type(integers);
  operands2(op, t);
  if (sat && t != Type::s32) op.fail(".sat needs .s32");
  if (sat) op.in.exec = lanes2<[](s32 a, s32 b) { return saturate(s64{a} + b); }, s32, s32, s32>;
  else op.in.exec = BY_SIZE2(t, { return static_cast<decltype(a)>(a + b); });
}
void sub(OpDecoder& op) {
  if (decode_float_arithmetic(op, FloatOp::sub)) return;
  bool sat = op.take("sat");
  Type t = op.take_type(integers);
  operands2(op, t);
  if (sat && t != Type::s32) op.fail(".sat needs .s32");
  if (sat) op.in.exec = lanes2<[](s32 a, s32 b) { return saturate(s64{a} - b); }, s32, s32, s32>;
  else op.in.exec = BY_SIZE2(t, { return static_cast<decltype(a)>(a - b); });
}

u64 mul_hi(u64 a, u64 b) { return static_cast<u64>(u128{a} * b >> 64); }
s64 mul_hi(s64 a, s64 b) { return static_cast<s64>(s128{a} * b >> 64); }
u32 mul_hi(u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); }
s32 mul_hi(s32 a, s32 b) { return static_cast<s32>(s64{a} * b >> 32); }
u16 mul_hi(u16 a, u16 b) { return static_cast<u16>(u32{a} * b >> 16); }
s16 mul_hi(s16 a, s16 b) { return static_cast<s16>(s32{a} * b >> 16); }

Type twice(OpDecoder& op, Type t) {
  switch (t) {
    case Type::u16:
      return Type::u32;
    case Type::s16:
      return Type::s32;
    case Type::u32:
      return Type::u64;
    case Type::s32:
      return Type::s64;
    default:
      op.fail(".wide needs a 16- or 32-bit integer type");
  }
}

void mul(OpDecoder& op) {
  if (decode_float_arithmetic(op, FloatOp::mul)) return;
  std::string part = op.take_one_of({"lo", "hi", "wide"}, ".lo, .hi or .wide");
  Type t = op.take_type(integers);
  if (part == "wide") {
    op.count(3, 3);
    op.in.work = Work::alu;
    op.in.d = op.dst(0, twice(op, t)), op.in.a = op.src(1, t), op.in.b = op.src(2, t);
    op.in.exec =
        t == Type::u16   ? Exec(lanes2<[](u16 a, u16 b) { return u32{a} * u32{b}; }, u32, u16, u16>)
        : t == Type::s16 ? Exec(lanes2<[](s16 a, s16 b) { return s32{a} * s32{b}; }, s32, s16, s16>)
        : t == Type::u32
            ? Exec(lanes2<[](u32 a, u32 b) { return u64{a} * u64{b}; }, u64, u32, u32>)
            : Exec(lanes2<[](s32 a, s32 b) { return s64{a} * s64{b}; }, s64, s32, s32>);
    return;
  }
  operands2(op, t);
  if (part == "lo") op.in.exec = BY_SIZE2(t, { return static_cast<decltype(a)>(u64{a} * u64{b}); });
  else op.in.exec = BY_TYPE2(t, { return mul_hi(a, b); });
}

void mad(OpDecoder& op) {
  if (decode_float_arithmetic(op, FloatOp::fma)) return;
  std::string part = op.take_one_of({"lo", "hi", "wide"}, ".lo, .hi or .wide");
  Type t = op.take_type(integers);
  Type wide = part == "wide" ? twice(op, t) : t;
  op.count(4, 4);
  op.in.work = Work::alu;
  op.in.d = op.dst(0, wide), op.in.a = op.src(1, t), op.in.b = op.src(2, t),
  op.in.c = op.src(3, wide);
  if (part == "wide") {
    op.in.exec =
        t == Type::u16 ? Exec(lanes3<[](u16 a, u16 b, u32 c) { return u32{a} * u32{b} + c; }, u32,
                                     u16, u16, u32>)
        : t == Type::s16
            ? Exec(lanes3<[](s16 a, s16 b, u32 c) { return static_cast<u32>(s32{a} * s32{b}) + c; },
                          u32, s16, s16, u32>)
        : t == Type::u32
            ? Exec(lanes3<[](u32 a, u32 b, u64 c) { return u64{a} * u64{b} + c; }, u64, u32, u32,
                          u64>)
            : Exec(lanes3<[](s32 a, s32 b, u64 c) { return static_cast<u64>(s64{a} * s64{b}) + c; },
                          u64, s32, s32, u64>);
  } else if (part == "lo") {
    op.in.exec =
        type_bytes(t) == 2
            ? Exec(lanes3<[](u16 a, u16 b, u16 c) { return static_cast<u16>(u32{a} * u32{b} + c); },
                          u16, u16, u16, u16>)
        : type_bytes(t) == 4
            ? Exec(lanes3<[](u32 a, u32 b, u32 c) { return a * b + c; }, u32, u32, u32, u32>)
            : Exec(lanes3<[](u64 a, u64 b, u64 c) { return a * b + c; }, u64, u64, u64, u64>);
  } else {
    op.in.exec =
        t == Type::u32
            ? Exec(lanes3<[](u32 a, u32 b, u32 c) { return mul_hi(a, b) + c; }, u32, u32, u32, u32>)
        : t == Type::s32
            ? Exec(lanes3<[](s32 a, s32 b, u32 c) { return static_cast<u32>(mul_hi(a, b)) + c; },
                          u32, s32, s32, u32>)
        : t == Type::u64
            ? Exec(lanes3<[](u64 a, u64 b, u64 c) { return mul_hi(a, b) + c; }, u64, u64, u64, u64>)
        : t == Type::s64
            ? Exec(lanes3<[](s64 a, s64 b, u64 c) { return static_cast<u64>(mul_hi(a, b)) + c; },
                          u64, s64, s64, u64>)
            : Exec(nullptr);
    if (!op.in.exec) op.fail(".hi of 16-bit mad is not implemented");
  }
}

// Division by zero gives an unspecified value in PTX: all ones here. INT_MIN / -1 wraps.
template <class T>
T divide(T a, T b) {
  if (b == 0) return static_cast<T>(~T{0});
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
  }
  return static_cast<T>(a / b);
}
template <class T>
T remainder(T a, T b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return 0;
  }
  return static_cast<T>(a % b);
}
void div(OpDecoder& op) {
  if (decode_float_arithmetic(op, FloatOp::div)) return;
  Type t = op.take_type(integers);
  operands2(op, t);
  op.in.exec = BY_TYPE2(t, { return divide(a, b); });
}
void rem(OpDecoder& op) {
  Type t = op.take_type({Type::u16, Type::u32, Type::u64, Type::s16, Type::s32, Type::s64});
  operands2(op, t);
  op.in.exec = BY_TYPE2(t, { return remainder(a, b); });
}
void min_op(OpDecoder& op) {
  if (decode_float_arithmetic(op, FloatOp::min)) return;
  bool relu = op.take("relu");
  Type t = op.take_type(integers);
  operands2(op, t);
  if (relu && t != Type::s32) op.fail(".relu needs .s32");
  if (relu)
    op.in.exec = lanes2<[](s32 a, s32 b) { return std::max(0, std::min(a, b)); }, s32, s32, s32>;
  else op.in.exec = BY_TYPE2(t, { return b < a ? b : a; });
}
void max_op(OpDecoder& op) {
  if (decode_float_arithmetic(op, FloatOp::max)) return;
  bool relu = op.take("relu");
  Type t = op.take_type(integers);
  operands2(op, t);
  if (relu && t != Type::s32) op.fail(".relu needs .s32");
  if (relu)
    op.in.exec = lanes2<[](s32 a, s32 b) { return std::max(0, std::max(a, b)); }, s32, s32, s32>;
  else op.in.exec = BY_TYPE2(t, { return a < b ? b : a; });
}
void abs_op(OpDecoder& op) {
  if (decode_float_arithmetic(op, FloatOp::abs)) return;
  Type t = op.take_type({Type::s16, Type::s32, Type::s64});
  operands1(op, t);
  op.in.exec =
      t == Type::s16
          ? Exec(lanes1<[](s16 a) { return static_cast<u16>(a < 0 ? -a : a); }, u16, s16>)
      : t == Type::s32
          ? Exec(
                lanes1<[](s32 a) { return a < 0 ? 0u - static_cast<u32>(a) : static_cast<u32>(a); },
                       u32, s32>)
          : Exec(lanes1<[](s64 a) {
              return a < 0 ? u64{0} - static_cast<u64>(a) : static_cast<u64>(a);
            },
                        u64, s64>);
}
void neg(OpDecoder& op) {
  if (decode_float_arithmetic(op, FloatOp::neg)) return;
  Type t = op.take_type({Type::s16, Type::s32, Type::s64});
  operands1(op, t);
  op.in.exec = BY_SIZE1(t, { return static_cast<decltype(a)>(0 - a); });
}

// ---- logic; predicates are 32-bit masks ----

template <auto F>
Step pred2(Warp& w, const Instr& in, u32 mask) {
  w.set_pred(in.d, mask, F(w.pred(in.a), w.pred(in.b)));
  return Step::next;
}
void logic(OpDecoder& op, Exec on_pred, Exec e2, Exec e4, Exec e8) {
  Type t = op.take_type({Type::pred, Type::b16, Type::b32, Type::b64});
  operands2(op, t);
  op.in.exec = t == Type::pred ? on_pred : type_bytes(t) == 2 ? e2 : type_bytes(t) == 4 ? e4 : e8;
}
#define LOGIC(name, expression)                                                                    \
  void name(OpDecoder& op) {                                                                       \
    logic(op, pred2<[](u32 a, u32 b) -> u32 { return expression; }>,                               \
          lanes2<[](u16 a, u16 b) -> u16 { return static_cast<u16>(expression); }, u16, u16, u16>, \
          lanes2<[](u32 a, u32 b) -> u32 { return expression; }, u32, u32, u32>,                   \
          lanes2<[](u64 a, u64 b) -> u64 { return expression; }, u64, u64, u64>);                  \
  }
LOGIC(and_op, a& b)
LOGIC(or_op, a | b)
LOGIC(xor_op, a ^ b)

void not_op(OpDecoder& op) {
  Type t = op.take_type({Type::pred, Type::b16, Type::b32, Type::b64});
  operands1(op, t);
  if (t == Type::pred) {
    op.in.exec = [](Warp& w, const Instr& in, u32 mask) {
      w.set_pred(in.d, mask, ~w.pred(in.a));
      return Step::next;
    };
  } else {
    op.in.exec = BY_SIZE1(t, { return static_cast<decltype(a)>(~a); });
  }
}
void cnot(OpDecoder& op) {
  Type t = op.take_type(bits);
  operands1(op, t);
  op.in.exec = BY_SIZE1(t, { return a == 0; });
}

Step lop3_exec(Warp& w, const Instr& in, u32 mask) {
  const u32 *a = w.u32_in(in.a), *b = w.u32_in(in.b), *c = w.u32_in(in.c);
  alignas(64) u32 out[32] = {};
  for (int m = 0; m < 8; ++m) {
    if (!(in.value >> m & 1)) continue;
    u32 na = m & 4 ? 0 : ~0u, nb = m & 2 ? 0 : ~0u, nc = m & 1 ? 0 : ~0u;
    for (int i = 0; i < 32; ++i) out[i] |= (a[i] ^ na) & (b[i] ^ nb) & (c[i] ^ nc);
  }
  store_lanes(w, in.d, mask, out);
  return Step::next;
}
void lop3(OpDecoder& op) {
  op.take_type({Type::b32});
  op.count(5, 5);
  op.in.work = Work::alu;
  op.in.d = op.dst(0, Type::b32);
  op.in.a = op.src(1, Type::b32), op.in.b = op.src(2, Type::b32), op.in.c = op.src(3, Type::b32);
  u64 table = op.need_immediate(4, "the truth table");
  if (table > 255) op.fail("the truth table " + std::to_string(table) + " is not in 0..255");
  op.in.value = static_cast<s32>(table);
  op.in.exec = lop3_exec;
}

// Shift amounts above the width are clamped to it (PTX ISA, shl and shr).
void shl(OpDecoder& op) {
  Type t = op.take_type(bits);
  op.count(3, 3);
  op.in.work = Work::alu;
  op.in.d = op.dst(0, t), op.in.a = op.src(1, t), op.in.b = op.src(2, Type::u32);
  op.in.exec =
      type_bytes(t) == 2
          ? Exec(lanes2<[](u16 a, u32 b) { return static_cast<u16>((b > 15) ? 0 : a << b); }, u16,
                        u16, u32>)
      : type_bytes(t) == 4
          ? Exec(lanes2<[](u32 a, u32 b) { return (b > 31) ? 0 : a << (b & 31); }, u32, u32, u32>)
          : Exec(lanes2<[](u64 a, u32 b) { return (b > 63) ? 0 : a << (b & 63); }, u64, u64, u32>);
}
void shr(OpDecoder& op) {
  Type t = op.take_type({Type::b16, Type::b32, Type::b64, Type::u16, Type::u32, Type::u64,
                         Type::s16, Type::s32, Type::s64});
  op.count(3, 3);
  op.in.work = Work::alu;
  op.in.d = op.dst(0, t), op.in.a = op.src(1, t), op.in.b = op.src(2, Type::u32);
  switch (t) {
    case Type::s16:
      op.in.exec = lanes2<[](s16 a, u32 b) { return static_cast<s16>((a >> std::min(b, 15u))); },
                          s16, s16, u32>;
      break;
    case Type::s32:
      op.in.exec = lanes2<[](s32 a, u32 b) { return (a >> std::min(b, 31u)); }, s32, s32, u32>;
      break;
    case Type::s64:
      op.in.exec = lanes2<[](s64 a, u32 b) { return (a >> std::min(b, 63u)); }, s64, s64, u32>;
      break;
    default:
      op.in.exec =
          type_bytes(t) == 2
              ? Exec(lanes2<[](u16 a, u32 b) { return static_cast<u16>((b > 15) ? 0 : (a >> b)); },
                            u16, u16, u32>)
          : type_bytes(t) == 4
              ? Exec(lanes2<[](u32 a, u32 b) { return (b > 31) ? 0 : (a >> (b & 31)); }, u32, u32,
                            u32>)
              : Exec(lanes2<[](u64 a, u32 b) { return (b > 63) ? 0 : (a >> (b & 63)); }, u64, u64,
                            u32>);
  }
}
void shf(OpDecoder& op) {
  bool left = op.take_one_of({"l", "r"}, ".l or .r") == "l";
  bool wrap = op.take_one_of({"wrap", "clamp"}, ".wrap or .clamp") == "wrap";
  op.take_type({Type::b32});
  op.count(4, 4);
  op.in.work = Work::alu;
  op.in.d = op.dst(0, Type::b32), op.in.a = op.src(1, Type::b32), op.in.b = op.src(2, Type::b32),
  op.in.c = op.src(3, Type::u32);
  using F = Exec;
  F table[2][2] = {{lanes3<[](u32 a, u32 b, u32 c) {
                      return static_cast<u32>(((u64{b} << 32 | a) >> std::min(c, 32u)));
                    },
                           u32, u32, u32, u32>,
                    lanes3<[](u32 a, u32 b, u32 c) {
                      return static_cast<u32>(((u64{b} << 32 | a) >> (c & 31)));
                    },
                           u32, u32, u32, u32>},
                   {lanes3<[](u32 a, u32 b, u32 c) {
                      return static_cast<u32>(((u64{b} << 32 | a) >> (32 - std::min(c, 32u))));
                    },
                           u32, u32, u32, u32>,
                    lanes3<[](u32 a, u32 b, u32 c) {
                      return static_cast<u32>(((u64{b} << 32 | a) >> (32 - (c & 31))));
                    },
                           u32, u32, u32, u32>}};
  op.in.exec = table[left][wrap];
}

// PTX ISA, bfe: the field is padded with the sign of the last bit (signed) or zeros.
template <class T>
T bfe_of(T a, u32 position, u32 length) {
  using U = std::make_unsigned_t<T>;
  constexpr u32 msb = sizeof(T) * 8 - 1;
  u32 pos = position & 0xff, len = length & 0xff;
  U ua = static_cast<U>(a);
  bool sign = std::is_signed_v<T> && len != 0 && (ua >> std::min(pos + len - 1, msb) & 1);
  U out = 0;
  for (u32 i = 0; i <= msb; ++i) {
    bool bit = i < len && pos + i <= msb ? ua >> (pos + i) & 1 : sign;
    out |= static_cast<U>(bit) << i;
  }
  return static_cast<T>(out);
}
void bfe(OpDecoder& op) {
  Type t = op.take_type({Type::u32, Type::s32, Type::u64, Type::s64});
  op.count(4, 4);
  op.in.work = Work::alu;
  op.in.d = op.dst(0, t), op.in.a = op.src(1, t), op.in.b = op.src(2, Type::u32),
  op.in.c = op.src(3, Type::u32);
  op.in.exec = t == Type::u32   ? Exec(lanes3<bfe_of<u32>, u32, u32, u32, u32>)
               : t == Type::s32 ? Exec(lanes3<bfe_of<s32>, s32, s32, u32, u32>)
               : t == Type::u64 ? Exec(lanes3<bfe_of<u64>, u64, u64, u32, u32>)
                                : Exec(lanes3<bfe_of<s64>, s64, s64, u32, u32>);
}
template <class T>
Step bfi_exec(Warp& w, const Instr& in, u32 mask) {
  Lanes<T> a(w.in(in.a)), b(w.in(in.b));
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    u32 pos = w.u32_in(in.c)[i] & 0xff, len = w.u32_in(in.e)[i] & 0xff;
    T f = b[i];
    for (u32 k = 0; k < len && pos + k < sizeof(T) * 8; ++k)
      f = (f & ~(T{1} << (pos + k))) | ((a[i] >> k & 1) << (pos + k));
    w.set(in.d, i, f);
  }
  return Step::next;
}
void bfi(OpDecoder& op) {
  Type t = op.take_type({Type::b32, Type::b64});
  op.count(5, 5);
  op.in.work = Work::alu;
  op.in.d = op.dst(0, t), op.in.a = op.src(1, t), op.in.b = op.src(2, t);
  op.in.c = op.src(3, Type::u32), op.in.e = op.src(4, Type::u32);
  op.in.exec = type_bytes(t) == 4 ? Exec(bfi_exec<u32>) : Exec(bfi_exec<u64>);
}
void bmsk(OpDecoder& op) {
  bool wrap = op.take_one_of({"clamp", "wrap"}, ".clamp or .wrap") == "wrap";
  op.take_type({Type::b32});
  op.count(3, 3);
  op.in.d = op.dst(0, Type::b32), op.in.a = op.src(1, Type::u32), op.in.b = op.src(2, Type::u32);
  op.in.exec =
      wrap ? Exec(lanes2<[](u32 a, u32 b) {
        return static_cast<u32>(((u64{1} << (b & 31)) - 1) << (a & 31));
      },
                         u32, u32, u32>)
           : Exec(lanes2<[](u32 a, u32 b) {
               return static_cast<u32>(((u64{1} << std::min(b, 32u)) - 1) << std::min(a, 32u));
             },
                         u32, u32, u32>);
}

u32 reverse(u32 v) {
  u32 r = 0;
  for (int i = 0; i < 32; ++i) r |= (v >> i & 1) << (31 - i);
  return r;
}
void brev(OpDecoder& op) {
  Type t = op.take_type({Type::b32, Type::b64});
  operands1(op, t);
  op.in.exec = type_bytes(t) == 4 ? Exec(lanes1<reverse, u32, u32>)
                                  : Exec(lanes1<[](u64 a) {
                                      return u64{reverse(static_cast<u32>(a))} << 32 |
                                             reverse(static_cast<u32>((a >> 32)));
                                    },
                                                u64, u64>);
}
void count_op(OpDecoder& op, bool zeros) {
  Type t = op.take_type({Type::b32, Type::b64});
  op.count(2, 2);
  op.in.work = Work::alu;
  op.in.d = op.dst(0, Type::u32), op.in.a = op.src(1, t);
  bool wide = type_bytes(t) == 8;
  if (zeros)
    op.in.exec =
        wide ? Exec(lanes1<[](u64 a) { return static_cast<u32>(std::countl_zero(a)); }, u32, u64>)
             : Exec(lanes1<[](u32 a) { return static_cast<u32>(std::countl_zero(a)); }, u32, u32>);
  else
    op.in.exec =
        wide ? Exec(lanes1<[](u64 a) { return static_cast<u32>(std::popcount(a)); }, u32, u64>)
             : Exec(lanes1<[](u32 a) { return static_cast<u32>(std::popcount(a)); }, u32, u32>);
}
template <class T>
u32 find_leading(T a) {
  using U = std::make_unsigned_t<T>;
  U v = static_cast<U>(a);
  if (std::is_signed_v<T> && a < 0) v = static_cast<U>(~v);
  return v == 0 ? ~0u : static_cast<u32>(std::bit_width(v) - 1);
}
template <class T>
u32 find_shift(T a) {
  const u32 r = find_leading(a);
  return r == ~0u ? r : static_cast<u32>(8 * sizeof(T)) - 1 - r;
}
void bfind(OpDecoder& op) {
  bool shift = op.take("shiftamt");
  Type t = op.take_type({Type::u32, Type::s32, Type::u64, Type::s64});
  op.count(2, 2);
  op.in.d = op.dst(0, Type::u32), op.in.a = op.src(1, t);
  if (shift)
    op.in.exec = t == Type::u32   ? Exec(lanes1<find_shift<u32>, u32, u32>)
                 : t == Type::s32 ? Exec(lanes1<find_shift<s32>, u32, s32>)
                 : t == Type::u64 ? Exec(lanes1<find_shift<u64>, u32, u64>)
                                  : Exec(lanes1<find_shift<s64>, u32, s64>);
  else
    op.in.exec = t == Type::u32   ? Exec(lanes1<find_leading<u32>, u32, u32>)
                 : t == Type::s32 ? Exec(lanes1<find_leading<s32>, u32, s32>)
                 : t == Type::u64 ? Exec(lanes1<find_leading<u64>, u32, u64>)
                                  : Exec(lanes1<find_leading<s64>, u32, s64>);
}

// prmt without a mode: nibble i of c picks byte i; its bit 3 replicates the sign of that byte.
u32 permute(u32 a, u32 b, u32 c) {
  u64 both = u64{b} << 32 | a;
  u32 out = 0;
  for (int i = 0; i < 4; ++i) {
    u32 sel = c >> (4 * i) & 0xf;
    u32 byte = static_cast<u32>(both >> (8 * (sel & 7)) & 0xff);
    if (sel & 8) byte = byte & 0x80 ? 0xff : 0;
    out |= byte << (8 * i);
  }
  return out;
}
// The special modes (PTX ISA, prmt): c[1:0] selects; each gives the default-mode selector.
constexpr u32 prmt_modes[6][4] = {{0x3210, 0x4321, 0x5432, 0x6543},   // f4e
                                  {0x5670, 0x6701, 0x7012, 0x0123},   // b4e
                                  {0x0000, 0x1111, 0x2222, 0x3333},   // rc8
                                  {0x3210, 0x3211, 0x3222, 0x3333},   // ecl
                                  {0x0000, 0x1110, 0x2210, 0x3210},   // ecr
                                  {0x1010, 0x3232, 0x1010, 0x3232}};  // rc16
template <int Mode>
u32 permute_mode(u32 a, u32 b, u32 c) {
  return permute(a, b, prmt_modes[Mode][c & 3]);
}
void prmt(OpDecoder& op) {
  op.take_type({Type::b32});
  op.count(4, 4);
  op.in.work = Work::alu;
  op.in.d = op.dst(0, Type::b32), op.in.a = op.src(1, Type::b32), op.in.b = op.src(2, Type::b32),
  op.in.c = op.src(3, Type::b32);
  std::string mode = op.take_optional({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  op.in.exec = mode == "f4e"    ? Exec(lanes3<permute_mode<0>, u32, u32, u32, u32>)
               : mode == "b4e"  ? Exec(lanes3<permute_mode<1>, u32, u32, u32, u32>)
               : mode == "rc8"  ? Exec(lanes3<permute_mode<2>, u32, u32, u32, u32>)
               : mode == "ecl"  ? Exec(lanes3<permute_mode<3>, u32, u32, u32, u32>)
               : mode == "ecr"  ? Exec(lanes3<permute_mode<4>, u32, u32, u32, u32>)
               : mode == "rc16" ? Exec(lanes3<permute_mode<5>, u32, u32, u32, u32>)
                                : Exec(lanes3<permute, u32, u32, u32, u32>);
}

// ---- comparison and selection ----

enum Compare : u8 {
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  equ,
  neu,
  ltu,
  leu,
  gtu,
  geu,
  num,
  nan_,
  lo,
  ls,
  hi,
  hs
};
const char* compare_names[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge", "equ", "neu", "ltu",
                               "leu", "gtu", "geu", "num", "nan", "lo", "ls",  "hi",  "hs"};

template <class T>
u32 compare_lanes(const Warp& w, const Operand& oa, const Operand& ob, u8 how, bool ftz) {
  Lanes<T> la(w.in(oa)), lb(w.in(ob));
  alignas(64) T a[32], b[32];
  for (int i = 0; i < 32; ++i) a[i] = la[i], b[i] = lb[i];
  if constexpr (std::is_same_v<T, float>) {
    if (ftz)
      for (int i = 0; i < 32; ++i) a[i] = flush_f32(a[i]), b[i] = flush_f32(b[i]);
  }
  auto each = [&](auto f) {
    u32 m = 0;
    for (int i = 0; i < 32; ++i) m |= static_cast<u32>(f(a[i], b[i])) << i;
    return m;
  };
  constexpr bool floating = std::is_floating_point_v<T>;
  auto unordered = [](T x, T y) { return floating && (x != x || y != y); };
  switch (how) {
    case eq:
      return each([](T x, T y) { return x == y; });
    case ne:
      return each([&](T x, T y) { return x != y && !unordered(x, y); });
    case lt:
    case lo:
      return each([](T x, T y) { return x < y; });
    case le:
    case ls:
      return each([](T x, T y) { return x <= y; });
    case gt:
    case hi:
      return each([](T x, T y) { return x > y; });
    case ge:
    case hs:
      return each([](T x, T y) { return x >= y; });
    case equ:
      return each([&](T x, T y) { return x == y || unordered(x, y); });
    case neu:
      return each([](T x, T y) { return x != y; });
    case ltu:
      return each([](T x, T y) { return !(x >= y); });
    case leu:
      return each([](T x, T y) { return !(x > y); });
    case gtu:
      return each([](T x, T y) { return !(x <= y); });
    case geu:
      return each([](T x, T y) { return !(x < y); });
    case num:
      return each([&](T x, T y) { return !unordered(x, y); });
    default:
      return each([&](T x, T y) { return unordered(x, y); });
  }
}
float half_value(Type t, u32 bits16) {
  return half_to_f32(t == Type::f16 || t == Type::f16x2 ? HalfType::f16 : HalfType::bf16,
                     static_cast<u16>(bits16));
}

u32 compare_half(const Warp& w, const Instr& in, const Operand& oa, const Operand& ob, int shift) {
  alignas(64) float a[32], b[32];
  for (int i = 0; i < 32; ++i) {
    a[i] = half_value(in.type, w.u32_in(oa)[i] >> shift),
    b[i] = half_value(in.type, w.u32_in(ob)[i] >> shift);
  }
  Warp view;  // compare_lanes reads through bases: point them at the arrays
  view.bases[0] = reinterpret_cast<const u8*>(a), view.bases[1] = reinterpret_cast<const u8*>(b);
  Operand x, y;
  x.base = 0, y.base = 1;
  return compare_lanes<float>(view, x, y, in.sub, in.ftz);
}
u32 compare_any(Warp& w, const Instr& in) {
  switch (in.type) {
    case Type::u16:
    case Type::b16:
      return compare_lanes<u16>(w, in.a, in.b, in.sub, false);
    case Type::s16:
      return compare_lanes<s16>(w, in.a, in.b, in.sub, false);
    case Type::u32:
    case Type::b32:
      return compare_lanes<u32>(w, in.a, in.b, in.sub, false);
    case Type::s32:
      return compare_lanes<s32>(w, in.a, in.b, in.sub, false);
    case Type::u64:
    case Type::b64:
      return compare_lanes<u64>(w, in.a, in.b, in.sub, false);
    case Type::s64:
      return compare_lanes<s64>(w, in.a, in.b, in.sub, false);
    case Type::f32:
      return compare_lanes<float>(w, in.a, in.b, in.sub, in.ftz);
    case Type::f64:
      return compare_lanes<double>(w, in.a, in.b, in.sub, false);
    default:
      return compare_half(w, in, in.a, in.b, 0);
  }
}
Step setp_exec(Warp& w, const Instr& in, u32 mask) {
  u32 r = compare_any(w, in), q = ~r;
  if (in.type == Type::f16x2 || in.type == Type::bf16x2) q = compare_half(w, in, in.a, in.b, 16);
  if (in.sub2) {
    u32 c = w.pred(in.c);
    auto with = [&](u32 x) { return in.sub2 == 1 ? x & c : in.sub2 == 2 ? x | c : x ^ c; };
    r = with(r), q = with(q);
  }
  if (in.d.present) w.set_pred(in.d, mask, r);
  if (in.p.present) w.set_pred(in.p, mask, q);
  return Step::next;
}
Step set_exec(Warp& w, const Instr& in, u32 mask) {
  u32 r = compare_any(w, in);
  if (in.sub2) {
    u32 c = w.pred(in.c);
    r = in.sub2 == 1 ? r & c : in.sub2 == 2 ? r | c : r ^ c;
  }
  u32 yes = in.type2 == Type::f32 ? 0x3f800000u : ~0u;
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1) w.set(in.d, i, r >> i & 1 ? yes : 0);
  return Step::next;
}
constexpr std::initializer_list<Type> comparable = {
    Type::b16, Type::b32, Type::b64,   Type::u16,  Type::u32,    Type::u64, Type::s16, Type::s32,
    Type::s64, Type::f16, Type::f16x2, Type::bf16, Type::bf16x2, Type::f32, Type::f64};

void comparison(OpDecoder& op) {
  const std::string& how = op.peek_qualifier();
  int found = -1;
  for (int i = 0; i < 18; ++i)
    if (how == compare_names[i]) found = i;
  if (found < 0)
    op.fail("expected a comparison such as .lt" + (how.empty() ? "" : ", got ." + how));
  op.take(compare_names[found]);
  op.in.sub = static_cast<u8>(found);
  std::string combine = op.take_optional({"and", "or", "xor"});
  op.in.sub2 = combine == "and" ? 1 : combine == "or" ? 2 : combine == "xor" ? 3 : 0;
  op.in.ftz = op.take("ftz");
  op.in.work = Work::alu;
}
void setp(OpDecoder& op) {
  comparison(op);
  Type t = op.in.type = op.take_type(comparable);
  op.count(op.in.sub2 ? 4 : 3, op.in.sub2 ? 4 : 3);
  const AstOperand& d = op.operand(0);
  if (d.kind == AstOperand::Kind::pair) {
    op.in.d = op.dst(d.items[0], Type::pred), op.in.p = op.dst(d.items[1], Type::pred);
  } else {
    op.in.d = op.dst(d, Type::pred);
  }
  op.in.a = op.src(1, t), op.in.b = op.src(2, t);
  if (op.in.sub2) op.in.c = op.pred_src(op.operand(3));
  op.in.exec = setp_exec;
}
void set(OpDecoder& op) {
  comparison(op);
  op.in.type2 = op.take_type({Type::u32, Type::s32, Type::f32});
  Type t = op.in.type = op.take_type(comparable);
  op.count(op.in.sub2 ? 4 : 3, op.in.sub2 ? 4 : 3);
  op.in.d = op.dst(0, op.in.type2), op.in.a = op.src(1, t), op.in.b = op.src(2, t);
  if (op.in.sub2) op.in.c = op.pred_src(op.operand(3));
  op.in.exec = set_exec;
}
template <class T>
Step selp_exec(Warp& w, const Instr& in, u32 mask) {
  Lanes<T> a(w.in(in.a)), b(w.in(in.b));
  u32 p = w.pred(in.c);
  alignas(64) T out[32];
  for (int i = 0; i < 32; ++i) out[i] = p >> i & 1 ? a[i] : b[i];
  store_lanes(w, in.d, mask, out);
  return Step::next;
}
void selp(OpDecoder& op) {
  Type t = op.take_type({Type::b16, Type::b32, Type::b64, Type::u16, Type::u32, Type::u64,
                         Type::s16, Type::s32, Type::s64, Type::f32, Type::f64});
  op.count(4, 4);
  op.in.work = Work::alu;
  op.in.d = op.dst(0, t), op.in.a = op.src(1, t), op.in.b = op.src(2, t),
  op.in.c = op.pred_src(op.operand(3));
  op.in.exec = type_bytes(t) == 8 ? Exec(selp_exec<u64>) : Exec(selp_exec<u32>);
}
void slct(OpDecoder& op) {
  op.in.ftz = op.take("ftz");
  Type t = op.take_type(
      {Type::b32, Type::u32, Type::s32, Type::f32, Type::b64, Type::u64, Type::s64, Type::f64});
  op.in.type = op.take_type({Type::s32, Type::f32});
  op.count(4, 4);
  op.in.d = op.dst(0, t), op.in.a = op.src(1, t), op.in.b = op.src(2, t),
  op.in.c = op.src(3, op.in.type);
  op.in.exec = [](Warp& w, const Instr& in, u32 mask) {
    for (int i = 0; i < 32; ++i) {
      if (!(mask >> i & 1)) continue;
      u32 c = w.u32_in(in.c)[i];
      bool first = in.type == Type::s32 ? static_cast<s32>(c) >= 0 : float_of(c) >= 0.0f;
      w.set(in.d, i, w.get(first ? in.a : in.b, i));
    }
    return Step::next;
  };
}

// dp4a: four byte products added to a 32-bit sum.
void dp4a(OpDecoder& op) {
  Type a = op.take_type({Type::u32, Type::s32}), b = op.take_type({Type::u32, Type::s32});
  op.count(4, 4);
  op.in.type = a, op.in.type2 = b;
  op.in.d = op.dst(0, Type::b32), op.in.a = op.src(1, Type::b32), op.in.b = op.src(2, Type::b32),
  op.in.c = op.src(3, Type::b32);
  op.in.exec = [](Warp& w, const Instr& in, u32 mask) {
    auto byte = [](u32 v, int k, Type t) {
      u32 x = v >> (8 * k) & 0xff;
      return t == Type::s32 ? static_cast<s32>(static_cast<std::int8_t>(x)) : static_cast<s32>(x);
    };
    for (int i = 0; i < 32; ++i) {
      if (!(mask >> i & 1)) continue;
      s64 sum = static_cast<s32>(w.u32_in(in.c)[i]);
      for (int k = 0; k < 4; ++k)
        sum += s64{byte(w.u32_in(in.a)[i], k, in.type)} * byte(w.u32_in(in.b)[i], k, in.type2);
      w.set(in.d, i, static_cast<u32>(sum));
    }
    return Step::next;
  };
}

}  // namespace

void register_integer_ops(OpTable& t) {
  t["add"] = add, t["sub"] = sub, t["mul"] = mul, t["mad"] = mad, t["div"] = div, t["rem"] = rem;
  t["min"] = min_op, t["max"] = max_op, t["abs"] = abs_op, t["neg"] = neg;
  t["and"] = and_op, t["or"] = or_op, t["xor"] = xor_op, t["not"] = not_op, t["cnot"] = cnot,
  t["lop3"] = lop3;
  t["shl"] = shl, t["shr"] = shr, t["shf"] = shf, t["bfe"] = bfe, t["bfi"] = bfi, t["bmsk"] = bmsk,
  t["brev"] = brev;
  t["popc"] = [](OpDecoder& op) { count_op(op, false); };
  t["clz"] = [](OpDecoder& op) { count_op(op, true); };
  t["bfind"] = bfind, t["prmt"] = prmt, t["setp"] = setp, t["set"] = set, t["selp"] = selp,
  t["slct"] = slct;
  t["dp4a"] = dp4a;
}

}  // namespace flashptx::emulator
