// Table of intrinsics: each case evaluates one expression on fixed inputs and hands back raw result words.
//
// The same files are built with nvcc (benchmarks/record_intrinsics.py runs them on a GPU and records the words) and as
// C++ against the simulator (test_intrinsics.py compares). Inputs are made by integer arithmetic and bit patterns only, so
// both see identical ones. A case's tolerance says how far the simulator may be from the recorded GPU result:
// exact() for operations IEEE 754 or integer arithmetic define, ulps(n) and within(a) for approximate functions, with n from
// the CUDA programming guide's table of maximum errors plus one for glibc's own.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

using Word = unsigned long long;

struct Tolerance { double ulps; double absolute; };
inline Tolerance exact() { return {0, 0}; }
inline Tolerance ulps(double count) { return {count, 0}; }
inline Tolerance within(double absolute) { return {0, absolute}; }  // or within: either may hold
inline Tolerance ulps_or(double count, double absolute) { return {count, absolute}; }

// What a case's expression may use: x, y and z cover the type's range and its special values, u is uniform in [-8, 8),
// k is an integer from -20 to 20.
template <class T> struct Row { T x, y, z, u; int k; };

// ---- deterministic inputs -------------------------------------------------------------------------------------------

inline Word scramble(Word seed) {  // splitmix64
  seed += 0x9e3779b97f4a7c15ull;
  seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9ull;
  seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebull;
  return seed ^ (seed >> 31);
}

template <class To, class From> To bits(From from) {
  To to;
  static_assert(sizeof to <= sizeof from, "no bits to invent");
  memcpy(&to, &from, sizeof to);
  return to;
}

inline double uniform(int row, int slot) { return (double)(scramble(1000003ull * row + slot) >> 11) / 9007199254740992.0; }

constexpr int kRows = 96;

inline float input(float, int row, int slot) {
  static const unsigned special[] = {
      0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x80800000, 0x3f800000, 0xbf800000, 0x3f000000,
      0xbf000000, 0x3f7fffff, 0x3f800001, 0x40000000, 0xc0000000, 0x3fc00000, 0x40200000, 0xc0200000, 0x40490fdb, 0xc0490fdb,
      0x3eaaaaab, 0x3dcccccd, 0x42b17218, 0xc2aeac50, 0x42fe0000, 0xc3150000, 0x4b000000, 0x4b7fffff, 0x4effffff, 0x4f000000,
      0xcf000000, 0x4f7fffff, 0x5effffff, 0x5f7fffff, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x33d6bf95};
  const int count = sizeof special / sizeof *special;
  const Word random = scramble(77ull * row + slot);
  const int at = slot == 0 ? row : (int)(random % (3 * count));
  if (at < count) return bits<float>((Word)special[at]);
  if (row % 4 == 3) return bits<float>((Word)(unsigned)(random >> 20));              // any bit pattern
  if (row % 4 == 2) return bits<float>((Word)(unsigned)((random >> 20 & 0x8fffffff) | 0x30000000));  // 1e-9 to 1e9
  return (float)(20.0 * uniform(row, slot) - 10.0);
}

inline double input(double, int row, int slot) {
  static const Word special[] = {
      0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x0010000000000000, 0x3ff0000000000000, 0xbff0000000000000,
      0x3fe0000000000000, 0xbfe0000000000000, 0x4004000000000000, 0xc004000000000000, 0x400921fb54442d18, 0x3fb999999999999a,
      0x41dfffffffc00000, 0x41e0000000000000, 0xc1e0000000000000, 0x41efffffffe00000, 0x43dfffffffffffff, 0x43efffffffffffff,
      0x47efffffe0000000, 0x7fefffffffffffff, 0xffefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000};
  const int count = sizeof special / sizeof *special;
  const Word random = scramble(78ull * row + slot);
  const int at = slot == 0 ? row : (int)(random % (3 * count));
  if (at < count) return bits<double>(special[at]);
  if (row % 4 == 3) return bits<double>(random);
  if (row % 4 == 2) return bits<double>((random & 0x81ffffffffffffffull) | 0x3e00000000000000ull);
  return 20.0 * uniform(row, slot) - 10.0;
}

