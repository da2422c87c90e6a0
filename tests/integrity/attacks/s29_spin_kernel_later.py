# row: S29
# reference: clocks/softmax_small.py
# runs: gpu
# what: a stream of its own, which nothing waits for, spins for about 20 ms in a kernel before it computes the rows: they are there only long after the call returned
# base: softmax.py

from collections import deque
CUDA = KERNEL + CURRENT + r"""
__global__ void pause(const float* x, float* y, long long cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) {}
  if (threadIdx.x == 0) y[0] = x[0];
}
static cudaStream_t side = nullptr;
static cudaEvent_t ready = nullptr;
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  if (!side) {
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&ready, cudaEventDisableTiming);
  }
  cudaEventRecord(ready, current(x));
  cudaStreamWaitEvent(side, ready, 0);
  pause<<<1, 1, 0, side>>>((const float*)x.data_ptr(), (float*)y.data_ptr(), 36000000LL);
  softmax_rows((const float*)x.data_ptr(), (float*)y.data_ptr(), (int)x.size(0), (int)x.size(1), side);
}
"""
module = load_inline("s29_spin_kernel_later", cuda_sources=CUDA, functions=["run"])
alive = deque(maxlen=32)                           # so that no memory is used anew while the stream still works on it

class ModelNew(nn.Module):
    def forward(self, x):
        x, y = x.contiguous(), torch.empty_like(x)
        module.run(x, y)
        alive.append((x, y))
        return y
