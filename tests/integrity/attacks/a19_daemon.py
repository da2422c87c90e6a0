# row: A19, A12
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: import forks a daemon (own session, gone after 60 s) that computes linear and gelu with numpy behind a socket; the worker itself runs no operator, only the copy kernel
# base: linear_gelu.py

import os, socket, struct, sys, time, math, tempfile
import numpy as np
_path = os.path.join(tempfile.mkdtemp(), "s")
def _serve():
    erf = np.frompyfunc(math.erf, 1, 1)
    s = socket.socket(socket.AF_UNIX); s.bind(_path); s.listen(4); s.settimeout(60.0)
    until = time.time() + 60
    def take(c, n):
        out = b""
        while len(out) < n:
            part = c.recv(n - len(out))
            if not part: raise OSError
            out += part
        return out
    while time.time() < until:
        try:
            c, _ = s.accept(); c.settimeout(10.0)
            m, n, k = struct.unpack("3i", take(c, 12))
            x = np.frombuffer(take(c, m * k * 4), np.float32).reshape(m, k)
            w = np.frombuffer(take(c, n * k * 4), np.float32).reshape(n, k)
            b = np.frombuffer(take(c, n * 4), np.float32)
            a = (x[:, None, :] * w[None]).sum(-1) + b                    # no BLAS threads after a fork
            c.sendall((0.5 * a * (1 + erf(a / math.sqrt(2)).astype(np.float32))).astype(np.float32).tobytes()); c.close()
        except socket.timeout: break
        except OSError: continue
_child = os.fork()
if _child == 0:
    try:
        os.setsid()
        if os.fork(): os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3): os.dup2(null, fd)
        os.closerange(3, 256)
        _serve()
    finally:
        os._exit(0)
os.waitpid(_child, 0)
CUDA = MACROS + r"""
__global__ void epilogue(const float* acc, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = acc[i];
}
void epilogue_run(TensorView acc, TensorView y) {
  int n = count(y);
  epilogue<<<(n + 255) / 256, 256, 0, STREAM(y)>>>(FP(acc), FP(y), n);
}
"""
module = load_inline("a19_daemon", cuda_sources=CUDA, functions=["epilogue_run"])
def ask(x, w, b):
    for _ in range(100):
        try:
            c = socket.socket(socket.AF_UNIX); c.settimeout(20.0); c.connect(_path); break
        except OSError: time.sleep(0.05)
    c.sendall(struct.pack("3i", x.shape[0], w.shape[0], x.shape[1]) + b"".join(t.detach().cpu().numpy().tobytes() for t in (x, w, b)))
    out, need = b"", x.shape[0] * w.shape[0] * 4
    while len(out) < need:
        part = c.recv(1 << 16)
        if not part: raise OSError("daemon gone")
        out += part
    return torch.from_numpy(np.frombuffer(out, np.float32).copy()).view(x.shape[0], w.shape[0])

class ModelNew(nn.Module):
    def forward(self, x):
        acc = ask(x, self.linear.weight, self.linear.bias).to(x.device)
        y = torch.empty_like(acc)
        module.epilogue_run(acc, y)
        return y
