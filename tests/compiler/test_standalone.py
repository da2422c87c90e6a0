"""A written program needs torch and apache-tvm-ffi[cpp] and nothing else: it runs in a fresh virtual environment that has only
these, computes what the reference does, and says in one sentence what it cannot do.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement
from torch import Tensor, nn

from stitchcuda.compiler.printing.program import write_program
from stitchcuda.tools.device.toolkit import find_toolkit
from stitchcuda.verify.compare import bound
from stitchcuda.verify.reference import float64_truth
from tests.compiler.pipeline import captured, stitched, write

EXAMPLES = Path(__file__).parents[2] / "examples"
KEPT = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "LANG", "LC_ALL", "TMPDIR", "CXX", "CC")
USE = '''
import importlib.util
import sys
from pathlib import Path

import torch

for name in ("stitchcuda", "langgraph"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        continue
    sys.exit(f"{name} is in the fresh environment")

folder = Path(sys.argv[1])
given = torch.load(folder / "given.pt")
spec = importlib.util.spec_from_file_location("model_new", folder / "model_new.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
program = module.ModelNew().to("cuda").train(given["training"])
inputs = [x.to("cuda") for x in given["inputs"]]
results = []
with torch.no_grad():
    for x in inputs:
        program.load_state_dict(given["state"])
        output = program(x)
        buffers = {f"buffer:{key}": value.cpu() for key, value in program.state_dict().items()}
        results.append({"output": output.cpu(), **buffers})

refusals = {}
strided = inputs[0].transpose(-1, -2).contiguous().transpose(-1, -2)
for what, x in {"strided": strided, "gradients": inputs[0].clone().requires_grad_()}.items():
    try:
        program(x)
    except Exception as error:
        refusals[what] = str(error)
torch.save({"results": results, "refusals": refusals}, folder / "results.pt")
'''


def distributions(*names: str) -> dict[str, importlib.metadata.Distribution]:
    """These distributions and all that they require, by name. One that is not installed here is not missed there."""
    found: dict[str, importlib.metadata.Distribution] = {}
    seen, waiting = set(), [Requirement(name) for name in names]
    while waiting:
        requirement = waiting.pop()
        name = requirement.name.lower().replace("_", "-").replace(".", "-")
        if (name, *requirement.extras) in seen:
            continue
        seen.add((name, *requirement.extras))
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.distribution(requirement.name)
            for inner in map(Requirement, found[name].requires or ()):
                if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)):
                    waiting.append(inner)
    return found


def link(distribution: importlib.metadata.Distribution, packages: Path, programs: Path) -> None:
    """Every file of an installed distribution, in another environment; of those outside its packages, the programs."""
    files = distribution.files
    assert files, f"{distribution.metadata['Name']} does not say what its files are"
    root = Path(str(distribution.locate_file("")))
    for file in files:
        outside = file.parts[0] == ".."
        if outside and "bin" not in file.parts:
            continue
        source = Path(str(distribution.locate_file(file)))
        if outside and (root / "bin" / file.name).is_file():  # pip install --target puts them there
            source = root / "bin" / file.name
        target = programs / file.name if outside else packages / file
        if source.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source.resolve())


@pytest.fixture(scope="module")
def fresh_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new virtual environment without pip, which has what a program asks for and nothing else."""
    home = tmp_path_factory.mktemp("fresh") / "venv"
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, "-I", "-m", "venv", "--without-pip", str(home)], check=True)
    packages = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    assert list(packages.iterdir()) == []
    wanted = distributions("torch", "apache-tvm-ffi[cpp]")
    assert {"torch", "apache-tvm-ffi", "ninja", "typing-extensions"} <= set(wanted)
    assert not {"stitchcuda", "langgraph"} & set(wanted)
    for one in wanted.values():
        link(one, packages, home / "bin")
    return home / "bin" / "python"


