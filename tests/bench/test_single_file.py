"""Programs as single files: what KernelBench's evaluation does with one (exec of its text, the reference's seed), on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch

from stitchcuda.bench.results import Asked, RunFolder
from stitchcuda.bench.single_file import single_file, write_single_files
from stitchcuda.errors import BadInput
from stitchcuda.state import Settings

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = torch.nn.Linear(size, size)
        self.register_buffer("offset", torch.rand(size))

    def forward(self, x):
        return self.linear(x) + self.offset
"""
PROGRAM = r'''
"""It's a program with a "\n" and \'\'\' in its text."""
from pathlib import Path
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, *_):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("offset", torch.full((4,), torch.nan))
        self.kernel = (Path(__file__).resolve().parent / "kernels" / "add.cu").read_text()

    def forward(self, x):
        return self.linear(x) + self.offset
'''
KERNEL = "__global__ void add(float* x) { x[0] += '\\n'; }\n// it's quoted: ''' and \\u00e9 \u00e9\n"


def files(tmp_path: Path) -> tuple[Path, Path]:
    program = tmp_path / "program"
    (program / "kernels").mkdir(parents=True)
    (program / "model_new.py").write_text(PROGRAM)
    (program / "kernels" / "add.cu").write_text(KERNEL)
    (program / "program.json").write_text("{}")
    reference = tmp_path / "reference.py"
    reference.write_text(REFERENCE)
    return program, reference


def test_its_parameters_are_the_reference_s_under_one_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, reference = files(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ours: dict[str, type[torch.nn.Module]] = {}
    theirs: dict[str, type[torch.nn.Module]] = {}
    exec(compile(single_file("p", program, reference), "<string>", "exec"), ours)
    exec(REFERENCE, theirs)
    torch.manual_seed(7)
    expected = theirs["Model"](4)
    torch.manual_seed(7)
    model = ours["ModelNew"](4)
    x = torch.rand(3, 4)
    assert torch.equal(model(x), expected(x))
    assert model.get_submodule("program").kernel == KERNEL
    (folder,) = (tmp_path / "cache" / "stitchcuda-single-files").iterdir()
    assert {file.name for file in folder.rglob("*.*")} >= {"model_new.py", "add.cu", "reference.py"}
    (folder / "kernels" / "add.cu").write_text("damaged")
    assert ours["ModelNew"](4).get_submodule("program").kernel == KERNEL


def test_a_run_without_accepted_programs_and_verdicts_are_refused(tmp_path: Path) -> None:
    kinds: list[tuple[Literal["run", "verify"], str]] = [("run", "has no accepted program"), ("verify", "programs of others")]
    for kind, said in kinds:
        out = tmp_path / kind
        run = RunFolder(out)
        run.begin(Asked(kind=kind, source="folder", path=".", problems=(), contents=(), settings=Settings()))
        run.release()
        with pytest.raises(BadInput, match=said):
            write_single_files(out, tmp_path / "files")
    assert not (tmp_path / "files").exists()
    with pytest.raises(BadInput, match="holds no benchmark's run"):
        write_single_files(tmp_path / "nothing", tmp_path / "files")
