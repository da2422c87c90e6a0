"""Calls the reference or a judged program in a process of its own, started by another command such as a profiler.

Runs in the judge process. A program runs in the sandbox as it does in its worker, with the libraries that were built for it, on
inputs that no verdict depends on any more; the reference is the user's own and runs without a sandbox. No verdict rests on what
comes out.
Where to look next: `verify/program/profiled_process.py` (what runs), `verify/client.py` (who asks).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import stitchcuda
from stitchcuda.sandbox import command
from stitchcuda.sandbox.command import Finished
from stitchcuda.sandbox.limits import Limits, clean_environment
from stitchcuda.state import Precision, Target
from stitchcuda.verify.inputs.reference_requests import Ask, SaveBlock
from stitchcuda.verify.inputs.secret_inputs import SecretInputs
from stitchcuda.verify.integrity import device_time
from stitchcuda.verify.messages.judge_requests import RunUnder
from stitchcuda.verify.messages.request import plain
from stitchcuda.verify.messages.tensor_block import TensorBlock
from stitchcuda.verify.processes.worker import Worker, grant_library
from stitchcuda.verify.program.profiled_process import CalledProgram, CalledReference, ProfileOrder, SavedBlock
from stitchcuda.verify.program.trial import Trial

_PACKAGE = Path(stitchcuda.__file__).resolve().parent
_SCRIPT = str(_PACKAGE / "verify" / "program" / "profiled_process.py")
_TAIL = 20_000                             # characters of output that are kept


class ProfiledRun:
    """One such run: prepare the reference or a program, then `run` once."""

    def __init__(self, request: RunUnder, target: Target, precision: Precision, limits: Limits) -> None:
        self._under = request.under
        self._out = request.out
        self._seconds = min(request.seconds, limits.check_s)
        self._own = {"TMPDIR": str(request.out), **request.environment}
        if request.visible is not None:    # the judge itself sees no GPU
            self._own["CUDA_VISIBLE_DEVICES"] = request.visible
        self.kernels: tuple[str, ...] = ()  # full names of the program's own kernels
        self._target = target
        self._limits = limits
        self._read: Sequence[Path] | None = None  # what may be read in the sandbox; None: no sandbox
        self._order = functools.partial(
            ProfileOrder, how=request.how, calls=request.calls, warm=request.warm, out=str(request.out), target=target,
            precision=precision,
        )  # fmt: skip
        self._called: CalledReference | CalledProgram

    def prepare_reference(self, path: Path, seed: int) -> None:
        """Chooses the reference at `path`, called on its `get_inputs()` after torch.manual_seed(`seed`)."""
        self._called = CalledReference(path=str(path), seed=seed)

    @contextlib.contextmanager
    def prepared_program(
        self, root: Path, shared: Sequence[Path], worker: Worker, secret_inputs: SecretInputs, trial: Trial, ask: Ask
    ) -> Iterator[None]:
        """Chooses a program that is loaded and was called in `worker`. The files for the run lie in a folder below `root` until
        the block ends, and in the folders `shared` by all programs."""
        assert trial.settings is not None
        given, program = secret_inputs.sets[0], Path(trial.settings.program)
        with tempfile.TemporaryDirectory(dir=root, prefix="profiled-") as name:
            folder = Path(name)

            def save(block: TensorBlock, name: str) -> SavedBlock:
                ask(SaveBlock(block, str(folder / name)))
                return SavedBlock(path=str(folder / name), layout=block.layout)

            self._called = CalledProgram(
                settings=trial.settings,
                init=save(trial.built.init, "init"),
                state=save(secret_inputs.state, "state"),
                inputs=save(given.inputs, "inputs"),
                structure=given.structure,
                builds=[(order, grant_library(folder, built)) for order, built in worker.builds],
            )
            self._read = (folder, program if program.is_dir() else program.parent, _PACKAGE, *shared)
            self.kernels = device_time.built_kernels(Path(built.path) for _, built in worker.builds if built.path)
            yield

    def run(self) -> Finished:
        """Runs the command. `output` of the result is the end of what was printed, stdout and stderr together."""
        with tempfile.TemporaryDirectory(dir=self._out, prefix="order-") as name:
            (file := Path(name) / "order.json").write_text(json.dumps(plain(self._order(called=self._called))))
            line = [*self._under, sys.executable, "-P", _SCRIPT, str(file)]
            environment = dict(os.environ) if self._read is None else clean_environment({"HOME": str(self._out)})
            environment.pop("CUDA_VISIBLE_DEVICES", None)  # the judge's own is empty
            environment |= self._own
            if self._read is None:
                finished = command.unconfined(line, seconds=self._seconds, cwd=self._out, env=environment)
            else:
                finished = command.run(
                    line, seconds=self._seconds, cwd=self._out, env=environment, read=self._read, write=(self._out,),
                    limits=self._limits, gpu=self._target == "cuda", loopback=bool(self._under),
                )  # fmt: skip
        return finished._replace(output=finished.output[-_TAIL:])
