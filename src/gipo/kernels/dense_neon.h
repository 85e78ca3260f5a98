// Blocks of 6 x 16 sums in assembly: of 32 registers they fill 24, and g++ neither leaves all of them there nor the loads
// where they are worth most, a few at a time between the products. Part of dense_block.h, for aarch64 alone.
#pragma once

#include <cstddef>

namespace gipo {
namespace {

// What is done with the sums before they are stored.
enum class NeonFinish : long { kNone, kRelu, kReluSlope, kTanhSlope };

// c [6, 16] = finish(start [6, 16] + a [6, depth] b [depth, 16]). Strides are of rows, in bytes; start's is 0 where all
// rows begin alike.
struct NeonBlock {
  const float* a;
  std::size_t a_row, a_step;  // a_step: from one value of a row to the next
  const float* b;
  std::size_t b_row, depth;
  const float* start;
  std::size_t start_row;
  float* c;
  std::size_t c_row;
  NeonFinish finish;
  const float* output;  // [6, 16] of the activation whose slope is wanted
  std::size_t output_row;
};

inline const float* bytes_on(const float* p, std::size_t bytes) {
  return reinterpret_cast<const float*>(reinterpret_cast<const char*>(p) + bytes);
}

// clang-format off

// v0 to v5 hold values of a, v6 and v7 of b (by columns v2 to v5); from v8 on the sums, four vectors for each row.
#define GIPO_EACH_ROW(of) \
  of(8, 9, 10, 11) of(12, 13, 14, 15) of(16, 17, 18, 19) of(20, 21, 22, 23) of(24, 25, 26, 27) of(28, 29, 30, 31)
#define GIPO_BEGIN(s0, s1, s2, s3) \
  "ldp q" #s0 ", q" #s1 ", [%[start]]\n ldp q" #s2 ", q" #s3 ", [%[start], #32]\n add %[start], %[start], %[start_row]\n"
#define GIPO_STORE(s0, s1, s2, s3) \
  "stp q" #s0 ", q" #s1 ", [%[c]]\n stp q" #s2 ", q" #s3 ", [%[c], #32]\n add %[c], %[c], %[c_row]\n"
#define GIPO_ADD(sum, b, a, lane) "fmla v" #sum ".4s, v" #b ".4s, v" #a ".s[" #lane "]\n"
#define GIPO_CHANGED                                                                                                  \
  "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", \
      "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "memory", "cc"

// For values of a that stand side by side down its columns (a_row is one value): the six of a step are loaded at once.
// Without a finish.
[[gnu::always_inline]] inline void block_by_columns(const NeonBlock& k) {
  const float *a = k.a, *b = k.b, *start = k.start;
  float* c = k.c;
  std::size_t left = k.depth;
#define GIPO_ADD_SIX(b, s0, s1, s2, s3, s4, s5)                                                             \
  GIPO_ADD(s0, b, 0, 0) GIPO_ADD(s1, b, 0, 1) GIPO_ADD(s2, b, 0, 2) GIPO_ADD(s3, b, 0, 3)                   \
  GIPO_ADD(s4, b, 1, 0) GIPO_ADD(s5, b, 1, 1)
  asm volatile(
      GIPO_EACH_ROW(GIPO_BEGIN)
      "1:\n"
      "ldr q0, [%[a]]\n ldr d1, [%[a], #16]\n add %[a], %[a], %[a_step]\n"
      "ldp q2, q3, [%[b]]\n"
      GIPO_ADD_SIX(2, 8, 12, 16, 20, 24, 28) GIPO_ADD_SIX(3, 9, 13, 17, 21, 25, 29)
      "ldp q4, q5, [%[b], #32]\n add %[b], %[b], %[b_row]\n"
      GIPO_ADD_SIX(4, 10, 14, 18, 22, 26, 30) GIPO_ADD_SIX(5, 11, 15, 19, 23, 27, 31)
      "subs %[left], %[left], #1\n b.ne 1b\n"
      GIPO_EACH_ROW(GIPO_STORE)
      : [a] "+&r"(a), [b] "+&r"(b), [start] "+&r"(start), [c] "+&r"(c), [left] "+&r"(left)
      : [a_step] "r"(k.a_step), [b_row] "r"(k.b_row), [start_row] "r"(k.start_row), [c_row] "r"(k.c_row)
      : GIPO_CHANGED);
#undef GIPO_ADD_SIX
}

// For values of a side by side along its rows (a_step is one value): four steps of each are loaded at once, when the last
// product with the four before has been taken; behind the end the first four again, which nobody uses. depth is a multiple
// of four.
[[gnu::always_inline]] inline void block_by_rows(const NeonBlock& k) {
  const float *b = k.b, *start = k.start, *output = k.output;
  const float *a0 = k.a, *a1 = bytes_on(a0, k.a_row), *a2 = bytes_on(a1, k.a_row), *a3 = bytes_on(a2, k.a_row);
  const float *a4 = bytes_on(a3, k.a_row), *a5 = bytes_on(a4, k.a_row);
  float* c = k.c;
  std::size_t at = 0, next = 0;
#define GIPO_NEXT(a) "ldr q" #a ", [%[a" #a "], %[next]]\n"
#define GIPO_KEEP(a)
#define GIPO_ADD_TWO(a, s0, s1, lane) GIPO_ADD(s0, 6, a, lane) GIPO_ADD(s1, 7, a, lane)
#define GIPO_STEP(lane, then)                                                                                         \
  "ldp q6, q7, [%[b]]\n"                                                                                              \
  GIPO_ADD_TWO(0, 8, 9, lane) GIPO_ADD_TWO(1, 12, 13, lane) GIPO_ADD_TWO(2, 16, 17, lane)                             \
  GIPO_ADD_TWO(3, 20, 21, lane) GIPO_ADD_TWO(4, 24, 25, lane) GIPO_ADD_TWO(5, 28, 29, lane)                           \
  "ldp q6, q7, [%[b], #32]\n add %[b], %[b], %[b_row]\n"                                                              \
  GIPO_ADD_TWO(0, 10, 11, lane) then(0) GIPO_ADD_TWO(1, 14, 15, lane) then(1) GIPO_ADD_TWO(2, 18, 19, lane) then(2)   \
  GIPO_ADD_TWO(3, 22, 23, lane) then(3) GIPO_ADD_TWO(4, 26, 27, lane) then(4) GIPO_ADD_TWO(5, 30, 31, lane) then(5)
#define GIPO_RELU_OF(s) "fmax v" #s ".4s, v" #s ".4s, v0.4s\n"
#define GIPO_RELU(s0, s1, s2, s3) GIPO_RELU_OF(s0) GIPO_RELU_OF(s1) GIPO_RELU_OF(s2) GIPO_RELU_OF(s3)
#define GIPO_OUTPUT \
  "ldp q0, q1, [%[output]]\n ldp q2, q3, [%[output], #32]\n add %[output], %[output], %[output_row]\n"
#define GIPO_RELU_SLOPE_OF(s, o) "fcmgt v" #o ".4s, v" #o ".4s, #0.0\n and v" #s ".16b, v" #s ".16b, v" #o ".16b\n"
#define GIPO_RELU_SLOPE(s0, s1, s2, s3) \
  GIPO_OUTPUT GIPO_RELU_SLOPE_OF(s0, 0) GIPO_RELU_SLOPE_OF(s1, 1) GIPO_RELU_SLOPE_OF(s2, 2) GIPO_RELU_SLOPE_OF(s3, 3)
#define GIPO_TANH_SLOPE_OF(s, o) \
  "fmul v" #o ".4s, v" #o ".4s, v" #o ".4s\n fmls v" #s ".4s, v" #s ".4s, v" #o ".4s\n"
#define GIPO_TANH_SLOPE(s0, s1, s2, s3) \
  GIPO_OUTPUT GIPO_TANH_SLOPE_OF(s0, 0) GIPO_TANH_SLOPE_OF(s1, 1) GIPO_TANH_SLOPE_OF(s2, 2) GIPO_TANH_SLOPE_OF(s3, 3)
  asm volatile(
      GIPO_EACH_ROW(GIPO_BEGIN)
      GIPO_NEXT(0) GIPO_NEXT(1) GIPO_NEXT(2) GIPO_NEXT(3) GIPO_NEXT(4) GIPO_NEXT(5)
      "1:\n"
      "add %[at], %[at], #16\n cmp %[at], %[end]\n csel %[next], %[at], xzr, ne\n"
      GIPO_STEP(0, GIPO_KEEP) GIPO_STEP(1, GIPO_KEEP) GIPO_STEP(2, GIPO_KEEP) GIPO_STEP(3, GIPO_NEXT)
      "b.ne 1b\n"
      "cbz %[finish], 4f\n cmp %[finish], #2\n b.eq 2f\n b.gt 3f\n"
      "movi v0.4s, #0\n" GIPO_EACH_ROW(GIPO_RELU) "b 4f\n"
      "2:\n" GIPO_EACH_ROW(GIPO_RELU_SLOPE) "b 4f\n"
      "3:\n" GIPO_EACH_ROW(GIPO_TANH_SLOPE)
      "4:\n" GIPO_EACH_ROW(GIPO_STORE)
      : [b] "+&r"(b), [start] "+&r"(start), [c] "+&r"(c), [output] "+&r"(output), [at] "+&r"(at), [next] "+&r"(next)
      : [a0] "r"(a0), [a1] "r"(a1), [a2] "r"(a2), [a3] "r"(a3), [a4] "r"(a4), [a5] "r"(a5), [end] "r"(4 * k.depth),
        [b_row] "r"(k.b_row), [start_row] "r"(k.start_row), [c_row] "r"(k.c_row), [finish] "r"(k.finish),
        [output_row] "r"(k.output_row)
      : GIPO_CHANGED);
#undef GIPO_NEXT
#undef GIPO_KEEP
#undef GIPO_ADD_TWO
#undef GIPO_STEP
#undef GIPO_RELU_OF
#undef GIPO_RELU
#undef GIPO_OUTPUT
#undef GIPO_RELU_SLOPE_OF
#undef GIPO_RELU_SLOPE
#undef GIPO_TANH_SLOPE_OF
#undef GIPO_TANH_SLOPE
}

#undef GIPO_EACH_ROW
#undef GIPO_BEGIN
#undef GIPO_STORE
#undef GIPO_ADD
#undef GIPO_CHANGED

// clang-format on

}  // namespace
}  // namespace gipo
