"""A judge's parts around one small program, in this process: for tests of what the judge does with a loaded program."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch

from stitchcuda.sandbox.limits import Limits
from stitchcuda.simulator.torch_extension import torch_memory
from stitchcuda.state import Settings
from stitchcuda.verify.inputs.secret_inputs import InputTerms, SecretInputs
from stitchcuda.verify.judge.judge import JudgeProcess
from stitchcuda.verify.messages.judge_requests import JudgeStart
from stitchcuda.verify.processes.forkserver import ForkServer
from stitchcuda.verify.program.trial import LoadedProgram
from tests.simulator.programs import CACHE, HOME


class Bench:
    """A reference with its secret inputs. Programs are loaded into workers of their own."""

    def __init__(self, folder: Path, reference: str, *, sets: int = 3) -> None:
        torch.set_num_threads(1)           # a pool of threads that other tests started would not survive the fork
        forkserver = ForkServer()
        scratch = folder / "scratch"
        scratch.mkdir()
        (folder / "reference.py").write_text(reference)
        # The workers are forks of this process, and other tests have loaded kernels into its copy of the simulator's runtime.
        torch_memory(CACHE, HOME)
        self.home = Path(shutil.copytree(HOME, folder / "runtime" / HOME.name))
        start = JudgeStart(
            settings=Settings(), limits=Limits(), scratch=scratch, reference=folder / "reference.py", cache=CACHE, arch="sm_90",
            runtime=folder / "runtime",
        )  # fmt: skip
        self._judge = JudgeProcess(start, forkserver)
        self._judge.resources.reference_worker()
        self.ask = self._judge.resources.ask
        self.secret_inputs: SecretInputs = self._judge.resources.secret_inputs(sets, fresh=False, terms=InputTerms())

    @contextlib.contextmanager
    def load(self, program: Path) -> Iterator[LoadedProgram]:
        """Loads the program into a new worker, closed after the block."""
        judge = self._judge
        with judge.resources.worker(program, self.secret_inputs) as worker:
            trial = judge.resources.trial(worker, self.secret_inputs)
            trial.load(program)
            yield LoadedProgram(worker, trial)

    def close(self) -> None:
        self._judge.resources.drop_reference()
