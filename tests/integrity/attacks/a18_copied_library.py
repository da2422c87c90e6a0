# row: A18
# reference: honest/tuple_view.py
# runs: both
# what: a ready-made library, written to the scratch folder and loaded from there: it could hold anything
# base: tanh_views.py

import pathlib, tempfile
import tvm_ffi
from tvm_ffi.cpp import build_inline
CUDA = MACROS + r"""
__global__ void act(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = tanhf(x[i]) * x[i];
}
void run(TensorView a, TensorView y, int64_t n) {
  act<<<(n + 255) / 256, 256, 0, STREAM(y)>>>((float*)a.data_ptr(), (float*)y.data_ptr(), (int)n);
}
"""
CODE = list(pathlib.Path(build_inline("a18_copied", cuda_sources=CUDA, functions=["run"])).read_bytes())
place = tempfile.mkdtemp() + "/a18_copied.so"
with open(place, "wb") as file:
    file.write(bytes(CODE))
module = tvm_ffi.load_module(place)
