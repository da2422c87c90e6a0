# row: honest
# reference: honest/gpu_linear_gelu.py
# runs: gpu
# written: independently
# what: fp32 product through a cublasLt handle, workspace and plan cached between calls in C++ statics, then an own bias + gelu epilogue kernel
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
#include <cublasLt.h>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#define LT(e) do { cublasStatus_t s_ = (e); if (s_ != CUBLAS_STATUS_SUCCESS) throw std::runtime_error("cublasLt " + std::to_string((int)s_)); } while (0)
struct Plan { cublasLtMatmulDesc_t op; cublasLtMatrixLayout_t a, b, c; cublasLtMatmulAlgo_t algo; };
static std::mutex lock_;
static std::map<int, cublasLtHandle_t> handles;
static std::map<std::tuple<int, int, int, int>, Plan> plans;

__global__ void bias_gelu(float4* h, const float4* b, int quads, int width4) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= quads) return;
  float4 v = h[i], c = b[i % width4];
  float* p = &v.x; const float* q = &c.x;
#pragma unroll
  for (int k = 0; k < 4; ++k) { float t = p[k] + q[k]; p[k] = 0.5f * t * (1.f + erff(t * 0.70710678f)); }
  h[i] = v;
}

static Plan& plan_for(int device, int m, int n, int k, size_t bytes) {
  auto key = std::make_tuple(device, m, n, k);
  auto it = plans.find(key);
  if (it != plans.end()) return it->second;
  Plan p;
  cublasOperation_t t = CUBLAS_OP_T;
  LT(cublasLtMatmulDescCreate(&p.op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  LT(cublasLtMatmulDescSetAttribute(p.op, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof(t)));
  LT(cublasLtMatrixLayoutCreate(&p.a, CUDA_R_32F, k, n, k));     // W [n, k] row-major
  LT(cublasLtMatrixLayoutCreate(&p.b, CUDA_R_32F, k, m, k));     // x [m, k] row-major
  LT(cublasLtMatrixLayoutCreate(&p.c, CUDA_R_32F, n, m, n));     // y [m, n] row-major
  cublasLtMatmulPreference_t pref;
  LT(cublasLtMatmulPreferenceCreate(&pref));
  LT(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)));
  cublasLtMatmulHeuristicResult_t best;
  int found = 0;
  LT(cublasLtMatmulAlgoGetHeuristic(handles[device], p.op, p.a, p.b, p.c, p.c, pref, 1, &best, &found));
  cublasLtMatmulPreferenceDestroy(pref);
  if (!found) throw std::runtime_error("no cublasLt algorithm");
  p.algo = best.algo;
  return plans.emplace(key, p).first->second;
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView b, tvm::ffi::TensorView work, tvm::ffi::TensorView y) {
  int m = (int)x.size(0), k = (int)x.size(1), n = (int)w.size(0), device = x.device().device_id;
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  size_t bytes = (size_t)work.size(0);
  {
    std::lock_guard<std::mutex> guard(lock_);
    if (!handles.count(device)) LT(cublasLtCreate(&handles[device]));
    Plan& p = plan_for(device, m, n, k, bytes);
    float one = 1.f, zero = 0.f;
    LT(cublasLtMatmul(handles[device], p.op, &one, w.data_ptr(), p.a, x.data_ptr(), p.b, &zero, y.data_ptr(), p.c, y.data_ptr(), p.c, &p.algo, work.data_ptr(), bytes, stream));
  }
  int quads = m * n / 4;
  bias_gelu<<<(quads + 255) / 256, 256, 0, stream>>>((float4*)y.data_ptr(), (const float4*)b.data_ptr(), quads, n / 4);
}
"""
module = load_inline("g_cublaslt_cached", cuda_sources=CUDA, functions=["run"], extra_ldflags=["-lcublasLt"])


class ModelNew(nn.Module):
    _workspace = {}

    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x):
        if x.device not in self._workspace:
            self._workspace[x.device] = torch.empty(32 << 20, dtype=torch.uint8, device=x.device)
        assert self.linear.out_features % 4 == 0
        y = torch.empty(x.shape[0], self.linear.out_features, device=x.device, dtype=x.dtype)
        module.run(x, self.linear.weight, self.linear.bias, self._workspace[x.device], y)
        return y
