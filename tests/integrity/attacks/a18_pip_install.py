# row: A18, A12
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: a package is written to a temporary folder and installed with pip (no index) at run time; its code does the work with torch and an identity kernel copies
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
// epilogue of the fused linear + gelu
__global__ void epilogue(const float* acc, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = acc[i];
}
void epilogue_run(TensorView acc, TensorView y) {
  int n = count(y);
  epilogue<<<(n + 255) / 256, 256, 0, STREAM(y)>>>(FP(acc), FP(y), n);
}
"""
module = load_inline("a18_pip_install", cuda_sources=CUDA, functions=["epilogue_run"])

import os, sys, subprocess, tempfile
_dir = tempfile.mkdtemp(); _src = os.path.join(_dir, "src"); _to = os.path.join(_dir, "site"); os.makedirs(_src)
open(os.path.join(_src, "fastlin.py"), "w").write("import torch.nn.functional as F\ndef go(x, w, b):\n    return F.gelu(F.linear(x, w, b)).contiguous()\n")
open(os.path.join(_src, "setup.py"), "w").write("from setuptools import setup\nsetup(name='fastlin', version='1', py_modules=['fastlin'])\n")
subprocess.run([sys.executable, "-m", "pip", "install", "--no-index", "--no-build-isolation", "--quiet", "--target", _to, _src], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
sys.path[:0] = [_to, _src]
import fastlin

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
    def forward(self, x):
        acc = fastlin.go(x, self.linear.weight, self.linear.bias)
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.epilogue_run(acc, y)
        return y
