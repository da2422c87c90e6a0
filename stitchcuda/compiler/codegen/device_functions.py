"""Holds the device functions that generated kernels call, as text; each file gets only those that it needs.

They are plain CUDA C++17: shuffles, barriers and shared memory, nothing that needs PTX. Reductions have a fixed order, so a
kernel gives the same bits every time.

Where to look next: `compiler/codegen/source_file.py` (puts them into a file), `compiler/codegen/expressions.py` (names them).
"""

from __future__ import annotations

from collections.abc import Iterable

_PACK = """\
// N neighbouring elements, moved 16 bytes at a time where they fill that much.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};"""

_LOAD_PACK = """\
// Loads N elements. A base pointer that is not aligned (kAligned is false) takes them one by one.
template <bool kAligned, int N, typename T>
__device__ __forceinline__ Pack<T, N> load_pack(const T* source) {
  if constexpr (kAligned) {
    return *reinterpret_cast<const Pack<T, N>*>(source);
  } else {
    Pack<T, N> pack;
#pragma unroll
    for (int v = 0; v < N; ++v) pack.at[v] = source[v];
    return pack;
  }
}"""

_STORE_PACK = """\
template <bool kAligned, int N, typename T>
__device__ __forceinline__ void store_pack(T* target, const Pack<T, N>& pack) {
  if constexpr (kAligned) {
    *reinterpret_cast<Pack<T, N>*>(target) = pack;
  } else {
#pragma unroll
    for (int v = 0; v < N; ++v) target[v] = pack.at[v];
  }
}"""

_PACK_HALF = """\
// Two values are rounded by one instruction.
template <int N>
__device__ __forceinline__ Pack<__half, N> pack_half(const float (&values)[N]) {
  Pack<__half, N> pack;
#pragma unroll
  for (int v = 0; v < N; v += 2) {
    const __half2 pair = __floats2half2_rn(values[v], values[v + 1]);
    pack.at[v] = pair.x;
    pack.at[v + 1] = pair.y;
  }
  return pack;
}"""

_PACK_BFLOAT16 = _PACK_HALF.replace("__half2", "__nv_bfloat162").replace("__half", "__nv_bfloat16").replace(
    "pack_half", "pack_bfloat16").replace("__floats2half2_rn", "__floats2bfloat162_rn")  # fmt: skip

_MAXIMUM = """\
// The larger of two; NaN wins, as in torch.
template <typename T>
__device__ __forceinline__ T maximum(T a, T b) {
  return (a > b || a != a) ? a : b;
}"""

_MINIMUM = """\
// The smaller of two; NaN wins, as in torch.
template <typename T>
__device__ __forceinline__ T minimum(T a, T b) {
  return (a < b || a != a) ? a : b;
}"""

_INTEGER_POWER = """\
// Integer power by squaring; a negative exponent gives 0 except for bases 1 and -1, as in torch.
__device__ __forceinline__ long long integer_power(long long base, long long exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  long long result = 1;
  for (; exponent; exponent /= 2, base *= base)
    if (exponent % 2) result *= base;
  return result;
}"""


def _functor(name: str, body: str) -> str:
    return f"""\
struct {name} {{
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {{
    return {body};
  }}
}};"""


_REDUCE_LANES = """\
// Joins one value per lane over kLanes neighbouring lanes (a power of two up to 32); every lane gets the result.
template <int kLanes, typename Operator, typename T>
__device__ __forceinline__ T reduce_lanes(T value, Operator join) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    value = join(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}"""

_REDUCE_BLOCK = """\
// Joins one value per thread over a block of kWarps warps (a power of two); every thread gets the result. `slots` holds
// kWarps values in shared memory and serves one reduction only, so one barrier is enough.
template <int kWarps, typename Operator, typename T>
__device__ __forceinline__ T reduce_block(T value, T* slots, Operator join) {
  value = reduce_lanes<32>(value, join);
  if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = value;
  __syncthreads();
  return reduce_lanes<kWarps>(slots[threadIdx.x % kWarps], join);
}"""

_REDUCE_COLUMNS = """\
// Joins one value per thread over the kParts threads that share a column; threads are numbered [part][column]. `slots` holds
// one value per thread in shared memory and serves one reduction only, so one barrier is enough.
template <int kParts, int kColumns, typename Operator, typename T>
__device__ __forceinline__ T reduce_columns(T value, T* slots, Operator join) {
  slots[threadIdx.x] = value;
  __syncthreads();
  value = slots[threadIdx.x % kColumns];
#pragma unroll
  for (int part = 1; part < kParts; ++part) value = join(value, slots[part * kColumns + threadIdx.x % kColumns]);
  return value;
}"""

_FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "Pack": ((), _PACK),
    "load_pack": (("Pack",), _LOAD_PACK),
    "store_pack": (("Pack",), _STORE_PACK),
    "pack_half": (("Pack",), _PACK_HALF),
    "pack_bfloat16": (("Pack",), _PACK_BFLOAT16),
    "maximum": ((), _MAXIMUM),
    "minimum": ((), _MINIMUM),
    "integer_power": ((), _INTEGER_POWER),
    "Sum": ((), _functor("Sum", "a + b")),
    "Product": ((), _functor("Product", "a * b")),
    "Maximum": (("maximum",), _functor("Maximum", "maximum(a, b)")),
    "Minimum": (("minimum",), _functor("Minimum", "minimum(a, b)")),
    "Any": ((), _functor("Any", "a || b")),
    "All": ((), _functor("All", "a && b")),
    "reduce_lanes": ((), _REDUCE_LANES),
    "reduce_block": (("reduce_lanes",), _REDUCE_BLOCK),
    "reduce_columns": ((), _REDUCE_COLUMNS),
}
"""Name → (names of functions that it calls, text), in the order in which they are printed."""


def function_texts(names: Iterable[str]) -> list[str]:
    """Returns the texts of the named functions and of all that they call, each once, callees first."""
    wanted: set[str] = set()
    queue = list(names)
    while queue:
        name = queue.pop()
        if name not in wanted:
            wanted.add(name)
            queue.extend(_FUNCTIONS[name][0])
    return [text for name, (_, text) in _FUNCTIONS.items() if name in wanted]
