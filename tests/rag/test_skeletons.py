"""Each skeleton compiles by nvcc; what the simulator can run computes there what torch does.

Tensor cores, clusters and dependent launches run there in words that it knows (`simulated_skeletons.py`), which checks indices
but no barriers and copies of the GPU: those, cuBLASLt and cuDNN run in `test_skeletons_gpu.py`.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from stitchcuda.rag.chunk import Chunk
from stitchcuda.rag.excerpts import fit
from stitchcuda.rag.playbook_pages import chunks, skeletons
from stitchcuda.rag.targets import holds_for, skeletons_for
from stitchcuda.tools.build import libraries
from stitchcuda.tools.device import toolkit
from tests.marks import more_but
from tests.rag.simulated_skeletons import without_clusters, without_early_start, without_ptx
from tests.simulator.programs import load

FOLDER = Path(__file__).resolve().parents[2] / "stitchcuda" / "rag" / "skeletons"
SIMULATED = ("block_statistics", "several_kernels", "small_attention", "tiled_product")


@pytest.mark.skipif(toolkit.find_toolkit() is None, reason=toolkit.missing() or "no toolkit")
@pytest.mark.parametrize("name", more_but(sorted(skeletons()), "split_product", "small_attention"))
def test_a_skeleton_compiles(name: str, tmp_path: Path) -> None:
    kit = toolkit.find_toolkit()
    assert kit is not None
    source = FOLDER / f"{name}.cu"
    found = libraries.find(libraries.included_headers([source]), libraries.places(kit))
    if found.missing:
        pytest.skip(" ".join(found.missing.values()))
    folders = [flag for folder in found.includes for flag in ("-isystem", str(folder))]
    flags = ["-std=c++17", "-arch=sm_90a", "-cubin", "-o", str(tmp_path / "a.cubin"), *found.cuda_flags, *folders]
    done = subprocess.run([str(kit.nvcc), *flags, str(source)], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_target_is_offered_what_runs_there() -> None:
    assert tuple(skeletons_for("sim")) == SIMULATED
    assert set(skeletons_for("cuda")) == set(skeletons()) > set(SIMULATED)
    assert [chunk.source for chunk in chunks() if chunk.source.startswith("skeleton:") and holds_for(chunk, "sim", "")] == [
        f"skeleton:{name}" for name in SIMULATED
    ]


def test_a_gpu_is_offered_what_it_can_run_for_the_operators_there_are() -> None:
    """Hopper's instructions are not for Ampere, and a program without a recurrent layer needs no skeleton of one."""
    hopper = set(skeletons()) - set(skeletons_for("cuda", "sm_80"))
    assert hopper == {"dependent_launch", "persistent_recurrent"}
    assert set(skeletons_for("cuda", "sm_100a")) == set(skeletons_for("cuda", "sm_90a")) == set(skeletons())
    ampere = {chunk.source for chunk in chunks() if chunk.source.startswith("skeleton:") and holds_for(chunk, "cuda", "sm_80")}
    assert ampere == {f"skeleton:{name}" for name in set(skeletons()) - hopper}
    always = {"several_kernels", "dependent_launch", "block_statistics"}
    products = {"tiled_product", "pipelined_product", "split_product"}
    offered: dict[str, set[str]] = {
        "aten.relu.default": set(),
        "aten.lstm.input": {"persistent_recurrent"},
        "aten.linear.default": products,
        "aten.conv2d.default": {"implicit_gemm_convolution"},
        "aten.bmm.default": products | {"small_attention", "tensor_core_attention"},
    }
    for operator, more in offered.items():
        assert set(skeletons_for("cuda", "sm_90a", [operator])) == always | more, operator
        assert set(skeletons_for("sim", "sm_90a", [operator])) <= set(SIMULATED)


def test_a_skeleton_is_found_by_its_name() -> None:
    by_name: dict[str, Chunk] = {name: chunk for chunk in chunks() for name in chunk.names}
    assert "cublasLtMatmul(" in by_name["skeleton:split_product"].text


