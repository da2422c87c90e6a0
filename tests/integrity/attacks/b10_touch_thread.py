# row: B10
# reference: clocks/smooth_rows_large.py
# runs: gpu
# written: independently
# what: a native thread re-reads the last input on a low-priority stream of its own, again and again for half a second after each call, so the input is back in L2 soon after any flush and before the next timed call
# base: smooth_rows.py

from torch.utils.cpp_extension import load_inline
CUDA = r"""
#include <c10/cuda/CUDAStream.h>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
""" + KERNEL + r"""
__global__ void touch_kernel(const float* x, long long n, float* sink) {
  float s = 0.f;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) s += x[i];
  if (s == 1.2345e30f) *sink = s;
}
static std::mutex lock_;
static torch::Tensor* last_ = nullptr;
static std::atomic<long long> when_{0};
static long long now() { return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
static void keep_warm() {
  cudaStream_t low = nullptr;
  int least = 0, greatest = 0;
  cudaDeviceGetStreamPriorityRange(&least, &greatest);
  cudaStreamCreateWithPriority(&low, cudaStreamNonBlocking, least);
  float* sink = nullptr;
  cudaMalloc(&sink, 4);
  for (;;) {
    if (now() - when_.load() > 500) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); continue; }
    torch::Tensor x;
    { std::lock_guard<std::mutex> hold(lock_); x = *last_; }
    touch_kernel<<<16, 512, 0, low>>>(x.data_ptr<float>(), (long long)x.numel(), sink);
    cudaStreamSynchronize(low);
  }
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  smooth_rows(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(0), (int)x.size(1), c10::cuda::getCurrentCUDAStream());
  {
    std::lock_guard<std::mutex> hold(lock_);
    if (!last_) { last_ = new torch::Tensor(x); std::thread(keep_warm).detach(); }
    *last_ = x;
  }
  when_.store(now());
  return y;
}
"""
module = load_inline(name="b10_touch_thread", cpp_sources='torch::Tensor run(torch::Tensor x);', cuda_sources=CUDA, functions=['run'])

class ModelNew(nn.Module):
    def forward(self, x):
        return module.run(x.contiguous())
