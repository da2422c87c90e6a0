"""Rewrites skeletons that the simulator refuses so that it runs them: PTX by shuffles, a cluster as one block, no early start.

What it keeps is the index arithmetic: which lane holds which element of a matrix, by PTX's tables for m16n8k16 and ldmatrix.
What it loses is time: copies have arrived when they are asked for, and kernels run one after the other.
"""

from __future__ import annotations

import re

# By the PTX ISA, "Matrix Fragments for mma.m16n8k16": A's element (row, k) is in lane row % 8 * 4 + k % 8 / 2, in register
# row / 8 + k / 8 * 2; B's (k, n) in lane n * 4 + k % 8 / 2, in register k / 8; C's (row, n) in lane row % 8 * 4 + n / 2, in
# register row / 8 * 2 + n % 2.
_FUNCTIONS = {
    "copy16": """{
  for (int i = 0; i < 4; ++i) static_cast<unsigned*>(to)[i] = there ? static_cast<const unsigned*>(from)[i] : 0;
}""",
    "commit": "{}",
    "wait": "{}",
    "load4": """{
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    const auto at = __shfl_sync(~0u, reinterpret_cast<unsigned long long>(row), i * 8 + lane / 4);
    r[i] = reinterpret_cast<const unsigned*>(at)[lane % 4];
  }
}""",
    "load4_transposed": """{
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    const auto first = __shfl_sync(~0u, reinterpret_cast<unsigned long long>(row), i * 8 + lane % 4 * 2);
    const auto second = __shfl_sync(~0u, reinterpret_cast<unsigned long long>(row), i * 8 + lane % 4 * 2 + 1);
    const unsigned low = reinterpret_cast<const unsigned short*>(first)[lane / 4];
    r[i] = low | static_cast<unsigned>(reinterpret_cast<const unsigned short*>(second)[lane / 4]) << 16;
  }
}""",
    "mma": """{
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (int e = 0; e < 4; ++e)
    for (int k = 0; k < 16; k += 2) {
      const unsigned left = __shfl_sync(~0u, a[e / 2 + k / 8 * 2], g * 4 + k % 8 / 2);
      const unsigned right = __shfl_sync(~0u, k / 8 ? b1 : b0, (t * 2 + e % 2) * 4 + k % 8 / 2);
      const OPERAND* x = reinterpret_cast<const OPERAND*>(&left);
      const OPERAND* y = reinterpret_cast<const OPERAND*>(&right);
      for (int i = 0; i < 2; ++i) c[e] += static_cast<float>(x[i]) * static_cast<float>(y[i]);
    }
}""",
}
_CLUSTER = """struct Cluster {
  static int block_rank() { return 0; }
  static void sync() { __syncthreads(); }
  template <class T> static T* map_shared_rank(T* at, int) { return at; }
};
__device__ float sigmoid("""


def without_ptx(text: str) -> str:
    """Replaces the body of each function that holds PTX. Raises KeyError for a function that is not known."""

    def body(found: re.Match[str]) -> str:
        operand = "__nv_bfloat16" if "__nv_bfloat16" in found["head"] else "__half"
        return f"{found['head']} {_FUNCTIONS[found['name']].replace('OPERAND', operand)}"

    return re.sub(
        r"(?P<head>__device__ void (?P<name>\w+)\([^{]*\)) \{\s*asm volatile\(.*?\);\s*\}(?=\n)", body, text, flags=re.DOTALL
    )


def without_clusters(text: str) -> str:
    """A cluster is one block, and a block serves 32 and 64 hidden units where it served 16 and 32."""
    text = text.replace("constexpr int BLOCKS = 8;", "constexpr int BLOCKS = 1;").replace("__cluster_dims__(BLOCKS, 1, 1) ", "")
    text = text.replace("cg::cluster_group cluster = cg::this_cluster();", "Cluster cluster;")
    text = text.replace("__device__ float sigmoid(", _CLUSTER)
    return re.sub(r"(hidden [<>]= ?|hidden > |launch<)(128|256)\b", lambda found: found[1] + str(int(found[2]) // 4), text)


def without_early_start(text: str) -> str:
    """Kernels run one after the other."""
    text = re.sub(r"cuda(?:GridDependencySynchronize|TriggerProgrammaticLaunchCompletion)\(\);", "", text)
    return re.sub(r"^  (?:cudaLaunchAttribute early|early\.|config\.(?:attrs|numAttrs) =).*\n", "", text, flags=re.MULTILINE)