def test_a_skeleton_that_does_not_fit_shows_what_it_is_for() -> None:
    found = next(chunk for chunk in chunks() if chunk.source == "skeleton:pipelined_product")
    said = fit([found], 700, lambda text: len(text) // 3)
    assert said.startswith(f"[{found.citation}]\n// A pipelined product")
    assert "#include" not in said


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + shape[-1]))


def close(found: torch.Tensor, right: torch.Tensor) -> None:
    torch.testing.assert_close(found, right.to(torch.float32), rtol=1e-5, atol=1e-5)


def test_several_kernels_share_a_workspace(tmp_path: Path) -> None:
    """Called twice with one workspace, which holds NaN at first: nothing is read before it is written."""
    run = load(tmp_path, skeletons()["several_kernels"])
    workspace = torch.full((8, 300), torch.nan)
    for rows in (37, 5):
        x = drawn(rows, 300)
        close(run(x, workspace, torch.empty_like(x), rows, 300), x.double() - x.double().mean(0))


def test_block_statistics(tmp_path: Path) -> None:
    run = load(tmp_path, skeletons()["block_statistics"])
    x, affine = drawn(9, 700) + 30, drawn(2, 700)
    right = functional.layer_norm(x.double(), (700,), affine[0].double(), affine[1].double())
    close(run(x, affine, torch.empty_like(x), 9, 700), right)


def test_tiled_product(tmp_path: Path) -> None:
    run = load(tmp_path, skeletons()["tiled_product"])
    a, b = drawn(70, 37), drawn(70, 37).flip(0).contiguous()
    close(run(a, b, torch.empty(70, 70), 70, 37), a.double() @ b.double().t())


def test_small_attention(tmp_path: Path) -> None:
    run = load(tmp_path, skeletons()["small_attention"])
    q, kv = drawn(3, 21, 32), drawn(2, 3, 21, 32)
    right = functional.scaled_dot_product_attention(q.double(), kv[0].double(), kv[1].double(), is_causal=True)
    close(run(q, kv, torch.empty_like(q), 3, 21), right)


def test_dependent_launch(tmp_path: Path) -> None:
    run = load(tmp_path, without_early_start(skeletons()["dependent_launch"]))
    workspace = torch.full((32, 300), torch.nan)
    for rows in (37, 5):
        x = drawn(rows, 300)
        close(run(x, workspace, torch.empty_like(x), rows, 300), x.double() - x.double().mean(0))


@pytest.mark.more
@pytest.mark.parametrize(("m", "n", "k"), [(5, 9, 7), (70, 67, 170)])
def test_pipelined_product(m: int, n: int, k: int, tmp_path: Path) -> None:
    """Rows differ in size by powers of two up to 2^40, which a scale for the whole operand would lose."""
    entry = f"""
extern "C" int run(void* a, void* b, void* c, int, int, cudaStream_t stream) {{
  constexpr int M = {m}, N = {n}, K = {k};
  float *x = static_cast<float*>(a), *w = static_cast<float*>(b), *y = static_cast<float*>(c), *undo;
  __half* parts;
  cudaMalloc(&undo, (M + N) * sizeof(float)), cudaMalloc(&parts, 2 * (M + N) * padded(K) * sizeof(__half));
  __half* right = parts + 2 * M * padded(K);
  if (split_launch(x, parts, undo, M, K, stream) || split_launch(w, right, undo + M, N, K, stream)) return 1;
  return SHAPE_CALL;
}}
"""
    small = "product_launch(parts, undo, right, undo + M, w + N * K, y, M, N, K, stream)"
    large = "launch<128, 128, 64, 32>(parts, undo, right, undo + M, w + N * K, y, M, N, K, stream)"
    a, b, bias = drawn(m, k), drawn(n, k), drawn(n)
    a.mul_(torch.exp2(torch.arange(m).float() % 41 - 20)[:, None])
    right = functional.linear(a.double(), b.double())
    for call in (small, large):
        run = load(tmp_path, without_ptx(skeletons()["pipelined_product"]) + entry.replace("SHAPE_CALL", call))
        found = run(a, torch.cat((b.flatten(), 0 * bias)), torch.empty(m, n)).double()
        assert float(((found - right).norm(dim=1) / right.norm(dim=1)).max()) < 1e-6
    right += bias
    found = run(a, torch.cat((b.flatten(), bias)), torch.empty(m, n))
    assert float(((found - right).norm(dim=1) / right.norm(dim=1)).max()) < 1e-6


