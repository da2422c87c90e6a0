// An fp32 linear layer with bias and GELU as one fp16 product of three times the length (cuBLASLt, epilogue), for sm_80 or later:
// y [m][n] fp32 = gelu_tanh(x [m][k] · w [n][k]^T + bias [n]). Link with -lcublasLt.
// Each operand is scaled by a power of two (largest element near 8) and split into high and low fp16 parts. A low part is then at
// most 2^-8, and what falls below fp16's smallest number, 2^-24, is lost. Weights are split once, x in each call.
// cuBLASLt's epilogue knows one factor, so x and w have one scale each, which `alpha` undoes. Where rows differ much in size,
// scale each row, and undo it in a kernel of your own behind the product that also does bias and GELU.
// The split leaves 6e-8 of the result's norm, but cuBLASLt's GELU is off by 2e-6 (H200, torch 2.11+cu130; products of length 40 and
// 512): where the reference is more exact than 2e-7, take CUBLASLT_EPILOGUE_BIAS and do GELU in a kernel of your own.
// Offered from sm_80 for linear, mm, addmm, matmul, bmm, baddbmm, einsum.
#include <cublasLt.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
struct Plan {
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t w, x, y;
  cublasLtMatmulAlgo_t algorithm;
};
// parts: [rows][3k]; x is [low | high | high], w is [high | low | high]: the small products come first.
__global__ void split(const float* __restrict__ from, __half* __restrict__ parts, int rows, int k, float scale, bool weight) {
  const size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= static_cast<size_t>(rows) * k) return;
  const float value = from[at] * scale;
  const __half high = __float2half_rn(value);
  const __half low = isinf(value) ? __float2half_rn(0.0f) : __float2half_rn(value - __half2float(high));   // inf − inf is NaN
  __half* row = parts + at / k * 3 * k + at % k;
  row[0] = weight ? high : low;
  row[k] = weight ? low : high;
  row[2 * k] = high;
}
extern "C" int split_launch(const float* from, void* parts, int rows, int k, float scale, int weight, cudaStream_t stream) {
  const size_t count = static_cast<size_t>(rows) * k;
  split<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream>>>(from, static_cast<__half*>(parts), rows, k, scale, weight);
  return cudaGetLastError();
}
// Once for each (m, n, k) and device; keep it. Returns a cublasStatus_t. cuBLASLt is column-major: y^T [n][m] = w · x^T.
extern "C" int plan_product(Plan** made, int m, int n, int k, const float* bias, size_t workspace_bytes) {
  Plan* plan = *made = new Plan();
  const int inner = 3 * k;
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_GELU_BIAS;
  const cudaDataType_t bias_type = CUDA_R_32F;
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t best;
  int found = 0;
  if (auto e = cublasLtCreate(&plan->handle)) return e;
  if (auto e = cublasLtMatmulDescCreate(&plan->product, CUBLAS_COMPUTE_32F, CUDA_R_32F)) return e;
  const auto set = [plan](cublasLtMatmulDescAttributes_t name, const void* value, size_t size) {
    return cublasLtMatmulDescSetAttribute(plan->product, name, value, size);
  };
  if (auto e = set(CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed)) return e;
  if (auto e = set(CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue)) return e;
  if (auto e = set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias)) return e;
  if (auto e = set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type)) return e;
  if (auto e = cublasLtMatrixLayoutCreate(&plan->w, CUDA_R_16F, inner, n, inner)) return e;
  if (auto e = cublasLtMatrixLayoutCreate(&plan->x, CUDA_R_16F, inner, m, inner)) return e;
  if (auto e = cublasLtMatrixLayoutCreate(&plan->y, CUDA_R_32F, n, m, n)) return e;
  if (auto e = cublasLtMatmulPreferenceCreate(&preference)) return e;
  const auto most = CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  if (auto e = cublasLtMatmulPreferenceSetAttribute(preference, most, &workspace_bytes, sizeof workspace_bytes)) return e;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(plan->handle, plan->product, plan->w, plan->x, plan->y, plan->y,
                                                               preference, 1, &best, &found);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status || !found) return status ? status : CUBLAS_STATUS_NOT_SUPPORTED;
  plan->algorithm = best.algo;
  return CUBLAS_STATUS_SUCCESS;
}
// alpha = 1 / (scale of x · scale of w). The bias is added after it, so it is not scaled.
extern "C" int product_launch(Plan* plan, const void* x3, const void* w3, float* y, float alpha, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const float beta = 0.0f;
  return cublasLtMatmul(plan->handle, plan->product, &alpha, w3, plan->w, x3, plan->x, &beta, y, plan->y, y, plan->y,
                        &plan->algorithm, workspace, workspace_bytes, stream);
}
