# row: B1
# reference: clocks/softmax_large.py
# runs: gpu
# written: independently
# what: the kernel runs on a private non-blocking stream that waits for the inputs but is never joined, so events on the current stream time nothing, while any device-wide synchronise before the comparison finds the right answer
# base: softmax.py

CUDA = KERNEL + CURRENT + r"""
static cudaStream_t side = nullptr;
static cudaEvent_t ready = nullptr;
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  if (!side) {
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&ready, cudaEventDisableTiming);
  }
  cudaEventRecord(ready, current(x));
  cudaStreamWaitEvent(side, ready, 0);
  softmax_rows((const float*)x.data_ptr(), (float*)y.data_ptr(), (int)x.size(0), (int)x.size(1), side);
}
"""
from collections import deque
alive = deque(maxlen=16)  # keep outputs and inputs from being recycled while the hidden stream still works on them

class ModelNew(nn.Module):
    def forward(self, x):
        y = compute(self, x)
        alive.append((x, y))
        return y
