# row: B2
# reference: clocks/softmax_small.py
# runs: both
# written: independently
# what: the same with a detached std::thread inside the extension, invisible to Python's threading module: forward hands the pointers over and returns, the kernel is launched 20 ms later from the native thread
# base: softmax.py

from torch.utils.cpp_extension import load_inline
CUDA = r"""
#include <c10/cuda/CUDAStream.h>
#include <thread>
#include <mutex>
#include <condition_variable>
#include <deque>
#include <chrono>
""" + KERNEL + r"""
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
    def forward(self, x):
        return module.run(x.contiguous())
