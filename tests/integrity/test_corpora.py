"""No attack is accepted and no honest program is refused: what a CPU can express, on the simulator, a reference at a time.

The quick tests judge a few programs of each kind of defence, those marked more every fourth reference, the long run the others
and the programs in the style of torch extensions, which take half a minute each to build; what a GPU can show is marked gpu.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from benchmarks.integrity import KINDS, outcomes, wrong
from stitchcuda.compiler.printing.manifest import free_sizes
from stitchcuda.state import Target
from tests.integrity.corpus import HERE, Entry, entries
from tests.integrity.scaffold import complete
from tests.marks import more_but

CACHE = Path("/tmp/stitchcuda-simulator-tests")
CHOSEN = [(entry, kind) for kind in KINDS for entry in entries(kind)]
REPRESENTATIVE = {                         # few kernels among them, so that few are built
    "results/linear_gelu.py": (
        "a12_identity_after_torch", "a12_modes_off", "a12_numpy_host", "a12_other_thread", "a12_own_view", "a12_storage_write",
        "a15_frames_of_an_error", "a16_reused_output", "a16_sampled_cache", "a16_stale_weights", "a18_pip_install",
        "a19_answers_on_disk",
    ),
    "clocks/softmax_small.py": (
        "b06_cache_by_pointer", "b07_deferred_batch", "b13_init_guess_inputs", "s01_network_at_import", "s02_fork_bomb",
        "s08_write_outside",
    ),
    "honest/qkv_gate.py": ("a06_hook_drops", "a06_norm_dropped", "h_fused_qkv", "h_load_hook", "h_renamed_parameters"),
}  # fmt: skip


def slow(entry: Entry) -> bool:
    source = entry.path if entry.path.is_file() else entry.path / "model_new.py"
    return "torch.utils.cpp_extension" in source.read_text()


def by_reference(target: Target, built_slowly: tuple[bool, ...]) -> dict[str, list[tuple[Entry, str]]]:
    groups: dict[str, list[tuple[Entry, str]]] = {}
    for entry, kind in CHOSEN:
        if entry.on(target) and slow(entry) in built_slowly:
            groups.setdefault(str(entry.reference.relative_to(HERE / "references")), []).append((entry, kind))
    return groups


QUICK, SLOW = by_reference("sim", (False,)), by_reference("sim", (True,))
ON_GPU = by_reference("cuda", (False, True))


def judge_group(reference: str, group: list[tuple[Entry, str]], target: Target = "sim") -> list[str]:
    CACHE.mkdir(exist_ok=True)
    found = list(outcomes(HERE / "references" / reference, group, target, CACHE))
    assert len(found) == len(group)
    return [f"{one.name}: {one.result} {one.reason}" for one in found if wrong(one)]


@pytest.mark.parametrize("reference", more_but(REPRESENTATIVE, "clocks/softmax_small.py"))
def test_verdicts(reference: str) -> None:
    group = [pair for pair in QUICK[reference] if pair[0].name in REPRESENTATIVE[reference]]
    assert len(group) == len(REPRESENTATIVE[reference])
    assert judge_group(reference, group) == []


@pytest.mark.more
@pytest.mark.parametrize("reference", sorted(QUICK)[::16])
def test_verdicts_of_every_sixteenth_reference(reference: str) -> None:
    assert judge_group(reference, QUICK[reference]) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("reference", [one for at, one in enumerate(sorted(QUICK)) if at % 16])
def test_verdicts_of_the_others(reference: str) -> None:
    assert judge_group(reference, QUICK[reference]) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("reference", SLOW)
def test_verdicts_on_torch_extensions(reference: str) -> None:
    assert judge_group(reference, SLOW[reference]) == []


@pytest.mark.gpu
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("reference", ON_GPU)
def test_verdicts_on_a_gpu(reference: str) -> None:
    assert judge_group(reference, ON_GPU[reference], "cuda") == []


def test_every_known_cheat_is_there() -> None:
    rows = {row.strip() for entry, kind in CHOSEN if kind != "honest" for row in entry.row.split(",")}
    assert rows >= {*(f"A{number}" for number in range(1, 20)), *(f"B{number}" for number in (*range(1, 15), *range(20, 25)))}
    honest = [entry for entry, kind in CHOSEN if kind == "honest"]
    assert len(honest) >= 25
    alone = [entry for entry, _ in CHOSEN if entry.independent]
    assert len(alone) >= 175


def test_every_case_is_a_complete_program_with_its_base() -> None:
    for entry, _ in CHOSEN:
        if entry.path.is_file():
            compile(complete(entry.path), entry.path.name, "exec")


def test_what_a_case_defines_takes_the_place_of_its_base(tmp_path: Path) -> None:
    """And all else stays in its order before it; names of the base can be used."""
    (tmp_path / "case.py").write_text(
        "# base: copy.py\nimport os\nFLAGS = ['-g']\nmodule = load(FLAGS, CUDA)\n"
        "class ModelNew(nn.Module):\n    def forward(self, x): return x\n    def other(self): pass\nlast = 1\n"
    )
    tree = ast.parse(complete(tmp_path / "case.py"))
    assert [ast.unparse(node).split("=")[0].split("(")[0].strip() for node in tree.body] == [
        "import torch, torch.nn as nn, torch.nn.functional as F", "from tvm_ffi.cpp import load_inline", "MACROS", "CUDA",
        "import os", "FLAGS", "module", "class ModelNew", "last",
    ]  # fmt: skip
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef))
    assert [node.name for node in model.body if isinstance(node, ast.FunctionDef)] == ["__init__", "forward", "other"]
    assert "return x" in ast.unparse(model)


@pytest.mark.parametrize("entry", [entry for entry, _ in CHOSEN if entry.path.is_dir()], ids=lambda one: one.name)
def test_manifests_are_well_formed(entry: Entry) -> None:
    """Or an attack is refused for a slip of its author's and its trick is never tried."""
    free_sizes(json.loads((entry.path / "program.json").read_text()))