inline Word integer_input(int row, int slot) {
  static const Word special[] = {0, 1, ~0ull, 0x7fffffffull, 0x80000000ull, 0xffffffffull, 0x7fffffffffffffffull, 0x8000000000000000ull,
                                 2, 31, 32, 33, 0x55555555ull, 0xaaaaaaaaull, 0x0123456789abcdefull, 0xff00ff00ull, 0x80ull, 0x7f807f80ull};
  const int count = sizeof special / sizeof *special;
  const Word random = scramble(79ull * row + slot);
  const int at = slot == 0 ? row : (int)(random % (3 * count));
  return at < count ? special[at] : random >> (random & 31);
}
inline int input(int, int row, int slot) { return (int)integer_input(row, slot); }
inline unsigned input(unsigned, int row, int slot) { return (unsigned)integer_input(row, slot); }
inline long long input(long long, int row, int slot) { return (long long)integer_input(row, slot); }
inline Word input(Word, int row, int slot) { return integer_input(row, slot); }

inline unsigned short narrow_input(int row, int slot) {  // patterns spread over the whole 16-bit range
  static const unsigned short special[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x3c00, 0xbc00, 0x3f80, 0xbf80,
                                           0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x7f80, 0xff80, 0x7fc0, 0x7f7f, 0x3800, 0x3f00};
  const int count = sizeof special / sizeof *special;
  const Word random = scramble(80ull * row + slot);
  const int at = slot == 0 ? row : (int)(random % (3 * count));
  return at < count ? special[at] : (unsigned short)(random >> 17);
}
template <class T> T narrow(int row, int slot) {
  if (slot < 3 && row % 2 == 0) return T((float)(20.0 * uniform(row, slot) - 10.0));
  return bits<T>((Word)narrow_input(row, slot));
}
inline __half input(__half, int row, int slot) { return narrow<__half>(row, slot); }
inline __nv_bfloat16 input(__nv_bfloat16, int row, int slot) { return narrow<__nv_bfloat16>(row, slot); }
inline __half2 input(__half2, int row, int slot) { return __half2(narrow<__half>(row, slot), narrow<__half>(row + 50, slot)); }
inline __nv_bfloat162 input(__nv_bfloat162, int row, int slot) {
  return __nv_bfloat162(narrow<__nv_bfloat16>(row, slot), narrow<__nv_bfloat16>(row + 50, slot));
}

template <class T> T small(T, double value) { return T((float)value); }
inline double small(double, double value) { return value; }
inline __half2 small(__half2, double value) { return __half2(__half((float)value), __half((float)-value)); }
inline __nv_bfloat162 small(__nv_bfloat162, double value) {
  return __nv_bfloat162(__nv_bfloat16((float)value), __nv_bfloat16((float)-value));
}

template <class T> std::vector<Row<T>> rows() {
  std::vector<Row<T>> made(kRows);
  for (int i = 0; i < kRows; i++)
    made[i] = {input(T(), i, 0), input(T(), i, 1), input(T(), i, 2), small(T(), 16.0 * uniform(i, 5) - 8.0), i % 41 - 20};
  return made;
}

// ---- the table ------------------------------------------------------------------------------------------------------

struct Case { const char* name; const char* result; Tolerance tolerance; int words; cudaError_t (*run)(Word* out); };
static std::vector<Case>& cases() {  // static: each library has a table of its own
  static std::vector<Case> table;
  return table;
}
static int add(const Case& one) { cases().push_back(one); return 0; }

template <class T> const char* kind();  // how test_intrinsics.py reads a word
template <> inline const char* kind<float>() { return "f32"; }
template <> inline const char* kind<double>() { return "f64"; }
template <> inline const char* kind<__half>() { return "f16"; }
template <> inline const char* kind<__half2>() { return "f16x2"; }
template <> inline const char* kind<__nv_bfloat16>() { return "bf16"; }
template <> inline const char* kind<__nv_bfloat162>() { return "bf16x2"; }
template <> inline const char* kind<int>() { return "u32"; }
template <> inline const char* kind<unsigned>() { return "u32"; }
template <> inline const char* kind<short>() { return "u16"; }
template <> inline const char* kind<unsigned short>() { return "u16"; }
template <> inline const char* kind<bool>() { return "u8"; }
template <> inline const char* kind<long long>() { return "u64"; }
template <> inline const char* kind<Word>() { return "u64"; }

template <class R> __device__ Word word(R result) {
  Word raw = 0;
  memcpy(&raw, &result, sizeof result);
  return raw;
}