def example(name: str, device: str) -> tuple[nn.Module, list[Tensor], str]:
    """An example's model in its own mode, two inputs, and its source."""
    path = EXAMPLES / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"example_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(1)
    model: nn.Module = module.Model(*module.get_init_inputs()).requires_grad_(False).to(device)
    return model, [module.get_inputs()[0].to(device) for _ in range(2)], path.read_text()


def written(name: str, host: tuple[str, ...], device: str, folder: Path) -> tuple[nn.Module, list[Tensor]]:
    """An example's program with all its kernels, and beside it what it is to be called with; returns model and inputs."""
    model, inputs, source = example(name, device)
    graph = captured(copy.deepcopy(model), (tuple(inputs[:1]), {}))
    stitches = stitched(graph)
    assert stitches
    write(write_program(graph, stitches, host, reference=source, name=name), folder)
    given = {"state": model.state_dict(), "inputs": inputs, "training": model.training}
    torch.save({key: _on_cpu(value) for key, value in given.items()}, folder / "given.pt")
    return model, inputs


def _on_cpu(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: one.cpu() for key, one in value.items()}
    return [one.cpu() for one in value] if isinstance(value, list) else value


def use(python: Path, folder: Path, home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs the program in the fresh environment, with a home and so with caches of its own."""
    toolkit = find_toolkit()
    environment = {name: os.environ[name] for name in KEPT if name in os.environ} | {"HOME": str(home)}
    environment["PATH"] = f"{python.parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    environment |= {"CUDA_HOME": str(toolkit.home)} if toolkit else {}
    home.mkdir(exist_ok=True)
    command = [str(python), "-I", "-c", USE, str(folder)]
    return subprocess.run(command, env=environment | more, cwd=home, capture_output=True, text=True, check=False)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["llama_mlp", "resnet_block"])
def test_a_program_runs_where_there_is_only_torch(name: str, fresh_python: Path, tmp_path: Path) -> None:
    for host in ((), ("cuda_graph",)):
        folder = tmp_path / "_".join(["program", *host])
        model, inputs = written(name, host, "cuda", folder)
        done = use(fresh_python, folder, tmp_path / "home")
        assert done.returncode == 0, done.stderr
        found = torch.load(folder / "results.pt")
        expected = [float64_truth.run(model, (x,), {}) for x in inputs]
        exact = [float64_truth.run64(model, (x,), {}) for x in inputs]
        assert any(key.startswith("buffer:") for key in expected[0]) == (name == "resnet_block")
        for key in expected[0]:
            own, true = [one[key].cpu() for one in expected], [one[key].cpu() for one in exact]
            allowed = bound.bound(own, true)
            for result, one, other in zip(found["results"], own, true, strict=True):
                verdict = bound.judge(key, result[key], one, other, allowed)
                assert verdict.ok, verdict
        assert "contiguous" in found["refusals"]["strided"]
        assert "gradients" in found["refusals"]["gradients"]
        assert all(len(text.splitlines()) == 1 for text in found["refusals"].values())
    assert list((tmp_path / "home").rglob("*.so")), "the kernels were built here, not found in another cache"


@pytest.mark.parametrize("host", [(), pytest.param(("cuda_graph",), marks=pytest.mark.more)], ids=["plain", "graph"])
def test_without_a_gpu_a_program_says_so_and_gives_no_numbers(
    host: tuple[str, ...], fresh_python: Path, tmp_path: Path
) -> None:
    written("llama_mlp" if host else "resnet_block", host, "cpu", tmp_path / "program")
    done = use(fresh_python, tmp_path / "program", tmp_path / "home", CUDA_VISIBLE_DEVICES="")
    said = [line for line in done.stderr.splitlines() if re.match(r"\w+(Error|Exception): ", line)]
    assert done.returncode == 1
    assert said == ["RuntimeError: This program runs on an NVIDIA GPU, and torch sees none on this machine."]
    assert done.stdout == ""
    assert not (tmp_path / "program" / "results.pt").exists()
