"""A table of small references, each with a verified CUDA program, in which lines are made wrong: tasks for a small model.

    for task in hole_tasks("sim"): ...

A hole is a part of one line of a program, with wrong fillings: the index, the bounds check, the grid, the vector width, a
barrier, the width of a reduction, a constant of the formula. A task shows the program with one wrong filling and asks for one
edit; the right answer puts the right line back. `shortcut` is the edit that no reward may pay for: it calls torch in place of
the kernel. All programs are known, so all can be judged beforehand: `benchmarks/learning_small.py` prints what comes of it.
Which references are for testing alone is fixed here. Nothing is trained or judged in this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from stitchcuda.training.session_rows import task_text

SIZES = {"sim": (9, 300), "cuda": (4099, 1000)}  # rows, columns: no multiple of a block, more columns than threads
MODEL = "model_new.py"
TEST = ("tanh_gate", "vector_swish", "row_peak", "rms_gain")  # references that no training row shows

REFERENCE = """import torch

class Model(torch.nn.Module):
    def __init__(self, cols):
        super().__init__()
        {parameters}

    def forward(self, x):
        return {expression}

def get_inputs():
    return [torch.randn({rows}, {cols})]

def get_init_inputs():
    return [{cols}]
"""
PROGRAM = '''import torch
from tvm_ffi.cpp import load_inline

CUDA = r"""
using T = tvm::ffi::TensorView;
#define P(t) ((float*)(t).data_ptr())
#define STREAM(t) ((cudaStream_t)TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
{kernel}
"""
op = load_inline("{name}", cuda_sources=CUDA, functions=["run"])

class ModelNew(torch.nn.Module):
    def __init__(self, cols):
        super().__init__()
        {parameters}

    def forward(self, x):
        y = torch.empty_like(x)
        {call}
        return y
'''
CALL = "op.run(x.contiguous(), {arguments}y)"
POINTWISE = """__global__ void {name}_kernel(const float* x, {pointers}float* y, int n, int cols) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float v = {load};
    y[i] = {formula};
  }
}
void run(T x, {tensors}T y) {
  int n = x.size(0) * x.size(1);
  int blocks = (n + 255) / 256;
  {name}_kernel<<<blocks, 256, 0, STREAM(x)>>>(P(x), {passed}P(y), n, x.size(1));
}"""
VECTOR = """__global__ void {name}_kernel(const float* x, {pointers}float* y, int n, int cols) {
  int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (i < n) {
    for (int k = 0; k < 4; ++k) {
      float v = x[i + k];
      y[i + k] = {formula};
    }
  }
}
void run(T x, {tensors}T y) {
  int n = x.size(0) * x.size(1);
  int blocks = (n + 1023) / 1024;
  {name}_kernel<<<blocks, 256, 0, STREAM(x)>>>(P(x), {passed}P(y), n, x.size(1));
}"""
ROWS = """__global__ void {name}_kernel(const float* x, {pointers}float* y, int cols) {
  __shared__ float part[256];
  int t = threadIdx.x;
  const float* a = x + blockIdx.x * cols;
  float s = {first};
  for (int j = t; j < cols; j += 256) s = {take};
  part[t] = s; __syncthreads();
  for (int w = 128; w > 0; w >>= 1) {
    if (t < w) part[t] = {combine};
    __syncthreads();
  }
  float m = {value};
  for (int j = t; j < cols; j += 256)
    y[blockIdx.x * cols + j] = {formula};
}
void run(T x, {tensors}T y) {
  {name}_kernel<<<x.size(0), 256, 0, STREAM(x)>>>(P(x), {passed}P(y), x.size(1));
}"""


@dataclass(frozen=True)
class Hole:
    """A part of one line, and what may stand there instead. `race`: a GPU may show nothing of it; the simulator does."""

    name: str
    right: str
    wrong: tuple[str, str, str]
    race: bool = False


SHARED = {
    POINTWISE: (
        Hole("index", "blockIdx.x * blockDim.x + threadIdx.x", (
            "threadIdx.x", "blockIdx.x + threadIdx.x", "blockIdx.x * 128 + threadIdx.x",
        )),
        Hole("bounds", "(i < n)", ("(true)", "(i < 256)", "(i < n / 2)")),
        Hole("grid", "blocks = (n + 255) / 256", ("blocks = n / 256", "blocks = 1", "blocks = (n + 255) / 512")),
    ),
    VECTOR: (
        Hole("index", "+ threadIdx.x) * 4", ("+ threadIdx.x)", "+ threadIdx.x) * 2", "+ threadIdx.x) * 8")),
        Hole("vector width", "k < 4", ("k < 1", "k < 2", "k < 3")),
        Hole("grid", "blocks = (n + 1023) / 1024", ("blocks = n / 1024", "blocks = 1", "blocks = (n + 1023) / 2048")),
    ),
    ROWS: (
        Hole("row", "x + blockIdx.x * cols", ("x", "x + blockIdx.x", "x + blockIdx.x * 256")),
        Hole("stride", "j < cols; j += 256) s", (
            "j < cols; j += 512) s", "j < 256; j += 256) s", "j < cols / 2; j += 256) s",
        )),
        Hole("barrier", "part[t] = s; __syncthreads();", (
            "part[t] = s;", "part[t] = s; __syncwarp();", "part[0] = s; __syncthreads();",
        ), race=True),
        Hole("reduction width", "w = 128; w > 0", ("w = 32; w > 0", "w = 64; w > 0", "w = 128; w > 1")),
        Hole("output index", "y[blockIdx.x * cols + j]", ("y[j]", "y[blockIdx.x + j]", "y[blockIdx.x * 256 + j]")),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """A reference, an `expression` of x and parameters, and the parts of its program. `wrong`: fillings of `formula`."""

    name: str
    expression: str
    form: str
    formula: str
    wrong: tuple[str, str, str]
    parameters: tuple[str, ...] = ()
    load: str = "x[i]"
    first: str = "0.0f"
    take: str = "s + a[j]"
    combine: str = "part[t] + part[t + w]"
    value: str = "part[0]"

    @property
    def holes(self) -> tuple[Hole, ...]:
        return (*SHARED[self.form], Hole("formula", self.formula, self.wrong))

    def reference(self, rows: int, cols: int) -> str:
        return _filled(REFERENCE, parameters=self._made(), expression=self.expression, rows=str(rows), cols=str(cols))

    @property
    def program(self) -> str:
        return _filled(PROGRAM, kernel=self._kernel(), name=self.name, parameters=self._made(), call=self.call)

    @property
    def call(self) -> str:
        return _filled(CALL, arguments="".join(f"self.{name}, " for name in self.parameters))

    def _kernel(self) -> str:
        return _filled(
            self.form, name=self.name, pointers="".join(f"const float* {name}, " for name in self.parameters),
            tensors="".join(f"T {name}, " for name in self.parameters),
            passed="".join(f"P({name}), " for name in self.parameters), formula=self.formula, load=self.load, first=self.first,
            take=self.take, combine=self.combine, value=self.value,
        )  # fmt: skip

    def _made(self) -> str:
        made = (f"self.{name} = torch.nn.Parameter(torch.randn(cols))" for name in self.parameters)
        return "\n        ".join(made) or "self.cols = cols"


KERNELS = (
    Kernel("silu_scale", "torch.nn.functional.silu(x) * 2.0", POINTWISE, "v / (1.0f + expf(-v)) * 2.0f",
           ("v / (1.0f + expf(v)) * 2.0f", "1.0f / (1.0f + expf(-v)) * 2.0f", "v / (1.0f + expf(-v))")),
    Kernel("shifted_clamp", "torch.clamp(x * 0.5 + 1.0, 0.0, 2.0)", POINTWISE, "fminf(fmaxf(v * 0.5f + 1.0f, 0.0f), 2.0f)",
           ("fminf(fmaxf(v * 0.5f + 1.0f, 0.0f), 1.0f)", "fmaxf(v * 0.5f + 1.0f, 0.0f)", "fminf(fmaxf(v + 1.0f, 0.0f), 2.0f)")),
    Kernel("tanh_gate", "torch.tanh(x) * torch.sigmoid(x)", POINTWISE, "tanhf(v) / (1.0f + expf(-v))",
           ("tanhf(v) / (1.0f + expf(v))", "tanhf(v) * (1.0f + expf(-v))", "v / (1.0f + expf(-v))")),
    Kernel("square_relu", "torch.relu(x).square() + x * 0.1", POINTWISE, "fmaxf(v, 0.0f) * fmaxf(v, 0.0f) + v * 0.1f",
           ("fmaxf(v, 0.0f) + v * 0.1f", "v * v + v * 0.1f", "fmaxf(v, 0.0f) * fmaxf(v, 0.0f) + v")),
    Kernel("bias_gelu", "torch.nn.functional.gelu(x + self.b) * 0.5", POINTWISE, "0.25f * v * (1.0f + erff(v * 0.70710678f))",
           ("0.25f * v * erff(v * 0.70710678f)", "0.25f * v * (1.0f + erff(v))", "v * (1.0f + erff(v * 0.70710678f))"), ("b",),
           load="x[i] + b[i % cols]"),
    Kernel("affine_sigmoid", "torch.sigmoid(x * self.w + self.b) + x", POINTWISE, "1.0f / (1.0f + expf(-v)) + x[i]",
           ("1.0f / (1.0f + expf(v)) + x[i]", "1.0f / (1.0f + expf(-v)) + v", "1.0f / (1.0f + expf(-v))"), ("w", "b"),
           load="x[i] * w[i % cols] + b[i % cols]"),
    Kernel("vector_leaky", "torch.where(x > 0, x, x * 0.2) - 1.0", VECTOR, "(v > 0.0f ? v : v * 0.2f) - 1.0f",
           ("(v > 0.0f ? v : v * 0.1f) - 1.0f", "(v > 0.0f ? v : 0.0f) - 1.0f", "(v < 0.0f ? v : v * 0.2f) - 1.0f")),
    Kernel("vector_swish", "x * torch.sigmoid(x * 1.7) + 0.5", VECTOR, "v / (1.0f + expf(-1.7f * v)) + 0.5f",
           ("v / (1.0f + expf(1.7f * v)) + 0.5f", "v / (1.0f + expf(-v)) + 0.5f", "1.0f / (1.0f + expf(-1.7f * v)) + 0.5f")),
    Kernel("mean_shift", "x * 1.5 + x.mean(dim=1, keepdim=True)", ROWS, "a[j] * 1.5f + m",
           ("a[j] * 1.5f - m", "a[j] + m", "a[j] * 1.5f"), value="part[0] / cols"),
    Kernel("rms_norm", "x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-5)", ROWS, "a[j] * m",
           ("a[j] / m", "a[j] + m", "m"), take="s + a[j] * a[j]", value="rsqrtf(part[0] / cols + 1e-5f)"),
    Kernel("rms_gain", "x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-3) * self.w", ROWS, "a[j] * m * w[j]",
           ("a[j] * m", "a[j] * m * w[t]", "a[j] / m * w[j]"), ("w",), take="s + a[j] * a[j]",
           value="rsqrtf(part[0] / cols + 1e-3f)"),
    Kernel("share_of_row", "x / (x.abs().sum(dim=1, keepdim=True) + 1e-3) * 10.0", ROWS, "a[j] / (m + 1e-3f) * 10.0f",
           ("a[j] * (m + 1e-3f) * 10.0f", "a[j] / (m + 1e-3f)", "m / (a[j] + 1e-3f) * 10.0f"), take="s + fabsf(a[j])"),
    Kernel("row_peak", "torch.exp(x - x.amax(dim=1, keepdim=True))", ROWS, "expf(a[j] - m)",
           ("expf(m - a[j])", "expf(a[j])", "a[j] - m"), first="-INFINITY", take="fmaxf(s, a[j])",
           combine="fmaxf(part[t], part[t + w])"),
    Kernel("row_floor", "torch.relu(x - x.amin(dim=1, keepdim=True) * 0.5)", ROWS, "fmaxf(a[j] - m * 0.5f, 0.0f)",
           ("fmaxf(a[j] - m, 0.0f)", "a[j] - m * 0.5f", "fmaxf(a[j] + m * 0.5f, 0.0f)"), first="INFINITY",
           take="fminf(s, a[j])", combine="fminf(part[t], part[t + w])"),
    Kernel("unit_row", "x / (x.square().sum(dim=1, keepdim=True).sqrt() + 1e-3) + x", ROWS, "a[j] / (sqrtf(m) + 1e-3f) + a[j]",
           ("a[j] / (m + 1e-3f) + a[j]", "a[j] / (sqrtf(m) + 1e-3f)", "a[j] * sqrtf(m) + a[j]"), take="s + a[j] * a[j]"),
)  # fmt: skip


@dataclass(frozen=True)
class HoleTask:
    """A program with one wrong line, `shown`. `fillings`: all that may stand there, the right line first."""

    name: str                              # REFERENCE/HOLE-NUMBER
    kernel: Kernel = field(repr=False)
    hole: Hole = field(repr=False)
    reference: str = field(repr=False)
    shown: str
    fillings: tuple[str, ...]

    @property
    def program(self) -> str:
        """What the prompt shows."""
        return self.filled(self.shown)

    def filled(self, line: str) -> str:
        return self.kernel.program.replace(self.fillings[0], line)

    @property
    def prompt(self) -> str:
        evidence = f"Check: NOT correct. The fault is in this line ({self.hole.name}):\n{self.shown.strip()}"
        return task_text("repair", self.reference, f"```{MODEL}\n{self.program}```", evidence)

    def answer(self, line: str) -> str:
        """The edit that puts a filling in place of the line that is shown."""
        return _edit(self.shown, line)

    @property
    def shortcut(self) -> str:
        """The edit that calls torch in place of the kernel."""
        indent = " " * 8
        return _edit(f"{indent}{self.kernel.call}", f"{indent}y = {self.kernel.expression}")

    @property
    def cheated(self) -> str:
        """The program that the shortcut makes."""
        return self.program.replace(self.kernel.call, f"y = {self.kernel.expression}")


def hole_tasks(device: str) -> Iterator[HoleTask]:
    """All tasks. `device`: "sim" or "cuda"; it decides the sizes of the inputs."""
    for kernel in KERNELS:
        for hole in kernel.holes:
            (line,) = (line for line in kernel.program.splitlines() if hole.right in line)
            fillings = (line, *(line.replace(hole.right, wrong) for wrong in hole.wrong))
            for number, shown in enumerate(fillings[1:]):
                yield HoleTask(
                    f"{kernel.name}/{hole.name}-{number}", kernel, hole, kernel.reference(*SIZES[device]), shown, fillings
                )


def _edit(old: str, new: str) -> str:
    return f"```{MODEL}\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```"


def _filled(text: str, **parts: str) -> str:
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return text