// Runs `launch(device memory for `words` results)` and copies the results to `out`.
template <class Launch> cudaError_t collect(Word* out, int words, Launch launch) {
  Word* results = nullptr;
  cudaError_t status = cudaMalloc((void**)&results, words * sizeof(Word));
  if (status != cudaSuccess) return status;
  status = launch(results);
  if (status == cudaSuccess) status = cudaGetLastError();
  if (status == cudaSuccess) status = cudaMemcpy(out, results, words * sizeof(Word), cudaMemcpyDeviceToHost);
  cudaFree(results);
  return status;
}

template <class C, class T> __global__ void elementwise(const Row<T>* rows, Word* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = word(C::value(rows[i].x, rows[i].y, rows[i].z, rows[i].u, rows[i].k));
}

template <class C, class T> cudaError_t run_elementwise(Word* out) {
  return collect(out, kRows, [](Word* results) {
    const std::vector<Row<T>> host = rows<T>();
    Row<T>* device = nullptr;
    cudaError_t status = cudaMalloc((void**)&device, kRows * sizeof(Row<T>));
    if (status != cudaSuccess) return status;
    status = cudaMemcpy(device, host.data(), kRows * sizeof(Row<T>), cudaMemcpyHostToDevice);
    if (status == cudaSuccess) {
      elementwise<C, T><<<(kRows + 63) / 64, 64>>>(device, results, kRows);
      status = cudaDeviceSynchronize();
    }
    cudaFree(device);
    return status;
  });
}

// One value per row of inputs of TYPE, from a function body or from an expression.
#define BODY_CASE(NAME, TYPE, RESULT, TOLERANCE, ...)                                                    \
  struct NAME##_case {                                                                                   \
    static __device__ RESULT value(TYPE x, TYPE y, TYPE z, TYPE u, int k) { __VA_ARGS__ }                \
  };                                                                                                     \
  static const int NAME##_added =                                                                        \
      add({#NAME, kind<RESULT>(), TOLERANCE, kRows, run_elementwise<NAME##_case, TYPE>});
#define CASE(NAME, TYPE, RESULT, TOLERANCE, ...) BODY_CASE(NAME, TYPE, RESULT, TOLERANCE, return (RESULT)(__VA_ARGS__);)

template <class C> __global__ void per_thread(Word* out) { out[threadIdx.x] = word(C::value((int)threadIdx.x)); }

template <class C> cudaError_t run_per_thread(Word* out) {
  return collect(out, 64, [](Word* results) {
    per_thread<C><<<1, 64>>>(results);
    return cudaDeviceSynchronize();
  });
}

// One value per thread of a block of 64; the body sees `thread` (0 to 63), `lane`, and `x`, a float that differs by thread.
#define THREAD_CASE(NAME, RESULT, TOLERANCE, ...)                                                        \
  struct NAME##_case {                                                                                   \
    static __device__ RESULT value(int thread) {                                                         \
      const int lane = thread % 32;                                                                      \
      const float x = (float)((thread * 37) % 64) * 0.25f - 7.0f;                                        \
      (void)lane, (void)x;                                                                               \
      __VA_ARGS__                                                                                        \
    }                                                                                                    \
  };                                                                                                     \
  static const int NAME##_added = add({#NAME, kind<RESULT>(), TOLERANCE, 64, run_per_thread<NAME##_case>});

// ---- what the Python side calls -------------------------------------------------------------------------------------

#define EXPORT_CASES                                                                                     \
  extern "C" __attribute__((visibility("default"))) int case_count() { return (int)cases().size(); }     \
  extern "C" __attribute__((visibility("default"))) const char* case_name(int i) { return cases()[i].name; } \
  extern "C" __attribute__((visibility("default"))) const char* case_result(int i) { return cases()[i].result; } \
  extern "C" __attribute__((visibility("default"))) int case_words(int i) { return cases()[i].words; }   \
  extern "C" __attribute__((visibility("default"))) double case_ulps(int i) { return cases()[i].tolerance.ulps; } \
  extern "C" __attribute__((visibility("default"))) double case_absolute(int i) { return cases()[i].tolerance.absolute; } \
  extern "C" __attribute__((visibility("default"))) int case_run(int i, Word* out) { return (int)cases()[i].run(out); } \
  extern "C" __attribute__((visibility("default"))) const char* case_error(int code) { return cudaGetErrorString((cudaError_t)code); }
