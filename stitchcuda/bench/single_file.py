"""Writes the accepted programs of a run as single files, in the form that KernelBench's own evaluation takes.

Such a file holds the reference, the program and its kernels as text. Its ModelNew takes the arguments of the reference's Model,
constructs that with them, so that parameters are drawn as the evaluation expects, hands them over and runs the program. Kernels
are built at the first call, in a folder that is named by the digest of all files. Nothing is built or run here.
Where to look next: `bench/results.py` (the results), `bench/programs.py` (reads such a folder back).
"""

from __future__ import annotations

import re
from pathlib import Path

from stitchcuda.bench.programs import read_pairs
from stitchcuda.bench.results import RunFolder
from stitchcuda.errors import BadInput
from stitchcuda.store.files import write_atomically

_TEMPLATE = '''"""{name}: a program of StitchCUDA as one file.

Its files are written to a folder of the user's cache that is named by their digest, and are imported from there.
"""

import hashlib
import importlib.util
import os
from pathlib import Path

import torch

FILES = {{
{files}
}}


def unpacked() -> Path:
    """The folder with FILES."""
    digest = hashlib.sha256(repr(sorted(FILES.items())).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stitchcuda-single-files" / digest
    for name, text in FILES.items():
        file = folder / name
        if not file.is_file() or file.read_text() != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_name(f"{{file.name}}.{{os.getpid()}}")
            part.write_text(text)
            part.replace(file)
    return folder


def imported(folder: Path, name: str):
    """A module in the folder."""
    spec = importlib.util.spec_from_file_location(f"stitchcuda_{{name}}_{{folder.name}}", folder / f"{{name}}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class ModelNew(torch.nn.Module):
    """Takes the arguments of the reference's Model, draws its parameters as it does, and computes what it computes."""

    def __init__(self, *arguments, **named):
        super().__init__()
        folder = unpacked()
        reference = imported(folder, "reference").Model(*arguments, **named)
        self.program = imported(folder, "model_new").ModelNew(*arguments, **named)
        self.program.load_state_dict(reference.state_dict())

    def forward(self, *inputs):
        return self.program(*inputs)
'''


def single_file(name: str, program: Path, reference: Path) -> str:
    """Returns the text of one file for a program (a folder, or one file) and its reference. Raises `BadInput`."""
    parts = {"reference.py": reference, "model_new.py": program / "model_new.py" if program.is_dir() else program}
    if program.is_dir():
        kernels = sorted(file for file in (program / "kernels").rglob("*") if file.is_file())
        parts |= {str(file.relative_to(program)): file for file in kernels}
    try:
        texts = {file: path.read_text() for file, path in parts.items()}
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{name} cannot be written as one file: {error}") from error
    return _TEMPLATE.format(name=name, files="\n".join(f"    {file!r}: {_literal(text)}," for file, text in texts.items()))


def write_single_files(folder: Path, into: Path) -> list[Path]:
    """Writes a file for each accepted program of the run in `folder`, and returns their paths.

    A problem of KernelBench is named as its scripts name their programs, level_L_problem_N_sample_0_kernel, others
    by their problem. Raises `BadInput` if there is no run, or no accepted program in it.
    """
    run = RunFolder.open(folder)
    if run.asked().kind != "run":
        raise BadInput(f"{folder} holds verdicts on programs of others: give a folder that `bench run` wrote to")
    results = {name: result for name, result in run.results().items() if result.correct}
    if not results:
        raise BadInput(f"the run in {folder} has no accepted program")
    texts = {
        _file_name(pair.name): single_file(pair.name, pair.program, pair.reference)
        for pair in read_pairs("sessions", run.workspace, folder)
        if pair.reference and pair.name in results
    }
    into.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_atomically(into / name, text.encode())
    return [into / name for name in texts]


def _file_name(problem: str) -> str:
    match = re.match(r"level(\d+)-(\d+)_", problem)
    return f"level_{match[1]}_problem_{match[2]}_sample_0_kernel.py" if match else f"{problem}.py"


def _literal(text: str) -> str:
    """A Python literal of a text, readable where the text allows it."""
    if "\\" in text or "'''" in text or text.endswith("'") or "\r" in text:
        return "(\n" + "\n".join(f"        {line!r}" for line in text.splitlines(keepends=True)) + "\n    )"
    return f"'''{text}'''"
