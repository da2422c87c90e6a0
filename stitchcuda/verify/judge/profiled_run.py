"""Has the reference or a judged program called in a process of its own, under another command such as a profiler's.

Of the judge's process. A program runs there as it does in its worker: in the sandbox, with the libraries that were built for
it, on inputs that nothing depends on any more. The reference runs as it is, since it is the user's own.
Nothing that comes out is believed beyond being evidence. Where to look next: `verify/program/profiled_process.py` (what runs),
`verify/client.py` (who asks).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import stitchcuda
from stitchcuda.sandbox import command
from stitchcuda.sandbox.command import Finished
from stitchcuda.sandbox.limits import Limits, clean_environment
from stitchcuda.state import Precision, Target
from stitchcuda.verify.inputs.secret_inputs import SecretInputs
from stitchcuda.verify.integrity import device_time
from stitchcuda.verify.processes.file_grants import grant, grant_library
from stitchcuda.verify.processes.worker import Worker
from stitchcuda.verify.program.trial import Trial

_PACKAGE = Path(stitchcuda.__file__).resolve().parent
_SCRIPT = str(_PACKAGE / "verify" / "program" / "profiled_process.py")
_TAIL = 20_000                             # characters of output that are passed on


class ProfiledRun:
    """One of them: said what of, then run once."""

    def __init__(self, asked: Mapping[str, Any], target: Target, precision: Precision, limits: Limits) -> None:
        """`asked`: under (the command in front), out (a folder it may write), how, calls, warm, limit (seconds), environment
        (what is added to it), and visible: the user's CUDA_VISIBLE_DEVICES, or None."""
        self._under: list[str] = asked["under"]
        self._out = Path(asked["out"])
        self._seconds = min(float(asked["limit"]), limits.check_s)
        self._own = {"TMPDIR": asked["out"], **asked["environment"]}
        if asked["visible"] is not None:
            self._own["CUDA_VISIBLE_DEVICES"] = asked["visible"]
        self.kernels: tuple[str, ...] = ()  # the program's own, by full name
        self._target = target
        self._limits = limits
        self._read: Sequence[Path] | None = None  # what may be read in the sandbox; None: none is needed
        self._order = {what: asked[what] for what in ("how", "calls", "warm", "out")}
        self._order |= {"target": target, "precision": precision}

    def of_reference(self, path: Path, seed: int) -> None:
        self._order |= {"reference": str(path), "seed": seed}

    @contextlib.contextmanager
    def of_program(
        self, root: Path, shared: Sequence[Path], worker: Worker, exam: SecretInputs, trial: Trial
    ) -> Iterator[None]:
        """A program that is loaded and was called in `worker`. What the rehearsal needs lies in a folder below `root` until the
        block ends, and in the folders `shared` by all programs."""
        given, program = exam.sets[0], Path(trial.load_message["program"])
        with tempfile.TemporaryDirectory(dir=root, prefix="rehearsal-") as name:
            folder = Path(name)
            with grant(folder, trial.built.init, exam.state, given.inputs) as (init, state, inputs):
                answers = [_handed(answer, folder) for answer in worker.built]
                self._order |= {
                    "load": trial.load_message | {"init": init, "state": state},
                    "inputs": inputs,
                    "structure": given.structure,
                    "builds": list(zip(worker.ordered, answers, strict=True)),
                }
                self._read = (folder, program if program.is_dir() else program.parent, _PACKAGE, *shared)
                self.kernels = device_time.built_kernels(Path(made["path"]) for made in worker.built if "path" in made)
                yield

    def run(self) -> Finished:
        """Call it; the end of what was printed, by whichever command, in the answer's `output`."""
        with tempfile.TemporaryDirectory(dir=self._out, prefix="order-") as name:
            (file := Path(name) / "order.json").write_text(json.dumps(self._order))
            line = [*self._under, sys.executable, "-P", _SCRIPT, str(file)]
            environment = dict(os.environ) if self._read is None else clean_environment({"HOME": str(self._out)})
            environment.pop("CUDA_VISIBLE_DEVICES", None)  # the judge's own, which sees none
            environment |= self._own
            if self._read is None:
                finished = command.unconfined(line, seconds=self._seconds, cwd=self._out, env=environment)
            else:
                finished = command.run(
                    line, seconds=self._seconds, cwd=self._out, env=environment, read=self._read, write=(self._out,),
                    limits=self._limits, gpu=self._target == "cuda", loopback=bool(self._under),
                )  # fmt: skip
        return finished._replace(output=finished.output[-_TAIL:])


def _handed(answer: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The builder's answer with a library that can be read from the sandbox."""
    if "path" not in answer or answer.get("shared"):
        return answer
    return answer | {"path": str(grant_library(folder, Path(answer["path"])))}
