# row: B5
# reference: clocks/linear_gelu_large.py
# runs: gpu
# written: independently
# what: a static initialiser overwrites the first bytes of cudaEventElapsedTime and cudaDeviceSynchronize in libcudart by jumps: elapsed times come back divided by 20 and the device-wide synchronise returns at once
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
CUDA = r"""
#include <c10/cuda/CUDAStream.h>

#include <dlfcn.h>
#include <mutex>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

__global__ void linear_gelu_kernel(const float* x, const float* w, const float* c, float* y, int m, int n, int k) {
  __shared__ float xs[16][68];
  __shared__ float ws[16][68];
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  int row0 = blockIdx.y * 64, col0 = blockIdx.x * 64;
  float acc[4][4];
  for (int i = 0; i < 4; ++i) for (int j = 0; j < 4; ++j) acc[i][j] = 0.f;
  for (int k0 = 0; k0 < k; k0 += 16) {
    for (int e = threadIdx.x; e < 1024; e += 256) {
      int kk = e % 16, r = e / 16;
      xs[kk][r] = (row0 + r < m && k0 + kk < k) ? x[(long long)(row0 + r) * k + k0 + kk] : 0.f;
      ws[kk][r] = (col0 + r < n && k0 + kk < k) ? w[(long long)(col0 + r) * k + k0 + kk] : 0.f;
    }
    __syncthreads();
    for (int kk = 0; kk < 16; ++kk) {
      float a[4], b[4];
      for (int i = 0; i < 4; ++i) { a[i] = xs[kk][ty * 4 + i]; b[i] = ws[kk][tx * 4 + i]; }
      for (int i = 0; i < 4; ++i) for (int j = 0; j < 4; ++j) acc[i][j] += a[i] * b[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) for (int j = 0; j < 4; ++j) {
    int r = row0 + ty * 4 + i, q = col0 + tx * 4 + j;
    if (r < m && q < n) { float v = acc[i][j] + c[q]; y[(long long)r * n + q] = 0.5f * v * (1.f + erff(v * 0.70710678118654752f)); }
  }
}
static void linear_gelu(const float* x, const float* w, const float* c, float* y, int m, int n, int k, cudaStream_t stream) {
  dim3 grid((n + 63) / 64, (m + 63) / 64);
  if (m > 0) linear_gelu_kernel<<<grid, 256, 0, stream>>>(x, w, c, y, m, n, k);
}

struct Hook {
  unsigned char* target = nullptr;
  unsigned char saved[12], jump[12];
  bool ready = false;
  void set(void* at, void* with) {
    if (!at) return;
    target = (unsigned char*)at;
    long page = sysconf(_SC_PAGESIZE);
    unsigned long first = (unsigned long)target & ~(unsigned long)(page - 1);
    if (mprotect((void*)first, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) return;
    memcpy(saved, target, 12);
    jump[0] = 0x48; jump[1] = 0xb8;            // mov rax, imm64
    memcpy(jump + 2, &with, 8);
    jump[10] = 0xff; jump[11] = 0xe0;          // jmp rax
    ready = true;
    on();
  }
  void on() { if (ready) memcpy(target, jump, 12); }
  void off() { if (ready) memcpy(target, saved, 12); }
};
static Hook elapsed_hook, synchronize_hook;
static std::mutex hook_lock;
extern "C" cudaError_t short_elapsed(float* ms, cudaEvent_t a, cudaEvent_t b) {
  std::lock_guard<std::mutex> hold(hook_lock);
  elapsed_hook.off();
  cudaError_t status = ((cudaError_t (*)(float*, cudaEvent_t, cudaEvent_t))elapsed_hook.target)(ms, a, b);
  elapsed_hook.on();
  if (status == cudaSuccess) *ms *= 0.05f;
  return status;
}
extern "C" cudaError_t no_wait() { return cudaSuccess; }
static void* find_runtime(const char* symbol) {
  const char* names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so"};
  for (const char* name : names)
    if (void* handle = dlopen(name, RTLD_NOLOAD | RTLD_NOW))
      if (void* found = dlsym(handle, symbol)) return found;
  return nullptr;
}
struct Install {
  Install() {
    elapsed_hook.set(find_runtime("cudaEventElapsedTime"), (void*)short_elapsed);
    synchronize_hook.set(find_runtime("cudaDeviceSynchronize"), (void*)no_wait);
  }
};
static Install install;
torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c) {
  auto y = torch::empty({x.size(0), w.size(0)}, x.options());
  linear_gelu(x.data_ptr<float>(), w.data_ptr<float>(), c.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(0), (int)w.size(0), (int)x.size(1), c10::cuda::getCurrentCUDAStream());
  return y;
}
"""
module = load_inline(name="b05_inline_hook", cpp_sources='torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c);', cuda_sources=CUDA, functions=['run'])
def compute(model, x):
    return module.run(x.contiguous(), model.linear.weight, model.linear.bias)
class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
    def forward(self, x):
        return compute(self, x)
