"""From a model's reply to a verdict, beside KernelBench's own evaluation: `python benchmarks/reply_to_verdict.py CHECKOUT`.

Needs a GPU; CHECKOUT is a copy of github.com/ScalingIntelligence/KernelBench. One reference, several programs of one kernel
each, whose text nobody has built before: ours gets each in tvm-ffi's binding, the other evaluation the same kernel in torch's
`load_inline`, its usual form, in a process of its own, as its scripts do. They take turns. Ours is timed three ways: as
`stitchcuda verify` does it, with the judge of a session, and with that judge once more when the build is cached, all else anew
with fresh secret inputs.
A verdict is build, every check, each kernel left out in turn, and two timings in new processes; without CHECKOUT only ours.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parent.parent))
from stitchcuda.tools.device.device import device_facts  # noqa: E402
from stitchcuda.verify.api import Verdict, Verifier, verify  # noqa: E402

OURS, CACHED = 6.0, 4.0                    # seconds: goals
REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return torch.sigmoid(x) * x + self.bias

def get_inputs():
    return [torch.randn(2048, 4096)]

def get_init_inputs():
    return [4096]
"""
KERNEL = """
#include <cuda_runtime.h>

__global__ void swish_NONCE(const float* x, const float* bias, float* y, int n, int width) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const float value = x[i];
    y[i] = value / (1.0f + expf(-value)) + bias[i % width];
  }
}
"""
TVM = KERNEL + """
void swish(tvm::ffi::TensorView x, tvm::ffi::TensorView bias, tvm::ffi::TensorView y) {
  const int n = static_cast<int>(x.numel());
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  swish_NONCE<<<(n + 1023) / 1024, 256, 0, stream>>>(
      static_cast<const float*>(x.data_ptr()), static_cast<const float*>(bias.data_ptr()), static_cast<float*>(y.data_ptr()), n,
      static_cast<int>(bias.numel()));
}
"""
TORCH = "#include <torch/extension.h>\n" + KERNEL + """
torch::Tensor swish(torch::Tensor x, torch::Tensor bias) {
  auto y = torch::empty_like(x);
  const int n = x.numel();
  swish_NONCE<<<(n + 1023) / 1024, 256>>>(x.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), n, bias.numel());
  return y;
}
"""
MODEL = '''
import torch
from torch import nn
from LIBRARY import load_inline

CUDA = r"""SOURCE"""
kernels = load_inline(name="swish_NONCE", OPTIONS)

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        FORWARD
'''
STYLES = {
    "tvm": ("tvm_ffi.cpp", TVM, "cuda_sources=CUDA, functions=['swish']",
            "y = torch.empty_like(x); kernels.swish(x, self.bias, y); return y"),
    "torch": ("torch.utils.cpp_extension", TORCH,
              "cpp_sources='torch::Tensor swish(torch::Tensor x, torch::Tensor bias);', cuda_sources=CUDA, functions=['swish']",
              "return kernels.swish(x, self.bias)"),
}  # fmt: skip


def written(folder: Path, style: str, nonce: str) -> Path:
    """A program in one of the two bindings; the nonce is part of what is compiled."""
    library, source, options, forward = STYLES[style]
    text = MODEL.replace("LIBRARY", library).replace("SOURCE", source).replace("OPTIONS", options).replace("FORWARD", forward)
    path = folder / f"{style}_{nonce}.py"
    path.write_text(text.replace("NONCE", nonce))
    return path


def accepted(verdict: Verdict) -> None:
    if not verdict.accepted:
        sys.exit(f"our own program was refused: {'; '.join(verdict.reasons)}")


def theirs(checkout: Path, program: Path, reference: Path) -> float:
    """Seconds of the other evaluation, its process included."""
    mark, started = secrets.token_hex(8), time.monotonic()
    script = str(HERE.with_name("kernelbench_eval.py"))
    command = [sys.executable, script, str(checkout), "--one", str(program), str(reference), mark]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    took = time.monotonic() - started
    lines = [line for line in done.stdout.splitlines() if line.startswith(mark)]
    if not lines or not json.loads(lines[-1].removeprefix(mark))["correct"]:
        sys.exit(f"the other evaluation does not take the kernel: {(lines or [done.stderr])[-1][-600:]}")
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, nargs="?")
    parser.add_argument("--programs", type=int, default=5)
    parser.add_argument("--table", type=Path, help="write the table to this file")
    given = parser.parse_args()
    facts = device_facts("cuda")
    seconds: dict[str, list[float]] = {"verify, from nothing": [], "in a session": [], "in a session, build cached": []}

    def add(what: str, took: float) -> None:
        seconds.setdefault(what, []).append(took)
        print(f"{what}: {took:.2f} s", file=sys.stderr, flush=True)  # what a run that is stopped has found

    with tempfile.TemporaryDirectory() as name:
        folder, cache = Path(name), Path(name) / "cache"
        cache.mkdir()
        (reference := folder / "reference.py").write_text(REFERENCE)
        with Verifier(reference, target="cuda", cache=cache) as verifier:
            verifier.judge.baseline()               # as a session's first node does
            for _ in range(given.programs):
                program = written(folder, "tvm", secrets.token_hex(4))
                for what in ("in a session", "in a session, build cached"):
                    started = time.monotonic()
                    accepted(verifier.verify(program))
                    add(what, time.monotonic() - started)
                if given.checkout:
                    other = written(folder, "torch", secrets.token_hex(4))
                    add("KernelBench, load_inline", theirs(given.checkout, other, reference))
        for _ in range(given.programs):
            program, started = written(folder, "tvm", secrets.token_hex(4)), time.monotonic()
            accepted(verify(program, reference, target="cuda", policy="stitched", precision="reference", cache=cache))
            add("verify, from nothing", time.monotonic() - started)
    lines = [
        f"`python benchmarks/reply_to_verdict.py CHECKOUT --programs {given.programs}`, {time.strftime('%Y-%m-%d')}, "
        f"{facts.name}, driver {facts.driver}, torch {facts.torch}. Goals: {OURS:.0f} s fresh, {CACHED:.0f} s cached.",
        "", "| from a reply to a verdict | median | least | most |", "|---|---|---|---|",
        *(f"| {what} | {median(took):.2f} s | {min(took):.2f} s | {max(took):.2f} s |" for what, took in seconds.items()),
    ]  # fmt: skip
    print("\n".join(lines))
    if given.table:
        given.table.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