@pytest.mark.more
@pytest.mark.parametrize(
    ("queries", "keys", "head", "causal", "dtype", "bound"),
    [
        (70, 70, 32, 1, torch.float32, 1e-6), (17, 90, 50, 0, torch.float32, 1e-6), (40, 40, 97, 1, torch.float32, 1e-6),
        (70, 70, 64, 1, torch.float16, 1e-3), (17, 90, 50, 0, torch.bfloat16, 1e-2),
    ],
)  # fmt: skip
def test_tensor_core_attention(
    queries: int, keys: int, head: int, causal: int, dtype: torch.dtype, bound: float, tmp_path: Path
) -> None:
    values = "const float" if dtype == torch.float32 else "const unsigned short"
    sizes = f"2, {queries}, {keys}, {head}, {causal}"
    single = f"run(q, kv, kv + count, static_cast<float*>(c), {sizes}, stream)"
    half = f"run_half(q, kv, kv + count, c, {sizes}, {int(dtype == torch.bfloat16)}, stream)"
    entry = f"""
extern "C" int entry(void* a, void* b, void* c, int, int, cudaStream_t stream) {{
  {values} *q = static_cast<{values}*>(a), *kv = static_cast<{values}*>(b);
  const size_t count = static_cast<size_t>(2) * {keys} * {head};
  return {single if dtype == torch.float32 else half};
}}
"""
    text = without_ptx(skeletons()["tensor_core_attention"]) + entry
    run = load(tmp_path, re.sub(r"\brun\(", "run_single(", text).replace("int entry(", "int run("))
    q, kv = (drawn(2, queries, head) * 3).to(dtype), drawn(2, 2, keys, head).to(dtype)
    kv[1] *= 100
    right = functional.scaled_dot_product_attention(q.double(), kv[0].double(), kv[1].double(), is_causal=causal != 0)
    found = run(q, kv, torch.full_like(q, torch.nan)).double()
    assert float((found - right).norm() / right.norm()) < bound


@pytest.mark.more
@pytest.mark.parametrize(("gru", "batch", "hidden"), [(0, 3, 21), (1, 3, 21), (0, 18, 32), (1, 35, 50)])
def test_persistent_recurrent(gru: int, batch: int, hidden: int, tmp_path: Path) -> None:
    steps, torchs = 4, (torch.nn.GRU if gru else torch.nn.LSTM)(7, hidden).requires_grad_(False)
    w_ih, w_hh, b_ih, b_hh = torchs.parameters()
    x, h0, c0 = drawn(steps, batch, 7), drawn(1, batch, hidden), drawn(1, batch, hidden) * 0.5
    gates = functional.linear(x, w_ih, b_ih if gru else b_ih + b_hh)
    given = torch.cat([tensor.flatten() for tensor in (gates, w_hh, b_hh, h0, c0)])
    size = batch * hidden
    entry = f"""
extern "C" int entry(void* a, void* b, void* c, int, int, cudaStream_t stream) {{
  const float* from = static_cast<const float*>(a);
  float* to = static_cast<float*>(c);
  const float *w = from + {gates.numel()}, *bias = w + {w_hh.numel()}, *h = bias + {b_hh.numel()}, *cell = h + {size};
  return run(from, w, {gru} ? bias : nullptr, h, {gru} ? nullptr : cell, to, to + {steps * size},
             {gru} ? nullptr : to + {(steps + 1) * size}, {steps}, {batch}, {hidden}, {gru}, stream);
}}
"""
    text = without_clusters(skeletons()["persistent_recurrent"]) + entry
    run = load(tmp_path, re.sub(r"\brun\(", "recurrent_run(", text).replace("int entry(", "int run("))
    found = run(given, None, torch.full(((steps + 2 - gru) * size,), torch.nan))
    exact = torchs.double()
    out, last = exact(x.double(), h0.double() if gru else (h0.double(), c0.double()))
    right = torch.cat([tensor.flatten() for tensor in (out, *((last,) if gru else last))])
    close(found, right)
