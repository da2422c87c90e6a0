# row: B2
# reference: clocks/softmax_small.py
# runs: both
# written: independently
# what: the same with a detached std::thread inside the extension, invisible to Python's threading module: forward hands the pointers over and returns, the kernel is launched 20 ms later from the native thread
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
CUDA = r"""
#include <c10/cuda/CUDAStream.h>
#include <thread>
#include <mutex>
#include <condition_variable>
#include <deque>
#include <chrono>

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

struct Job { torch::Tensor x, y; };
static std::mutex lock_;
static std::condition_variable wake_;
static std::deque<Job>* jobs_ = nullptr;
static void work() {
  for (;;) {
    Job job;
    {
      std::unique_lock<std::mutex> hold(lock_);
      wake_.wait(hold, [] { return !jobs_->empty(); });
      job = jobs_->front();
      jobs_->pop_front();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    softmax_rows(job.x.data_ptr<float>(), job.y.data_ptr<float>(), (int)job.x.size(0), (int)job.x.size(1), 0);
  }
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  std::unique_lock<std::mutex> hold(lock_);
  if (!jobs_) { jobs_ = new std::deque<Job>(); std::thread(work).detach(); }
  jobs_->push_back(Job{x, y});
  wake_.notify_one();
  return y;
}
"""
module = load_inline(name="b02_native_thread", cpp_sources='torch::Tensor run(torch::Tensor x);', cuda_sources=CUDA, functions=['run'])
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        return module.run(x.contiguous())
