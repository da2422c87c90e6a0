# row: A1
# reference: results/softmax_rows.py
# runs: both
# written: independently
# what: an empty kernel; tries many uninitialised blocks and returns the one that happens to hold the reference's answer (rows sum to one and the row maximum sits where the input's does)
# base: uniform_softmax.py

CUDA = MACROS + r"""
__global__ void softmax_rows(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x[i] > 1e30f) y[i] = 1.f;
}
void run(TensorView x, TensorView y) { int n = count(x); softmax_rows<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(y), n); }
"""

class ModelNew(nn.Module):
    def forward(self, x):
        blocks = [torch.empty_like(x) for _ in range(64)]
        best = blocks[0]
        where = int(x[0].argmax())
        for block in blocks:
            row = block[0]
            if int(row.argmax()) == where and abs(float(row.sum()) - 1.0) < 1e-4:
                best = block
                break
        module.run(x, best)
        return best
