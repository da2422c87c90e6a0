"""Each skeleton compiles by nvcc; what the simulator can run computes there what torch does, and the rest on a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from stitchcuda.rag.chunk import Chunk
from stitchcuda.rag.playbook_pages import chunks, skeletons
from stitchcuda.rag.targets import holds_for, skeletons_for
from stitchcuda.tools.build import libraries
from stitchcuda.tools.device import toolkit
from tests.simulator.programs import load

FOLDER = Path(__file__).resolve().parents[2] / "stitchcuda" / "rag" / "skeletons"
SIMULATED = ("block_statistics", "several_kernels", "small_attention", "tiled_product")


@pytest.mark.skipif(toolkit.find_toolkit() is None, reason=toolkit.missing() or "no toolkit")
@pytest.mark.parametrize("name", sorted(skeletons()))
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


def test_a_skeleton_is_found_by_its_name() -> None:
    by_name: dict[str, Chunk] = {name: chunk for chunk in chunks() for name in chunk.names}
    assert "cublasLtMatmul(" in by_name["skeleton:split_product"].text


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
