"""A module given in Python: written so that a worker in another folder can read it, and readable for people."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from stitchcuda.errors import BadInput
from stitchcuda.graph.opening import open_record
from stitchcuda.store import Workspace

SOURCE = """
import torch

class Doubling(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x, *, shift):
        return x * self.weight + shift
"""
READ = """
import pickle, sys
held = pickle.load(open(sys.argv[1], "rb"))
print(held["module"](*held["args"], **held["kwargs"]).tolist())
"""


@pytest.fixture
def doubling(tmp_path: Path) -> Any:
    path = tmp_path / "my_models.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("my_models", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["my_models"] = module
    spec.loader.exec_module(module)
    yield module.Doubling()
    del sys.modules["my_models"]


def test_a_worker_elsewhere_can_run_it(tmp_path: Path, doubling: Any) -> None:
    home = Workspace(tmp_path / "w")
    inputs = {"x": torch.ones(3), "shift": 1.0}
    record = open_record(home, doubling, inputs, name=None, device="sim", settings={})
    assert (record.name, record.reference_name, record.reference_path) == ("Doubling-1", "Doubling.pkl", "")
    stored = home.folder(record.name) / record.reference_name
    done = subprocess.run([sys.executable, "-c", READ, str(stored)], cwd="/", capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[3.0, 3.0, 3.0]", done.stderr
    source = home.store.get(record.source).decode()
    assert "class Doubling" in source
    assert "# Doubling()" in source


@pytest.mark.parametrize(
    ("given", "args", "kwargs"),
    [((1, 2), (1, 2), {}), ([1], (1,), {}), ({"x": 1}, (), {"x": 1}), (torch.ones(1), (torch.ones(1),), {})],
)
def test_example_inputs_as_people_give_them(tmp_path: Path, given: Any, args: Any, kwargs: Any) -> None:
    home = Workspace(tmp_path)
    record = open_record(home, torch.nn.ReLU(), given, name="r", device="sim", settings={})
    held = pickle.loads(home.store.get(record.reference))
    assert held["args"] == args
    assert held["kwargs"] == kwargs


def test_a_function_that_makes_inputs_is_stored_with_the_module(tmp_path: Path) -> None:
    home, length = Workspace(tmp_path), 3
    record = open_record(home, torch.nn.ReLU(), lambda: torch.ones(length), name="r", device="sim", settings={})
    held = pickle.loads(home.store.get(record.reference))
    assert held["make_inputs"]().tolist() == [1.0, 1.0, 1.0]
    assert "args" not in held


def test_what_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    module = torch.nn.ReLU()
    module.lock = __import__("threading").Lock()
    with pytest.raises(BadInput, match=r"ReLU and its example inputs cannot be stored .*give a reference file"):
        open_record(Workspace(tmp_path), module, (1,), name="r", device="sim", settings={})


def test_a_file_is_recorded_relative_to_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "my model.v2.py").write_text("class Model: ...")
    home = Workspace(tmp_path / "w")
    record = open_record(home, tmp_path / "my model.v2.py", None, name=None, device="sim", settings={})
    assert (record.name, record.reference_name) == ("my_model_v2-1", "my_model_v2.py")
    assert record.reference_path == "../my model.v2.py"
