"""Times fp32 linear layers on a GPU: torch's, in TF32, and as the built-in engineer writes them, in three fp16 parts.

    python benchmarks/split_products.py [--json FILE]

For each shape (rows, length, columns) a layer is captured, rewritten (`compiler/templates/split_products.py`) and printed
with its kernels, as in a session. Each is replayed as a CUDA graph, by turns, on input sets that rotate through more than the
L2 cache. Errors are against float64, over those of torch's own fp32: of the norm, and of the worst element. Needs nvcc.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from stitchcuda.compiler.capture.capture import capture
from stitchcuda.compiler.codegen.emit import emit
from stitchcuda.compiler.lower.ir import Stitch
from stitchcuda.compiler.lower.lower import bind, lower
from stitchcuda.compiler.printing.program import write_program
from stitchcuda.compiler.regions.partition import partition
from stitchcuda.compiler.templates.split_products import find_products, gaining, split_products
from stitchcuda.tools.device.device import device_facts

SHAPES = (
    (4096, 4096, 4096), (1024, 512, 512), (4096, 256, 1024), (512, 768, 3072), (65536, 768, 3072), (8192, 8192, 8192),
    (128, 16384, 16384), (128, 16384, 32768), (1, 4096, 4096),
)  # fmt: skip
CACHE = 120 * 2**20                        # bytes that the inputs of one turn cover
TURNS, REPLAYS = 15, 8


@dataclass(frozen=True)
class Row:
    """One shape. Milliseconds of a layer, errors over fp32's own (norm, worst), and whether a session would split it."""

    rows: int
    length: int
    columns: int
    gains: bool
    fp32_ms: float
    tf32_ms: float
    split_ms: float
    tf32_error: tuple[float, float]
    split_error: tuple[float, float]


def program_of(layer: nn.Linear, x: Tensor, folder: Path) -> tuple[nn.Module, bool]:
    """Returns the layer's program with its products split, and whether the cost model would split them."""
    with torch.device("meta"):
        plain = nn.Linear(layer.in_features, layer.out_features).requires_grad_(False)
    graph = capture(plain, (torch.empty(x.shape, device="meta"),), {})
    products = find_products(graph)
    gains = bool(gaining(products, device_facts("cuda")))
    graph = split_products(graph, products)
    stitches = []
    for region in partition(graph):
        if region.kind == "fusible":
            kernel = lower(graph, region)
            stitches.append(Stitch(region.id, kernel, emit(kernel), bind(graph, region, kernel)))
    for path, text in write_program(graph, stitches).items():
        (place := folder / path).parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
    spec = importlib.util.spec_from_file_location(f"split_{folder.name}", folder / "model_new.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    program: nn.Module = module.ModelNew().cuda()
    program.load_state_dict(layer.state_dict())
    return program, gains


def replay_of(call: Callable[[Tensor], Tensor], inputs: list[Tensor]) -> Callable[[], None]:
    """Returns a function that replays one call for each input set."""
    for x in inputs:
        call(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for x in inputs:
            call(x)
    return graph.replay


def milliseconds(replays: dict[str, Callable[[], None]], calls: int) -> dict[str, float]:
    """Returns the median time of a call by name; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in replays}
    for _ in range(TURNS):
        for name, replay in replays.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            begin.record()
            for _ in range(REPLAYS):
                replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) / REPLAYS / calls)
    return {name: statistics.median(found) for name, found in times.items()}


def errors(found: Tensor, truth: Tensor) -> tuple[float, float]:
    off = found.double() - truth
    return float(off.norm()), float(off.abs().max())


@torch.no_grad()
def measure(rows: int, length: int, columns: int, folder: Path) -> Row:
    torch.manual_seed(0)
    layer = nn.Linear(length, columns).cuda().requires_grad_(False)
    count = max(1, min(8, CACHE // (4 * rows * (length + columns)) + 1))
    inputs = [torch.randn(rows, length, device="cuda") for _ in range(count)]
    program, gains = program_of(layer, inputs[0], folder)
    truth = nn.functional.linear(inputs[0].double(), layer.weight.double(), layer.bias.double())
    own = errors(layer(inputs[0]), truth)
    split = errors(program(inputs[0]), truth)
    torch.backends.cuda.matmul.allow_tf32 = True
    tf32 = errors(layer(inputs[0]), truth)
    fast = replay_of(layer, inputs)
    torch.backends.cuda.matmul.allow_tf32 = False
    del truth
    replays = {"fp32": replay_of(layer, inputs), "tf32": fast, "split": replay_of(program, inputs)}
    took = milliseconds(replays, count)
    return Row(
        rows, length, columns, gains, took["fp32"], took["tf32"], took["split"],
        (tf32[0] / own[0], tf32[1] / own[1]), (split[0] / own[0], split[1] / own[1]),
    )  # fmt: skip


def line(row: Row) -> str:
    def both(error: tuple[float, float]) -> str:
        return f"{error[0]:.1f} / {error[1]:.1f}"

    return (
        f"| {row.rows}, {row.length}, {row.columns} | {row.fp32_ms:.4f} | {row.tf32_ms:.4f} | {both(row.tf32_error)} | "
        f"{row.split_ms:.4f} | {both(row.split_error)} | {row.fp32_ms / row.split_ms:.2f}× | {'yes' if row.gains else 'no'} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    asked = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print("| M, K, N | fp32 ms | TF32 ms | error × | split ms | error × | over fp32 | a session splits it |")
    print("|---|---|---|---|---|---|---|---|")
    rows = []
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(*shape, Path(folder)))
        print(line(rows[-1]), flush=True)
        torch.cuda.empty_cache()
        if asked.json:
            asked.json.write_text(json.dumps([asdict(row) for row in rows]))
    return 0 if all(max(row.split_error) < 10 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
