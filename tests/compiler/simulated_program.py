"""Runs a program twice on the simulator, in a process of its own as the interceptor patches torch for good.

    python tests/compiler/simulated_program.py FOLDER     # reads model_new.py and given.pt there, writes results.pt
"""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from stitchcuda.tools.device.toolkit import runtime_cache
from stitchcuda.verify.processes.builder import simulator_home
from stitchcuda.verify.program.build_interceptor import Interceptor
from stitchcuda.verify.program.builder_worker import BuilderWorker


def main(folder: Path) -> None:
    given = torch.load(folder / "given.pt")
    builder = BuilderWorker("sim", folder / "cache", "sm_90a", simulator_home(runtime_cache()).place)
    interceptor = Interceptor("sim", folder, lambda order: builder.build(order, folder))
    interceptor.install()
    results = []
    with interceptor.running(), torch.no_grad():
        spec = importlib.util.spec_from_file_location("model_new", folder / "model_new.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        program = module.ModelNew()
        program.load_state_dict(given["state"])
        for _ in range(2):
            args, kwargs = copy.deepcopy(given["call"])
            returned = program(*args, **kwargs)
            inputs = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            results.append(copy.deepcopy((returned, inputs, program.state_dict())))
    torch.save(results, folder / "results.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
